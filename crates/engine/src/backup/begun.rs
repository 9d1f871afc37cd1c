//! What a backup begins with, and what it leaves behind on this machine for the next one.

use strongroom_backend::both;
use strongroom_base::{Monitor, SnapshotId, Timestamp};
use strongroom_catalog::Snapshot;
use strongroom_repository::{Needs, OwnRecord, Repository, Session};

use super::BackupOptions;
use super::parent::{History, Listed};
use crate::error::EngineError;

/// What a backup begins with.
pub struct Begun<'r> {
    /// The session.
    pub session: Session<'r>,
    /// What this machine remembers of its backups.
    pub own: OwnRecord,
    /// Snapshots that it remembers and that were removed.
    pub gone: Vec<SnapshotId>,
    /// The snapshot that unchanged files are taken over from.
    pub parent: Option<Snapshot>,
    /// A snapshot that is dated later than this machine's clock.
    pub from_the_future: Option<(SnapshotId, Timestamp)>,
    /// The snapshot that this machine made last, and its sequence, if it is missing.
    pub rolled_back: Option<(SnapshotId, u64)>,
}

impl<'r> Begun<'r> {
    /// Begins the session, and only then looks at what exists: at snapshots and at collections at
    /// the same time, if the place is far away.
    pub fn begin(
        repository: &'r Repository,
        options: &BackupOptions,
        paths: &[Vec<u8>],
        started: Timestamp,
        monitor: &dyn Monitor,
    ) -> Result<Self, EngineError> {
        let session = options.session(repository)?;
        let in_flight = repository.backend().promises().in_flight;
        let list = || Listed::read(repository, monitor);
        let (listed, session) = both(in_flight, list, || session.learn());
        let mut session = session?;
        let own = match options.dry_run {
            true => OwnRecord::read(repository, monitor),
            false => OwnRecord::begin(repository, session.id, monitor),
        };
        let history = History::of(repository, listed?, &own, &session.collections);
        session.sequence = history.next_sequence()?;
        let from_the_future = history.dated_after(started).map(|s| (s.id, s.started));
        let gone = history.gone().to_vec();
        let rolled_back = history.rolled_back().map(|id| (id, own.sequence));
        let parent = history.into_parent(options, paths);
        if parent.is_none() && !repository.keys.can_read() {
            let why = match gone.is_empty() {
                true => "remembers no backup of these paths with this key",
                false => "made its last backup of these paths to a snapshot that was removed",
            };
            monitor.detail(&format!("this machine {why}: every file is read"));
        }
        Ok(Self { session, own, gone, parent, from_the_future, rolled_back })
    }
}

/// What a backup leaves for the next one of this machine.
pub struct Remembered {
    /// The record that the backup began with.
    pub own: OwnRecord,
    /// Snapshots in it that were removed from the repository.
    pub gone: Vec<SnapshotId>,
    /// The sessions that the snapshot depends on.
    pub needs: Needs,
}

impl Remembered {
    /// Keeps it, once the snapshot was committed.
    pub fn keep(self, repository: &Repository, snapshot: &Snapshot, monitor: &dyn Monitor) {
        let domain = repository.secret.domain_name().to_owned();
        let committed = Snapshot { domain, ..snapshot.clone() };
        OwnRecord::update(repository, monitor, |record| {
            record.forget(&self.gone);
            record.committed(&committed, &self.own, self.needs);
        });
    }
}
