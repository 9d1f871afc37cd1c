//! What a kind of place must be able to do: one attempt at each request.

use strongroom_backend::{ObjectInfo, ObjectName, Promises};
use strongroom_base::Timestamp;

use crate::failure::Failure;

/// A kind of place. Every function makes one attempt, and returns when it was answered or when
/// nothing was heard for too long. The operations are those of
/// [`Backend`](strongroom_backend::Backend); what differs is said here.
pub(crate) trait Service: Send + Sync {
    /// Whether the place itself (bucket, collection, folder) is there.
    fn is_there(&self) -> Result<bool, Failure>;

    /// Makes the place itself, with the folders above it. It may exist already.
    fn make(&self) -> Result<(), Failure>;

    /// At most `length` bytes of the object from `offset` on: fewer only at the object's end.
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, Failure>;

    /// The object's size in bytes.
    fn size(&self, name: &ObjectName) -> Result<u64, Failure>;

    /// Stores a new object, whole or not at all. [`Failure::Taken`] if the name is taken, with
    /// equal bytes too. [`Failure::Unsupported`] if the place has no such operation.
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure>;

    /// Stores an object in the place of what was there, atomically.
    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure>;

    /// Removes the object. It may be [`Failure::NotFound`] or success if it does not exist.
    fn remove(&self, name: &ObjectName) -> Result<(), Failure>;

    /// What must be known before [`Service::remove`]: whether there is something that may be removed so.
    fn check_removable(&self, _name: &ObjectName) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether [`Service::remove`] says [`Failure::NotFound`] of an object that does not exist.
    fn says_what_it_removed(&self) -> bool {
        true
    }

    /// The objects in a folder, in any order; none if there is no such folder.
    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, Failure>;

    /// Whether nothing is in the place except, perhaps, this folder.
    fn holds_at_most(&self, folder: &str) -> Result<bool, Failure>;

    /// Removes what killed writers left behind, if that can be known without a clock.
    fn sweep(&self) -> Result<usize, Failure> {
        Ok(0)
    }

    /// Copies an object within the place.
    fn copy(&self, _from: &ObjectName, _to: &ObjectName) -> Result<(), Failure> {
        Err(Failure::Unsupported("copy objects"))
    }

    /// Forbids to remove or replace the object before a time.
    fn retain(&self, _name: &ObjectName, _until: Timestamp) -> Result<(), Failure> {
        Err(Failure::Unsupported("lock objects"))
    }

    /// The place's answer to a challenge about an object's bytes.
    fn prove(&self, _name: &ObjectName, _challenge: &[u8]) -> Result<Vec<u8>, Failure> {
        Err(Failure::Unsupported("compute proofs of objects"))
    }

    /// What is wrong with how the place is used, if it can be used all the same.
    fn complaint(&self) -> Option<String> {
        None
    }

    /// What the place promises.
    fn promises(&self) -> Promises;

    /// The place, for messages to people, without secrets.
    fn describe(&self) -> String;
}

/// Reads a part whose end may be far behind that of the object: its size is asked for first.
pub(crate) fn read_within(
    service: &impl Service,
    name: &ObjectName,
    offset: u64,
    length: usize,
) -> Result<Vec<u8>, Failure> {
    let size = service.size(name)?;
    if size > i64::MAX as u64 {
        return Err(Failure::lost(format!("{size} bytes are not the length of an object")));
    }
    let rest = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
    match length.min(rest) {
        0 => Ok(Vec::new()),
        length => service.read(name, offset, length),
    }
}
