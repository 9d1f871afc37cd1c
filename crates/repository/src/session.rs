//! Sessions: writers at work, and the one operation that commits what was written.
//!
//! A writer creates `sessions/S` before it learns which arenas exist, and commits by exclusively
//! creating `snapshots/S`. A collector that thinks the session dead fences it by creating that
//! name; the first to create it wins (`docs/concurrency.md`).

mod head;
mod tombstone;

use std::cell::Cell;
use std::sync::Arc;

use strongroom_arena::envelope::format::ObjectKind;
use strongroom_arena::envelope::{self, Identity};
use strongroom_arena::{ListedArenas, Origin, Voucher};
use strongroom_backend::{BackendError, ObjectName, both, each_read_ahead, remove_object};
use strongroom_base::entropy::random_array;
use strongroom_base::{DomainId, SnapshotId};
use strongroom_catalog::Snapshot;
use strongroom_catalog::format::pack_snapshot;

use crate::authorship::{SNAPSHOT_BYTES_MAX, check, has_too_many_items, sign};
use crate::claim;
use crate::collections::Collections;
use crate::endings::own_has_ended;
use crate::error::RepositoryError;
use crate::kind::ErrorKind;
use crate::objects::{SNAPSHOTS_FOLDER, read_whole, session_name, snapshot_name};
use crate::opened::{Opened, OpenedSnapshots};
use crate::repository::Repository;
use crate::vouchers::read_vouchers;
use crate::wishes::Wishes;

use head::seal_session;
pub use head::{ListedSession, SessionHead, list_sessions};
pub use tombstone::end_session;

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
    /// The collections that there were when it began (W2).
    pub collections: Arc<Collections>,
    /// What was stored when it began, until a writer takes it.
    stored: Cell<Option<Stored>>,
    ended: bool,
}

/// What a session finds when it begins.
pub(crate) struct Stored {
    pub(crate) arenas: ListedArenas,
    pub(crate) vouchers: Vec<Voucher>,
}

impl Stored {
    fn look(repository: &Repository) -> Result<Self, RepositoryError> {
        let backend = repository.backend();
        let (vouchers, arenas) = both(
            backend.promises().in_flight,
            || read_vouchers(repository),
            || ListedArenas::list(backend),
        );
        Ok(Self { vouchers: vouchers?, arenas: arenas? })
    }
}

impl<'r> Session<'r> {
    /// Begins a session of a machine.
    pub fn begin(repository: &'r Repository, host: &str) -> Result<Self, RepositoryError> {
        Self::create(repository, host)?.learn()
    }

    /// Creates the session's object (W1). Nothing is known yet, and nothing may be written, until
    /// it has [learned](Self::learn) what there is.
    pub fn create(repository: &'r Repository, host: &str) -> Result<Self, RepositoryError> {
        repository.check_mode()?;
        repository.check_place()?;
        refuse_ended_domain(repository)?;
        let id = SnapshotId(random_array(&*repository.surroundings.entropy));
        let object = seal_session(repository, id, host);
        repository.backend().save_room();
        repository.backend().create(&session_object(id), &object)?;
        Ok(Self::new(repository, id, 0))
    }

    /// Fails if the owner has said meanwhile that the machine's domain has ended: what is committed then
    /// would count for nothing.
    pub fn check_domain(&self) -> Result<(), RepositoryError> {
        refuse_ended_domain(self.repository)
    }

    /// Takes up a session whose snapshot was removed, to commit that again. What a repair has left of it that
    /// ended before goes first, so that a collector counts its time from now. If another repair is at work with
    /// it, both have one object: what they need stays as long as the snapshot is missed.
    pub fn resume(
        repository: &'r Repository,
        id: SnapshotId,
        sequence: u64,
        host: &str,
    ) -> Result<Self, RepositoryError> {
        repository.check_mode()?;
        repository.check_place()?;
        let (object, name) = (seal_session(repository, id, host), session_object(id));
        if let Err(error) = repository.backend().create(&name, &object) {
            if !matches!(error, BackendError::AlreadyExists { .. }) {
                return Err(error.into());
            }
            remove_object(repository.backend(), &name)?;
            match repository.backend().create(&name, &object) {
                Err(BackendError::AlreadyExists { .. }) => {}
                other => other?,
            }
        }
        Self::new(repository, id, sequence).learn()
    }

    /// A session for a dry run: it creates no object and commits nothing. It has to
    /// [learn](Self::learn) too.
    pub fn pretend(repository: &'r Repository) -> Self {
        let id = SnapshotId(random_array(&*repository.surroundings.entropy));
        let mut session = Self::new(repository, id, 0);
        session.ended = true;
        session
    }

    fn new(repository: &'r Repository, id: SnapshotId, sequence: u64) -> Self {
        let (collections, stored) = (Arc::default(), Cell::default());
        Self { repository, id, sequence, collections, stored, ended: false }
    }

    /// Reads the collections (W2): after the session's object exists, and before anything is relied
    /// on. Only then lists what is stored (W3): what a verdict removed before is not in the lists,
    /// and what one removes later is known to be condemned.
    ///
    /// A plan that cannot be read would have it rely on nothing, so the owner's answers it first.
    pub fn learn(mut self) -> Result<Self, RepositoryError> {
        let repository = self.repository;
        let read = || Collections::read_and(repository, || Stored::look(repository));
        let (mut collections, mut stored) = read()?;
        if !self.ended && collections.settle(repository) {
            (collections, stored) = read()?;
        }
        self.collections = Arc::new(collections);
        self.stored = Cell::new(Some(stored?));
        Ok(self)
    }

    /// What was stored when it began. Of 10^6 arenas that is 32 MB, so it is given away.
    pub(crate) fn take_stored(&self) -> Result<Stored, RepositoryError> {
        match self.stored.take() {
            Some(stored) => Ok(stored),
            None => Stored::look(self.repository),
        }
    }

    /// Commits: from here on the snapshot exists, and all it needs is on the medium.
    pub fn commit(mut self, snapshot: &Snapshot) -> Result<u64, RepositoryError> {
        let object = self.seal(snapshot)?;
        let outcome = self.settle(&object);
        match &outcome {
            // The commit may still take effect, and until then the session must be visible:
            // otherwise what the snapshot needs could be collected.
            Err(RepositoryError::CommitUnknown { .. }) => self.ended = true,
            _ => self.end(),
        }
        outcome.map(|()| object.len() as u64)
    }

    /// Commits a snapshot again of whose object nothing can be read any more: what is left of that is
    /// replaced. One that can be read, or that may be one day, stays.
    pub fn commit_again(mut self, snapshot: &Snapshot) -> Result<u64, RepositoryError> {
        let object = self.seal(snapshot)?;
        let (backend, name) = (self.repository.backend(), snapshot_object(self.id));
        let replaced = match read_snapshot(self.repository, self.id) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Damaged => {
                backend.replace(&name, &object).map_err(RepositoryError::from)
            }
            Err(error) => Err(error),
        };
        self.end();
        replaced.map(|()| object.len() as u64)
    }

    fn seal(&self, snapshot: &Snapshot) -> Result<Vec<u8>, RepositoryError> {
        assert_eq!(snapshot.id, self.id, "a session commits its own snapshot");
        assert!(
            snapshot.root.refs.len() <= 1,
            "the root of a lost snapshot is found by one reference"
        );
        let map = pack_snapshot(snapshot);
        if map.len() > SNAPSHOT_BYTES_MAX {
            let (name, bytes) = (snapshot_object(self.id), map.len() as u64);
            return Err(BackendError::TooLarge { name, bytes }.into());
        }
        if self.repository.secret.domain().is_some() && has_too_many_items(&map) {
            let message = "the snapshot would list more paths, labels and names than its owner \
                           reads of a put-only key: name directories instead of what is in them";
            return Err(RepositoryError::Argument(message.to_owned()));
        }
        Ok(seal_snapshot(self.repository, snapshot, self.origin()))
    }

    /// Creates the snapshot's object and finds out whether that took effect: an error may have been
    /// reported for a call that succeeded, or that is still on its way. That it can be read does not
    /// say that it lasts: a folder may not be flushed, and only the first of several stores may have
    /// it. So it is done only once a call has said so.
    fn settle(&self, object: &[u8]) -> Result<(), RepositoryError> {
        let (backend, name) = (self.repository.backend(), snapshot_object(self.id));
        let mut tries = 0;
        loop {
            tries += 1;
            let failure = match backend.create(&name, object) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let is_nothing =
                tries == 1 && matches!(failure, BackendError::NoSpace { may_exist: false, .. });
            match backend.read(&name, 0, object.len() + 1) {
                Ok(found) if found != object => {
                    return Err(RepositoryError::Fenced { session: self.id });
                }
                // It may have been committed, found, forgotten and removed in the meantime.
                Err(_) if self.was_forgotten() => return Ok(()),
                Err(error) if is_nothing && error.is_not_found() => return Err(failure.into()),
                Ok(_) | Err(_) if tries < COMMIT_TRIES => {}
                Ok(_) | Err(_) => return Err(RepositoryError::CommitUnknown { source: failure }),
            }
        }
    }

    fn was_forgotten(&self) -> bool {
        Collections::read(self.repository).is_ok_and(|collections| collections.took(self.id))
    }

    /// The writer in the headers of its objects.
    pub fn origin(&self) -> Origin {
        Origin { session: self.id, sequence: self.sequence }
    }

    /// Says that this session makes no snapshot, although it may have stored all of one: without that,
    /// what it has stored is like a snapshot that was removed. Only the owner can say that; where it
    /// cannot be said, a prune keeps what was stored, and names it.
    pub fn give_up(&self) {
        give_up(self.repository, self.id);
    }

    /// Removes the session's object. One that cannot be removed is fenced by a collector later.
    fn end(&mut self) {
        self.ended = true;
        let _ = self.repository.backend().discard(&session_object(self.id));
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

/// Says of a session what [`Session::give_up`] does.
pub fn give_up(repository: &Repository, session: SnapshotId) {
    if repository.keys.owner.is_some() {
        let _ = Wishes::read(repository).and_then(|wishes| wishes.add(repository, session));
    }
}

/// The object of a session.
pub fn session_object(id: SnapshotId) -> ObjectName {
    session_name(id)
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
    let claim = claim::make(repository, snapshot.id, origin.sequence);
    let kind = ObjectKind::Snapshot;
    let identity = Identity { kind, id: snapshot.id.0, generation: 0, origin };
    envelope::seal_small(&[&claim[..], &sealed].concat(), identity)
}

/// Reads a snapshot.
pub fn read_snapshot(repository: &Repository, id: SnapshotId) -> Result<Snapshot, RepositoryError> {
    let object = read_object_of(repository, id)?;
    open_snapshot(repository, id, &object)
}

/// Opens the bytes of a snapshot's object, found under any name.
pub fn open_snapshot(
    repository: &Repository,
    id: SnapshotId,
    object: &[u8],
) -> Result<Snapshot, RepositoryError> {
    let (claimed, plain) = unseal(repository, id, object)?;
    check(repository, id, &plain, claimed)
}

/// A snapshot whose object has this length, if it was opened before.
pub(crate) fn recall_snapshot(
    repository: &Repository,
    id: SnapshotId,
    object_bytes: u64,
    known: &mut OpenedSnapshots,
) -> Option<Snapshot> {
    let Opened { claimed, plain, .. } = known.find(id, object_bytes)?;
    check(repository, id, plain, claimed).ok()
}

/// Reads a snapshot, and what opening its object gave.
pub(crate) fn read_unsealed(
    repository: &Repository,
    id: SnapshotId,
) -> Result<(Snapshot, Unsealed), RepositoryError> {
    let unsealed = unseal(repository, id, &read_object_of(repository, id)?)?;
    Ok((check(repository, id, &unsealed.1, unsealed.0)?, unsealed))
}

/// What is claimed of a snapshot in the clear, and what was in the seal of its object.
pub(crate) type Unsealed = ((DomainId, u64), Vec<u8>);

fn unseal(
    repository: &Repository,
    id: SnapshotId,
    object: &[u8],
) -> Result<Unsealed, RepositoryError> {
    let name = snapshot_object(id);
    if tombstone::ends(repository, id, object) {
        return Err(RepositoryError::Fenced { session: id });
    }
    let (sequence, body) = open_envelope(id, object)?;
    let key = repository.keys.owner.as_ref().ok_or(RepositoryError::PutOnly)?;
    let claimed = claim::check(repository, id, sequence, &body);
    let (domain, sealed) = claimed.ok_or(RepositoryError::Forged { name: name.clone() })?;
    let opened = key.private_key.open(SNAPSHOT_INFO, &id.0, sealed);
    Ok(((domain, sequence), opened.map_err(|_| RepositoryError::Sealed { name })?))
}

/// A snapshot as a key sees it that can only store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedSnapshot {
    /// Its name.
    pub id: SnapshotId,
    /// Its sequence, if a machine of this key's domain made it; else 0.
    pub sequence: u64,
}

/// The snapshots whose objects exist. What they say in the clear counts only if it is proven.
/// Those that collections removed are none ([`Collections::took`]).
pub fn list_sealed(repository: &Repository) -> Result<Vec<SealedSnapshot>, RepositoryError> {
    let backend = repository.backend();
    let listed = backend.list(SNAPSHOTS_FOLDER)?;
    let ids: Vec<SnapshotId> =
        listed.iter().filter_map(|info| info.name.file().parse().ok()).collect();
    let mut snapshots = Vec::new();
    let read = |id: &SnapshotId| read_sealed(repository, *id);
    each_read_ahead(backend.promises().in_flight, &ids, read, |_, read| {
        snapshots.extend(read?);
        Ok::<(), RepositoryError>(())
    })?;
    snapshots.sort_unstable_by_key(|snapshot| snapshot.id);
    Ok(snapshots)
}

/// None if it is a tombstone, or was removed.
fn read_sealed(
    repository: &Repository,
    id: SnapshotId,
) -> Result<Option<SealedSnapshot>, RepositoryError> {
    let own = repository.write_keys().domain.id;
    let opened = read_object_of(repository, id);
    if opened.as_ref().is_ok_and(|object| tombstone::ends(repository, id, object)) {
        return Ok(None);
    }
    let sequence = match opened.and_then(|object| open_envelope(id, &object)) {
        Ok((sequence, body)) => {
            let claimed = claim::check(repository, id, sequence, &body);
            claimed.filter(|(domain, _)| *domain == own).map_or(0, |_| sequence)
        }
        // Removed between the listing and the reading.
        Err(RepositoryError::Backend(error)) if error.is_not_found() => return Ok(None),
        Err(error) if error.is_unreadable() => 0,
        Err(error) => return Err(error),
    };
    Ok(Some(SealedSnapshot { id, sequence }))
}

fn read_object_of(repository: &Repository, id: SnapshotId) -> Result<Vec<u8>, RepositoryError> {
    let arena_bytes = repository.config.arena_bytes;
    Ok(read_whole(repository.backend(), &snapshot_object(id), arena_bytes)?.bytes)
}

/// The sequence in the header of a snapshot's object, and its body, repaired if it is damaged.
fn open_envelope(id: SnapshotId, object: &[u8]) -> Result<(u64, Vec<u8>), RepositoryError> {
    let opened = envelope::open(object, ObjectKind::Snapshot, Some(&id.0));
    let name = snapshot_object(id);
    let (header, body, _) = opened.map_err(|source| RepositoryError::Object { name, source })?;
    Ok((header.origin.sequence, body))
}

fn refuse_ended_domain(repository: &Repository) -> Result<(), RepositoryError> {
    let domain = repository.secret.domain_name();
    match !domain.is_empty() && own_has_ended(repository)? {
        true => Err(RepositoryError::DomainEnded { domain: domain.to_owned() }),
        false => Ok(()),
    }
}
