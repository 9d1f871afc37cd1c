//! A part of one or more disks that a person could mount, and the reader of its bytes.

use std::io;

use crate::read::ReadAt;

/// A partition, a logical volume, or a whole disk without a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// `p1` for a partition (numbered as Linux numbers them), `whole` for a disk without a table,
    /// `group-volume` for a logical volume, with the device mapper's doubled hyphens. Partitions of
    /// different disks can have the same name.
    pub name: String,
    /// What its table says it is.
    pub kind: VolumeKind,
    /// The disk that it is on, as an index into the disks that were given; `None` for a logical
    /// volume, which can be on several.
    pub disk: Option<usize>,
    /// Size in bytes.
    pub bytes: u64,
    /// Where its bytes are, in order and without gaps.
    pub runs: Vec<Run>,
    /// Something else may need what it calls free: it shares bytes with another volume, it is the
    /// origin of a snapshot, it belongs to a volume manager, volumes are in it, its table may be one
    /// that no longer counts, or a physical volume that it may be on is doubtful.
    pub is_shared: bool,
}

/// What a table says of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeKind {
    /// The whole disk: it has no partition table.
    Whole,
    /// A partition of an MBR.
    Mbr {
        /// The type, such as 0x83 for Linux and 0x82 for swap.
        type_id: u8,
    },
    /// A partition of a GPT.
    Gpt {
        /// The type, a GUID as it is stored.
        type_id: [u8; 16],
        /// The partition's own GUID, as it is stored.
        id: [u8; 16],
        /// Its name.
        name: String,
    },
    /// A logical volume of LVM2.
    Lvm {
        /// The volume group.
        group: String,
        /// The volume's name in it.
        volume: String,
        /// The volume's UUID, as LVM writes it.
        id: String,
    },
}

/// Consecutive bytes of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Where they begin in the volume.
    pub start: u64,
    /// How many there are; not zero.
    pub bytes: u64,
    /// Where the stripes begin: one place if the run is linear, at least one in any case.
    pub stripes: Vec<Place>,
    /// Bytes that are taken from one stripe before the next one follows; not zero.
    pub stripe_bytes: u64,
}

/// A position on one of the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The disk, as an index into the disks that were given.
    pub disk: usize,
    /// The byte on it.
    pub offset: u64,
}

impl Volume {
    /// A volume of consecutive bytes of one disk.
    pub(crate) fn linear(name: String, kind: VolumeKind, place: Place, bytes: u64) -> Self {
        let run = Run { start: 0, bytes, stripes: vec![place], stripe_bytes: u64::MAX };
        let runs = if bytes == 0 { Vec::new() } else { vec![run] };
        Self { name, kind, disk: Some(place.disk), bytes, runs, is_shared: false }
    }

    /// The place of a byte of the volume, and how many bytes are consecutive from there on; `None`
    /// behind the end.
    pub fn place(&self, offset: u64) -> Option<(Place, u64)> {
        let next = self.runs.partition_point(|run| run.start <= offset);
        let run = &self.runs[next.checked_sub(1)?];
        let inside = offset - run.start;
        let left = run.bytes.checked_sub(inside).filter(|&left| left > 0)?;
        let (stripe, into) = (inside / run.stripe_bytes, inside % run.stripe_bytes);
        let count = run.stripes.len() as u64;
        let first = run.stripes.get((stripe % count) as usize)?;
        let offset = first.offset + stripe / count * run.stripe_bytes + into;
        let left = if count == 1 { left } else { left.min(run.stripe_bytes - into) };
        // With one stripe, the next begins where the one before ends.
        Some((Place { disk: first.disk, offset }, left))
    }
}

/// Reads a volume from its disks.
#[derive(Clone, Copy)]
pub struct VolumeReader<'a> {
    volume: &'a Volume,
    disks: &'a [&'a dyn ReadAt],
}

impl<'a> VolumeReader<'a> {
    /// Reads a volume that was found on these disks.
    pub fn new(volume: &'a Volume, disks: &'a [&'a dyn ReadAt]) -> Self {
        Self { volume, disks }
    }
}

impl ReadAt for VolumeReader<'_> {
    fn size(&self) -> u64 {
        self.volume.bytes
    }

    fn read_at(&self, mut offset: u64, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            let (place, bytes) = self.volume.place(offset).ok_or(io::ErrorKind::UnexpectedEof)?;
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(buffer.len());
            let (now, rest) = buffer.split_at_mut(bytes);
            let disk = self.disks.get(place.disk).ok_or(io::ErrorKind::NotFound)?;
            disk.read_at(place.offset, now)?;
            offset += bytes as u64;
            buffer = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_striped_volume_is_read_in_its_own_order() {
        let (left, right) = (b"__ABEF".to_vec(), b"CDGHzz".to_vec());
        let disks: [&dyn ReadAt; 2] = [&left, &right];
        let stripes = vec![Place { disk: 0, offset: 2 }, Place { disk: 1, offset: 0 }];
        let runs = vec![
            Run { start: 0, bytes: 8, stripes, stripe_bytes: 2 },
            Run {
                start: 8,
                bytes: 2,
                stripes: vec![Place { disk: 1, offset: 4 }],
                stripe_bytes: u64::MAX,
            },
        ];
        let volume = Volume {
            name: "vg-lv".into(),
            kind: VolumeKind::Whole,
            disk: None,
            bytes: 10,
            runs,
            is_shared: false,
        };
        let reader = VolumeReader::new(&volume, &disks);
        let whole = b"ABCDEFGHzz";
        for from in 0..10 {
            for to in from..=10 {
                let mut buffer = vec![0; to - from];
                reader.read_at(from as u64, &mut buffer).unwrap();
                assert_eq!(buffer, whole[from..to]);
            }
        }
        let behind = reader.read_at(5, &mut [0; 6]).unwrap_err();
        assert_eq!(behind.kind(), io::ErrorKind::UnexpectedEof);
    }
}
