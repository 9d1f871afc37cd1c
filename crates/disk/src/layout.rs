//! All volumes of a machine's disks: partitions first, then the logical volumes in them.

use crate::finding::Finding;
use crate::lvm;
use crate::read::ReadAt;
use crate::tables;
use crate::volume::Volume;

/// What is on the disks of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// The volumes: partitions in the order of their numbers, disk by disk, then logical volumes.
    /// A partition that is a physical volume is among them.
    pub volumes: Vec<Volume>,
    /// What is odd.
    pub findings: Vec<Finding>,
}

/// Finds the volumes of a machine, of which these are all disks.
///
/// It does not fail: what cannot be read is a finding.
pub fn volumes(disks: &[&dyn ReadAt]) -> Layout {
    let mut layout = Layout::default();
    for (disk, reader) in disks.iter().enumerate() {
        let partitions = tables::partitions(disk, *reader, &mut layout.findings);
        layout.volumes.extend(partitions);
    }
    // A logical volume is inside of a partition; two of one level must not share bytes. Those in a
    // partition that does are as doubtful as it is.
    note_overlaps(&mut layout.volumes, &mut layout.findings);
    let mut logical = lvm::volumes(disks, &mut layout.volumes, &mut layout.findings);
    note_overlaps(&mut logical, &mut layout.findings);
    layout.volumes.extend(logical);
    layout
}

fn note_overlaps(volumes: &mut [Volume], findings: &mut Vec<Finding>) {
    let mut taken: Vec<(usize, u64, u64, usize)> = Vec::new();
    for (index, volume) in volumes.iter().enumerate() {
        for run in &volume.runs {
            let bytes = run.bytes / run.stripes.len().max(1) as u64;
            let places = run.stripes.iter();
            taken.extend(places.map(|at| (at.disk, at.offset, at.offset + bytes, index)));
        }
    }
    taken.sort_unstable();
    let mut last: Option<(usize, u64, u64, usize)> = None;
    for now in taken {
        if let Some(before) = last
            && before.0 == now.0
            && now.1 < before.2
        {
            let (first, second) = (before.3, now.3);
            if first == second {
                volumes[first].is_shared = true;
            } else if !(volumes[first].is_shared && volumes[second].is_shared) {
                volumes[first].is_shared = true;
                volumes[second].is_shared = true;
                let [first, second] = [first, second].map(|index| volumes[index].name.clone());
                findings.push(Finding::Overlap { first, second });
            }
        }
        if last.is_none_or(|before| before.0 != now.0 || before.2 < now.2) {
            last = Some(now);
        }
    }
}
