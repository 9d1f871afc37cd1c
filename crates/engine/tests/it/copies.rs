//! Two copies of one repository that were both used, and then brought together: there is no attack, and
//! nothing that a snapshot of either needs may go.

use std::sync::Arc;

use strongroom_arena::{ArenaName, ListedArenas};
use strongroom_backend::{Backend, MemoryBackend};
use strongroom_base::{Cancel, Silent, SnapshotId};
use strongroom_repository::{Repository, list_snapshots};
use strongroom_testkit::{Image, Random};
use strongroom_upkeep::{
    PruneOptions, PruneOutcome, VerifyDepth, forget, prune, replicate, verify,
};

use crate::world::{World, options, run};

/// A copy of the repository, and what the snapshots that it made are of.
struct Side {
    objects: Arc<MemoryBackend>,
    made: Vec<(SnapshotId, Image)>,
}

impl Side {
    fn copy_of(world: &World, made: &[(SnapshotId, Image)]) -> Self {
        let objects = Arc::new(MemoryBackend::from_snapshot(world.objects.snapshot()));
        Self { objects, made: made.to_vec() }
    }

    fn open(&self, world: &World) -> Repository {
        world.open_over(self.objects.clone()).unwrap()
    }

    fn back_up(&mut self, world: &World) {
        let made = run(&self.open(world), &options(&world.tree()), &Silent).unwrap();
        self.made.push((made.snapshot.id, world.image()));
    }

    fn prune(&self, world: &World) -> PruneOutcome {
        let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
        prune(&self.open(world), &all, &Silent, &Cancel::new()).unwrap()
    }

    /// Forgets one of the snapshots that are listed, and collects.
    fn forget_one(&self, world: &World, random: &mut Random) {
        let repository = self.open(world);
        let list = list_snapshots(&repository).unwrap();
        let number = random.below(list.snapshots.len() as u64);
        let chosen = &list.snapshots[usize::try_from(number).unwrap()];
        forget(&repository, &[chosen.id]).unwrap();
        self.prune(world);
    }

    fn assert_all_holds(&self, world: &World, known: &[(SnapshotId, Image)], when: &str) {
        let repository = self.open(world);
        let listed = list_snapshots(&repository).unwrap();
        assert!(!listed.snapshots.is_empty(), "{when}");
        for snapshot in &listed.snapshots {
            let (_, image) = known.iter().find(|(id, _)| *id == snapshot.id).unwrap();
            world.assert_holds(&repository, snapshot.id, image, when);
        }
    }

    fn several(&self) -> usize {
        let listed = ListedArenas::list(&*self.objects).unwrap();
        let ids = listed.newest().map(|newest| newest.name.id);
        ids.filter(|id| listed.generations(*id).len() > 1).count()
    }
}

/// Every object of the one that the other lacks, as `cp -rn` copies them.
fn copy_missing(from: &Side, to: &Side) {
    for (name, bytes) in from.objects.snapshot() {
        if !to.objects.snapshot().contains_key(&name) {
            to.objects.create(&name, &bytes).unwrap();
        }
    }
}

/// How two copies are brought together.
#[derive(Debug, Clone, Copy)]
enum Way {
    Replicate,
    CopyMissing,
}

/// Kept 2.1, `splitbrain3.sh` and `merged-copies.sh`: from seeds.
#[test]
fn kept_h1_copies_that_were_both_used_and_brought_together_lose_nothing() {
    let mut several = 0;
    for seed in 0..12 {
        let way = if seed % 2 == 0 { Way::Replicate } else { Way::CopyMissing };
        let world = World::new(5000 + seed);
        let mut random = Random::new(seed);
        let mut made = Vec::new();
        for change in 0..4 {
            let outcome = world.backup();
            made.push((outcome.snapshot.id, world.image()));
            world.mutate(seed * 100 + change);
        }
        let mut sides = [Side::copy_of(&world, &made), Side::copy_of(&world, &made)];
        for (number, side) in (1..).zip(&mut sides) {
            world.mutate(seed * 100 + 10 * number);
            side.back_up(&world);
            side.forget_one(&world, &mut random);
            if random.below(2) == 0 {
                side.forget_one(&world, &mut random);
            }
        }
        let known: Vec<_> = sides.iter().flat_map(|side| side.made.clone()).collect();
        let [one, other] = &sides;
        let when = |what: &str| format!("{seed}, {way:?}: {what}");
        match way {
            Way::Replicate => {
                let copied =
                    replicate(&*one.objects, &*other.objects, &Silent, &Cancel::new()).unwrap();
                let forks = copied.conflicts.iter().filter(|name| name.folder() == "collections");
                assert!(forks.count() > 0, "{}", when("it says that both were used"));
            }
            Way::CopyMissing => copy_missing(one, other),
        }
        several += other.several();
        other.assert_all_holds(&world, &known, &when("brought together"));
        let repository = other.open(&world);
        let verified = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
        assert_eq!(verified.several_generations.len(), other.several(), "{}", when("named"));
        assert!(verified.is_sound(), "{}: {:?}", when("sound"), verified.faults);
        other.prune(&world);
        other.assert_all_holds(&world, &known, &when("pruned"));
        while list_snapshots(&repository).unwrap().snapshots.len() > 1 {
            other.forget_one(&world, &mut random);
            other.assert_all_holds(&world, &known, &when("forgotten and pruned"));
        }
    }
    assert!(several > 5, "{several}: arenas in several generations occur");
}

/// Two rewritings of one arena that differ have different names, so a copy by name loses neither.
#[test]
fn kept_h1_rewritings_of_two_copies_have_different_names() {
    let world = World::new(5100);
    let mut made = Vec::new();
    for change in 0..4 {
        let outcome = world.backup();
        made.push((outcome.snapshot.id, world.image()));
        world.mutate(change);
    }
    let sides = [Side::copy_of(&world, &made), Side::copy_of(&world, &made)];
    let mut rewritten = Vec::new();
    for (side, gone) in sides.iter().zip([0, 2]) {
        forget(&side.open(&world), &[made[gone].0]).unwrap();
        side.prune(&world);
        let names = side.objects.snapshot().into_iter();
        let names = names.filter_map(|(name, bytes)| Some((ArenaName::of(&name)?, bytes)));
        rewritten.push(names.filter(|(name, _)| name.generation > 0).collect::<Vec<_>>());
    }
    assert!(rewritten.iter().all(|names| !names.is_empty()), "both have rewritten arenas");
    for (name, bytes) in &rewritten[0] {
        let same = rewritten[1].iter().find(|(other, _)| other == name);
        assert!(same.is_none_or(|(_, other)| other == bytes), "{name:?}");
    }
}
