//! A night that condemns: what it condemned goes in the next, if a verification between them finds nothing.

use strongroom_upkeep::{
    Later, PruneOptions, PruneOutcome, plan_recovery, plan_repair, prune_later, repair, undo_prune,
};

use super::*;

fn later(repository: &Repository) -> Later {
    prune_later(repository, &ALL, &Silent, &Cancel::new()).unwrap()
}

#[track_caller]
fn pruned(later: Later) -> PruneOutcome {
    match later {
        Later::Pruned(outcome) => *outcome,
        Later::Doubted(found) => panic!("{:?}", found.faults),
    }
}

/// A verdict was asked about before it was made, and a dry run removes nothing: neither waits for a
/// verification.
#[test]
fn only_what_waits_for_its_verdict_is_verified() {
    for way in ["planned", "dry run", "decided"] {
        let (world, _) = one_forgotten(19);
        pruned(later(&world.open()));
        let open = Collections::read(&world.open()).unwrap().open.unwrap();
        if way == "decided" {
            create_verdict(&world.open(), open.number, &open.selection).unwrap();
        }
        let needed = Slots::of(&world.open()).needed.into_iter();
        let data =
            needed.map(|place| place.arena).find(|id| ArenaContent::of(*id) == ArenaContent::Data);
        world.objects.remove(&ArenaName::first(data.unwrap()).object()).unwrap();
        let options = PruneOptions { dry_run: way == "dry run", ..ALL };
        let outcome = prune_later(&world.open(), &options, &Silent, &Cancel::new());
        assert_eq!(
            matches!(outcome, Ok(Later::Doubted(_))),
            way == "planned",
            "{way}: {outcome:?}"
        );
    }
}

#[test]
fn what_a_night_condemns_goes_in_the_next() {
    let (world, [first, second]) = one_forgotten(11);
    let before = arenas(&world.objects.snapshot());
    let outcome = pruned(later(&world.open()));
    assert!(outcome.condemned && outcome.carried.arenas_removed == 0);
    assert_eq!(before, arenas(&world.objects.snapshot()), "nothing was removed yet");
    world.assert_holds(&world.open(), first.0, &first.1, "it is only condemned");

    let outcome = pruned(later(&world.open()));
    assert!(!outcome.condemned && outcome.carried.snapshots == 1, "{outcome:?}");
    assert!(before != arenas(&world.objects.snapshot()));
    world.assert_holds(&world.open(), second.0, &second.1, "it was not forgotten");
    assert_eq!(undo_prune(&world.open(), &Silent, &Cancel::new()).unwrap(), None);
}

#[test]
fn what_is_condemned_can_be_brought_back() {
    let (world, [first, second]) = one_forgotten(12);
    assert!(pruned(later(&world.open())).condemned);
    assert_eq!(remember(&world.open(), &[first.0]).unwrap(), [first.0], "a plan has taken it");
    let undone = undo_prune(&world.open(), &Silent, &Cancel::new()).unwrap().unwrap();
    assert_eq!((undone.snapshots, undone.late), (vec![first.0], Vec::new()));
    let outcome = pruned(later(&world.open()));
    assert!(!outcome.condemned && outcome.carried.snapshots == 0, "nothing is forgotten");
    for (id, image) in [first, second] {
        world.assert_holds(&world.open(), id, &image, "nothing was removed");
    }
}

/// A prune that has decided is stronger than one who undoes, and the reverse.
#[test]
fn the_first_verdict_counts() {
    let (world, [first, second]) = one_forgotten(13);
    assert!(pruned(later(&world.open())).condemned);
    let repository = world.open();
    let plan = Collections::read(&repository).unwrap().open.unwrap();
    create_verdict(&repository, plan.number, &plan.selection).unwrap();
    let error = undo_prune(&repository, &Silent, &Cancel::new()).unwrap_err();
    assert!(matches!(error, RepositoryError::Decided { collection: 1 }), "{error}");
    prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    assert!(!list_snapshots(&world.open()).unwrap().readable().iter().any(|s| s.id == first.0));
    world.assert_holds(&world.open(), second.0, &second.1, "it was not forgotten");
}

/// A verification that finds a fault keeps what is condemned: it may be needed for the repair.
#[test]
fn nothing_goes_while_the_repository_is_not_sound() {
    let (world, [first, _]) = one_forgotten(14);
    assert!(pruned(later(&world.open())).condemned);
    let needed = Slots::of(&world.open()).needed.into_iter().next().unwrap();
    let name = ArenaName::first(needed.arena).object();
    let object = world.objects.snapshot()[&name].clone();
    world.objects.remove(&name).unwrap();
    world.objects.create(&name, &object[..100]).unwrap();
    let before = arenas(&world.objects.snapshot());
    assert!(matches!(later(&world.open()), Later::Doubted(_)));
    assert_eq!(before, arenas(&world.objects.snapshot()));
    world.objects.remove(&name).unwrap();
    world.objects.create(&name, &object).unwrap();
    assert_eq!(pruned(later(&world.open())).carried.snapshots, 1, "{} went", first.0.short());
}

/// A repair goes on while a collection is open: only what that may remove waits for it.
#[test]
fn kept_4_a_repair_beside_an_open_collection_mends_the_rest() {
    let (world, _) = one_forgotten(15);
    world.write("of the lost one", b"only there");
    let lost = (world.backup().snapshot.id, world.image());
    world.write("of the lost one", b"changed since");
    world.backup();
    assert!(pruned(later(&world.open())).condemned);
    world.objects.remove(&snapshot_object(lost.0)).unwrap();
    let needed = Slots::of(&world.open()).needed.into_iter().next().unwrap();
    let name = ArenaName::first(needed.arena).object();
    let mut object = world.objects.snapshot()[&name].clone();
    object[2000] ^= 1;
    world.objects.remove(&name).unwrap();
    world.objects.create(&name, &object).unwrap();
    let mend = || {
        let repository = world.open();
        let mut plan = plan_repair(repository.backend(), &Silent, &Cancel::new()).unwrap();
        plan_recovery(&repository, &mut plan, &Silent, &Cancel::new()).unwrap();
        repair(&repository, &plan, &Silent, &Cancel::new()).unwrap()
    };
    let outcome = mend();
    assert_eq!((outcome.repaired, outcome.recovered), (1, 0));
    assert_eq!((outcome.recover_later, outcome.affected.len()), (vec![lost.0], 0));
    undo_prune(&world.open(), &Silent, &Cancel::new()).unwrap().unwrap();
    let outcome = mend();
    assert_eq!((outcome.recovered, outcome.recover_later.len()), (1, 0));
    world.assert_holds(&world.open(), lost.0, &lost.1, "it is committed again");
}
