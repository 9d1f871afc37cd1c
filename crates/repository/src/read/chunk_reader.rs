//! Reading chunks: by the hint in the recipe and, if that fails, by the index.
//!
//! A hint is right unless the arena was lost; then the chunk may have been stored again since (a
//! later backup heals what was lost, Foundation §3.3), and the index knows where. The index is
//! loaded only then, so that reading a whole repository needs none.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strongroom_arena::{
    ArenaContent, ArenaError, ArenaStore, CacheLimits, NearArenas, OpenBlock, StoredChunk,
};
use strongroom_backend::Backend;
use strongroom_base::regimes::{Regime, reached};
use strongroom_base::{ArenaId, Fingerprint, Location, NamingKeys, SizeLimits, Stopwatch};
use strongroom_catalog::{ChunkRef, ReadChunk};
use strongroom_chunk::delta;

use crate::error::RepositoryError;
use crate::index::chunk_index::ChunkIndex;
use crate::own::OwnRecord;
use crate::read::known_places::KnownPlaces;
use crate::repository::Repository;
use crate::spool::Spool;

/// Reads chunks of a repository.
pub struct ChunkReader {
    store: ArenaStore,
    naming: NamingKeys,
    backend: Arc<dyn Backend>,
    can_read: bool,
    cache: Option<PathBuf>,
    limits: SizeLimits,
    // A plain mutex: taken only when a hint failed.
    index: Mutex<Option<KnownPlaces>>,
    // The same; by value, when an arena was last read again for a chunk that was not in it.
    read_again: Mutex<HashMap<ArenaId, Stopwatch>>,
    // The same; what could not be read of trees and lists of chunks.
    unread: Mutex<Unread>,
}

/// What could not be read of metadata.
#[derive(Default)]
struct Unread {
    places: HashSet<Location>,
    /// Whether the place gives blocks of an arena, once one was withheld.
    gives: HashMap<ArenaId, bool>,
}

/// An arena is not read again more often than this for chunks that it has lost.
const READ_AGAIN_LIFETIME: Duration = Duration::from_secs(60);

impl ChunkReader {
    /// A reader with its own caches, of everything that is asked for, by any snapshot: for
    /// verbs that look after a repository. What it reads may not be given away, so each use says why
    /// that is so (`clippy.toml`); everything else is read by [`ChunkReader::of_domain`].
    pub fn of_everything(
        repository: &Repository,
        limits: CacheLimits,
    ) -> Result<Self, RepositoryError> {
        Self::of_domain(repository, "", limits)
    }

    /// A reader of what a snapshot of this domain names; the owner's has no name.
    ///
    /// A machine that can only store names what it has stored, and nothing else: it could name an
    /// arena of another domain without having what is in it, and would be given it with the next
    /// restore. So this reader opens the arenas of that domain alone
    /// (`docs/design/0043-possession.md`), unless the owner has said to trust references.
    pub fn of_domain(
        repository: &Repository,
        domain: &str,
        limits: CacheLimits,
    ) -> Result<Self, RepositoryError> {
        let owner = repository.keys.owner.as_ref().ok_or(RepositoryError::PutOnly)?;
        let mut store = repository.arena_store(limits);
        if !domain.is_empty() && !repository.trusts_references {
            store = store.with_arenas_of(owner.domain_id(domain));
        }
        let reader = Self::over(repository, store);
        if reader.naming.is_by_value() {
            // A recipe does not say what a chunk is, so nothing would show that a generation of an
            // arena was planted.
            reader.store.turn_to_genuine()?;
        }
        Ok(reader)
    }

    /// A reader for a restore of what a snapshot of this domain names: from a repository far away it
    /// reads each block once.
    pub fn for_restore(
        repository: &Repository,
        domain: &str,
        limits: CacheLimits,
    ) -> Result<Self, RepositoryError> {
        let mut reader = Self::of_domain(repository, domain, limits)?;
        let spool = repository.far_cache().and_then(|cache| Spool::in_cache(&cache).ok());
        let near = spool.map(|spool| Arc::new(spool) as Arc<dyn NearArenas>);
        reader.store = reader.store.with_near(near);
        Ok(reader)
    }

    /// A reader for a backup, which reads its parent alone. A key that may only store reads the
    /// arenas of the sessions in the machine's own record.
    pub fn for_parents(repository: &Repository, own: &OwnRecord, limits: CacheLimits) -> Self {
        let near = repository.near().map(|near| Arc::new(near) as Arc<dyn NearArenas>);
        let store = repository.arena_store(limits).with_secrets(own.secrets()).with_near(near);
        Self::over(repository, store)
    }

    fn over(repository: &Repository, store: ArenaStore) -> Self {
        Self {
            store,
            naming: repository.keys.write.naming.clone(),
            backend: repository.surroundings.backend.clone(),
            can_read: repository.keys.can_read(),
            cache: repository.cache_folder(),
            limits: repository.limits,
            index: Mutex::new(None),
            read_again: Mutex::default(),
            unread: Mutex::default(),
        }
    }

    /// The limits of its repository.
    pub fn limits(&self) -> &SizeLimits {
        &self.limits
    }

    /// False if the key may only store and the machine remembers no backup.
    pub fn can_read_parents(&self) -> bool {
        self.can_read || self.store.known_sessions().next().is_some()
    }

    /// How many requests at a time the repository's place is good for.
    pub fn requests_in_flight(&self) -> usize {
        self.backend.promises().in_flight
    }

    /// Whether a part of an object takes no more than its own bytes.
    pub fn sends_parts(&self) -> bool {
        self.backend.promises().sends_parts
    }

    /// The arenas.
    pub fn store(&self) -> &ArenaStore {
        &self.store
    }

    /// Names chunks as this repository does.
    pub fn naming(&self) -> &NamingKeys {
        &self.naming
    }

    /// Whether bytes of this fingerprint may be a chunk. By value that is no proof.
    pub fn may_be(
        &self,
        chunk: &ChunkRef,
        fingerprint: &Fingerprint,
    ) -> Result<bool, RepositoryError> {
        Ok(match self.naming.is_by_value() {
            true => self.in_summary(chunk.location)? == *fingerprint,
            false => chunk.fingerprint == *fingerprint,
        })
    }

    /// Whether these bytes are a chunk of content: by its fingerprint or, by value, compared with
    /// it byte by byte. Then it is an error if the chunk cannot be read.
    pub fn is_data(&self, chunk: &ChunkRef, bytes: &[u8]) -> Result<bool, RepositoryError> {
        let fingerprint = self.naming.data.fingerprint(bytes);
        Ok(self.may_be(chunk, &fingerprint)?
            && (!self.naming.is_by_value() || *self.read_data(chunk)? == *bytes))
    }

    /// Whether exactly these bytes are in a place, for a writer: what cannot be read is not relied on.
    pub fn holds(&self, place: Location, bytes: &[u8]) -> Result<bool, RepositoryError> {
        let compare = || -> Result<bool, RepositoryError> {
            let block = self.block_of(place)?;
            match block.chunk(place.slot) {
                Some(stored) => Ok(*self.expand(stored)? == *bytes),
                None => Ok(false),
            }
        };
        false_if_unreadable(compare())
    }

    /// Whether a reference names its chunk as this repository does. Others lead nowhere.
    pub fn names_as_here(&self, chunk: &ChunkRef) -> bool {
        chunk.is_named_by_place() == self.naming.is_by_value()
    }

    /// What the summary of its arena calls the chunk in a place.
    pub fn in_summary(&self, place: Location) -> Result<Fingerprint, RepositoryError> {
        let arena = self.store.arena_with(place)?;
        let slot = arena.slot(place.slot).ok_or_else(|| slot_lost(place))?;
        Ok(slot.fingerprint)
    }

    /// The bytes of a chunk of content, verified against its fingerprint. They are as many as the reference
    /// says: a hostile one would otherwise leave a gap in what is written, or reach behind its end.
    pub fn read_data(&self, chunk: &ChunkRef) -> Result<Vec<u8>, RepositoryError> {
        let bytes = self.read(ArenaContent::Data, chunk)?;
        let (has, said) = (bytes.len() as u64, chunk.stream_bytes);
        if has != said {
            return Err(RepositoryError::ChunkLost {
                fingerprint: chunk.fingerprint,
                location: chunk.location,
                why: format!("it has {has} bytes, and the recipe says {said}"),
            });
        }
        Ok(bytes)
    }

    /// The bytes of a chunk of a tree or recipe, verified against its fingerprint. The content of a
    /// file is never mistaken for it: data is in other arenas, and named by another key.
    pub fn read_metadata(&self, chunk: &ChunkRef) -> Result<Vec<u8>, RepositoryError> {
        let bytes = self.read(ArenaContent::Metadata, chunk);
        if let Err(error) = &bytes {
            let mut unread = self.unread();
            unread.places.insert(chunk.location);
            if error.is_withheld() {
                unread.gives.insert(chunk.location.arena, false);
            }
        }
        bytes
    }

    /// Whether a tree or a list of chunks in this place could not be read, or would not be: it is lost, this
    /// machine has no key for it, or the place does not give it. Once a place has not given one, each other
    /// arena is asked for a block, too.
    pub fn has_failed(&self, place: Location) -> bool {
        let known = {
            let unread = self.unread();
            if unread.places.contains(&place) || unread.gives.is_empty() {
                return unread.places.contains(&place);
            }
            unread.gives.get(&place.arena).copied()
        };
        !known.unwrap_or_else(|| {
            let gives = !self.block_of(place).is_err_and(|error| error.withheld().is_some());
            self.unread().gives.insert(place.arena, gives);
            gives
        })
    }

    fn unread(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From the first place that has them.
    fn read(&self, content: ArenaContent, chunk: &ChunkRef) -> Result<Vec<u8>, RepositoryError> {
        if !self.names_as_here(chunk) {
            return Err(RepositoryError::ChunkLost {
                fingerprint: chunk.fingerprint,
                location: chunk.location,
                why: "it is named as in a repository of the other naming".to_owned(),
            });
        }
        let mut why = match self.read_at(content, &chunk.fingerprint, chunk.location) {
            Err(error) if error.is_lost_chunk() || error.is_withheld() => error,
            other => return other,
        };
        // Whether a planted generation was read does not matter to a place that withholds the arena.
        if !why.is_withheld() {
            self.store.turn_to_genuine()?;
        }
        let read = |place| match self.read_at(content, &chunk.fingerprint, place) {
            Err(error) if error.is_lost_chunk() || error.is_withheld() => {
                if error.is_withheld() || (place == chunk.location && !why.is_withheld()) {
                    why = error;
                }
                Ok(None)
            }
            other => other.map(Some),
        };
        if let Some(bytes) = self.from_places(chunk, read)? {
            reached(Regime::ChunkElsewhere);
            return Ok(bytes);
        }
        // As long as a place with the chunk may be withheld, it is not lost.
        if why.is_withheld() {
            return Err(why);
        }
        if let Some(withheld) = self.withheld_arena() {
            return Err(withheld);
        }
        Err(RepositoryError::ChunkLost {
            fingerprint: chunk.fingerprint,
            location: chunk.location,
            why: why.to_string(),
        })
    }

    /// What `take` makes of the first of a chunk's places for which it makes anything: the hint of
    /// its recipe, then the place in the index, then further copies, which two backups at the same
    /// time may have left.
    pub fn from_places<T>(
        &self,
        chunk: &ChunkRef,
        mut take: impl FnMut(Location) -> Result<Option<T>, RepositoryError>,
    ) -> Result<Option<T>, RepositoryError> {
        let was_known = self.index.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        for is_last in [false, true] {
            let mut tried = Vec::new();
            let mut next = Some(chunk.location);
            while let Some(place) = next {
                if let Some(taken) = take(place)? {
                    if is_last {
                        self.was_looked_for(true);
                    }
                    return Ok(Some(taken));
                }
                tried.push(place);
                next = self.elsewhere(&chunk.fingerprint, &tried)?;
            }
            let is_worth_it = match self.naming.is_by_value() {
                true => self.may_read_again(chunk.location.arena),
                // To make it, the arenas were listed: that may have shown where they are now.
                false => !was_known || self.look_again()?,
            };
            if is_last || !is_worth_it {
                if is_last {
                    self.was_looked_for(false);
                }
                break;
            }
            tried.iter().for_each(|place| self.store.forget(place.arena));
        }
        Ok(None)
    }

    /// The error of an arena whose summary could not be asked for chunks, because the place
    /// withholds it: any chunk that was not found may be there.
    pub fn withheld_arena(&self) -> Option<RepositoryError> {
        let slot = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref()?.index.withheld_arena()
    }

    /// Another place of a chunk than those already tried.
    fn elsewhere(
        &self,
        fingerprint: &Fingerprint,
        tried: &[Location],
    ) -> Result<Option<Location>, RepositoryError> {
        // What is named by its place is nowhere else.
        if self.naming.is_by_value() {
            return Ok(None);
        }
        let mut slot = self.known_places()?;
        let known = slot.as_mut().expect("known_places fills it");
        let mut found = known.index.lookup(fingerprint);
        if found.is_none() && known.index.is_broken() {
            known.index = ChunkIndex::in_memory().within(&self.limits);
            known.refresh(&*self.backend, &self.store)?;
            found = known.index.lookup(fingerprint);
        }
        if let Some(first) = found.filter(|first| !tried.contains(first)) {
            return Ok(Some(first));
        }
        known.further(fingerprint, tried, &*self.backend, &self.store)
    }

    /// By value: whether the arena of a chunk that was not in it is read again. It may have been
    /// rewritten since; one that is broken is not read for each of its chunks.
    fn may_read_again(&self, arena: ArenaId) -> bool {
        let mut before = self.read_again.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent =
            before.get(&arena).is_some_and(|since| since.elapsed() < READ_AGAIN_LIFETIME);
        if !is_recent {
            before.insert(arena, Stopwatch::start());
        }
        !is_recent
    }

    /// Brings the places up to date, for a reader beside which others store and collect. Returns
    /// whether any arena has come or gone since.
    fn look_again(&self) -> Result<bool, RepositoryError> {
        let mut slot = self.known_places()?;
        let known = slot.as_mut().expect("known_places fills it");
        if !known.freshness.are_old() {
            return Ok(false);
        }
        let has_changed = known.refresh(&*self.backend, &self.store)?;
        if !has_changed {
            known.freshness.was_looked_for(false);
        }
        Ok(has_changed)
    }

    /// Takes note of whether a chunk was found once the places had been brought up to date for it.
    fn was_looked_for(&self, is_found: bool) {
        let mut slot = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        slot.iter_mut().for_each(|known| known.freshness.was_looked_for(is_found));
    }

    /// The places, with the index loaded.
    fn known_places(&self) -> Result<MutexGuard<'_, Option<KnownPlaces>>, RepositoryError> {
        let mut slot = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            let index = ChunkIndex::open(self.cache.as_deref())?.within(&self.limits);
            let mut known = KnownPlaces::of(index);
            known.refresh(&*self.backend, &self.store)?;
            *slot = Some(known);
        }
        Ok(slot)
    }

    fn read_at(
        &self,
        content: ArenaContent,
        fingerprint: &Fingerprint,
        location: Location,
    ) -> Result<Vec<u8>, RepositoryError> {
        let read_in = |block: &OpenBlock| -> Result<Vec<u8>, RepositoryError> {
            // A rewriting may have left it out of its block.
            let stored = block.chunk(location.slot).ok_or_else(|| slot_lost(location))?;
            Ok(self.resolve(content, fingerprint, location, stored, None)?.into_owned())
        };
        let first = self.block_of(location).map_err(RepositoryError::from);
        let mut why = match first.and_then(|block| read_in(&block)) {
            Err(error) if error.is_lost_chunk() => error,
            other => return other,
        };
        // Another generation may have it, or have what is right.
        for block in self.store.blocks_with(location)? {
            match read_in(&block) {
                Err(error) if error.is_lost_chunk() => {}
                Err(error) if error.is_withheld() => why = error,
                other => return other,
            }
        }
        Err(why)
    }

    /// The block that has a slot.
    pub fn block_of(&self, location: Location) -> Result<Arc<OpenBlock>, ArenaError> {
        let has_it = |block: &Arc<OpenBlock>| block.chunk(location.slot).is_some();
        let outline = self.store.outline(location.arena)?;
        if let Some(place) = outline.block_of(location.slot) {
            let block = self.store.block(&outline, place)?;
            if has_it(&block) {
                return Ok(block);
            }
        }
        // Another generation may have it, though the first that names it does not give it.
        let arena = self.store.arena_with(location)?;
        let place = arena.block_of(location.slot).ok_or_else(|| slot_lost(location))?;
        let block = self.store.block(&arena, place)?;
        if has_it(&block) {
            return Ok(block);
        }
        let mut blocks = self.store.blocks_with(location)?.into_iter();
        blocks.find(has_it).ok_or_else(|| slot_lost(location))
    }

    /// The bytes of a chunk from its stored form, verified against its fingerprint. Bases that are
    /// in the given block are not read again.
    pub fn resolve<'b>(
        &self,
        content: ArenaContent,
        fingerprint: &Fingerprint,
        location: Location,
        stored: StoredChunk<'b>,
        at_hand: Option<&(ArenaId, OpenBlock)>,
    ) -> Result<Cow<'b, [u8]>, RepositoryError> {
        let lost = |why: &str| RepositoryError::ChunkLost {
            fingerprint: *fingerprint,
            location,
            why: why.to_owned(),
        };
        if ArenaContent::of(location.arena) != content {
            return Err(lost("it is in an arena of the other kind, data or metadata"));
        }
        let bytes =
            self.expand_beside(stored, at_hand).map_err(|error| match error.is_damage() {
                true => lost(&error.to_string()),
                false => error,
            })?;
        let is_place = *fingerprint == Fingerprint::of_place(location);
        let expected = match is_place && self.naming.is_by_value() {
            true => self.in_summary(location)?,
            false => *fingerprint,
        };
        if content.fingerprinter(&self.naming).fingerprint(&bytes) == expected {
            Ok(bytes)
        } else {
            Err(lost("other bytes are in its place"))
        }
    }

    /// The bytes of a chunk from its stored form, unverified.
    pub fn expand<'b>(&self, stored: StoredChunk<'b>) -> Result<Cow<'b, [u8]>, RepositoryError> {
        self.expand_beside(stored, None)
    }

    fn expand_beside<'b>(
        &self,
        stored: StoredChunk<'b>,
        at_hand: Option<&(ArenaId, OpenBlock)>,
    ) -> Result<Cow<'b, [u8]>, RepositoryError> {
        match stored {
            StoredChunk::Whole(bytes) => Ok(Cow::Borrowed(bytes)),
            StoredChunk::Delta { instructions, bases, chunk_bytes } => {
                reached(Regime::DeltaRead);
                let basis = self.read_bases(bases, at_hand)?;
                Ok(Cow::Owned(delta::apply(instructions, &basis, chunk_bytes as usize)?))
            }
        }
    }

    /// The bytes of these chunks, one after another. They are stored whole: deltas are one step
    /// deep.
    pub fn read_bases(
        &self,
        bases: &[Location],
        at_hand: Option<&(ArenaId, OpenBlock)>,
    ) -> Result<Vec<u8>, RepositoryError> {
        let mut bytes = Vec::new();
        self.each_base(bases, at_hand, |base| bytes.extend_from_slice(base))?;
        Ok(bytes)
    }

    /// Calls `take` with each of these chunks, in order.
    pub fn each_base(
        &self,
        bases: &[Location],
        at_hand: Option<&(ArenaId, OpenBlock)>,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), RepositoryError> {
        for base in bases {
            if let Some((_, block)) = at_hand.filter(|(arena, _)| *arena == base.arena)
                && let Some(StoredChunk::Whole(chunk)) = block.chunk(base.slot)
            {
                take(chunk);
                continue;
            }
            match self.block_of(*base)?.chunk(base.slot) {
                Some(StoredChunk::Whole(chunk)) => take(chunk),
                _ => return Err(slot_lost(*base).into()),
            }
        }
        Ok(())
    }
}

/// What a writer makes of a comparison with something that cannot be read, or is not given to it:
/// it is not relied on.
pub fn false_if_unreadable(
    compared: Result<bool, RepositoryError>,
) -> Result<bool, RepositoryError> {
    match compared {
        Err(error) if error.is_damage() || error.is_lost_chunk() || error.is_withheld() => {
            Ok(false)
        }
        Err(RepositoryError::Arena(ArenaError::PutOnly)) => Ok(false),
        other => other,
    }
}

fn slot_lost(Location { arena, slot }: Location) -> ArenaError {
    ArenaError::SlotLost { arena, slot }
}

impl ReadChunk for ChunkReader {
    type Error = RepositoryError;

    fn read_chunk(&self, chunk: &ChunkRef) -> Result<Vec<u8>, RepositoryError> {
        self.read_metadata(chunk)
    }
}
