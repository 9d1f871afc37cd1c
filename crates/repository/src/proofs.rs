//! The place that keeps a repository, as one sees it who has a key: what says that a newer program made
//! it has to prove it.
//!
//! A header that claims so without a proof was changed by a person without a key. It is given as what
//! it is, damaged, so that every verb does with the object what it does with one whose header or
//! trailer is damaged: a reader goes on with the other end, `verify` names it, `repair` writes both
//! again. See `docs/design/0046-newer-is-proven.md`.

use std::path::PathBuf;
use std::sync::Arc;

use strongroom_arena::envelope::format::HEADER_BYTES;
use strongroom_arena::envelope::newness;
use strongroom_backend::{Backend, BackendError, ObjectInfo, ObjectName, Promises, Room, Stores};
use strongroom_base::Timestamp;

use crate::objects::expected;

/// A place, and the key of the proofs.
pub(crate) struct WithProofs {
    place: Arc<dyn Backend>,
    key: [u8; 32],
}

/// What is at one end of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// No header, or one that claims nothing, or proves it.
    Honest,
    /// A header that claims what it does not prove.
    Lies,
}

impl WithProofs {
    /// The place of a repository whose naming keys have this key.
    pub(crate) fn new(place: Arc<dyn Backend>, key: [u8; 32]) -> Self {
        Self { place, key }
    }

    fn end(&self, header: &[u8; HEADER_BYTES]) -> End {
        match newness::claims_newness(header) && !newness::is_proven(header, &self.key) {
            true => End::Lies,
            false => End::Honest,
        }
    }

    /// Takes away what the ends claim and do not prove: the header is damaged then, and so is the
    /// trailer if the header is sound. The last end that is left is given without its claim.
    fn correct(&self, name: &ObjectName, offset: u64, bytes: &mut [u8]) {
        let Some(expected) = expected(name) else { return };
        let may_have_both = offset > 0 || bytes.len() >= 2 * HEADER_BYTES;
        let mut has_header = false;
        if offset == 0
            && let Some(header) = bytes.first_chunk_mut::<HEADER_BYTES>()
        {
            match self.end(header) {
                End::Lies => header.fill(0),
                End::Honest => has_header = true,
            }
        }
        if may_have_both
            && let Some(trailer) = bytes.last_chunk_mut::<HEADER_BYTES>()
            && self.end(trailer) == End::Lies
        {
            match has_header {
                true => trailer.fill(0),
                false => *trailer = newness::without_claim(*trailer, expected.kind),
            }
        }
    }
}

impl Backend for WithProofs {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        let mut bytes = self.place.read(name, offset, length)?;
        self.correct(name, offset, &mut bytes);
        Ok(bytes)
    }

    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        self.place.size(name)
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.place.create(name, bytes)
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.place.replace(name, bytes)
    }

    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        self.place.remove(name)
    }

    fn discard(&self, name: &ObjectName) -> Result<(), BackendError> {
        self.place.discard(name)
    }

    fn room(&self) -> Option<&dyn Room> {
        self.place.room()
    }

    fn stores(&self) -> Option<&dyn Stores> {
        self.place.stores()
    }

    fn complaint(&self) -> Option<String> {
        self.place.complaint()
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, BackendError> {
        self.place.list(folder)
    }

    fn sweep(&self) -> Result<usize, BackendError> {
        self.place.sweep()
    }

    fn promises(&self) -> Promises {
        self.place.promises()
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        self.place.holds_at_most(folder)
    }

    fn copy(&self, from: &ObjectName, to: &ObjectName) -> Result<(), BackendError> {
        self.place.copy(from, to)
    }

    fn retain(&self, name: &ObjectName, until: Timestamp) -> Result<(), BackendError> {
        self.place.retain(name, until)
    }

    fn prove(&self, name: &ObjectName, challenge: &[u8]) -> Result<Vec<u8>, BackendError> {
        self.place.prove(name, challenge)
    }

    fn replicas(&self) -> &[Arc<dyn Backend>] {
        self.place.replicas()
    }

    fn describe(&self) -> String {
        self.place.describe()
    }

    fn folders(&self) -> Vec<PathBuf> {
        self.place.folders()
    }
}

#[cfg(test)]
mod tests {
    use strongroom_backend::{AgreedBackend, LocalBackend};
    use strongroom_base::SeededEntropy;

    use super::*;
    use crate::replicas::WithReplicas;

    type Wrap = fn(Arc<dyn Backend>) -> Arc<dyn Backend>;

    #[test]
    fn the_room_of_a_place_is_reached_through_every_wrapper() {
        let folder = tempfile::tempdir().unwrap();
        let wrapped: [Wrap; 3] = [
            |place| Arc::new(WithProofs::new(place, [0; 32])),
            |place| Arc::new(WithReplicas::new(place, Vec::new())),
            |place| Arc::new(AgreedBackend::new(place, |_| false, Arc::new(SeededEntropy::new(1)))),
        ];
        for wrap in wrapped {
            let place = wrap(Arc::new(LocalBackend::open(folder.path()).unwrap()));
            let kept = || std::fs::metadata(folder.path().join(".room")).map(|room| room.len());
            place.save_room();
            let whole = kept().unwrap();
            assert!(place.release_half_room());
            assert_eq!(kept().unwrap(), whole / 2);
            assert!(place.release_room());
            assert!(kept().is_err());
        }
    }
}
