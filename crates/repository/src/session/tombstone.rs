//! The end of a session that did not commit, under the name of its snapshot.
//!
//! ```text
//! domain (16) | tag (32)
//! ```
//!
//! With any object under that name, the session can no longer commit. The tag says that a machine of
//! the domain ended it, and that no snapshot was damaged or exchanged: a keyed BLAKE3 hash under the
//! session key of the domain, over the repository's id, the session, and a word.

use strongroom_arena::Origin;
use strongroom_arena::envelope::format::ObjectKind;
use strongroom_arena::envelope::{self, Identity};
use strongroom_backend::BackendError;
use strongroom_base::keys::{authenticate, is_authentic};
use strongroom_base::{DomainId, SnapshotId};

use crate::error::RepositoryError;
use crate::objects::snapshot_name;
use crate::repository::Repository;

const WORD: &[u8] = b"tombstone";

/// Ends a session, unless it has committed or ended already (C5).
pub fn end_session(repository: &Repository, id: SnapshotId) -> Result<(), RepositoryError> {
    repository.check_mode()?;
    let domain = &repository.write_keys().domain;
    let tag = authenticate(&domain.session_key, &message(repository, id));
    let identity =
        Identity { kind: ObjectKind::Tombstone, id: id.0, generation: 0, origin: Origin::NONE };
    let object = envelope::seal_small(&[&domain.id.0[..], &tag].concat(), identity);
    match repository.backend().create(&snapshot_name(id), &object) {
        Err(BackendError::AlreadyExists { .. }) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether an object ends this session.
pub(super) fn ends(repository: &Repository, id: SnapshotId, object: &[u8]) -> bool {
    let opened = envelope::open(object, ObjectKind::Tombstone, Some(&id.0));
    let Ok((_, body, _)) = opened else { return false };
    let Some((domain, tag)) = body.split_first_chunk() else { return false };
    let Ok(tag) = tag.try_into() else { return false };
    let keys = repository.keys.domain(DomainId(*domain));
    keys.is_some_and(|keys| is_authentic(&keys.session_key, &message(repository, id), tag))
}

fn message(repository: &Repository, id: SnapshotId) -> Vec<u8> {
    [&repository.config.id.0[..], &id.0, WORD].concat()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use strongroom_backend::MemoryBackend;
    use strongroom_base::{FixedClock, SeededEntropy, Timestamp};

    use super::*;
    use crate::repository::{InitOptions, Surroundings};

    const PASSPHRASE: &[u8] =
        b"strongroom-key-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a4f56ba95";

    #[test]
    fn its_bytes_are_frozen() {
        let backend = Arc::new(MemoryBackend::new());
        let surroundings = Surroundings {
            backend: backend.clone(),
            clock: Arc::new(FixedClock(Timestamp(0))),
            entropy: Arc::new(SeededEntropy::new(1)),
            cache: None,
        };
        let repository = Repository::init(surroundings, PASSPHRASE, &InitOptions::default());
        let (repository, id) = (repository.unwrap(), SnapshotId([3; 16]));
        end_session(&repository, id).unwrap();
        let object = backend.snapshot().remove(&snapshot_name(id)).unwrap();
        assert!(ends(&repository, id, &object));
        assert!(!ends(&repository, SnapshotId([4; 16]), &object));
        assert_eq!(&blake3::hash(&object).to_hex()[..16], "8910c189d005055d");
    }
}
