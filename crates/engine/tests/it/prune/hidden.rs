//! What a place does not show in some listings, although it is there: nothing that it needs goes.

use std::ops::RangeInclusive;
use std::sync::atomic::AtomicBool;

use strongroom_repository::end_session;

use super::*;

/// A place that does not show an object in some of the listings of its folder, and how many listings there
/// were. At any other call the object is there.
fn hiding(
    objects: &Arc<MemoryBackend>,
    name: &ObjectName,
    hidden: RangeInclusive<u64>,
) -> (Arc<dyn Backend>, Arc<AtomicU64>) {
    let listings = Arc::new(AtomicU64::new(0));
    let (shelf, counted) = (objects.clone(), listings.clone());
    let (name, bytes) = (name.clone(), objects.snapshot()[name].clone());
    let acting = RecordingBackend::acting(objects.clone(), move |call| {
        let is_listing = call.kind == CallKind::List && call.folder() == name.folder();
        if is_listing && hidden.contains(&counted.fetch_add(1, Ordering::Relaxed)) {
            let _ = shelf.remove(&name);
        } else if shelf.size(&name).is_err() {
            shelf.create(&name, &bytes).unwrap();
        }
    });
    (Arc::new(acting), listings)
}

/// A snapshot that some listings do not show, or none: a collection goes through without taking anything of
/// it, or nothing is removed, and that is no fault of the program.
#[test]
fn a_snapshot_that_is_not_shown_at_times_keeps_what_it_needs() {
    let history = History::new(41, &[1, 2, 3]);
    let before = history.world.objects.snapshot();
    let (mut through, mut refused) = (0, 0);
    for (id, _) in &history.kept {
        let name = strongroom_repository::snapshot_object(*id);
        for from in 0.. {
            let mut were_more = false;
            for to in from.. {
                let objects = Arc::new(MemoryBackend::from_snapshot(before.clone()));
                let (place, listings) = hiding(&objects, &name, from..=to);
                let outcome =
                    history.world.open_over(place).and_then(|repository| collect(&repository));
                let what = format!("{} in listings {from} to {to}", id.short());
                match outcome {
                    Ok(_) => through += 1,
                    Err(RepositoryError::NotCollectable { .. }) => refused += 1,
                    Err(error) => panic!("{what}: {error}"),
                }
                let _ = objects.create(&name, &before[&name]);
                history.check(&history.world.open_over(objects).unwrap(), &what);
                if listings.load(Ordering::Relaxed) <= to {
                    break;
                }
                were_more = true;
            }
            if !were_more {
                break;
            }
        }
    }
    assert!(through > 0 && refused > 0, "{through} went through, {refused} did not");
}

/// What a backup stored before its commit, and its snapshot.
fn stopped_before_its_commit(world: &World) -> (Objects, ObjectName, Vec<u8>) {
    let copy = Arc::new(MemoryBackend::from_snapshot(world.objects.snapshot()));
    let stored = Arc::new(Mutex::new(Objects::new()));
    let (shelf, kept) = (copy.clone(), stored.clone());
    let acting = RecordingBackend::acting(copy.clone(), move |call| {
        if call.kind == CallKind::Create && call.folder() == "snapshots" {
            *kept.lock().unwrap() = shelf.snapshot();
        }
    });
    let writer = world.open_over(Arc::new(acting)).unwrap();
    let id = run(&writer, &options(&world.tree()), &Silent).unwrap().snapshot.id;
    let name = strongroom_repository::snapshot_object(id);
    let object = copy.snapshot()[&name].clone();
    let stored = stored.lock().unwrap().clone();
    (stored, name, object)
}

/// A writer that began before the plan, and whose session the place does not show when it is looked for: its
/// snapshot may rely on what the plan condemns. One that began after the plan does not.
#[test]
fn a_writer_that_is_not_shown_is_no_reason_to_go_on() {
    for knows_the_plan in [false, true] {
        let history = History::new(42, &[1, 2, 3]);
        let world = &history.world;
        let (stored, name, object) = stopped_before_its_commit(world);
        let objects = match knows_the_plan {
            true => world.objects.clone(),
            false => Arc::new(MemoryBackend::from_snapshot(stored.clone())),
        };
        let sessions = names_in(&stored, "sessions");
        assert_eq!(sessions.len(), 1);
        let shelf = objects.clone();
        let other = world.open_over(objects.clone()).unwrap();
        let backup = options(&world.tree());
        let listings = AtomicU64::new(0);
        let acting = RecordingBackend::acting(objects.clone(), move |call| {
            if call.kind != CallKind::List || shelf.list("collections").unwrap().is_empty() {
                return;
            }
            if call.folder() == "sessions" && !knows_the_plan {
                let _ = shelf.remove(&sessions[0]);
            }
            // The first is of those who may have committed before the decision.
            if call.folder() == "snapshots" && listings.fetch_add(1, Ordering::Relaxed) == 1 {
                match knows_the_plan {
                    true => drop(run(&other, &backup, &Silent).unwrap()),
                    false => shelf.create(&name, &object).unwrap(),
                }
            }
        });
        let outcome = collect(&world.open_over(Arc::new(acting)).unwrap());
        history.check(&world.open_over(objects).unwrap(), "in the end");
        match outcome {
            Ok(outcome) => assert!(knows_the_plan && outcome.carried.snapshots == 3, "{outcome:?}"),
            Err(RepositoryError::NotCollectable { what, why }) => {
                assert!(
                    !knows_the_plan && why.contains("did not show its session"),
                    "{what}: {why}"
                );
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// A session without a snapshot is asked for by name. If that cannot be answered, nothing goes.
#[test]
fn what_cannot_be_asked_for_is_no_answer() {
    let history = History::new(45, &[1, 2, 3]);
    let lost = strongroom_repository::snapshot_object(history.kept[1].0);
    history.world.objects.remove(&lost).unwrap();
    let before = history.world.objects.snapshot();
    let sizes = Calls::of(&[CallKind::Size]).within("snapshots");
    let plan = FaultPlan::lasting(sizes, 0, FaultKind::Io);
    let faulty = Arc::new(FaultyBackend::new(history.world.objects.clone(), plan));
    assert!(collect(&history.world.open_over(faulty).unwrap()).is_err());
    assert_eq!(history.world.objects.snapshot(), before);
    assert_eq!(collect(&history.world.open()).unwrap().lost, [history.kept[1].0]);
}

/// A backup that knows the plan and commits between the listings of snapshots and arenas of the decision: its
/// arenas are listed, and its snapshot is not. It is no reason to stop.
#[test]
fn a_snapshot_that_is_committed_between_two_listings_stops_nothing() {
    let history = History::new(46, &[1, 2, 3]);
    let world = &history.world;
    let (shelf, other) = (world.objects.clone(), world.open());
    world.write("new", &strongroom_testkit::noise(46, 50_000));
    let (backup, was_made) = (options(&world.tree()), Arc::new(AtomicU64::new(0)));
    let made = was_made.clone();
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        let is_listing = call.kind == CallKind::List && call.folder() == "arenas";
        if is_listing
            && !shelf.list("collections").unwrap().is_empty()
            && made.fetch_add(1, Ordering::Relaxed) == 0
        {
            run(&other, &backup, &Silent).unwrap();
        }
    });
    let outcome = collect(&world.open_over(Arc::new(acting)).unwrap()).unwrap();
    assert_eq!(outcome.carried.snapshots, 3, "{outcome:?}");
    assert!(was_made.load(Ordering::Relaxed) > 0);
    history.check(&world.open(), "in the end");
    let newest = list_snapshots(&world.open()).unwrap().snapshots.pop().unwrap().id;
    world.assert_holds(&world.open(), newest, &world.image(), "the new one");
}

/// A writer that the place does not show commits between the listings of snapshots and arenas of the decision. It
/// does not know the plan, so nothing goes, unless its snapshot is gone again, or another collector was faster and
/// has ended it.
#[test]
fn a_snapshot_that_is_not_listed_and_may_rely_on_the_plan_stops_it() {
    let ways =
        ["it is whole", "it is rubbish", "it goes", "it cannot be read", "its session ended"];
    let mut reads_before = 0;
    for way in ways {
        let history = History::new(47, &[1, 2, 3]);
        let world = &history.world;
        world.write("new", &strongroom_testkit::noise(47, 50_000));
        let (stored, name, mut object) = stopped_before_its_commit(world);
        if way == "it is rubbish" {
            object.fill(0x5c);
        }
        let id: SnapshotId = name.file().parse().unwrap();
        let objects = Arc::new(MemoryBackend::from_snapshot(stored.clone()));
        let sessions = names_in(&stored, "sessions");
        let reads = Calls::of(&[CallKind::Read]).within("snapshots");
        let plan = match way {
            "it goes" => FaultPlan::hiccup(reads, reads_before, FaultKind::Vanish),
            "it cannot be read" => FaultPlan::lasting(reads, reads_before, FaultKind::Io),
            _ => FaultPlan { faults: Vec::new() },
        };
        let faulty = Arc::new(FaultyBackend::new(objects.clone(), plan));
        let other = world.open_over(objects.clone()).unwrap();
        let (shelf, of_it, was_made) = (objects.clone(), name.clone(), AtomicBool::new(false));
        let acting = RecordingBackend::acting(faulty, move |call| {
            let is_planned = !shelf.list("collections").unwrap().is_empty();
            let is_listing = |folder| call.kind == CallKind::List && call.folder() == folder;
            if is_planned && is_listing("sessions") {
                let _ = shelf.remove(&sessions[0]);
            }
            if is_planned && is_listing("arenas") && !was_made.swap(true, Ordering::Relaxed) {
                match way {
                    "its session ended" => end_session(&other, id).unwrap(),
                    _ => shelf.create(&of_it, &object).unwrap(),
                }
            }
        });
        let acting = Arc::new(acting);
        let outcome = collect(&world.open_over(acting.clone()).unwrap());
        if way == "it is whole" {
            let calls = acting.take();
            let reads = calls.iter().filter(|call| call.kind == CallKind::Read);
            let reads = reads.filter(|call| call.folder() == "snapshots");
            reads_before = reads.take_while(|call| call.name != name.as_str()).count() as u64;
        }
        history.check(&world.open_over(objects).unwrap(), way);
        match (way, outcome) {
            ("it goes" | "its session ended", Ok(outcome)) => {
                assert_eq!(outcome.carried.snapshots, 3, "{way}");
            }
            (
                "it is whole" | "it is rubbish",
                Err(RepositoryError::NotCollectable { what, why }),
            ) => {
                assert!(why.contains("does not list it"), "{what}: {why}");
            }
            ("it cannot be read", Err(RepositoryError::Backend(error))) => {
                assert!(error.to_string().contains("planned fault"), "{error}");
            }
            (_, outcome) => panic!("{way}: {outcome:?}"),
        }
    }
}

/// A session ended by itself, and a collector that had seen it before fences it only now, while another one
/// looks for it: that fence is no snapshot which the place hides.
#[test]
fn a_fence_that_comes_behind_the_listing_stops_no_prune() {
    let history = History::new(49, &[1, 2, 3]);
    let world = &history.world;
    world.write("new", &strongroom_testkit::noise(49, 50_000));
    let (mut stored, name, _) = stopped_before_its_commit(world);
    let id: SnapshotId = name.file().parse().unwrap();
    stored.retain(|name, _| name.folder() != "sessions");
    for at in 0.. {
        let objects = Arc::new(MemoryBackend::from_snapshot(stored.clone()));
        let other = world.open_over(objects.clone()).unwrap();
        let asked = Arc::new(AtomicU64::new(0));
        let counted = asked.clone();
        let name = name.clone();
        let acting = RecordingBackend::acting(objects.clone(), move |call| {
            let is_asked = call.kind == CallKind::Size && call.name == name.as_str();
            if is_asked && counted.fetch_add(1, Ordering::Relaxed) == at {
                end_session(&other, id).unwrap();
            }
        });
        let outcome = collect(&world.open_over(Arc::new(acting)).unwrap());
        let outcome = outcome.unwrap_or_else(|error| panic!("asked {at} times: {error}"));
        assert_eq!(outcome.carried.snapshots, 3, "{outcome:?}");
        history.check(&world.open_over(objects).unwrap(), "in the end");
        if asked.load(Ordering::Relaxed) <= at {
            assert!(at > 2, "{at}");
            break;
        }
    }
}

/// A backup that began before the plan commits, and relies on what that condemns; and its owner forgets another
/// snapshot. Both came since the plan, and the verdict spares what the new one needs.
#[test]
fn what_came_and_what_is_to_go_since_the_plan_are_both_looked_at() {
    let history = History::new(48, &[3, 4, 5]);
    let world = &history.world;
    let (stored, name, object) = stopped_before_its_commit(world);
    let objects = Arc::new(MemoryBackend::from_snapshot(stored));
    let repository = world.open_over(objects.clone()).unwrap();
    assert_eq!(collect(&repository).unwrap().waiting.len(), 1);
    let plan = Collections::read(&repository).unwrap().open.unwrap().selection;
    objects.create(&name, &object).unwrap();
    forget(&repository, &[history.kept[0].0]).unwrap();
    let repository = world.open_over(objects.clone()).unwrap();
    let outcome = collect(&repository).unwrap();
    assert!(!plan.slots.is_empty() && outcome.carried.snapshots > 0);
    let new = name.file().parse().unwrap();
    world.assert_holds(&repository, new, &world.image(), "it began before the plan");
    for (id, image) in &history.kept[1..] {
        world.assert_holds(&repository, *id, image, "kept");
    }
    check_sound(&repository, "in the end");
}
