//! Putting objects that are under each other's names back in their places.
//!
//! Each is first copied to a name that contains the hash of its body, so that an interrupted repair
//! loses none; then each is written to its own place; then
//! the copies are removed. An object counts for what it says it is only with a proof, and never
//! replaces one that is whole or that its own parity makes whole.

use strongroom_arena::envelope::format::Header;
use strongroom_arena::{ARENAS_FOLDER, ArenaName, envelope};
use strongroom_backend::{Backend, BackendError, ObjectName, remove_object};
use strongroom_base::{Cancel, Monitor, SnapshotId};
use strongroom_repository::objects::{ASIDE_FOLDER, SESSIONS_FOLDER, SNAPSHOTS_FOLDER, read_whole};
use strongroom_repository::{ChunkReader, Repository, RepositoryError, open_snapshot};

use super::mend::{Mended, RepairOutcome, lose, replace};
use super::plan::{RepairPlan, RepairStep};
use crate::health::fault::{Fault, look_whole};
use crate::health::look::{Looked, look_into};

/// Carries out the plan's steps of this kind, and clears away what an interrupted repair left.
pub fn put_back(
    repository: &Repository,
    reader: &ChunkReader,
    plan: &RepairPlan,
    outcome: &mut RepairOutcome,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<(), RepositoryError> {
    let aside = Aside { repository, reader };
    let mut proven = Vec::new();
    for step in &plan.steps {
        let RepairStep::PutBack { name, from } = step else { continue };
        cancel.check()?;
        match aside.take(name, from)? {
            Some(copy) => proven.push((name, copy)),
            None => lose(outcome, from, "it is not what it says it is", monitor),
        }
    }
    for (name, copy) in proven {
        cancel.check()?;
        match aside.put(name, &copy)? {
            Mended::Yes => outcome.repaired += 1,
            Mended::Gone => {}
            Mended::No(why) => lose(outcome, name, &why, monitor),
        }
    }
    aside.clear()
}

/// What the copy of an object is called: its own name and the hash of its body.
fn copy_name(name: &ObjectName, header: &Header) -> String {
    let hash = header.body_hash.iter().map(|byte| format!("{byte:02x}"));
    format!("{}-{}", name.file(), hash.collect::<String>())
}

struct Aside<'r> {
    repository: &'r Repository,
    reader: &'r ChunkReader,
}

impl Aside<'_> {
    fn backend(&self) -> &dyn Backend {
        self.repository.backend()
    }

    /// An object's bytes as they were sealed; none if it is gone, or damaged beyond parity.
    fn sealed(&self, name: &ObjectName) -> Result<Option<Vec<u8>>, BackendError> {
        match read_whole(self.backend(), name, self.repository.config.arena_bytes) {
            Ok(object) => Ok(envelope::repair(&object.bytes).ok()),
            Err(error) if error.is_not_found() || error.is_damage() || error.is_withheld() => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Copies what is under `from` and belongs under `name` to a name of its own; none if it does
    /// not prove to be what it says.
    fn take(
        &self,
        name: &ObjectName,
        from: &ObjectName,
    ) -> Result<Option<ObjectName>, RepositoryError> {
        let Some(object) =
            self.sealed(from)?.filter(|object| proves(self.repository, self.reader, name, object))
        else {
            return Ok(None);
        };
        let Ok(header) = envelope::peek(&object) else { return Ok(None) };
        let copy = ObjectName::new(ASIDE_FOLDER, copy_name(name, &header));
        match self.backend().create(&copy, &object) {
            // Its name has the hash of its body, and what is here was proved: another is damaged.
            Err(BackendError::AlreadyExists { .. }) => self.backend().replace(&copy, &object)?,
            other => other?,
        }
        Ok(Some(copy))
    }

    /// Writes a copy to its place, if that is still not whole.
    fn put(&self, name: &ObjectName, copy: &ObjectName) -> Result<Mended, RepositoryError> {
        let can_be_had = match self.fault_of(name) {
            Ok(fault) => fault.is_none_or(|fault| fault.is_repairable() || fault == Fault::Unknown),
            Err(error) if error.is_not_found() => false,
            // It may be anything: nothing takes its place.
            Err(error) if error.is_withheld() => true,
            Err(error) => return Err(error.into()),
        };
        if can_be_had {
            return Ok(Mended::Gone);
        }
        let Some(object) = self.sealed(copy)? else { return Ok(Mended::Gone) };
        if let Some(arena) = ArenaName::of(name) {
            self.reader.store().forget(arena.id);
        }
        Ok(replace(self.backend(), name, &object)?)
    }

    fn fault_of(&self, name: &ObjectName) -> Result<Option<Fault>, BackendError> {
        let arena_bytes = self.repository.config.arena_bytes;
        look_whole(self.backend(), name, arena_bytes).map(|(_, fault)| fault)
    }

    /// Removes the copies whose places are filled.
    fn clear(&self) -> Result<(), RepositoryError> {
        for info in self.backend().list(ASIDE_FOLDER)? {
            let rightful = match self.fault_of(&info.name) {
                Ok(Some(Fault::Swapped { rightful })) => rightful,
                Ok(_) => continue,
                Err(error) if error.is_not_found() || error.is_withheld() => continue,
                Err(error) => return Err(error.into()),
            };
            let is_filled = match self.fault_of(&rightful) {
                Ok(fault) => fault.is_none(),
                Err(error) if error.is_not_found() || error.is_withheld() => false,
                Err(error) => return Err(error.into()),
            };
            if is_filled {
                remove_object(self.backend(), &info.name)?;
            }
        }
        Ok(())
    }
}

/// Whether an object is what a name says. Its header proves nothing, as anybody can write one:
/// an arena's key must open for that arena and every block and fingerprint agree, a snapshot
/// must open for that snapshot. (Of a delta whose base is lost the seal says enough.)
pub(super) fn proves(
    repository: &Repository,
    reader: &ChunkReader,
    name: &ObjectName,
    object: &[u8],
) -> bool {
    match name.folder() {
        ARENAS_FOLDER => ArenaName::of(name).is_some_and(|arena| {
            let opened = reader.store().open_arena_in(arena, object);
            opened.is_ok_and(|arena| {
                look_into(&arena, object, reader, Looked::default()).fault.is_none()
            })
        }),
        SNAPSHOTS_FOLDER => name
            .file()
            .parse::<SnapshotId>()
            .is_ok_and(|id| open_snapshot(repository, id, object).is_ok()),
        // It says only that a writer was at work.
        SESSIONS_FOLDER => true,
        _ => false,
    }
}
