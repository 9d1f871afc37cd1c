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
use strongroom_base::regimes::{Regime, reached_if};
use strongroom_base::{SnapshotId, Timestamp};

use crate::collections::Collections;
use crate::error::RepositoryError;
use crate::folders::{WithheldFolder, show};
use crate::names::{FORGOTTEN_FOLDER, REMARKS_FOLDER, numbered_name, numbered_of};
use crate::remarks::{Hold, Remarks};
use crate::repository::Repository;
use crate::signed;

/// The snapshots that are to be forgotten.
#[derive(Debug, Default)]
pub struct Wishes {
    of: BTreeMap<SnapshotId, Wished>,
    /// All of them may be withheld: then each may be to keep its snapshot.
    withheld: Option<WithheldFolder>,
    /// What else the owner says, read after the wishes.
    remarks: Remarks,
    /// When they were read: a hold may have ended.
    now: Timestamp,
}

/// The wishes about one snapshot.
#[derive(Debug, Clone, Copy, Default)]
struct Wished {
    /// The number of the greatest that can be read; 0 if there is none.
    greatest: u32,
    /// A greater one that cannot be read, or that the place withholds, and that may be the owner's: it
    /// may be to keep the snapshot.
    /// 0 if there is none.
    unreadable: u32,
}

impl Wished {
    fn read(
        repository: &Repository,
        snapshot: SnapshotId,
        numbers: &BTreeSet<u32>,
    ) -> Result<Self, RepositoryError> {
        let mut wished = Self::default();
        let mut unreadable = BTreeSet::new();
        for number in numbers.iter().rev() {
            match signed::read(repository, &numbered_name(FORGOTTEN_FOLDER, snapshot, *number)) {
                Ok(_) => {
                    wished.greatest = *number;
                    break;
                }
                // Carried out in the meantime.
                Err(RepositoryError::Backend(error)) if error.is_not_found() => {}
                Err(RepositoryError::Forged { .. }) => {}
                Err(error) if error.is_unreadable() => drop(unreadable.insert(*number)),
                Err(error) => return Err(error),
            }
        }
        // The owner takes one of the next two numbers that are free, so what is planted beyond them
        // does not count.
        let mut last = wished.greatest;
        for number in numbers.range(last.saturating_add(1)..) {
            if number - last > 2 {
                break;
            }
            last = *number;
            if unreadable.contains(number) {
                wished.unreadable = *number;
            }
        }
        Ok(wished)
    }

    /// The greatest number that counts.
    fn number(self) -> u64 {
        self.greatest.max(self.unreadable).into()
    }
}

impl Wishes {
    /// Reads them. What the owner did not make is no wish; if one cannot be read that may be the
    /// owner's, the snapshot stays.
    pub fn read(repository: &Repository) -> Result<Self, RepositoryError> {
        let mut wishes = Self::default();
        let backend = repository.backend();
        let (listed, remarks) = both(
            backend.promises().in_flight,
            || show(backend, FORGOTTEN_FOLDER),
            || Remarks::read(repository),
        );
        let mut numbers: BTreeMap<SnapshotId, BTreeSet<u32>> = BTreeMap::new();
        let shown = listed?;
        wishes.withheld = shown.withheld;
        for info in shown.objects {
            if let Some((snapshot, number)) = numbered_of(info.name.file()) {
                numbers.entry(snapshot).or_default().insert(number);
            }
        }
        for (snapshot, numbers) in &numbers {
            wishes.of.insert(*snapshot, Wished::read(repository, *snapshot, numbers)?);
        }
        wishes.remarks = remarks?;
        wishes.now = repository.surroundings.clock.now();
        Ok(wishes)
    }

    /// Whether a snapshot is to be forgotten: there is a wish, and it is not held.
    pub fn forget(&self, snapshot: SnapshotId) -> bool {
        self.is_wished(snapshot) && self.hold(snapshot).is_none()
    }

    /// Fails if the wishes or the remarks are withheld: what they say of any snapshot has to be known
    /// before one is forgotten or removed.
    pub fn refuse_withheld(&self) -> Result<(), WithheldFolder> {
        match self.withheld.as_ref().or(self.remarks.withheld()) {
            Some(withheld) => Err(withheld.clone()),
            None => Ok(()),
        }
    }

    /// Why a snapshot is held, and until when; none if it is not.
    pub fn hold(&self, snapshot: SnapshotId) -> Option<Hold> {
        self.remarks.hold(snapshot, self.now)
    }

    /// Whether the owner certainly holds a snapshot, so that it was committed once. A remark that cannot be
    /// read keeps a snapshot, and proves nothing: anyone who may store can leave one.
    pub fn is_certainly_held(&self, snapshot: SnapshotId) -> bool {
        self.remarks.certain_hold(snapshot, self.now).is_some()
    }

    /// What else the owner says of snapshots.
    pub fn remarks(&self) -> &Remarks {
        &self.remarks
    }

    /// Whether the owner said, after any wish to forget it, that a snapshot stays. If a collection took
    /// it nevertheless, that was decided in another copy of the repository, and does not count for
    /// what is here.
    ///
    /// What cannot be read may say so.
    pub fn keep_after_all(&self, snapshot: SnapshotId) -> bool {
        self.wants_kept(snapshot) || !self.are_known(snapshot)
    }

    fn wants_kept(&self, snapshot: SnapshotId) -> bool {
        let greatest = self.about(snapshot).greatest;
        self.hold(snapshot).is_some() || greatest > 0 && greatest.is_multiple_of(2)
    }

    /// Whether everything that was wished for a snapshot can be read.
    fn are_known(&self, snapshot: SnapshotId) -> bool {
        self.withheld.is_none() && self.about(snapshot).unreadable == 0
    }

    /// Whether a snapshot is gone for good: a verdict took it, and the owner has not said since that it
    /// stays. Who asks [`Collections::took`] alone gives up what was brought back from another copy.
    pub fn let_go(&self, collections: &Collections, snapshot: SnapshotId) -> bool {
        let (was_taken, is_kept) = (collections.took(snapshot), self.keep_after_all(snapshot));
        reached_if(was_taken && is_kept, Regime::KeptAfterAll);
        was_taken && !is_kept
    }

    /// Whether it is no loss that a snapshot is not there: a verdict took it, and the owner is not known to
    /// keep it after all. Rubbish among the wishes must not raise an alarm.
    pub fn is_no_loss(&self, collections: &Collections, snapshot: SnapshotId) -> bool {
        let is_kept = self.wants_kept(snapshot) && self.are_known(snapshot);
        collections.took(snapshot) && !is_kept
    }

    fn is_wished(&self, snapshot: SnapshotId) -> bool {
        let wished = self.about(snapshot);
        wished.greatest % 2 == 1 && wished.unreadable == 0
    }

    fn about(&self, snapshot: SnapshotId) -> Wished {
        self.of.get(&snapshot).copied().unwrap_or_default()
    }

    /// A wish about a snapshot that cannot be read, and may be to keep it: it is not forgotten until
    /// there is a later one.
    pub fn unreadable(&self, snapshot: SnapshotId) -> Option<ObjectName> {
        let number = self.about(snapshot).unreadable;
        (number > 0).then(|| numbered_name(FORGOTTEN_FOLDER, snapshot, number))
    }

    /// All that are to be forgotten.
    pub fn forgotten(&self) -> impl Iterator<Item = SnapshotId> {
        self.of.keys().copied().filter(|snapshot| self.forget(*snapshot))
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
        let number = self.number(snapshot)?;
        create_wish(repository, snapshot, number + 1 + number % 2).map(|()| true)
    }

    /// Takes a wish back, even one whose answer was lost, and that comes later. Returns false if a
    /// collection has taken the snapshot already.
    pub fn undo(
        &self,
        repository: &Repository,
        snapshot: SnapshotId,
    ) -> Result<bool, RepositoryError> {
        if Collections::read_settled(repository)?.took(snapshot) {
            return Ok(false);
        }
        // The greatest number of a wish that may be on its way is the next odd one.
        self.keep(repository, snapshot)?;
        // Only now: a collector that reads the wishes later finds it taken back.
        let collections = Collections::read_settled(repository)?;
        match collections.doubtful() {
            Some((name, why)) => Err(RepositoryError::undecided(name, why)),
            None => Ok(!collections.may_go(snapshot)),
        }
    }

    /// Wishes that a snapshot stays, after all that is there about it, or is on its way.
    pub(crate) fn keep(
        &self,
        repository: &Repository,
        snapshot: SnapshotId,
    ) -> Result<(), RepositoryError> {
        let number = self.number(snapshot)?;
        create_wish(repository, snapshot, number + 2 - number % 2)
    }

    /// The greatest number that counts, if it can be known.
    fn number(&self, snapshot: SnapshotId) -> Result<u64, RepositoryError> {
        match &self.withheld {
            Some(withheld) => Err(withheld.error()),
            None => Ok(self.about(snapshot).number()),
        }
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
            Err(error) if error.is_unreadable() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The objects of all wishes and remarks, and which snapshot each is about, in the order in which they were
/// said: of those that are removed so, as many as are left end with the last word.
pub fn list_wishes_and_remarks(
    repository: &Repository,
) -> Result<Vec<(SnapshotId, ObjectName)>, RepositoryError> {
    let mut names = Vec::new();
    for folder in [FORGOTTEN_FOLDER, REMARKS_FOLDER] {
        let listed = repository.backend().list(folder)?.into_iter();
        names.extend(listed.filter_map(|info| {
            let (snapshot, number) = numbered_of(info.name.file())?;
            Some((snapshot, number, info.name))
        }));
    }
    names.sort_by_key(|(snapshot, number, _)| (*snapshot, *number));
    Ok(names.into_iter().map(|(snapshot, _, name)| (snapshot, name)).collect())
}
