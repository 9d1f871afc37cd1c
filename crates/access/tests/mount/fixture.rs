//! A repository in a temporary folder, with something to back up and a place to mount it on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::tz::TimeZone;
use strongroom_access::{MountHandle, MountOptions, mount};
use strongroom_arena::CacheLimits;
use strongroom_backend::LocalBackend;
use strongroom_base::{
    Cancel, Monitor, OsEntropy, Problem, Severity, Silent, SystemClock, Timestamp,
};
use strongroom_catalog::Snapshot;
use strongroom_engine::{BackupOptions, backup};
use strongroom_repository::keys::KdfCost;
use strongroom_repository::{InitOptions, PackOptions, Repository, Surroundings};
use strongroom_source::SourceOptions;
use strongroom_testkit::skipped;
use tempfile::TempDir;

/// Keeps all reports.
#[derive(Default)]
pub struct Reports(Mutex<Vec<(Severity, PathBuf, String)>>);

impl Monitor for Reports {
    fn problem(&self, problem: Problem<'_>) {
        let path = problem.path.map(Path::to_owned).unwrap_or_default();
        self.0.lock().unwrap().push((problem.severity, path, problem.message.to_owned()));
    }
}

impl Reports {
    pub fn take(&self) -> Vec<(Severity, PathBuf, String)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Returns a time that a test sets.
#[derive(Default)]
pub struct SetClock(Mutex<Timestamp>);

impl strongroom_base::Clock for SetClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

pub struct Fixture {
    pub folder: TempDir,
    pub repository: Arc<Repository>,
    pub reports: Arc<Reports>,
    pub clock: Option<Arc<SetClock>>,
}

/// True if file systems can be mounted. A test that cannot run fails under `./test`.
#[track_caller]
pub fn can_mount() -> bool {
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let reason = device.err().map(|error| format!("/dev/fuse: {error}"));
    !skipped(reason.as_deref())
}

impl Fixture {
    pub fn new() -> Self {
        Self::with(InitOptions::default(), None)
    }

    /// With a clock that does not move.
    pub fn at(moment: Timestamp) -> Self {
        let fixture = Self::with(InitOptions::default(), Some(Arc::default()));
        fixture.set_time(moment);
        fixture
    }

    pub fn with(options: InitOptions, clock: Option<Arc<SetClock>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["source", "mount", "repository"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let backend = LocalBackend::create(&folder.path().join("repository")).unwrap();
        let surroundings = Surroundings {
            backend: Arc::new(backend),
            clock: match &clock {
                Some(clock) => clock.clone(),
                None => Arc::new(SystemClock),
            },
            entropy: Arc::new(OsEntropy),
            cache: None,
        };
        let options = InitOptions { cost: Some(KdfCost::TYPED_MIN), ..options };
        let repository = Repository::init(surroundings, b"secret", &options).unwrap();
        Self { folder, repository: Arc::new(repository), reports: Arc::default(), clock }
    }

    pub fn set_time(&self, moment: Timestamp) {
        *self.clock.as_ref().unwrap().0.lock().unwrap() = moment;
    }

    pub fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    pub fn mountpoint(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    /// The path in the mount of a path of this machine.
    pub fn mounted(&self, snapshot: &Snapshot, path: &Path) -> PathBuf {
        let root = self.mountpoint().join("ids").join(snapshot.id.short());
        root.join(path.strip_prefix("/").unwrap())
    }

    pub fn backup(&self) -> Snapshot {
        self.backup_of(&self.source())
    }

    pub fn backup_of(&self, path: &Path) -> Snapshot {
        let options = BackupOptions {
            paths: vec![path.to_owned()],
            source: SourceOptions::default(),
            host: "here".to_owned(),
            user: "me".to_owned(),
            uid: 1,
            gid: 2,
            labels: Vec::new(),
            force: false,
            dry_run: false,
            parent: None,
            count_first: false,
            readers: 2,
            pack: PackOptions { workers: 2, block_bytes: 1 << 20, ..PackOptions::default() },
            as_made: None,
            program: "test".to_owned(),
        };
        let outcome = backup(&self.repository, &options, &Silent, &Cancel::new()).unwrap();
        outcome.snapshot
    }

    pub fn mount(&self) -> MountHandle {
        self.mount_with(|_| {})
    }

    pub fn mount_with(&self, change: impl FnOnce(&mut MountOptions)) -> MountHandle {
        let mut options = MountOptions::new(TimeZone::UTC);
        options.refresh = Duration::ZERO;
        change(&mut options);
        mount(self.repository.clone(), &self.mountpoint(), &options, self.reports.clone()).unwrap()
    }
}

/// As little memory as possible, so that evicted things are read again.
pub fn tight(options: &mut MountOptions) {
    options.cache = CacheLimits { summary_bytes: 0, block_bytes: 0, healed_bytes: 0 };
    options.directory_bytes = 0;
}
