//! A backend that writes down what is asked of it, so that a test can say how much that may be.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strongroom_backend::{Backend, BackendError, ObjectInfo, ObjectName, Promises, Room, Stores};

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallKind {
    /// [`Backend::read`].
    Read,
    /// [`Backend::size`].
    Size,
    /// [`Backend::create`].
    Create,
    /// [`Backend::replace`].
    Replace,
    /// [`Backend::remove`].
    Remove,
    /// [`Backend::list`].
    List,
    /// [`Backend::sweep`].
    Sweep,
}

impl CallKind {
    /// True for what changes the place.
    pub fn is_write(self) -> bool {
        matches!(self, Self::Create | Self::Replace | Self::Remove | Self::Sweep)
    }
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What was asked.
    pub kind: CallKind,
    /// Of which object, or folder for a listing.
    pub name: String,
    /// Where in the object, for a read.
    pub offset: u64,
    /// Bytes that were read or given to be written.
    pub bytes: u64,
}

impl Call {
    /// The folder of the object, or the folder listed.
    pub fn folder(&self) -> &str {
        match (self.kind, self.name.split_once('/')) {
            (_, Some((folder, _))) => folder,
            (CallKind::List, None) => &self.name,
            (_, None) => "",
        }
    }
}

/// What is to be done at a call.
type Act = Box<dyn Fn(&Call) + Send + Sync>;

/// Writes down every call and hands it on.
pub struct RecordingBackend<B: ?Sized> {
    inner: Arc<B>,
    // A plain mutex: held while a call is noted, never during the call.
    calls: Mutex<Vec<Call>>,
    act: Option<Act>,
    promises: Option<Promises>,
}

impl<B: Backend + ?Sized> RecordingBackend<B> {
    /// Hands on to `inner`.
    pub fn new(inner: Arc<B>) -> Self {
        Self { inner, calls: Mutex::new(Vec::new()), act: None, promises: None }
    }

    /// The same, doing something at each call besides.
    pub fn acting(inner: Arc<B>, act: impl Fn(&Call) + Send + Sync + 'static) -> Self {
        Self { act: Some(Box::new(act)), ..Self::new(inner) }
    }

    /// The same, promising other things than the place does.
    pub fn promising(self, promises: Promises) -> Self {
        Self { promises: Some(promises), ..self }
    }

    /// The calls since the last time this was asked.
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls())
    }

    /// How many calls of each kind there were in each folder, since the last time this was asked.
    pub fn take_counts(&self) -> BTreeMap<(CallKind, String), usize> {
        let mut counts = BTreeMap::new();
        for call in self.take() {
            *counts.entry((call.kind, call.folder().to_owned())).or_default() += 1;
        }
        counts
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, kind: CallKind, name: &str, bytes: usize) {
        self.note_at(kind, name, 0, bytes);
    }

    fn note_at(&self, kind: CallKind, name: &str, offset: u64, bytes: usize) {
        let call = Call { kind, name: name.to_owned(), offset, bytes: bytes as u64 };
        if let Some(act) = &self.act {
            act(&call);
        }
        self.calls().push(call);
    }
}

impl<B: Backend + ?Sized> Backend for RecordingBackend<B> {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        let result = self.inner.read(name, offset, length);
        self.note_at(CallKind::Read, name.as_str(), offset, result.as_ref().map_or(0, Vec::len));
        result
    }

    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        self.note(CallKind::Size, name.as_str(), 0);
        self.inner.size(name)
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.note(CallKind::Create, name.as_str(), bytes.len());
        self.inner.create(name, bytes)
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.note(CallKind::Replace, name.as_str(), bytes.len());
        self.inner.replace(name, bytes)
    }

    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        self.note(CallKind::Remove, name.as_str(), 0);
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
        self.note(CallKind::List, folder, 0);
        self.inner.list(folder)
    }

    fn sweep(&self) -> Result<usize, BackendError> {
        self.note(CallKind::Sweep, "", 0);
        self.inner.sweep()
    }

    fn promises(&self) -> Promises {
        self.promises.unwrap_or_else(|| self.inner.promises())
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

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_backend::MemoryBackend;

    #[test]
    fn every_call_is_written_down() {
        let backend = RecordingBackend::new(Arc::new(MemoryBackend::new()));
        let name = ObjectName::new("arenas", "a");
        backend.create(&name, b"123").unwrap();
        backend.read(&name, 1, 10).unwrap();
        backend.list("arenas").unwrap();
        backend.list("").unwrap();
        let calls = backend.take();
        let seen: Vec<_> =
            calls.iter().map(|call| (call.kind, call.folder(), call.bytes)).collect();
        let expected = [
            (CallKind::Create, "arenas", 3),
            (CallKind::Read, "arenas", 2),
            (CallKind::List, "arenas", 0),
            (CallKind::List, "", 0),
        ];
        assert_eq!(seen, expected);
        assert!(backend.take_counts().is_empty());
    }
}
