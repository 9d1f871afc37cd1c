//! What can happen in a step.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use strongroom_backend::ObjectName;
use strongroom_base::{Cancel, SeededEntropy, Silent, SizeLimits, SnapshotId};
use strongroom_engine::{
    BackupOutcome, DrillAmount, DrillOptions, EngineError, backup, drill, restore,
};
use strongroom_repository::keys::{Access, generate_passphrase};
use strongroom_repository::{
    DrillVerdict, Repository, RepositoryError, list_snapshots, read_snapshot,
};
use strongroom_testkit::tree::mutate;
use strongroom_testkit::{CallKind, Calls, FaultKind, FaultPlan, FaultyBackend, Image, Listener};
use strongroom_upkeep::{
    NewAccess, PruneOptions, VerifyDepth, add_key, change_key, defragment, forget, plan_recovery,
    plan_repair, prune, release, remember, remove_key, repair, verify, vouch,
};

use super::held::{Held, Names, is_part_of};
use super::{Key, Model, TREE};
use crate::read_back::salvage;
use crate::restore::exactly;
use crate::world::options;

/// Which key a verb needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Any,
    Full,
}

impl Model {
    /// Does one thing, chosen at random.
    pub fn step(&mut self) {
        if self.collects && self.random.once_in(4) {
            return if self.random.once_in(2) { self.forget() } else { self.prune() };
        }
        match self.random.below(40) {
            0..=2 => self.edit(),
            3..=6 => self.backup(),
            7 => self.partial_backup(),
            8 | 9 => self.restore(),
            10 => self.verify(),
            11 | 12 => self.repair(),
            13 => self.add_key(),
            14 => self.change_or_remove_key(),
            15 => self.plant_copy(),
            16 | 17 => self.damage(true),
            18 => self.damage(false),
            19 | 20 => self.forget(),
            21 => self.remember(),
            22 | 33 | 34 => self.prune(),
            23 => self.defragment(),
            24 => self.drill(),
            25..=28 => self.store_regions(),
            29 | 30 => self.load_region(),
            31 => self.combine(),
            35 | 36 => self.use_a_copy(),
            37 => self.plant_generation(),
            38 | 39 => self.mirror(),
            _ if self.random.once_in(2) => self.damage_record(),
            _ => self.toggle_cache(),
        }
    }

    /// The repository over what is stored, without faults.
    pub fn open(&self) -> Repository {
        self.world.open_with(self.world.surroundings(), &self.keys[0].passphrase).unwrap()
    }

    /// The same as the program opens it. What is read does not depend on the limits, and small ones make
    /// it slow to read everything.
    pub fn open_to_check(&self) -> Repository {
        Repository { limits: SizeLimits::DEFAULT, ..self.open() }
    }

    fn edit(&mut self) {
        // Two changes of a file within one tick of the kernel's clock look alike.
        std::thread::sleep(Duration::from_millis(10));
        let seed = self.random.number();
        let edits = mutate(&self.world.tree(), seed, TREE);
        self.note(format!("edit: {} changes", edits.len()));
    }

    /// Backs the tree up, and expects each snapshot that is new afterwards to hold it.
    pub fn backup(&mut self) {
        let is_forced = self.random.once_in(5);
        self.back_up(is_forced);
    }

    /// The same, of every file again if that is forced.
    pub fn back_up(&mut self, is_forced: bool) {
        let image = self.world.image();
        let mut options = options(&self.world.tree());
        options.force = is_forced;
        options.pack.deltas = !self.random.once_in(4);
        options.readers = 1 + self.random.below(3) as usize;
        let outcome = self.troubled("backup", Needs::Any, |repository| {
            backup(repository, &options, &Silent, &Cancel::new())
        });
        let new = self.new_snapshots();
        if let Some(BackupOutcome { snapshot, .. }) = outcome {
            assert_eq!(new, [snapshot.id], "seed {}: what was acknowledged", self.log.seed);
        }
        assert!(new.len() <= 1, "seed {}: one backup, one snapshot", self.log.seed);
        let names = Names::within(&self.world.limits);
        self.expected.extend(new.into_iter().map(|id| (id, Held::Tree(image.clone(), names))));
    }

    /// Stops a backup at some file. What it keeps must be part of the tree.
    fn partial_backup(&mut self) {
        let image = self.world.image();
        let options = options(&self.world.tree());
        let cancel = Cancel::new();
        let (stop, left) = (cancel.clone(), AtomicU64::new(1 + self.random.below(20)));
        let monitor = Listener::on_work(move |_| {
            if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                stop.cancel();
            }
        });
        self.note("partial backup");
        let outcome = backup(&self.open(), &options, &monitor, &cancel);
        let is_partial = outcome.as_ref().is_ok_and(|outcome| outcome.snapshot.partial);
        let (repository, names) = (self.open(), Names::within(&self.world.limits));
        for id in self.new_snapshots() {
            let (kept, lost) = salvage(&repository, id, &self.world.tree()).unwrap();
            let what = format!("seed {}: partial {}", self.log.seed, id.short());
            if !lost.is_empty() {
                assert!(self.ledger.excuses_losses(), "{what}: {lost:?}");
                self.unknown.insert(id);
            } else if is_partial {
                assert!(is_part_of(&kept, &image), "{what}: {:?}", image.differences(&kept));
                self.expected.insert(id, Held::Tree(kept, names));
                self.partial.insert(id);
            } else {
                self.expected.insert(id, Held::Tree(image.clone(), names));
            }
        }
    }

    /// Drills some snapshot. Unless something is lost, it is proved.
    fn drill(&mut self) {
        let ids: Vec<SnapshotId> = self.expected.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let id = *self.random.pick(&ids);
        let amount = match self.random.below(3) {
            0 => DrillAmount::Bytes(self.random.below(60 << 10)),
            1 => DrillAmount::Files(1 + self.random.below(12)),
            _ => DrillAmount::Percent(1 + self.random.below(100) as u8),
        };
        let options = DrillOptions {
            path: Vec::new(),
            amount,
            seed: self.random.once_in(3).then(|| self.random.number()),
            scratch: self.restored.path().to_owned(),
            host: "host".to_owned(),
            keep: false,
            source: self.random.once_in(2),
            record: self.random.once_in(2),
            workers: 2,
        };
        let mut fired = 0;
        let outcome = self.troubled_counting("drill", Needs::Full, &mut fired, |repository| {
            let snapshot = read_snapshot(repository, id)?;
            drill(repository, &snapshot, &options, &|_| None, &Silent, &Cancel::new())
        });
        let left = fs::read_dir(self.restored.path()).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_str().is_some_and(|name| name.starts_with("strongroom-drill-"))
        });
        let what = format!("seed {}: drill {}", self.log.seed, id.short());
        assert_eq!(left.count(), 0, "{what}: scratch folders are left");
        let Some(outcome) = outcome else { return };
        assert!(outcome.entries.0 > 0 || outcome.entries.1 == 0, "{what}: {outcome:?}");
        if fired == 0 && !self.ledger.excuses_losses() {
            assert_eq!(outcome.verdict, DrillVerdict::Proved, "{what}: {:?}", outcome.findings);
        }
    }

    /// Restores some snapshot over what an earlier restore left.
    fn restore(&mut self) {
        let ids: Vec<SnapshotId> = self.expected.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let id = *self.random.pick(&ids);
        let held = self.expected[&id].clone();
        let place =
            self.restored.path().join(if held.regions().is_some() { "memory" } else { "tree" });
        let options = exactly(&held.top(&self.world.tree()), &place);
        let mut fired = 0;
        let outcome = self.troubled_counting("restore", Needs::Full, &mut fired, |repository| {
            let snapshot = read_snapshot(repository, id)?;
            restore(repository, &snapshot, &options, &Silent, &Cancel::new())
        });
        let Some(outcome) = outcome else { return };
        let what = format!("seed {}: restore {}", self.log.seed, id.short());
        if fired == 0 && !self.ledger.excuses_losses() {
            assert!(outcome.damaged.is_empty(), "{what}: {:?}", outcome.damaged);
            held.check_restored(&Image::of(&place), self.partial.contains(&id), &what);
        }
    }

    fn verify(&mut self) {
        let depth = if self.random.once_in(3) { VerifyDepth::Structure } else { VerifyDepth::Data };
        let mut fired = 0;
        let outcome = self.troubled_counting("verify", Needs::Full, &mut fired, |repository| {
            verify(repository, depth, &Silent, &Cancel::new())
        });
        if let Some(mut outcome) = outcome.filter(|_| fired == 0 && depth == VerifyDepth::Data) {
            outcome.faults.retain(|(name, _)| !self.planted.contains(name));
            self.check_verified(&self.open_to_check(), &outcome);
            if self.random.once_in(2) {
                let vouched = self.troubled("vouch", Needs::Full, |opened| vouch(opened, &outcome));
                self.note(format!("vouched for {vouched:?}"));
            }
        }
    }

    /// Repairs what is damaged.
    pub fn repair(&mut self) {
        let mut fired = 0;
        let mut lost = Vec::new();
        let outcome = self.troubled_counting("repair", Needs::Full, &mut fired, |repository| {
            let mut plan = plan_repair(repository.backend(), &Silent, &Cancel::new())?;
            plan_recovery(repository, &mut plan, &Silent, &Cancel::new())?;
            lost = plan.lost_snapshots.iter().map(|lost| lost.id).collect();
            repair(repository, &plan, &Silent, &Cancel::new())
        });
        let waits = outcome.as_ref().map_or(&[][..], |outcome| &outcome.recover_later);
        lost.retain(|id| !waits.contains(id));
        for id in lost {
            self.note(format!("recovered: {id}"));
            // That of a removed snapshot is compared with its image; a failed commit has none.
            match self.expected.contains_key(&id) {
                true => self.partial.insert(id),
                false => self.unknown.insert(id),
            };
        }
        if outcome.is_some() && fired == 0 {
            self.ledger.repaired();
        }
        self.let_go_of_remains();
        let objects = self.world.objects.snapshot();
        self.claimed.retain(|name| objects.contains_key(name));
    }

    /// Of what another copy had forgotten, and a repair has committed again, as much is there as a prune of
    /// that copy has left. As long as it is kept no prune goes on, so it is forgotten.
    fn let_go_of_remains(&self) {
        let repository = self.open();
        let list = list_snapshots(&repository).unwrap();
        let is_there = |id: &SnapshotId| list.snapshots.iter().any(|there| there.id == *id);
        if self.ledger.excuses_losses() || !self.unknown.iter().any(is_there) {
            return;
        }
        let outcome = verify(&repository, VerifyDepth::Structure, &Silent, &Cancel::new()).unwrap();
        let affected = outcome.affected.iter().map(|affected| affected.snapshot);
        let gone: BTreeSet<SnapshotId> = affected.filter(|id| self.unknown.contains(id)).collect();
        for id in gone {
            forget_held(&repository, &[id]).unwrap();
        }
    }

    /// Forgets some snapshot.
    pub fn forget(&mut self) {
        let ids: Vec<SnapshotId> = self.expected.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let id = *self.random.pick(&ids);
        self.note(format!("forget {}", id.short()));
        self.wished.insert(id);
        self.troubled("forget", Needs::Full, |repository| forget_held(repository, &[id]));
    }

    /// Takes a wish back; if that succeeds, the snapshot stays.
    fn remember(&mut self) {
        // What is left of one that another copy has collected was let go of: it would stop each prune.
        let ids: Vec<SnapshotId> = self.wished.difference(&self.unknown).copied().collect();
        if ids.is_empty() {
            return;
        }
        let id = *self.random.pick(&ids);
        self.note(format!("remember {}", id.short()));
        let late = self.troubled("remember", Needs::Full, |repository| remember(repository, &[id]));
        if late.is_some_and(|late| late.is_empty()) {
            self.wished.remove(&id);
        }
    }

    /// Removes what no snapshot needs. Only what was to be forgotten goes.
    pub fn prune(&mut self) {
        let options = PruneOptions {
            unused_percent_max: *self.random.pick(&[0, 5, 100]),
            rewritten_max: *self.random.pick(&[None, None, Some(20_000)]),
            time_max: *self.random.pick(&[None, None, Some(Duration::ZERO)]),
            patience: *self.random.pick(&[Duration::ZERO, Duration::MAX]),
            dry_run: self.random.once_in(8),
        };
        let outcome = self.troubled("prune", Needs::Full, |repository| {
            prune(repository, &options, &Silent, &Cancel::new())
        });
        let Some(outcome) = outcome else { return };
        for gone in outcome.snapshots {
            let is_wished = self.wished.contains(&gone.id) || self.unknown.contains(&gone.id);
            // A collection that an earlier prune had begun names its snapshots again.
            let is_gone = !self.expected.contains_key(&gone.id);
            assert!(is_wished || is_gone, "seed {}: {} is collected", self.log.seed, gone.id);
        }
    }

    /// Brings together what a snapshot needs: one of the same content takes its place.
    fn defragment(&mut self) {
        let list = list_snapshots(&self.open()).unwrap();
        let newest = list.snapshots.iter().rev().find(|snapshot| {
            snapshot.domain.is_empty()
                && !snapshot.partial
                && self.expected.contains_key(&snapshot.id)
        });
        let Some(from) = newest.map(|snapshot| snapshot.id) else { return };
        let held = self.expected[&from].clone().stored_within(&self.world.limits);
        let budget = 1 << self.random.below(30);
        self.wished.insert(from);
        self.troubled("defragment", Needs::Full, |repository| {
            defragment(repository, from, budget, &Silent, &Cancel::new())
        });
        let new = self.new_snapshots();
        assert!(new.len() <= 1, "seed {}: one snapshot in its place", self.log.seed);
        self.expected.extend(new.into_iter().map(|id| (id, held.clone())));
    }

    /// One that costs next to nothing to open.
    fn draw_passphrase(&mut self) -> Vec<u8> {
        let entropy = SeededEntropy::new(self.random.number());
        generate_passphrase(&entropy).as_bytes().to_vec()
    }

    fn add_key(&mut self) {
        let passphrase = self.draw_passphrase();
        let access = if self.random.once_in(2) { Access::Full } else { Access::PutOnly };
        let new = match access {
            Access::Full => NewAccess::Full,
            Access::PutOnly => NewAccess::PutOnly("laptop"),
        };
        let added = self.troubled("add a key", Needs::Full, |repository| {
            add_key(repository, &passphrase, "more", new, None)
        });
        match added {
            Some(slot) => self.keys.push(Key { slot, passphrase, access }),
            None => self.ledger.tear_key(),
        }
    }

    /// Changes or removes a key, but never the first.
    fn change_or_remove_key(&mut self) {
        if self.keys.len() < 2 {
            return;
        }
        let number = 1 + self.random.below(self.keys.len() as u64 - 1) as usize;
        // After a fault it may still open, or not.
        let key = self.keys.remove(number);
        if self.random.once_in(2) {
            let passphrase = self.draw_passphrase();
            let surroundings = self.world.surroundings();
            let slot = self
                .world
                .open_with(surroundings, &key.passphrase)
                .and_then(|opened| change_key(&opened, &passphrase, None))
                .unwrap();
            self.note("change a key");
            self.keys.push(Key { slot, passphrase, access: key.access });
        } else if self
            .troubled("remove a key", Needs::Full, |repository| remove_key(repository, key.slot))
            .is_none()
        {
            return self.ledger.tear_key();
        }
        let opened = self.world.open_with(self.world.surroundings(), &key.passphrase);
        let is_wrong = matches!(opened, Err(RepositoryError::WrongPassphrase { .. }));
        assert!(is_wrong, "seed {}: a removed key still opens", self.log.seed);
    }

    /// Snapshots that can be read and are not in the map.
    pub fn new_snapshots(&self) -> Vec<SnapshotId> {
        let list = list_snapshots(&self.open()).unwrap();
        let ids = list.snapshots.iter().map(|snapshot| snapshot.id);
        ids.filter(|id| !self.expected.contains_key(id) && !self.unknown.contains(id)).collect()
    }

    pub fn troubled<T, E: Into<EngineError>>(
        &mut self,
        what: &str,
        needs: Needs,
        verb: impl FnOnce(&Repository) -> Result<T, E>,
    ) -> Option<T> {
        self.troubled_counting(what, needs, &mut 0, verb)
    }

    /// Runs a verb over a backend that may fail; counts the faults. An error without a fault is
    /// that of damage.
    pub fn troubled_counting<T, E: Into<EngineError>>(
        &mut self,
        what: &str,
        needs: Needs,
        fired: &mut u64,
        verb: impl FnOnce(&Repository) -> Result<T, E>,
    ) -> Option<T> {
        let plan = self.trouble();
        let key = self.pick_key(needs);
        let faulty = Arc::new(FaultyBackend::new(self.world.objects.clone(), plan.clone()));
        let opened = self.world.open_with(self.world.over(faulty.clone()), &key);
        let result =
            opened.map_err(EngineError::from).and_then(|opened| verb(&opened).map_err(Into::into));
        *fired = faulty.fired();
        let outcome = result.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
        self.note(format!("{what}, {} faults of {:?}: {outcome}", *fired, plan.faults));
        self.note_vanished(&faulty.vanished());
        if let Err(error) = &result {
            assert!(!is_our_fault(error), "seed {}: {what}: {error}", self.log.seed);
            let is_excused = *fired > 0
                || matches!(error, EngineError::PartGone { .. })
                || (is_loss(error) && self.ledger.excuses_losses())
                || (is_not_collectable(error) && !self.claimed.is_empty())
                || (self.was_merged && is_emptied(error));
            assert!(is_excused, "seed {}: {what}: {error}", self.log.seed);
        }
        result.ok()
    }

    fn pick_key(&mut self, needs: Needs) -> Vec<u8> {
        let fits = |key: &&Key| needs == Needs::Any || key.access == Access::Full;
        let fitting: Vec<&Key> = self.keys.iter().filter(fits).collect();
        self.random.pick(&fitting).passphrase.clone()
    }

    /// What goes wrong with a verb; nothing in two of three.
    fn trouble(&mut self) -> FaultPlan {
        let at = self.random.below(60);
        match self.random.below(12) {
            0 => FaultPlan::crash(at),
            1 => FaultPlan::crash_after(at),
            2 => FaultPlan::hiccup(Calls::all(), at, FaultKind::Io),
            3 => {
                let kinds = [FaultKind::FlipBit, FaultKind::Short, FaultKind::Zeros];
                let kind = *self.random.pick(&kinds);
                FaultPlan::hiccup(Calls::of(&[CallKind::Read]), at, kind)
            }
            4 => {
                let calls = Calls::of(&[CallKind::Create, CallKind::Replace]);
                let kinds = [FaultKind::NoSpace, FaultKind::LostAcknowledgement];
                let kind = *self.random.pick(&kinds);
                FaultPlan::lasting(calls, at / 4, kind)
            }
            5 if self.random.once_in(4) && !self.collects => {
                let calls = Calls::of(&[CallKind::Read]).within("arenas");
                FaultPlan::hiccup(calls, at / 4, FaultKind::Vanish)
            }
            _ => FaultPlan::none(),
        }
    }

    /// Objects that a fault made vanish are damaged.
    fn note_vanished(&mut self, vanished: &[ObjectName]) {
        let after = self.world.objects.snapshot();
        for name in vanished.iter().filter(|name| !after.contains_key(*name)) {
            if name.folder() == "arenas" {
                self.note(format!("vanished: {name}"));
                self.ledger.damage(name, false);
            }
        }
    }
}

/// True for what no fault and no damage excuses: two parts of the program disagree.
fn is_our_fault(error: &EngineError) -> bool {
    let EngineError::Repository(error) = error else { return false };
    matches!(error, RepositoryError::Miscounted { .. } | RepositoryError::Miscopied { .. })
}

/// A collection waits until what is planted is taken away.
fn is_not_collectable(error: &EngineError) -> bool {
    matches!(error, EngineError::Repository(RepositoryError::NotCollectable { .. }))
}

/// No snapshot is left, and a copy has brought arenas whose snapshots its own verdicts removed: without
/// these, that looks like a folder that was emptied.
fn is_emptied(error: &EngineError) -> bool {
    use RepositoryError::NotCollectable;
    matches!(error, EngineError::Repository(NotCollectable { what, .. }) if what == "snapshots/")
}

/// True for an error that damage beyond parity explains.
pub fn is_loss(error: &EngineError) -> bool {
    let is_missing = matches!(
        error,
        EngineError::Repository(RepositoryError::Backend(error)) if error.is_not_found()
    );
    is_missing || error.is_damage()
}

/// Forgets snapshots, also those that are held: what a repair has committed again is.
pub fn forget_held(
    repository: &Repository,
    snapshots: &[SnapshotId],
) -> Result<usize, RepositoryError> {
    match forget(repository, snapshots) {
        Err(RepositoryError::Held { .. }) => {
            release(repository, snapshots)?;
            forget(repository, snapshots)
        }
        other => other,
    }
}
