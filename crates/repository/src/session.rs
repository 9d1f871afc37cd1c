//! Sessions: writers at work, and the one operation that commits what was written.
//!
//! A writer creates `sessions/S` before it learns which arenas exist, and commits by exclusively
//! creating `snapshots/S`. A collector that thinks the session dead fences it by creating that
//! name; the first to create it wins (`docs/concurrency.md`).

use minicbor::{Decoder, Encoder};
use strongroom_arena::Origin;
use strongroom_arena::envelope::format::ObjectKind;
use strongroom_arena::envelope::{self, Identity};
use strongroom_backend::{Backend, BackendError, ObjectName};
use strongroom_base::entropy::random_array;
use strongroom_base::{SnapshotId, Timestamp};
use strongroom_catalog::{FormatError, Snapshot};

use crate::authorship::{check, sign};
use crate::error::RepositoryError;
use crate::objects::{SESSIONS_FOLDER, read_small, snapshot_name};
use crate::repository::Repository;

/// The context in which snapshots are sealed.
const SNAPSHOT_INFO: &str = "strongroom v0 snapshot";

/// How many times a commit is tried whose outcome is unknown.
const COMMIT_TRIES: u32 = 3;

/// A writer's session, from its beginning to its commit.
pub struct Session<'r> {
    repository: &'r Repository,
    /// The name of the session and of its snapshot.
    pub id: SnapshotId,
    /// One more than the greatest sequence that was known when it began to write.
    pub sequence: u64,
    ended: bool,
}

impl<'r> Session<'r> {
    /// Begins a session.
    pub fn begin(repository: &'r Repository) -> Result<Self, RepositoryError> {
        let id = SnapshotId(random_array(&*repository.surroundings.entropy));
        let body = pack_begun(repository.surroundings.clock.now());
        // Its sequence is known only after the session has read what exists.
        let origin = Origin { session: id, sequence: 0 };
        let identity = Identity { kind: ObjectKind::Session, id: id.0, generation: 0, origin };
        let object = envelope::seal_small(&body, identity);
        repository.backend().create(&session_object(id), &object)?;
        Ok(Self { repository, id, sequence: 0, ended: false })
    }

    /// A session for a dry run: it creates no object and commits nothing.
    pub fn pretend(repository: &'r Repository) -> Self {
        let id = SnapshotId(random_array(&*repository.surroundings.entropy));
        Self { repository, id, sequence: 0, ended: true }
    }

    /// Commits: from here on the snapshot exists, and all it needs is on the medium.
    pub fn commit(mut self, snapshot: &Snapshot) -> Result<u64, RepositoryError> {
        assert_eq!(snapshot.id, self.id, "a session commits its own snapshot");
        let object = seal_snapshot(self.repository, snapshot, self.origin());
        let outcome = self.settle(&object);
        match &outcome {
            // The commit may still take effect, and until then the session must be visible:
            // otherwise what the snapshot needs could be collected.
            Err(RepositoryError::CommitUnknown { .. }) => self.ended = true,
            _ => self.end(),
        }
        outcome.map(|()| object.len() as u64)
    }

    /// Creates the snapshot's object and finds out whether that took effect: an error may have been
    /// reported for a call that succeeded, or that is still on its way.
    fn settle(&self, object: &[u8]) -> Result<(), RepositoryError> {
        let (backend, name) = (self.repository.backend(), snapshot_object(self.id));
        let mut tries = 0;
        loop {
            tries += 1;
            let failure = match backend.create(&name, object) {
                Ok(()) => return Ok(()),
                // Nothing was sent.
                Err(error @ BackendError::NoSpace { .. }) if tries == 1 => return Err(error.into()),
                Err(error) => error,
            };
            match backend.read(&name, 0, object.len() + 1) {
                Ok(found) if found == object => return Ok(()),
                Ok(_) => return Err(RepositoryError::Fenced { session: self.id }),
                Err(_) if tries < COMMIT_TRIES => {}
                Err(_) => return Err(RepositoryError::CommitUnknown { source: failure }),
            }
        }
    }

    /// The writer in the headers of its objects.
    pub fn origin(&self) -> Origin {
        Origin { session: self.id, sequence: self.sequence }
    }

    /// Removes the session's object. One that cannot be removed is fenced by a collector later.
    fn end(&mut self) {
        self.ended = true;
        let _ = self.repository.backend().remove(&session_object(self.id));
    }
}

impl Drop for Session<'_> {
    /// A session that ends before its commit was requested never commits.
    fn drop(&mut self) {
        if !self.ended {
            self.end();
        }
    }
}

/// When a session began, by its writer's clock. Needs no key.
pub fn read_session(backend: &dyn Backend, id: SnapshotId) -> Result<Timestamp, RepositoryError> {
    let name = session_object(id);
    let body = read_small(backend, &name, ObjectKind::Session, Some(&id.0))?;
    unpack_begun(&body).map_err(|error| {
        let source = FormatError::damaged("session", error);
        RepositoryError::Format { name, source }
    })
}

/// The body of a session's object.
fn pack_begun(begun: Timestamp) -> Vec<u8> {
    let mut body = Vec::new();
    Encoder::new(&mut body)
        .map(1)
        .and_then(|cbor| cbor.u64(0))
        .and_then(|cbor| cbor.i64(begun.0))
        .expect("a vector takes all that is written to it");
    body
}

fn unpack_begun(body: &[u8]) -> Result<Timestamp, minicbor::decode::Error> {
    let mut cbor = Decoder::new(body);
    cbor.map()?;
    cbor.u64()?;
    Ok(Timestamp(cbor.i64()?))
}

/// The object of a session.
pub fn session_object(id: SnapshotId) -> ObjectName {
    ObjectName::new(SESSIONS_FOLDER, id)
}

/// The object of a snapshot.
pub fn snapshot_object(id: SnapshotId) -> ObjectName {
    snapshot_name(id)
}

/// A snapshot's object: sealed so that only a reader opens it.
fn seal_snapshot(repository: &Repository, snapshot: &Snapshot, origin: Origin) -> Vec<u8> {
    let sealed = repository.write_keys().public_key.seal(
        SNAPSHOT_INFO,
        &snapshot.id.0,
        &sign(repository, snapshot),
        &*repository.surroundings.entropy,
    );
    let kind = ObjectKind::Snapshot;
    let identity = Identity { kind, id: snapshot.id.0, generation: 0, origin };
    envelope::seal_small(&sealed, identity)
}

/// Reads a snapshot.
pub fn read_snapshot(repository: &Repository, id: SnapshotId) -> Result<Snapshot, RepositoryError> {
    let name = snapshot_object(id);
    let sealed = read_small(repository.backend(), &name, ObjectKind::Snapshot, Some(&id.0))?;
    unseal_snapshot(repository, id, &sealed)
}

/// Opens the bytes of a snapshot's object, found under any name.
pub fn open_snapshot(
    repository: &Repository,
    id: SnapshotId,
    object: &[u8],
) -> Result<Snapshot, RepositoryError> {
    let (_, sealed, _) = envelope::open(object, ObjectKind::Snapshot, Some(&id.0))
        .map_err(|source| RepositoryError::Object { name: snapshot_object(id), source })?;
    unseal_snapshot(repository, id, &sealed)
}

fn unseal_snapshot(
    repository: &Repository,
    id: SnapshotId,
    sealed: &[u8],
) -> Result<Snapshot, RepositoryError> {
    let name = snapshot_object(id);
    let key = repository.keys.owner.as_ref().ok_or(RepositoryError::PutOnly)?;
    let body = key
        .private_key
        .open(SNAPSHOT_INFO, &id.0, sealed)
        .map_err(|_| RepositoryError::Sealed { name })?;
    check(repository, id, &body)
}
