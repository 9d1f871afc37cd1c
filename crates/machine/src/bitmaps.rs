//! Dirty bitmaps: which ranges of a disk were written since a snapshot.
//!
//! A bitmap of ours is named after the set of backups that it belongs to, the snapshot that it begins
//! with, and the disk. It notes everything from that instant on and is never switched off. So whether
//! a backup was committed need not be known when the bitmap is made: the next backup looks for the
//! bitmap of the snapshot that is its parent. Bitmaps of backups that were not committed are removed
//! then.
//!
//! The disk's name is in it because two images may change their places between two nights.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::drives::{Bitmap, Drive, nodes};
use crate::error::MachineError;
use crate::qmp::Qmp;

/// What the name of each node, export and bitmap of ours begins with.
pub const PREFIX: &str = "strongroom-";

/// The bitmap that notes what is written to a disk just before an instant.
pub const RECENT: &str = "strongroom-recent";

/// The bitmap that notes what is written to a disk after a snapshot.
pub fn bitmap_name(set: &str, snapshot: &str, disk: &str) -> String {
    format!("{PREFIX}{set}-{snapshot}.{disk}")
}

/// The bitmap of the parent, if what it says can be trusted.
pub fn trusted<'a>(bitmaps: &'a [Bitmap], name: &str) -> Option<&'a Bitmap> {
    let found = bitmaps.iter().find(|bitmap| bitmap.name == name)?;
    // One that does not record has missed writes. One that is inconsistent was not stored.
    (found.is_recording && !found.is_inconsistent).then_some(found)
}

/// Removes the bitmaps of a set from the disks, except for those of one snapshot. What cannot be
/// removed stays: it costs the guest a little for each write, and is tried again the next night.
///
/// # Errors
///
/// QEMU does not answer.
pub fn remove_others(
    qmp: &Qmp,
    drives: &[Drive],
    nodes: &BTreeMap<String, Vec<Bitmap>>,
    set: &str,
    kept: Option<&str>,
) -> Result<(), MachineError> {
    let start = format!("{PREFIX}{set}-");
    for drive in drives {
        let kept = kept.map(|snapshot| bitmap_name(set, snapshot, &drive.name));
        let bitmaps = nodes.get(&drive.node).map(Vec::as_slice).unwrap_or_default();
        for bitmap in bitmaps {
            let is_kept = kept.as_ref() == Some(&bitmap.name) && !bitmap.is_inconsistent;
            if bitmap.name.starts_with(&start) && !is_kept {
                ignore_refusal(qmp.execute(
                    "block-dirty-bitmap-remove",
                    json!({"node": drive.node, "name": bitmap.name}),
                ))?;
            }
        }
    }
    Ok(())
}

/// The action of a transaction that begins a bitmap.
pub fn begin(drive: &Drive, name: &str) -> Value {
    json!({
        "type": "block-dirty-bitmap-add",
        "data": {"node": drive.node, "name": name, "persistent": drive.keeps_bitmaps},
    })
}

/// Begins to note what is written just before the instant, in units of this many bytes.
///
/// # Errors
///
/// QEMU does not answer, or refuses.
pub fn begin_recent(qmp: &Qmp, drive: &Drive, granularity: u64) -> Result<(), MachineError> {
    let bitmap = json!({"node": drive.node, "name": RECENT, "granularity": granularity});
    qmp.execute("block-dirty-bitmap-add", bitmap)?;
    Ok(())
}

/// The action of a transaction that ends that.
pub fn end_recent(drive: &Drive) -> Value {
    json!({
        "type": "block-dirty-bitmap-disable",
        "data": {"node": drive.node, "name": RECENT},
    })
}

/// Removes a bitmap from each node that has one of this name.
///
/// # Errors
///
/// QEMU does not answer, or refuses.
pub fn remove_everywhere(qmp: &Qmp, name: &str) -> Result<(), MachineError> {
    for (node, bitmaps) in nodes(qmp)? {
        if bitmaps.iter().any(|bitmap| bitmap.name == name) {
            qmp.execute("block-dirty-bitmap-remove", json!({"node": node, "name": name}))?;
        }
    }
    Ok(())
}

/// Lets a refusal pass. Returns true if it was none.
pub fn ignore_refusal(
    answer: Result<Value, crate::qmp::QmpError>,
) -> Result<bool, crate::qmp::QmpError> {
    match answer {
        Ok(_) => Ok(true),
        Err(error) if error.is_refused() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bitmap_with_gaps_is_not_trusted() {
        let name = bitmap_name("set", "S0", "vda");
        assert_eq!(name, "strongroom-set-S0.vda");
        let bitmap = |is_recording, is_inconsistent| Bitmap {
            name: name.clone(),
            is_recording,
            is_inconsistent,
            granularity: 65536,
        };
        assert!(trusted(&[bitmap(true, false)], &name).is_some());
        assert!(trusted(&[bitmap(false, false)], &name).is_none());
        assert!(trusted(&[bitmap(true, true)], &name).is_none());
        assert!(trusted(&[bitmap(true, false)], "strongroom-set-S0.vdb").is_none());
        assert!(trusted(&[], &name).is_none());
    }
}
