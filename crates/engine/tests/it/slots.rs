//! Key slots: added, changed, removed, and what a put-only key may not.

use std::sync::Arc;

use strongroom_backend::Promises;
use strongroom_base::Silent;
use strongroom_repository::keys::KdfCost;
use strongroom_repository::{Repository, RepositoryError};
use strongroom_testkit::{CallKind, FaultPlan, FaultyBackend, RecordingBackend};
use strongroom_upkeep::{NewAccess, add_key, change_key, list_keys, remove_key};

use crate::read_back::read_back;
use crate::world::{PASSPHRASE, World, options, run};

const OTHER: &[u8] =
    b"strongroom-key-a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a572949ae1";
const COST: Option<KdfCost> = Some(KdfCost::CHEAPEST);

fn opens(world: &World, passphrase: &[u8]) -> bool {
    match Repository::open(world.surroundings(), passphrase) {
        Ok(_) => true,
        Err(RepositoryError::WrongPassphrase { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_slot_opens_and_a_removed_one_does_not() {
    let world = World::new(150);
    let first = world.backup();
    let repository = world.open();
    let slot = add_key(&repository, OTHER, "second", NewAccess::Full, COST).unwrap();
    assert!(opens(&world, OTHER) && opens(&world, PASSPHRASE));
    let labels: Vec<_> = list_keys(&repository).unwrap().into_iter().map(|s| s.label).collect();
    assert_eq!(labels, ["first", "second"]);
    // That another one opens it is shown by that one.
    let error = remove_key(&repository, repository.slot).unwrap_err();
    assert!(matches!(error, RepositoryError::OwnKeySlot { .. }), "{error}");
    let by_other = Repository::open(world.surroundings(), OTHER).unwrap();
    world.assert_holds(&by_other, first.snapshot.id, &world.image(), "by the second key");
    remove_key(&by_other, repository.slot).unwrap();
    assert!(opens(&world, OTHER) && !opens(&world, PASSPHRASE));
    let error = remove_key(&by_other, slot).unwrap_err();
    assert!(matches!(error, RepositoryError::LastKeySlot { .. }), "{error}");
    assert!(opens(&world, OTHER));
}

#[test]
fn a_changed_passphrase() {
    let world = World::new(151);
    change_key(&world.open(), OTHER, COST).unwrap();
    assert!(opens(&world, OTHER) && !opens(&world, PASSPHRASE));
    let slots = list_keys(&Repository::open(world.surroundings(), OTHER).unwrap()).unwrap();
    assert_eq!(slots.len(), 1);
    assert_eq!(slots[0].label, "first");
}

/// Far away, the slot that was opened last is read while the slots are listed.
#[test]
fn a_remembered_slot_opens_only_while_it_is_there() {
    let world = World::bare(156).with_cache();
    let far = Promises { in_flight: 4, ..Promises::LOCAL };
    let place = Arc::new(RecordingBackend::new(world.objects.clone()).promising(far));
    let open = |passphrase| Repository::open(world.over(place.clone()), passphrase);
    let reads = || {
        let calls = place.take();
        calls.iter().filter(|call| call.kind == CallKind::Read && call.folder() == "keys").count()
    };
    let first = open(PASSPHRASE).unwrap();
    let not_remembered = reads();
    open(PASSPHRASE).unwrap();
    assert_eq!(reads(), not_remembered, "each is read once");
    add_key(&first, OTHER, "second", NewAccess::Full, COST).unwrap();
    let second = open(OTHER).unwrap();
    remove_key(&second, first.slot).unwrap();
    reads();
    // What this machine remembers last is the second slot; other machines remember the first.
    for folder in world.over(place.clone()).cache_folders() {
        std::fs::write(folder.join("slot"), first.slot.to_string()).unwrap();
    }
    assert!(matches!(open(PASSPHRASE), Err(RepositoryError::WrongPassphrase { slots: 1 })));
    open(OTHER).unwrap();
    for folder in world.over(place.clone()).cache_folders() {
        let remembered = std::fs::read_to_string(folder.join("slot")).unwrap();
        assert_eq!(remembered, second.slot.to_string());
        std::fs::write(folder.join("slot"), "half a na").unwrap();
    }
    open(OTHER).unwrap();
}

#[test]
fn a_crash_never_locks_anybody_out() {
    for plan in [FaultPlan::crash, FaultPlan::crash_after] {
        for at in 0.. {
            let world = World::new(152);
            let faulty = Arc::new(FaultyBackend::new(world.objects.clone(), plan(at)));
            let changed = world
                .open_over(faulty.clone())
                .and_then(|repository| change_key(&repository, OTHER, COST));
            if faulty.fired() == 0 {
                assert!(changed.is_ok() && at > 5);
                break;
            }
            assert!(opens(&world, OTHER) || opens(&world, PASSPHRASE), "crash at call {at}");
        }
    }
}

#[test]
fn a_put_only_key_stores_and_reads_nothing() {
    let world = World::new(153);
    let first = world.backup();
    let image = world.image();
    add_key(&world.open(), OTHER, "put-only", NewAccess::PutOnly("laptop"), COST).unwrap();
    world.mutate(1);
    let put_only = Repository::open(world.surroundings(), OTHER).unwrap();
    let error = read_back(&put_only, first.snapshot.id, &world.tree()).unwrap_err();
    assert!(matches!(error, RepositoryError::PutOnly), "{error}");
    let error = add_key(&put_only, PASSPHRASE, "", NewAccess::Full, COST).unwrap_err();
    assert!(matches!(error, RepositoryError::PutOnly), "{error}");
    let reader = world.open().slot;
    let error = remove_key(&put_only, reader).unwrap_err();
    assert!(matches!(error, RepositoryError::LastKeySlot { .. }), "{error}");
    let foreign = run(&put_only, &options(&world.tree()), &Silent).unwrap();
    assert!(foreign.written.data_chunks_new > 0, "what the owner stored is not vouched for");
    let outcome = run(&put_only, &options(&world.tree()), &Silent).unwrap();
    assert_eq!(outcome.snapshot.parent, None);
    assert_eq!(outcome.written.data_chunks_new, 0, "it deduplicates against its own domain");
    let repository = world.open();
    world.assert_holds(&repository, outcome.snapshot.id, &world.image(), "stored put-only");
    world.assert_holds(&repository, first.snapshot.id, &image, "the first");
}

#[test]
fn a_key_gives_keys_of_its_own_domain_alone() {
    let world = World::new(154);
    let give = |repository: &Repository, domain| {
        add_key(repository, PASSPHRASE, "", NewAccess::PutOnly(domain), COST)
    };
    let error = give(&world.open(), "a b").unwrap_err();
    assert!(matches!(error, RepositoryError::DomainName { name } if name == "a b"));
    add_key(&world.open(), OTHER, "put-only", NewAccess::PutOnly("laptop"), COST).unwrap();
    let put_only = Repository::open(world.surroundings(), OTHER).unwrap();
    let slots = list_keys(&put_only).unwrap().len();
    let error = give(&put_only, "desktop").unwrap_err();
    let RepositoryError::OtherDomain { own, wanted } = error else { panic!("{error}") };
    assert_eq!((own.as_str(), wanted.as_str()), ("laptop", "desktop"));
    assert_eq!(list_keys(&put_only).unwrap().len(), slots);
    give(&put_only, "laptop").unwrap();
}
