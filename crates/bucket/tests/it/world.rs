//! An agent on a socket of its own, and programs with a few areas.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::agent::{Archive, FakeAgent, Manners};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use strongroom_bucket::{Bucket, Owner};
use tempfile::TempDir;

/// The file that programs keep.
pub const FILE: &str = "orders";

/// An agent, and what it has stored.
pub struct World {
    pub archive: Arc<Archive>,
    pub agent: Option<FakeAgent>,
    folder: TempDir,
}

impl World {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let archive = Arc::new(Archive::default());
        let agent = FakeAgent::start(&folder.path().join("ram.sock"), archive.clone()).unwrap();
        Self { archive, agent: Some(agent), folder }
    }

    pub fn agent(&self) -> &FakeAgent {
        self.agent.as_ref().unwrap()
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("ram.sock")
    }

    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub fn open(&self, number: u32) -> Bucket {
        Bucket::open(Some(&self.socket()), FILE, number).unwrap()
    }

    /// Ends the agent and starts another one on the same socket, which has what was stored.
    pub fn restart(&mut self) {
        self.restart_with(Manners::default());
    }

    /// The same, with these manners.
    pub fn restart_with(&mut self, manners: Manners) {
        self.agent = None;
        let agent = FakeAgent::start_with(&self.socket(), self.archive.clone(), manners);
        self.agent = Some(agent.unwrap());
    }
}

/// Shared memory.
pub struct Shared(pub OwnedFd);

impl Shared {
    pub fn new(content: &[u8]) -> Self {
        let file = memfd_create("area", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, content.len() as u64).unwrap();
        let shared = Self(file);
        shared.write(content);
        shared
    }

    pub fn write(&self, content: &[u8]) {
        assert_eq!(pwrite(&self.0, content, 0).unwrap(), content.len());
    }

    pub fn read(&self, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        assert_eq!(pread(&self.0, &mut content, 0).unwrap(), bytes);
        content
    }

    pub fn register(&self, bucket: &Bucket, area: &str, bytes: usize) {
        bucket.region(area, self.0.as_fd(), None, bytes as u64).unwrap();
    }
}

/// Registers private memory. The test keeps it until its bucket is dropped, and changes it only
/// between calls.
pub fn register_private(bucket: &Bucket, area: &str, memory: &mut [u8]) {
    let address = NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: the tests do what is said above.
    unsafe { bucket.private_region(area, address, memory.len()) }.unwrap();
}

/// What happened to an owner.
#[derive(Debug, Default)]
pub struct Record {
    pub quiesced: AtomicU32,
    pub resumed: AtomicU32,
    pub loaded: AtomicU32,
    pub evicted: AtomicU32,
    /// Why the owner refuses everything.
    pub refusal: Mutex<Option<String>>,
}

impl Record {
    pub fn count(count: &AtomicU32) -> u32 {
        count.load(Ordering::SeqCst)
    }

    fn note(&self, count: &AtomicU32) -> Result<(), String> {
        if let Some(refusal) = self.refusal.lock().unwrap().clone() {
            return Err(refusal);
        }
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// An owner that records.
pub struct Recorder(pub Arc<Record>);

impl Owner for Recorder {
    fn quiesce(&mut self) -> Result<(), String> {
        self.0.note(&self.0.quiesced)
    }

    fn resume(&mut self) {
        self.0.resumed.fetch_add(1, Ordering::SeqCst);
    }

    fn loaded(&mut self) -> Result<(), String> {
        self.0.note(&self.0.loaded)
    }

    fn evict(&mut self) -> Result<(), String> {
        self.0.note(&self.0.evicted)
    }
}

/// Waits until something is so, at most 10 seconds.
pub fn eventually(is: impl Fn() -> bool) -> bool {
    (0..500).any(|_| {
        let so = is();
        if !so {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        so
    })
}
