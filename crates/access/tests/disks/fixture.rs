//! A repository with nights of a machine, and a server of its disks.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::tz::TimeZone;
use strongroom_access::{Nights, NightsOptions};
use strongroom_backend::LocalBackend;
use strongroom_base::{Cancel, Clock, Monitor, OsEntropy, Problem, Silent, Timestamp};
use strongroom_catalog::Snapshot;
use strongroom_disk::RawImage;
use strongroom_engine::{BackupOptions, Disk, Machine, MachineOptions, backup_machine};
use strongroom_nbd::{Listener, Server, ServerOptions};
use strongroom_repository::keys::KdfCost;
use strongroom_repository::{InitOptions, PackOptions, Repository, Surroundings};
use strongroom_source::SourceOptions;
use strongroom_testkit::Random;
use tempfile::TempDir;

/// 2026-11-20, noon, in UTC.
pub const NOON: i64 = 1_795_176_000;

/// Keeps all reports.
#[derive(Default)]
pub struct Reports(Mutex<Vec<String>>);

impl Monitor for Reports {
    fn problem(&self, problem: Problem<'_>) {
        let path = problem.path.unwrap_or(Path::new("")).display();
        self.0.lock().unwrap().push(format!("{path} {}", problem.message));
    }
}

impl Reports {
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Returns a time that a test sets.
#[derive(Default)]
struct SetClock(Mutex<Timestamp>);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

pub struct World {
    pub folder: TempDir,
    pub repository: Arc<Repository>,
    pub reports: Arc<Reports>,
    clock: Arc<SetClock>,
}

impl World {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("repository");
        fs::create_dir(&place).unwrap();
        let clock = Arc::<SetClock>::default();
        let surroundings = Surroundings {
            backend: Arc::new(LocalBackend::create(&place).unwrap()),
            clock: clock.clone(),
            entropy: Arc::new(OsEntropy),
            cache: None,
        };
        let options = InitOptions { cost: Some(KdfCost::TYPED_MIN), ..InitOptions::default() };
        let repository = Repository::init(surroundings, b"secret", &options).unwrap();
        Self { folder, repository: Arc::new(repository), reports: Arc::default(), clock }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A disk of data of all kinds and of holes, which is not a whole number of megabytes long.
    pub fn disk(&self, name: &str, seed: u64, megabytes: u64) -> PathBuf {
        let path = self.path(name);
        let mut file = File::create(&path).unwrap();
        let mut random = Random::new(seed);
        let mut position = 0;
        while position < megabytes << 20 {
            let length = 1 + random.below(1 << 20) as usize;
            if random.once_in(2) {
                file.seek(SeekFrom::Start(position)).unwrap();
                file.write_all(&random.content(length)).unwrap();
            }
            position += length as u64;
        }
        file.set_len((megabytes << 20) + 512).unwrap();
        path
    }

    /// Stores disks `vda`, `vdb`, … of a machine some hours after the first noon.
    pub fn night(&self, machine: &str, hours: i64, disks: &[&Path]) -> Snapshot {
        *self.clock.0.lock().unwrap() = Timestamp((NOON + hours * 3600) * 1_000_000_000);
        let disk = |(path, letter): (&&Path, char)| {
            let image = RawImage::open(path).unwrap();
            Disk::new(format!("vd{letter}"), Box::new(image))
        };
        let disks = disks.iter().zip('a'..).map(disk).collect();
        let stored = MachineOptions { name: machine.to_owned(), keep_free: true, keep_swap: false };
        let machine = Machine { disks, description: Vec::new() };
        let options = BackupOptions {
            paths: Vec::new(),
            source: SourceOptions::default(),
            host: "here".to_owned(),
            user: "me".to_owned(),
            uid: 1,
            gid: 2,
            labels: Vec::new(),
            force: true,
            dry_run: false,
            parent: None,
            count_first: false,
            readers: 2,
            pack: PackOptions { workers: 2, ..PackOptions::default() },
            as_made: None,
            program: "test".to_owned(),
        };
        let repository = &self.repository;
        let cancel = Cancel::new();
        let outcome = backup_machine(repository, &machine, &stored, &options, &Silent, &cancel);
        let outcome = outcome.unwrap();
        assert!(outcome.committed);
        outcome.snapshot
    }

    pub fn nights(&self, change: impl FnOnce(&mut NightsOptions)) -> Arc<Nights> {
        let mut options = NightsOptions::new(TimeZone::UTC);
        options.refresh = Duration::ZERO;
        change(&mut options);
        Arc::new(Nights::open(self.repository.clone(), options, self.reports.clone()).unwrap())
    }

    /// Serves disks on a socket until the guard is dropped.
    pub fn serve(&self, nights: &Arc<Nights>) -> Served {
        let socket = self.path("socket");
        let listener = Listener::unix(&socket).unwrap();
        let server = Server::start(listener, nights.clone(), ServerOptions::default()).unwrap();
        Served { socket, _server: server }
    }
}

pub struct Served {
    socket: PathBuf,
    _server: Server,
}

impl Served {
    pub fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.socket.display())
    }
}

/// Runs a judge, which must be content; returns what it said.
#[track_caller]
pub fn judge(program: &str, args: &[impl AsRef<OsStr> + std::fmt::Debug]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}\n{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub fn bytes_of(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}
