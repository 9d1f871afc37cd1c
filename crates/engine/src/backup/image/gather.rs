//! What is known of the disks before they are read: where files are, what is free, and which files
//! were others in the parent.

use std::collections::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;

use strongroom_base::Cancel;
use strongroom_catalog::{Entry, Recipe};
use strongroom_disk::{
    FileSystem, FreeMap, Node, NodeKind, Piece, Source, State, Unclean, Volume, is_suspended,
    open_swap,
};
use strongroom_repository::ChunkReader;

use super::earlier::Earlier;
use super::map::{DiskMap, EXTENTS_MAX, Extent, FileOnVolume, Room, place};
use super::walk::{Entries, Found, Walk};
use super::{Disk, MachineOptions, Mapped};
use crate::backup::parent_directory::ParentDirectory;
use crate::backup::tally::Tally;
use crate::error::EngineError;

/// At most this many files are remembered as changed, a kilobyte each: the others get their deltas
/// from the same place of the disk.
const CHANGED_MAX: usize = 20_000;

/// What is known of all disks.
pub struct Gathered {
    /// Disk by disk.
    pub maps: Vec<DiskMap>,
    /// Files that are others than in the parent, and what they were there.
    pub changed: HashMap<FileOnVolume, Recipe>,
    /// Files to which memory was swapped, and the part of each that is left out.
    pub swapped: HashMap<FileOnVolume, Range<u64>>,
    /// A swap area or a file holds the memory of a suspended machine: what it wakes up with is in all
    /// swap areas, and what is free it knows better than its disks.
    pub is_hibernated: bool,
    /// Volumes with a file system that is known, by their numbers.
    pub listed: HashSet<usize>,
}

/// The walk through the volumes.
struct Gathering<'g, 'r> {
    mapped: &'g [Mapped<'g>],
    stored: &'g MachineOptions,
    reader: &'r ChunkReader,
    gathered: Gathered,
    room: Room,
    /// What of each disk was swapped out.
    swapped_out: Vec<(usize, Range<u64>)>,
}

impl Gathered {
    /// Walks through all file systems.
    pub fn gather(
        disks: &[Disk],
        mapped: &[Mapped<'_>],
        stored: &MachineOptions,
        before: &Earlier,
        reader: &ChunkReader,
        tally: &mut Tally<'_>,
        cancel: &Cancel,
    ) -> Result<Self, EngineError> {
        let maps = disks.iter().map(|_| DiskMap::default()).collect();
        let (changed, swapped, listed) = (HashMap::new(), HashMap::new(), HashSet::new());
        let gathered = Self { maps, changed, swapped, is_hibernated: false, listed };
        let (room, swapped_out) = (Room::new(EXTENTS_MAX), Vec::new());
        let mut gathering = Gathering { mapped, stored, reader, gathered, room, swapped_out };
        let mut entries = entries_of(disks);
        for (number, Mapped { volume, .. }) in mapped.iter().enumerate() {
            let tree = before.tree(disks, volume);
            gathering.volume(number, tree.as_ref(), (&mut entries, tally), cancel)?;
        }
        let Gathering { mut gathered, room, swapped_out, .. } = gathering;
        if room.is_full {
            tally.note_all(&format!(
                "the files have more than {EXTENTS_MAX} extents: the rest of them are stored beside \
                 the disk once more, and nothing that was swapped out is left out"
            ));
        }
        // An extent that is not remembered could be in what was swapped out.
        match gathered.is_hibernated || room.is_full {
            true => gathered.swapped.clear(),
            false => swapped_out.into_iter().for_each(|(disk, range)| {
                gathered.maps[disk].zeros.push(range);
            }),
        }
        if gathered.is_hibernated {
            // It goes on with what it has in memory, which can be ahead of its disks: what is free by
            // them can be the content of a file by then.
            gathered.maps.iter_mut().for_each(|map| map.zeros.clear());
            tally.note_all(
                "a swap area or a file holds the memory of a suspended machine: nothing of its disks \
                 counts as free",
            );
        }
        if entries.are_used_up() {
            // What is free by one volume can be a file of another that was not listed, or the memory of
            // a suspended machine.
            gathered.maps.iter_mut().for_each(|map| map.zeros.clear());
            gathered.swapped.clear();
            tally.note_all(
                "the volumes of the machine have more names than its disks have room for: nothing of \
                 its disks counts as free",
            );
        }
        for (disk, map) in disks.iter().zip(&mut gathered.maps) {
            map.tidy();
            if !stored.keep_free {
                map.zeros.extend(holes_of(disk));
            }
            map.zeros.sort_unstable_by_key(|range| range.start);
        }
        Ok(gathered)
    }

    /// Counts as zeros what the images do not have, although what file systems call free is stored.
    pub fn add_holes(&mut self, disks: &[Disk]) {
        for (disk, map) in disks.iter().zip(&mut self.maps) {
            map.zeros.extend(holes_of(disk));
            map.zeros.sort_unstable_by_key(|range| range.start);
        }
    }
}

impl Gathering<'_, '_> {
    fn volume(
        &mut self,
        number: usize,
        before: Option<&Recipe>,
        (entries, tally): (&mut Entries, &mut Tally<'_>),
        cancel: &Cancel,
    ) -> Result<(), EngineError> {
        let Mapped { volume, reader } = &self.mapped[number];
        let path = PathBuf::from(&volume.name);
        match open_swap(reader) {
            Ok(Some(swap)) => {
                self.gathered.is_hibernated |= swap.hibernated;
                if !self.stored.keep_swap && !volume.is_shared {
                    let swapped_out = &mut self.swapped_out;
                    place(volume, swap.free, &mut |disk, range| swapped_out.push((disk, range)));
                    return Ok(());
                }
            }
            Ok(None) => {}
            Err(error) => tally.problem(&path, &error.to_string()),
        }
        let files = match strongroom_disk::open(reader) {
            Ok(Some(files)) => files,
            Ok(None) => return Ok(()),
            Err(error) => {
                tally.note(&path, &format!("its files are not listed: {error}"));
                return Ok(());
            }
        };
        self.gathered.listed.insert(number);
        self.gathered.is_hibernated |= files.facts().state == State::Dirty(Unclean::Hibernated);
        if !self.stored.keep_swap && !volume.is_shared {
            let swapped = strongroom_disk::swap_files(&*files).unwrap_or_default();
            let volume = u32::try_from(number).unwrap_or(u32::MAX);
            let on_volume = swapped.into_iter().map(|file| ((volume, file.inode), file.free));
            self.gathered.swapped.extend(on_volume);
        }
        let (mut free, why) = match self.free(volume, &*files) {
            Ok(free) => (free, None),
            Err(why) => (None, Some(why)),
        };
        self.walk(number, &*files, before, free.as_mut(), (entries, tally), cancel)?;
        for range in free.iter().flat_map(FreeMap::ranges) {
            place(volume, range, &mut |disk, range| self.gathered.maps[disk].zeros.push(range));
        }
        if let Some(why) = why.or_else(|| seen_as_it_is(files.facts().state)) {
            tally.note(&path, &why);
        }
        Ok(())
    }

    /// Finds the extents of all files, which are not free.
    fn walk(
        &mut self,
        number: usize,
        files: &dyn FileSystem,
        before: Option<&Recipe>,
        mut free: Option<&mut FreeMap>,
        (entries, tally): (&mut Entries, &mut Tally<'_>),
        cancel: &Cancel,
    ) -> Result<(), EngineError> {
        let volume = u32::try_from(number).unwrap_or(u32::MAX);
        let mut parents: Vec<ParentDirectory<'_>> = Vec::new();
        let mut linked = HashSet::new();
        for found in Walk::new(files, self.mapped[number].volume, entries) {
            cancel.check()?;
            match found {
                Found::Enter { name, .. } => {
                    let entry =
                        parents.last_mut().and_then(|above| above.find(&name, tally.monitor));
                    let tree = match name.is_empty() {
                        true => before.cloned(),
                        false => entry.and_then(|found| found.entry().tree().cloned()),
                    };
                    parents.push(ParentDirectory::new(tree.as_ref(), self.reader));
                }
                Found::Leave => drop(parents.pop()),
                // It is reported when the trees are made.
                Found::Lost { .. } => {}
                Found::Leaf { name, inode, node } => {
                    if node.kind != NodeKind::File
                        || (node.metadata.links > 1 && !linked.insert(inode))
                    {
                        continue;
                    }
                    let directory = parents.last_mut();
                    let earlier = directory.and_then(|above| above.find(&name, tally.monitor));
                    self.gathered.is_hibernated |= is_suspended(files, inode, &node);
                    self.note_changed((volume, inode), &node, earlier.map(|found| found.entry()));
                    self.extents((volume, inode), files, free.as_deref_mut());
                }
            }
        }
        Ok(())
    }

    /// Remembers what a file was in the parent, if it has changed since.
    fn note_changed(&mut self, file: FileOnVolume, node: &Node, earlier: Option<&Entry>) {
        if let Some(earlier) = earlier
            && !earlier.metadata.same_version_as(&node.metadata)
            && let Some(content) = earlier.content()
            && self.gathered.changed.len() < CHANGED_MAX
        {
            self.gathered.changed.insert(file, content.clone());
        }
    }

    fn extents(
        &mut self,
        file: FileOnVolume,
        files: &dyn FileSystem,
        mut free: Option<&mut FreeMap>,
    ) {
        let Mapped { volume, .. } = &self.mapped[file.0 as usize];
        let swapped = self.gathered.swapped.get(&file).cloned().unwrap_or_default();
        let (maps, swapped_out) = (&mut self.gathered.maps, &mut self.swapped_out);
        let room = &mut self.room;
        let mut take = |piece: Piece| {
            let end = piece.offset.saturating_add(piece.bytes);
            let out = swapped.start.clamp(piece.offset, end)..swapped.end.clamp(piece.offset, end);
            let on_volume = |start: u64, part: &Range<u64>| {
                let at = start.saturating_add(part.start - piece.offset);
                at..at.saturating_add(part.end - part.start)
            };
            if let Source::Volume(start) | Source::Unwritten(start) = piece.source {
                // To a file that was allocated and never written, memory is swapped all the same.
                place(volume, on_volume(start, &out), &mut |disk, range| {
                    swapped_out.push((disk, range));
                });
            }
            let Source::Volume(start) = piece.source else { return ControlFlow::Continue(()) };
            if let Some(free) = &mut free {
                free.keep(start..start.saturating_add(piece.bytes));
            }
            for part in [piece.offset..out.start, out.end..end] {
                let mut file_offset = part.start;
                place(volume, on_volume(start, &part), &mut |disk, range| {
                    let (start, bytes) = (range.start, range.end - range.start);
                    room.put(maps, disk, Extent { start, bytes, file, file_offset });
                    file_offset += bytes;
                });
            }
            ControlFlow::Continue(())
        };
        // What of a file cannot be mapped is read with the rest of the disk.
        let _ = files.pieces(file.1, 0..u64::MAX, &mut take);
    }

    /// What the file system says that nothing needs, if that counts; or why it does not, if that is
    /// worth a word.
    fn free(&self, volume: &Volume, files: &dyn FileSystem) -> Result<Option<FreeMap>, String> {
        if self.stored.keep_free || !files.facts().state.is_trusted() {
            return Ok(None);
        }
        if volume.is_shared {
            return Err("it may be shared with other volumes: none of it counts as free".into());
        }
        match files.free() {
            Ok(free) => Ok(Some(free)),
            Err(error) => Err(format!("none of it counts as free: {error}")),
        }
    }
}

/// Entries that all volumes on these disks may have together.
pub fn entries_of(disks: &[Disk]) -> Entries {
    let bytes = disks.iter().map(|disk| disk.image.size());
    Entries::of_machine(bytes.fold(0, u64::saturating_add))
}

/// What a person should know of a file system that is not what its own kernel would show.
fn seen_as_it_is(state: State) -> Option<String> {
    match state {
        // That without a journal is mounted while the machine runs is usual: each EFI partition.
        State::Clean | State::Replayed { .. } | State::Dirty(Unclean::NoJournal) => None,
        State::Dirty(_) | State::NotUnderstood(_) => Some(format!(
            "{state}: none of it counts as free, and files can be older than after a mount; the \
             disk itself is stored whole"
        )),
    }
}

/// The ranges of a disk that its image does not have.
fn holes_of(disk: &Disk) -> Vec<Range<u64>> {
    let (mut holes, mut at) = (Vec::new(), 0);
    let end = disk.image.size();
    while at < end {
        // What cannot be asked is read.
        let Ok(next) = disk.image.next_data(at) else { break };
        let data = next.unwrap_or(end..end);
        let start = data.start.clamp(at, end);
        if start > at {
            holes.push(at..start);
        }
        if data.end <= at {
            break;
        }
        at = data.end;
    }
    holes
}
