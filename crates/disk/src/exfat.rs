//! exFAT: large memory cards and sticks.
//!
//! There are no inodes: the number of a file says where its entries begin, and whether the directory
//! that they are in has consecutive clusters. Modes are those of FAT. Times without a zone are taken
//! as UTC. Entries that contradict their checksum are damaged, and their file is not listed.

mod boot;

mod set;

mod free;

use std::ops::{ControlFlow, Range};

use strongroom_base::Timestamp;
use strongroom_catalog::Metadata;
use strongroom_catalog::entry::is_valid_name;

use crate::clusters::{Chain, Clusters, Content, FIRST, Link, Width};
use crate::error::{DiskError, Result};
use crate::file_system::{Entry, Facts, FileSystem, Kind, Node, NodeKind, Piece, State, Unclean};
use crate::free::FreeMap;
use crate::read::{ReadAt, read_vec};

use boot::Boot;
use set::{ENTRIES_MAX, Set, Slot};

/// The number of the root directory, which has no entries.
const ROOT: u64 = 1;
const DIRECTORY_BYTES_MAX: u64 = 256 << 20;

/// An exFAT volume.
pub struct ExFat<'a> {
    clusters: Clusters<'a>,
    root: u32,
    /// Which map of clusters is in use.
    active: u8,
    facts: Facts,
}

/// Takes the place of the first entry of a file, and what its entries say.
type TakeSet<'t> = dyn FnMut(u64, Set) -> ControlFlow<()> + 't;

impl<'a> ExFat<'a> {
    /// Opens the exFAT of a volume; `None` if it has another file system or none.
    pub fn open(volume: &'a dyn ReadAt) -> Result<Option<Self>> {
        let Some(boot) = Boot::read(volume)? else { return Ok(None) };
        let table = boot.fat..boot.fat + boot.fat_bytes;
        let place = (boot.data_start, boot.clusters, boot.cluster_bytes);
        let clusters = Clusters::new(volume, (Width::Bits32, table), place);
        let mut uuid = [0; 16];
        uuid[..4].copy_from_slice(&boot.serial);
        let state = match (boot.unknown, boot.has_errors, boot.is_dirty) {
            (Some(unknown), _, _) => State::NotUnderstood(unknown),
            (None, true, _) => State::Dirty(Unclean::Errors),
            (None, false, true) => State::Dirty(Unclean::NoJournal),
            (None, false, false) => State::Clean,
        };
        let facts = Facts {
            kind: Kind::ExFat,
            label: Vec::new(),
            uuid,
            state,
            // Clusters need not begin at a multiple of their size.
            block_bytes: 1 << (boot.data_start | boot.cluster_bytes).trailing_zeros(),
            bytes: boot.bytes,
        };
        let mut exfat = Self { clusters, root: boot.root, active: boot.active, facts };
        exfat.facts.label = exfat.label();
        Ok(Some(exfat))
    }

    fn label(&self) -> Vec<u8> {
        let mut label = Vec::new();
        // A directory that cannot be read has no label.
        drop(self.clusters.slots(self.root_chain(), DIRECTORY_BYTES_MAX, &mut |_, slot| {
            match Slot::parse(slot) {
                Slot::Label(found) => label = found,
                Slot::End => {}
                _ => return ControlFlow::Continue(()),
            }
            ControlFlow::Break(())
        }));
        label
    }

    fn root_chain(&self) -> Chain {
        Chain { first: self.root, consecutive: None }
    }

    /// Gives the files of a directory. After damage it goes on with the next file.
    fn sets(&self, directory: Chain, take: &mut TakeSet<'_>) -> Result<()> {
        let mut entries: Vec<u8> = Vec::new();
        let (mut start, mut missing) = (0, 0);
        let mut damage = None;
        let mut note = |at: u64| {
            damage.get_or_insert(DiskError::damaged("entries of a directory, by place", at));
        };
        self.clusters.slots(directory, DIRECTORY_BYTES_MAX, &mut |at, slot| {
            let kind = Slot::parse(slot);
            if missing > 0 && !matches!(kind, Slot::Secondary) {
                note(start);
                missing = 0;
            }
            match kind {
                Slot::End => return ControlFlow::Break(()),
                Slot::File(count) if (3..=ENTRIES_MAX).contains(&count) => {
                    entries.clear();
                    (start, missing) = (at, count);
                }
                Slot::File(_) => note(at),
                _ => {}
            }
            if missing == 0 {
                return ControlFlow::Continue(());
            }
            entries.extend_from_slice(slot);
            missing -= 1;
            if missing > 0 {
                return ControlFlow::Continue(());
            }
            match Set::parse(&entries) {
                Some(set) => take(start, set),
                None => {
                    note(start);
                    ControlFlow::Continue(())
                }
            }
        })?;
        damage.map_or(Ok(()), Err)
    }

    /// The file whose entries begin at a place.
    fn set(&self, number: u64) -> Result<Set> {
        let none = || DiskError::damaged("no file has this number", number);
        let clusters = &self.clusters;
        let at = (number >> 1) * set::BYTES;
        let inside = at.checked_sub(clusters.start).ok_or_else(none)?;
        let index = u32::try_from(inside / clusters.cluster_bytes).map_err(|_| none())?;
        let cluster = index.checked_add(FIRST).ok_or_else(none)?;
        clusters.check(cluster, 1)?;
        let head = read_vec(clusters.reader, at, set::BYTES as usize)?;
        let Slot::File(count @ 3..=ENTRIES_MAX) = Slot::parse(&head) else { return Err(none()) };
        let bytes = count * set::BYTES as usize;
        let mut entries = Vec::with_capacity(bytes);
        let (mut cluster, mut at) = (cluster, at);
        loop {
            let end = clusters.place(cluster) + clusters.cluster_bytes;
            let wanted = (end - at).min((bytes - entries.len()) as u64);
            entries.extend(read_vec(clusters.reader, at, wanted as usize)?);
            if entries.len() == bytes {
                break;
            }
            cluster = match (number & 1, clusters.link(cluster)?) {
                (1, _) => cluster + 1,
                (_, Link::Next(next)) => next,
                _ => return Err(none()),
            };
            clusters.check(cluster, 1)?;
            at = clusters.place(cluster);
        }
        Set::parse(&entries).ok_or_else(none)
    }

    /// The clusters of a directory; `None` if it has none.
    fn directory(&self, number: u64) -> Result<Option<Chain>> {
        if number == ROOT {
            return Ok(Some(self.root_chain()));
        }
        let set = self.set(number)?;
        if !set.is_directory {
            return Err(DiskError::damaged("this is not a directory", number));
        }
        Ok(set.content(self.clusters.cluster_bytes).map(|content| content.chain))
    }

    /// The content of a regular file; `None` if it has none.
    fn content(&self, number: u64) -> Result<Option<Content>> {
        let set = if number == ROOT { None } else { Some(self.set(number)?) };
        let set = set.filter(|set| !set.is_directory);
        let set = set.ok_or_else(|| DiskError::damaged("this is not a regular file", number))?;
        Ok(set.content(self.clusters.cluster_bytes))
    }
}

impl FileSystem for ExFat<'_> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn root(&self) -> u64 {
        ROOT
    }

    fn node(&self, number: u64) -> Result<Node> {
        let set = if number == ROOT { None } else { Some(self.set(number)?) };
        let file = set.as_ref().filter(|set| !set.is_directory);
        let mtime = set.as_ref().map_or(Timestamp::default(), |set| set.mtime);
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
            size: file.map_or(0, |file| file.bytes),
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
        let Some(chain) = self.directory(directory)? else { return Ok(()) };
        let is_consecutive = u64::from(chain.consecutive.is_some());
        let mut has_bad_name = false;
        self.sets(chain, &mut |at, set| {
            if !is_valid_name(&set.name) {
                has_bad_name = true;
                return ControlFlow::Continue(());
            }
            take(Entry { name: &set.name, inode: ((at / set::BYTES) << 1) | is_consecutive })
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
        let content = self.content(file)?;
        content.map_or(Ok(()), |content| self.clusters.pieces(&content, range, take))
    }

    fn read(&self, file: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let content = self.content(file)?;
        content.map_or(Ok(0), |content| self.clusters.read(&content, offset, buffer))
    }

    fn free(&self) -> Result<FreeMap> {
        self.facts.state.check_trusted()?;
        free::map(self)
    }
}
