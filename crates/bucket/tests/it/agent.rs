//! An agent that keeps versions in memory, for tests of programs that keep buckets. It stores nothing
//! and is no model for speed: each program has a thread, and what takes long has one more.
//!
//! It is no feature of the library: with other features Cargo would write another library to the same
//! place, since libraries for C have no hash in their names. `crates/veloc` includes this file,
//! so the files below it are named by their paths.

#[path = "agent/area.rs"]
mod area;
#[path = "agent/program.rs"]
mod program;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use program::Asked;
use program::Program;

use strongroom_bucket::KeyRange;
use strongroom_bucket::served::{Connection, Listener, ServedError};

/// How often threads look whether the agent ended.
const TICK: Duration = Duration::from_millis(20);

/// A bucket: its file and its number.
pub type BucketName = (String, u32);
/// What areas hold, by name.
pub type Areas = BTreeMap<String, Vec<u8>>;

/// What is stored. It outlives agents.
#[derive(Debug, Default)]
pub struct Archive {
    versions: Mutex<BTreeMap<(BucketName, String), BTreeMap<u64, Areas>>>,
}

/// What goes wrong, and how long things take.
#[derive(Debug, Clone, Default)]
pub struct Manners {
    /// Why no bucket is taken.
    pub refusal: Option<String>,
    /// Why no store is committed.
    pub commit_fault: Option<String>,
    /// How long a commit takes.
    pub commit_time: Duration,
    /// How long a capture takes.
    pub capture_time: Duration,
    /// The area that is refused.
    pub refused_area: Option<String>,
    /// How long an area waits for its answer.
    pub region_time: Duration,
}

/// An agent on a socket.
#[derive(Debug)]
pub struct FakeAgent {
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

/// What the threads of an agent share.
#[derive(Debug)]
struct Shared {
    archive: Arc<Archive>,
    manners: Mutex<Manners>,
    programs: Mutex<BTreeMap<BucketName, Arc<Program>>>,
    is_ending: AtomicBool,
}

impl FakeAgent {
    /// Listens on a socket.
    ///
    /// # Errors
    ///
    /// If it cannot.
    pub fn start(socket: &Path, archive: Arc<Archive>) -> Result<Self, ServedError> {
        Self::start_with(socket, archive, Manners::default())
    }

    /// Listens on a socket, and has these manners from the first program on.
    ///
    /// # Errors
    ///
    /// If it cannot.
    pub fn start_with(
        socket: &Path,
        archive: Arc<Archive>,
        manners: Manners,
    ) -> Result<Self, ServedError> {
        let listener = Listener::bind(socket, 0o600)?;
        let shared = Arc::new(Shared {
            archive,
            manners: Mutex::new(manners),
            programs: Mutex::default(),
            is_ending: AtomicBool::new(false),
        });
        let attending = shared.clone();
        let listening = thread::spawn(move || attending.attend(&listener));
        Ok(Self { shared, listening: Some(listening) })
    }

    /// Ends all connections, and lets no program in.
    pub fn end(&self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
    }

    /// Changes its manners.
    pub fn behave(&self, manners: Manners) {
        *lock(&self.shared.manners) = manners;
    }

    /// Waits until a program has registered callbacks for a bucket. Returns false after 10 seconds.
    pub fn await_owner(&self, file: &str, bucket: u32) -> bool {
        for _ in 0..500 {
            let program = self.shared.program(file, bucket);
            if program.is_ok_and(|program| program.has_callbacks()) {
                return true;
            }
            thread::sleep(TICK);
        }
        false
    }

    /// The range that a program registered, and its split version.
    pub fn range(&self, file: &str, bucket: u32) -> Option<(KeyRange, u64)> {
        self.shared.program(file, bucket).ok()?.range()
    }

    /// What the areas of a bucket hold now.
    ///
    /// # Errors
    ///
    /// If there is no such bucket, or an area cannot be read.
    pub fn areas(&self, file: &str, bucket: u32) -> Result<Areas, String> {
        self.shared.program(file, bucket)?.capture(&[])
    }

    /// Asks a program to hold still, without storing. [`FakeAgent::resume`] lets it go on.
    ///
    /// # Errors
    ///
    /// If it does not hold still.
    pub fn quiesce(&self, file: &str, bucket: u32) -> Result<Asked, String> {
        self.shared.program(file, bucket)?.quiesce()
    }

    /// Lets a program go on.
    ///
    /// # Errors
    ///
    /// If it is gone.
    pub fn resume(&self, file: &str, bucket: u32, asked: Asked) -> Result<(), String> {
        self.shared.program(file, bucket)?.resume(asked)
    }

    /// Stores a bucket as the agent's own idea. The program goes on before a copy is read.
    ///
    /// # Errors
    ///
    /// If the program does not hold still, or cannot be read.
    pub fn store(&self, file: &str, bucket: u32, name: &str, version: u64) -> Result<(), String> {
        let program = self.shared.program(file, bucket)?;
        let areas = program.capture_still()?;
        self.shared.commit(&program, name, version, areas)
    }

    /// Loads a version into a bucket as the agent's own idea.
    ///
    /// # Errors
    ///
    /// If the program does not hold still, or its areas do not fit.
    pub fn load(&self, file: &str, bucket: u32, name: &str, version: u64) -> Result<(), String> {
        let program = self.shared.program(file, bucket)?;
        let areas = self.shared.archive.version(program.name(), name, version);
        program.load_still(&areas.ok_or("there is no such version")?)
    }

    /// Fills a bucket whose program holds still from a version, and leaves it so.
    ///
    /// # Errors
    ///
    /// If its areas do not fit.
    pub fn fill(&self, file: &str, bucket: u32, name: &str, version: u64) -> Result<(), String> {
        let program = self.shared.program(file, bucket)?;
        let areas = self.shared.archive.version(program.name(), name, version);
        program.quiesce()?;
        program.fill(&areas.ok_or("there is no such version")?, &[])
    }

    /// Evicts a bucket as the agent's own idea, if its memory is that of a version.
    ///
    /// # Errors
    ///
    /// If the program does not hold still, its memory differs, or it does not free it.
    pub fn evict(&self, file: &str, bucket: u32, name: &str, version: u64) -> Result<(), String> {
        let program = self.shared.program(file, bucket)?;
        let areas = self.shared.archive.version(program.name(), name, version);
        program.evict_still(&areas.ok_or("there is no such version")?)
    }
}

/// Ends it as a crash would: programs find their connection closed.
impl Drop for FakeAgent {
    fn drop(&mut self) {
        self.end();
        if let Some(listening) = self.listening.take() {
            // A thread that panicked has said so.
            drop(listening.join());
        }
    }
}

impl Archive {
    /// The stored versions of a name, oldest first.
    pub fn versions(&self, file: &str, bucket: u32, name: &str) -> Vec<u64> {
        let key = ((file.to_owned(), bucket), name.to_owned());
        lock(&self.versions).get(&key).into_iter().flat_map(|all| all.keys().copied()).collect()
    }

    /// What a version holds.
    pub fn areas(&self, file: &str, bucket: u32, name: &str, version: u64) -> Option<Areas> {
        self.version(&(file.to_owned(), bucket), name, version)
    }

    /// Forgets all of it.
    pub fn clear(&self) {
        lock(&self.versions).clear();
    }

    fn version(&self, bucket: &BucketName, name: &str, version: u64) -> Option<Areas> {
        let key = (bucket.clone(), name.to_owned());
        lock(&self.versions).get(&key)?.get(&version).cloned()
    }

    /// The newest version up to a bound.
    fn newest(&self, bucket: &BucketName, name: &str, at_most: u64) -> Option<(u64, Areas)> {
        let key = (bucket.clone(), name.to_owned());
        let versions = lock(&self.versions);
        let (version, areas) = versions.get(&key)?.range(..=at_most).next_back()?;
        Some((*version, areas.clone()))
    }

    fn insert(&self, bucket: &BucketName, name: &str, version: u64, areas: Areas) {
        let key = (bucket.clone(), name.to_owned());
        lock(&self.versions).entry(key).or_default().insert(version, areas);
    }
}

impl Shared {
    fn attend(self: Arc<Self>, listener: &Listener) {
        let mut threads = Vec::new();
        while !self.is_ending.load(Ordering::SeqCst) {
            match listener.accept(Some(TICK)) {
                Ok(Some(connection)) => {
                    let attending = self.clone();
                    threads.push(thread::spawn(move || attending.converse(connection)));
                }
                Ok(None) => {}
                Err(_) => break,
            }
        }
        for thread in threads {
            // A thread that panicked has said so.
            drop(thread.join());
        }
    }

    fn converse(self: Arc<Self>, connection: Connection) {
        let refusal = lock(&self.manners).refusal.clone();
        let Some(program) = Program::greet(connection, refusal) else { return };
        let program = Arc::new(program);
        lock(&self.programs).insert(program.name().clone(), program.clone());
        program.attend(&self);
        let mut programs = lock(&self.programs);
        if programs.get(program.name()).is_some_and(|present| Arc::ptr_eq(present, &program)) {
            programs.remove(program.name());
        }
    }

    fn program(&self, file: &str, bucket: u32) -> Result<Arc<Program>, String> {
        let name = (file.to_owned(), bucket);
        let program = lock(&self.programs).get(&name).cloned();
        program.ok_or_else(|| format!("no program has bucket {bucket} of {file}"))
    }

    fn commit(
        &self,
        program: &Program,
        name: &str,
        version: u64,
        areas: Areas,
    ) -> Result<(), String> {
        let manners = lock(&self.manners).clone();
        thread::sleep(manners.commit_time);
        if let Some(fault) = manners.commit_fault {
            return Err(fault);
        }
        if self.is_ending.load(Ordering::SeqCst) {
            return Err("the agent ended".to_owned());
        }
        self.archive.insert(program.name(), name, version, areas);
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
