//! What must hold when all actors are done: with what is still pending, and after it was done.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strongroom_arena::CacheLimits;
use strongroom_backend::BackendError;
use strongroom_base::{Cancel, Clock, Silent, SizeLimits, SnapshotId, Timestamp};
use strongroom_catalog::recipe::{Visit, for_each_chunk};
use strongroom_catalog::tree::find_entry;
use strongroom_catalog::{Entry, Snapshot};
use strongroom_engine::backup_reader;
use strongroom_repository::{
    ChunkReader, Collections, Repository, RepositoryError, list_snapshots, read_snapshot,
};
use strongroom_testkit::{TickingClock, draw_limits};
use strongroom_upkeep::{PruneOptions, forget, plan_recovery, plan_repair, prune, repair};

use crate::beginning::{Beginning, FILE, backup_options};
use crate::ledger::{Report, Wish};
use crate::stage::{Handle, Stage};
use crate::weather::Weather;

/// A clock that is later than all others.
struct LateClock;

impl Clock for LateClock {
    fn now(&self) -> Timestamp {
        Timestamp(TickingClock::START.0 + 10 * 365 * 86_400_000_000_000)
    }
}

/// Judges a schedule whose actors are done.
pub struct Judge<'s> {
    /// Where they were.
    pub stage: &'s Arc<Stage>,
    /// What it began with.
    pub beginning: &'s Beginning,
    /// A number that is no actor's.
    pub number: usize,
    /// Where the machine on which it backs up keeps caches.
    pub cache: Option<PathBuf>,
}

impl Judge<'_> {
    /// Judges; what is wrong is in the ledger.
    pub fn judge(&self) {
        let [now, then, before, after] = {
            let shared = &mut *self.stage.shared();
            shared.weather = Weather::CALM;
            shared.bad_spot = None;
            [8, 4, 3, 4].map(|times| shared.random.once_in(times))
        };
        if now {
            self.check("at the end");
        }
        self.land();
        if let Err(error) = self.forget_again() {
            self.lose(format!("what came back late cannot be forgotten: {error}"));
        }
        if then {
            self.check("after what was late");
        }
        if before {
            self.back_up_all();
        }
        if self.stage.shared().ledger.losses.is_empty() {
            self.collect();
            if after {
                self.back_up_all();
            }
            self.check("after the last collection");
            self.count();
        }
    }

    fn open(&self) -> Repository {
        let handle = Handle { stage: self.stage.clone(), actor: self.number };
        let (seed, mut limits) = {
            let random = &mut self.stage.shared().random;
            (random.number(), draw_limits(random))
        };
        // The last collection is one, and removes all that is to go.
        limits.plan_slots_bytes_max = SizeLimits::DEFAULT.plan_slots_bytes_max;
        limits.plan_snapshots_bytes_max = SizeLimits::DEFAULT.plan_snapshots_bytes_max;
        let (handle, clock) = (Arc::new(handle), Arc::new(LateClock));
        self.beginning.open(handle, clock, seed, self.cache.clone(), limits)
    }

    fn lose(&self, what: String) {
        self.stage.shared().ledger.lose(what);
    }

    /// What is pending is done, or not.
    fn land(&self) {
        let shared = &mut *self.stage.shared();
        while !shared.store.pending.is_empty() {
            if shared.random.once_in(8) {
                let place = shared.random.below(shared.store.pending.len() as u64) as usize;
                shared.store.pending.swap_remove(place);
            } else if let Some((operation, effect)) = shared.land_one() {
                let (verb, name) = (operation.verb(), operation.name().as_str());
                shared.note(self.number, &format!("late {verb}"), name, &format!("{effect:?}"));
            }
        }
    }

    /// A snapshot that a verdict took, and that came back late together with a wish to keep it that its
    /// owner gave up since, is one that the owner keeps after all, and of which something is lost: so a
    /// person who reads that forgets it again.
    fn forget_again(&self) -> Result<(), RepositoryError> {
        let repository = self.open();
        let collections = Collections::read(&repository)?;
        let list = list_snapshots(&repository)?;
        let attempts = self.stage.shared().ledger.attempts.clone();
        let back = list.readable().into_iter().filter(|snapshot| {
            collections.took(snapshot.id) && attempts[label_of(snapshot)].may_go()
        });
        let back: Vec<SnapshotId> = back.map(|snapshot| snapshot.id).collect();
        forget(&repository, &back)?;
        Ok(())
    }

    fn check(&self, when: &str) {
        if let Err(error) = self.try_check(when) {
            self.lose(format!("{when}: {error}"));
        }
    }

    fn try_check(&self, when: &str) -> Result<(), RepositoryError> {
        let repository = self.open();
        let collections = Collections::read(&repository)?;
        let list = list_snapshots(&repository)?;
        for (id, error) in list.unreadable.iter().chain(&list.newer) {
            self.lose(format!("{when}: snapshot {id} cannot be read: {error}"));
        }
        let reader = ChunkReader::of_domain(&repository, "", CacheLimits::default())?;
        let by_label = |snapshot: Snapshot| (label_of(&snapshot), snapshot);
        let found: BTreeMap<usize, Snapshot> = list.readable().into_iter().map(by_label).collect();
        let attempts = self.stage.shared().ledger.attempts.clone();
        for (label, attempt) in attempts.iter().enumerate() {
            let lose = |what: &str| self.lose(format!("{when}: backup {label} {what}"));
            let is_gone = attempt.committed().is_some_and(|id| collections.took(id));
            if is_gone && !attempt.may_go() {
                lose(match attempt.wish {
                    Wish::TakenBack => "was taken back, and forgotten all the same",
                    _ => "was forgotten, and no wish says so",
                });
            }
            match (found.get(&label), &attempt.report) {
                (Some(snapshot), report) => {
                    if let Report::Failed(why) = report {
                        lose(&format!("was reported to have failed, and exists: {why}"));
                    }
                    match content_of(&reader, snapshot) {
                        Ok(content) if content[..] == attempt.content[..] => {}
                        Ok(_) => lose("has other content"),
                        Err(error) => lose(&format!("cannot be read back: {error}")),
                    }
                }
                (None, Report::Committed(_)) if !is_gone => lose("was acknowledged, and is gone"),
                (None, _) => {}
            }
        }
        Ok(())
    }

    /// With a store that fails no more, collections come to an end, and what is to be forgotten is.
    fn collect(&self) {
        let options = PruneOptions {
            unused_percent_max: 0,
            patience: Duration::ZERO,
            ..PruneOptions::default()
        };
        let repository = self.open();
        let pruned = || {
            prune(&repository, &options, &Silent, &Cancel::new())?;
            Collections::read(&repository)
        };
        // A collection waits for a session whose snapshot was committed and is gone, and says that a repair has
        // to come first: it was taken back when it was too late.
        let repaired = || {
            let mut plan = plan_repair(repository.backend(), &Silent, &Cancel::new())?;
            plan_recovery(&repository, &mut plan, &Silent, &Cancel::new())?;
            repair(&repository, &plan, &Silent, &Cancel::new())?;
            pruned()
        };
        let ended = pruned().and_then(|collections| match collections.open {
            None => Ok(collections),
            Some(_) => repaired(),
        });
        let collections = match ended {
            Ok(collections) => collections,
            Err(error) => return self.lose(format!("the last collection: {error}")),
        };
        if let Some(open) = &collections.open {
            self.lose(format!("collection {} does not end", open.number));
        }
        let attempts = self.stage.shared().ledger.attempts.clone();
        for (label, attempt) in attempts.iter().enumerate() {
            let is_gone = attempt.committed().is_none_or(|id| collections.took(id));
            if attempt.wish == Wish::Forget && !attempt.is_wanted_back && !is_gone {
                self.lose(format!("backup {label} was to be forgotten, and is still there"));
            }
        }
    }

    /// Counts what collections did.
    fn count(&self) {
        let repository = self.open();
        let Ok(collections) = Collections::read(&repository) else { return };
        let counts = &mut self.stage.shared().ledger.counts;
        counts.verdicts += collections.last;
        counts.forgotten += collections.taken().count() as u64;
        counts.slots += collections.dead().count() as u64;
    }

    /// A backup of all that was ever stored uses all that the index knows: it must be there, and
    /// stay.
    fn back_up_all(&self) {
        let (label, content) = {
            let ledger = &mut self.stage.shared().ledger;
            let contents: Vec<_> = ledger.attempts.iter().map(|a| a.content.clone()).collect();
            let content = contents.concat();
            (ledger.begin(content.clone()), content)
        };
        let repository = self.open();
        let options = backup_options(label, "host-0");
        let mut input = &content[..];
        let outcome =
            backup_reader(&repository, FILE, &mut input, &options, &Silent, &Cancel::new());
        match outcome {
            Ok(outcome) => {
                let attempt = &mut self.stage.shared().ledger.attempts[label];
                attempt.report = Report::Committed(outcome.snapshot.id);
            }
            Err(error) => self.lose(format!("a backup of all: {error}")),
        }
    }
}

fn label_of(snapshot: &Snapshot) -> usize {
    let label = snapshot.labels.first().and_then(|label| label.parse().ok());
    label.expect("every snapshot of a schedule has a label")
}

/// The content of the file in a snapshot.
pub fn read_back(repository: &Repository, id: SnapshotId) -> Result<Vec<u8>, RepositoryError> {
    let snapshot = read_snapshot(repository, id)?;
    content_of(&ChunkReader::of_domain(repository, "", CacheLimits::default())?, &snapshot)
}

fn content_of(reader: &ChunkReader, snapshot: &Snapshot) -> Result<Vec<u8>, RepositoryError> {
    let entry = find_entry(&snapshot.root, FILE, reader)?;
    let recipe = entry.as_ref().and_then(Entry::content);
    let name = strongroom_repository::snapshot_object(snapshot.id);
    let recipe = recipe.ok_or(BackendError::NotFound { name })?;
    let mut content = Vec::new();
    for_each_chunk(recipe, reader, &mut |chunk, level| {
        if level == 0 {
            content.extend(reader.read_data(chunk)?);
        }
        Ok::<_, RepositoryError>(Visit::Into)
    })?;
    Ok(content)
}
