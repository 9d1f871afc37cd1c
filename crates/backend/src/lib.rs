//! Floor 1: where objects are kept.
//!
//! A repository is a set of named, immutable objects. Everything above needs seven operations of
//! the place that keeps them ([`Backend`]); the two that carry safety are *exclusive create* and
//! *atomic replace*. Nothing here knows what an object holds.

mod error;
mod local;
mod memory;
mod name;

pub use error::{BackendError, Operation};
pub use local::LocalBackend;
pub use memory::MemoryBackend;
pub use name::ObjectName;

/// An object as a listing tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its name.
    pub name: ObjectName,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A place that keeps objects.
///
/// Whatever returns `Ok` from a writing method is durable: it survives a power cut. Whatever
/// returns an error left either the old state or the new one, never a part.
pub trait Backend: Send + Sync {
    /// At most `length` bytes of the object from `offset` on: fewer only at the object's end.
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError>;

    /// The object's size in bytes.
    fn size(&self, name: &ObjectName) -> Result<u64, BackendError>;

    /// Stores a new object. Of many who create the same name one succeeds; the others are told
    /// [`BackendError::AlreadyExists`].
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError>;

    /// Stores an object in the place of what was there, atomically.
    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError>;

    /// Removes the object.
    fn remove(&self, name: &ObjectName) -> Result<(), BackendError>;

    /// The objects in `folder` (one level, such as `arenas`), sorted by name; none where there is
    /// no such folder. The empty folder is the repository's top.
    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, BackendError>;

    /// Removes what writers that were killed left behind, and tells how many such things.
    fn sweep(&self) -> Result<usize, BackendError>;

    /// The place, for messages to people.
    fn describe(&self) -> String;
}

/// The whole object.
pub fn read_all(backend: &dyn Backend, name: &ObjectName) -> Result<Vec<u8>, BackendError> {
    let bytes = backend.size(name)?;
    let length =
        usize::try_from(bytes).map_err(|_| BackendError::TooLarge { name: name.clone(), bytes })?;
    backend.read(name, 0, length)
}
