//! A medium with bad sectors: it refuses to read parts of some objects until these are written
//! again.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strongroom_backend::{Backend, BackendError, ObjectInfo, ObjectName, Promises, Room, Stores};

/// Refuses to read what was declared bad, and hands all other calls on.
#[derive(Debug)]
pub struct RefusingBackend<B: ?Sized> {
    inner: Arc<B>,
    // A plain mutex: held for a map operation.
    bad: Mutex<BTreeMap<ObjectName, Range<u64>>>,
}

impl<B: Backend + ?Sized> RefusingBackend<B> {
    /// Everything can be read at first.
    pub fn new(inner: Arc<B>) -> Self {
        Self { inner, bad: Mutex::default() }
    }

    /// The same, with a bad range of bytes in an object.
    pub fn with_bad(inner: Arc<B>, name: &ObjectName, range: Range<u64>) -> Self {
        let backend = Self::new(inner);
        backend.refuse(name, range);
        backend
    }

    /// Refuses this range of an object from now on.
    pub fn refuse(&self, name: &ObjectName, range: Range<u64>) {
        self.bad().insert(name.clone(), range);
    }

    /// The objects that still have bad ranges.
    pub fn still_bad(&self) -> Vec<ObjectName> {
        self.bad().keys().cloned().collect()
    }

    fn bad(&self) -> MutexGuard<'_, BTreeMap<ObjectName, Range<u64>>> {
        self.bad.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Backend + ?Sized> Backend for RefusingBackend<B> {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        let bytes = self.inner.read(name, offset, length)?;
        let end = offset.saturating_add(bytes.len() as u64);
        let refuses = |bad: &Range<u64>| bad.start < end && offset < bad.end;
        if self.bad().get(name).is_some_and(refuses) {
            let source = io::Error::other("a bad sector");
            return Err(BackendError::Unreadable { name: name.clone(), source });
        }
        Ok(bytes)
    }

    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        self.inner.size(name)
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner.create(name, bytes)
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner.replace(name, bytes)?;
        self.bad().remove(name);
        Ok(())
    }

    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        self.inner.remove(name)?;
        self.bad().remove(name);
        Ok(())
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
