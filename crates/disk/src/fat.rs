//! FAT12, FAT16 and FAT32: an EFI system partition, a memory card.
//!
//! There are no inodes: the number of a file is the place of its entry, counted in entries from the
//! start of the volume. A directory has mode 0755 and a file 0644, without the bits to write if it is
//! read-only; the other attributes are left out. Times are local times of a zone that the volume does
//! not name: they are taken as UTC. The time of the last change of the entry is not stored, and is
//! that of the content.

mod boot;

mod entry;

mod name;

mod free;

use std::ops::{ControlFlow, Range};

use strongroom_base::Timestamp;
use strongroom_catalog::Metadata;
use strongroom_catalog::entry::is_valid_name;

use crate::clusters::{Chain, Clusters, Content, Slots, Width, slots};
use crate::error::{DiskError, Result};
use crate::file_system::{Entry, Facts, FileSystem, Kind, Node, NodeKind, Piece, State, Unclean};
use crate::free::FreeMap;
use crate::read::{ReadAt, read_vec};

use boot::{Boot, Root};
use entry::Slot;
use name::Long;

/// The number of the root directory: a place in the boot sector.
const ROOT: u64 = 1;
/// The most bytes of a directory.
const DIRECTORY_BYTES_MAX: u64 = 65536 * entry::BYTES;

/// A FAT volume.
pub struct Fat<'a> {
    clusters: Clusters<'a>,
    /// All copies of the table that are kept up to date.
    tables: Vec<Range<u64>>,
    root: Root,
    facts: Facts,
}

/// Where a directory is.
#[derive(Debug, Clone, Copy)]
enum Place {
    Fixed { start: u64, bytes: u64 },
    Chain(Chain),
}

/// Takes the place of an entry, what it says, and the name.
type TakeUsed<'t> = dyn FnMut(u64, &entry::Entry, Vec<u8>) -> ControlFlow<()> + 't;

/// A chain that only the table describes.
fn chain(first: u32) -> Chain {
    Chain { first, consecutive: None }
}

impl<'a> Fat<'a> {
    /// Opens the FAT of a volume; `None` if it has another file system or none.
    pub fn open(volume: &'a dyn ReadAt) -> Result<Option<Self>> {
        if volume.size() < boot::BYTES as u64 {
            return Ok(None);
        }
        let sector = read_vec(volume, 0, boot::BYTES)?;
        let Some(boot) = Boot::parse(&sector, volume.size())? else { return Ok(None) };
        let width = match boot.kind {
            Kind::Fat12 => Width::Bits12,
            Kind::Fat16 => Width::Bits16,
            _ => Width::Bits28,
        };
        let table = |start: &u64| *start..*start + boot.fat_bytes;
        let tables: Vec<_> = boot.fats.iter().map(table).collect();
        let clusters = (boot.data_start, boot.clusters, boot.cluster_bytes);
        let clusters = Clusters::new(volume, (width, tables[0].clone()), clusters);
        let mut uuid = [0; 16];
        uuid[..4].copy_from_slice(&boot.serial);
        // Clusters need not begin at a multiple of their size.
        let aligned = boot.data_start | boot.cluster_bytes;
        let facts = Facts {
            kind: boot.kind,
            label: name::label(&boot.label),
            uuid,
            state: state(&boot, &clusters)?,
            block_bytes: 1 << aligned.trailing_zeros(),
            bytes: boot.bytes,
        };
        let mut fat = Self { clusters, tables, root: boot.root, facts };
        fat.facts.label = fat.label();
        Ok(Some(fat))
    }

    /// The label: that of the root directory, or else that of the boot sector.
    fn label(&self) -> Vec<u8> {
        let mut label = None;
        // A directory that cannot be read has no label.
        drop(self.slots(self.root_place(), &mut |_, slot| {
            match Slot::parse(slot, self.is_32()) {
                Slot::Label => label = slot.first_chunk().map(name::label),
                Slot::End => {}
                _ => return ControlFlow::Continue(()),
            }
            ControlFlow::Break(())
        }));
        let label = label.unwrap_or_else(|| self.facts.label.clone());
        if label == b"NO NAME" { Vec::new() } else { label }
    }

    fn is_32(&self) -> bool {
        self.facts.kind == Kind::Fat32
    }

    fn root_place(&self) -> Place {
        match self.root {
            Root::Fixed { start, bytes } => Place::Fixed { start, bytes },
            Root::Chain(first) => Place::Chain(chain(first)),
        }
    }

    /// Gives the entries of a directory as they are stored.
    fn slots(&self, place: Place, take: &mut Slots<'_>) -> Result<()> {
        match place {
            Place::Chain(chain) => self.clusters.slots(chain, DIRECTORY_BYTES_MAX, take),
            Place::Fixed { start, bytes } => {
                slots(self.clusters.reader, start..start + bytes, take).map(drop)
            }
        }
    }

    /// Gives the entries of a directory that are in use, with their places and names. A long name
    /// that is not whole, or is not this entry's, counts as none, as it does everywhere.
    fn used(&self, place: Place, take: &mut TakeUsed<'_>) -> Result<()> {
        let mut long = Long::default();
        self.slots(place, &mut |at, slot| {
            match Slot::parse(slot, self.is_32()) {
                Slot::End => return ControlFlow::Break(()),
                Slot::LongName => {
                    if let Some(slot) = slot.first_chunk() {
                        long.push(slot);
                    }
                }
                Slot::Deleted | Slot::Label => long.clear(),
                Slot::Used(entry) => {
                    let name = long.take(&entry.stored_name);
                    if !entry.is_dots() {
                        let short = || name::short(&entry.stored_name, entry.case);
                        return take(at, &entry, name.unwrap_or_else(short));
                    }
                }
            }
            ControlFlow::Continue(())
        })
    }

    /// The entry of a file or a directory other than the root.
    fn entry(&self, number: u64) -> Result<entry::Entry> {
        let start = match self.root {
            Root::Fixed { start, .. } => start,
            Root::Chain(_) => self.clusters.start,
        };
        let at = number.checked_mul(entry::BYTES).filter(|&at| at >= start);
        let none = || DiskError::damaged("no file has this number", number);
        let slot = read_vec(self.clusters.reader, at.ok_or_else(none)?, entry::BYTES as usize)?;
        match Slot::parse(&slot, self.is_32()) {
            Slot::Used(entry) => Ok(entry),
            _ => Err(none()),
        }
    }

    fn content(&self, number: u64) -> Result<Content> {
        let entry = if number == ROOT { None } else { Some(self.entry(number)?) };
        let Some(entry) = entry.filter(|entry| !entry.is_directory) else {
            return Err(DiskError::damaged("this is not a regular file", number));
        };
        let bytes = u64::from(entry.bytes);
        Ok(Content { chain: chain(entry.first), bytes, written: bytes })
    }
}

/// Whether the volume was unmounted: both systems that write it note that, each in a place of its
/// own. FAT12 has only one of the places.
fn state(boot: &Boot, clusters: &Clusters<'_>) -> Result<State> {
    let entry = clusters.width.entry(&clusters.page(&clusters.table, 0)?, 1);
    let (clean, sound) = match boot.kind {
        Kind::Fat12 => (0, 0),
        Kind::Fat16 => (0x8000, 0x4000),
        _ => (0x0800_0000, 0x0400_0000),
    };
    Ok(if let Some(unknown) = boot.unknown {
        State::NotUnderstood(unknown)
    } else if boot.has_errors || entry & sound != sound {
        State::Dirty(Unclean::Errors)
    } else if boot.is_dirty || entry & clean != clean {
        State::Dirty(Unclean::NoJournal)
    } else {
        State::Clean
    })
}

impl FileSystem for Fat<'_> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn root(&self) -> u64 {
        ROOT
    }

    fn node(&self, number: u64) -> Result<Node> {
        let entry = if number == ROOT { None } else { Some(self.entry(number)?) };
        let file = entry.as_ref().filter(|entry| !entry.is_directory);
        let mtime = entry.as_ref().map_or(Timestamp::default(), |entry| entry.mtime);
        let mode = match file {
            None => 0o755,
            Some(file) if file.is_read_only => 0o444,
            Some(_) => 0o644,
        };
        let metadata = Metadata {
            mode,
            mtime,
            ctime: mtime,
            inode: number,
            links: 1,
            size: file.map_or(0, |file| file.bytes.into()),
            ..Metadata::default()
        };
        let kind = if file.is_some() { NodeKind::File } else { NodeKind::Directory };
        Ok(Node { kind, metadata, encrypted: false, verity: false })
    }

    fn entries(
        &self,
        directory: u64,
        take: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let place = match directory {
            ROOT => self.root_place(),
            _ => {
                let entry = self.entry(directory)?;
                if !entry.is_directory {
                    return Err(DiskError::damaged("this is not a directory", directory));
                }
                Place::Chain(chain(entry.first))
            }
        };
        let mut has_bad_name = false;
        self.used(place, &mut |at, _, name| {
            if !is_valid_name(&name) {
                has_bad_name = true;
                return ControlFlow::Continue(());
            }
            take(Entry { name: &name, inode: at / entry::BYTES })
        })?;
        if has_bad_name {
            return Err(DiskError::damaged("a name in a directory", directory));
        }
        Ok(())
    }

    fn pieces(
        &self,
        file: u64,
        range: Range<u64>,
        take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<()> {
        self.clusters.pieces(&self.content(file)?, range, take)
    }

    fn read(&self, file: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.clusters.read(&self.content(file)?, offset, buffer)
    }

    fn free(&self) -> Result<FreeMap> {
        self.facts.state.check_trusted()?;
        free::map(self)
    }
}
