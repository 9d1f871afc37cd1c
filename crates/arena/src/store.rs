//! Reading arenas from a backend, with bounded caches of summaries and open blocks.
//!
//! A location has no generation: slots are stable through all of them. An arena is read in the
//! generation that is known, or in its first. If that object is missing or damaged beyond repair,
//! the arenas are listed, and the greatest generation that can be read is used.
//!
//! A damaged part is computed again from parity, in memory, so that a reader gets what was stored
//! as long as that is possible. [`ArenaStore::heals`] returns how often that was needed, so that
//! the verb can advise a repair.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use lru::LruCache;
use strongroom_backend::{Backend, BackendError};
use strongroom_base::seal::SealKey;
use strongroom_base::{ArenaId, ArenaSecret, DomainId, DomainKeys, RepositoryKeys, SnapshotId};

use crate::block::{BlockError, OpenBlock, open_block};
use crate::envelope::format::{HEADER_BYTES, Header};
use crate::envelope::{self, EnvelopeError, read_object};
use crate::format::{
    ArenaHead, BLOCK_RAW_BYTES_MAX, FRAME_BYTES, FormatError, SUMMARY_BYTES_MAX, SUMMARY_START,
    Summary, SummaryBlock, SummarySlot,
};
use crate::name::{ArenaName, ListedArenas};
use crate::voucher::Voucher;
use crate::writer::{ArenaContent, KEY_INFO, SummaryBinding, key_of_summary, open_summary};

/// Bytes that are read to open an arena: header, head and, of most arenas, the summary.
const OPENING_BYTES: usize = 64 << 10;

/// The most bytes that an arena's object can have in a repository that closes an arena once its
/// blocks have `arena_bytes`: one block may follow, then the summary, and parity at most doubles it.
pub fn object_bytes_max(arena_bytes: u32) -> u64 {
    const TABLES_BYTES_MAX: u64 = 1 << 20;
    let body = u64::from(arena_bytes) + (BLOCK_RAW_BYTES_MAX + SUMMARY_BYTES_MAX) as u64;
    2 * body + TABLES_BYTES_MAX
}

/// Why something cannot be read from an arena.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The arena does not exist.
    #[error("arena {arena} is missing")]
    Missing {
        /// The arena.
        arena: ArenaId,
    },
    /// Its bytes are not what was stored, and parity cannot recover them.
    #[error("arena {arena} is damaged: {what}")]
    Damaged {
        /// The arena.
        arena: ArenaId,
        /// What is wrong with it.
        what: String,
    },
    /// A newer program made it: it is not damaged, but this program does not understand it.
    #[error("arena {arena} was made by a newer program: update Strongroom")]
    Unknown {
        /// The arena.
        arena: ArenaId,
    },
    /// The arena exists, but this slot of it was lost.
    #[error("slot {slot} of arena {arena} is lost")]
    SlotLost {
        /// The arena.
        arena: ArenaId,
        /// The slot.
        slot: u32,
    },
    /// Another domain wrote the arena, and the key at hand does not open that domain's summaries.
    #[error("arena {arena} is of another domain, whose arenas this key does not open")]
    Foreign {
        /// The arena.
        arena: ArenaId,
        /// The domain.
        domain: DomainId,
    },
    /// Reading needs the private key, and only put-only keys are at hand.
    #[error("this key can only store, not read")]
    PutOnly,
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl ArenaError {
    /// Whether the arena as a whole cannot be read: by any program, by this one, or with this key.
    pub fn is_unreadable(&self) -> bool {
        self.is_lost() || matches!(self, Self::Unknown { .. } | Self::Foreign { .. })
    }

    /// Whether another generation of the arena may hold what this one does not.
    fn is_lost(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Damaged { .. })
    }
}

/// An open arena: what it holds at which place, and the key to its blocks.
pub struct Arena {
    /// Its name.
    pub id: ArenaId,
    /// How often it was rewritten.
    pub generation: u32,
    /// Whose it is: the domain whose key opened the summary.
    pub domain: DomainId,
    /// True if the own domain wrote it, or the owner vouched for it: then a writer may rely on its
    /// summary without reading its blocks.
    pub trusted: bool,
    /// The session that wrote it.
    pub session: SnapshotId,
    /// What it holds.
    pub summary: Summary,
    /// Bytes of its object, if it is whole.
    pub object_bytes: u64,
    /// Where its blocks begin in the object.
    blocks_start: u64,
    /// For each block, the place of its first chunk in the summary's slots.
    first_places: Vec<u32>,
    key: Option<Arc<SealKey>>,
}

impl Arena {
    /// With the place of each block's first chunk, which the summary implies.
    fn with_places(mut self) -> Self {
        let mut place = 0;
        let blocks = &self.summary.blocks;
        self.first_places = blocks
            .iter()
            .map(|block| {
                let first = place;
                place += block.head.chunk_count;
                first
            })
            .collect();
        self
    }

    /// Its name.
    pub fn name(&self) -> ArenaName {
        ArenaName { id: self.id, generation: self.generation }
    }

    /// The same arena without its slots: it takes a few bytes a block.
    pub fn outline(&self) -> Self {
        let summary = Summary { blocks: self.summary.blocks.clone(), slots: Vec::new() };
        Self { summary, first_places: Vec::new(), key: self.key.clone(), ..*self }
    }

    /// The block, by its place in the summary, that holds a slot.
    pub fn block_of(&self, slot: u32) -> Option<usize> {
        let blocks = &self.summary.blocks;
        let place = blocks.partition_point(|block| block.head.first_slot <= slot).checked_sub(1)?;
        blocks[place].head.slots().contains(&slot).then_some(place)
    }

    /// What the summary says of a slot.
    pub fn slot(&self, slot: u32) -> Option<&SummarySlot> {
        let block = self.block_of(slot)?;
        let within = slot - self.summary.blocks[block].head.first_slot;
        self.summary.slots.get((self.first_places.get(block)? + within) as usize)
    }

    /// Every slot that the arena still holds, with its number.
    pub fn slots(&self) -> impl Iterator<Item = (u32, &SummarySlot)> {
        let numbers = self.summary.blocks.iter().flat_map(|block| block.head.slots());
        numbers.zip(&self.summary.slots)
    }

    /// Where a run of blocks is in the object: offset and length in bytes.
    pub fn span(&self, blocks: std::ops::RangeInclusive<usize>) -> (u64, usize) {
        let start = self.summary.blocks[*blocks.start()].offset;
        let last = &self.summary.blocks[*blocks.end()];
        let end = last.offset as usize + FRAME_BYTES + last.frame.sealed_bytes as usize;
        (self.blocks_start + u64::from(start), end - start as usize)
    }

    /// Opens one block from the bytes of a run that begins with the block `first`.
    pub fn open_block_of_run(
        &self,
        place: usize,
        first: usize,
        run: &[u8],
    ) -> Result<OpenBlock, ArenaError> {
        let blocks = &self.summary.blocks;
        let start = (blocks[place].offset - blocks[first].offset) as usize;
        let mut opened = self.open_blocks(place..=place, &run[start.min(run.len())..])?;
        Ok(opened.pop().expect("a run of one block opens as one block"))
    }

    /// Opens a run of blocks from the bytes of their [`Arena::span`].
    pub fn open_blocks(
        &self,
        blocks: std::ops::RangeInclusive<usize>,
        bytes: &[u8],
    ) -> Result<Vec<OpenBlock>, ArenaError> {
        let key = self.key.as_ref().ok_or(ArenaError::PutOnly)?;
        let base = self.summary.blocks[*blocks.start()].offset as usize;
        blocks
            .map(|place| {
                let block = &self.summary.blocks[place];
                let start = (block.offset as usize - base).min(bytes.len());
                let opened = open_block(&bytes[start..], self.id, key)?;
                if opened.head() == block.head {
                    Ok(opened)
                } else {
                    Err(BlockError::Damaged { number: block.frame.number })
                }
            })
            .collect::<Result<_, BlockError>>()
            .map_err(|error| match error {
                BlockError::Format(error) => format_error(self.id, error),
                BlockError::Damaged { .. } => damaged(self.id, error),
            })
    }
}

/// How much an [`ArenaStore`] may hold in memory.
#[derive(Debug, Clone, Copy)]
pub struct CacheLimits {
    /// Arenas whose summaries are kept.
    pub arenas: NonZeroUsize,
    /// Bytes of open blocks.
    pub block_bytes: usize,
}

impl Default for CacheLimits {
    /// 16 summaries (Foundation keeps 10) and 16 MiB of blocks.
    fn default() -> Self {
        Self { arenas: NonZeroUsize::new(16).expect("sixteen is not zero"), block_bytes: 16 << 20 }
    }
}

/// Reads arenas.
pub struct ArenaStore {
    backend: Arc<dyn Backend>,
    keys: RepositoryKeys,
    // Read for each arena that is opened, written once in a session.
    vouchers: RwLock<HashMap<ArenaId, Voucher>>,
    /// What the keys of the arenas of some sessions are derived from, for a holder who has no other
    /// way to read.
    secrets: HashMap<SnapshotId, ArenaSecret>,
    /// A larger object is no arena of this repository.
    object_bytes_max: u64,
    limits: CacheLimits,
    // Plain mutexes: each is held for a map operation, never while reading from the backend.
    arenas: Mutex<LruCache<ArenaId, Arc<Arena>>>,
    blocks: Mutex<BlockCache>,
    healed: Mutex<Option<Healed>>,
    heals: AtomicU64,
    known: Mutex<KnownNames>,
}

/// What is known of the names of arenas.
#[derive(Default)]
struct KnownNames {
    /// Arenas that are known to exist in another generation than their first.
    generations: HashMap<ArenaId, u32>,
    /// All arenas, once they had to be listed.
    listed: Option<ListedArenas>,
}

/// The last arena that had to be computed again: its bytes, or why there are none. Another attempt
/// would read the whole object, which takes many seconds on a failing disk.
struct Healed {
    name: ArenaName,
    outcome: Result<Arc<Vec<u8>>, String>,
}

struct BlockCache {
    /// By number: a rewriting moves blocks, but keeps their numbers.
    blocks: LruCache<(ArenaId, u32), Arc<OpenBlock>>,
    bytes: usize,
}

impl ArenaStore {
    /// A reader of the arenas in `backend`.
    ///
    /// `arena_bytes` is the length at which the repository's arenas are closed.
    pub fn new(
        backend: Arc<dyn Backend>,
        keys: &RepositoryKeys,
        arena_bytes: u32,
        limits: CacheLimits,
    ) -> Self {
        Self {
            backend,
            object_bytes_max: object_bytes_max(arena_bytes),
            keys: keys.clone(),
            vouchers: RwLock::default(),
            secrets: HashMap::new(),
            limits,
            arenas: Mutex::new(LruCache::new(limits.arenas)),
            blocks: Mutex::new(BlockCache { blocks: LruCache::unbounded(), bytes: 0 }),
            healed: Mutex::new(None),
            heals: AtomicU64::new(0),
            known: Mutex::new(KnownNames::default()),
        }
    }

    /// With the secrets of some sessions, so that a put-only holder can read the arenas that these
    /// have written.
    pub fn with_secrets(self, secrets: HashMap<SnapshotId, ArenaSecret>) -> Self {
        Self { secrets, ..self }
    }

    /// The secret of a session, if it is known.
    pub fn secret_of(&self, session: SnapshotId) -> Option<&ArenaSecret> {
        self.secrets.get(&session)
    }

    /// The sessions whose secrets are known.
    pub fn known_sessions(&self) -> impl Iterator<Item = SnapshotId> {
        self.secrets.keys().copied()
    }

    /// How often something had to be computed again from parity.
    pub fn heals(&self) -> u64 {
        self.heals.load(Ordering::Relaxed)
    }

    /// Opens an arena: its summary from the cache or by one read, or two if the summary is long.
    pub fn arena(&self, id: ArenaId) -> Result<Arc<Arena>, ArenaError> {
        if let Some(arena) = lock(&self.arenas).get(&id) {
            return Ok(arena.clone());
        }
        let arena = self.any_generation(id, |name| self.open_or_heal(name))?;
        let arena = Arc::new(arena);
        lock(&self.arenas).put(id, arena.clone());
        Ok(arena)
    }

    /// Whether all of an arena exists, or can be computed again. Reads the whole object.
    pub fn can_be_healed(&self, name: ArenaName) -> Result<bool, ArenaError> {
        match self.heal(name) {
            Ok(_) => Ok(true),
            Err(error) if error.is_lost() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Records a generation in which an arena is known to exist.
    pub fn learn(&self, name: ArenaName) {
        let mut known = lock(&self.known);
        match name.generation {
            0 => known.generations.remove(&name.id),
            generation => known.generations.insert(name.id, generation),
        };
    }

    /// Calls `read` with the generation of the arena that is known, and otherwise with the greatest
    /// that can be read.
    fn any_generation<T>(
        &self,
        id: ArenaId,
        read: impl Fn(ArenaName) -> Result<T, ArenaError>,
    ) -> Result<T, ArenaError> {
        let generation = lock(&self.known).generations.get(&id).copied().unwrap_or(0);
        let first = ArenaName { id, generation };
        let error = match read(first) {
            Err(error) if error.is_lost() => error,
            other => return other,
        };
        for name in self.other_generations(first, &error)? {
            match read(name) {
                Err(error) if error.is_lost() => {}
                other => {
                    self.learn(name);
                    return other;
                }
            }
        }
        Err(error)
    }

    /// The other generations of an arena, greatest first. The arenas are listed once, and again if
    /// an arena is missing that existed then: it was rewritten since.
    fn other_generations(
        &self,
        tried: ArenaName,
        error: &ArenaError,
    ) -> Result<Vec<ArenaName>, ArenaError> {
        let is_missing = matches!(error, ArenaError::Missing { .. });
        let is_stale = match &lock(&self.known).listed {
            None => true,
            Some(listed) => {
                let mut names = listed.generations(tried.id).iter();
                is_missing && names.any(|arena| arena.name == tried)
            }
        };
        if is_stale {
            let listed = ListedArenas::list(&*self.backend)?;
            lock(&self.known).listed = Some(listed);
        }
        let known = lock(&self.known);
        let found = known.listed.as_ref().map_or(&[][..], |listed| listed.generations(tried.id));
        let names = found.iter().rev().map(|arena| arena.name);
        Ok(names.filter(|name| *name != tried).collect())
    }

    fn open_or_heal(&self, name: ArenaName) -> Result<Arena, ArenaError> {
        match self.open_arena(name) {
            Err(ArenaError::Damaged { .. }) => self.open_arena_in(name, &self.heal(name)?),
            other => other,
        }
    }

    /// The block at a place of the summary, from the cache or by one read.
    pub fn block(&self, arena: &Arena, place: usize) -> Result<Arc<OpenBlock>, ArenaError> {
        let number = arena.summary.blocks[place].frame.number;
        if let Some(block) = lock(&self.blocks).blocks.get(&(arena.id, number)) {
            return Ok(block.clone());
        }
        let block = self.read_blocks(arena, place..=place)?.pop();
        let block = Arc::new(block.expect("a run of one block opens as one block"));
        self.keep(arena.id, number, block.clone());
        Ok(block)
    }

    /// The bytes of a run of neighbouring blocks by one read, past the cache.
    pub fn read_run(
        &self,
        arena: &Arena,
        places: std::ops::RangeInclusive<usize>,
    ) -> Result<Vec<u8>, ArenaError> {
        let (offset, length) = arena.span(places);
        self.read(arena.name(), offset, length)
    }

    /// A run of neighbouring blocks by one read, past the cache, healed if need be.
    pub fn read_blocks(
        &self,
        arena: &Arena,
        places: std::ops::RangeInclusive<usize>,
    ) -> Result<Vec<OpenBlock>, ArenaError> {
        if arena.key.is_none() {
            return Err(ArenaError::PutOnly);
        }
        let bytes = self.read_run(arena, places.clone());
        match bytes.and_then(|bytes| arena.open_blocks(places.clone(), &bytes)) {
            Err(error) if error.is_lost() => self.read_blocks_healed(arena, places),
            other => other,
        }
    }

    /// The same blocks from the whole object, computed again; or, if the arena was rewritten since
    /// `arena` was opened, from another generation, in which they have the same numbers.
    fn read_blocks_healed(
        &self,
        arena: &Arena,
        places: std::ops::RangeInclusive<usize>,
    ) -> Result<Vec<OpenBlock>, ArenaError> {
        let error = match self.heal(arena.name()) {
            Ok(object) => {
                let now = self.open_arena_in(arena.name(), &object)?;
                return blocks_in(&now, &object, &arena.summary.blocks[places]);
            }
            Err(error) if error.is_lost() => error,
            Err(error) => return Err(error),
        };
        for name in self.other_generations(arena.name(), &error)? {
            let Ok(object) = self.heal(name) else { continue };
            let now = self.open_arena_in(name, &object)?;
            self.learn(name);
            lock(&self.arenas).pop(&arena.id);
            return blocks_in(&now, &object, &arena.summary.blocks[places]);
        }
        Err(error)
    }

    /// Drops what is cached of an arena, because it was rewritten.
    pub fn forget(&self, id: ArenaId) {
        lock(&self.arenas).pop(&id);
        let mut cache = lock(&self.blocks);
        let stale: Vec<_> =
            cache.blocks.iter().map(|(key, _)| *key).filter(|(arena, _)| *arena == id).collect();
        for key in stale {
            if let Some(block) = cache.blocks.pop(&key) {
                cache.bytes -= block.memory_bytes();
            }
        }
        lock(&self.healed).take_if(|healed| healed.name.id == id);
    }

    fn keep(&self, arena: ArenaId, number: u32, block: Arc<OpenBlock>) {
        let mut cache = lock(&self.blocks);
        cache.bytes += block.memory_bytes();
        if let Some(old) = cache.blocks.put((arena, number), block) {
            cache.bytes -= old.memory_bytes();
        }
        while cache.bytes > self.limits.block_bytes && cache.blocks.len() > 1 {
            if let Some((_, evicted)) = cache.blocks.pop_lru() {
                cache.bytes -= evicted.memory_bytes();
            }
        }
    }

    fn read(&self, name: ArenaName, offset: u64, length: usize) -> Result<Vec<u8>, ArenaError> {
        let read = self.backend.read(&name.object(), offset, length);
        read.map_err(|error| backend_error(name.id, error))
    }

    fn open_arena(&self, name: ArenaName) -> Result<Arena, ArenaError> {
        let mut start = match self.read(name, 0, OPENING_BYTES) {
            // Perhaps only a block after the summary cannot be read: that is no reason to lose the
            // summary.
            Err(ArenaError::Damaged { .. }) => self.read(name, 0, SUMMARY_START)?,
            other => other?,
        };
        let (_, head) = heads_of(name, &start)?;
        // The head bounds the length; see ArenaHead::unpack.
        let missing = (head.blocks_start() as usize).saturating_sub(start.len());
        if missing > 0 {
            start.append(&mut self.read(name, start.len() as u64, missing)?);
        }
        self.open_arena_in(name, &start)
    }

    /// Opens an arena from the bytes of its object, or from a beginning of it that contains the
    /// summary.
    pub fn open_arena_in(&self, name: ArenaName, object: &[u8]) -> Result<Arena, ArenaError> {
        let id = name.id;
        let (header, head) = heads_of(name, object)?;
        let sealed = sealed_summary_in(id, &head, object)?;
        let binding = binding_of(id, &header, &head);
        let voucher = self.voucher_for(id, &header, sealed);
        let trusted = head.domain == self.keys.write.domain.id || voucher.is_some();
        let key = match (self.keys.domain(head.domain), voucher) {
            (Some(domain), _) => key_of_summary(sealed, &binding, &domain.summary_key),
            (None, Some(voucher)) => Ok(voucher.summary_key),
            (None, None) => return Err(ArenaError::Foreign { arena: id, domain: head.domain }),
        };
        let summary = key.and_then(|key| open_summary(sealed, &binding, &key));
        let arena = Arena {
            id,
            generation: header.generation,
            domain: head.domain,
            trusted,
            session: header.origin.session,
            summary: summary.map_err(|error| format_error(id, error))?,
            object_bytes: header.layout().object_bytes as u64,
            blocks_start: head.blocks_start(),
            first_places: Vec::new(),
            key: self.arena_key(id, &head, header.origin.session)?.map(Arc::new),
        };
        Ok(arena.with_places())
    }

    /// The voucher that applies to this object, if there is one.
    fn voucher_for(&self, id: ArenaId, header: &Header, sealed_summary: &[u8]) -> Option<Voucher> {
        let vouchers = self.vouchers.read().unwrap_or_else(PoisonError::into_inner);
        let voucher = vouchers.get(&id).filter(|voucher| {
            voucher.generation == header.generation
                && voucher.body_hash == header.body_hash
                && voucher.summary_hash == *blake3::hash(sealed_summary).as_bytes()
        });
        voucher.cloned()
    }

    /// Trusts the arenas that the owner vouches for. The vouchers must be authentic.
    pub fn trust(&self, vouchers: Vec<Voucher>) {
        let mut known = self.vouchers.write().unwrap_or_else(PoisonError::into_inner);
        known.extend(vouchers.into_iter().map(|voucher| (voucher.arena, voucher)));
    }

    /// The keys of a domain, if this holder has them.
    pub(crate) fn domain(&self, id: DomainId) -> Option<DomainKeys> {
        self.keys.domain(id)
    }

    /// True if the owner vouched for a generation of the arena.
    pub fn is_vouched(&self, id: ArenaId) -> bool {
        self.vouchers.read().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
    }

    /// A voucher for an arena, from its whole object. The caller must have checked that the arena
    /// holds what its summary says.
    pub fn vouch_for(&self, name: ArenaName, object: &[u8]) -> Result<Voucher, ArenaError> {
        let id = name.id;
        let (header, head) = heads_of(name, object)?;
        let sealed = sealed_summary_in(id, &head, object)?;
        let foreign = ArenaError::Foreign { arena: id, domain: head.domain };
        let domain = self.keys.domain(head.domain).ok_or(foreign)?;
        let key = key_of_summary(sealed, &binding_of(id, &header, &head), &domain.summary_key);
        Ok(Voucher {
            arena: id,
            generation: header.generation,
            body_hash: header.body_hash,
            summary_hash: *blake3::hash(sealed).as_bytes(),
            summary_key: key.map_err(|error| format_error(id, error))?,
        })
    }

    /// The key of an arena's blocks; `None` for a put-only holder who does not know the secret of
    /// its session.
    pub(crate) fn arena_key(
        &self,
        id: ArenaId,
        head: &ArenaHead,
        session: SnapshotId,
    ) -> Result<Option<SealKey>, ArenaError> {
        let Some(owner) = &self.keys.owner else {
            let secret = self.secrets.get(&session);
            return Ok(secret.map(|secret| SealKey::new(&secret.arena_key(id))));
        };
        let key = owner
            .private_key
            .open(KEY_INFO, &id.0, &head.sealed_key)
            .ok()
            .and_then(|key| key.try_into().ok())
            .ok_or_else(|| damaged(id, "its key does not open"))?;
        Ok(Some(SealKey::new(&key)))
    }

    /// The whole object, computed again from parity. The last one is kept.
    fn heal(&self, name: ArenaName) -> Result<Arc<Vec<u8>>, ArenaError> {
        let id = name.id;
        if let Some(healed) = &*lock(&self.healed)
            && healed.name == name
        {
            return healed.outcome.clone().map_err(|what| damaged(id, what));
        }
        let outcome = match self.heal_anew(name) {
            Ok(object) => Ok(Arc::new(object)),
            Err(ArenaError::Damaged { what, .. }) => Err(what),
            Err(error) => return Err(error),
        };
        *lock(&self.healed) = Some(Healed { name, outcome: outcome.clone() });
        outcome.map_err(|what| damaged(id, what))
    }

    fn heal_anew(&self, name: ArenaName) -> Result<Vec<u8>, ArenaError> {
        let id = name.id;
        let object = read_object(&*self.backend, &name.object(), self.object_bytes_max)
            .map_err(|error| backend_error(id, error))?;
        let repaired =
            envelope::repair(&object.bytes).map_err(|error| envelope_error(id, error))?;
        // If an object is whole and still does not open, it was not healed but sealed in this form.
        if object.refused_bytes > 0 || repaired != object.bytes {
            self.heals.fetch_add(1, Ordering::Relaxed);
        }
        Ok(repaired)
    }
}

/// What an error of the backend says about an arena.
fn backend_error(id: ArenaId, error: BackendError) -> ArenaError {
    match error {
        error if error.is_not_found() => ArenaError::Missing { arena: id },
        error if error.is_damage() => damaged(id, error),
        error => error.into(),
    }
}

/// What an arena's summary is bound to.
fn binding_of(arena: ArenaId, header: &Header, head: &ArenaHead) -> SummaryBinding {
    let (generation, origin, domain) = (header.generation, header.origin, head.domain);
    SummaryBinding { arena, generation, origin, domain }
}

/// The sealed summary in the bytes of an object, or of its beginning.
fn sealed_summary_in<'o>(
    id: ArenaId,
    head: &ArenaHead,
    object: &'o [u8],
) -> Result<&'o [u8], ArenaError> {
    let summary = SUMMARY_START..head.blocks_start() as usize;
    object.get(summary).ok_or_else(|| damaged(id, "it is too short"))
}

/// Blocks of an arena, from the bytes of its object, by the numbers that they have in another of
/// its generations.
fn blocks_in(
    arena: &Arena,
    object: &[u8],
    wanted: &[SummaryBlock],
) -> Result<Vec<OpenBlock>, ArenaError> {
    let blocks = &arena.summary.blocks;
    let mut opened = Vec::new();
    for block in wanted {
        let lost = ArenaError::SlotLost { arena: arena.id, slot: block.head.first_slot };
        let place = blocks
            .binary_search_by_key(&block.frame.number, |block| block.frame.number)
            .map_err(|_| lost)?;
        let (offset, length) = arena.span(place..=place);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(object.len());
        let end = start.saturating_add(length).min(object.len());
        opened.append(&mut arena.open_blocks(place..=place, &object[start..end])?);
    }
    Ok(opened)
}

fn heads_of(name: ArenaName, object: &[u8]) -> Result<(Header, ArenaHead), ArenaError> {
    let ArenaName { id, generation } = name;
    let header = envelope::peek(object).map_err(|error| damaged(id, error))?;
    if header.is_unknown() {
        return Err(ArenaError::Unknown { arena: id });
    }
    let is_named_so = header.kind == ArenaContent::of(id).object_kind()
        && header.id == id.0
        && header.generation == generation;
    if !is_named_so {
        return Err(damaged(id, "another object is in its place"));
    }
    let head =
        ArenaHead::unpack(&object[HEADER_BYTES..]).map_err(|error| format_error(id, error))?;
    if head.body_bytes() != header.body_bytes {
        return Err(damaged(id, "its head contradicts its header"));
    }
    Ok((header, head))
}

fn format_error(arena: ArenaId, error: FormatError) -> ArenaError {
    match error {
        FormatError::Unknown(_) => ArenaError::Unknown { arena },
        FormatError::Damaged(_) => damaged(arena, error),
    }
}

pub(crate) fn envelope_error(arena: ArenaId, error: EnvelopeError) -> ArenaError {
    damaged(arena, error)
}

pub(crate) fn damaged(arena: ArenaId, what: impl std::fmt::Display) -> ArenaError {
    ArenaError::Damaged { arena, what: what.to_string() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
