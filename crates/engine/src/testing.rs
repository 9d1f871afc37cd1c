//! For unit tests only: a repository in memory, a tree on disk, and snapshots of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_arena::{CompressionLevel, Redundancy};
use strongroom_backend::{Backend, MemoryBackend, ObjectName};
use strongroom_base::{Cancel, SeededEntropy, Silent, SizeLimits};
use strongroom_catalog::Snapshot;
use strongroom_chunk::Limits;
use strongroom_repository::keys::generate_passphrase;
use strongroom_repository::{Compression, InitOptions, PackOptions, Repository, Surroundings};
use strongroom_source::SourceOptions;
use strongroom_testkit::TickingClock;
use strongroom_testkit::tree::{TreeOptions, grow};

use crate::{BackupOptions, backup};

/// Trees that make some ten arenas.
pub const TREE: TreeOptions =
    TreeOptions { entries: 50, chunk_bytes: 6 << 10, file_bytes_max: 200 << 10 };

/// A batch of a restore holds 50 chunks, so that small files need many.
pub const LIMITS: SizeLimits =
    SizeLimits { batch_wants_max: 50, batch_entries_max: 100, ..SizeLimits::DEFAULT };

/// A repository and a folder.
pub struct World {
    pub repository: Repository,
    pub objects: Arc<MemoryBackend>,
    pub folder: tempfile::TempDir,
}

impl World {
    /// A repository without snapshots: small chunks, blocks and arenas.
    pub fn new() -> Self {
        Self::with_redundancy(Redundancy::ARENA)
    }

    /// A repository whose arenas get this much parity.
    pub fn with_redundancy(redundancy: Redundancy) -> Self {
        let objects = Arc::new(MemoryBackend::new());
        let surroundings = Surroundings {
            backend: objects.clone(),
            clock: Arc::new(TickingClock::new()),
            entropy: Arc::new(SeededEntropy::new(1)),
            cache: None,
        };
        let init = InitOptions {
            chunk_limits: Limits::new(4 << 10, 8 << 10).unwrap(),
            arena_bytes: 40 << 10,
            redundancy,
            padding: false,
            cost: None,
            label: String::new(),
            agreed: false,
            by_value: false,
        };
        let passphrase = generate_passphrase(&SeededEntropy::new(2));
        let mut repository = Repository::init(surroundings, passphrase.as_bytes(), &init).unwrap();
        repository.limits = LIMITS;
        Self { repository, objects, folder: tempfile::tempdir().unwrap() }
    }

    /// The tree that is backed up.
    pub fn tree(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    /// Where the tree is in snapshots.
    pub fn path(&self) -> Vec<u8> {
        std::os::unix::ffi::OsStrExt::as_bytes(self.tree().as_os_str()).to_vec()
    }

    /// Makes a tree with everything in it.
    pub fn grow(&self, seed: u64) {
        grow(&self.tree(), seed, TREE);
    }

    /// Writes a file of the tree, and the directories above it.
    pub fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.tree().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Backs the tree up.
    pub fn backup(&self) -> Snapshot {
        self.backup_of(&self.tree())
    }

    /// Backs a path up.
    pub fn backup_of(&self, path: &Path) -> Snapshot {
        let compression = Compression::Level(CompressionLevel::new(1).unwrap());
        let options = BackupOptions {
            paths: vec![path.to_owned()],
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
            pack: PackOptions { compression, block_bytes: 8 << 10, workers: 2, deltas: false },
            readers: 2,
            as_made: None,
            program: "test".to_owned(),
        };
        backup(&self.repository, &options, &Silent, &Cancel::new()).unwrap().snapshot
    }

    /// Removes an object.
    pub fn remove(&self, name: &ObjectName) {
        self.objects.remove(name).unwrap();
    }
}
