//! Which places are taken for a replica, and what two places say that were used apart.

use super::*;
use strongroom_testkit::Fault;

/// A place of these objects in which one read of a folder goes wrong.
fn faulty(objects: &Objects, folder: &str, kind: FaultKind) -> FaultyBackend<MemoryBackend> {
    let calls = Calls::of(&[CallKind::Read]).within(folder);
    let faults = vec![Fault { calls, at: 0, lasting: false, kind }];
    FaultyBackend::new(
        Arc::new(MemoryBackend::from_snapshot(objects.clone())),
        FaultPlan { faults },
    )
}

/// Two places that have each removed things of their own under one number: named, and not mirrored. What is
/// the same, or cannot be read, is no fork.
#[test]
fn what_was_decided_apart_is_named() {
    let (world, kept) = history(770);
    let shared = world.objects.snapshot();
    let decided = |forgotten: &[SnapshotId]| {
        let place = Arc::new(MemoryBackend::from_snapshot(shared.clone()));
        let repository = world.open_over(place.clone()).unwrap();
        forget(&repository, forgotten).unwrap();
        prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
        place
    };
    let [one, two] = [&kept[0].0, &kept[1].0].map(|id| decided(&[*id]));
    let verdict = ObjectName::parse("collections/1.verdict").unwrap();

    let done = copy(&*one, &*decided(&[kept[1].0])).unwrap();
    assert_eq!(done.conflicts, std::slice::from_ref(&verdict));
    let place: Arc<dyn Backend> = two.clone();
    let repository = world.open_over(one.clone()).unwrap();
    let error = plan_mirror(&repository, &place).unwrap_err();
    assert!(error.to_string().contains("both were used apart"), "{error}");

    // The same, copied into an empty place.
    let empty = Arc::new(MemoryBackend::new());
    copy(&*one, &*empty).unwrap();
    assert!(empty.snapshot().contains_key(&verdict));
    assert_eq!(copy(&*one, &*empty).unwrap().conflicts, []);

    // Of what is rubbish nothing is known; what cannot be read now ends the copy.
    let mut rubbish = two.snapshot();
    rubbish.insert(verdict.clone(), vec![7; 100]);
    let done = copy(&*one, &MemoryBackend::from_snapshot(rubbish)).unwrap();
    assert_eq!(done.conflicts, []);
    let unread = faulty(&two.snapshot(), "collections", FaultKind::Io);
    assert!(copy(&*one, &unread).is_err());
    let gone = faulty(&two.snapshot(), "collections", FaultKind::Vanish);
    assert_eq!(copy(&*one, &gone).unwrap().conflicts, []);
}

/// A replica without a configuration that can be read is known by what both have; what cannot be read now
/// says nothing.
#[test]
fn a_replica_without_its_configuration_is_known_by_its_objects() {
    let (world, kept) = history(771);
    let source = world.objects.snapshot();
    let target = || {
        let target = MemoryBackend::new();
        copy(&*world.objects, &target).unwrap();
        target.snapshot()
    };
    for damage in [None, Some(vec![7; 50])] {
        let mut objects = target();
        for name in ["config", "config.copy"] {
            let name = ObjectName::parse(name).unwrap();
            match &damage {
                None => drop(objects.remove(&name)),
                Some(rubbish) => drop(objects.insert(name, rubbish.clone())),
            }
        }
        let place = Arc::new(MemoryBackend::from_snapshot(objects.clone()));
        copy(&*world.objects, &*place).unwrap();
        check_complete(&world, place, &kept, "with its configuration");
        // Of another repository, or of nothing: it is left alone.
        for folder in ["arenas", "snapshots"] {
            objects.retain(|name, _| name.folder() != folder);
        }
        objects.insert(ObjectName::top("letter"), b"dear".to_vec());
        let place = MemoryBackend::from_snapshot(objects.clone());
        let error = copy(&*world.objects, &place).unwrap_err();
        assert!(matches!(error, RepositoryError::PlaceNotEmpty { .. }), "{error}");
        assert_eq!(place.snapshot(), objects);
    }
    // Arenas and snapshots of another repository are no sign.
    let mut others = history(772).0.objects.snapshot();
    others.retain(|name, _| !name.folder().is_empty());
    let error = copy(&*world.objects, &MemoryBackend::from_snapshot(others)).unwrap_err();
    assert!(matches!(error, RepositoryError::PlaceNotEmpty { .. }), "{error}");
    assert!(copy(&*world.objects, &faulty(&target(), "", FaultKind::Io)).is_err());
    assert_eq!(world.objects.snapshot(), source);
}

/// What is cut in the replica is sent again. If it vanishes while that is looked at, it is new; if it cannot
/// be read now, the copy ends.
#[test]
fn what_is_cut_in_the_replica_is_replaced() {
    let (world, kept) = history(773);
    let whole = MemoryBackend::new();
    copy(&*world.objects, &whole).unwrap();
    let whole = whole.snapshot();
    for folder in ["arenas", "snapshots"] {
        for name in names_in(&whole, folder) {
            let mut cut = whole.clone();
            let object = cut.get_mut(&name).unwrap();
            object.truncate(object.len() / 3);
            let place = Arc::new(MemoryBackend::from_snapshot(cut.clone()));
            let done = copy(&*world.objects, &*place).unwrap();
            assert_eq!((done.sent, done.replaced, done.conflicts.len()), (1, 1, 0), "{name}");
            check_complete(&world, place, &kept, "replaced");

            let gone = faulty(&cut, folder, FaultKind::Vanish);
            let done = copy(&*world.objects, &gone).unwrap();
            assert_eq!((done.sent, done.replaced), (1, 0), "{name}");

            let unread = faulty(&cut, folder, FaultKind::Io);
            assert!(copy(&*world.objects, &unread).is_err(), "{name}");
        }
    }
}
