//! `forget` and `prune`: what no snapshot needs goes, what any needs stays, with any fault or
//! any other verb at any time.

mod beside;
mod damaged;
mod faults;
mod hidden;
mod lost;
mod rounds;
mod sessions;

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

/// Objects of a folder that only some have, and their bytes.
fn differing<'o>(some: &'o Objects, others: &Objects, folder: &str) -> Vec<(&'o ObjectName, u64)> {
    let of_folder = some.iter().filter(|(name, _)| name.folder() == folder);
    let missing = of_folder.filter(|(name, _)| !others.contains_key(*name));
    missing.map(|(name, object)| (name, object.len() as u64)).collect()
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
