//! What must hold after each step.

use std::collections::BTreeSet;
use std::path::PathBuf;

use strongroom_base::{Cancel, Silent, SizeLimits, SnapshotId};
use strongroom_repository::{
    Collections, Repository, RepositoryError, Surroundings, list_snapshots,
};
use strongroom_upkeep::{VerifyDepth, VerifyOutcome, verify};

use super::Model;
use crate::read_back::salvage;
use crate::verify::{covers, named};
use crate::world::PASSPHRASE;

/// What cannot be read: the snapshot, the path, and why.
type Losses = Vec<(SnapshotId, PathBuf, String)>;

impl Model {
    /// Every snapshot that was acknowledged exists and gives back its image, but for what was lost
    /// to damage that was injected; and that a verification names.
    pub fn check_snapshots(&mut self) {
        let objects = self.world.objects.snapshot();
        let ids: Vec<SnapshotId> = self.expected.keys().copied().collect();
        let now = (objects, ids);
        if self.checked.as_ref() == Some(&now) {
            return;
        }
        self.read_snapshots();
        self.checked = Some(now);
    }

    fn read_snapshots(&mut self) {
        let repository = self.open_to_check();
        let tree = self.world.tree();
        let mut losses = Losses::new();
        let collections = Collections::read(&repository).unwrap();
        // One that another copy has collected is there all the same if it came from this one, also while it
        // is damaged.
        let list = list_snapshots(&repository).unwrap();
        let mut listed: BTreeSet<SnapshotId> =
            list.snapshots.iter().chain(&list.forgotten).map(|snapshot| snapshot.id).collect();
        listed.extend(list.unreadable.iter().map(|(id, _)| *id));
        let is_gone = |id: &SnapshotId| collections.took(*id) && !listed.contains(id);
        self.expected.retain(|id, _| {
            let is_gone = is_gone(id);
            let what = format!("seed {}: {} was collected", self.log.seed, id.short());
            assert!(!is_gone || self.wished.contains(id), "{what}");
            !is_gone
        });
        self.wished.retain(|id| !is_gone(id));
        // Also of what was damaged before no verb makes unreadable what could be read.
        let (was_whole, times) = std::mem::take(&mut self.whole);
        let stays_whole = |id: &SnapshotId| times == self.ledger.times() && was_whole.contains(id);
        let mut whole = BTreeSet::new();
        for (id, held) in &self.expected {
            let what = format!("seed {}: snapshot {}", self.log.seed, id.short());
            let read = salvage(&repository, *id, &held.top(&tree));
            if read.as_ref().is_ok_and(|(_, lost)| lost.is_empty()) {
                whole.insert(*id);
            } else {
                assert!(!stays_whole(id), "{what}: was whole before the last step: {read:?}");
            }
            match read {
                Ok((kept, lost)) => {
                    let excused = self.ledger.excuses_losses();
                    assert!(lost.is_empty() || excused, "{what}: lost without damage: {lost:?}");
                    held.check_kept(&kept, &lost, &tree, &what);
                    losses.extend(lost.into_iter().map(|(path, why)| (*id, path, why)));
                }
                Err(error) => self.check_gone(*id, &error, &what),
            }
        }
        if self.world.cache.is_some() {
            // It may have what the repository has not.
            whole.clear();
        }
        self.whole = (whole, self.ledger.times());
        if !losses.is_empty() {
            // Without the cache, which a verification would correct.
            let surroundings = Surroundings { cache: None, ..self.world.surroundings() };
            let mut repository = self.world.open_with(surroundings, PASSPHRASE).unwrap();
            repository.limits = SizeLimits::DEFAULT;
            let outcome = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
            self.check_named(&outcome, losses);
        }
        let objects = self.world.objects.snapshot();
        for name in &self.planted {
            assert!(objects.contains_key(name), "seed {}: {name} was removed", self.log.seed);
        }
    }

    /// A verification names every path of which something cannot be read.
    fn check_named(&self, outcome: &VerifyOutcome, losses: Losses) {
        let named = named(&outcome.affected);
        for (id, path, why) in losses {
            let what = format!("seed {}: {}:{}", self.log.seed, id.short(), path.display());
            assert!(covers(&named, &(id, path)), "{what} is lost and not named: {why}");
        }
    }

    /// A snapshot that cannot be read was damaged, and the error says so.
    fn check_gone(&self, id: SnapshotId, error: &RepositoryError, what: &str) {
        let name = strongroom_repository::snapshot_object(id);
        assert!(self.ledger.excuses(&name), "{what}: {error}");
        let is_missing = matches!(error, RepositoryError::Backend(error) if error.is_not_found());
        // It was lost with its session left, and then forgotten: a prune ends the session.
        let is_ended = matches!(error, RepositoryError::Fenced { .. }) && self.wished.contains(&id);
        assert!(is_missing || is_ended || error.is_damage(), "{what}: {error}");
    }

    /// A full verification names every file that differs, and finds nothing in what is clean.
    pub fn check_verified(&self, repository: &Repository, outcome: &VerifyOutcome) {
        let what = format!("seed {}: verify", self.log.seed);
        if self.ledger.is_clean() {
            // A backup whose commit failed may have stored a whole tree.
            let mut rest = VerifyOutcome { lost_snapshots: Vec::new(), ..outcome.clone() };
            rest.faults.retain(|(name, _)| !self.claimed.contains(name));
            // What another copy had forgotten, and a repair has committed again as far as it was there.
            rest.affected.retain(|affected| !self.unknown.contains(&affected.snapshot));
            assert!(rest.is_sound(), "{what}: {:?}, {:?}", outcome.faults, outcome.affected);
        }
        // Of more than these limits let it name, the first are named.
        if outcome.affected.len() < self.world.limits.affected_max {
            self.check_named(outcome, self.losses(repository));
        }
        let list = list_snapshots(repository).unwrap();
        for id in list.unreadable.iter().map(|(id, _)| *id) {
            let object = strongroom_repository::snapshot_object(id);
            let is_found = outcome.faults.iter().any(|(name, _)| *name == object);
            // Nothing is lost with one that is to go.
            assert!(is_found || list.wishes.forget(id), "{what}: {object} cannot be read");
        }
    }

    /// What cannot be read, by snapshot, and why.
    fn losses(&self, repository: &Repository) -> Losses {
        let mut losses = Losses::new();
        for (id, held) in &self.expected {
            if let Ok((_, lost)) = salvage(repository, *id, &held.top(&self.world.tree())) {
                losses.extend(lost.into_iter().map(|(path, why)| (*id, path, why)));
            }
        }
        losses
    }

    /// At the end of a run: repaired and backed up again, all that can be is whole.
    pub fn check_at_the_end(&mut self) {
        self.repair();
        self.check_snapshots();
        self.backup();
        self.check_snapshots();
        let repository = self.open_to_check();
        let outcome = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
        self.check_verified(&repository, &outcome);
    }
}
