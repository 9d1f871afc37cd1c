//! Two copies of one repository that were both used, and then brought together: there is no attack, and
//! nothing that a snapshot of either needs may go.

pub mod fronts;
mod unmarked;

use std::sync::Arc;

use strongroom_arena::{ArenaName, ListedArenas};
use strongroom_backend::{Backend, MemoryBackend, ObjectName};
use strongroom_base::{Cancel, Silent, SnapshotId, Timestamp};
use strongroom_repository::{
    Collections, Hold, Remark, Repository, Wishes, change_remark, list_snapshots,
};
use strongroom_testkit::{CallKind, Calls, FaultKind, FaultPlan, FaultyBackend, Image, Random};
use strongroom_upkeep::{
    PruneOptions, PruneOutcome, VerifyDepth, forget, hold, mirror, plan_mirror, plan_repair, prune,
    release, remember, repair, replicate, verify,
};

use crate::domains::put_only;
use crate::possession::plant_honest;
use crate::world::{LAPTOP, World, options, run};

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

    /// The further generations of arenas.
    fn rewritten(&self) -> Vec<(ArenaName, Vec<u8>)> {
        let objects = self.objects.snapshot().into_iter();
        let arenas = objects.filter_map(|(name, bytes)| Some((ArenaName::of(&name)?, bytes)));
        arenas.filter(|(name, _)| name.generation > 0).collect()
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

    fn lists(&self, world: &World, id: SnapshotId) -> bool {
        let list = list_snapshots(&self.open(world)).unwrap();
        list.snapshots.iter().any(|snapshot| snapshot.id == id)
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

/// Backups of a tree that changes after each of them.
pub fn versions(world: &World, count: u64) -> Vec<(SnapshotId, Image)> {
    let back_up = |change| {
        let made = (world.backup().snapshot.id, world.image());
        world.mutate(change);
        made
    };
    (0..count).map(back_up).collect()
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
    let made = versions(&world, 4);
    let sides = [Side::copy_of(&world, &made), Side::copy_of(&world, &made)];
    let mut rewritten = Vec::new();
    for (side, gone) in sides.iter().zip([0, 2]) {
        forget(&side.open(&world), &[made[gone].0]).unwrap();
        side.prune(&world);
        rewritten.push(side.rewritten());
    }
    assert!(rewritten.iter().all(|names| !names.is_empty()), "both have rewritten arenas");
    for (name, bytes) in &rewritten[0] {
        let same = rewritten[1].iter().find(|(other, _)| other == name);
        assert!(same.is_none_or(|(_, other)| other == bytes), "{name:?}");
    }
}

/// Two copies that rewrite an arena alike make the same object of it, so neither is in the way of the other.
#[test]
fn two_copies_that_rewrite_an_arena_alike_make_one_object() {
    let world = World::new(5100);
    let made = versions(&world, 4);
    let sides = [Side::copy_of(&world, &made), Side::copy_of(&world, &made)];
    let mut rewritten = Vec::new();
    for side in &sides {
        // Each draws what the other does not.
        side.open(&world).surroundings.entropy.fill(&mut [0; 7]);
        forget(&side.open(&world), &[made[0].0]).unwrap();
        side.prune(&world);
        rewritten.push(side.rewritten());
    }
    assert!(!rewritten[0].is_empty(), "arenas were rewritten");
    assert_eq!(rewritten[0], rewritten[1]);
    let [one, other] = &sides;
    let mut copied = replicate(&*one.objects, &*other.objects, &Silent, &Cancel::new()).unwrap();
    copied.conflicts.retain(|name| ArenaName::of(name).is_some());
    assert_eq!(copied.conflicts, []);
}

/// A name whose generation one copy has removed is free there, and the other copy needs what it had. What
/// is planted under it meanwhile is not taken for it, though it be as long.
#[test]
fn what_is_planted_under_a_name_of_the_other_copy_is_not_taken_for_it() {
    for seed in [5400, 5401] {
        let is_honest = seed == 5400;
        let world = World::new(seed);
        let thief = put_only(&world, "laptop", LAPTOP);
        let made = versions(&world, 4);
        let sides = [Side::copy_of(&world, &made), Side::copy_of(&world, &made)];
        let [one, other] = &sides;
        forget(&other.open(&world), &[made[0].0]).unwrap();
        other.prune(&world);
        let before = one.objects.snapshot();
        let is_greater = |name: &ArenaName| name.generation > 0;
        let names = other.objects.snapshot().into_keys().filter_map(|name| ArenaName::of(&name));
        let free: Vec<ArenaName> =
            names.filter(is_greater).map(|name| ArenaName::first(name.id)).collect();
        assert!(!free.is_empty(), "arenas were rewritten");
        let thief = thief.copy_in(other.objects.clone());
        for name in &free {
            match is_honest {
                true => plant_honest(&thief, *name),
                false => {
                    let length = before[&name.object()].len();
                    other.objects.create(&name.object(), &vec![0x5c; length]).unwrap();
                }
            }
        }
        let copy = || replicate(&*one.objects, &*other.objects, &Silent, &Cancel::new()).unwrap();
        let mut copied = copy();
        copied.conflicts.sort();
        let objects: Vec<ObjectName> = free.iter().map(|name| name.object()).collect();
        match is_honest {
            true => {
                assert_eq!(copied.conflicts, objects);
                let repository = other.open(&world);
                let plan = plan_repair(&*other.objects, &Silent, &Cancel::new()).unwrap();
                let outcome = repair(&repository, &plan, &Silent, &Cancel::new()).unwrap();
                assert_eq!(outcome.taken_away, free.len() as u64);
                assert_eq!(copy().conflicts, []);
            }
            false => assert_eq!((copied.replaced, copied.conflicts), (free.len() as u64, vec![])),
        }
        for name in &objects {
            assert_eq!(other.objects.snapshot()[name], before[name], "{name}");
        }
        other.assert_all_holds(&world, &made, "brought together");
        let again = copy();
        assert_eq!((again.sent, again.conflicts), (0, vec![]));
    }
}

/// What is held, or taken back, in one copy is not removed there by what the other has decided: neither
/// when that comes by `cp -rn`, nor by a mirror.
#[test]
fn kept_o1_what_one_copy_keeps_is_not_removed_by_the_other_s_verdict() {
    for (seed, is_held) in [(5200, true), (5201, false)] {
        let world = World::new(seed);
        let made = versions(&world, 3);
        let first = made[0].0;
        if !is_held {
            forget(&world.open(), &[first]).unwrap();
        }
        let sides = [Side::copy_of(&world, &made), Side::copy_of(&world, &made)];
        let [one, other] = &sides;
        match is_held {
            true => {
                let reason = Hold { reason: "accounts".to_owned(), until: None };
                assert_eq!(hold(&other.open(&world), &[first], &reason).unwrap(), []);
                forget(&one.open(&world), &[first]).unwrap();
            }
            false => assert_eq!(remember(&other.open(&world), &[first]).unwrap(), []),
        }
        one.prune(&world);
        assert!(!one.lists(&world, first));
        if is_held {
            let target: Arc<dyn Backend> = other.objects.clone();
            let refused = plan_mirror(&one.open(&world), &target);
            let refused = refused.map(drop).unwrap_err().to_string();
            assert!(refused.contains("is held in it"), "{refused}");
        }
        copy_missing(one, other);
        for when in ["brought together", "pruned", "pruned again"] {
            assert!(other.lists(&world, first), "{when}");
            other.assert_all_holds(&world, &made, when);
            let repository = other.open(&world);
            let verified = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
            assert!(verified.is_sound(), "{when}: {:?}", verified.faults);
            other.prune(&world);
        }
        release(&other.open(&world), &[first]).unwrap();
        forget(&other.open(&world), &[first]).unwrap();
        other.prune(&world);
        other.prune(&world);
        assert!(!other.lists(&world, first), "it goes when it is forgotten here, too");
        other.assert_all_holds(&world, &made, "at the end");
    }
}

/// A decision of the other copy that was not carried out yet, and that would remove what this one needs:
/// it ends, removes nothing of that, and collections go on.
#[test]
fn kept_o2_an_open_collection_of_the_other_copy_stops_no_prune() {
    let mut put_off = 0;
    for seed in 0..6 {
        let world = World::new(5300 + seed);
        let mut made = Vec::new();
        let image = world.image();
        made.push((world.backup().snapshot.id, image.clone()));
        let removed = std::fs::read_dir(world.tree()).unwrap().flatten().next().unwrap().path();
        let aside = world.tree().with_extension("aside");
        std::fs::rename(&removed, &aside).unwrap();
        made.push((world.backup().snapshot.id, world.image()));
        forget(&world.open(), &[made[0].0]).unwrap();
        let mut sides = [Side::copy_of(&world, &made), Side::copy_of(&world, &made)];
        std::fs::rename(&aside, &removed).unwrap();
        sides[1].back_up(&world);
        let [one, other] = &sides;
        // A collection that decides, and comes to no end: every removal and creation of arenas fails.
        let calls = Calls::of(&[CallKind::Remove]);
        let broken = FaultPlan::lasting(calls, 0, FaultKind::Io);
        let faulty = Arc::new(FaultyBackend::new(one.objects.clone(), broken));
        let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
        let repository = world.open_over(faulty).unwrap();
        prune(&repository, &all, &Silent, &Cancel::new()).unwrap_err();
        let has_verdict = |(name, _): (ObjectName, Vec<u8>)| name.file() == "1.verdict";
        assert!(one.objects.snapshot().into_iter().any(has_verdict), "it has decided");
        copy_missing(one, other);
        let replica = Side { objects: Arc::new(MemoryBackend::new()), made: other.made.clone() };
        replicate(&*other.objects, &*replica.objects, &Silent, &Cancel::new()).unwrap();
        for when in ["the first prune", "the second"] {
            put_off += other.prune(&world).carried.arenas_put_off;
            other.assert_all_holds(&world, &other.made, when);
            let repository = other.open(&world);
            let verified = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
            assert!(verified.is_sound(), "{when}: {:?}", verified.faults);
            assert!(Collections::read(&repository).unwrap().open.is_none(), "{when}");
            let target: Arc<dyn Backend> = replica.objects.clone();
            let plan = plan_mirror(&repository, &target).unwrap();
            mirror(&repository, &target, &plan, &Silent, &Cancel::new()).unwrap();
            replica.assert_all_holds(&world, &other.made, "the replica of it");
        }
        let newest = other.made.last().unwrap().0;
        let others: Vec<SnapshotId> = list_snapshots(&other.open(&world))
            .unwrap()
            .snapshots
            .iter()
            .map(|snapshot| snapshot.id)
            .filter(|id| *id != newest)
            .collect();
        forget(&other.open(&world), &others).unwrap();
        other.prune(&world);
        other.assert_all_holds(&world, &other.made, "after more was forgotten");
    }
    assert!(put_off > 0, "what a snapshot needs was put off");
}

/// Without room for a single arena, what can be removed without writing one is removed, each time.
#[test]
fn kept_o3_a_full_disk_keeps_no_later_prune_from_removing() {
    let world = World::new(5400);
    let mut made = versions(&world, 3);
    let later: Vec<SnapshotId> = (0..4_u64)
        .map(|number| {
            world.write("large", &Random::new(number).noise(200_000));
            world.backup().snapshot.id
        })
        .collect();
    world.write("large", b"small");
    made.push((world.backup().snapshot.id, world.image()));
    let full =
        FaultPlan::lasting(Calls::of(&[CallKind::Create]).within("arenas"), 0, FaultKind::NoSpace);
    let faulty = Arc::new(FaultyBackend::new(world.objects.clone(), full));
    let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
    let repository = world.open_over(faulty).unwrap();
    forget(&repository, &[made.remove(0).0]).unwrap();
    let first = prune(&repository, &all, &Silent, &Cancel::new()).unwrap();
    assert!(first.carried.arenas_put_off > 0, "{:?}", first.carried);
    for forgotten in later {
        forget(&repository, &[forgotten]).unwrap();
        let outcome = prune(&repository, &all, &Silent, &Cancel::new()).unwrap();
        assert!(outcome.carried.arenas_removed > 0, "{:?}", outcome.carried);
    }
    // With room again, all is as it should be.
    let repository = world.open();
    prune(&repository, &all, &Silent, &Cancel::new()).unwrap();
    for (id, image) in &made {
        world.assert_holds(&repository, *id, image, "at the end");
    }
    let verified = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
    assert!(verified.is_sound(), "{:?}", verified.faults);
}

/// A hold in one copy, and one that the other made and released for itself; or two of different length.
#[test]
fn holds_of_two_copies_are_united() {
    let until = |time| Hold { reason: "mine".to_owned(), until: Some(Timestamp(time)) };
    let tax = Hold { reason: "tax".to_owned(), until: None };
    for (mine, is_released) in [(until(i64::MAX - 1), true), (until(i64::MAX - 1), false)] {
        for turned in [false, true] {
            let world = World::bare(5501);
            world.write("file", b"content");
            let id = world.backup().snapshot.id;
            let sides = [Side::copy_of(&world, &[]), Side::copy_of(&world, &[])];
            hold(&sides[0].open(&world), &[id], &tax).unwrap();
            hold(&sides[1].open(&world), &[id], &mine).unwrap();
            if is_released {
                release(&sides[1].open(&world), &[id]).unwrap();
            }
            let (from, to) = if turned { (0, 1) } else { (1, 0) };
            copy_missing(&sides[from], &sides[to]);
            let held = Wishes::read(&sides[to].open(&world)).unwrap().hold(id);
            assert_eq!(held.as_ref(), Some(&tax), "released: {is_released}, turned: {turned}");
            release(&sides[to].open(&world), &[id]).unwrap();
            assert_eq!(Wishes::read(&sides[to].open(&world)).unwrap().hold(id), None);
        }
    }
}

/// A hold in one copy and a label in the other: brought together, both count, in any order in which
/// they were made, and copied in any direction.
#[test]
fn kept_o15_a_hold_of_one_copy_outlives_what_the_other_says() {
    for number in 0..8 {
        let world = World::bare(5500);
        world.write("file", b"content");
        let id = world.backup().snapshot.id;
        let sides = [Side::copy_of(&world, &[]), Side::copy_of(&world, &[])];
        let audit = Hold { reason: "audit".to_owned(), until: None };
        let (holder, other) = (&sides[number % 2], &sides[1 - number % 2]);
        let label = || {
            let tax = |remark: &mut Remark| remark.labels = Some(vec!["tax".to_owned()]);
            change_remark(&other.open(&world), id, tax).unwrap();
        };
        label();
        hold(&holder.open(&world), &[id], &audit).unwrap();
        for more in 0..number / 2 {
            let said = |remark: &mut Remark| remark.description = more.to_string();
            change_remark(&other.open(&world), id, said).unwrap();
        }
        let [one, two] = &sides;
        copy_missing(one, two);
        let repository = two.open(&world);
        let wishes = Wishes::read(&repository).unwrap();
        assert_eq!(wishes.hold(id), Some(audit), "{number}");
        assert_eq!(wishes.remarks().about(id).labels, Some(vec!["tax".to_owned()]), "{number}");
        forget(&repository, &[id]).unwrap_err();
        // What is said now is said with all of that in mind.
        release(&repository, &[id]).unwrap();
        let wishes = Wishes::read(&repository).unwrap();
        assert_eq!(wishes.hold(id), None, "{number}");
        assert_eq!(wishes.remarks().about(id).labels, Some(vec!["tax".to_owned()]), "{number}");
        forget(&repository, &[id]).unwrap();
    }
}
