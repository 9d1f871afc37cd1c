//! What a run has put into a machine, taken out again: after a run that ended well, one that failed,
//! and one that was killed at any point.
//!
//! Each step asks QEMU first what there is, so it can be repeated, and be interrupted itself. Two
//! things crash QEMU 7.2 and are avoided: a device is never given the node that it has already, and
//! the server of the disks is not stopped before its exports are gone.

use std::time::Duration;

use serde_json::{Value, json};
use strongroom_base::Stopwatch;

use crate::bitmaps::{self, PREFIX, RECENT, ignore_refusal};
use crate::drives::{Bitmap, nodes};
use crate::error::MachineError;
use crate::graph::Graph;
use crate::intent::{IntendedDisk, Intent};
use crate::objects::device_path;
use crate::qmp::Qmp;

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

/// What was taken out of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// Exports, nodes, and devices that have their disks again.
    pub names: Vec<String>,
    /// Disks that another program has given another image meanwhile.
    pub exchanged: Vec<Exchanged>,
}

/// A disk that has another node below the filter than the one over which the filter was put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchanged {
    /// What it is called.
    pub disk: String,
    /// The node that its device has now.
    pub node: String,
}

impl std::fmt::Display for Exchanged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { disk, node } = self;
        write!(
            f,
            "another program gave the disk {disk:?} another image during the backup; the machine goes \
             on with that (its node {node:?})"
        )
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
/// QEMU does not answer, or refuses; or another program has put something of its own above a disk.
pub fn remove(qmp: &Qmp, intent: Option<&Intent>) -> Result<Removed, MachineError> {
    let mut names = remove_exports(qmp)?;
    names.extend(remove_nodes(qmp, MARKS)?);
    names.extend(remove_nodes(qmp, IMAGE)?);
    let given = give_back(qmp, intent)?;
    names.extend(given.names);
    names.extend(remove_nodes(qmp, FILTER)?);
    names.extend(remove_nodes(qmp, STORE)?);
    bitmaps::remove_everywhere(qmp, RECENT)?;
    Ok(Removed { names, exchanged: given.exchanged })
}

/// Has a machine run that was paused by us.
///
/// # Errors
///
/// QEMU does not answer, or refuses.
pub fn resume(qmp: &Qmp) -> Result<bool, MachineError> {
    let is_paused = is_paused(qmp)?;
    if is_paused {
        qmp.execute("cont", Value::Null)?;
    }
    Ok(is_paused)
}

/// Whether a machine is as we pause it.
///
/// # Errors
///
/// QEMU does not answer.
pub fn is_paused(qmp: &Qmp) -> Result<bool, MachineError> {
    let status = qmp.execute("query-status", Value::Null)?;
    // After a migration of ours, it does not say that it is paused.
    Ok(status["status"] == "paused" || status["status"] == "postmigrate")
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

/// Gives devices that have a filter of ours the node that is under it now: another program may have given
/// the disk another image since the filter was put in, such as a snapshot or the target of a mirror.
fn give_back(qmp: &Qmp, intent: Option<&Intent>) -> Result<Removed, MachineError> {
    let start = format!("{PREFIX}{FILTER}");
    let filters = nodes(qmp)?.into_keys().filter(|name| name.starts_with(&start));
    let (mut removed, mut failed) = (Removed::default(), Ok(()));
    for filter in filters {
        let disks = intent.iter().flat_map(|intent| &intent.disks).enumerate();
        let mut of_filter = disks.filter(|(number, _)| Names::of(*number).filter == filter);
        let known = of_filter.next().map(|(_, disk)| disk);
        match give_disk_back(qmp, &filter, known) {
            Ok(Some(given)) => {
                removed.exchanged.extend(known.and_then(|disk| given.exchanged(disk)));
                removed.names.push(given.device);
            }
            Ok(None) => {}
            // The others are given back all the same.
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    failed.map(|()| removed)
}

/// A device that has its disk again.
struct Given {
    device: String,
    node: String,
}

impl Given {
    fn exchanged(&self, known: &IntendedDisk) -> Option<Exchanged> {
        let is_another = self.node != known.node;
        is_another.then(|| Exchanged { disk: known.name.clone(), node: self.node.clone() })
    }
}

/// The same for one filter. `None` if no device has it.
fn give_disk_back(
    qmp: &Qmp,
    filter: &str,
    known: Option<&IntendedDisk>,
) -> Result<Option<Given>, MachineError> {
    let graph = Graph::ask(qmp)?;
    let called = known.map_or(filter, |disk| disk.name.as_str());
    // The device has the filter by this node alone, also if `query-block` does not show it: a job would
    // miss what the guest writes, and an overlay would be below its guest.
    if let Some(above) = graph.node_above(filter) {
        let by = graph.job_on(filter).map(|job| format!(", for the job {job:?}"));
        return Err(MachineError::NotUndone(format!(
            "another program has put the node {above:?} above the disk {called:?}{}; so the disk stays \
             as it is until that is gone",
            by.unwrap_or_default()
        )));
    }
    let answer = qmp.execute("query-block", Value::Null)?;
    let mut blocks = answer.as_array().into_iter().flatten();
    let Some(block) = blocks.find(|block| block["inserted"]["node-name"] == filter) else {
        return Ok(None);
    };
    let (Some(qdev), Some(node)) = (block["qdev"].as_str(), graph.file_of(filter)) else {
        let reason = format!("nothing says what the disk {called:?} had before");
        return Err(MachineError::NotUndone(reason));
    };
    let device = device_path(qdev);
    qmp.execute("qom-set", json!({"path": device, "property": "drive", "value": node}))?;
    Ok(Some(Given { device, node: node.to_owned() }))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": ""}, "capabilities": []}}"#;

    /// A monitor of a machine whose device has a filter of ours. It shows this graph, if it shows one.
    /// Returns what it was asked for, too.
    fn monitor(folder: &Path, graph: Option<Value>) -> (Qmp, Receiver<Value>) {
        let socket = folder.join("qmp");
        let listener = UnixListener::bind(&socket).unwrap();
        let (asked, receiver) = channel();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            writeln!(stream, "{GREETING}").unwrap();
            for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
                let command: Value = serde_json::from_str(&line).unwrap();
                let answer = match command["execute"].as_str().unwrap() {
                    "query-named-block-nodes" => json!([{"node-name": "strongroom-filter-0"}]),
                    "query-block" => json!([{
                        "qdev": "vda", "inserted": {"node-name": "strongroom-filter-0"},
                    }]),
                    "x-debug-query-block-graph" => graph.clone().unwrap_or_default(),
                    _ => json!({}),
                };
                let answer = match answer.is_null() {
                    true => {
                        json!({"error": {"class": "CommandNotFound", "desc": "none"}, "id": command["id"]})
                    }
                    false => json!({"return": answer, "id": command["id"]}),
                };
                let _ = asked.send(command);
                writeln!(stream, "{answer}").unwrap();
            }
        });
        (Qmp::connect(&socket, Duration::from_secs(5)).unwrap(), receiver)
    }

    fn set(asked: &Receiver<Value>) -> Option<Value> {
        asked.try_iter().find(|command| command["execute"] == "qom-set")
    }

    /// What is below the filter now is known by the graph alone, also if an intent says what it was.
    #[test]
    fn a_device_is_left_alone_if_nothing_says_what_is_below_its_filter() {
        let intent = Intent {
            monitor: "/m".into(),
            snapshot: "S".to_owned(),
            agent: None,
            unthawed: Vec::new(),
            is_pausing: false,
            migration: None,
            disks: vec![IntendedDisk {
                name: "vda".to_owned(),
                device: "/machine/peripheral/vda".to_owned(),
                node: "disk".to_owned(),
                store: "/s".into(),
            }],
        };
        let graph = |below: &str| {
            let node =
                |id: u64, name: &str| json!({"id": id, "type": "block-driver", "name": name});
            json!({
                "nodes": [node(1, "strongroom-filter-0"), node(2, below)],
                "edges": [{"parent": 1, "child": 2, "name": "file"}],
            })
        };
        let empty = json!({"nodes": [], "edges": []});
        for (graph, is_given) in [
            (None, None),
            (Some(empty), None),
            (Some(graph("disk")), Some(("disk", 0))),
            (Some(graph("overlay")), Some(("overlay", 1))),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let (qmp, asked) = monitor(folder.path(), graph);
            let given = give_back(&qmp, Some(&intent));
            match is_given {
                Some((node, exchanged)) => {
                    assert_eq!(given.unwrap().exchanged.len(), exchanged);
                    assert_eq!(set(&asked).unwrap()["arguments"]["value"], node);
                }
                None => assert!(given.is_err() && set(&asked).is_none()),
            }
        }
    }
}
