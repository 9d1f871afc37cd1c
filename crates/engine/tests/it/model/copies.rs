//! A replica, copies of the repository that are used as well and then brought together, and what a thief
//! plants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use strongroom_arena::{ArenaName, ListedArenas};
use strongroom_backend::{Backend, MemoryBackend};
use strongroom_base::{Cancel, Silent, SnapshotId};
use strongroom_engine::EngineError;
use strongroom_repository::{Collections, Repository, SnapshotList, Surroundings, list_snapshots};
use strongroom_testkit::tree::mutate;
use strongroom_upkeep::{PruneOptions, mirror, plan_mirror, prune, remember, replicate_within};

use super::held::{Held, Names};
use super::steps::{forget_held, is_loss};
use super::{Model, TREE};
use crate::possession::plant_honest;
use crate::read_back::salvage;
use crate::world::{PASSPHRASE, options, run};

/// What a copy made.
type Made = Vec<(SnapshotId, Held)>;

impl Model {
    /// A copy of the repository is used beside it, and then both are brought together: nothing that
    /// a snapshot of either needs is lost. While a collection is open in one of them, that must not
    /// be done (`docs/concurrency.md`).
    pub fn use_a_copy(&mut self) {
        if is_collecting(&self.open()) {
            return;
        }
        let copy = Arc::new(MemoryBackend::from_snapshot(self.world.objects.snapshot()));
        self.note("a copy is made");
        let before = self.expected.clone();
        let claimed = self.claimed.clone();
        let Some(mut made) = self.use_beside(&copy) else { return };
        for _ in 0..self.random.below(4) {
            match self.random.below(5) {
                0 | 3 => self.backup(),
                1 => self.forget(),
                4 => {
                    self.lose_a_summary();
                    self.repair();
                    self.back_up(true);
                }
                _ => self.prune(),
            }
        }
        self.check_snapshots();
        if is_collecting(&self.open()) {
            return self.note("the copy is dropped: this one is collecting");
        }
        made.extend(self.keep_after_all(&copy, before));
        let objects = self.world.objects.clone();
        if self.random.once_in(2) {
            self.note("brought together by a copy of what is missing");
            let here = objects.snapshot();
            for (name, bytes) in copy.snapshot() {
                if !here.contains_key(&name) {
                    objects.create(&name, &bytes).unwrap();
                }
            }
        } else {
            self.note("brought together by replicate");
            let limits = self.world.limits;
            replicate_within(&limits, &*copy, &*objects, &Silent, &Cancel::new()).unwrap();
        }
        self.was_merged = true;
        // What a repair has taken away meanwhile is there again.
        let there = objects.snapshot();
        self.claimed.extend(claimed.into_iter().filter(|name| there.contains_key(name)));
        let repository = self.open();
        let collections = Collections::read(&repository).unwrap();
        let there = list_snapshots(&self.open_beside(&copy)).unwrap();
        let here = list_snapshots(&repository).unwrap();
        for (id, held) in made {
            let is_listed = |list: &SnapshotList| {
                list.snapshots.iter().chain(&list.forgotten).any(|snapshot| snapshot.id == id)
            };
            let what = format!("seed {}: {} of the copy", self.log.seed, id.short());
            assert!(is_listed(&here) || collections.took(id) || !is_listed(&there), "{what}");
            if is_listed(&here) {
                self.expected.insert(id, held);
            }
        }
    }

    /// A snapshot that this repository has given up since the copy was made is forgotten in the copy and
    /// taken back there, so it stays in both.
    fn keep_after_all(
        &mut self,
        copy: &Arc<MemoryBackend>,
        mut before: BTreeMap<SnapshotId, Held>,
    ) -> Option<(SnapshotId, Held)> {
        let repository = self.open_beside(copy);
        let there = list_snapshots(&repository).unwrap();
        let here = list_snapshots(&self.open()).unwrap();
        let has = |list: &SnapshotList, id| list.all().any(|snapshot| snapshot.id == id);
        before.retain(|id, _| has(&there, *id) && !has(&here, *id));
        let (id, held) = before.pop_first()?;
        let forgotten = forget_held(&repository, &[id]);
        self.unless_lost("forget before it is taken back", forgotten)?;
        let taken_back = remember(&repository, &[id]);
        self.unless_lost("taken back", taken_back)?;
        self.note(format!("{} is kept after all", id.short()));
        Some((id, held))
    }

    /// The replica follows the repository, snapshot by snapshot, and what it shows can be read.
    pub fn mirror(&mut self) {
        let replica: Arc<dyn Backend> = self.replica.clone();
        let limits = self.world.limits;
        let repository = Repository { limits, ..self.open() };
        let (monitor, cancel) = (&Silent, &Cancel::new());
        let copied = replicate_within(&limits, repository.backend(), &*replica, monitor, cancel);
        let Some(copied) = self.unless_lost("replicate", copied) else { return };
        let mirrored = plan_mirror(&repository, &replica)
            .and_then(|plan| mirror(&repository, &replica, &plan, monitor, cancel));
        self.note(format!("mirror: {mirrored:?}"));
        let is_excused =
            !self.ledger.is_clean() || !self.claimed.is_empty() || !copied.lost.is_empty();
        if is_excused {
            return;
        }
        mirrored.unwrap_or_else(|error| panic!("seed {}: mirror: {error}", self.log.seed));
        let there = self.open_beside(&self.replica);
        let listed = |repository| -> BTreeSet<SnapshotId> {
            list_snapshots(repository).unwrap().all().map(|snapshot| snapshot.id).collect()
        };
        let what = format!("seed {}: the replica", self.log.seed);
        let (has, wanted) = (listed(&there), listed(&self.open()));
        // What a collection removes that has not ended stays in the replica.
        let is_kept = is_collecting(&self.open()) && has.is_superset(&wanted);
        assert!(is_kept || has == wanted, "{what}: {has:?} for {wanted:?}");
        let tree = self.world.tree();
        for (id, held) in &self.expected {
            let what = format!("{what}: snapshot {}", id.short());
            let (kept, lost) = salvage(&there, *id, &held.top(&tree)).expect(&what);
            assert!(lost.is_empty(), "{what}: {lost:?}");
            held.check_kept(&kept, &lost, &tree, &what);
        }
    }

    /// A tree is changed and backed up into a copy, something is forgotten there, and collected.
    /// None if damage stops that.
    fn use_beside(&mut self, copy: &Arc<MemoryBackend>) -> Option<Made> {
        let repository = self.open_beside(copy);
        let mut made = Made::new();
        for _ in 0..1 + self.random.below(2) {
            std::thread::sleep(std::time::Duration::from_millis(10));
            mutate(&self.world.tree(), self.random.number(), TREE);
            let image = self.world.image();
            let stored = run(&repository, &options(&self.world.tree()), &Silent);
            let stored = self.unless_lost("backup of the copy", stored)?;
            let names = Names::within(&self.world.limits);
            made.push((stored.snapshot.id, Held::Tree(image, names)));
        }
        for _ in 0..self.random.below(3) {
            // What was made and collected in the copy alone looks removed here, because a copy does not
            // bring verdicts along: what is left of it stays, and a repair may commit it again.
            let made_there = made.iter().map(|(id, _)| *id);
            let ids: Vec<SnapshotId> = self.expected.keys().copied().chain(made_there).collect();
            if ids.is_empty() {
                break;
            }
            let id = *self.random.pick(&ids);
            // The wish comes with the copy.
            self.wished.insert(id);
            let forgotten = forget_held(&repository, &[id]);
            self.unless_lost("forget in the copy", forgotten)?;
        }
        let all = PruneOptions {
            unused_percent_max: 0,
            patience: std::time::Duration::ZERO,
            ..PruneOptions::default()
        };
        let pruned = prune(&repository, &all, &Silent, &Cancel::new());
        let pruned = self.unless_lost("prune of the copy", pruned)?;
        self.note(format!("prune of the copy: {:?}", pruned.carried));
        (!is_collecting(&repository)).then_some(made)
    }

    /// A result that only damage may spoil.
    fn unless_lost<T, E: Into<EngineError>>(
        &mut self,
        what: &str,
        result: Result<T, E>,
    ) -> Option<T> {
        match result.map_err(Into::into) {
            Ok(done) => Some(done),
            Err(error) => {
                let is_excused =
                    is_loss(&error) && (self.ledger.excuses_losses() || !self.claimed.is_empty());
                assert!(is_excused, "seed {}: {what}: {error}", self.log.seed);
                self.note(format!("{what}: {error}"));
                None
            }
        }
    }

    /// A copy, opened on a machine without a cache.
    fn open_beside(&self, copy: &Arc<MemoryBackend>) -> Repository {
        let surroundings = Surroundings { cache: None, ..self.world.over(copy.clone()) };
        self.world.open_with(surroundings, PASSPHRASE).unwrap()
    }

    /// A thief, who has a key of another domain, creates a generation over some arena.
    pub fn plant_generation(&mut self) {
        let Some(thief) = &self.thief else { return };
        let listed = ListedArenas::list(&*self.world.objects).unwrap();
        let names: Vec<ArenaName> = listed.newest().map(|newest| newest.name).collect();
        if names.is_empty() {
            return;
        }
        let over = *self.random.pick(&names);
        let greatest = ArenaName { generation: u32::MAX, ..over };
        let planted = if self.random.once_in(3) { Some(greatest) } else { over.next() };
        let Some(planted) = planted.filter(|name| !names.contains(name)) else { return };
        plant_honest(thief, planted);
        self.claimed.insert(planted.object());
        self.note(format!("planted: {}", planted.object()));
    }
}

fn is_collecting(repository: &Repository) -> bool {
    Collections::read(repository).unwrap().open.is_some()
}
