//! Reads chunks for many threads, and does not try damaged ones again and again.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use strongroom_arena::ArenaContent;
use strongroom_base::{ArenaId, Fingerprint, Location, Stopwatch};
use strongroom_catalog::{CatalogError, ChunkRef, FormatError, ReadChunk};
use strongroom_repository::ChunkReader;
use strongroom_repository::RepositoryError;

/// Damaged chunks that are remembered.
const FAILURES_KEPT: NonZeroUsize = NonZeroUsize::new(256).expect("256 is not zero");
/// For this long a damaged chunk is not tried again: the kernel asks again for each of its pages,
/// and each try reads a whole arena for its parity. A repair is noticed after this time.
const FAILURE_LIFETIME: Duration = Duration::from_secs(10);
/// Locks that keep two threads from opening the same block at the same time.
const LANES: usize = 64;

/// Why something stored cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// True if stored data is wrong, and not the way to it.
    pub is_damage: bool,
    /// What is wrong.
    pub message: String,
}

impl Failure {
    /// Stored data that contradicts itself.
    pub fn damage(message: &str) -> Self {
        Self { is_damage: true, message: message.to_owned() }
    }

    /// A chunk that is not as long as it was said to be.
    pub fn wrong_length() -> Self {
        Self::damage("a chunk has another length than its recipe says")
    }
}

impl From<RepositoryError> for Failure {
    fn from(error: RepositoryError) -> Self {
        Self { is_damage: error.is_damage(), message: error.to_string() }
    }
}

impl From<FormatError> for Failure {
    fn from(error: FormatError) -> Self {
        Self::damage(&error.to_string())
    }
}

impl From<CatalogError<Failure>> for Failure {
    fn from(error: CatalogError<Failure>) -> Self {
        match error {
            CatalogError::Chunk(failure) => failure,
            CatalogError::Format(error) => error.into(),
        }
    }
}

/// All of a reference to a chunk. Another one to the same chunk may be right, and this one wrong.
type Reference = (Fingerprint, Location, u64);

/// Reads chunks.
pub struct Chunks {
    reader: ChunkReader,
    // A plain mutex: held for a map operation.
    failures: Mutex<LruCache<Reference, (Stopwatch, String)>>,
    // Held while a block is read and opened, by all threads that want that block.
    lanes: Vec<Mutex<()>>,
    heals_reported: AtomicU64,
}

impl Chunks {
    /// Reads through this reader.
    pub fn new(reader: ChunkReader) -> Self {
        Self {
            reader,
            failures: Mutex::new(LruCache::new(FAILURES_KEPT)),
            lanes: (0..LANES).map(|_| Mutex::new(())).collect(),
            heals_reported: AtomicU64::new(0),
        }
    }

    /// How many arenas had to be computed again from parity since this was last asked.
    pub fn take_heals(&self) -> u64 {
        let heals = self.reader.store().heals();
        heals.saturating_sub(self.heals_reported.fetch_max(heals, Ordering::Relaxed))
    }

    /// How many requests at a time the repository's place is good for.
    pub fn requests_in_flight(&self) -> usize {
        self.reader.requests_in_flight()
    }

    /// The block that has a chunk, by its arena and its place there. It opens the arena.
    pub fn block_of(&self, chunk: &ChunkRef) -> Option<(ArenaId, usize)> {
        let arena = self.reader.store().arena(chunk.location.arena).ok()?;
        Some((arena.id, arena.block_of(chunk.location.slot)?))
    }

    /// Brings the chunk's block into the reader's cache, by one thread of all that want it. An
    /// error here occurs again in the read that follows, which reports it.
    pub fn open_block_once(&self, chunk: &ChunkRef) {
        let Ok(arena) = self.reader.store().arena(chunk.location.arena) else { return };
        let Some(place) = arena.block_of(chunk.location.slot) else { return };
        let lane = usize::from(chunk.location.arena.0[0]).wrapping_add(place) % LANES;
        let _loading = lock(&self.lanes[lane]);
        let _ = self.reader.store().block(&arena, place);
    }
}

impl ReadChunk for Chunks {
    type Error = Failure;

    fn read_chunk(&self, chunk: &ChunkRef) -> Result<Vec<u8>, Failure> {
        self.read_with(chunk, ChunkReader::read_metadata)
    }
}

impl Chunks {
    /// The bytes of a chunk of content, verified against its fingerprint.
    pub fn read_data(&self, chunk: &ChunkRef) -> Result<Vec<u8>, Failure> {
        self.read_with(chunk, ChunkReader::read_data)
    }

    /// Appends a whole chunk of content, verified against its fingerprint: from the open block,
    /// without a copy between.
    pub fn append_data(&self, chunk: &ChunkRef, bytes: &mut Vec<u8>) -> Result<(), Failure> {
        self.check_failures(chunk)?;
        self.open_block_once(chunk);
        // What fails here fails again below, where other places are tried and failures remembered.
        if let Ok(block) = self.reader.block_of(chunk.location)
            && let Some(stored) = block.chunk(chunk.location.slot)
            && let Ok(whole) = self.reader.resolve(
                ArenaContent::Data,
                &chunk.fingerprint,
                chunk.location,
                stored,
                None,
            )
            && whole.len() as u64 == chunk.stream_bytes
        {
            bytes.extend_from_slice(&whole);
            return Ok(());
        }
        bytes.extend_from_slice(&self.read_data(chunk)?);
        Ok(())
    }

    fn read_with(
        &self,
        chunk: &ChunkRef,
        read: impl Fn(&ChunkReader, &ChunkRef) -> Result<Vec<u8>, RepositoryError>,
    ) -> Result<Vec<u8>, Failure> {
        self.check_failures(chunk)?;
        self.open_block_once(chunk);
        read(&self.reader, chunk).map_err(|error| {
            let failure = Failure::from(error);
            if failure.is_damage {
                let since = Stopwatch::start();
                lock(&self.failures).put(reference(chunk), (since, failure.message.clone()));
            }
            failure
        })
    }

    /// Fails if the chunk was found damaged a short time ago.
    fn check_failures(&self, chunk: &ChunkRef) -> Result<(), Failure> {
        match lock(&self.failures).get(&reference(chunk)) {
            Some((since, message)) if since.elapsed() < FAILURE_LIFETIME => {
                Err(Failure { is_damage: true, message: message.clone() })
            }
            _ => Ok(()),
        }
    }
}

fn reference(chunk: &ChunkRef) -> Reference {
    (chunk.fingerprint, chunk.location, chunk.stream_bytes)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use strongroom_arena::CacheLimits;
    use strongroom_backend::MemoryBackend;
    use strongroom_base::{Cancel, SeededEntropy, Silent, SystemClock};
    use strongroom_engine::{BackupOptions, backup};
    use strongroom_repository::keys::generate_passphrase;
    use strongroom_repository::{
        Found, InitOptions, PackOptions, Repository, Surroundings, find_path,
    };
    use strongroom_source::SourceOptions;
    use strongroom_testkit::noise;

    use super::*;

    /// A repository, and the reference to the chunk of a file in it.
    fn stored() -> (Repository, ChunkRef) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, noise(1, 2000)).unwrap();
        let surroundings = Surroundings {
            backend: Arc::new(MemoryBackend::new()),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SeededEntropy::new(1)),
            cache: None,
        };
        let passphrase = generate_passphrase(&SeededEntropy::new(2));
        let init = InitOptions { cost: None, ..InitOptions::default() };
        let repository = Repository::init(surroundings, passphrase.as_bytes(), &init).unwrap();
        let options = BackupOptions {
            paths: vec![file.clone()],
            source: SourceOptions::default(),
            host: String::new(),
            user: String::new(),
            uid: 1,
            gid: 2,
            labels: Vec::new(),
            force: false,
            dry_run: false,
            parent: None,
            count_first: false,
            readers: 1,
            pack: PackOptions { workers: 1, ..PackOptions::default() },
            as_made: None,
            program: "test".to_owned(),
        };
        let snapshot = backup(&repository, &options, &Silent, &Cancel::new()).unwrap().snapshot;
        let reader = ChunkReader::of_domain(&repository, "", CacheLimits::default()).unwrap();
        let path = file.as_os_str().as_encoded_bytes();
        let Ok(Found::Entry { entry, .. }) = find_path(&snapshot, path, &reader) else { panic!() };
        let chunk = entry.content().unwrap().refs[0];
        (repository, chunk)
    }

    #[test]
    fn a_wrong_reference_to_a_chunk_leaves_right_ones_readable() {
        let (repository, right) = stored();
        let reader = ChunkReader::of_domain(&repository, "", CacheLimits::default()).unwrap();
        let chunks = Chunks::new(reader);
        let wrong = ChunkRef { stream_bytes: right.stream_bytes + 1, ..right };
        for _ in 0..2 {
            assert!(chunks.read_data(&wrong).unwrap_err().is_damage);
            assert!(chunks.read_data(&right) == Ok(noise(1, 2000)));
            let mut bytes = Vec::new();
            assert_eq!(chunks.append_data(&right, &mut bytes), Ok(()));
        }
        let gone = ChunkRef { fingerprint: Fingerprint([7; 32]), ..right };
        assert!(chunks.read_data(&gone).unwrap_err().is_damage);
        assert_eq!(lock(&chunks.failures).len(), 2, "what failed is not tried again at once");
    }
}
