//! Wishes to forget snapshots. The next collection carries them out; until then they can be taken
//! back.
//!
//! ```text
//! forgotten/S.K      an odd K: S is to be forgotten; an even one: it is to be kept after all
//! ```
//!
//! The greatest K counts. Objects are only added, so that a late creation takes nothing back
//! (`docs/concurrency.md`, what the model changed). A snapshot that is held stays, also if there is
//! a wish to forget it.

use std::collections::{BTreeMap, BTreeSet};

use strongroom_backend::{ObjectName, both};
use strongroom_base::{SnapshotId, Timestamp};

use crate::collections::Collections;
use crate::error::RepositoryError;
use crate::names::{FORGOTTEN_FOLDER, REMARKS_FOLDER, numbered_name, numbered_of};
use crate::remarks::{Hold, Remarks};
use crate::repository::Repository;
use crate::signed;

/// The snapshots that are to be forgotten.
#[derive(Debug, Default)]
pub struct Wishes {
    /// By snapshot, the greatest number of the owner's wishes.
    greatest: BTreeMap<SnapshotId, u32>,
    /// Snapshots about which there is a wish that cannot be read: it may be to keep them.
    unreadable: BTreeSet<SnapshotId>,
    /// What else the owner says, read after the wishes.
    remarks: Remarks,
    /// When they were read: a hold may have ended.
    now: Timestamp,
}

impl Wishes {
    /// Reads them. What the owner did not make is no wish; if one cannot be read, the snapshot stays.
    pub fn read(repository: &Repository) -> Result<Self, RepositoryError> {
        let mut wishes = Self::default();
        let backend = repository.backend();
        let (listed, remarks) = both(
            backend.promises().in_flight,
            || backend.list(FORGOTTEN_FOLDER),
            || Remarks::read(repository),
        );
        for info in listed? {
            let Some((snapshot, number)) = numbered_of(info.name.file()) else { continue };
            if wishes.greatest.get(&snapshot).is_some_and(|known| *known > number) {
                continue;
            }
            match signed::read(repository, &info.name) {
                Ok(_) => drop(wishes.greatest.insert(snapshot, number)),
                // Carried out in the meantime.
                Err(RepositoryError::Backend(error)) if error.is_not_found() => {}
                Err(RepositoryError::Forged { .. }) => {}
                Err(error) if error.is_damage() => drop(wishes.unreadable.insert(snapshot)),
                Err(error) => return Err(error),
            }
        }
        wishes.remarks = remarks?;
        wishes.now = repository.surroundings.clock.now();
        Ok(wishes)
    }

    /// Whether a snapshot is to be forgotten: there is a wish, and it is not held.
    pub fn forget(&self, snapshot: SnapshotId) -> bool {
        self.is_wished(snapshot) && self.hold(snapshot).is_none()
    }

    /// Why a snapshot is held, and until when; none if it is not.
    pub fn hold(&self, snapshot: SnapshotId) -> Option<Hold> {
        self.remarks.hold(snapshot, self.now)
    }

    /// What else the owner says of snapshots.
    pub fn remarks(&self) -> &Remarks {
        &self.remarks
    }

    fn is_wished(&self, snapshot: SnapshotId) -> bool {
        let is_odd = self.greatest.get(&snapshot).is_some_and(|number| number % 2 == 1);
        is_odd && !self.unreadable.contains(&snapshot)
    }

    /// All that are to be forgotten.
    pub fn forgotten(&self) -> impl Iterator<Item = SnapshotId> {
        self.greatest.keys().copied().filter(|snapshot| self.forget(*snapshot))
    }

    /// Wishes that a snapshot is forgotten. Returns false if that was wished already.
    pub fn add(
        &self,
        repository: &Repository,
        snapshot: SnapshotId,
    ) -> Result<bool, RepositoryError> {
        if self.is_wished(snapshot) {
            return Ok(false);
        }
        let number = self.number(snapshot);
        create_wish(repository, snapshot, number + 1 + number % 2).map(|()| true)
    }

    /// Takes a wish back, even one whose answer was lost, and that comes later. Returns false if a
    /// collection has taken the snapshot already.
    pub fn undo(
        &self,
        repository: &Repository,
        snapshot: SnapshotId,
    ) -> Result<bool, RepositoryError> {
        if Collections::read(repository)?.is_gone(snapshot) {
            return Ok(false);
        }
        // The greatest number of a wish that may be on its way is the next odd one.
        let number = self.number(snapshot);
        create_wish(repository, snapshot, number + 2 - number % 2)?;
        // Only now: a collector that reads the wishes later finds it taken back.
        Ok(!Collections::read(repository)?.may_go(snapshot))
    }

    fn number(&self, snapshot: SnapshotId) -> u64 {
        self.greatest.get(&snapshot).copied().unwrap_or(0).into()
    }
}

/// Creates a wish. If its number is taken by the owner, that is the same wish; names that another has
/// taken are passed over, two at a time.
fn create_wish(
    repository: &Repository,
    snapshot: SnapshotId,
    first: u64,
) -> Result<(), RepositoryError> {
    for number in (first..).step_by(2) {
        let last = numbered_name(FORGOTTEN_FOLDER, snapshot, u32::MAX);
        let number = u32::try_from(number).map_err(|_| RepositoryError::Forged { name: last })?;
        let name = numbered_name(FORGOTTEN_FOLDER, snapshot, number);
        if signed::create(repository, &name, &[])? {
            break;
        }
        match signed::read(repository, &name) {
            Ok(_) => break,
            // The snapshot went, and its wishes with it.
            Err(RepositoryError::Backend(error)) if error.is_not_found() => break,
            Err(RepositoryError::Forged { .. }) => {}
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The objects of all wishes and remarks, and which snapshot each is about.
pub fn list_wishes_and_remarks(
    repository: &Repository,
) -> Result<Vec<(SnapshotId, ObjectName)>, RepositoryError> {
    let mut names = Vec::new();
    for folder in [FORGOTTEN_FOLDER, REMARKS_FOLDER] {
        let listed = repository.backend().list(folder)?.into_iter();
        names.extend(listed.filter_map(|info| {
            let (snapshot, _) = numbered_of(info.name.file())?;
            Some((snapshot, info.name))
        }));
    }
    Ok(names)
}
