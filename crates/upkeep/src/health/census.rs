//! What the names and headers of all objects say about the sessions that wrote them: which have not
//! ended, which left arenas and no snapshot, and which snapshots were removed.
//!
//! Headers are not authenticated: anybody who may store can write one. So nothing is decided by
//! them alone; they say where to look.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::RangeInclusive;

use strongroom_arena::envelope::format::{HEADER_BYTES, Header};
use strongroom_arena::{ARENAS_FOLDER, ArenaContent, ArenaName, Origin};
use strongroom_backend::{Backend, BackendError, ObjectInfo, ObjectName};
use strongroom_base::{ArenaId, Monitor, SnapshotId, Timestamp};
use strongroom_repository::objects::{
    SESSIONS_FOLDER, SNAPSHOTS_FOLDER, bytes_max_of, list_objects, read_whole,
};
use strongroom_repository::{
    Collections, ErrorKind, OwnRecord, Repository, RepositoryError, SessionHead, SnapshotList,
    list_sealed, list_sessions, list_snapshots, open_snapshot, session_object, snapshot_object,
};

/// A session that has not ended: its writer is at work, or was interrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSession {
    /// Its name.
    pub id: SnapshotId,
    /// When it began, by the writer's clock; none without a key of its domain.
    pub begun: Option<Timestamp>,
    /// The sequence in the headers of its arenas; none if it has stored none.
    pub sequence: Option<u64>,
    /// Arenas that it stored.
    pub arenas: u64,
}

/// A session that stored arenas and has neither a snapshot nor an object of its own: it was given
/// up, or its snapshot was removed or is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unclaimed {
    /// Its name, and that of the snapshot that it may have made.
    pub id: SnapshotId,
    /// The sequence in the headers of its arenas.
    pub sequence: u64,
    /// Arenas that it stored.
    pub arenas: u64,
    /// Those of them that hold trees and recipes.
    pub metadata: BTreeSet<ArenaId>,
    /// Whether its snapshot's object exists and is only rubbish: see [`find_spoilt`].
    pub is_spoilt: bool,
}

/// What a session stored.
#[derive(Debug, Default)]
struct Stored {
    sequence: u64,
    arenas: u64,
    metadata: BTreeSet<ArenaId>,
}

/// What was found so far.
#[derive(Debug, Default)]
pub struct Census {
    snapshots: HashSet<SnapshotId>,
    sessions: BTreeSet<SnapshotId>,
    /// What each session stored.
    stored: BTreeMap<SnapshotId, Stored>,
    /// Whether there is an arena of trees and recipes that does not say which session stored it.
    has_unread: bool,
}

impl Census {
    /// Takes in a listing. Arenas are noted one by one, as their headers are read.
    pub fn of_listing(objects: &[ObjectInfo]) -> Self {
        let ids = |folder: &'static str| {
            let names = objects.iter().map(|info| &info.name);
            let names = names.filter(move |name| name.folder() == folder);
            names.filter_map(|name| name.file().parse::<SnapshotId>().ok())
        };
        let (snapshots, sessions) =
            (ids(SNAPSHOTS_FOLDER).collect(), ids(SESSIONS_FOLDER).collect());
        Self { snapshots, sessions, ..Self::default() }
    }

    /// Lists all objects and reads the header of each arena.
    pub fn take(backend: &dyn Backend) -> Result<Self, BackendError> {
        let objects = list_objects(backend)?;
        let mut census = Self::of_listing(&objects);
        for info in objects.iter().filter(|info| info.name.folder() == ARENAS_FOLDER) {
            // One that cannot be read, or is gone since the listing, says nothing.
            match backend.read(&info.name, 0, HEADER_BYTES).map(|bytes| Header::unpack(&bytes)) {
                Ok(Ok(header)) => census.note(&info.name, header.origin),
                Err(error) if error.is_not_found() => {}
                _ => census.has_unread |= is_of_metadata(&info.name),
            }
        }
        Ok(census)
    }

    /// Whether a session may have stored trees. Without any, its snapshot cannot be made again.
    pub fn may_have_trees(&self, session: SnapshotId) -> bool {
        let stored = self.stored.get(&session);
        self.has_unread || stored.is_some_and(|stored| !stored.metadata.is_empty())
    }

    /// Takes note of what the header of an arena says.
    pub fn note(&mut self, name: &ObjectName, origin: Origin) {
        let Some(arena) = ArenaName::of(name) else { return };
        let stored = self.stored.entry(origin.session).or_default();
        stored.sequence = stored.sequence.max(origin.sequence);
        stored.arenas += 1;
        if ArenaContent::of(arena.id) == ArenaContent::Metadata {
            stored.metadata.insert(arena.id);
        }
    }

    /// The names of sessions that stored something, whose objects exist, and no snapshot.
    pub fn sessions_without_snapshot(&self) -> impl Iterator<Item = SnapshotId> {
        let open = self.sessions.iter().filter(|id| !self.snapshots.contains(id));
        open.filter(|id| self.stored.contains_key(id)).copied()
    }

    /// The sequence in the headers of what a session stored.
    pub fn sequence_of(&self, session: SnapshotId) -> Option<u64> {
        self.stored.get(&session).map(|stored| stored.sequence)
    }

    /// The sessions whose objects exist, and no snapshot.
    pub fn open_sessions(&self, backend: &dyn Backend) -> Vec<OpenSession> {
        let open = self.sessions.iter().filter(|id| !self.snapshots.contains(id));
        // One that has ended since the listing is not reported.
        let open = open.filter(|id| exists(backend, &session_object(**id)));
        open.map(|id| {
            let stored = self.stored.get(id);
            let sequence = stored.map(|stored| stored.sequence);
            OpenSession { id: *id, begun: None, sequence, arenas: stored.map_or(0, |s| s.arenas) }
        })
        .collect()
    }

    /// The sessions that stored something and have no object at all, or nothing but what is spoilt.
    /// A session that began, or that committed, since the listing is none of them. The object of one that
    /// has ended does not count.
    pub fn unclaimed(
        &self,
        backend: &dyn Backend,
        spoilt: &BTreeSet<SnapshotId>,
        has_ended: &dyn Fn(SnapshotId) -> bool,
    ) -> Vec<Unclaimed> {
        // In the place of what is spoilt nothing can be created, so no writer is at work for it.
        let is_over = |id: &SnapshotId| spoilt.contains(id) || has_ended(*id);
        let was_none = |id: &SnapshotId| is_over(id) || !self.sessions.contains(id);
        let is_none = |id: &SnapshotId| is_over(id) || !exists(backend, &session_object(*id));
        let no_session = self.stored.iter().filter(|(id, _)| was_none(id));
        // The session first: its snapshot is committed before it ends.
        let gone = no_session.filter(|(id, _)| {
            spoilt.contains(id)
                || !self.snapshots.contains(id)
                    && is_none(id)
                    && !exists(backend, &snapshot_object(**id))
        });
        gone.map(|(id, stored)| Unclaimed {
            id: *id,
            sequence: stored.sequence,
            arenas: stored.arenas,
            metadata: stored.metadata.clone(),
            is_spoilt: spoilt.contains(id),
        })
        .collect()
    }
}

/// Snapshots whose objects exist, and of which nothing can be read any more although the medium gives
/// every byte: emptied, cut, overwritten. They are as gone as those that were removed. What is withheld,
/// what a newer program made, and what the owner has forgotten is none of them.
pub fn find_spoilt(
    repository: &Repository,
    list: &SnapshotList,
) -> Result<BTreeSet<SnapshotId>, BackendError> {
    let mut spoilt = BTreeSet::new();
    for (id, error) in &list.unreadable {
        if error.kind() != ErrorKind::Damaged || list.wishes.forget(*id) {
            continue;
        }
        let arena_bytes = repository.config.arena_bytes;
        let is_given = match read_whole(repository.backend(), &snapshot_object(*id), arena_bytes) {
            Ok(object) => object.refused_bytes == 0,
            Err(BackendError::TooLarge { .. }) => true,
            Err(error) if error.is_not_found() || error.is_damage() || error.is_withheld() => false,
            Err(error) => return Err(error),
        };
        if is_given {
            spoilt.insert(*id);
        }
    }
    Ok(spoilt)
}

/// Takes note of when sessions began, as far as the key at hand proves it.
pub fn date_sessions(repository: &Repository, sessions: &mut [OpenSession]) {
    let listed = list_sessions(repository).unwrap_or_default();
    let heads = listed.into_iter().filter_map(|listed| Some((listed.id, listed.head.ok()?)));
    let heads: BTreeMap<SnapshotId, SessionHead> = heads.collect();
    for session in sessions {
        session.begun = heads.get(&session.id).map(|head| head.started);
    }
}

fn is_of_metadata(name: &ObjectName) -> bool {
    let content = ArenaName::of(name).map(|arena| ArenaContent::of(arena.id));
    content == Some(ArenaContent::Metadata)
}

/// True unless it is certain that there is no such object.
pub fn exists(backend: &dyn Backend, name: &ObjectName) -> bool {
    !backend.size(name).is_err_and(|error| error.is_not_found())
}

/// The sequences that no snapshot of the owner's domain has, up to the greatest that is known.
///
/// A full key gives each snapshot one more than the greatest of its domain, and an interrupted
/// backup uses no number up: two snapshots may have one number, but none is left out, unless a
/// snapshot was removed.
pub fn missing_sequences(
    repository: &Repository,
    list: &SnapshotList,
    own: &OwnRecord,
    collections: &Collections,
    proven: u64,
) -> Result<Vec<RangeInclusive<u64>>, RepositoryError> {
    let listed = list.all().map(|snapshot| (&snapshot.domain, snapshot.sequence));
    let gone = collections.taken().filter(|gone| list.wishes.is_no_loss(collections, gone.id));
    let gone = gone.map(|gone| (&gone.domain, gone.sequence));
    let of_owner = listed.chain(gone).filter(|(domain, _)| domain.is_empty());
    let mut known: BTreeSet<u64> = of_owner.map(|(_, sequence)| sequence).collect();
    let greatest = list.greatest_sequence("").max(known.last().copied().unwrap_or(0));
    let end = match repository.secret.domain_name() {
        "" => own.sequence.max(greatest).max(proven),
        _ => greatest,
    };
    // What cannot be opened today may have any of them.
    if collections.are_withheld() || list.unreadable.iter().any(|(_, error)| error.is_withheld()) {
        return Ok(Vec::new());
    }
    // What is damaged, or of a newer program, is reported as that.
    let unopened: HashSet<SnapshotId> =
        list.unreadable.iter().chain(&list.newer).map(|(id, _)| *id).collect();
    if !unopened.is_empty() {
        let sealed = list_sealed(repository).unwrap_or_default();
        let sealed = sealed.iter().filter(|snapshot| unopened.contains(&snapshot.id));
        known.extend(sealed.map(|snapshot| snapshot.sequence));
    }
    // A verdict does not know the sequence of a snapshot that could not be read, nor does anyone know
    // that of one which is damaged and is to go.
    let is_to_go = |(id, _): &&(SnapshotId, _)| list.wishes.forget(*id);
    let to_go = list.unreadable.iter().filter(is_to_go).count();
    let unknown = (collections.taken().filter(|gone| gone.sequence == 0).count() + to_go) as u64;
    let is_any_missing = |known: &BTreeSet<u64>| {
        let found = known.iter().filter(|sequence| (1..=end).contains(*sequence)).count() as u64;
        end - found > unknown
    };
    if is_any_missing(&known) {
        // A listing may lack what was committed during it, or since.
        let since = list_snapshots(repository)?;
        let of_owner = since.all().filter(|snapshot| snapshot.domain.is_empty());
        known.extend(of_owner.map(|snapshot| snapshot.sequence));
    }
    if !is_any_missing(&known) {
        return Ok(Vec::new());
    }
    let mut gaps = Vec::new();
    let mut next = 1;
    for sequence in
        known.into_iter().filter(|sequence| (1..=end).contains(sequence)).chain([end + 1])
    {
        if sequence > next {
            gaps.push(next..=sequence - 1);
        }
        next = sequence + 1;
    }
    Ok(gaps)
}

/// The newest snapshot that this machine made, if the repository no longer has it: it was removed,
/// or an older copy of the repository is in its place; and no collection removed it.
pub fn own_snapshot_gone(
    repository: &Repository,
    own: &OwnRecord,
) -> Result<Option<SnapshotId>, RepositoryError> {
    let is_missing = |id: &SnapshotId| !exists(repository.backend(), &snapshot_object(*id));
    let Some(newest) = own.newest.filter(is_missing) else { return Ok(None) };
    // Only now: the one that removed it may have gone through a moment ago.
    let collections = Collections::read(repository)?;
    Ok((!collections.are_withheld() && !collections.took(newest)).then_some(newest))
}

/// The last snapshot that a machine made, which the repository does not give back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnGone {
    /// Its name.
    pub id: SnapshotId,
    /// Its sequence.
    pub sequence: u64,
    /// Whether there is an object of it that cannot be read: it is damaged, not removed.
    pub is_damaged: bool,
}

/// The same, from what this machine remembers, or that it is damaged. `latest` would pass over either
/// without a word.
pub fn find_rolled_back(repository: &Repository, monitor: &dyn Monitor) -> Option<OwnGone> {
    let own = OwnRecord::read(repository, monitor);
    let newest = own.newest?;
    let gone = |is_damaged| OwnGone { id: newest, sequence: own.sequence, is_damaged };
    let name = snapshot_object(newest);
    let bytes_max = bytes_max_of(&name, repository.config.arena_bytes);
    let is_damaged = match repository.backend().read(&name, 0, bytes_max as usize) {
        Ok(object) => {
            // Mostly it can be read, and nothing more is asked.
            let opened = open_snapshot(repository, newest, &object);
            opened.err().filter(|error| error.kind() == ErrorKind::Damaged)?;
            true
        }
        Err(error) if error.is_not_found() => false,
        Err(_) => return None,
    };
    let collections = Collections::read(repository).ok()?;
    (!collections.are_withheld() && !collections.took(newest)).then(|| gone(is_damaged))
}
