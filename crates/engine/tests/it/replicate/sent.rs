//! Objects that are sent to a replica: what becomes of each, what the sums of a copy say, and how a place is
//! found out that does not keep what it takes.

use strongroom_backend::Promises;
use strongroom_base::{Progress, Severity};
use strongroom_testkit::{Gives, Listener, WithholdingBackend};

use super::*;
use crate::copies::fronts::sealed_otherwise;

/// A copy, and the last that was said of its progress.
fn copy_with_progress(
    source: &dyn Backend,
    target: &dyn Backend,
) -> (CopyOutcome, Progress, Vec<(Severity, String)>) {
    let listener = Listener::new();
    let outcome = replicate(source, target, &listener, &Cancel::new()).unwrap();
    let problems = listener.problems().into_iter().map(|heard| {
        let path = heard.path.map(|path| path.display().to_string());
        (heard.severity, path.unwrap_or_default())
    });
    (outcome, listener.last_progress(), problems.collect())
}

fn bytes(objects: &Objects) -> u64 {
    objects.values().map(|object| object.len() as u64).sum()
}

#[test]
fn the_sums_of_a_copy_are_what_it_did() {
    let (world, _) = history(660);
    let base = world.objects.snapshot();
    let (count, total) = (base.len() as u64, bytes(&base));
    let target = MemoryBackend::new();
    let (outcome, progress, problems) = copy_with_progress(&*world.objects, &target);
    assert_eq!((outcome.sent, outcome.sent_bytes), (count, total));
    assert_eq!((outcome.present, outcome.present_bytes), (0, 0));
    assert_eq!((outcome.mended, outcome.replaced), (0, 0));
    assert_eq!((progress.files, progress.bytes, progress.bytes_stored), (count, total, total));
    assert_eq!((progress.files_total, progress.bytes_total), (Some(count), Some(total)));
    assert!(problems.is_empty(), "{problems:?}");

    let (outcome, progress, problems) = copy_with_progress(&*world.objects, &target);
    assert_eq!((outcome.sent, outcome.sent_bytes), (0, 0));
    assert_eq!((outcome.present, outcome.present_bytes), (count, total));
    assert_eq!(progress.files_total.unwrap_or(0), 0);
    assert!(problems.is_empty(), "{problems:?}");

    // One has to be computed from its parity, another was cut short in the replica, and the source does
    // not give a third.
    let [mended, cut, withheld] = &names_in(&base, "arenas")[..3] else {
        panic!("three arenas at least")
    };
    let mut damaged = base.clone();
    let middle = base[mended].len() / 2;
    damaged.get_mut(mended).unwrap()[middle] ^= 1;
    let mut there = base.clone();
    there.remove(mended);
    there.remove(withheld);
    there.get_mut(cut).unwrap().pop();
    let hidden = withheld.clone();
    let gives = move |name: &ObjectName| match *name == hidden {
        true => Gives::Archived,
        false => Gives::All,
    };
    let source = WithholdingBackend::new(Arc::new(MemoryBackend::from_snapshot(damaged)), gives);
    let target = MemoryBackend::from_snapshot(there);
    let (outcome, progress, problems) = copy_with_progress(&source, &target);
    let sent = [mended, cut].map(|name| base[name].len() as u64);
    assert_eq!((outcome.sent, outcome.sent_bytes), (2, sent.iter().sum()));
    assert_eq!((outcome.mended, outcome.replaced), (1, 1));
    assert_eq!(outcome.withheld.iter().map(|(name, _)| name).collect::<Vec<_>>(), [withheld]);
    let looked_at = [mended, cut, withheld].map(|name| base[name].len() as u64);
    assert_eq!((progress.files, progress.bytes), (3, looked_at.iter().sum()));
    assert_eq!(progress.bytes_stored, outcome.sent_bytes);
    assert_eq!(problems, [(Severity::Warning, mended.to_string())]);
    let mut expected = base.clone();
    expected.remove(withheld);
    assert_eq!(target.snapshot(), expected);
}

/// Generations below a greater one are compared whole: those that are the same count as there.
#[test]
fn what_is_compared_and_the_same_is_counted_as_there() {
    let (world, kept) = history(665);
    let before = world.objects.snapshot();
    forget(&world.open(), &[kept[0].0]).unwrap();
    prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
    let mut both = world.objects.snapshot();
    both.extend(before.into_iter().filter(|(name, _)| name.folder() == "arenas"));
    let source = MemoryBackend::from_snapshot(both.clone());
    let target = target_of(&source);
    // Where something is, no collections are sent.
    both.retain(|name, _| name.folder() != "collections");
    let plan = plan_replica(&source, &target).unwrap();
    let doubtful = plan.doubtful;
    assert!(!doubtful.is_empty());
    assert_eq!((plan.present, plan.present_bytes), (both.len() as u64, bytes(&both)));
    let (outcome, progress, problems) = copy_with_progress(&source, &target);
    assert_eq!((outcome.sent, outcome.conflicts.len()), (0, 0));
    assert_eq!((outcome.present, outcome.present_bytes), (both.len() as u64, bytes(&both)));
    assert_eq!(progress.files, doubtful.len() as u64);
    assert_eq!(problems, []);

    // What cannot be compared because the replica withholds it is said to be withheld; one that cannot be
    // read there for another reason ends the copy.
    let withheld = doubtful[0].name.clone();
    for gives in [Gives::Archived, Gives::Forbidden, Gives::NotFound] {
        let asked = withheld.clone();
        let rule = move |name: &ObjectName| if *name == asked { gives } else { Gives::All };
        let place = WithholdingBackend::new(Arc::new(target_of(&source)), rule);
        match copy(&source, &place) {
            Ok(done) => {
                let names: Vec<_> = done.withheld.iter().map(|(name, _)| name).collect();
                assert_eq!((names, gives != Gives::NotFound), (vec![&withheld], true));
            }
            Err(error) => assert_eq!(gives, Gives::NotFound, "{error}"),
        }
    }
}

fn target_of(source: &MemoryBackend) -> MemoryBackend {
    let target = MemoryBackend::new();
    copy(source, &target).unwrap();
    target
}

/// An object that comes to the replica between the listing and the sending is looked at.
#[test]
fn what_another_stored_meanwhile_is_looked_at() {
    // Copies that programs of two versions pruned can have arenas of one name and other bytes, both whole.
    let (world, kept) = history(664);
    let objects = Arc::new(MemoryBackend::from_snapshot(world.objects.snapshot()));
    let repository = world.open_over(objects.clone()).unwrap();
    forget(&repository, &[kept[0].0]).unwrap();
    prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    let one = objects.snapshot();
    let mut arenas = one.keys().filter_map(ArenaName::of);
    let arena = arenas.find(|arena| arena.generation > 0).expect("no arena was rewritten");
    let (base, name) = (world.objects.snapshot(), &arena.object());
    let theirs = &sealed_otherwise(&repository, &base, arena, &one[name]);
    let source = MemoryBackend::from_snapshot(one.clone());
    let sums_if = |there: &[u8], gives: Gives, reads: FaultPlan| {
        let target = Arc::new(MemoryBackend::new());
        let (place, name, there) = (target.clone(), name.clone(), there.to_vec());
        let (planted, called) = (AtomicBool::new(false), name.clone());
        let acting = RecordingBackend::acting(target.clone(), move |call| {
            let is_sent = call.kind == CallKind::Create && call.name == called.as_str();
            if is_sent && !planted.swap(true, Ordering::Relaxed) {
                place.create(&called, &there).unwrap();
            }
        });
        let asked = name.clone();
        let rule = move |name: &ObjectName| if *name == asked { gives } else { Gives::All };
        let place = WithholdingBackend::new(Arc::new(acting), rule);
        let place = FaultyBackend::new(Arc::new(place), reads);
        let (outcome, _, problems) = copy_with_progress(&source, &place);
        let said = problems.iter().any(|(_, path)| path == name.as_str());
        let is_conflict = outcome.conflicts.contains(&name);
        let kept = target.snapshot()[&name].clone();
        let kept = if kept == one[&name] { "ours" } else { "theirs" };
        (kept, outcome.replaced, is_conflict, said)
    };
    let sums = |there: &[u8]| sums_if(there, Gives::All, FaultPlan::default());
    let ours = &one[name];
    assert_eq!(sums(ours), ("ours", 0, false, false), "the same");
    assert_eq!(sums(theirs), ("theirs", 0, true, true), "another");
    let flipped = |object: &[u8]| {
        let mut object = object.to_vec();
        object[200] ^= 1;
        object
    };
    for (damage, ours, theirs) in [
        ("cut", ours[1..].to_vec(), theirs[1..].to_vec()),
        ("within its parity", flipped(ours), flipped(theirs)),
    ] {
        assert_eq!(sums(&ours), ("ours", 1, false, false), "the same, {damage}");
        assert_eq!(sums(&theirs), ("theirs", 0, true, true), "another, {damage}");
    }
    assert_eq!(sums(b"sixteen of these"), ("ours", 1, false, false), "none");
    assert_eq!(sums(b""), ("ours", 1, false, false), "nothing");
    // What cannot be looked at is taken for ours if it is as long.
    let archived = |there: &[u8]| sums_if(there, Gives::Archived, FaultPlan::default());
    assert_eq!(archived(&flipped(ours)), ("theirs", 0, false, false), "as long, and archived");
    assert_eq!(archived(&theirs[1..]), ("theirs", 0, true, true), "shorter, and archived");
    // What is damaged has to be read twice in the same way before it is replaced.
    let reads = Calls::of(&[CallKind::Read]).within("arenas");
    let once = FaultPlan::hiccup(reads, 0, FaultKind::FlipBit);
    assert_eq!(sums_if(&flipped(ours), Gives::All, once), ("theirs", 0, true, true), "otherwise");
}

/// A place that says yes and keeps nothing, or a part, is found out with the first object; and its own
/// errors are reported as they are.
#[test]
fn a_place_that_does_not_keep_what_it_takes_is_named() {
    let (world, _) = history(662);
    let first = |kind| {
        let target = Arc::new(MemoryBackend::new());
        // Several objects are on their way at a time.
        let (place, done) = (target.clone(), Mutex::new(false));
        let acting = RecordingBackend::acting(target, move |call| {
            let mut done = done.lock().unwrap();
            if *done || call.kind != CallKind::Size {
                return;
            }
            let Some((name, object)) = place.snapshot().pop_first() else { return };
            *done = true;
            place.remove(&name).unwrap();
            if kind == "a part" {
                place.create(&name, &object[1..]).unwrap();
            }
        });
        copy(&*world.objects, &acting)
    };
    for kind in ["a part", "nothing"] {
        match first(kind) {
            Err(RepositoryError::NotKept { .. }) => {}
            other => panic!("{kind}: {other:?}"),
        }
    }
    let plan = FaultPlan::lasting(Calls::of(&[CallKind::Size]), 0, FaultKind::Io);
    let target = FaultyBackend::new(Arc::new(MemoryBackend::new()), plan);
    match copy(&*world.objects, &target) {
        Err(RepositoryError::NotKept { .. }) => panic!("nothing is known of it"),
        Err(_) => {}
        Ok(outcome) => panic!("{outcome:?}"),
    }
}

/// The longest object that a place takes is sent, and a longer one is named.
#[test]
fn what_a_place_cannot_take_is_named_and_the_rest_is_sent() {
    let (world, _) = history(663);
    let base = world.objects.snapshot();
    let longest = base.values().map(|object| object.len()).max().unwrap();
    for (most, is_sent) in [(longest as u64, true), (longest as u64 - 1, false)] {
        let inner = Arc::new(MemoryBackend::new());
        let promises = Promises { object_bytes_max: most, ..inner.promises() };
        let target = RecordingBackend::new(inner.clone()).promising(promises);
        let outcome = copy(&*world.objects, &target).unwrap();
        assert_eq!(outcome.lost.is_empty(), is_sent, "{:?}", outcome.lost);
        let expected = base.iter().filter(|(_, object)| object.len() as u64 <= most).count();
        assert_eq!(inner.snapshot().len(), expected);
    }
}
