//! What only a key says of an object that is to be replaced by a copy: whether the copy is what its name says,
//! and whether the other has anything that the copy has not.

use strongroom_arena::envelope;
use strongroom_arena::envelope::format::{HEADER_BYTES, Header, ObjectKind};
use strongroom_arena::scan::holds_something;
use strongroom_arena::{ARENAS_FOLDER, ArenaError, ArenaName, CacheLimits};
use strongroom_backend::ObjectName;
use strongroom_base::SnapshotId;
use strongroom_repository::objects::{SNAPSHOTS_FOLDER, is_as_named};
use strongroom_repository::{ChunkReader, ErrorKind, Repository, RepositoryError, open_snapshot};

use super::aside::proves;

/// What a key says of an object.
pub(super) struct Judge<'j> {
    pub(super) repository: &'j Repository,
    pub(super) reader: &'j ChunkReader,
}

impl Judge<'_> {
    /// Whether an object proves to be what its name says; also if it is one of which no key says that.
    pub(super) fn admits(&self, name: &ObjectName, object: &[u8]) -> bool {
        let is_proven = [ARENAS_FOLDER, SNAPSHOTS_FOLDER].contains(&name.folder());
        !is_proven || proves(self.repository, self.reader, name, object)
    }

    /// Whether an object proves to be what its name says, and has all that opens of what is there, which has
    /// the header of another. Two copies that carry out one verdict make generations with one name, the same
    /// chunks, and other bytes.
    pub(super) fn supersedes(&self, name: &ObjectName, there: &[u8], object: &[u8]) -> bool {
        if !proves(self.repository, self.reader, name, object) {
            return false;
        }
        let Some(arena) = ArenaName::of(name) else { return self.is_no_snapshot(name, there) };
        let store = self.reader.store();
        match (store.open_arena_in(arena, there), store.open_arena_in(arena, object)) {
            (Ok(there), Ok(object)) => object.covers(&there, |_| false),
            // Blocks may open without the front: a rescue saves them.
            (Err(error), Ok(_)) => is_lost(&error) && !holds_something(store, arena, there),
            _ => false,
        }
    }

    /// Whether an object says that it is this snapshot, and nothing of it opens. The end of a session is under
    /// that name too, and stays.
    fn is_no_snapshot(&self, name: &ObjectName, object: &[u8]) -> bool {
        let Ok(id) = name.file().parse::<SnapshotId>() else { return false };
        let is_end =
            envelope::salvage(object).is_ok_and(|left| left.header.kind != ObjectKind::Snapshot);
        let opened = open_snapshot(self.repository, id, object);
        !is_end && opened.is_err_and(|error| error.kind() == ErrorKind::Damaged)
    }
}

/// Whether an object says that it is this arena, and no key opens it. What says that it is another is put back
/// in its own place first.
pub(super) fn is_no_arena(
    repository: &Repository,
    arena: ArenaName,
) -> Result<bool, RepositoryError> {
    let name = arena.object();
    let header = match repository.backend().read(&name, 0, HEADER_BYTES) {
        Ok(bytes) => Header::unpack(&bytes).ok(),
        Err(error) if error.is_not_found() || error.is_damage() || error.is_withheld() => None,
        Err(error) => return Err(error.into()),
    };
    if !header.is_some_and(|header| is_as_named(&name, &header)) {
        return Ok(false);
    }
    match repository.arena_store(CacheLimits::default()).arena_in(arena) {
        Err(error) if is_lost(&error) => Ok(true),
        Err(error) if error.is_unreadable() || error.withheld().is_some() => Ok(false),
        other => Ok(other.map(|_| false)?),
    }
}

/// Whether no program and no key opens an arena.
fn is_lost(error: &ArenaError) -> bool {
    let is_of_another = matches!(error, ArenaError::Unknown { .. } | ArenaError::Foreign { .. });
    error.is_unreadable() && !is_of_another
}
