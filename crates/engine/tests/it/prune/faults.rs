//! A prune with any fault, and with what is missing or cannot be read: it is done whole or not at all.

use super::*;

/// Every plan that `plan` makes of 0, 1, 2, … until nothing fails.
fn check_each_crash(seed: u64, plan: impl Fn(u64) -> FaultPlan) {
    let history = History::new(seed, &[0, 2, 3]);
    let world = &history.world;
    let base = world.objects.snapshot();
    for at in 0.. {
        let what = format!("call {at}");
        let objects = Arc::new(MemoryBackend::from_snapshot(base.clone()));
        let faulty = Arc::new(FaultyBackend::new(objects.clone(), plan(at)));
        let outcome = world.open_over(faulty.clone()).and_then(|repository| collect(&repository));
        if outcome.is_err() {
            assert!(faulty.fired() > 0, "{what}: {:?}", outcome.err());
        }
        let repository = world.open_over(objects).unwrap();
        history.check(&repository, &what);
        // A backup beside an unfinished collection relies on nothing that goes.
        let next = run(&repository, &options(&world.tree()), &Silent).unwrap();
        collect(&repository).unwrap();
        world.assert_holds(&repository, next.snapshot.id, &world.image(), &what);
        history.check_done(&repository, &what);
        if faulty.fired() == 0 {
            assert!(at > 5, "{what}: a prune makes some calls");
            return;
        }
    }
}

#[test]
fn a_crash_before_any_call() {
    check_each_crash(10, FaultPlan::crash);
}

#[test]
fn a_crash_after_any_call() {
    check_each_crash(11, FaultPlan::crash_after);
}

#[test]
fn a_full_disk_at_any_write() {
    let writes = || Calls::of(&[CallKind::Create]);
    check_each_crash(12, |at| FaultPlan::lasting(writes(), at, FaultKind::NoSpace));
}

#[test]
fn any_call_that_fails_once() {
    check_each_crash(13, |at| FaultPlan::hiccup(Calls::all(), at, FaultKind::Io));
    check_each_crash(14, |at| FaultPlan::hiccup(Calls::all(), at, FaultKind::LostAcknowledgement));
}

#[test]
fn any_read_that_gives_something_else_once() {
    let reads = || Calls::of(&[CallKind::Read]);
    check_each_crash(15, |at| FaultPlan::hiccup(reads(), at, FaultKind::FlipBit));
    check_each_crash(16, |at| FaultPlan::hiccup(reads(), at, FaultKind::Short));
    check_each_crash(17, |at| FaultPlan::hiccup(reads(), at, FaultKind::Zeros));
    check_each_crash(18, |at| FaultPlan::hiccup(reads(), at, FaultKind::BadSector));
}

/// An arena is missing that has what a snapshot that stays needs: it may come back, so its bases and
/// further copies of what it had must not go.
#[test]
fn an_arena_that_is_missing_stops_it() {
    let history = History::new(41, &[0, 2]);
    let world = &history.world;
    let before = world.objects.snapshot();
    let arenas = names_in(&before, "arenas");
    let mut stopped = 0;
    for name in &arenas {
        let objects = Arc::new(MemoryBackend::from_snapshot(before.clone()));
        let repository = world.open_over(objects.clone()).unwrap();
        objects.remove(name).unwrap();
        match collect(&repository) {
            Ok(_) => continue,
            Err(RepositoryError::NotCollectable { what, .. }) => {
                assert!(what.starts_with("arena") || what.starts_with("snapshot"), "{what}");
            }
            Err(error) => panic!("{name}: {error}"),
        }
        stopped += 1;
        objects.create(name, &before[name]).unwrap();
        assert!(objects.snapshot() == before, "{name}: nothing was done");
        collect(&repository).unwrap();
        history.check_done(&repository, name.as_str());
    }
    assert!(stopped > arenas.len() / 4, "{stopped} of {}", arenas.len());
}

/// Half of an arena is gone, more than its parity can compute: what a snapshot needs may have been in that
/// half, so nothing is collected, and it is said why.
#[test]
fn an_arena_that_was_cut_in_half_stops_it() {
    let history = History::new(42, &[0, 2]);
    let before = history.world.objects.snapshot();
    let mut stopped = 0;
    for name in names_in(&before, "arenas") {
        let mut objects = before.clone();
        let object = objects.get_mut(&name).unwrap();
        object.truncate(object.len() / 2);
        let place = Arc::new(MemoryBackend::from_snapshot(objects.clone()));
        match collect(&history.world.open_over(place.clone()).unwrap()) {
            Ok(_) => continue,
            Err(RepositoryError::NotCollectable { why, .. }) => {
                stopped += u32::from(why.contains("it is too short"));
            }
            Err(error) => panic!("{name}: {error}"),
        }
        assert!(place.snapshot() == objects, "{name}: nothing was done");
    }
    assert!(stopped > 10, "{stopped}");
}

/// The folder of the snapshots was emptied, or lost: what they had can still be recovered.
#[test]
fn a_repository_without_snapshots_is_not_emptied() {
    let history = History::new(44, &[]);
    let world = &history.world;
    let before = world.objects.snapshot();
    for name in names_in(&before, "snapshots") {
        world.objects.remove(&name).unwrap();
    }
    let error = collect(&world.open()).unwrap_err().to_string();
    assert!(error.contains("snapshots/"), "{error}");
    for name in names_in(&before, "snapshots") {
        world.objects.create(&name, &before[&name]).unwrap();
    }
    assert!(world.objects.snapshot() == before);
    // Forgotten, it may be empty, and what an interrupted backup left goes too.
    for (id, _) in &history.kept {
        forget(&world.open(), &[*id]).unwrap();
    }
    collect(&world.open()).unwrap();
    world.backup();
    let last = names_in(&world.objects.snapshot(), "snapshots").pop().unwrap();
    world.objects.remove(&last).unwrap();
    collect(&world.open()).unwrap();
    assert_eq!(stored_bytes(&world.objects.snapshot()), 0);
}

/// A base is lost for good, and what was a delta of it was stored again: that copy stays as long as
/// a snapshot needs it, and a missing arena that has nothing but bases stops a collection.
#[test]
fn what_was_stored_again_because_a_base_was_lost_stays() {
    let world = World::bare(43);
    std::fs::create_dir(world.tree()).unwrap();
    let file = world.tree().join("file");
    let mut bytes = Random::new(43).noise(200 << 10);
    std::fs::write(&file, &bytes).unwrap();
    let first = world.backup().snapshot.id;
    let bases = names_in(&world.objects.snapshot(), "arenas");
    bytes[100 << 10] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let second = world.backup();
    assert!(second.written.deltas > 0);
    let image = world.image();
    forget(&world.open(), &[first]).unwrap();
    let is_data = |name: &&ObjectName| {
        ArenaName::of(name).is_some_and(|arena| ArenaContent::of(arena.id) == ArenaContent::Data)
    };
    for name in bases.iter().filter(is_data) {
        world.objects.remove(name).unwrap();
    }
    let stopped = collect(&world.open());
    assert!(matches!(stopped, Err(RepositoryError::NotCollectable { .. })), "{stopped:?}");
    let third = world.backup();
    world.assert_holds(&world.open(), second.snapshot.id, &image, "healed");
    // Nothing but the healed snapshot needs the copies from here on.
    std::fs::write(&file, Random::new(44).noise(200 << 10)).unwrap();
    let fourth = (world.backup().snapshot.id, world.image());
    forget(&world.open(), &[third.snapshot.id]).unwrap();
    collect(&world.open()).unwrap();
    world.assert_holds(&world.open(), second.snapshot.id, &image, "after the collection");
    world.assert_holds(&world.open(), fourth.0, &fourth.1, "after the collection");
}

/// An arena vanishes after the plan was made. The collection is called off, so that a plan does not stay that
/// can never be decided.
#[test]
fn an_arena_that_vanishes_after_the_plan_ends_it() {
    let history = History::new(42, &[0, 2]);
    let world = &history.world;
    let writer = world.open();
    let session = Session::begin(&writer, "host").unwrap();
    assert_eq!(collect(&writer).unwrap().waiting.len(), 1);
    drop(session);
    let planned = world.objects.snapshot();
    let mut stopped = 0;
    for name in names_in(&planned, "arenas") {
        let objects = Arc::new(MemoryBackend::from_snapshot(planned.clone()));
        let repository = world.open_over(objects.clone()).unwrap();
        objects.remove(&name).unwrap();
        match collect(&repository) {
            Ok(_) => continue,
            Err(RepositoryError::NotCollectable { .. }) => {}
            Err(error) => panic!("{name}: {error}"),
        }
        stopped += 1;
        let collections = Collections::read(&repository).unwrap();
        assert_eq!(collections.open, None, "{name}");
        assert_eq!(collections.taken().count() + collections.dead().count(), 0, "{name}");
        let mut left = objects.snapshot();
        left.insert(name.clone(), planned[&name].clone());
        let is_kept = |name: &&ObjectName| name.folder() != "collections";
        assert!(left.keys().filter(is_kept).eq(planned.keys().filter(is_kept)), "{name}");
        // Nothing else needs it once these are forgotten.
        for (id, _) in &history.kept {
            forget(&repository, &[*id]).unwrap();
        }
        collect(&repository).unwrap();
        assert_eq!(snapshot_ids(&repository), []);
        objects.create(&name, &planned[&name]).unwrap();
    }
    assert!(stopped > 3, "{stopped}");
}

#[test]
fn nothing_is_collected_while_a_tree_cannot_be_read() {
    let history = History::new(50, &[0, 1]);
    let world = &history.world;
    let base = world.objects.snapshot();
    for name in base.keys().filter(|name| name.folder() == "arenas") {
        let mut objects = base.clone();
        objects.remove(name);
        let backend = Arc::new(MemoryBackend::from_snapshot(objects.clone()));
        let repository = world.open_over(backend.clone()).unwrap();
        match collect(&repository) {
            // It was of a forgotten snapshot, or of data alone.
            Ok(_) => {}
            Err(RepositoryError::NotCollectable { .. }) => {
                assert_eq!(backend.snapshot(), objects, "{name}: nothing was changed");
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

/// Found by the simulation, seed 25694 at 73fd9f1: a backup between the plan's listing of arenas and
/// its listing of snapshots, and its data cannot be read when the verdict is made. The bases of its
/// deltas are not known then.
#[test]
fn what_a_backup_wrote_meanwhile_cannot_be_read() {
    let world = World::bare(40);
    std::fs::create_dir(world.tree()).unwrap();
    let (small, big) = (world.tree().join("small"), world.tree().join("big"));
    std::fs::write(&small, "what stays").unwrap();
    let kept = (world.backup().snapshot.id, world.image());
    let mut noise = Random::new(40).noise(100 << 10);
    std::fs::write(&big, &noise).unwrap();
    let forgotten = world.backup().snapshot.id;
    forget(&world.open(), &[forgotten]).unwrap();
    // Much of it is found where only the forgotten snapshot has it, and the rest is like its
    // neighbours there.
    for place in [20 << 10, 50 << 10, 80 << 10] {
        noise[place..place + 8].fill(0);
    }
    std::fs::write(&big, &noise).unwrap();
    let (image, base) = (world.image(), world.objects.snapshot());
    let (mut deltas, mut refused) = (0, 0);
    for at in 0.. {
        let what = format!("a backup at call {at}");
        let objects = Arc::new(MemoryBackend::from_snapshot(base.clone()));
        let writer = world.open_over(objects.clone()).unwrap();
        let another = BackupOptions { host: "another".to_owned(), ..options(&world.tree()) };
        let calls = AtomicU64::new(0);
        let hidden: Arc<Mutex<Option<(BackupOutcome, Objects)>>> = Arc::default();
        let (store, before, hide) = (objects.clone(), base.clone(), hidden.clone());
        let acting = RecordingBackend::acting(objects.clone(), move |_| {
            if calls.fetch_add(1, Ordering::Relaxed) == at {
                let outcome = run(&writer, &another, &Silent).unwrap();
                let mut data = store.snapshot();
                data.retain(|name, _| {
                    let arena = ArenaName::of(name).map(|arena| ArenaContent::of(arena.id));
                    arena == Some(ArenaContent::Data) && !before.contains_key(name)
                });
                for (name, bytes) in &data {
                    store.replace(name, &vec![0; bytes.len()]).unwrap();
                }
                *hide.lock().unwrap() = Some((outcome, data));
            }
        });
        let pruned = collect(&world.open_over(Arc::new(acting)).unwrap());
        let Some((outcome, data)) = hidden.lock().unwrap().take() else { break };
        deltas += outcome.written.deltas;
        match pruned {
            Ok(_) => {}
            Err(RepositoryError::NotCollectable { .. }) => refused += 1,
            Err(error) => panic!("{what}: {error}"),
        }
        for (name, bytes) in data {
            objects.replace(&name, &bytes).unwrap();
        }
        let repository = world.open_over(objects).unwrap();
        world.assert_holds(&repository, outcome.snapshot.id, &image, &what);
        world.assert_holds(&repository, kept.0, &kept.1, &what);
        collect(&repository).unwrap();
        world.assert_holds(&repository, outcome.snapshot.id, &image, &what);
        check_sound(&repository, &what);
    }
    assert!(deltas > 0 && refused > 0, "{deltas} deltas, {refused} refused");
}
