//! A small world: a repository in memory, a tree on disk, and a clock and randomness that can be
//! replayed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strongroom_arena::{CacheLimits, CompressionLevel, Redundancy};
use strongroom_backend::{Backend, MemoryBackend, Promises};
use strongroom_base::{Cancel, Monitor, SeededEntropy, Silent, SizeLimits, SnapshotId};
use strongroom_chunk::Limits;
use strongroom_engine::{BackupOptions, BackupOutcome, EngineError, backup};
use strongroom_repository::keys::KdfCost;
use strongroom_repository::{
    ChunkReader, Compression, InitOptions, PackOptions, Repository, RepositoryError, Surroundings,
    list_snapshots,
};
use strongroom_source::SourceOptions;
use strongroom_testkit::damage::Objects;
use strongroom_testkit::tree::{TreeOptions, grow, mutate};
use strongroom_testkit::{Image, RecordingBackend, TickingClock};
use strongroom_upkeep::PruneOptions;

use crate::read_back::read_back;

/// Like those of `key generate`: a passphrase that a person chose takes 8 MiB to open.
pub const PASSPHRASE: &[u8] =
    b"strongroom-key-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a4f56ba95";

/// That of a put-only key.
pub const LAPTOP: &[u8] =
    b"strongroom-key-a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a572949ae1";

/// A prune after which nothing is left that can be won.
pub const ALL: PruneOptions = PruneOptions {
    unused_percent_max: 0,
    rewritten_max: None,
    time_max: None,
    patience: Duration::MAX,
    dry_run: false,
};

/// Trees that make some ten arenas of [`init_options`].
pub const TREE: TreeOptions =
    TreeOptions { entries: 50, chunk_bytes: 6 << 10, file_bytes_max: 200 << 10 };

pub struct World {
    /// What the repository's objects are kept in.
    pub objects: Arc<MemoryBackend>,
    /// A tree, and other files of a test.
    pub folder: tempfile::TempDir,
    /// Where caches are kept; `None` at first.
    pub cache: Option<PathBuf>,
    /// Bytes of the tags of a repository that compares by value; `None` for one by hash.
    pub tag_bytes: Option<usize>,
    /// Those of the repositories that it opens; the program's at first.
    pub limits: SizeLimits,
    /// Whether its repository is on another machine.
    is_far: bool,
    clock: Arc<TickingClock>,
    entropy: Arc<SeededEntropy>,
    _quiet: Option<MutexGuard<'static, ()>>,
}

/// Held while a quiet world is used.
static QUIET: Mutex<()> = Mutex::new(());

/// A folder in which no other test makes files meanwhile: the directories above a tree are part of
/// what is kept.
pub fn quiet_folder() -> (tempfile::TempDir, MutexGuard<'static, ()>) {
    let guard = QUIET.lock().unwrap_or_else(PoisonError::into_inner);
    (tempfile::tempdir_in("/var/tmp").unwrap(), guard)
}

/// A reader of everything that a repository holds.
pub fn reader_of_everything(repository: &Repository) -> ChunkReader {
    #[expect(clippy::disallowed_methods, reason = "a test gives nothing away")]
    ChunkReader::of_everything(repository, CacheLimits::default()).unwrap()
}

/// Small chunks, blocks and arenas: little data makes many of them.
pub fn init_options() -> InitOptions {
    InitOptions {
        chunk_limits: Limits::new(4 << 10, 8 << 10).unwrap(),
        arena_bytes: 40 << 10,
        redundancy: Redundancy::ARENA,
        padding: false,
        cost: Some(KdfCost::CHEAPEST),
        label: "first".to_owned(),
        agreed: false,
        by_value: false,
    }
}

/// A folder for many restores: in memory if that keeps everything that a disk does, because each
/// restore ends with a flush of the file system.
pub fn scratch() -> tempfile::TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm").ok().filter(|folder| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(folder.path(), "user.note", b"kept", flags).is_ok()
    });
    in_memory.unwrap_or_else(|| tempfile::tempdir().unwrap())
}

impl World {
    /// A repository without snapshots, and a tree.
    pub fn new(seed: u64) -> Self {
        let world = Self::bare(seed);
        grow(&world.tree(), seed, TREE);
        world
    }

    /// A repository without snapshots, and no tree.
    pub fn bare(seed: u64) -> Self {
        let world = Self::empty(seed);
        Repository::init(world.surroundings(), PASSPHRASE, &init_options()).unwrap();
        world
    }

    /// A repository that compares by value, with tags of this many bytes, without snapshots and tree.
    pub fn by_value(seed: u64, tag_bytes: usize) -> Self {
        let world = Self { tag_bytes: Some(tag_bytes), ..Self::empty(seed) };
        let options = InitOptions { by_value: true, ..init_options() };
        Repository::init(world.surroundings(), PASSPHRASE, &options).unwrap();
        world
    }

    /// A world in a quiet folder.
    pub fn quiet(seed: u64) -> Self {
        let (folder, guard) = quiet_folder();
        let world = Self { folder, _quiet: Some(guard), ..Self::empty(seed) };
        grow(&world.tree(), seed, TREE);
        Repository::init(world.surroundings(), PASSPHRASE, &init_options()).unwrap();
        world
    }

    /// No repository, no tree.
    pub fn empty(seed: u64) -> Self {
        Self {
            objects: Arc::new(MemoryBackend::new()),
            folder: tempfile::tempdir().unwrap(),
            cache: None,
            tag_bytes: None,
            limits: SizeLimits::DEFAULT,
            is_far: false,
            clock: Arc::new(TickingClock::new()),
            entropy: Arc::new(SeededEntropy::new(seed)),
            _quiet: None,
        }
    }

    /// Keeps caches below the world's folder from now on. They are there before the first backup,
    /// which would otherwise change the folder that it walks through.
    pub fn with_cache(mut self) -> Self {
        let cache = self.folder.path().join("cache");
        std::fs::create_dir_all(&cache).unwrap();
        self.cache = Some(cache);
        self
    }

    /// Has its repository on another machine from now on, if so: then arenas are kept near.
    pub fn far(self, is_far: bool) -> Self {
        Self { is_far, ..self }
    }

    pub fn tree(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    /// What the tree on disk is now.
    pub fn image(&self) -> Image {
        Image::of(&self.tree())
    }

    /// Writes a file of the tree, and the directories above it.
    pub fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.tree().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub fn mutate(&self, seed: u64) -> Vec<String> {
        mutate(&self.tree(), seed, TREE)
    }

    pub fn surroundings(&self) -> Surroundings {
        self.over(self.objects.clone())
    }

    /// The same world over another backend.
    pub fn over(&self, backend: Arc<dyn Backend>) -> Surroundings {
        Surroundings {
            backend,
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
            cache: self.cache.clone(),
        }
    }

    pub fn open(&self) -> Repository {
        self.open_over(self.seen(self.objects.clone())).unwrap()
    }

    /// A place as this world sees it.
    pub fn seen(&self, place: Arc<dyn Backend>) -> Arc<dyn Backend> {
        let promises = Promises { in_flight: 4, ..place.promises() };
        match self.is_far {
            true => Arc::new(RecordingBackend::new(place).promising(promises)),
            false => place,
        }
    }

    pub fn open_over(&self, backend: Arc<dyn Backend>) -> Result<Repository, RepositoryError> {
        self.open_with(self.over(backend), PASSPHRASE)
    }

    /// Opens a repository with a passphrase. One that compares by value has the tags of this world.
    pub fn open_with(
        &self,
        surroundings: Surroundings,
        passphrase: &[u8],
    ) -> Result<Repository, RepositoryError> {
        let mut repository = Repository::open(surroundings, passphrase)?;
        repository.limits = self.limits;
        if let Some(tag_bytes) = self.tag_bytes {
            let naming = &mut repository.keys.write.naming;
            *naming = naming.clone().by_value(tag_bytes);
        }
        Ok(repository)
    }

    /// A repository of these objects, apart from the world's own.
    pub fn open_objects(&self, objects: &Objects) -> Result<Repository, RepositoryError> {
        self.open_over(Arc::new(MemoryBackend::from_snapshot(objects.clone())))
    }

    /// Backs the tree up.
    pub fn backup(&self) -> BackupOutcome {
        run(&self.open(), &options(&self.tree()), &Silent).unwrap()
    }

    /// Asserts that a snapshot of the tree is what an image says.
    #[track_caller]
    pub fn assert_holds(&self, repository: &Repository, id: SnapshotId, image: &Image, what: &str) {
        let kept =
            read_back(repository, id, &self.tree()).unwrap_or_else(|e| panic!("{what}: {e}"));
        image.assert_same(&kept, what);
    }
}

/// Everything of a tree, compressed fast, by two threads.
pub fn options(tree: &Path) -> BackupOptions {
    BackupOptions {
        paths: vec![tree.to_owned()],
        source: SourceOptions::default(),
        host: "host".to_owned(),
        user: "user".to_owned(),
        uid: 1000,
        gid: 100,
        labels: Vec::new(),
        force: false,
        dry_run: false,
        parent: None,
        count_first: false,
        pack: pack(),
        readers: 2,
        as_made: None,
        program: "test".to_owned(),
    }
}

pub fn pack() -> PackOptions {
    let compression = Compression::Level(CompressionLevel::new(1).unwrap());
    PackOptions { compression, block_bytes: 8 << 10, workers: 2, deltas: true }
}

pub fn run(
    repository: &Repository,
    options: &BackupOptions,
    monitor: &dyn Monitor,
) -> Result<BackupOutcome, EngineError> {
    backup(repository, options, monitor, &Cancel::new())
}

/// The snapshots of a repository, all of them readable.
pub fn snapshot_ids(repository: &Repository) -> Vec<SnapshotId> {
    let list = list_snapshots(repository).unwrap();
    assert!(list.unreadable.is_empty(), "{:?}", list.unreadable.len());
    list.snapshots.iter().map(|snapshot| snapshot.id).collect()
}
