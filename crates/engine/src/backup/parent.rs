//! The earlier snapshots: from which of them a backup takes unchanged files over, and which
//! sequence its own snapshot gets.

use std::collections::HashSet;
use std::path::Path;

use strongroom_arena::{CacheLimits, ListedArenas};
use strongroom_base::{Monitor, Problem, Severity, SnapshotId, Timestamp};
use strongroom_catalog::Snapshot;
use strongroom_repository::objects::SNAPSHOTS_FOLDER;
use strongroom_repository::{
    Collections, ListedSnapshots, OwnRecord, Repository, RepositoryError, SealedSnapshot,
    list_known_snapshots, list_sealed,
};

use super::BackupOptions;
use crate::error::EngineError;

/// Clocks of two machines may differ by this much without a warning, in nanoseconds: ten minutes.
const CLOCK_DIFFERENCE_MAX: i64 = 600 * 1_000_000_000;

/// What was known of the repository's snapshots when a backup began.
pub struct History {
    /// Oldest first. For a key that may only store, those that this machine remembers and that
    /// still exist.
    snapshots: Vec<Snapshot>,
    /// There is none at all, not even one that cannot be read.
    is_empty: bool,
    greatest_sequence: u64,
    domain: String,
    /// Snapshots that this machine remembers and that were removed.
    gone: Vec<SnapshotId>,
    /// The snapshot that this machine made last, if it is missing and no collection removed it.
    rolled_back: Option<SnapshotId>,
}

/// The snapshots whose objects exist, as far as the key can read them.
pub enum Listed {
    /// Opened.
    Opened(ListedSnapshots),
    /// What a key that may only store sees of them.
    Sealed(Vec<SealedSnapshot>),
}

impl Listed {
    /// Lists them. It may be done before collections are read, and at the same time, but not before
    /// the session's object exists (W4).
    pub fn read(repository: &Repository, monitor: &dyn Monitor) -> Result<Self, RepositoryError> {
        Ok(match repository.keys.can_read() {
            true => Self::Opened(list_known_snapshots(repository, monitor)?),
            false => Self::Sealed(list_sealed(repository)?),
        })
    }

    fn has(&self, id: SnapshotId) -> bool {
        match self {
            Self::Opened(listed) => listed.has(id),
            Self::Sealed(sealed) => sealed.iter().any(|snapshot| snapshot.id == id),
        }
    }
}

/// The greatest sequence of the owner's domain that is in an arena; zero if there is none.
fn greatest_stored_sequence(repository: &Repository) -> Result<u64, RepositoryError> {
    let store = repository.arena_store(CacheLimits::default());
    let domain = repository.write_keys().domain.id;
    let mut greatest = 0;
    for newest in ListedArenas::list(repository.backend())?.newest() {
        match store.arena(newest.name.id).map_err(RepositoryError::from) {
            Ok(arena) if arena.domain == domain => greatest = greatest.max(arena.origin.sequence),
            Ok(_) => {}
            Err(error) if error.is_damage() || error.is_withheld() => {}
            Err(error) => return Err(error),
        }
        store.forget(newest.name.id);
    }
    Ok(greatest)
}

impl History {
    /// What was listed of it. `own` is what this machine remembers; what a collection may remove is
    /// no parent.
    pub fn of(
        repository: &Repository,
        listed: Listed,
        own: &OwnRecord,
        collections: &Collections,
    ) -> Result<Self, RepositoryError> {
        let domain = repository.secret.domain_name().to_owned();
        let is_missing = |id: &SnapshotId| !collections.took(*id) && !listed.has(*id);
        let mut rolled_back = own.newest.filter(is_missing);
        if let Some(newest) = rolled_back {
            // The collection that removed it may have gone through since these were read.
            let since = Collections::read(repository)?;
            rolled_back = (!since.took(newest) && !since.are_withheld()).then_some(newest);
        }
        let mut sealed = match listed {
            Listed::Opened(listed) => {
                let list = listed.left_by(collections);
                // Another domain's clock is that domain's to set.
                let is_empty = list.all().next().is_none()
                    && list.unreadable.is_empty()
                    && list.newer.is_empty();
                let greatest_sequence = list.greatest_sequence(&domain).max(own.sequence);
                let mut snapshots = list.snapshots;
                snapshots.retain(|snapshot| !collections.may_go(snapshot.id));
                let gone = Vec::new();
                let history =
                    Self { snapshots, is_empty, greatest_sequence, domain, gone, rolled_back };
                return Ok(history);
            }
            Listed::Sealed(sealed) => sealed,
        };
        sealed.retain(|snapshot| !collections.took(snapshot.id));
        let proven = sealed.iter().map(|snapshot| snapshot.sequence).max();
        let greatest_sequence = own.sequence.max(proven.unwrap_or(0));
        let existing = sealed.iter().map(|snapshot| snapshot.id);
        let existing: HashSet<SnapshotId> =
            existing.filter(|snapshot| !collections.may_go(*snapshot)).collect();
        let kept = own.snapshots.iter().map(|kept| kept.snapshot.clone());
        // What a snapshot needs may be removed as soon as the snapshot is.
        let (mut snapshots, gone): (Vec<_>, Vec<_>) =
            kept.partition(|snapshot| existing.contains(&snapshot.id));
        snapshots.sort_by_key(Snapshot::order);
        let gone = gone.iter().map(|snapshot| snapshot.id).collect();
        let is_empty = sealed.is_empty();
        Ok(Self { snapshots, is_empty, greatest_sequence, domain, gone, rolled_back })
    }

    /// If no snapshot is there, although backups of several sequences have stored arenas and no collection
    /// took theirs, they were removed, or their folder is not where it was. Their sequences are not given
    /// out again: so they are missed, and no prune takes what is left of them.
    pub fn pass_over_lost(
        mut self,
        repository: &Repository,
        collections: &Collections,
        monitor: &dyn Monitor,
    ) -> Result<Self, EngineError> {
        let is_asked = self.is_empty && self.greatest_sequence == 0 && self.domain.is_empty();
        if !is_asked || !repository.keys.can_read() {
            return Ok(self);
        }
        let taken = collections.taken().map(|taken| taken.sequence).max().unwrap_or(0);
        let stored = greatest_stored_sequence(repository)?;
        if stored > taken.saturating_add(1) {
            self.greatest_sequence = stored;
            let message = "there is no snapshot, although there are arenas of several backups: they were \
                           removed, or their folder is not where it was. What is left of them stays; \
                           `strongroom repair` commits again what it recognises";
            let path = Some(Path::new(SNAPSHOTS_FOLDER));
            monitor.problem(Problem { severity: Severity::Warning, path, message });
        }
        Ok(self)
    }

    /// The sequence of the next snapshot.
    pub fn next_sequence(&self) -> Result<u64, EngineError> {
        let used_up = || RepositoryError::SequenceUsedUp { domain: self.domain.clone() };
        Ok(self.greatest_sequence.checked_add(1).ok_or_else(used_up)?)
    }

    /// Snapshots that this machine remembers and that were removed from the repository.
    pub fn gone(&self) -> &[SnapshotId] {
        &self.gone
    }

    /// The snapshot that this machine made last, if it is missing and no collection removed it: an
    /// older copy of the repository may be in its place.
    pub fn rolled_back(&self) -> Option<SnapshotId> {
        self.rolled_back
    }

    /// The snapshot with the latest time, if that is later than `now` by more than clocks may
    /// differ: one of the two clocks is wrong.
    pub fn dated_after(&self, now: Timestamp) -> Option<&Snapshot> {
        let latest = self.snapshots.iter().max_by_key(|snapshot| snapshot.started)?;
        let limit = now.0.saturating_add(CLOCK_DIFFERENCE_MAX);
        (latest.started.0 > limit).then_some(latest)
    }

    /// The parent: the requested one, otherwise the newest snapshot of the same host and paths, a
    /// complete one if there is any. Beside it all of these, oldest first.
    ///
    /// A snapshot of another domain is no parent, also if it was requested: that is reported. What is
    /// taken over from a parent is named without being read, so another domain could name for this one
    /// what is not there, or what it never had. None takes its place: who requests one may know what
    /// changed since that one alone.
    pub fn into_parent(
        self,
        options: &BackupOptions,
        paths: &[Vec<u8>],
        monitor: &dyn Monitor,
    ) -> (Option<Snapshot>, Vec<Snapshot>) {
        let requested = options.parent.map(|id| {
            let found = self.snapshots.iter().find(|one| one.id == id)?;
            if found.domain != self.domain {
                say_foreign(found, &self.domain, monitor);
                return None;
            }
            Some(found.clone())
        });
        // Another domain may have claimed this host.
        let fits = |snapshot: &Snapshot| {
            let same = snapshot.host == options.host && snapshot.paths == paths;
            same && snapshot.domain == self.domain
        };
        let series: Vec<Snapshot> = self.snapshots.into_iter().filter(fits).collect();
        let newest = || {
            let complete = series.iter().rfind(|snapshot| !snapshot.partial);
            complete.or(series.last()).cloned()
        };
        (requested.unwrap_or_else(newest), series)
    }
}

fn say_foreign(parent: &Snapshot, own: &str, monitor: &dyn Monitor) {
    let domain_text = |domain: &str| match domain {
        "" => "the owner".to_owned(),
        domain => format!("the domain \"{domain}\""),
    };
    let (id, of, own) = (parent.id.short(), domain_text(&parent.domain), domain_text(own));
    let message = format!(
        "the snapshot {id} is of {of}, and this one is of {own}: nothing is taken over from it, and every \
         file is read. What is stored already is not stored again"
    );
    monitor.problem(Problem { severity: Severity::Note, path: None, message: &message });
}
