//! Sending one object to a replica: checked without a key before it is sent, and after.

use strongroom_arena::envelope;
use strongroom_arena::envelope::proof::{Challenge, Form, NONCE_BYTES, Proof};
use strongroom_backend::{Backend, BackendError, ObjectInfo, ObjectName, Withheld};
use strongroom_repository::RepositoryError;

use crate::health::fault::{Fault, look_whole};

/// What became of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// The replica has it now.
    Yes {
        /// Its bytes.
        bytes: u64,
        /// It is damaged at the source, and was computed from its parity.
        mended: bool,
        /// It is in the place of a damaged object.
        replaced: bool,
    },
    /// It was there, with these bytes.
    Present,
    /// It was removed at the source since it was listed.
    Vanished,
    /// It cannot be sent, and why.
    Lost(String),
    /// The place withholds it, and why: nothing is known to be wrong with it.
    Withheld(Withheld, String),
    /// The replica has a whole object of this name with other bytes.
    Conflict,
}

/// From where to where.
#[derive(Clone, Copy)]
pub struct Way<'w> {
    /// Where objects are read.
    pub source: &'w dyn Backend,
    /// Where they are stored.
    pub target: &'w dyn Backend,
    /// The length at which the repository closes arenas, which bounds what is read of one.
    pub arena_bytes: u32,
}

impl Way<'_> {
    /// Sends an object that the target does not have, or has with another length.
    pub fn send(&self, info: &ObjectInfo) -> Result<Sent, RepositoryError> {
        let name = &info.name;
        let (object, fault) = match look_whole(self.source, name, self.arena_bytes) {
            Err(error) if error.is_not_found() => return Ok(Sent::Vanished),
            Err(error) => match error.withheld() {
                Some(why) => return Ok(Sent::Withheld(why, error.to_string())),
                None => return Err(error.into()),
            },
            Ok(looked) => looked,
        };
        let (bytes, mended) = match fault {
            // What a newer program made is whole, and copied as it is.
            None | Some(Fault::Unknown) => (object, false),
            Some(Fault::Repairable { .. }) => match envelope::repair(&object) {
                Ok(whole) => (whole, true),
                Err(error) => return Ok(Sent::Lost(error.to_string())),
            },
            Some(fault) => return Ok(Sent::Lost(fault.to_string())),
        };
        let most = self.target.promises().object_bytes_max;
        if bytes.len() as u64 > most {
            return Ok(Sent::Lost(format!("the place takes objects of at most {most} bytes")));
        }
        let replaced = match self.put(name, &bytes)? {
            Put::New => false,
            Put::Replaced => true,
            Put::Present => return Ok(Sent::Present),
            Put::Conflict => return Ok(Sent::Conflict),
        };
        self.confirm(name, &bytes)?;
        Ok(Sent::Yes { bytes: bytes.len() as u64, mended, replaced })
    }

    /// The same for an object that the target has with this length, unless it is the very same.
    pub fn compare(&self, info: &ObjectInfo) -> Result<Sent, RepositoryError> {
        let look = |place: &dyn Backend| look_whole(place, &info.name, self.arena_bytes);
        match (look(self.source), look(self.target)) {
            (Ok((here, None)), Ok((there, _))) if here == there => Ok(Sent::Present),
            (_, Err(error)) if error.is_withheld() => {
                let why = error.withheld().unwrap_or(Withheld::Archived);
                Ok(Sent::Withheld(why, error.to_string()))
            }
            _ => self.send(info),
        }
    }

    /// Stores an object, unless the target has it, or has a whole one with other bytes.
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<Put, BackendError> {
        match create(self.target, name, bytes) {
            Ok(()) => return Ok(Put::New),
            Err(BackendError::AlreadyExists { .. }) => {}
            Err(error) => return Err(error),
        }
        let (found, fault) = match look_whole(self.target, name, self.arena_bytes) {
            // Removed meanwhile.
            Err(error) if error.is_not_found() => {
                create(self.target, name, bytes)?;
                return Ok(Put::New);
            }
            // It was sent before, or something else was: that is known when it can be read there.
            Err(error) if error.is_withheld() => {
                let is_as_long = self.target.size(name)? == bytes.len() as u64;
                return Ok(if is_as_long { Put::Present } else { Put::Conflict });
            }
            other => other?,
        };
        if found == bytes {
            return Ok(Put::Present);
        }
        if !self.is_left_of(name, bytes, (found, fault))? {
            return Ok(Put::Conflict);
        }
        self.target.replace(name, bytes)?;
        Ok(Put::Replaced)
    }

    /// Whether what the target has under a name is a damaged form of these bytes, or nothing that was ever
    /// an object. One reading may be wrong, so there are two.
    fn is_left_of(
        &self,
        name: &ObjectName,
        bytes: &[u8],
        looked: (Vec<u8>, Option<Fault>),
    ) -> Result<bool, BackendError> {
        let (found, fault) = &looked;
        let is_damaged = matches!(fault, Some(Fault::Repairable { .. } | Fault::Beyond { .. }));
        if !is_damaged || look_whole(self.target, name, self.arena_bytes)? != looked {
            return Ok(false);
        }
        let own = envelope::salvage(bytes).map(|own| own.header);
        Ok(match envelope::salvage(found) {
            // The hash of its body is in it.
            Ok(left) => own.is_ok_and(|own| own == left.header),
            // Nothing of it can be rescued; what the medium refuses as a whole may be another.
            Err(_) => !found.is_empty() || self.target.size(name)? == 0,
        })
    }

    /// Asks the place whether it has what was sent: for a proof, if it computes any.
    fn confirm(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), RepositoryError> {
        let kept = if self.target.promises().proves {
            // Against faults: the place cannot have prepared an answer before it had the bytes.
            let challenge = Challenge { form: Form::Hash, nonce: [0; NONCE_BYTES] };
            let answer = self.target.prove(name, &challenge.pack());
            let expected = Proof::of(bytes, challenge);
            answer.map(|answer| Proof::unpack(&answer, Form::Hash) == Some(expected))
        } else {
            self.target.size(name).map(|kept| kept == bytes.len() as u64)
        };
        match kept {
            Ok(true) => Ok(()),
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => {
                let (name, place) = (name.clone(), self.target.describe());
                Err(RepositoryError::NotKept { name, place })
            }
        }
    }
}

/// What became of an attempt to store.
enum Put {
    New,
    Replaced,
    Present,
    Conflict,
}

/// Stores a new object, also in a place that has no exclusive create: no name is used for two
/// contents, so it is enough that the name is free.
pub fn create(target: &dyn Backend, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
    if target.promises().is_exclusive != Some(false) {
        match target.create(name, bytes) {
            Err(BackendError::Unsupported { .. }) => {}
            other => return other,
        }
    }
    match target.size(name) {
        Ok(_) => Err(BackendError::AlreadyExists { name: name.clone() }),
        Err(error) if error.is_not_found() => target.replace(name, bytes),
        Err(error) if error.is_damage() || error.is_withheld() => {
            Err(BackendError::AlreadyExists { name: name.clone() })
        }
        Err(error) => Err(error),
    }
}
