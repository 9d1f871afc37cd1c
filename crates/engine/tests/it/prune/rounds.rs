//! One call of `prune`: how many collections it carries out, what it leaves for the
//! next, and what its sums say.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_arena::ListedArenas;
use strongroom_base::{Fingerprint, Location};
use strongroom_testkit::Listener;
use strongroom_upkeep::{Carried, Later, Worth, prune_later};

use super::*;
use crate::world::reader_of_everything;

/// The arena whose generation has this name.
fn arena_of(name: &ObjectName) -> String {
    name.file().split('.').next().unwrap().to_owned()
}

/// The sums of a prune are what these two states differ in.
#[track_caller]
fn check_sums(before: &Objects, after: &Objects, carried: Carried) {
    let (gone, new) = (differing(before, after, "arenas"), differing(after, before, "arenas"));
    let left: BTreeSet<String> = names_in(after, "arenas").iter().map(arena_of).collect();
    let removed: BTreeSet<String> = gone.iter().map(|(name, _)| arena_of(name)).collect();
    let bytes = |arenas: &[(&ObjectName, u64)]| arenas.iter().map(|(_, bytes)| bytes).sum();
    let expected = Carried {
        snapshots: differing(before, after, "snapshots").len() as u64,
        arenas_removed: removed.difference(&left).count() as u64,
        arenas_rewritten: new.len() as u64,
        rewritten_bytes: bytes(&new),
        removed_bytes: bytes(&gone),
        ..Carried::default()
    };
    assert_eq!(carried, expected);
}

/// A prune that ends an earlier collection does not leave what was forgotten since for the next night.
#[test]
fn a_prune_that_ends_an_earlier_one_goes_on_with_the_next() {
    let history = History::new(21, &[0, 2]);
    let world = &history.world;
    let repository = world.open();
    let session = Session::begin(&repository, "host").unwrap();
    assert_eq!(collect(&repository).unwrap().waiting.len(), 1);
    drop(session);
    let (later, _) = history.kept[0];
    forget(&repository, &[later]).unwrap();

    let before = world.objects.snapshot();
    let outcome = collect(&repository).unwrap();
    let after = world.objects.snapshot();
    assert_eq!(outcome.collection, Some(2));
    let gone: BTreeSet<SnapshotId> = outcome.snapshots.iter().map(|going| going.id).collect();
    let forgotten = history.forgotten.iter().copied().chain([later]).collect();
    assert_eq!(gone, forgotten);
    assert!(outcome.carried.arenas_removed > 0 && outcome.carried.arenas_rewritten > 0);
    check_sums(&before, &after, outcome.carried);
    let collections = Collections::read(&repository).unwrap();
    assert_eq!((collections.last, collections.open), (2, None));
}

/// A limit of time ends the call, not only the collection: of an arena a night, each night does one.
#[test]
fn a_prune_that_is_late_does_not_begin_again() {
    let history = History::new(23, &[1, 2, 3, 4]);
    let hasty = PruneOptions { time_max: Some(Duration::ZERO), ..ALL };
    let mut left = None;
    let mut times = 0;
    loop {
        let world = &history.world;
        let before = world.objects.snapshot();
        let outcome = prune(&world.open(), &hasty, &Silent, &Cancel::new()).unwrap();
        let carried = Carried { arenas_left: 0, ..outcome.carried };
        check_sums(&before, &world.objects.snapshot(), carried);
        if outcome.carried.arenas_left == 0 {
            break;
        }
        if let Some(left) = left {
            assert_eq!(outcome.carried.arenas_left + 1, left);
        }
        left = Some(outcome.carried.arenas_left);
        times += 1;
    }
    assert!(times > 2, "{times}");
}

/// Of what earlier verdicts removed, a late operation has brought something back.
#[test]
fn what_comes_back_is_removed_by_the_next_prune() {
    let history = History::new(24, &[0, 1, 2]);
    let world = &history.world;
    let before = world.objects.snapshot();
    collect(&world.open()).unwrap();
    let after = world.objects.snapshot();
    let left: BTreeSet<String> = names_in(&after, "arenas").iter().map(arena_of).collect();
    let (arenas, snapshots) =
        (differing(&before, &after, "arenas"), differing(&before, &after, "snapshots"));
    let back: Vec<&ObjectName> = arenas.iter().chain(&snapshots).map(|(name, _)| *name).collect();
    for name in &back {
        world.objects.create(name, &before[*name]).unwrap();
    }
    forget(&world.open(), &[history.kept[0].0]).unwrap();
    let full = world.objects.snapshot();
    let outcome = collect(&world.open()).unwrap();
    let swept = world.objects.snapshot();
    check_sums(&full, &swept, outcome.carried);
    let whole =
        |name: &&&ObjectName| name.folder() == "snapshots" || !left.contains(&arena_of(name));
    assert!(back.iter().filter(whole).count() > snapshots.len(), "no arena was removed whole");
    for name in back.iter().filter(whole) {
        assert!(!swept.contains_key(*name), "{name} is there");
    }
}

fn rehearse(repository: &Repository, options: PruneOptions) -> Worth {
    let rehearsal = PruneOptions { dry_run: true, ..options };
    prune(repository, &rehearsal, &Silent, &Cancel::new()).unwrap().worth.unwrap()
}

/// A rehearsal says what is done, and about as many bytes; and what is left unused is within the share that
/// may be.
#[test]
fn a_rehearsal_says_what_it_is_worth() {
    let history = History::new(26, &[1, 2, 3]);
    let repository = history.world.open();
    let before = history.world.objects.snapshot();
    let all = rehearse(&repository, ALL);
    assert_eq!(all.unused_bytes, 0, "{all:?}");
    assert!(all.arenas_removed > 0 && all.arenas_rewritten > 2, "{all:?}");

    let at = |percent| rehearse(&repository, PruneOptions { unused_percent_max: percent, ..ALL });
    let nothing = at(u8::MAX);
    assert_eq!(nothing.arenas_removed, all.arenas_removed);
    assert_eq!((nothing.arenas_rewritten, nothing.rewritten_bytes), (0, 0));
    let whole = all.freed_bytes - nothing.unused_bytes;
    assert_eq!(nothing.freed_bytes, whole, "that of what goes as a whole");
    let needed = stored_bytes(&before) as u64 - all.freed_bytes;
    let (mut last, mut shares) = (all, Vec::new());
    for percent in 1..100 {
        let worth = at(percent);
        assert_eq!(worth.freed_bytes + worth.unused_bytes, all.freed_bytes, "{percent} %");
        assert!(worth.unused_bytes * 100 <= needed * u64::from(percent), "{percent} %: {worth:?}");
        // The last that is rewritten is one of which more would be unused without it.
        assert!(worth.arenas_rewritten <= last.arenas_rewritten, "{percent} %: {worth:?}");
        if worth.arenas_rewritten < last.arenas_rewritten {
            assert!(last.unused_bytes * 100 < worth.unused_bytes * 100, "{last:?} {worth:?}");
            let before = needed / 100 * u64::from(percent - 1);
            assert!(worth.unused_bytes > before, "{percent} %: {worth:?}");
            let freed = last.freed_bytes - worth.freed_bytes;
            let rewritten = last.rewritten_bytes - worth.rewritten_bytes;
            shares.push(freed * 1000 / (freed + rewritten));
        }
        last = worth;
    }
    // What wins least for its length is given up first.
    assert!(shares.is_sorted() && shares.first() < shares.last(), "{shares:?}");

    let within = |bytes| rehearse(&repository, PruneOptions { rewritten_max: Some(bytes), ..ALL });
    assert_eq!(within(all.rewritten_bytes), all);
    let less = within(all.rewritten_bytes - 1);
    assert_eq!(less.arenas_rewritten + 1, all.arenas_rewritten);
    assert_eq!(less.freed_bytes + less.unused_bytes, all.freed_bytes);

    let outcome = collect(&repository).unwrap();
    assert_eq!(outcome.worth, Some(all));
    let carried = outcome.carried;
    assert_eq!(carried.arenas_removed, all.arenas_removed);
    assert_eq!(carried.arenas_rewritten, all.arenas_rewritten);
    let is_about = |real: u64, said: u64| real.abs_diff(said) * 10 <= real;
    assert!(is_about(carried.rewritten_bytes, all.rewritten_bytes), "{carried:?} {all:?}");
    let freed = carried.removed_bytes - carried.rewritten_bytes;
    assert!(is_about(freed, all.freed_bytes), "{carried:?} {all:?}");
}

/// Two machines prune at the same hour: what one condemns, and says that it can be brought back, waits for a
/// verification by the other, too.
#[test]
fn what_another_has_just_condemned_waits_for_the_next_prune() {
    let history = History::new(31, &[0, 2]);
    let world = &history.world;
    let arenas = || names_in(&world.objects.snapshot(), "arenas");
    let before = arenas();
    let (surroundings, is_first) = (world.surroundings(), AtomicBool::new(true));
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        let is_plan = call.kind == CallKind::Create && call.name.starts_with("collections/");
        if is_plan && is_first.swap(false, Ordering::Relaxed) {
            let other = Repository::open(surroundings.clone(), PASSPHRASE).unwrap();
            let later = prune_later(&other, &ALL, &Silent, &Cancel::new()).unwrap();
            assert!(matches!(later, Later::Pruned(outcome) if outcome.condemned));
        }
    });
    let repository = world.open_over(Arc::new(acting)).unwrap();
    let later = prune_later(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    let Later::Pruned(outcome) = later else { panic!("{later:?}") };
    assert!(outcome.condemned, "{outcome:?}");
    assert_eq!(arenas(), before, "nothing was removed");
    let open = Collections::read(&world.open()).unwrap().open.unwrap();
    assert!(!open.decided);
    // The next one verifies it, and removes it.
    let later = prune_later(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
    assert!(matches!(later, Later::Pruned(_)), "{later:?}");
    assert_ne!(arenas(), before);
}

/// A plan with room for a few snapshots leaves the others to the next one, and condemns no arena: what the
/// others need stays, because their wishes can be taken back.
#[test]
fn what_has_no_room_in_a_plan_is_left_for_the_next() {
    let mut history = History::new(29, &[0, 1, 2, 3, 4]);
    history.world.limits.plan_snapshots_bytes_max = 130;
    let mut gone: Vec<SnapshotId> = Vec::new();
    let (mut times, mut planned) = (0, Vec::new());
    let arenas = |history: &History| names_in(&history.world.objects.snapshot(), "arenas");
    let before = arenas(&history);
    while gone.len() < history.forgotten.len() {
        let later = prune_later(&history.world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
        let Later::Pruned(_) = later else { panic!("{later:?}") };
        gone.append(&mut planned);
        let open = Collections::read(&history.world.open()).unwrap().open;
        let Some(plan) = open.map(|open| open.selection) else { break };
        let bytes: usize = plan.snapshots.iter().map(Forgotten::packed_bytes_max).sum();
        assert!(bytes <= 130, "{bytes} bytes");
        planned = plan.snapshots.iter().map(|going| going.id).collect();
        assert!(planned.iter().all(|id| !gone.contains(id)));
        let left = history.forgotten.len() - gone.len() - planned.len();
        assert_eq!(plan.slots.is_empty(), left > 0, "{left} left");
        assert!(left == 0 || bytes + plan.snapshots[0].packed_bytes_max() > 130, "room for more");
        assert_eq!(arenas(&history), before, "{left} left");
        times += 1;
    }
    assert!(times > 1);
    assert!(arenas(&history) != before);
    history.check_done(&history.world.open(), "after all");

    // At once, one after the other.
    let mut history = History::new(29, &[0, 1, 2, 3, 4]);
    history.world.limits.plan_snapshots_bytes_max = 130;
    let dry = PruneOptions { dry_run: true, ..ALL };
    let shown = prune(&history.world.open(), &dry, &Silent, &Cancel::new()).unwrap();
    let outcome = collect(&history.world.open()).unwrap();
    assert_eq!(outcome.snapshots.len(), history.forgotten.len());
    assert_eq!(shown.snapshots.len(), history.forgotten.len());
    assert_eq!(shown.worth.unwrap().arenas_removed, outcome.carried.arenas_removed);
    history.check_done(&history.world.open(), "at once");
}

/// On a full disk what is only removed makes the room for what is rewritten.
#[test]
fn what_goes_as_a_whole_goes_first() {
    let history = History::new(30, &[1, 2, 3]);
    let recording = Arc::new(RecordingBackend::new(history.world.objects.clone()));
    let repository = history.world.open_over(recording.clone()).unwrap();
    let outcome = collect(&repository).unwrap();
    let calls = recording.take();
    let is_of_arena = |call: &&Call, kind| call.kind == kind && call.folder() == "arenas";
    let rewritten: Vec<usize> =
        (0..calls.len()).filter(|at| is_of_arena(&&calls[*at], CallKind::Create)).collect();
    let removed: BTreeSet<&str> = calls[..rewritten[0]]
        .iter()
        .filter(|call| is_of_arena(call, CallKind::Remove))
        .map(|call| call.name.as_str())
        .collect();
    assert_eq!(removed.len() as u64, outcome.carried.arenas_removed);
    assert!(removed.len() > 1 && rewritten.len() > 1);
}

/// A plan with room for a few slots leaves the other arenas to the next prune.
#[test]
fn what_has_no_room_for_its_slots_is_left_for_the_next() {
    let mut history = History::new(31, &[1, 2, 3]);
    let before = stored_bytes(&history.world.objects.snapshot());
    history.world.limits.plan_slots_bytes_max = 130;
    let mut times = 0;
    while collect(&history.world.open()).unwrap().collection.is_some() {
        history.check(&history.world.open(), "a part of it");
        times += 1;
        assert!(times < 50, "it never ends");
    }
    assert!(times > 1, "it was done at once");
    history.check_done(&history.world.open(), "all of it");
    // In the end as little is left as if there had been room.
    let left = stored_bytes(&history.world.objects.snapshot());
    let other = History::new(31, &[1, 2, 3]);
    collect(&other.world.open()).unwrap();
    let expected = stored_bytes(&other.world.objects.snapshot());
    let differ = left.abs_diff(expected);
    assert!(differ * 50 <= before - expected, "{left} bytes of {before}, not {expected}");
}

/// Another collector carries out the verdict while this one does, and is faster with each arena.
#[test]
fn a_verdict_is_carried_out_by_two_at_once() {
    let history = History::new(32, &[1, 2, 3]);
    let world = &history.world;
    let (other, begun) = (world.open(), AtomicU64::new(0));
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        let is_rewritten = call.kind == CallKind::Create && call.folder() == "arenas";
        if is_rewritten && begun.fetch_add(1, Ordering::Relaxed) == 0 {
            assert_eq!(collect(&other).unwrap().collection, Some(1));
        }
    });
    let outcome = collect(&world.open_over(Arc::new(acting)).unwrap()).unwrap();
    assert_eq!(outcome.collection, Some(1));
    assert!(outcome.carried.arenas_rewritten <= 1, "the other was faster");
    history.check_done(&world.open(), "after both");
}

/// An arena whose chunks cannot be read any more stays as it is, and keeps nothing else from going. What
/// cannot be read now may be there later, so that ends the prune.
#[test]
fn what_cannot_be_rewritten_is_put_off() {
    let history = History::new(33, &[1, 2, 3]);
    let world = &history.world;
    let before = world.objects.snapshot();
    let copy = Arc::new(MemoryBackend::from_snapshot(before.clone()));
    let plain = collect(&world.open_over(copy.clone()).unwrap()).unwrap().carried;
    assert!(plain.arenas_rewritten > 1 && plain.arenas_put_off == 0);
    let after = copy.snapshot();
    let gone = differing(&before, &after, "arenas");
    let left: BTreeSet<String> = names_in(&after, "arenas").iter().map(arena_of).collect();
    let (name, _) = *gone.iter().find(|(name, _)| left.contains(&arena_of(name))).unwrap();

    let mut damaged = before.clone();
    let object = damaged.get_mut(name).unwrap();
    let (from, to) = (object.len() * 4 / 10, object.len() * 8 / 10);
    object[from..to].fill(0);
    let copy = Arc::new(MemoryBackend::from_snapshot(damaged.clone()));
    let listener = Listener::new();
    let repository = world.open_over(copy.clone()).unwrap();
    let outcome = prune(&repository, &ALL, &listener, &Cancel::new()).unwrap().carried;
    assert_eq!((outcome.arenas_put_off, outcome.arenas_left), (1, 0), "{outcome:?}");
    assert_eq!(outcome.arenas_rewritten, plain.arenas_rewritten - 1);
    assert_eq!(copy.snapshot()[name], damaged[name]);
    assert!(listener.problems().iter().any(|heard| heard.message.contains("stays as it is")));
    // What it wastes is said by every prune from now on.
    let unused = collect(&repository).unwrap().worth.unwrap().unused_bytes;
    let rewritten = after.iter().find(|(other, _)| arena_of(other) == arena_of(name)).unwrap().1;
    let wasted = (damaged[name].len() - rewritten.len()) as u64;
    assert!(wasted > 0 && unused.abs_diff(wasted) * 2 < wasted, "{unused} for {wasted}");

    // The reads of whole objects come last.
    let copy = Arc::new(MemoryBackend::from_snapshot(before.clone()));
    let recording = Arc::new(RecordingBackend::new(copy));
    collect(&world.open_over(recording.clone()).unwrap()).unwrap();
    let calls = recording.take();
    let is_read = |call: &&Call| call.kind == CallKind::Read && call.folder() == "arenas";
    let first =
        calls.iter().position(|call| call.kind == CallKind::Create && call.folder() == "arenas");
    let at = calls[..first.unwrap()].iter().filter(is_read).count() as u64 - 1;
    let failing = |kind| {
        let plan = FaultPlan::lasting(Calls::of(&[CallKind::Read]).within("arenas"), at, kind);
        let copy = Arc::new(MemoryBackend::from_snapshot(before.clone()));
        collect(&world.open_over(Arc::new(FaultyBackend::new(copy, plan))).unwrap())
    };
    let outcome = failing(FaultKind::Io);
    assert!(outcome.is_err(), "{outcome:?}");
    // A bad sector says nothing of other objects.
    let outcome = failing(FaultKind::BadSector).unwrap().carried;
    assert_eq!((outcome.arenas_put_off, outcome.arenas_left), (plain.arenas_rewritten, 0));
}

/// A prune is stopped once it has made the next generation of an arena, and before the one below is gone. The
/// next prune takes the generation as it is.
#[test]
fn what_was_rewritten_before_an_interruption_is_not_rewritten_again() {
    let history = History::new(38, &[1, 2, 3]);
    let world = &history.world;
    let base = world.objects.snapshot();
    let mut cut = 0;
    for at in 0.. {
        let removals = Calls::of(&[CallKind::Remove]).within("arenas");
        let plan = FaultPlan::lasting(removals, at, FaultKind::Io);
        let objects = Arc::new(MemoryBackend::from_snapshot(base.clone()));
        let faulty = Arc::new(FaultyBackend::new(objects.clone(), plan));
        let _ = collect(&world.open_over(faulty.clone()).unwrap());
        if faulty.fired() == 0 {
            break;
        }
        let left = names_in(&objects.snapshot(), "arenas");
        let rewritten = left.iter().filter_map(ArenaName::of).find(|name| {
            name.generation > 0 && left.contains(&ArenaName { generation: 0, ..*name }.object())
        });
        let Some(rewritten) = rewritten else { continue };
        cut += 1;
        let repository = world.open_over(objects.clone()).unwrap();
        assert_eq!(collect(&repository).unwrap().collection, Some(1));
        let left = names_in(&objects.snapshot(), "arenas").into_iter();
        let left: Vec<ArenaName> = left.filter_map(|name| ArenaName::of(&name)).collect();
        let of_it: Vec<_> = left.iter().filter(|name| name.id == rewritten.id).collect();
        assert_eq!(of_it, [&rewritten], "removal {at}");
        history.check_done(&repository, &format!("removal {at}"));
    }
    assert!(cut > 1, "{cut}");
}

/// Of all that is left, no delta lacks a base: a later backup may name it again, though no snapshot needs it
/// now, and then the second reckoning would not have seen it.
#[test]
fn no_delta_is_left_without_its_base() {
    let mut history = History::new(34, &[0, 1, 2, 3]);
    let before = history.world.objects.snapshot();
    let mut spared = 0;
    for slots_bytes_max in [130, history.world.limits.plan_slots_bytes_max] {
        history.world.limits.plan_slots_bytes_max = slots_bytes_max;
        for percent in [0, 5, 10, 20, 30, 50, 80] {
            let world = &history.world;
            let copy = Arc::new(MemoryBackend::from_snapshot(before.clone()));
            let repository = world.open_over(copy).unwrap();
            let options = PruneOptions { unused_percent_max: percent, ..ALL };
            prune(&repository, &options, &Silent, &Cancel::new()).unwrap();
            let reader = reader_of_everything(&repository);
            let listed = ListedArenas::list(repository.backend()).unwrap();
            let arenas: Vec<_> = listed
                .newest()
                .map(|newest| reader.store().arena(newest.name.id).unwrap())
                .collect();
            let there: BTreeSet<Location> = arenas
                .iter()
                .flat_map(|arena| {
                    let slots = arena.slots().filter(|(_, it)| it.fingerprint != Fingerprint::ZERO);
                    slots.map(|(slot, _)| Location { arena: arena.id, slot })
                })
                .collect();
            for (slot, entry) in arenas.iter().flat_map(|arena| arena.slots()) {
                spared += entry.bases.len();
                let lacks = entry.bases.iter().find(|base| !there.contains(base));
                assert!(lacks.is_none(), "{percent} %: slot {slot} lacks {lacks:?}");
            }
        }
    }
    assert!(spared > 0);
}

/// Found by the simulation, seed 1795872892793 at f73cb967: a snapshot that a verdict had removed was there
/// again, and from the second reckoning on the wish about it could not be read. That was called a fault of
/// the program.
#[test]
fn a_wish_that_can_be_read_at_times_is_no_miscount() {
    let history = History::new(37, &[0, 1]);
    let world = &history.world;
    let before = world.objects.snapshot();
    collect(&world.open()).unwrap();
    let after = world.objects.snapshot();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        if ["arenas", "snapshots", "forgotten"].contains(&name.folder()) {
            world.objects.create(name, &before[name]).unwrap();
        }
    }
    forget(&world.open(), &[history.kept[0].0]).unwrap();
    let objects = world.objects.snapshot();
    let mut done = 0;
    for at in 0..60 {
        let reads = Calls::of(&[CallKind::Read]).within("forgotten");
        let plan = FaultPlan::lasting(reads, at, FaultKind::Zeros);
        let copy = Arc::new(MemoryBackend::from_snapshot(objects.clone()));
        let faulty = Arc::new(FaultyBackend::new(copy, plan));
        match world.open_over(faulty).and_then(|repository| collect(&repository)) {
            Ok(_) => done += 1,
            Err(error @ RepositoryError::Miscounted { .. }) => panic!("read {at}: {error}"),
            Err(_) => {}
        }
    }
    assert!(done > 0);
}

/// A client that can only store puts rubbish under the name of a snapshot while a verdict is carried out, a
/// part a night. No repair could commit that again, so nothing of the verdict is put off for it.
#[test]
fn rubbish_under_the_name_of_a_snapshot_puts_nothing_off() {
    let history = History::new(36, &[1, 2, 3, 4]);
    let world = &history.world;
    let hasty = PruneOptions { time_max: Some(Duration::ZERO), ..ALL };
    let outcome = prune(&world.open(), &hasty, &Silent, &Cancel::new()).unwrap();
    assert!(outcome.carried.arenas_left > 0, "{outcome:?}");
    let verdict = Collections::read(&world.open()).unwrap().open.unwrap();
    assert!(verdict.decided);
    let rubbish = strongroom_repository::snapshot_object(SnapshotId([0x77; 16]));
    world.objects.create(&rubbish, &[0x5c; 300]).unwrap();
    // The next plan cannot be made before a repair has taken it away.
    let error = collect(&world.open()).unwrap_err();
    assert!(matches!(error, RepositoryError::NotCollectable { .. }), "{error}");
    assert!(!error.to_string().contains("newer program"), "{error}");
    assert!(Collections::read(&world.open()).unwrap().open.is_none());
    let left = names_in(&world.objects.snapshot(), "arenas");
    let left: Vec<ArenaName> = left.iter().filter_map(ArenaName::of).collect();
    for (arena, slots) in &verdict.selection.slots.0 {
        let is_done = match slots {
            ArenaSlots::All => left.iter().all(|name| name.id != *arena),
            _ => left.iter().filter(|name| name.id == *arena).all(|name| name.generation > 0),
        };
        assert!(is_done, "{arena}");
    }
    world.objects.remove(&rubbish).unwrap();
    history.check(&world.open(), "after the verdict");
}
