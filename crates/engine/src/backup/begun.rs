//! What a backup begins with, and how it ends: what was made becomes a snapshot, and this machine
//! remembers it for the next one.

use std::collections::BTreeMap;

use strongroom_backend::both;
use strongroom_base::{Monitor, Problem, Severity, SnapshotId, Timestamp};
use strongroom_catalog::{Guarantee, Snapshot, SnapshotStats};
use strongroom_repository::{Needs, OwnRecord, Repository, Session, WriteStats};

use super::expected::Expected;
use super::parent::{History, Listed};
use super::profile::Profile;
use super::tally::Counted;
use super::trees::RootTree;
use super::{BackupOptions, BackupOutcome};
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
    /// What the backup is expected to find.
    pub expected: Expected,
    /// Those of the paths of which nothing was found although something was expected.
    pub missing: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    /// See [`Snapshot::lists_trusted`].
    pub lists_trusted: bool,
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
        // Before the listing: what another backup of this machine commits later is not missed in it.
        let own = match options.dry_run {
            true => OwnRecord::read(repository, monitor),
            false => OwnRecord::begin(repository, session.id, monitor),
        };
        let in_flight = repository.backend().promises().in_flight;
        let list = || Listed::read(repository, monitor);
        let (listed, session) = both(in_flight, list, || session.learn());
        let mut session = session?;
        if let Some((name, why)) = session.collections.doubtful() {
            let step = match why.is_withheld() {
                true => "the next backup by a user or a key that may read it stores nothing twice",
                false => "the owner's next backup, `prune` or `repair` answers it",
            };
            let message = format!(
                "cannot be read, and may condemn anything, so all is stored again: {why}; {step}"
            );
            let path = Some(name.as_str().as_ref());
            monitor.problem(Problem { severity: Severity::Note, path, message: &message });
        }
        let history = History::of(repository, listed?, &own, &session.collections)?
            .pass_over_lost(repository, &session.collections, monitor)?;
        session.sequence = history.next_sequence()?;
        let from_the_future = history.dated_after(started).map(|s| (s.id, s.started));
        let gone = history.gone().to_vec();
        let rolled_back = history.rolled_back().map(|id| (id, own.sequence));
        let (parent, series) = history.into_parent(options, paths, monitor);
        // What another program made was looked at there.
        let expected = match options.as_made {
            None => Expected::of(repository, &series, parent.as_ref()),
            Some(_) => Expected::default(),
        };
        if parent.is_none() && !repository.keys.can_read() {
            let why = match gone.is_empty() {
                true => "remembers no backup of these paths with this key",
                false => "made its last backup of these paths to a snapshot that was removed",
            };
            monitor.detail(&format!("this machine {why}: every file is read"));
        }
        Ok(Self {
            session,
            own,
            gone,
            parent,
            expected,
            missing: BTreeMap::new(),
            lists_trusted: false,
            from_the_future,
            rolled_back,
        })
    }
}

/// What a backup has made.
pub struct Made {
    /// When it began.
    pub started: Timestamp,
    /// The paths of the snapshot.
    pub paths: Vec<Vec<u8>>,
    /// The tree of `/`.
    pub root: RootTree,
    /// What there is of files.
    pub counted: Counted,
    /// It was stopped before its end.
    pub stopped: bool,
    /// A part of it is worth a snapshot.
    pub is_part_worth: bool,
    /// The sessions that it depends on.
    pub needs: Needs,
    /// What was written.
    pub written: WriteStats,
    /// How busy each stage was.
    pub profile: Profile,
    /// What is promised of regions of memory.
    pub guarantee: Option<Guarantee>,
}

impl Begun<'_> {
    /// Commits what was made, unless it is a dry run, or was stopped and is worth no snapshot.
    pub fn end(
        self,
        made: Made,
        repository: &Repository,
        options: &BackupOptions,
        monitor: &dyn Monitor,
    ) -> Result<BackupOutcome, EngineError> {
        let Self { session, own, gone, parent, expected, missing, lists_trusted, .. } = self;
        let (from_the_future, rolled_back) = (self.from_the_future, self.rolled_back);
        let Made { started, root, mut counted, written, .. } = made;
        let shortfall = expected.shortfall(&counted.stats).filter(|_| !made.stopped);
        let is_doubtful = shortfall.is_some() || !missing.is_empty();
        // An empty source was reported already.
        if let Some(message) = shortfall.filter(|_| missing.is_empty()) {
            counted.stats.problems += 1;
            let message = &message;
            monitor.problem(Problem { severity: Severity::Warning, path: None, message });
        }
        let ended = repository.surroundings.clock.now();
        let mut snapshot = options.snapshot(session.id, started, ended);
        snapshot.sequence = session.sequence;
        snapshot.seen = session.collections.last;
        snapshot.parent = parent.map(|parent| parent.id);
        snapshot.paths = made.paths;
        snapshot.missing = missing;
        snapshot.lists_trusted = lists_trusted;
        snapshot.root = root.recipe;
        snapshot.root_partial = root.partial;
        snapshot.stats = SnapshotStats {
            bytes_new: written.data_bytes,
            bytes_stored: written.stored_bytes,
            ..counted.stats
        };
        snapshot.partial = made.stopped;
        snapshot.guarantee = made.guarantee;
        if let Some(made) = &options.as_made {
            made.describe(&mut snapshot);
        }
        let committed = !options.dry_run && (made.is_part_worth || !made.stopped);
        if committed {
            session.check_domain()?;
            session.commit(&snapshot)?;
            let domain = repository.secret.domain_name().to_owned();
            let committed = Snapshot { domain, ..snapshot.clone() };
            OwnRecord::update(repository, monitor, |record| {
                record.forget(&gone);
                record.committed(&committed, &own, made.needs);
            });
        } else if !options.dry_run {
            session.give_up();
        }
        Ok(BackupOutcome {
            snapshot,
            committed,
            is_doubtful,
            from_the_future,
            rolled_back,
            files_unchanged: counted.unchanged,
            files_new: counted.new,
            files_changed: counted.changed,
            excluded: counted.excluded,
            written,
            profile: made.profile,
        })
    }
}
