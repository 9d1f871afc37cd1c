//! Sessions that have committed, and whose objects are still there: the writer was killed before it removed
//! its session, or a repair was that was to commit the snapshot again.
//!
//! As long as the snapshot exists, nothing depends on such a session. Once the snapshot is removed, it looks
//! like one whose writer is at work. A prune whose patience ends would put a tombstone where a repair can
//! still commit the snapshot again, and nothing would keep what that needs.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use strongroom_base::{SnapshotId, Timestamp};
use strongroom_repository::{
    Arrivals, Collections, ListedSession, OwnRecord, Repository, RepositoryError, SnapshotList,
    Wishes, list_sessions,
};

use super::census::{Census, missing_sequences};

/// How long a writer may need, unless the owner says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(7 * 86400);

/// What proves that a session has committed.
pub struct Proofs<'p> {
    wishes: &'p Wishes,
    own_newest: Option<SnapshotId>,
    arrivals: Arrivals,
    missing: Vec<RangeInclusive<u64>>,
}

impl<'p> Proofs<'p> {
    /// Reads what the owner and this machine say.
    pub fn read(
        repository: &Repository,
        list: &'p SnapshotList,
        own: &OwnRecord,
    ) -> Result<Self, RepositoryError> {
        let arrivals = match repository.keys.can_read() {
            true => Arrivals::read(repository)?,
            false => Arrivals::default(),
        };
        let collections = Collections::read(repository)?;
        let missing = missing_sequences(repository, list, own, &collections, 0)?;
        Ok(Self { wishes: &list.wishes, own_newest: own.newest, arrivals, missing })
    }

    /// Whether a session has certainly committed, or a repair has found out that it had.
    pub fn are_certain(&self, session: SnapshotId) -> bool {
        self.own_newest == Some(session)
            || self.wishes.is_certainly_held(session)
            || self.arrivals.seen(session).is_some()
    }

    /// Whether a session may have committed a snapshot that was removed, and that the owner has not
    /// forgotten, if its sequence is one that is missing.
    pub fn may_concern(&self, session: SnapshotId) -> bool {
        !self.wishes.forget(session) && (!self.missing.is_empty() || self.are_certain(session))
    }

    /// The same of one with this sequence: it is that of no snapshot. It may also be of a writer at work that
    /// has this number too.
    fn are_likely(&self, session: SnapshotId, sequence: Option<u64>) -> bool {
        let is_missing = |sequence| self.missing.iter().any(|gap| gap.contains(&sequence));
        self.may_concern(session) && (self.are_certain(session) || sequence.is_some_and(is_missing))
    }
}

/// The sessions that have committed, and not those whose writers may be at work.
#[derive(Debug, Default)]
pub struct Ended(BTreeSet<SnapshotId>);

impl Ended {
    /// Finds them among the sessions of a census. One that only may have committed counts once patience with
    /// it is over.
    pub fn find(
        repository: &Repository,
        census: &Census,
        list: &SnapshotList,
        own: &OwnRecord,
        patience: Duration,
    ) -> Result<Self, RepositoryError> {
        let mut ended = Self::default();
        let left: BTreeSet<SnapshotId> = census.sessions_without_snapshot().collect();
        if left.is_empty() {
            return Ok(ended);
        }
        let proofs = Proofs::read(repository, list, own)?;
        let likely = |id: &SnapshotId| proofs.are_likely(*id, census.sequence_of(*id));
        if !left.iter().any(likely) {
            return Ok(ended);
        }
        let listed = list_sessions(repository)?.into_iter();
        for session in listed.filter(|session| left.contains(&session.id) && likely(&session.id)) {
            if proofs.are_certain(session.id) || is_too_old(repository, &session, patience) {
                ended.0.insert(session.id);
            }
        }
        Ok(ended)
    }

    /// Whether a session is one of them.
    pub fn contains(&self, session: SnapshotId) -> bool {
        self.0.contains(&session)
    }
}

/// Whether patience with a session is over. A clock may decide that: a wrong guess costs its writer a new
/// session. One that says nothing of itself, or lies in the future, is too old.
pub fn is_too_old(repository: &Repository, session: &ListedSession, patience: Duration) -> bool {
    let now = repository.surroundings.clock.now();
    let patience = i64::try_from(patience.as_nanos()).unwrap_or(i64::MAX);
    let started = session.head.as_ref().map(|head| head.started);
    started.map_or(true, |Timestamp(started)| {
        now.0.saturating_sub(started).unsigned_abs() > patience.unsigned_abs()
    })
}
