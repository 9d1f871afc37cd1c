//! Storing chunks, each once: a chunk is looked up and, if it is new, encoded against what it
//! resembles and packed.

use std::collections::HashMap;
use std::sync::Arc;

use strongroom_arena::{ArenaContent, CacheLimits, StoredChunk};
use strongroom_base::regimes::{Regime, reached_if};
use strongroom_base::{ArenaId, Cancel, Fingerprint, Location, Monitor, SizeLimits, SnapshotId};
use strongroom_catalog::{ChunkRef, Part, WriteChunk};

use super::basis::{Delta, FoundBasis, FromParent, StreamBasis};
use super::kept::KeptSessions;
use super::packer::options::PackOptions;
use super::packer::{Packer, WrittenArena};
use super::times::{Stage, StageTimes};
use crate::error::RepositoryError;
use crate::index::chunk_index::ChunkIndex;
use crate::own::Needs;
use crate::places::Places;
use crate::read::chunk_reader::{ChunkReader, false_if_unreadable};
use crate::repository::Repository;
use crate::session::Session;

/// What was written, chunk by chunk and request by request (Yuru §5.1.2 counts these).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteStats {
    /// Chunks of data that came.
    pub data_chunks: u64,
    /// Those of them that were new.
    pub data_chunks_new: u64,
    /// Bytes of new data.
    pub data_bytes: u64,
    /// Chunks of metadata that were new.
    pub metadata_chunks_new: u64,
    /// Bytes of new metadata.
    pub metadata_bytes: u64,
    /// New chunks, of either kind, that were stored as deltas.
    pub deltas: u64,
    /// Blocks that new chunks were put into.
    pub blocks: u64,
    /// Arenas that blocks were put into: requests to the backend.
    pub arenas: u64,
    /// Bytes of these arenas.
    pub stored_bytes: u64,
}

/// Stores chunks of one session.
pub struct ChunkWriter<'r> {
    pub(super) reader: &'r ChunkReader,
    pub(super) index: ChunkIndex,
    packer: Packing,
    session: SnapshotId,
    /// For a key that cannot read, and a machine that remembers its backups.
    kept: Option<KeptSessions>,
    deltas: bool,
    /// Chunks in these places are stored again.
    pub(super) again: Places,
    /// Where those are by now whose places are their names.
    pub(super) moved: HashMap<Location, Location>,
    neighbours: Neighbours,
    pub(super) stats: WriteStats,
    times: Arc<StageTimes>,
}

/// Where new chunks go.
enum Packing {
    Packer(Box<Packer>),
    /// A dry run: locations are invented, in an arena that will never exist.
    Nowhere {
        next_slot: u32,
        id: ArenaId,
    },
}

/// Where the last chunk is that was stored already: what followed it then is likely to resemble
/// what follows it now, even if the file has another name and no parent.
#[derive(Default)]
struct Neighbours {
    last: Option<Location>,
    new_since: u32,
}

/// At most this many new chunks in a row are compared with what followed the last stored one.
const NEIGHBOURS_MAX: u32 = 4;

impl<'r> ChunkWriter<'r> {
    /// Learns from the session which arenas exist, and starts packing.
    pub fn open(
        repository: &Repository,
        reader: &'r ChunkReader,
        session: &Session<'_>,
        pack: PackOptions,
        dry_run: bool,
        monitor: &dyn Monitor,
        cancel: &Cancel,
    ) -> Result<Self, RepositoryError> {
        let stored = session.take_stored()?;
        // What is kept near is no proof that the place still has it: the index learns from the place.
        let (store, place) = (reader.store(), repository.arena_store(CacheLimits::default()));
        place.trust(stored.vouchers.clone());
        store.trust(stored.vouchers);
        let mut index =
            ChunkIndex::open(repository.cache_folder().as_deref())?.within(&repository.limits);
        index.respect(session.collections.clone());
        let backend = repository.backend();
        index.refresh_from(&stored.arenas, backend, &place, store, monitor, cancel)?;
        drop(place);
        index.say_withheld(monitor);
        drop(stored.arenas);
        let origin = session.origin();
        let times = Arc::new(StageTimes::default());
        let packer = if dry_run {
            // Drawn, so that no arena has it.
            let id = ArenaContent::Data.draw_id(&*repository.surroundings.entropy);
            index.begin_arena(id, origin.session);
            Packing::Nowhere { next_slot: 0, id }
        } else {
            let secret = reader.store().secret_of(origin.session);
            Packing::Packer(Box::new(Packer::start(repository, origin, secret, pack, &times)))
        };
        let session = origin.session;
        let kept = KeptSessions::of(reader.store(), session);
        let deltas = pack.deltas && reader.can_read_parents() && !dry_run;
        let (neighbours, stats) = (Neighbours::default(), WriteStats::default());
        let (again, moved) = (Places::default(), HashMap::new());
        Ok(Self {
            reader,
            index,
            packer,
            session,
            kept,
            deltas,
            again,
            moved,
            neighbours,
            stats,
            times,
        })
    }

    /// Keeps a chunk of data of this name, which is at `offset` of its stream.
    pub fn put_data(
        &mut self,
        chunk: &[u8],
        fingerprint: Fingerprint,
        offset: u64,
        basis: Option<&mut StreamBasis<'_>>,
    ) -> Result<ChunkRef, RepositoryError> {
        self.stats.data_chunks += 1;
        let part = Part { level: 0, offset };
        let (location, is_new) = self.put(ArenaContent::Data, chunk, fingerprint, part, basis)?;
        if is_new {
            self.stats.data_chunks_new += 1;
            self.stats.data_bytes += chunk.len() as u64;
        }
        let fingerprint = self.reader.naming().name_in(location, fingerprint);
        Ok(ChunkRef { fingerprint, location, stream_bytes: chunk.len() as u64 })
    }

    /// Keeps chunks of metadata: of a stream's recipe or of a tree, which was `basis` before.
    pub fn metadata<'w, 'b>(
        &'w mut self,
        basis: Option<&'w mut StreamBasis<'b>>,
    ) -> MetadataLane<'w, 'r, 'b> {
        MetadataLane { writer: self, basis }
    }

    fn put(
        &mut self,
        content: ArenaContent,
        chunk: &[u8],
        fingerprint: Fingerprint,
        part: Part,
        mut basis: Option<&mut StreamBasis<'_>>,
    ) -> Result<(Location, bool), RepositoryError> {
        let known = self.find_known(content, chunk, fingerprint, part, basis.as_deref_mut())?;
        if let Some(location) = known {
            self.note_needed(location.arena);
            if content == ArenaContent::Data {
                self.neighbours = Neighbours { last: Some(location), new_since: 0 };
            }
            return Ok((location, false));
        }
        let delta = self.encode(content, chunk, part, basis);
        let stored = delta.as_ref().map_or(StoredChunk::Whole(chunk), |delta| delta.stored(chunk));
        Ok((self.pack(content, fingerprint, stored)?, true))
    }

    /// Stores a chunk that is nowhere yet.
    pub(super) fn pack(
        &mut self,
        content: ArenaContent,
        fingerprint: Fingerprint,
        stored: StoredChunk<'_>,
    ) -> Result<Location, RepositoryError> {
        let is_delta = !stored.bases().is_empty();
        let location = match &mut self.packer {
            Packing::Packer(packer) => {
                self.stats.deltas += u64::from(is_delta);
                reached_if(is_delta, Regime::DeltaStored);
                let packed = packer.put(content, fingerprint, stored);
                if packed.begins_arena {
                    self.index.begin_arena(packed.location.arena, self.session);
                }
                let written = packer.take_written()?;
                note_written(&mut self.index, &mut self.stats, &written);
                packed.location
            }
            Packing::Nowhere { next_slot, id } => {
                *next_slot = next_slot.wrapping_add(1);
                Location { arena: *id, slot: *next_slot }
            }
        };
        self.index.insert(&fingerprint, location, is_delta);
        self.note_needed(location.arena);
        if let Some(kept) = self.kept.as_ref().filter(|_| is_delta) {
            kept.note_bases(stored.bases(), &self.index);
        }
        Ok(location)
    }

    /// Where a chunk is that the repository holds: in the parent's place first, which needs no
    /// index.
    fn find_known(
        &mut self,
        content: ArenaContent,
        chunk: &[u8],
        fingerprint: Fingerprint,
        part: Part,
        mut basis: Option<&mut StreamBasis<'_>>,
    ) -> Result<Option<Location>, RepositoryError> {
        let in_place = basis.as_mut().and_then(|basis| basis.in_place(part, &fingerprint));
        if let Some(location) = in_place
            && self.is_usable(location)
            && self.index.is_present(&fingerprint, location, self.reader.store())?
            && self.is_same(content, location, chunk)?
        {
            return Ok(in_place);
        }
        let found = self.index.find_known(&fingerprint, self.reader.store())?;
        let found = found.filter(|found| self.is_usable(*found) && Some(*found) != in_place);
        let Some(found) = found else { return Ok(None) };
        if !self.is_same(content, found, chunk)? {
            return Ok(None);
        }
        if in_place.is_none()
            && part.level == 0
            && let Some(basis) = basis
        {
            let name = self.reader.naming().name_in(found, fingerprint);
            basis.saw_known(part.offset, &name);
        }
        Ok(Some(found))
    }

    /// Whether what has the fingerprint of a chunk is the chunk. If comparing is by value, it is read,
    /// wherever it is by now: with those that go into the next block, in an arena that is built or
    /// written, or on the medium.
    fn is_same(
        &mut self,
        content: ArenaContent,
        place: Location,
        chunk: &[u8],
    ) -> Result<bool, RepositoryError> {
        if !self.reader.naming().is_by_value() {
            return Ok(true);
        }
        while !self.index.is_written(place.arena) {
            let packer = match &mut self.packer {
                Packing::Packer(packer) => packer,
                // What a dry run would have stored can be read nowhere.
                Packing::Nowhere { .. } => return Ok(true),
            };
            if ArenaContent::of(place.arena) != content {
                return Ok(false);
            }
            if packer.is_open(place.arena) {
                let Some(stored) = packer.chunk(place) else { return Ok(false) };
                let expanded = self.reader.expand(stored);
                return false_if_unreadable(expanded.map(|bytes| *bytes == *chunk));
            }
            let written = packer.wait_written()?;
            note_written(&mut self.index, &mut self.stats, &[written]);
        }
        // Data and metadata may share a tag, and never a place.
        Ok(ArenaContent::of(place.arena) == content && self.reader.holds(place, chunk)?)
    }

    /// Whether a chunk in this place may be named in the snapshot. Metadata must be readable for
    /// the next backup: it may be of another machine of the domain, and the place need not give it.
    pub(super) fn is_usable(&self, location: Location) -> bool {
        let is_readable = ArenaContent::of(location.arena) == ArenaContent::Data
            || (self.can_read(location.arena) && !self.reader.has_failed(location));
        is_readable && !self.again.contains(location)
    }

    /// False for an arena that this machine cannot read, although it could read its own.
    fn can_read(&self, arena: ArenaId) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.can_read(arena, &self.index))
    }

    fn note_needed(&self, arena: ArenaId) {
        if let Some(kept) = &self.kept {
            kept.note(arena, &self.index);
        }
    }

    /// A new chunk as a delta, if something similar is available.
    fn encode(
        &mut self,
        content: ArenaContent,
        chunk: &[u8],
        part: Part,
        basis: Option<&mut StreamBasis<'_>>,
    ) -> Option<Delta> {
        if !self.deltas {
            return None;
        }
        let neighbour = (content == ArenaContent::Data).then(|| self.neighbours.next()).flatten();
        let is_trusted = |found: &FoundBasis| self.can_be_bases(found.bases());
        match basis.map(|basis| basis.encode(part, chunk, is_trusted)) {
            Some(FromParent::Delta(delta)) => Some(delta),
            Some(FromParent::TooDifferent) => None,
            Some(FromParent::Nothing) | None => {
                let can_be_base = |place: &Location| {
                    self.index.existed_before(place.arena) && self.can_read(place.arena)
                };
                let neighbour = neighbour.filter(can_be_base)?;
                FoundBasis::of(self.reader, &[neighbour], (0, 0)).filter(is_trusted)?.encode(chunk)
            }
        }
    }

    /// Whether what is in these places can be relied on. If a base does not hold what its arena
    /// claims, or goes, the delta is worthless. A place that cannot be asked is no base.
    pub(super) fn can_be_bases(&self, places: &[Location]) -> bool {
        let store = self.reader.store();
        places.iter().all(|place| {
            !self.again.contains(*place) && self.index.can_be_base(*place, store).unwrap_or(false)
        })
    }

    /// True if the chunk that a parent's recipe names still exists.
    pub fn is_present(&self, chunk: &ChunkRef) -> Result<bool, RepositoryError> {
        let is_present = self.reader.names_as_here(chunk)
            && self.is_usable(chunk.location)
            && self.index.is_present(&chunk.fingerprint, chunk.location, self.reader.store())?;
        if is_present {
            self.note_needed(chunk.location.arena);
        }
        Ok(is_present)
    }

    /// True if the chunk still exists that a recipe of another domain names, to be named for it again, in an
    /// arena that `reader`, which is of that domain, may read for it.
    pub fn is_there(
        &self,
        chunk: &ChunkRef,
        reader: &ChunkReader,
    ) -> Result<bool, RepositoryError> {
        Ok(reader.names_as_here(chunk)
            && self.is_usable(chunk.location)
            && self.index.is_there(&chunk.fingerprint, chunk.location, reader.store())?)
    }

    /// Which sessions the chunks depend on that were stored or found so far; none if the key can
    /// read, or the machine remembers nothing.
    pub fn needs(&self) -> Needs {
        self.kept.as_ref().map(KeptSessions::needs).unwrap_or_default()
    }

    /// What was written so far.
    pub fn stats(&self) -> &WriteStats {
        &self.stats
    }

    /// How long each stage was at work.
    pub fn times(&self) -> &Arc<StageTimes> {
        &self.times
    }

    /// Waits until every arena is on the medium, and keeps the index.
    pub fn finish(self, monitor: &dyn Monitor) -> Result<WriteStats, RepositoryError> {
        let Self { packer, mut index, mut stats, times, .. } = self;
        if let Packing::Packer(packer) = packer {
            let written = times.time(Stage::Wait, || packer.finish())?;
            note_written(&mut index, &mut stats, &written);
            index.say_withheld(monitor);
            index.flush(monitor);
        }
        Ok(stats)
    }
}

fn note_written(index: &mut ChunkIndex, stats: &mut WriteStats, arenas: &[WrittenArena]) {
    for arena in arenas {
        index.finish_arena(arena.id, arena.object_bytes);
        stats.arenas += 1;
        stats.blocks += arena.blocks as u64;
        stats.stored_bytes += arena.object_bytes;
    }
}

impl Neighbours {
    /// What is in the place in which the next new chunk would be if it had not changed.
    fn next(&mut self) -> Option<Location> {
        let last = self.last.filter(|_| self.new_since < NEIGHBOURS_MAX)?;
        self.new_since += 1;
        Some(Location { arena: last.arena, slot: last.slot.checked_add(self.new_since)? })
    }
}

/// Keeps chunks of trees and recipes.
pub struct MetadataLane<'w, 'r, 'b> {
    writer: &'w mut ChunkWriter<'r>,
    basis: Option<&'w mut StreamBasis<'b>>,
}

impl WriteChunk for MetadataLane<'_, '_, '_> {
    type Error = RepositoryError;

    fn write_chunk(
        &mut self,
        chunk: &[u8],
        part: Part,
    ) -> Result<(Fingerprint, Location), RepositoryError> {
        let basis = self.basis.as_deref_mut();
        let fingerprint = self.writer.reader.naming().metadata.fingerprint(chunk);
        let (location, is_new) =
            self.writer.put(ArenaContent::Metadata, chunk, fingerprint, part, basis)?;
        if is_new {
            self.writer.stats.metadata_chunks_new += 1;
            self.writer.stats.metadata_bytes += chunk.len() as u64;
        }
        Ok((self.writer.reader.naming().name_in(location, fingerprint), location))
    }

    fn holds(&self, chunk: &ChunkRef) -> Result<bool, RepositoryError> {
        self.writer.is_present(chunk)
    }

    fn limits(&self) -> &SizeLimits {
        self.writer.reader.limits()
    }
}
