//! Reading arenas from a backend, with caches of summaries, open blocks and healed arenas that are
//! bounded by their bytes.

mod generations;
mod healing;
pub(crate) mod opening;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use strongroom_backend::Backend;
use strongroom_base::seal::PrivateKey;
use strongroom_base::{
    ArenaId, ArenaSecret, ByteCache, DomainId, Location, RepositoryKeys, SnapshotId,
};

use crate::block::OpenBlock;
use crate::error::{ArenaError, backend_error, damaged};
use crate::format::{BLOCK_RAW_BYTES_MAX, SUMMARY_BYTES_MAX};
use crate::name::ArenaName;
use crate::opened::{Arena, blocks_in};
use crate::voucher::Voucher;
use crate::writer::ArenaContent;
pub use generations::Generations;
use generations::KnownNames;
use healing::Healed;
use opening::Wanted;

/// The most bytes that an arena's object can have in a repository that closes an arena once its
/// blocks have `arena_bytes`: one block may follow, then the summary, and parity at most doubles it.
pub fn object_bytes_max(arena_bytes: u32) -> u64 {
    const TABLES_BYTES_MAX: u64 = 1 << 20;
    let body = u64::from(arena_bytes) + (BLOCK_RAW_BYTES_MAX + SUMMARY_BYTES_MAX) as u64;
    2 * body + TABLES_BYTES_MAX
}

/// What it takes to find the blocks of some thousand arenas, however many chunks they have.
const OUTLINES_BYTES_MAX: usize = 4 << 20;

/// Trees are read at most this many bytes at a time.
const AHEAD_BYTES_MAX: usize = 1 << 20;

/// How many bytes an [`ArenaStore`] may hold in memory. Of each kind one piece is kept even if it
/// alone is larger.
#[derive(Debug, Clone, Copy)]
pub struct CacheLimits {
    /// Of arenas that were opened: their summaries. One of an arena of 16 MiB has some 150 KiB.
    pub summary_bytes: usize,
    /// Of open blocks, which have up to 4 MiB each.
    pub block_bytes: usize,
    /// Of damaged arenas that were computed again from parity.
    pub healed_bytes: usize,
}

impl Default for CacheLimits {
    /// Some 50 summaries of full arenas (Foundation keeps 10), or thousands of small ones; 16 MiB
    /// of blocks; one healed arena of the usual size, and what is known of others.
    fn default() -> Self {
        Self { summary_bytes: 8 << 20, block_bytes: 16 << 20, healed_bytes: 24 << 20 }
    }
}

impl CacheLimits {
    /// The same, but for no kind more than this many bytes.
    pub fn at_most(self, bytes: usize) -> Self {
        Self {
            summary_bytes: self.summary_bytes.min(bytes),
            block_bytes: self.block_bytes.min(bytes),
            healed_bytes: self.healed_bytes.min(bytes),
        }
    }
}

/// Copies of arenas that are nearer than the backend. What they give may be damaged or out of date.
pub trait NearArenas: Send + Sync {
    /// At most `length` bytes of an arena's object from `offset` on, as [`Backend::read`] gives
    /// them; none if there is no copy.
    fn read(&self, name: ArenaName, offset: u64, length: usize) -> Option<Vec<u8>>;

    /// The backend gave these bytes of an arena's object, from `offset` on.
    fn note(&self, _name: ArenaName, _offset: u64, _bytes: &[u8]) {}

    /// Whether an object of this length would be kept if it were noted.
    fn has_room(&self, _bytes: u64) -> bool {
        false
    }
}

/// Reads arenas.
pub struct ArenaStore {
    backend: Arc<dyn Backend>,
    keys: RepositoryKeys,
    /// That of a holder who can read; shared with the arenas that are open.
    private_key: Option<Arc<PrivateKey>>,
    /// The arenas of other domains than this are not opened.
    only_of: Option<DomainId>,
    // Read for each arena that is opened, written once in a session.
    vouchers: RwLock<HashMap<ArenaId, Vec<Voucher>>>,
    /// What the keys of the arenas of some sessions are derived from, for a holder who has no other
    /// way to read.
    secrets: HashMap<SnapshotId, ArenaSecret>,
    /// Asked before the backend, except to heal an arena.
    near: Option<Arc<dyn NearArenas>>,
    /// A larger object is no arena of this repository.
    object_bytes_max: u64,
    arenas: ByteCache<ArenaId, Arc<Arena>>,
    /// The same without their slots. An arena of small chunks has a summary of megabytes; reading
    /// chunks of several such arenas in turn would open these again for each.
    outlines: ByteCache<ArenaId, Arc<Arena>>,
    /// Further generations of arenas that exist in several.
    further: ByteCache<ArenaName, Arc<Arena>>,
    /// By number: a block has the same in each generation, and perhaps fewer chunks.
    blocks: ByteCache<(ArenaName, u32), Arc<OpenBlock>>,
    healed: ByteCache<ArenaName, Healed>,
    heals: AtomicU64,
    /// True once the place has refused a read of a front that reached into the blocks behind it.
    reads_no_blocks: AtomicBool,
    // A plain mutex: held for a map operation, or while the arenas are listed.
    known: Mutex<KnownNames>,
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
            private_key: keys.owner.as_ref().map(|owner| Arc::new(owner.private_key.clone())),
            only_of: None,
            vouchers: RwLock::default(),
            secrets: HashMap::new(),
            near: None,
            arenas: ByteCache::new(limits.summary_bytes),
            outlines: ByteCache::new(OUTLINES_BYTES_MAX),
            further: ByteCache::new(limits.summary_bytes),
            blocks: ByteCache::new(limits.block_bytes),
            healed: ByteCache::new(limits.healed_bytes),
            heals: AtomicU64::new(0),
            reads_no_blocks: AtomicBool::new(false),
            known: Mutex::default(),
        }
    }

    /// With the secrets of some sessions, so that a put-only holder can read the arenas that these
    /// have written.
    pub fn with_secrets(self, secrets: HashMap<SnapshotId, ArenaSecret>) -> Self {
        Self { secrets, ..self }
    }

    /// With copies that are asked before the backend.
    pub fn with_near(self, near: Option<Arc<dyn NearArenas>>) -> Self {
        Self { near, ..self }
    }

    /// A store that opens the arenas of this domain alone, for what a machine that can only store
    /// says of itself: it could name an arena of another domain without having what is in it.
    pub fn with_arenas_of(self, domain: DomainId) -> Self {
        Self { only_of: Some(domain), ..self }
    }

    /// The secret of a session, if it is known.
    pub fn secret_of(&self, session: SnapshotId) -> Option<&ArenaSecret> {
        self.secrets.get(&session)
    }

    /// The sessions whose secrets are known.
    pub fn known_sessions(&self) -> impl Iterator<Item = SnapshotId> {
        self.secrets.keys().copied()
    }

    /// Opens an arena: its summary from the cache or by one read, or two if the summary is long.
    pub fn arena(&self, id: ArenaId) -> Result<Arc<Arena>, ArenaError> {
        if let Some(arena) = self.arenas.get(&id) {
            return Ok(arena);
        }
        let arena = self.any_generation(id, |name| self.open_or_heal(name, Wanted::Any))?;
        Ok(self.keep(id, arena))
    }

    /// The same, if a writer may build upon it.
    ///
    /// # Errors
    ///
    /// [`ArenaError::Foreign`] if it is of another domain, and the owner does not vouch for it: then its summary
    /// is not opened, which may have been made to cost much.
    pub fn trusted_arena(&self, id: ArenaId) -> Result<Arc<Arena>, ArenaError> {
        if let Some(arena) = self.arenas.get(&id).filter(|arena| arena.trusted) {
            return Ok(arena);
        }
        let arena = self.any_generation(id, |name| self.open_or_heal(name, Wanted::Trusted))?;
        Ok(self.keep(id, arena))
    }

    fn keep(&self, id: ArenaId, arena: Arena) -> Arc<Arena> {
        let arena = Arc::new(arena);
        self.arenas.put(id, arena.clone(), arena.memory_bytes());
        arena
    }

    /// An arena without its slots: enough to find and read the block of a slot.
    pub fn outline(&self, id: ArenaId) -> Result<Arc<Arena>, ArenaError> {
        if let Some(outline) = self.outlines.get(&id) {
            return Ok(outline);
        }
        let outline = Arc::new(self.arena(id)?.outline());
        self.outlines.put(id, outline.clone(), outline.memory_bytes());
        Ok(outline)
    }

    /// Opens an arena in a generation that holds this slot, if there is one; otherwise in any.
    pub fn arena_with(&self, place: Location) -> Result<Arc<Arena>, ArenaError> {
        let arena = self.arena(place.arena)?;
        if arena.holds(place.slot) {
            return Ok(arena);
        }
        for name in self.generations_of(place.arena)? {
            if name == arena.name() {
                continue;
            }
            match self.arena_in(name) {
                Ok(further) if further.holds(place.slot) => return Ok(further),
                Ok(_) => {}
                Err(error) if error.is_unreadable() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(arena)
    }

    /// Opens an arena in all generations in which its slots are looked for, those excepted that cannot
    /// be read.
    pub fn arenas(&self, id: ArenaId) -> Result<Vec<Arc<Arena>>, ArenaError> {
        let first = self.arena(id)?;
        let mut arenas = vec![first];
        for name in self.generations_of(id)? {
            if name == arenas[0].name() {
                continue;
            }
            match self.arena_in(name) {
                Ok(arena) => arenas.push(arena),
                Err(error) if error.is_unreadable() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(arenas)
    }

    /// The blocks that have a slot, in each generation that holds it and gives the block; none if there
    /// is but one generation.
    pub fn blocks_with(&self, place: Location) -> Result<Vec<Arc<OpenBlock>>, ArenaError> {
        let mut blocks = Vec::new();
        if self.generations_of(place.arena)?.len() < 2 {
            return Ok(blocks);
        }
        for arena in self.arenas(place.arena)?.iter().filter(|arena| arena.holds(place.slot)) {
            let Some(at) = arena.block_of(place.slot) else { continue };
            match self.block(arena, at) {
                Ok(block) => blocks.push(block),
                Err(error) if error.is_unreadable() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(blocks)
    }

    /// Opens one generation of an arena.
    pub fn arena_in(&self, name: ArenaName) -> Result<Arc<Arena>, ArenaError> {
        let known = self.arenas.get(&name.id).filter(|arena| arena.name() == name);
        if let Some(arena) = known.or_else(|| self.further.get(&name)) {
            return Ok(arena);
        }
        let arena = Arc::new(self.open_or_heal(name, Wanted::Any)?);
        self.further.put(name, arena.clone(), arena.memory_bytes());
        Ok(arena)
    }

    /// Reads a whole arena by one request, if it is then kept near; returns whether it is. For
    /// arenas of which much is needed, from a place that sends what follows a part too
    /// ([`Promises::sends_parts`](strongroom_backend::Promises::sends_parts)).
    pub fn bring_near(&self, id: ArenaId) -> bool {
        let has_room = |near: &&Arc<dyn NearArenas>| near.has_room(self.object_bytes_max);
        let Some(near) = self.near.as_ref().filter(has_room) else { return false };
        // What failed here fails again when the arena is opened, which reports it.
        let brought = self.any_generation(id, |name| match near.read(name, 0, 1) {
            Some(_) => Ok(true),
            None => {
                self.read(name, 0, self.object_bytes_max as usize)?;
                Ok(near.read(name, 0, 1).is_some())
            }
        });
        brought.unwrap_or(false)
    }

    /// Bytes of an arena's object as it is now.
    pub fn object_bytes(&self, name: ArenaName) -> Result<u64, ArenaError> {
        self.backend.size(&name.object()).map_err(|error| backend_error(name.id, error))
    }

    fn open_or_heal(&self, name: ArenaName, wanted: Wanted) -> Result<Arena, ArenaError> {
        if self.is_elsewhere(name) {
            return self.open_wanted_in(name, &self.heal(name)?, wanted);
        }
        match self.open_arena(name, wanted) {
            Err(ArenaError::Damaged { .. }) => self.open_wanted_in(name, &self.heal(name)?, wanted),
            other => other,
        }
    }

    /// The block at a place of the summary, from the cache or by one read.
    pub fn block(&self, arena: &Arena, place: usize) -> Result<Arc<OpenBlock>, ArenaError> {
        let key = (arena.name(), arena.summary.blocks[place].frame.number);
        if let Some(block) = self.blocks.get(&key) {
            return Ok(block);
        }
        let places = place..=self.last_ahead(arena, place);
        let opened = self.read_blocks(arena, places.clone())?;
        let mut opened = opened.into_iter().map(Arc::new).zip(places);
        let (wanted, _) = opened.next().expect("a run opens as the blocks that it has");
        self.blocks.put(key, wanted.clone(), wanted.memory_bytes());
        for (block, place) in opened {
            let key = (arena.name(), arena.summary.blocks[place].frame.number);
            let bytes = block.memory_bytes();
            self.blocks.put(key, block, bytes);
        }
        Ok(wanted)
    }

    /// The last block that is read along with one: far away, trees are read with those that follow
    /// them.
    fn last_ahead(&self, arena: &Arena, first: usize) -> usize {
        let is_far = self.backend.promises().in_flight > 1;
        if !is_far || ArenaContent::of(arena.id) != ArenaContent::Metadata {
            return first;
        }
        let blocks = first..arena.summary.blocks.len();
        let is_short = |last: &usize| arena.span(first..=*last).1 <= AHEAD_BYTES_MAX;
        blocks.take_while(is_short).last().unwrap_or(first)
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
    /// `arena` was opened, or they do not open, from another generation, in which they have the same numbers.
    fn read_blocks_healed(
        &self,
        arena: &Arena,
        places: std::ops::RangeInclusive<usize>,
    ) -> Result<Vec<OpenBlock>, ArenaError> {
        let read = |name| {
            let object = self.heal(name)?;
            let now = self.open_arena_in(name, &object)?;
            blocks_in(&now, &object, &arena.summary.blocks[places.clone()])
        };
        let error = match read(arena.name()) {
            Err(error) if error.is_lost() => error,
            other => return other,
        };
        let lacking = Cell::new(None);
        let found = self.other_generation(arena.name(), error, |name| match read(name) {
            // It may be in a further one.
            Err(error @ ArenaError::SlotLost { .. }) => {
                lacking.set(Some(error));
                Err(damaged(arena.id, "a generation of it lacks the block"))
            }
            other => {
                self.drop_opened(arena.id);
                other
            }
        });
        found.map_err(|error| lacking.take().unwrap_or(error))
    }

    /// Drops what is cached of an arena, because it was rewritten.
    pub fn forget(&self, id: ArenaId) {
        self.drop_opened(id);
        self.further.remove_if(|name| name.id == id);
        self.blocks.remove_if(|(name, _)| name.id == id);
        self.healed.remove_if(|name| name.id == id);
    }

    /// Drops what was opened of an arena.
    fn drop_opened(&self, id: ArenaId) {
        self.arenas.remove(&id);
        self.outlines.remove(&id);
    }

    fn read(&self, name: ArenaName, offset: u64, length: usize) -> Result<Vec<u8>, ArenaError> {
        if let Some(bytes) = self.near.as_ref().and_then(|near| near.read(name, offset, length)) {
            return Ok(bytes);
        }
        let read = self.backend.read(&name.object(), offset, length);
        let bytes = read.map_err(|error| backend_error(name.id, error))?;
        if let Some(near) = &self.near {
            near.note(name, offset, &bytes);
        }
        Ok(bytes)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
