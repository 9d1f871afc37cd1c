//! Floor 1: where objects are kept.
//!
//! A repository is a set of named, immutable objects. The crates above need a few operations of the
//! place that keeps them ([`Backend`]); safety depends on two of these, *exclusive create* and
//! *atomic replace*. What a place does better or worse than others, it says itself ([`Promises`]).
//! Nothing here knows what an object holds.
//!
//! Every call returns when it is done, so the crates above stay synchronous. To have several
//! requests in flight, they make calls on several threads; [`Promises::in_flight`] says how many
//! are worth making.

mod agreed;
mod ahead;
mod error;
mod local;
mod memory;
mod name;
mod promises;
mod removal;
mod soundness;
mod striped;
mod trial;

pub use agreed::{AgreedBackend, judge_note};
pub use ahead::{both, each_read_ahead};
pub use error::{BackendError, Operation, Refusal, Withheld};
pub use local::LocalBackend;
pub use memory::MemoryBackend;
pub use name::ObjectName;
pub use promises::Promises;
pub use removal::{DIRECTORY_IN_PLACE, Removal, remove_object};
pub use soundness::{Judge, Soundness};
pub use striped::{STORES_MAX, Shape, StripedBackend};
pub use trial::{TRIAL_FOLDER, Trial, try_exclusive};

use std::path::PathBuf;
use std::sync::Arc;

use strongroom_base::Timestamp;

/// An object as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its name.
    pub name: ObjectName,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A place that keeps objects.
///
/// A write that returned `Ok` is durable: it survives a power cut. A write that returned an error
/// left either the old state or the new one, never a part.
pub trait Backend: Send + Sync {
    /// At most `length` bytes of the object from `offset` on: fewer only at the object's end.
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError>;

    /// The object's size in bytes.
    fn size(&self, name: &ObjectName) -> Result<u64, BackendError>;

    /// Stores a new object. If several callers create one name with different bytes, one succeeds
    /// and the others get [`BackendError::AlreadyExists`]. If the object exists with the same
    /// bytes, that is success: a call is often repeated because its answer was lost on the way. Every
    /// error leaves open whether it exists, or will, except a [`BackendError::NoSpace`] that says no.
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError>;

    /// Stores an object in the place of what was there, atomically.
    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError>;

    /// Removes the object. It does not come back after a power cut.
    fn remove(&self, name: &ObjectName) -> Result<(), BackendError>;

    /// Removes the object if it exists. Some places are faster if they need not say whether it did.
    fn discard(&self, name: &ObjectName) -> Result<(), BackendError> {
        match self.remove(name) {
            Err(error) if error.is_not_found() => Ok(()),
            other => other,
        }
    }

    /// The room that the place keeps, if it can keep some.
    fn room(&self) -> Option<&dyn Room>;

    /// The stores of which the place consists, if they are several.
    fn stores(&self) -> Option<&dyn Stores>;

    /// What is wrong with the place, if it can be used all the same.
    fn complaint(&self) -> Option<String>;

    /// The objects in `folder` (one level, such as `arenas`), sorted by name; none if there is no
    /// such folder. The empty folder is the repository's top. Something that has an object's name
    /// but is not an object is listed too, with no bytes.
    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, BackendError>;

    /// Removes what killed writers of this machine left behind, and returns how many such things.
    fn sweep(&self) -> Result<usize, BackendError>;

    /// What the place promises beyond this interface, and what it does not.
    fn promises(&self) -> Promises;

    /// Whether nothing exists in the place except, perhaps, this folder: not even files that
    /// [`Backend::list`] leaves out.
    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError>;

    /// Stores a copy of an object under another name without moving its bytes to this machine.
    /// Like [`Backend::create`], except that an existing object may be replaced by an equal one.
    fn copy(&self, from: &ObjectName, _to: &ObjectName) -> Result<(), BackendError> {
        Err(self.unsupported("copy objects", from))
    }

    /// Forbids to remove or replace the object before a time, for every user of the place. An
    /// earlier time than before changes nothing.
    fn retain(&self, name: &ObjectName, _until: Timestamp) -> Result<(), BackendError> {
        Err(self.unsupported("lock objects", name))
    }

    /// The place's own answer to a challenge about an object's bytes, computed where they are.
    fn prove(&self, name: &ObjectName, _challenge: &[u8]) -> Result<Vec<u8>, BackendError> {
        Err(self.unsupported("compute proofs of objects", name))
    }

    /// Other places with the same objects, for those that are lost or damaged here beyond what they
    /// themselves can repair. The caller checks what it reads there.
    fn replicas(&self) -> &[Arc<dyn Backend>] {
        &[]
    }

    /// The error of an operation that the place does not have.
    fn unsupported(&self, ability: &'static str, name: &ObjectName) -> BackendError {
        BackendError::Unsupported { place: self.describe(), ability, name: name.clone() }
    }

    /// The place, for messages to people.
    fn describe(&self) -> String;

    /// The folders of this machine that hold the objects, as far as they are files. They are neither
    /// backed up nor removed by a restore.
    fn folders(&self) -> Vec<PathBuf>;
}

/// Room that a place keeps for a time at which there is none.
pub trait Room {
    /// Keeps some if there is none yet. If that fails there is no such room, and nothing else is
    /// different.
    fn save(&self);

    /// Gives it up. Returns whether there was some.
    fn release(&self) -> bool;

    /// Gives up half of it, unless what is left would be too little for a collection. Returns whether
    /// it did.
    fn release_half(&self) -> bool;
}

/// Several stores of which a place consists.
pub trait Stores {
    /// Makes again what single ones have lost. Returns how many objects that were.
    fn mend(&self) -> Result<u64, BackendError>;

    /// How many objects single ones lack: [`Self::mend`] makes them again. With `reads_all` also those
    /// of which a store has other bytes.
    fn lacking(&self, reads_all: bool) -> Result<u64, BackendError>;
}

// What a wrapper cannot forget to hand on: it has to say which room and which stores it has.
impl dyn Backend + '_ {
    /// Does what [`Room::save`] does, if the place can keep room.
    pub fn save_room(&self) {
        if let Some(room) = self.room() {
            room.save();
        }
    }

    /// Does what [`Room::release`] does, if the place can keep room.
    pub fn release_room(&self) -> bool {
        self.room().is_some_and(Room::release)
    }

    /// Does what [`Room::release_half`] does, if the place can keep room.
    pub fn release_half_room(&self) -> bool {
        self.room().is_some_and(Room::release_half)
    }

    /// Does what [`Stores::mend`] does, if the place consists of several.
    pub fn mend(&self) -> Result<u64, BackendError> {
        self.stores().map_or(Ok(0), Stores::mend)
    }

    /// Does what [`Stores::lacking`] does, if the place consists of several.
    pub fn lacking(&self, reads_all: bool) -> Result<u64, BackendError> {
        self.stores().map_or(Ok(0), |stores| stores.lacking(reads_all))
    }
}

/// The whole object: an answer that is shorter is an error.
pub fn read_all(backend: &dyn Backend, name: &ObjectName) -> Result<Vec<u8>, BackendError> {
    let bytes = backend.size(name)?;
    let length =
        usize::try_from(bytes).map_err(|_| BackendError::TooLarge { name: name.clone(), bytes })?;
    let found = backend.read(name, 0, length)?;
    match found.len() == length {
        true => Ok(found),
        false => Err(BackendError::cut_short(name, found.len() as u64, bytes)),
    }
}

/// Whether an object has exactly these bytes. Reads no more than that takes.
fn holds(backend: &dyn Backend, name: &ObjectName, bytes: &[u8]) -> Result<bool, BackendError> {
    match backend.read(name, 0, bytes.len() + 1) {
        Ok(found) => Ok(found == bytes),
        // The name of an unreadable object is taken, as far as anyone can know by other bytes.
        Err(error) if error.is_unreadable() || error.is_withheld() || error.is_not_found() => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
