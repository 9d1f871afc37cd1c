//! A repository in memory that can be full, an agent on a thread, and memory that both sides see.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use strongroom_arena::{CompressionLevel, Redundancy};
use strongroom_backend::{
    Backend, BackendError, MemoryBackend, ObjectInfo, ObjectName, Promises, Room, Stores,
};
use strongroom_base::{Cancel, Clock, Monitor, Problem, SeededEntropy, Stopwatch, Timestamp};
use strongroom_bucket::{Bucket, KeyRange, Owner};
use strongroom_chunk::Limits;
use strongroom_engine::BackupOptions;
use strongroom_ram::agent::{AgentError, AgentOptions, run};
use strongroom_ram::files::NodeFile;
use strongroom_ram::keeper::Keeper;
use strongroom_repository::keys::KdfCost;
use strongroom_repository::{
    Compression, InitOptions, PackOptions, Repository, Surroundings, list_snapshots,
};
use strongroom_source::SourceOptions;
use strongroom_testkit::TickingClock;
use strongroom_upkeep::{NewAccess, add_key};

const PASSPHRASE: &[u8] =
    b"strongroom-key-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a4f56ba95";

pub struct World {
    pub folder: tempfile::TempDir,
    pub place: Arc<Place>,
    pub log: Arc<Log>,
    pub clock: Arc<Wall>,
    entropy: Arc<SeededEntropy>,
}

/// An agent on a thread; it ends when this is dropped.
pub struct Running {
    cancel: Cancel,
    thread: Option<JoinHandle<Result<(), AgentError>>>,
}

/// What was logged.
#[derive(Default)]
pub struct Log {
    lines: Mutex<Vec<String>>,
    /// While a test has it, the thread that logs a problem waits.
    pub stuck: Mutex<()>,
}

/// A clock that can be set: it goes on from there.
#[derive(Debug, Default)]
pub struct Wall {
    ticking: TickingClock,
    ahead_ns: AtomicI64,
}

/// A place that may be full, whose reads may fail, and whose writes may wait.
#[derive(Default)]
pub struct Place {
    objects: MemoryBackend,
    pub is_full: AtomicBool,
    on_read: Mutex<Option<Arc<OnRead>>>,
    /// While a test has it, nothing is written.
    pub writing: Mutex<()>,
}

/// What happens before a read. Returns whether it succeeds.
type OnRead = dyn Fn() -> bool + Send + Sync;

impl World {
    pub fn new() -> Self {
        let world = Self {
            folder: tempfile::tempdir().unwrap(),
            place: Arc::new(Place::default()),
            log: Arc::default(),
            clock: Arc::default(),
            entropy: Arc::new(SeededEntropy::new(7)),
        };
        let options = InitOptions {
            chunk_limits: Limits::new(4 << 10, 8 << 10).unwrap(),
            arena_bytes: 1 << 20,
            redundancy: Redundancy::ARENA,
            padding: false,
            cost: Some(KdfCost::CHEAPEST),
            label: "first".to_owned(),
            agreed: false,
            by_value: false,
        };
        Repository::init(world.surroundings(), PASSPHRASE, &options).unwrap();
        world
    }

    fn surroundings(&self) -> Surroundings {
        Surroundings {
            backend: self.place.clone(),
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
            cache: None,
        }
    }

    pub fn repository(&self) -> Repository {
        Repository::open(self.surroundings(), PASSPHRASE).unwrap()
    }

    pub fn snapshots(&self) -> usize {
        list_snapshots(&self.repository()).unwrap().snapshots.len()
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("ram.sock")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn agent(&self) -> Running {
        self.start(None)
    }

    pub fn node(&self, file: &Path) -> Running {
        self.start(Some((NodeFile::read(file).unwrap(), self.path("state"))))
    }

    /// One to which all users may connect.
    pub fn agent_for_all(&self) -> Running {
        self.start_with(self.repository(), None, 0o666)
    }

    /// The same, of a node.
    pub fn node_for_all(&self, file: &Path) -> Running {
        let node = (NodeFile::read(file).unwrap(), self.path("state"));
        self.start_with(self.repository(), Some(node), 0o666)
    }

    /// One whose key can only store.
    pub fn node_that_only_stores(&self, file: &Path) -> Running {
        let (key, access) = (b"only stores", NewAccess::PutOnly("node"));
        add_key(&self.repository(), key, "node", access, Some(KdfCost::TYPED_MIN)).unwrap();
        let repository = Repository::open(self.surroundings(), key).unwrap();
        let node = (NodeFile::read(file).unwrap(), self.path("state"));
        self.start_with(repository, Some(node), 0o600)
    }

    /// Why the agent of a node does not start, if it does not.
    pub fn refused(&self, file: &Path) -> Option<AgentError> {
        self.refused_as(Some((NodeFile::read(file).unwrap(), self.path("state"))))
    }

    /// Why an agent does not start, if it does not.
    pub fn refused_as(&self, node: Option<(NodeFile, PathBuf)>) -> Option<AgentError> {
        let cancel = Cancel::new();
        // If it starts, it ends at once.
        cancel.cancel();
        let options = AgentOptions { socket: self.socket(), socket_mode: 0o600, node };
        run(Arc::new(self.keeper(self.repository(), &cancel)), options, &mut || {}).err()
    }

    pub fn keeper(&self, repository: Repository, cancel: &Cancel) -> Keeper {
        Keeper {
            repository,
            options: options(),
            monitor: Box::new(Shared(self.log.clone())),
            cancel: cancel.clone(),
        }
    }

    fn start(&self, node: Option<(NodeFile, PathBuf)>) -> Running {
        self.start_with(self.repository(), node, 0o600)
    }

    fn start_with(
        &self,
        repository: Repository,
        node: Option<(NodeFile, PathBuf)>,
        socket_mode: u32,
    ) -> Running {
        let cancel = Cancel::new();
        let keeper = self.keeper(repository, &cancel);
        let options = AgentOptions { socket: self.socket(), socket_mode, node };
        let (ready, is_ready) = channel();
        let attend = move || run(Arc::new(keeper), options, &mut || ready.send(()).unwrap());
        let thread = thread::spawn(attend);
        let running = Running { cancel, thread: Some(thread) };
        is_ready.recv().unwrap();
        running
    }

    pub fn open(&self, number: u32) -> Bucket {
        Bucket::open(Some(&self.socket()), "file", number).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel.cancel();
        let ended = self.thread.take().unwrap().join();
        if !thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

impl Wall {
    /// Sets it by this many seconds ahead of what it was at first, or back.
    pub fn set(&self, ahead_seconds: i64) {
        self.ahead_ns.store(ahead_seconds * 1_000_000_000, Ordering::SeqCst);
    }
}

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        Timestamp(self.ticking.now().0 + self.ahead_ns.load(Ordering::SeqCst))
    }
}

struct Shared(Arc<Log>);

impl Monitor for Shared {
    fn problem(&self, problem: Problem<'_>) {
        drop(self.0.stuck.lock());
        self.0.lines.lock().unwrap().push(problem.message.to_owned());
    }

    fn detail(&self, line: &str) {
        self.0.lines.lock().unwrap().push(line.to_owned());
    }
}

impl Log {
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

impl Backend for Place {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        let on_read = self.on_read.lock().unwrap().clone();
        if on_read.is_some_and(|on_read| !on_read()) {
            let (name, source) = (name.clone(), std::io::ErrorKind::InvalidData.into());
            return Err(BackendError::Unreadable { name, source });
        }
        self.objects.read(name, offset, length)
    }

    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        self.objects.size(name)
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.check_room(name)?;
        drop(self.writing.lock());
        self.objects.create(name, bytes)
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.check_room(name)?;
        self.objects.replace(name, bytes)
    }

    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        self.objects.remove(name)
    }

    fn room(&self) -> Option<&dyn Room> {
        None
    }

    fn stores(&self) -> Option<&dyn Stores> {
        None
    }

    fn complaint(&self) -> Option<String> {
        None
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, BackendError> {
        self.objects.list(folder)
    }

    fn sweep(&self) -> Result<usize, BackendError> {
        self.objects.sweep()
    }

    fn promises(&self) -> Promises {
        self.objects.promises()
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        self.objects.holds_at_most(folder)
    }

    fn describe(&self) -> String {
        self.objects.describe()
    }

    fn folders(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Place")
    }
}

impl Place {
    /// What happens before each read from now on.
    pub fn on_read(&self, on_read: Option<Arc<OnRead>>) {
        *self.on_read.lock().unwrap() = on_read;
    }

    fn check_room(&self, name: &ObjectName) -> Result<(), BackendError> {
        if !self.is_full.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(BackendError::NoSpace { name: name.clone(), may_exist: false })
    }
}

pub fn options() -> BackupOptions {
    let compression = Compression::Level(CompressionLevel::new(1).unwrap());
    BackupOptions {
        paths: Vec::new(),
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
        pack: PackOptions { compression, block_bytes: 64 << 10, workers: 2, deltas: true },
        readers: 2,
        as_made: None,
        program: "test".to_owned(),
    }
}

/// Memory of a program.
pub struct Memory(pub File);

impl Memory {
    pub fn new(content: &[u8]) -> Self {
        let memory = Self::zeros(content.len() as u64);
        memory.write(content);
        memory
    }

    pub fn zeros(bytes: u64) -> Self {
        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(bytes).unwrap();
        Self(file)
    }

    pub fn write(&self, content: &[u8]) {
        self.0.write_all_at(content, 0).unwrap();
    }

    pub fn read(&self) -> Vec<u8> {
        let mut content = vec![0; usize::try_from(self.0.metadata().unwrap().len()).unwrap()];
        self.0.read_exact_at(&mut content, 0).unwrap();
        content
    }

    pub fn register(&self, bucket: &Bucket, area: &str) {
        let bytes = self.0.metadata().unwrap().len();
        bucket.region(area, self.0.as_fd(), None, bytes).unwrap();
    }
}

/// A program that always does what it is asked.
pub struct Willing;

impl Owner for Willing {
    fn quiesce(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn resume(&mut self) {}

    fn evict(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// A bucket of shared memory with all keys, whose program can be asked to hold still.
pub fn whole(world: &World, number: u32, memory: &Memory) -> Bucket {
    let bucket = world.open(number);
    memory.register(&bucket, "data");
    bucket.range(&KeyRange::whole(), 0).unwrap();
    bucket.on_quiesce(Box::new(Willing)).unwrap();
    bucket
}

/// Waits until something is so, at most 20 seconds.
#[track_caller]
pub fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let start = Stopwatch::start();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// What does not end in time fails.
#[track_caller]
pub fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = channel();
    thread::spawn(move || send.send(work()));
    receive.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|error| panic!("{what}: {error}"))
}
