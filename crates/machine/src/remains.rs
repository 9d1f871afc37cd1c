//! What a run has put into a machine, taken out again: after a run that ended well, one that failed,
//! and one that was killed at any point.
//!
//! Each step asks QEMU first what there is, so it can be repeated, and be interrupted itself. Two
//! things crash QEMU 7.2 and are avoided: a device is never given the node that it has already, and
//! the server of the disks is not stopped before its exports are gone.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use strongroom_base::Stopwatch;

use crate::bitmaps::{self, PREFIX, RECENT, ignore_refusal};
use crate::drives::{Bitmap, nodes};
use crate::error::MachineError;
use crate::intent::Intent;
use crate::qmp::{Qmp, QmpError};

/// How long QEMU may take to end an export.
const EXPORT_LIMIT: Duration = Duration::from_secs(20);
/// How often it is asked.
const EXPORT_TICK: Duration = Duration::from_millis(10);

/// The nodes of a disk, and its export. `number` is the disk's place in the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Keeps what the guest overwrites.
    pub store: String,
    /// The filter that copies it there.
    pub filter: String,
    /// The disk as it was.
    pub image: String,
    /// The export of this.
    pub export: String,
    /// A node for a copy of a bitmap.
    pub marks: String,
    /// The export of this.
    pub marks_export: String,
}

const STORE: &str = "store-";
const FILTER: &str = "filter-";
const IMAGE: &str = "image-";
const EXPORT: &str = "export-";
const MARKS: &str = "marks-";

impl Names {
    pub fn of(number: usize) -> Self {
        let name = |part: &str| format!("{PREFIX}{part}{number}");
        Self {
            store: name(STORE),
            filter: name(FILTER),
            image: name(IMAGE),
            export: name(EXPORT),
            marks: name(MARKS),
            marks_export: format!("{}-marks", name(EXPORT)),
        }
    }
}

/// True for the name of an export of ours.
pub fn is_export(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with(EXPORT))
}

/// A node, an export or a bitmap of ours that is in the machine, other than those of snapshots.
pub fn find(qmp: &Qmp) -> Result<Option<String>, MachineError> {
    let export = exports(qmp)?.into_iter().find(|id| id.starts_with(PREFIX));
    let node = || {
        let of_ours = |(name, bitmaps): (String, Vec<Bitmap>)| match name.starts_with(PREFIX) {
            true => Some(name),
            false => bitmaps.into_iter().map(|bitmap| bitmap.name).find(|name| name == RECENT),
        };
        Ok(nodes(qmp)?.into_iter().find_map(of_ours))
    };
    export.map_or_else(node, |id| Ok(Some(id)))
}

/// Takes everything of ours out of a machine's graph. The bitmaps of snapshots stay. Returns what was
/// removed.
///
/// # Errors
///
/// QEMU does not answer, or refuses.
pub fn remove(qmp: &Qmp, intent: Option<&Intent>) -> Result<Vec<String>, MachineError> {
    let mut removed = remove_exports(qmp)?;
    removed.extend(remove_nodes(qmp, MARKS)?);
    removed.extend(remove_nodes(qmp, IMAGE)?);
    removed.extend(give_back(qmp, intent)?);
    removed.extend(remove_nodes(qmp, FILTER)?);
    removed.extend(remove_nodes(qmp, STORE)?);
    bitmaps::remove_everywhere(qmp, RECENT)?;
    Ok(removed)
}

/// Has a machine run that was paused by us.
///
/// # Errors
///
/// QEMU does not answer, or refuses.
pub fn resume(qmp: &Qmp) -> Result<bool, MachineError> {
    let status = qmp.execute("query-status", Value::Null)?;
    // After a migration of ours, it does not say that it is paused.
    if status["status"] != "paused" && status["status"] != "postmigrate" {
        return Ok(false);
    }
    qmp.execute("cont", Value::Null)?;
    Ok(true)
}

/// Stops the server of the disks, if no other export needs it.
///
/// # Errors
///
/// QEMU does not answer.
pub fn stop_server(qmp: &Qmp) -> Result<bool, MachineError> {
    if !exports(qmp)?.is_empty() {
        return Ok(false);
    }
    Ok(ignore_refusal(qmp.execute("nbd-server-stop", Value::Null))?)
}

fn exports(qmp: &Qmp) -> Result<Vec<String>, MachineError> {
    let answer = qmp.execute("query-block-exports", Value::Null)?;
    let exports = answer.as_array().into_iter().flatten();
    Ok(exports.filter_map(|export| Some(export["id"].as_str()?.to_owned())).collect())
}

/// Ends all exports of ours, and waits until they are gone.
///
/// # Errors
///
/// QEMU does not answer, or takes too long.
pub fn remove_exports(qmp: &Qmp) -> Result<Vec<String>, MachineError> {
    let ours = |ids: Vec<String>| -> Vec<String> {
        ids.into_iter().filter(|id| id.starts_with(PREFIX)).collect()
    };
    let found = ours(exports(qmp)?);
    for id in &found {
        // One that is on its way out refuses.
        ignore_refusal(qmp.execute("block-export-del", json!({"id": id, "mode": "hard"})))?;
    }
    let waited = Stopwatch::start();
    while !ours(exports(qmp)?).is_empty() {
        if waited.elapsed() > EXPORT_LIMIT {
            return Err(MachineError::Slow { what: "end an export", limit: EXPORT_LIMIT });
        }
        std::thread::sleep(EXPORT_TICK);
    }
    Ok(found)
}

fn remove_nodes(qmp: &Qmp, part: &str) -> Result<Vec<String>, MachineError> {
    let start = format!("{PREFIX}{part}");
    let mut found: Vec<String> = nodes(qmp)?.into_keys().collect();
    found.retain(|name| name.starts_with(&start));
    for name in &found {
        qmp.execute("blockdev-del", json!({"node-name": name}))?;
    }
    Ok(found)
}

/// Gives devices that have a filter of ours the node that is under it.
fn give_back(qmp: &Qmp, intent: Option<&Intent>) -> Result<Vec<String>, MachineError> {
    let answer = qmp.execute("query-block", Value::Null)?;
    let start = format!("{PREFIX}{FILTER}");
    let mut given = Vec::new();
    let mut below = None;
    for block in answer.as_array().into_iter().flatten() {
        let (Some(qdev), Some(filter)) =
            (block["qdev"].as_str(), block["inserted"]["node-name"].as_str())
        else {
            continue;
        };
        if !filter.starts_with(&start) {
            continue;
        }
        let device = crate::drives::device_path(qdev);
        let disks = intent.map(|intent| intent.disks.as_slice()).unwrap_or_default();
        let known = disks.iter().find(|disk| disk.device == device);
        let node = match known {
            Some(disk) => Some(disk.node.clone()),
            None => {
                let below = match &below {
                    Some(below) => below,
                    None => below.insert(files_below(qmp)?),
                };
                below.get(filter).cloned()
            }
        };
        let Some(node) = node else {
            return Err(MachineError::NotUndone(format!("nothing says what {device} had before")));
        };
        qmp.execute("qom-set", json!({"path": device, "property": "drive", "value": node}))?;
        given.push(device);
    }
    Ok(given)
}

/// Which node is the file of which. Nothing, if this QEMU does not say it.
fn files_below(qmp: &Qmp) -> Result<BTreeMap<String, String>, QmpError> {
    let graph = match qmp.execute("x-debug-query-block-graph", Value::Null) {
        Err(error) if error.is_refused() => return Ok(BTreeMap::new()),
        answer => answer?,
    };
    let list = |name: &str| graph[name].as_array().cloned().unwrap_or_default();
    let mut names = BTreeMap::new();
    for node in list("nodes") {
        if let (Some(id), Some(name)) = (node["id"].as_u64(), node["name"].as_str()) {
            names.insert(id, name.to_owned());
        }
    }
    let name = |value: &Value| names.get(&value.as_u64()?).cloned();
    let edges = list("edges").into_iter().filter(|edge| edge["name"] == "file");
    Ok(edges.filter_map(|edge| Some((name(&edge["parent"])?, name(&edge["child"])?))).collect())
}
