//! `forget` and `prune`: what no snapshot needs goes, what any needs stays, with any fault or
//! any other verb at any time.

mod damaged;
mod hidden;
mod lost;
mod rounds;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use strongroom_arena::{ArenaContent, ArenaName};
use strongroom_backend::{Backend, MemoryBackend, ObjectName};
use strongroom_base::{Cancel, Silent, SnapshotId};
use strongroom_engine::{BackupOptions, BackupOutcome};
use strongroom_repository::{
    ArenaSlots, Collections, Forgotten, Repository, RepositoryError, Selection, Session, SlotSets,
    Wishes, create_plan, create_verdict, list_snapshots,
};
use strongroom_testkit::damage::{Objects, names_in};
use strongroom_testkit::tree::{TreeOptions, grow, mutate};
use strongroom_testkit::{
    Call, CallKind, Calls, FaultKind, FaultPlan, FaultyBackend, Image, Random, RecordingBackend,
};
use strongroom_upkeep::{
    Fault, NewAccess, PruneOptions, PruneOutcome, RepairPlan, VerifyDepth, add_key, forget,
    plan_recovery, prune, remember, repair, replicate, verify,
};

use crate::world::{ALL, LAPTOP, PASSPHRASE, World, init_options, options, run, snapshot_ids};

/// Few and small files: each of some hundred rounds reads them all.
const TREE: TreeOptions =
    TreeOptions { entries: 10, chunk_bytes: 6 << 10, file_bytes_max: 40 << 10 };

/// A repository of several versions, some of them forgotten.
struct History {
    world: World,
    kept: Vec<(SnapshotId, Image)>,
    forgotten: Vec<SnapshotId>,
}

impl History {
    /// Six versions. Of these, the ones at `forgotten` are.
    fn new(seed: u64, forgotten: &[usize]) -> Self {
        let world = World::empty(seed);
        grow(&world.tree(), seed, TREE);
        Repository::init(world.surroundings(), PASSPHRASE, &init_options()).unwrap();
        let mut history = Self { world, kept: Vec::new(), forgotten: Vec::new() };
        for version in 0..6 {
            let id = history.world.backup().snapshot.id;
            match forgotten.contains(&version) {
                true => history.forgotten.push(id),
                false => history.kept.push((id, history.world.image())),
            }
            let (tree, seed) = (history.world.tree(), 100 * seed + version as u64);
            mutate(&tree, seed, TREE);
            let place = |version: usize| tree.join(format!("since {version}"));
            grow(&place(version), seed, TREE);
            if let Some(before) = version.checked_sub(2) {
                let _ = std::fs::remove_dir_all(place(before));
            }
        }
        let repository = history.world.open();
        assert_eq!(forget(&repository, &history.forgotten).unwrap(), forgotten.len());
        history
    }

    #[track_caller]
    fn check(&self, repository: &Repository, what: &str) {
        for (id, image) in &self.kept {
            self.world.assert_holds(repository, *id, image, what);
        }
    }

    /// Everything is as if the forgotten snapshots had never been.
    #[track_caller]
    fn check_done(&self, repository: &Repository, what: &str) {
        self.check(repository, what);
        let ids = snapshot_ids(repository);
        for (id, _) in &self.kept {
            assert!(ids.contains(id), "{what}: {} is kept", id.short());
        }
        assert!(!ids.iter().any(|id| self.forgotten.contains(id)), "{what}");
        check_sound(repository, what);
    }
}

#[track_caller]
fn check_sound(repository: &Repository, what: &str) {
    let outcome = verify(repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
    assert!(outcome.is_sound(), "{what}: {:?}, {:?}", outcome.faults, outcome.affected);
    assert!(outcome.lost_snapshots.is_empty(), "{what}: {:?}", outcome.lost_snapshots);
    assert!(outcome.missing_sequences.is_empty(), "{what}: {:?}", outcome.missing_sequences);
}

fn collect(repository: &Repository) -> Result<PruneOutcome, RepositoryError> {
    prune(repository, &ALL, &Silent, &Cancel::new())
}

fn stored_bytes(objects: &Objects) -> usize {
    objects.iter().filter(|(name, _)| name.folder() == "arenas").map(|(_, o)| o.len()).sum()
}

#[test]
fn what_no_snapshot_needs_goes_and_the_rest_stays() {
    for (seed, forgotten) in [(1, &[0, 1, 2, 3][..]), (2, &[1, 3, 5]), (3, &[5]), (4, &[0])] {
        let history = History::new(seed, forgotten);
        let world = &history.world;
        let before = stored_bytes(&world.objects.snapshot());
        let outcome = collect(&world.open()).unwrap();
        assert_eq!(outcome.snapshots.len(), forgotten.len());
        assert!(outcome.waiting.is_empty());
        history.check_done(&world.open(), "after a prune");
        let after = stored_bytes(&world.objects.snapshot());
        assert!(after < before, "seed {seed}: {before} → {after}");
        let again = collect(&world.open()).unwrap();
        assert_eq!((again.collection, again.snapshots.len()), (None, 0), "nothing is left");
        let next = world.backup();
        world.assert_holds(&world.open(), next.snapshot.id, &world.image(), "the next backup");
        history.check_done(&world.open(), "after the next backup");
    }
}

/// What twenty collections have removed is read from two ends; and if ends are lost, from verdicts.
#[test]
fn ends_unite_what_was_removed() {
    let world = World::bare(13);
    grow(&world.tree(), 13, TREE);
    let mut last = world.backup().snapshot.id;
    let mut forgotten = Vec::new();
    for number in 1..=20 {
        mutate(&world.tree(), number, TREE);
        let next = world.backup().snapshot.id;
        forget(&world.open(), &[last]).unwrap();
        assert_eq!(collect(&world.open()).unwrap().collection, Some(number));
        forgotten.push(std::mem::replace(&mut last, next));
    }
    let removed = |objects: Arc<dyn Backend>| {
        let collections = Collections::read(&world.open_over(objects).unwrap()).unwrap();
        assert_eq!((collections.last, collections.next), (20, 21));
        assert!(forgotten.iter().all(|snapshot| collections.took(*snapshot)));
        let dead: Vec<_> = collections.dead().collect();
        assert!(dead.len() > 20, "{} arenas", dead.len());
        dead
    };
    let recording = Arc::new(RecordingBackend::new(world.objects.clone()));
    let dead = removed(recording.clone());
    let is_read = |call: &&Call| call.kind == CallKind::Read && call.folder() == "collections";
    assert_eq!(recording.take().iter().filter(is_read).count(), 2, "twenty is sixteen and four");
    for lost in [&[16][..], &[4, 12, 16], &[20], &[1, 2, 3, 4, 5, 6, 7, 8, 16, 18]] {
        let objects = MemoryBackend::from_snapshot(world.objects.snapshot());
        for number in lost {
            objects.remove(&ObjectName::new("collections", format!("{number}.done"))).unwrap();
        }
        assert_eq!(removed(Arc::new(objects)), dead, "without the ends {lost:?}");
    }
}

/// Each object that is not needed is gone just before a collector reads it, as if another collector had
/// removed it: one that ended a collection which the first one has just begun to carry out.
#[test]
fn what_another_collector_removes_meanwhile_stops_no_prune() {
    let mut history = History::new(15, &[1, 2, 3, 4]);
    // What goes has deltas, so its summary is read again for their bases.
    let mut noise = Random::new(15).noise(100_000);
    for version in 0..3 {
        noise[version * 30_000] ^= 1;
        history.world.write("one more table", &noise);
        let id = history.world.backup().snapshot.id;
        match version {
            0 | 2 => history.kept.push((id, history.world.image())),
            _ => history.forgotten.push(id),
        }
    }
    forget(&history.world.open(), &history.forgotten).unwrap();
    history.world.limits.cache_bytes_max = 0;
    let before = history.world.objects.snapshot();
    let arenas = |objects: &Objects| {
        let names = names_in(objects, "arenas").into_iter();
        names.filter_map(|name| Some(ArenaName::of(&name)?.id)).collect::<Vec<_>>()
    };
    let pruned = Arc::new(MemoryBackend::from_snapshot(before.clone()));
    collect(&history.world.open_over(pruned.clone()).unwrap()).unwrap();
    let stays = arenas(&pruned.snapshot());
    let mut removed = 0;
    for at in 0.. {
        let objects = Arc::new(MemoryBackend::from_snapshot(before.clone()));
        let reads = Calls::of(&[CallKind::Read]).within("arenas");
        let plan = FaultPlan::hiccup(reads, at, FaultKind::Vanish);
        let faulty = Arc::new(FaultyBackend::new(objects.clone(), plan));
        let repository = history.world.open_over(faulty.clone()).unwrap();
        let outcome = collect(&repository);
        if faulty.fired() == 0 {
            break;
        }
        let left = arenas(&objects.snapshot());
        match outcome {
            Ok(_) if stays.iter().all(|id| left.contains(id)) => {
                history.check(&history.world.open_over(objects).unwrap(), &format!("read {at}"));
                removed += 1;
            }
            Ok(_) => {}
            Err(error) => {
                let error = error.to_string();
                let is_needed = stays.iter().any(|id| error.contains(&id.to_string()));
                assert!(is_needed, "read {at}: {error}");
            }
        }
    }
    assert!(removed > 10, "{removed} reads of what goes");
}

/// While another collector rewrites an arena, a listing may show neither the generation that goes nor the
/// next. That is no fault of the program: either the collection goes through, or it says that it cannot.
#[test]
fn an_arena_that_one_listing_does_not_show_is_no_miscount() {
    let history = History::new(16, &[1, 2, 3, 4]);
    let before = history.world.objects.snapshot();
    let pruned = Arc::new(MemoryBackend::from_snapshot(before.clone()));
    collect(&history.world.open_over(pruned.clone()).unwrap()).unwrap();
    let after = pruned.snapshot();
    let stays = names_in(&before, "arenas").into_iter().filter(|name| after.contains_key(name));
    let (mut through, mut refused) = (0, 0);
    for hidden in stays {
        for at in 0.. {
            let objects = Arc::new(MemoryBackend::from_snapshot(before.clone()));
            let listings = Arc::new(AtomicU64::new(0));
            let (shelf, counted) = (objects.clone(), listings.clone());
            let (name, bytes) = (hidden.clone(), before[&hidden].clone());
            let acting = RecordingBackend::acting(objects.clone(), move |call| {
                let is_listing = call.kind == CallKind::List && call.folder() == "arenas";
                if is_listing && counted.fetch_add(1, Ordering::Relaxed) == at {
                    shelf.remove(&name).unwrap();
                } else if shelf.size(&name).is_err() {
                    shelf.create(&name, &bytes).unwrap();
                }
            });
            let outcome = collect(&history.world.open_over(Arc::new(acting)).unwrap());
            if listings.load(Ordering::Relaxed) <= at {
                break;
            }
            match outcome {
                Ok(_) => {
                    let what = format!("{hidden} in listing {at}");
                    history.check(&history.world.open_over(objects).unwrap(), &what);
                    through += 1;
                }
                Err(RepositoryError::NotCollectable { .. }) => refused += 1,
                Err(error) => panic!("{hidden} in listing {at}: {error}"),
            }
        }
    }
    assert!(through > 0 && refused > 0, "{through} went through, {refused} did not");
}

#[test]
fn a_prune_keeps_to_its_limits() {
    let history = History::new(11, &[1, 2, 3, 4]);
    let repository = history.world.open();
    let plan = prune(&repository, &PruneOptions { dry_run: true, ..ALL }, &Silent, &Cancel::new());
    let plan = plan.unwrap();
    let worth = plan.worth.unwrap();
    assert!(worth.arenas_rewritten > 1, "{worth:?}");
    let shares: u64 = plan.own_bytes.iter().map(|(_, bytes)| bytes).sum();
    assert!(plan.own_bytes.len() == 4 && plan.own_bytes.iter().all(|(_, bytes)| *bytes > 0));
    // What is freed are objects with their heads, summaries and parity.
    assert!(shares <= worth.freed_bytes && shares * 4 > worth.freed_bytes, "{plan:?}");

    let budget = worth.rewritten_bytes / 2;
    let limited = PruneOptions { rewritten_max: Some(budget), ..ALL };
    let first = prune(&repository, &limited, &Silent, &Cancel::new()).unwrap();
    let chosen = first.worth.unwrap();
    assert!(chosen.rewritten_bytes <= budget && chosen.unused_bytes > 0, "{chosen:?}");
    history.check(&repository, "within a budget of bytes");

    let hasty = PruneOptions { time_max: Some(Duration::ZERO), ..ALL };
    let mut runs = 0;
    while prune(&history.world.open(), &hasty, &Silent, &Cancel::new())
        .unwrap()
        .collection
        .is_some()
    {
        history.check(&repository, "within a budget of time");
        runs += 1;
        assert!(runs < 50, "it never ends");
    }
    assert!(runs > 1, "it was done at once");
    history.check_done(&history.world.open(), "after all budgets");
}

/// What stays is hardly more than what the kept snapshots would take alone.
#[test]
fn little_is_left_over() {
    let history = History::new(5, &[0, 1, 2, 3, 4]);
    collect(&history.world.open()).unwrap();
    let left = stored_bytes(&history.world.objects.snapshot());
    let fresh = World::bare(6);
    let mut alone = options(&history.world.tree());
    alone.host = "another".to_owned();
    // The tree has changed once more since the last version.
    run(&history.world.open(), &alone, &Silent).unwrap();
    let repository = fresh.open();
    run(&repository, &alone, &Silent).unwrap();
    let alone = stored_bytes(&fresh.objects.snapshot());
    assert!(left < alone * 13 / 10, "{left} bytes are left, alone it takes {alone}");
}

/// The answer to a wish may be lost, and the wish come after it was taken back.
#[test]
fn a_wish_that_comes_late_is_taken_back_too() {
    let history = History::new(12, &[]);
    let world = &history.world;
    let (id, _) = history.kept[0];
    let elsewhere = Arc::new(MemoryBackend::from_snapshot(world.objects.snapshot()));
    forget(&world.open_over(elsewhere.clone()).unwrap(), &[id]).unwrap();
    let late = elsewhere.snapshot();
    assert_eq!(remember(&world.open(), &[id]).unwrap(), []);
    for name in names_in(&late, "forgotten") {
        world.objects.create(&name, &late[&name]).unwrap();
    }
    let outcome = collect(&world.open()).unwrap();
    assert_eq!(outcome.snapshots, []);
    history.check_done(&world.open(), "after a late wish");
    assert_eq!(forget(&world.open(), &[id]).unwrap(), 1, "a later wish counts");
}

#[test]
fn a_wish_can_be_taken_back_until_a_plan_has_it() {
    let history = History::new(7, &[1, 4]);
    let repository = history.world.open();
    let [one, other] = history.forgotten[..] else { panic!("two are forgotten") };
    assert_eq!(list_snapshots(&repository).unwrap().forgotten.len(), 2);
    assert_eq!(forget(&repository, &[one]).unwrap(), 0, "it is forgotten already");
    assert_eq!(remember(&repository, &[one]).unwrap(), []);
    assert_eq!(remember(&repository, &[one]).unwrap(), [], "once more does no harm");
    assert!(snapshot_ids(&repository).contains(&one));
    // A session that is open keeps the collection from its verdict.
    let session = Session::begin(&repository, "host").unwrap();
    let outcome = collect(&repository).unwrap();
    assert_eq!(outcome.waiting.len(), 1);
    assert_eq!(remember(&repository, &[other]).unwrap(), [other], "too late");
    drop(session);
    let outcome = collect(&repository).unwrap();
    // The collector has read the wishes again: it was taken back after all.
    assert!(outcome.snapshots.is_empty());
    assert_eq!(snapshot_ids(&repository).len(), 6);
    check_sound(&repository, "both are kept");
    assert_eq!(forget(&repository, &[one, other]).unwrap(), 2);
    collect(&repository).unwrap();
    history.check_done(&repository, "forgotten for good");
    assert!(Wishes::read(&repository).unwrap().forgotten().next().is_none());
}

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

/// What a snapshot that stays needs is in an arena that is missing: it may come back, so its bases and
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

/// A whole backup of what only forgotten snapshots hold, between any two calls of a prune.
#[test]
fn a_backup_at_any_call_of_a_prune() {
    let history = History::new(20, &[3, 4, 5]);
    let world = &history.world;
    // Much like the last version, which is forgotten.
    let image = world.image();
    let base = world.objects.snapshot();
    for at in 0.. {
        let what = format!("a backup at call {at}");
        let objects = Arc::new(MemoryBackend::from_snapshot(base.clone()));
        let writer = world.open_over(objects.clone()).unwrap();
        let tree = options(&world.tree());
        let (calls, backed_up) = (AtomicU64::new(0), Arc::new(Mutex::new(None)));
        let done = backed_up.clone();
        let acting = RecordingBackend::acting(objects.clone(), move |_| {
            if calls.fetch_add(1, Ordering::Relaxed) == at {
                let outcome = run(&writer, &tree, &Silent).unwrap();
                *done.lock().unwrap() = Some(outcome.snapshot.id);
            }
        });
        let pruner = world.open_over(Arc::new(acting)).unwrap();
        let outcome = collect(&pruner).unwrap();
        assert!(outcome.waiting.is_empty(), "{what}: the backup had ended");
        let repository = world.open_over(objects).unwrap();
        history.check_done(&repository, &what);
        let Some(id) = *backed_up.lock().unwrap() else {
            assert!(at > 20, "{what}: a prune makes some calls");
            return;
        };
        world.assert_holds(&repository, id, &image, &what);
    }
}

/// A whole prune between any two calls of a backup: patient, or so impatient that it ends the
/// backup's session.
#[test]
fn a_prune_at_any_call_of_a_backup() {
    for patience in [Duration::MAX, Duration::ZERO] {
        let history = History::new(30, &[3, 4, 5]);
        let world = &history.world;
        let image = world.image();
        let base = world.objects.snapshot();
        let mut begun_again = 0;
        for at in 0.. {
            let what = format!("a prune at call {at}, patience {patience:?}");
            let objects = Arc::new(MemoryBackend::from_snapshot(base.clone()));
            let pruner = world.open_over(objects.clone()).unwrap();
            let made = AtomicU64::new(0);
            let acting = RecordingBackend::acting(objects.clone(), move |_| {
                if made.fetch_add(1, Ordering::Relaxed) == at {
                    prune(&pruner, &PruneOptions { patience, ..ALL }, &Silent, &Cancel::new())
                        .unwrap();
                }
            });
            let acting = Arc::new(acting);
            let writer = world.open_over(acting.clone()).unwrap();
            let outcome = run(&writer, &options(&world.tree()), &Silent);
            let outcome = outcome.unwrap_or_else(|error| panic!("{what}: {error}"));
            let repository = world.open_over(objects).unwrap();
            history.check(&repository, &what);
            world.assert_holds(&repository, outcome.snapshot.id, &image, &what);
            let calls = acting.take();
            let begins =
                |call: &&Call| call.kind == CallKind::Create && call.folder() == "sessions";
            begun_again += usize::from(calls.iter().filter(begins).count() > 1);
            // Again, with what the first one stored.
            let next = run(&repository, &options(&world.tree()), &Silent).unwrap();
            collect(&repository).unwrap();
            history.check_done(&repository, &what);
            world.assert_holds(&repository, next.snapshot.id, &image, &what);
            if calls.len() as u64 <= at {
                break;
            }
        }
        assert_eq!(begun_again > 0, patience.is_zero(), "{begun_again} began again");
    }
}

/// Two collectors: the second does a whole prune at any call of the first.
#[test]
fn a_prune_at_any_call_of_a_prune() {
    let history = History::new(40, &[0, 1, 4]);
    let world = &history.world;
    let base = world.objects.snapshot();
    for at in 0.. {
        let what = format!("a prune at call {at}");
        let objects = Arc::new(MemoryBackend::from_snapshot(base.clone()));
        let second = world.open_over(objects.clone()).unwrap();
        let calls = AtomicU64::new(0);
        let acting = RecordingBackend::acting(objects.clone(), move |_| {
            if calls.fetch_add(1, Ordering::Relaxed) == at {
                collect(&second).unwrap();
            }
        });
        let acting = Arc::new(acting);
        let first = world.open_over(acting.clone()).unwrap();
        collect(&first).unwrap_or_else(|error| panic!("{what}: {error}"));
        let repository = world.open_over(objects).unwrap();
        history.check(&repository, &what);
        collect(&repository).unwrap();
        history.check_done(&repository, &what);
        if acting.take().len() as u64 <= at {
            return;
        }
    }
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

/// A creation that was on its way for long, or a copy that was put back.
#[test]
fn what_comes_back_after_a_verdict_does_not_exist() {
    let history = History::new(70, &[0, 1, 2]);
    let world = &history.world;
    let before = world.objects.snapshot();
    collect(&world.open()).unwrap();
    let after = world.objects.snapshot();
    let removed = |folder: &str| {
        let names = before.keys().filter(|name| name.folder() == folder);
        names.filter(|name| !after.contains_key(*name)).cloned().collect::<Vec<_>>()
    };
    let [arenas, snapshots] = ["arenas", "snapshots"].map(removed);
    assert_eq!(snapshots.len(), 3);
    for name in arenas.iter().chain(&snapshots) {
        world.objects.create(name, &before[name]).unwrap();
    }
    let repository = world.open();
    history.check_done(&repository, "they are back");
    // What only they hold is stored again.
    let next = world.backup();
    forget(&repository, &[history.kept[0].0]).unwrap();
    collect(&repository).unwrap();
    let image = world.image();
    world.assert_holds(&repository, next.snapshot.id, &image, "the next backup");
    for name in &snapshots {
        assert!(!world.objects.snapshot().contains_key(name), "{name} is removed again");
    }
    check_sound(&repository, "after the next prune");
}

/// What only the owner may decide counts from no other: objects of another owner under the names
/// of a wish, a plan, a verdict and an end.
#[test]
fn only_the_owner_forgets_and_collects() {
    let history = History::new(80, &[]);
    let (id, _) = history.kept[2];
    let world = &history.world;
    let before = world.objects.snapshot();
    // Another owner forgets and collects the same.
    let other = World::bare(81);
    let theirs = other.open();
    forget(&theirs, &[id]).unwrap();
    let slots = names_in(&before, "arenas").into_iter();
    let slots = slots.map(|name| (ArenaName::of(&name).unwrap().id, ArenaSlots::All));
    let gone = Forgotten { id, domain: String::new(), sequence: 3 };
    let all = Selection { snapshots: vec![gone], slots: SlotSets(slots.collect()) };
    assert!(create_plan(&theirs, 1, &all).unwrap());
    create_verdict(&theirs, 1, &all).unwrap();
    let mut planted = Vec::new();
    for (name, object) in other.objects.snapshot() {
        if matches!(name.folder(), "collections" | "forgotten") {
            world.objects.create(&name, &object).unwrap();
            planted.push((name, Fault::Planted));
        }
    }
    let repository = world.open();
    history.check(&repository, "beside what is forged");
    let found = verify(&repository, VerifyDepth::Structure, &Silent, &Cancel::new()).unwrap();
    let mut faults = found.faults.clone();
    faults.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(faults, planted, "each of them, and nothing else");
    assert!(found.affected.is_empty(), "{:?}", found.affected);
    world.backup();
    assert_eq!(world.backup().written.data_chunks_new, 0, "everything is there");
    forget(&repository, &[history.kept[0].0]).unwrap();
    let outcome = collect(&repository).unwrap();
    assert_eq!((outcome.collection, outcome.snapshots.len()), (Some(2), 1), "the next number");
    for (id, image) in &history.kept[1..] {
        world.assert_holds(&repository, *id, image, "after a prune");
    }
    // A machine with a put-only key cannot even try.
    add_key(&repository, LAPTOP, "laptop", NewAccess::PutOnly("laptop"), None).unwrap();
    let laptop = Repository::open(world.surroundings(), LAPTOP).unwrap();
    assert!(matches!(forget(&laptop, &[id]), Err(RepositoryError::PutOnly)));
    assert!(matches!(create_plan(&laptop, 9, &all), Err(RepositoryError::PutOnly)));
    assert!(matches!(collect(&laptop), Err(RepositoryError::PutOnly)));
}

/// Found by the simulation, seed 369246 at 3c71297: a collector was overtaken twice. The others
/// ended its collection without removing anything, and removed with the next what it was about to
/// read. It took their empty verdict for its own, and said that an arena is missing.
#[test]
fn a_collector_that_is_overtaken_twice_does_not_report_what_others_removed() {
    let history = History::new(85, &[0]);
    let world = &history.world;
    let (repository, forgotten) = (world.open(), history.forgotten[0]);
    let steps = AtomicU64::new(0);
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        let step = steps.load(Ordering::SeqCst);
        let is_next = match step {
            0 => call.kind == CallKind::Create && call.name == "collections/1.plan",
            1 => call.kind == CallKind::List && call.name == "sessions",
            2 => call.name.starts_with("arenas/"),
            _ => false,
        };
        if !is_next || steps.fetch_add(1, Ordering::SeqCst) != step {
            return;
        }
        match step {
            // From now on the collector needs all that this snapshot needs.
            1 => assert_eq!(remember(&repository, &[forgotten]).unwrap(), [forgotten]),
            2 => {
                assert_eq!(collect(&repository).unwrap().collection, Some(1));
                forget(&repository, &[forgotten]).unwrap();
                assert_eq!(collect(&repository).unwrap().collection, Some(2));
            }
            _ => {}
        }
    });
    collect(&world.open_over(Arc::new(acting)).unwrap()).unwrap();
    let collections = Collections::read(&world.open()).unwrap();
    assert_eq!((collections.last, collections.open), (2, None));
    history.check_done(&world.open(), "after them all");
}

/// What a reader learns of the collections if this happens once it has listed the plan of the second,
/// which waits, and before it reads it.
#[track_caller]
fn check_between_listing_and_plan(seed: u64, act: fn(&Repository)) {
    let history = History::new(seed, &[0, 1]);
    let world = &history.world;
    let repository = world.open();
    collect(&repository).unwrap();
    let (id, _) = history.kept[0];
    forget(&repository, &[id]).unwrap();
    let session = Session::begin(&repository, "host").unwrap();
    assert_eq!(collect(&repository).unwrap().waiting.len(), 1);
    drop(session);
    // A planted name is read between the listing and the plan.
    let objects = world.objects.snapshot();
    let end = &objects[&ObjectName::new("collections", "1.done")];
    world.objects.create(&ObjectName::new("collections", "9.done"), end).unwrap();
    let reads = AtomicU64::new(0);
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        let is_between = call.kind == CallKind::Read && call.name == "collections/9.done";
        if is_between && reads.fetch_add(1, Ordering::Relaxed) == 0 {
            act(&repository);
        }
    });
    let reader = world.open_over(Arc::new(acting)).unwrap();
    let collections = Collections::read(&reader).unwrap();
    assert!(collections.took(id));
    assert_eq!((collections.last, collections.open), (2, None));
}

/// A collection that ends between the listing of its plan and the reading of it: what its verdict
/// removed is known all the same.
#[test]
fn a_plan_that_vanishes_while_it_is_read_is_not_overlooked() {
    check_between_listing_and_plan(90, |repository| {
        assert_eq!(collect(repository).unwrap().collection, Some(2));
    });
}

/// Found by the simulation, seed 620289 at 9502a95: a collection went through between the listing of
/// its plan and the reading of it, and a collector that had slept created its own plan under the name
/// that was free again. Undo said that a snapshot stays which was gone.
#[test]
fn a_plan_that_is_created_again_is_not_taken_for_the_first() {
    check_between_listing_and_plan(92, |repository| {
        assert_eq!(collect(repository).unwrap().collection, Some(2));
        assert!(create_plan(repository, 2, &Selection::default()).unwrap());
    });
}

/// Found by the simulation, seed 659773 at 5d21ec7: a collection went through while the collections
/// were listed, and the listing had neither its plan, which was removed, nor its verdict, which was
/// new. Undo said that the snapshot stays. Seed 1796005682334 at e5ddfa94: the listing had the copy of
/// its plan, which is removed first, and that was taken for something planted. The next collection may
/// have begun, too, and then hid it.
#[test]
fn a_collection_that_goes_through_during_a_listing_is_not_overlooked() {
    let shown = [(None, 2), (Some("2.plan.copy"), 2), (Some("2.plan"), 2), (None, 3)];
    for (shown, last) in shown.into_iter().chain([(Some("2.plan.copy"), 3)]) {
        let history = History::new(91, &[0, 1]);
        let world = &history.world;
        let repository = world.open();
        collect(&repository).unwrap();
        let (id, _) = history.kept[0];
        forget(&repository, &[id]).unwrap();
        let objects = world.objects.clone();
        let shown = shown.map(|file| ObjectName::new("collections", file));
        let (lists, hidden) = (AtomicU64::new(0), Mutex::new(Objects::new()));
        let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
            for (name, bytes) in std::mem::take(&mut *hidden.lock().unwrap()) {
                shown.iter().for_each(|shown| drop(objects.remove(shown)));
                objects.create(&name, &bytes).unwrap();
            }
            let is_listing = call.kind == CallKind::List && call.name == "collections";
            if is_listing && lists.fetch_add(1, Ordering::Relaxed) == 0 {
                assert_eq!(collect(&repository).unwrap().collection, Some(2));
                if last == 3 {
                    assert!(create_plan(&repository, 3, &Selection::default()).unwrap());
                }
                let mut new = objects.snapshot();
                new.retain(|name, _| {
                    name.folder() == "collections" && name.file().starts_with("2.")
                });
                assert_eq!(new.len(), 3, "a verdict, its copy, an end");
                for name in new.keys() {
                    objects.remove(name).unwrap();
                }
                shown.iter().for_each(|shown| objects.create(shown, b"a plan").unwrap());
                *hidden.lock().unwrap() = new;
            }
        });
        let reader = world.open_over(Arc::new(acting)).unwrap();
        let collections = Collections::read(&reader).unwrap();
        assert!(collections.took(id));
        assert_eq!((collections.last, collections.open.is_some()), (last, last == 3));
    }
}
