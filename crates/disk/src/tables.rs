//! Partition tables of one disk.

mod gpt;
mod mbr;

use crate::error::Result;
use crate::finding::Finding;
use crate::read::{ReadAt, read_vec};
use crate::volume::{Place, Volume, VolumeKind};

/// What a dynamic disk is called.
const DYNAMIC_DISK: &str = "a dynamic disk of Windows";

/// The partitions of a disk; the whole disk if it has no table.
pub(crate) fn partitions(
    disk: usize,
    reader: &dyn ReadAt,
    findings: &mut Vec<Finding>,
) -> Vec<Volume> {
    let place = Place { disk, offset: 0 };
    let whole = || Volume::linear("whole".into(), VolumeKind::Whole, place, reader.size());
    let mut sector = [0; 512];
    if reader.size() < 1024 {
        return vec![whole()];
    }
    if reader.read_at(0, &mut sector).is_err() {
        findings.push(Finding::Unreadable { disk, offset: 0 });
        sector.fill(0);
    }
    let primary = mbr::primary(&sector);
    let protects = primary.iter().flatten().flatten().any(|entry| entry.type_id == mbr::PROTECTIVE);
    // As in Linux, a GPT counts only if the MBR says so: otherwise it is left over from before the
    // disk was partitioned again.
    if (protects || primary.is_none())
        && let Some(volumes) = gpt::partitions(disk, reader, protects, findings)
    {
        return volumes;
    }
    match primary {
        Some(primary) => mbr::partitions(disk, reader, &primary, findings),
        None => {
            // A table that is not understood: what is in its partitions is not known.
            let is_shared = mbr::is_odd(&sector) || gpt::has_mark(reader);
            vec![Volume { is_shared, ..whole() }]
        }
    }
}

/// Whether a volume has a partition table of its own: partitions can be in it that nothing else says.
pub(crate) fn has_mark(volume: &dyn ReadAt) -> Result<bool> {
    let sector = read_vec(volume, 0, volume.size().min(512) as usize)?;
    Ok(mbr::may_be_table(&sector) || gpt::has_mark(volume))
}

/// The part of a partition that is on the disk; `None` if none is. One of a volume manager is shared:
/// its volumes can be on several partitions, in an order that only the manager knows.
fn on_disk(
    disk: usize,
    reader: &dyn ReadAt,
    (name, kind): (String, VolumeKind),
    (offset, bytes): (u64, u64),
    manager: Option<&'static str>,
    findings: &mut Vec<Finding>,
) -> Option<Volume> {
    let there = reader.size().saturating_sub(offset).min(bytes);
    if there < bytes {
        findings.push(Finding::OutsideOfDisk { disk, name: name.clone() });
    }
    if let Some(manager) = manager {
        findings.push(Finding::OtherManager { disk, name: name.clone(), manager });
    }
    let is_shared = manager.is_some();
    let volume = || Volume::linear(name, kind, Place { disk, offset }, there);
    (there > 0).then(|| Volume { is_shared, ..volume() })
}
