//! Objects in memory: for tests, simulation, and dry runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Backend, BackendError, ObjectInfo, ObjectName, Promises, Room, Stores};

/// Keeps objects in memory.
#[derive(Debug, Default)]
pub struct MemoryBackend {
    // A plain mutex: held for a map operation and a copy, never across a call.
    objects: Mutex<BTreeMap<ObjectName, Vec<u8>>>,
}

impl MemoryBackend {
    /// An empty place.
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy of everything that is kept now.
    pub fn snapshot(&self) -> BTreeMap<ObjectName, Vec<u8>> {
        self.objects().clone()
    }

    /// A place that keeps these objects.
    pub fn from_snapshot(objects: BTreeMap<ObjectName, Vec<u8>>) -> Self {
        Self { objects: Mutex::new(objects) }
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<ObjectName, Vec<u8>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for MemoryBackend {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        let objects = self.objects();
        let object = objects.get(name).ok_or(BackendError::NotFound { name: name.clone() })?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(object.len());
        let end = start.saturating_add(length).min(object.len());
        Ok(object[start..end].to_vec())
    }

    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        let objects = self.objects();
        let object = objects.get(name).ok_or(BackendError::NotFound { name: name.clone() })?;
        Ok(object.len() as u64)
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        let mut objects = self.objects();
        match objects.get(name) {
            Some(object) if object == bytes => Ok(()),
            Some(_) => Err(BackendError::AlreadyExists { name: name.clone() }),
            None => {
                objects.insert(name.clone(), bytes.to_vec());
                Ok(())
            }
        }
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.objects().insert(name.clone(), bytes.to_vec());
        Ok(())
    }

    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        match self.objects().remove(name) {
            Some(_) => Ok(()),
            None => Err(BackendError::NotFound { name: name.clone() }),
        }
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
        let objects = self.objects();
        let inside = objects.iter().filter(|(name, _)| name.folder() == folder);
        Ok(inside
            .map(|(name, object)| ObjectInfo { name: name.clone(), bytes: object.len() as u64 })
            .collect())
    }

    fn sweep(&self) -> Result<usize, BackendError> {
        Ok(0)
    }

    fn promises(&self) -> Promises {
        Promises::LOCAL
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        Ok(self.objects().keys().all(|name| name.folder() == folder))
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn folders(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}
