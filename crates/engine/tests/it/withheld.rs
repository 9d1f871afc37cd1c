//! What a place does not give (it waits in an archive, or this key may not read it) is neither
//! damaged nor lost, in any verb, and nothing takes its place.

use std::collections::BTreeMap;
use std::sync::Arc;

use strongroom_arena::envelope::{self, HEADROOM};
use strongroom_arena::{ArenaContent, ArenaName, CacheLimits, ListedArenas};
use strongroom_backend::{Backend, MemoryBackend, ObjectName, Withheld, read_all};
use strongroom_base::{Cancel, Severity, Silent};
use strongroom_repository::{ErrorKind, Hold, Repository, RepositoryError, list_snapshots};
use strongroom_testkit::damage::names_in;
use strongroom_testkit::{
    CallKind, Gives, Image, Listener, Random, RecordingBackend, WithholdingBackend,
};
use strongroom_upkeep::{
    AuditOptions, ForgetOptions, Periods, Policy, PruneOptions, RepairPlan, VerifyDepth,
    audit_replica, forget, hold, judge, may_recover, plan_losses, plan_recovery, plan_repair,
    prune, repair, replicate, verify, verify_objects, verify_within,
};

use crate::domains::put_only;
use crate::restore::{exactly, into, run_restore};
use crate::world::{ALL, LAPTOP, World, options, run};

const DEPTHS: [VerifyDepth; 2] = [VerifyDepth::Structure, VerifyDepth::Data];

/// Three versions of a tree, with deltas.
fn history(seed: u64) -> World {
    let world = World::new(seed);
    for version in 0..3 {
        world.backup();
        world.mutate(seed + version);
    }
    world
}

/// A place that withholds the arenas of which this is true.
fn withholding(
    world: &World,
    gives: Gives,
    is_withheld: impl Fn(ArenaName) -> bool + Send + Sync + 'static,
) -> Arc<WithholdingBackend<MemoryBackend>> {
    let rule = move |name: &ObjectName| match ArenaName::of(name) {
        Some(arena) if is_withheld(arena) => gives,
        _ => Gives::All,
    };
    Arc::new(WithholdingBackend::new(world.objects.clone(), rule))
}

fn is_data(arena: ArenaName) -> bool {
    ArenaContent::of(arena.id) == ArenaContent::Data
}

fn is_odd(arena: ArenaName) -> bool {
    arena.id.0[15] % 2 == 1
}

fn is_metadata(arena: ArenaName) -> bool {
    !is_data(arena)
}

fn any(_: ArenaName) -> bool {
    true
}

type Which = fn(ArenaName) -> bool;

/// Everything that a person may do to a repository of which a part sleeps.
#[test]
fn kept_1_6_what_waits_in_an_archive_is_neither_damaged_nor_lost() {
    let cases: [(&str, Which); 4] =
        [("data", is_data), ("metadata", is_metadata), ("some", is_odd), ("all", any)];
    for (number, (what, which)) in cases.into_iter().enumerate() {
        let world = history(9600 + 10 * number as u64);
        let place = withholding(&world, Gives::Archived, which);
        let before = world.objects.snapshot();
        let asleep = names_in(&before, "arenas");
        let asleep = asleep.iter().filter(|name| ArenaName::of(name).is_some_and(which)).count();
        assert!(asleep > 0, "{what}");
        let repository = world.open_over(place.clone()).unwrap();
        for depth in DEPTHS {
            let listener = Listener::new();
            let found = verify(&repository, depth, &listener, &Cancel::new()).unwrap();
            assert!(found.is_sound() && !found.is_complete(), "{what}: {:?}", found.faults);
            assert_eq!((&found.faults[..], &found.affected[..]), (&[][..], &[][..]), "{what}");
            assert_eq!(found.withheld.len(), asleep, "{what}");
            assert!(found.withheld.iter().all(|(_, why, _)| *why == Withheld::Archived));
            assert!(found.withheld_entries > 0 && found.lost_snapshots.is_empty(), "{what}");
            let heard = listener.problems();
            assert!(heard.iter().all(|heard| heard.severity < Severity::Damage), "{heard:?}");
            let keyless = verify_objects(&*place, depth, &Silent, &Cancel::new()).unwrap();
            assert_eq!((keyless.withheld.len(), keyless.is_sound()), (asleep, true), "{what}");
        }
        let mut plan = plan_repair(&*place, &Silent, &Cancel::new()).unwrap();
        assert_eq!((plan.steps.len(), plan.waiting.len()), (0, asleep), "{what}: {plan:?}");
        let affected = plan_losses(&repository, &mut plan, &Silent, &Cancel::new()).unwrap();
        assert_eq!((affected.len(), plan.steps.len()), (0, 0), "{what}");
        if may_recover(&repository).unwrap() {
            plan_recovery(&repository, &mut plan, &Silent, &Cancel::new()).unwrap();
        }
        assert_eq!(plan.lost_snapshots, [], "{what}");
        let outcome = repair(&repository, &plan, &Silent, &Cancel::new()).unwrap();
        assert_eq!((&outcome.lost[..], &outcome.affected[..]), (&[][..], &[][..]), "{what}");
        let target = MemoryBackend::new();
        let copied = replicate(&*place, &target, &Silent, &Cancel::new()).unwrap();
        assert_eq!((copied.withheld.len(), copied.lost.len()), (asleep, 0), "{what}");
        assert!(world.objects.snapshot() == before, "{what}: something was changed");
        for removal in [false, true] {
            if removal {
                let ids = crate::world::snapshot_ids(&repository);
                forget(&repository, &ids[..1]).unwrap();
            }
            let objects = names_in(&world.objects.snapshot(), "arenas");
            let pruned = prune(&repository, &ALL, &Silent, &Cancel::new());
            let error = pruned.expect_err("nothing is removed as long as a part is not read");
            assert_eq!(error.kind(), ErrorKind::Withheld, "{what}: {error}");
            assert!(error.to_string().contains("withholds"), "{what}: {error}");
            assert_eq!(names_in(&world.objects.snapshot(), "arenas"), objects, "{what}");
        }
        // And when it can be read again, it is as it was.
        place.now(|_| Gives::All);
        let repository = world.open_over(place).unwrap();
        let found = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
        assert!(found.is_sound() && found.is_complete(), "{what}: {:?}", found.faults);
        replicate(repository.backend(), &target, &Silent, &Cancel::new()).unwrap();
        prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
        let found = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
        assert!(found.is_sound() && found.is_complete(), "{what}: {:?}", found.faults);
    }
}

/// Reading a file of a snapshot.
#[test]
fn kept_1_6_reading_says_what_waits_and_reads_what_does_not() {
    let world = World::new(9650);
    let id = world.backup().snapshot.id;
    let place = withholding(&world, Gives::Archived, is_data);
    let repository = world.open_over(place.clone()).unwrap();
    let error = crate::read_back::read_back(&repository, id, &world.tree()).unwrap_err();
    assert!(!error.is_damage(), "{error}");
    assert_eq!(error.kind(), ErrorKind::Withheld, "{error}");
    place.now(|_| Gives::All);
    let repository = world.open_over(place).unwrap();
    world.assert_holds(&repository, id, &world.image(), "after it was brought back");
}

/// A restore brings what it can, names what waits, and leaves what exists as it is.
#[test]
fn kept_1_6_a_restore_leaves_out_what_waits_and_restores_the_rest() {
    let world = World::new(9655);
    let id = world.backup().snapshot.id;
    let listed = ListedArenas::list(&*world.objects).unwrap();
    let asleep = listed.newest().map(|newest| newest.name).find(|name| is_data(*name)).unwrap();
    let place = withholding(&world, Gives::Archived, move |arena| arena.id == asleep.id);
    let repository = world.open_over(place.clone()).unwrap();
    let target = world.folder.path().join("target");
    let tree = world.tree();
    let options = into(&tree, &target);
    let outcome = run_restore(&repository, id, &options).unwrap();
    let left_out = outcome.withheld.len() as u64;
    assert!(left_out > 0 && left_out < outcome.files, "{left_out} of {} files", outcome.files);
    assert_eq!((outcome.files_failed, outcome.damaged.len()), (left_out, 0));
    for (path, why) in &outcome.withheld {
        assert!(!path.exists() && why.contains("withholds"), "{}: {why}", path.display());
    }
    // Where something is, it stays.
    let (first, _) = &outcome.withheld[0];
    std::fs::write(first, b"of before").unwrap();
    let again = run_restore(&repository, id, &options).unwrap();
    assert_eq!(again.withheld, outcome.withheld);
    assert_eq!(std::fs::read(first).unwrap(), b"of before");
    // So does a directory, although it may be deleted.
    std::fs::remove_file(first).unwrap();
    std::fs::create_dir(first).unwrap();
    std::fs::write(first.join("inside"), b"of before").unwrap();
    let options = exactly(&tree, &target);
    let again = run_restore(&repository, id, &options).unwrap();
    assert_eq!(again.withheld, outcome.withheld);
    assert_eq!(std::fs::read(first.join("inside")).unwrap(), b"of before");
    place.now(|_| Gives::All);
    let repository = world.open_over(place).unwrap();
    let after = run_restore(&repository, id, &options).unwrap();
    assert_eq!((after.withheld.len(), after.files_failed, after.problems), (0, 0, 0));
    world.image().assert_same(&Image::of(&target), "after it was brought back");
}

/// A directory whose list of names waits is left out and named, the rest is restored, and nothing is
/// deleted from it.
#[test]
fn kept_5_a_restore_leaves_out_a_directory_that_waits() {
    let world = World::new(9656);
    world.backup();
    let metadata = || -> std::collections::BTreeSet<ArenaName> {
        let listed = ListedArenas::list(&*world.objects).unwrap();
        listed.newest().map(|newest| newest.name).filter(|name| is_metadata(*name)).collect()
    };
    let before = metadata();
    world.write("late/one", b"one");
    world.write("late/two", b"two");
    world.backup();
    let asleep: Vec<ArenaName> = metadata().difference(&before).copied().collect();
    world.write("other", b"other");
    let id = world.backup().snapshot.id;
    for gives in [Gives::Archived, Gives::Forbidden] {
        let kept = asleep.clone();
        let place = withholding(&world, gives, move |arena| kept.contains(&arena));
        let repository = world.open_over(place.clone()).unwrap();
        let target = world.folder.path().join(format!("target-{gives:?}"));
        let mut options = into(&world.tree(), &target);
        options.target.delete = true;
        std::fs::create_dir_all(target.join("late")).unwrap();
        std::fs::write(target.join("late/of before"), b"stays").unwrap();
        for dry_run in [true, false] {
            options.dry_run = dry_run;
            let outcome = run_restore(&repository, id, &options).unwrap();
            let named: Vec<_> = outcome.withheld.iter().map(|(path, _)| path.clone()).collect();
            assert_eq!(named, [target.join("late")], "{gives:?}");
            assert_eq!((outcome.damaged.len(), outcome.deleted), (0, 0), "{gives:?}");
        }
        assert_eq!(std::fs::read(target.join("other")).unwrap(), b"other");
        assert!(target.join("late/of before").exists() && !target.join("late/one").exists());
        place.now(|_| Gives::All);
        let repository = world.open_over(place).unwrap();
        let after = run_restore(&repository, id, &options).unwrap();
        assert_eq!((after.withheld.len(), after.deleted), (0, 1));
        world.image().assert_same(&Image::of(&target), "after it was brought back");
    }
}

/// A file of whose recipe a node waits is left out and named, and the rest is restored.
#[test]
fn kept_1_6_a_restore_leaves_out_a_file_whose_recipe_waits() {
    let mut world = World::bare(9657);
    world.limits.recipe_refs_max = 1;
    (world.limits.node_refs_min, world.limits.node_refs_max) = (2, 2);
    world.limits.batch_wants_max = 10;
    let mut bytes = Random::new(9657).noise(1 << 20);
    world.write("long", &bytes);
    let mut of_tree = options(&world.tree());
    of_tree.pack.deltas = false;
    run(&world.open(), &of_tree, &Silent).unwrap();
    let older = ListedArenas::list(&*world.objects).unwrap();
    let older: Vec<_> =
        older.newest().map(|newest| newest.name).filter(|it| is_metadata(*it)).collect();
    // The tree and the end of the recipe are new.
    let end = bytes.len() - 1000;
    Random::new(9658).fill(&mut bytes[end..]);
    world.write("long", &bytes);
    world.write("other", b"other");
    let id = run(&world.open(), &of_tree, &Silent).unwrap().snapshot.id;
    let place = withholding(&world, Gives::Archived, move |arena| older.contains(&arena));
    let repository = world.open_over(place.clone()).unwrap();
    let target = world.folder.path().join("target");
    // Nothing is there; the file as it should be; another one.
    for existing in [None, Some(bytes.clone()), Some(vec![7; bytes.len()])] {
        for patch in [false, true] {
            std::fs::create_dir(&target).unwrap();
            if let Some(existing) = &existing {
                std::fs::write(target.join("long"), existing).unwrap();
            }
            let mut into = into(&world.tree(), &target);
            into.target.patch = patch;
            let outcome = run_restore(&repository, id, &into).unwrap();
            let named: Vec<_> = outcome.withheld.iter().map(|(path, _)| path.clone()).collect();
            assert_eq!((named, outcome.files_failed), (vec![target.join("long")], 1));
            assert_eq!((outcome.problems, outcome.damaged.len()), (0, 0));
            assert_eq!(std::fs::read(target.join("other")).unwrap(), b"other");
            let left = std::fs::read(target.join("long")).ok();
            assert_eq!(left.is_some(), existing.is_some());
            assert!(patch || left == existing, "what exists is as it was");
            let names = std::fs::read_dir(&target).unwrap().count();
            assert_eq!(names, 1 + usize::from(existing.is_some()), "nothing is left over");
            std::fs::remove_dir_all(&target).unwrap();
        }
    }
    place.now(|_| Gives::All);
    let repository = world.open_over(place).unwrap();
    run_restore(&repository, id, &into(&world.tree(), &target)).unwrap();
    world.image().assert_same(&Image::of(&target), "after it was brought back");
}

/// Wishes, remarks and looks may wait, too: each counts as what it may say, and no verb ends.
#[test]
fn kept_1_6_what_the_owner_says_may_wait_and_no_verb_ends() {
    let world = World::new(9656);
    let laptop = put_only(&world, "laptop", LAPTOP);
    run(&laptop, &options(&world.tree()), &Silent).unwrap();
    let [wished, held, free] = [1, 2, 3].map(|turn| {
        world.mutate(turn);
        world.backup().snapshot.id
    });
    let owner = world.open();
    forget(&owner, &[wished]).unwrap();
    hold(&owner, &[held], &Hold { reason: "audit".to_owned(), until: None }).unwrap();
    prune(&owner, &PruneOptions { dry_run: false, ..ALL }, &Silent, &Cancel::new()).unwrap();
    forget(&owner, &[free]).unwrap();
    let names = world.objects.snapshot();
    for folder in ["arrivals", "remarks", "forgotten"] {
        assert!(!names_in(&names, folder).is_empty(), "{folder}");
    }
    let rule = |name: &ObjectName| match name.folder() {
        "arrivals" | "remarks" | "forgotten" => Gives::Archived,
        _ => Gives::All,
    };
    let place = Arc::new(WithholdingBackend::new(world.objects.clone(), rule));
    let repository = world.open_over(place).unwrap();
    let list = list_snapshots(&repository).unwrap();
    assert!(list.snapshots.iter().any(|snapshot| snapshot.id == free), "it may have been kept");
    let Err(RepositoryError::Held { .. }) = forget(&repository, &[held]) else {
        panic!("it may be held");
    };
    let all = list.snapshots.iter().collect::<Vec<_>>();
    let options = ForgetOptions {
        policy: &Policy { last: 9, ..Policy::default() },
        quarantine: 0,
        periods: &|_| Periods { hour: 0, day: 0, week: 0, month: 0, year: 0 },
        is_rehearsal: false,
    };
    judge(&repository, &list, &all, &options).unwrap();
    run(&repository, &crate::world::options(&world.tree()), &Silent).unwrap();
    let verified = verify(&repository, VerifyDepth::Structure, &Silent, &Cancel::new()).unwrap();
    assert!(verified.is_sound() && !verified.is_complete());
}

/// A machine without its cache cannot know what sleeping arenas hold.
#[test]
fn kept_1_6_a_backup_that_stores_again_says_so() {
    let world = World::new(9660).with_cache();
    let first = world.backup();
    assert!(first.snapshot.stats.bytes_new > 0);
    let place = withholding(&world, Gives::Archived, any);
    let backup = |world: &World| {
        let listener = Listener::new();
        let repository = world.open_over(place.clone()).unwrap();
        let outcome = run(&repository, &options(&world.tree()), &listener).unwrap();
        let said = listener.problems();
        let said = said.iter().filter(|heard| heard.message.contains("is stored again"));
        (outcome.snapshot.stats.bytes_new, said.count())
    };
    // With its cache it knows, and asks for nothing.
    let (new, said) = backup(&world);
    assert!(new == 0 && said == 0, "{new} new bytes, said {said} times");
    std::fs::remove_dir_all(world.cache.as_ref().unwrap()).unwrap();
    std::fs::create_dir(world.cache.as_ref().unwrap()).unwrap();
    let (new, said) = backup(&world);
    assert!(new > 0 && said == 1, "{new} new bytes, said {said} times");
}

/// A damaged arena whose deltas need bases that sleep: what cannot be read today is not left out.
#[test]
fn kept_1_6_a_rescue_waits_for_the_bases_of_its_deltas() {
    let world = history(9670);
    let repository = world.open();
    let store =
        strongroom_repository::ChunkReader::of_domain(&repository, "", CacheLimits::default());
    let reader = store.unwrap();
    let arenas: Vec<ArenaName> = names_in(&world.objects.snapshot(), "arenas")
        .iter()
        .filter_map(ArenaName::of)
        .filter(|name| is_data(*name))
        .collect();
    let bases_of = |name: &ArenaName| {
        let arena = reader.store().arena(name.id).unwrap();
        let bases = arena.summary.slots.owned_bases().map(|(_, base)| base.arena);
        bases.filter(|base| *base != name.id).collect::<Vec<_>>()
    };
    let delta = arenas.iter().find(|name| !bases_of(name).is_empty()).expect("there are deltas");
    let asleep = bases_of(delta);
    // Beyond parity: a third of its blocks, and not the one with the delta.
    let name = delta.object();
    let mut bytes = world.objects.read(&name, 0, 1 << 20).unwrap();
    let arena = reader.store().arena(delta.id).unwrap();
    let is_delta = |slot: &u32| arena.slot(*slot).is_some_and(|slot| !slot.bases.is_empty());
    let slot = arena.slots().map(|(slot, _)| slot).find(is_delta).unwrap();
    let (blocks, place) = (arena.summary.blocks.len(), arena.block_of(slot).unwrap());
    let third = blocks / 3;
    let damaged = if place > third { 0..=third } else { blocks - 1 - third..=blocks - 1 };
    assert!(!damaged.contains(&place) && third > 0, "{blocks} blocks");
    let (offset, length) = arena.span(damaged);
    bytes[offset as usize..offset as usize + length].fill(0xee);
    world.objects.replace(&name, &bytes).unwrap();
    let place = withholding(&world, Gives::Archived, move |arena| asleep.contains(&arena.id));
    let repository = world.open_over(place.clone()).unwrap();
    let before = world.objects.snapshot();
    let plan = plan_repair(&*place, &Silent, &Cancel::new()).unwrap();
    assert_eq!(plan.steps.len(), 1, "{:?}", plan.steps);
    let outcome = repair(&repository, &plan, &Silent, &Cancel::new()).unwrap();
    assert_eq!(outcome.postponed, [name], "{outcome:?}");
    assert!(world.objects.snapshot() == before, "it is as it was");
    place.now(|_| Gives::All);
    let repository = world.open_over(place.clone()).unwrap();
    let plan = plan_repair(&*place, &Silent, &Cancel::new()).unwrap();
    let outcome = repair(&repository, &plan, &Silent, &Cancel::new()).unwrap();
    assert!(outcome.postponed.is_empty() && outcome.rescued + outcome.lost.len() as u64 > 0);
}

/// Who may not read does not judge.
#[test]
fn kept_1_3_who_may_not_read_repairs_nothing() {
    let world = history(9680);
    let before = world.objects.snapshot();
    let cases: [(Gives, Which); 3] =
        [(Gives::Forbidden, any), (Gives::Forbidden, is_odd), (Gives::Front(2000), any)];
    for (gives, which) in cases {
        let place = withholding(&world, gives, which);
        let planned = plan_repair(&*place, &Silent, &Cancel::new());
        let error = planned.expect_err("who may not read cannot say what is damaged");
        assert_eq!(error.withheld(), Some(Withheld::Forbidden), "{gives:?}: {error}");
        let repository = world.open_over(place.clone()).unwrap();
        for depth in DEPTHS {
            let found = verify(&repository, depth, &Silent, &Cancel::new()).unwrap();
            assert!(found.is_sound() && !found.is_complete(), "{gives:?}: {:?}", found.faults);
        }
        let target = MemoryBackend::new();
        let copied = replicate(&*place, &target, &Silent, &Cancel::new()).unwrap();
        assert!(copied.lost.is_empty() && !copied.withheld.is_empty(), "{:?}", copied.lost);
        assert!(world.objects.snapshot() == before, "{gives:?}");
    }
}

/// A place that sends less than it has, and says so itself, has not lost anything by that.
#[test]
fn kept_1_3_a_short_answer_is_no_damage() {
    let world = history(9690);
    let before = world.objects.snapshot();
    for most in [300, 1000, 10_000, 30_000] {
        let place = withholding(&world, Gives::CutShort(most), any);
        let error = plan_repair(&*place, &Silent, &Cancel::new()).unwrap_err();
        assert!(!error.is_damage(), "{most}: {error}");
        assert!(error.to_string().contains("says that it has"), "{most}: {error}");
        let checked = verify_objects(&*place, VerifyDepth::Data, &Silent, &Cancel::new());
        assert!(checked.is_err_and(|error| !error.is_damage()), "{most}");
        let copied = replicate(&*place, &MemoryBackend::new(), &Silent, &Cancel::new());
        assert!(copied.is_err_and(|error| !error.is_damage()), "{most}");
        assert!(world.objects.snapshot() == before, "{most}");
    }
    // One that is short by the word of its place too is damaged.
    let name = names_in(&before, "arenas").into_iter().next().unwrap();
    world.objects.replace(&name, &before[&name][..1000]).unwrap();
    let plan = plan_repair(&*world.objects, &Silent, &Cancel::new()).unwrap();
    assert_eq!(plan.steps.len(), 1, "{:?}", plan.steps);
}

/// An audit of a place that computes no proofs reads an arena each time, and says what it did not.
#[test]
fn kept_1_9_an_audit_reads_an_arena_each_time_and_says_what_it_did_not_read() {
    let world = history(9700);
    let replica = MemoryBackend::new();
    replicate(&*world.objects, &replica, &Silent, &Cancel::new()).unwrap();
    let arenas = names_in(&replica.snapshot(), "arenas");
    let damaged = &arenas[arenas.len() / 2];
    let mut bytes = replica.read(damaged, 0, 1 << 20).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    replica.replace(damaged, &bytes).unwrap();
    let finds_it = |turn: &u64| {
        let read = VerifyDepth::Sample { percent: 1, turn: *turn };
        let options = AuditOptions { read, signatures: false };
        let entropy = strongroom_base::SeededEntropy::new(*turn);
        let found =
            audit_replica(&*world.objects, &replica, options, &entropy, &Silent, &Cancel::new());
        let found = found.unwrap();
        let others = found.objects - arenas.len() as u64;
        assert!(found.read > others, "at least one arena is read");
        assert_eq!(found.read + found.unread, found.objects);
        assert!(found.unread > 0 && found.unread_bytes > 0 && !found.is_complete());
        !found.faults.is_empty()
    };
    let found = (0..100).filter(finds_it).count();
    assert!(found > 0, "asked often enough, it reads every arena");
    let options = AuditOptions { read: VerifyDepth::Data, signatures: false };
    let entropy = strongroom_base::SeededEntropy::new(1);
    let all = audit_replica(&*world.objects, &replica, options, &entropy, &Silent, &Cancel::new());
    let all = all.unwrap();
    assert!(all.is_complete() && all.faults.len() == 1);
    // What waits in an archive there is no damage of the replica.
    let place = WithholdingBackend::new(Arc::new(replica), |name: &ObjectName| {
        if ArenaName::of(name).is_some() { Gives::Archived } else { Gives::All }
    });
    let cold = audit_replica(&*world.objects, &place, options, &entropy, &Silent, &Cancel::new());
    let cold = cold.unwrap();
    assert_eq!((cold.faults.len(), cold.withheld.len()), (0, arenas.len()));
    assert!(!cold.is_complete());
}

/// Small files of several versions lie in many arenas, and directories name them in another order.
#[test]
fn kept_1_8_verify_reads_in_proportion_to_what_is_stored() {
    let world = World::bare(9710);
    let mut random = Random::new(3);
    for version in 0..4_u64 {
        for number in 0..1500_u64 {
            if version == 0 || random.below(4) == 0 {
                let bytes = random.noise(20 + number as usize % 200);
                world.write(&format!("{:02}/{number:04}", number % 30), &bytes);
            }
        }
        world.backup();
    }
    let objects = world.objects.snapshot();
    let stored: usize = objects.values().map(Vec::len).sum();
    let arenas = names_in(&objects, "arenas").len();
    let place: Arc<RecordingBackend<MemoryBackend>> =
        Arc::new(RecordingBackend::new(world.objects.clone()));
    let repository: Repository = world.open_over(place.clone()).unwrap();
    // Each cache holds one thing, as if there were as much of everything as there can be.
    let limits = CacheLimits { summary_bytes: 0, block_bytes: 0, healed_bytes: 0 };
    place.take();
    let listener = Listener::new();
    let depth = VerifyDepth::Structure;
    let found = verify_within(&repository, depth, limits, &listener, &Cancel::new()).unwrap();
    assert!(found.is_sound() && found.is_complete(), "{:?}", found.faults);
    let calls = place.take();
    let reads = calls.iter().filter(|call| call.kind == CallKind::Read);
    let (mut bytes, mut openings) = (0, BTreeMap::<&str, usize>::new());
    for call in reads {
        bytes += call.bytes;
        if call.folder() == "arenas" && call.offset == 0 {
            *openings.entry(&call.name).or_default() += 1;
        }
    }
    assert!(arenas >= 10, "{arenas} arenas: too few to say");
    // All that is stored, not its metadata alone: the summaries of small files are in arenas of data.
    assert!(bytes <= 3 * stored as u64, "{bytes} bytes were read of {stored}");
    // Its ends, its slots, and its blocks, if it has trees.
    let most = openings.values().max().unwrap();
    assert!(*most <= 3, "an arena was opened {most} times");
    // Entries were counted as they came.
    let progress = listener.last_progress();
    assert!(progress.files >= found.objects + 4 * 1500, "{progress:?}");
    assert_eq!(Some(progress.files), progress.files_total);
}

/// A snapshot that cannot be read now may be read one day: nothing takes its place.
#[test]
fn kept_o7_what_cannot_be_read_now_is_not_committed_again() {
    let world = history(990);
    let name = names_in(&world.objects.snapshot(), "snapshots").remove(1);
    let newer = {
        let mut object = read_all(&*world.objects, &name).unwrap();
        let mut header = envelope::peek(&object).unwrap();
        let trailer = header.layout().trailer;
        header.required_features = 1;
        object[..HEADROOM].copy_from_slice(&header.pack());
        object[trailer..].copy_from_slice(&header.pack());
        object
    };
    let before = world.objects.snapshot();
    let cases = [(Gives::Archived, None), (Gives::Forbidden, None), (Gives::All, Some(newer))];
    for (gives, object) in cases {
        let what = format!("{gives:?}, {}", object.is_some());
        let objects = Arc::new(MemoryBackend::from_snapshot(before.clone()));
        if let Some(object) = &object {
            objects.replace(&name, object).unwrap();
        }
        let withheld = name.clone();
        let rule = move |asked: &ObjectName| if *asked == withheld { gives } else { Gives::All };
        let place = Arc::new(WithholdingBackend::new(objects.clone(), rule));
        let repository = world.open_over(place).unwrap();
        let mut plan = RepairPlan::default();
        plan_recovery(&repository, &mut plan, &Silent, &Cancel::new()).unwrap();
        assert_eq!(plan.lost_snapshots, [], "{what}");
        let found = verify(&repository, DEPTHS[0], &Silent, &Cancel::new()).unwrap();
        assert_eq!(found.lost_snapshots, [], "{what}");
        // What was planned while it was rubbish is not done when it is not.
        let rubbish = Arc::new(MemoryBackend::from_snapshot(before.clone()));
        rubbish.replace(&name, b"").unwrap();
        let spoilt = world.open_over(rubbish).unwrap();
        plan_recovery(&spoilt, &mut plan, &Silent, &Cancel::new()).unwrap();
        assert_eq!(plan.lost_snapshots.len(), 1, "{what}");
        let outcome = repair(&repository, &plan, &Silent, &Cancel::new()).unwrap();
        assert_eq!(outcome.recovered, 0, "{what}");
        let expected = object.as_ref().unwrap_or(&before[&name]);
        assert_eq!(objects.snapshot()[&name], *expected, "{what}");
    }
}

/// A server gives a machine that can only store no block: it reads its parent from what it keeps near. What the
/// owner's prune has rewritten is not there.
#[test]
fn a_machine_that_can_only_store_goes_on_after_a_prune() {
    let world = World::bare(9680).with_cache().far(true);
    put_only(&world, "laptop", LAPTOP);
    let back_up = |place: Arc<dyn Backend>| {
        let repository = world.open_with(world.over(world.seen(place)), LAPTOP).unwrap();
        run(&repository, &options(&world.tree()), &Silent).unwrap()
    };
    world.write("D/a", b"first");
    world.write("D/big", &Random::new(9680).noise(4 << 20));
    let first = back_up(world.objects.clone()).snapshot;
    world.write("D/a", b"the second");
    back_up(world.objects.clone());
    let owner = world.open();
    forget(&owner, &[first.id]).unwrap();
    let pruned = prune(&owner, &ALL, &Silent, &Cancel::new()).unwrap();
    assert!(pruned.carried.arenas_rewritten > 0, "{pruned:?}");
    let store = owner.arena_store(CacheLimits::default());
    let rule = move |name: &ObjectName| match ArenaName::of(name) {
        Some(arena) => Gives::Front(store.arena(arena.id).unwrap().span(0..=0).0),
        None => Gives::All,
    };
    let place = Arc::new(WithholdingBackend::new(world.objects.clone(), rule));
    for night in 0..3 {
        let made = back_up(place.clone());
        assert_eq!(made.written.data_chunks_new, 0, "night {night}");
        let is_read = (made.files_unchanged, made.files_changed) != (2, 0);
        assert_eq!(is_read, night == 0, "night {night}: {made:?}");
        world.assert_holds(&world.open(), made.snapshot.id, &world.image(), "after the prune");
    }
}
