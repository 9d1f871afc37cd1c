//! A place that does not give every object that it has: some wait in an archive, some this key may
//! not read.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strongroom_backend::{
    Backend, BackendError, ObjectInfo, ObjectName, Operation, Promises, Refusal, Room, Stores,
};

/// What becomes of reading an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// What is asked for.
    All,
    /// Nothing: it waits in an archive.
    Archived,
    /// Nothing: this key may not read it.
    Forbidden,
    /// Only reads that end within this many bytes from its beginning.
    Front(u64),
    /// At most this many bytes, and not a word of the others.
    CutShort(usize),
    /// Nothing: a directory is in its place, which nothing can be written over.
    Directory,
    /// Nothing: it is said not to exist, although it is listed.
    NotFound,
}

type Rule = Box<dyn Fn(&ObjectName) -> Gives + Send + Sync>;

/// Reads by a rule that a test changes; all other calls are handed on.
pub struct WithholdingBackend<B: ?Sized> {
    inner: Arc<B>,
    // A plain mutex: held while the rule is asked or changed.
    rule: Mutex<Rule>,
}

impl<B: Backend + ?Sized> WithholdingBackend<B> {
    /// Gives what the rule says.
    pub fn new(inner: Arc<B>, rule: impl Fn(&ObjectName) -> Gives + Send + Sync + 'static) -> Self {
        Self { inner, rule: Mutex::new(Box::new(rule)) }
    }

    /// From now on another rule holds.
    pub fn now(&self, rule: impl Fn(&ObjectName) -> Gives + Send + Sync + 'static) {
        *self.rule() = Box::new(rule);
    }

    fn rule(&self) -> MutexGuard<'_, Rule> {
        self.rule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_directory(name: &ObjectName) -> BackendError {
        BackendError::Unreadable { name: name.clone(), source: ErrorKind::IsADirectory.into() }
    }

    fn refused(&self, name: &ObjectName, refusal: Refusal) -> BackendError {
        let (what, answer) = (name.to_string(), "the test withholds it".to_owned());
        BackendError::Refused { operation: Operation::Read, what, refusal, answer }
    }
}

impl<B: Backend + ?Sized> Backend for WithholdingBackend<B> {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        let gives = (self.rule())(name);
        // What does not exist is not withheld either.
        self.inner.size(name)?;
        match gives {
            Gives::All => self.inner.read(name, offset, length),
            Gives::Archived => Err(self.refused(name, Refusal::Archived)),
            Gives::Front(end) if offset.saturating_add(length as u64) <= end => {
                self.inner.read(name, offset, length)
            }
            Gives::Forbidden | Gives::Front(_) => Err(self.refused(name, Refusal::Right)),
            Gives::Directory => Err(Self::is_directory(name)),
            Gives::NotFound => Err(BackendError::NotFound { name: name.clone() }),
            Gives::CutShort(most) => self.inner.read(name, offset, length.min(most)),
        }
    }

    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        match (self.rule())(name) {
            Gives::NotFound => Err(BackendError::NotFound { name: name.clone() }),
            _ => self.inner.size(name),
        }
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner.create(name, bytes)
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        match (self.rule())(name) {
            Gives::Directory => Err(Self::is_directory(name)),
            _ => self.inner.replace(name, bytes),
        }
    }

    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        self.inner.remove(name)
    }

    fn room(&self) -> Option<&dyn Room> {
        self.inner.room()
    }

    fn stores(&self) -> Option<&dyn Stores> {
        self.inner.stores()
    }

    fn complaint(&self) -> Option<String> {
        self.inner.complaint()
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, BackendError> {
        self.inner.list(folder)
    }

    fn sweep(&self) -> Result<usize, BackendError> {
        self.inner.sweep()
    }

    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        self.inner.holds_at_most(folder)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn folders(&self) -> Vec<PathBuf> {
        self.inner.folders()
    }
}
