//! Snapshots whose objects were removed, and that were not forgotten: what they need stays.

use std::io::{self, Read};
use std::path::Path;

use strongroom_engine::backup_reader;
use strongroom_source::{ForeignRoot, SourceOptions};
use strongroom_testkit::{Listener, noise};

use super::*;
use crate::read_back::read_back;
use crate::verify::check_all;

/// Commits again what is lost.
fn recover(repository: &Repository) {
    let mut plan = RepairPlan::default();
    plan_recovery(repository, &mut plan, &Silent, &Cancel::new()).unwrap();
    repair(repository, &plan, &Silent, &Cancel::new()).unwrap();
}

/// What it needs stays, and what was forgotten goes.
#[test]
fn a_snapshot_that_was_removed_and_not_forgotten_loses_nothing() {
    let history = History::new(60, &[0]);
    let world = &history.world;
    let (id, image) = &history.kept[1];
    world.objects.remove(&strongroom_repository::snapshot_object(*id)).unwrap();
    for _ in 0..2 {
        let outcome = collect(&world.open()).unwrap();
        assert_eq!(outcome.lost, [*id]);
    }
    let repository = world.open();
    assert!(!snapshot_ids(&repository).contains(&history.forgotten[0]), "what was forgotten went");
    recover(&world.open());
    world.assert_holds(&world.open(), *id, image, "it is committed again");
}

/// A snapshot that is lost is named once, however many collections a prune takes.
#[test]
fn what_is_lost_is_named_once_by_a_prune_of_several_collections() {
    let mut history = History::new(64, &[0, 1, 2, 3]);
    let (lost, _) = history.kept.remove(0);
    history.world.objects.remove(&strongroom_repository::snapshot_object(lost)).unwrap();
    history.world.limits.plan_snapshots_bytes_max = 70;
    let outcome = collect(&history.world.open()).unwrap();
    assert_eq!((outcome.lost, outcome.snapshots.len()), (vec![lost], 4));
    assert!(Collections::read(&history.world.open()).unwrap().last > 1);
    history.check(&history.world.open(), "after all of them");
}

/// A copy that was used, and in which a snapshot came and went, is brought back by `replicate`, which
/// brings no verdicts along. No prune is stopped by that, and its owner can let go of what is left.
#[test]
fn kept_2_what_another_copy_has_forgotten_stops_no_prune() {
    let history = History::new(61, &[0]);
    let world = &history.world;
    let copy = Arc::new(MemoryBackend::from_snapshot(world.objects.snapshot()));
    let beside = world.open_over(copy.clone()).unwrap();
    let in_copy = |seed| {
        mutate(&world.tree(), seed, TREE);
        let made = run(&beside, &options(&world.tree()), &Silent).unwrap().snapshot.id;
        (made, world.image())
    };
    let (came_and_went, last) = (in_copy(1), in_copy(2));
    forget(&beside, &[came_and_went.0]).unwrap();
    // Its trees stay for the last one, or because it is not worth it.
    let lazy = PruneOptions { unused_percent_max: 100, ..ALL };
    prune(&beside, &lazy, &Silent, &Cancel::new()).unwrap();
    replicate(&*copy, &*world.objects, &Silent, &Cancel::new()).unwrap();
    let first = collect(&world.open()).unwrap();
    assert_eq!(first.lost, [came_and_went.0]);
    assert!(!snapshot_ids(&world.open()).contains(&history.forgotten[0]));
    history.check(&world.open(), "after a prune");
    world.assert_holds(&world.open(), last.0, &last.1, "it came from the copy");
    forget(&world.open(), &[came_and_went.0]).unwrap();
    let second = collect(&world.open()).unwrap();
    assert_eq!((second.lost.len(), second.snapshots.len()), (0, 1));
    assert_eq!(collect(&world.open()).unwrap().collection, None, "nothing is left of it");
    world.assert_holds(&world.open(), last.0, &last.1, "it needs nothing of it");
    history.check_done(&world.open(), "no number is missed any more");
}

/// A lost snapshot whose content was lost, too, and stored again elsewhere by one that is forgotten now.
#[test]
fn what_a_lost_snapshot_finds_elsewhere_stays() {
    let world = World::bare(69);
    world.write("file", &noise(69, 200_000));
    let lost = (world.backup().snapshot.id, world.image());
    for name in names_in(&world.objects.snapshot(), "arenas") {
        if ArenaContent::of(ArenaName::of(&name).unwrap().id) == ArenaContent::Data {
            world.objects.remove(&name).unwrap();
        }
    }
    let again = world.backup().snapshot.id;
    world.write("file", &noise(70, 200_000));
    world.backup();
    world.objects.remove(&strongroom_repository::snapshot_object(lost.0)).unwrap();
    forget(&world.open(), &[again]).unwrap();
    let outcome = collect(&world.open()).unwrap();
    assert_eq!((outcome.lost, outcome.snapshots.len()), (vec![lost.0], 1));
    recover(&world.open());
    world.assert_holds(&world.open(), lost.0, &lost.1, "committed again");
}

/// From another copy of the repository comes back what an earlier collection has removed, while a plan waits for
/// its verdict; and with it a snapshot that needs it and is lost at once. It stays until a repair commits
/// that again.
#[test]
fn what_came_back_since_the_plan_stays_for_a_snapshot_that_was_lost() {
    let world = World::bare(68);
    let store = |repository: &Repository, seed: u64| {
        world.write("file", &noise(seed, 200_000));
        run(repository, &options(&world.tree()), &Silent).unwrap().snapshot.id
    };
    let made = [1, 2, 3].map(|seed| store(&world.open(), seed));
    let copy = Arc::new(MemoryBackend::from_snapshot(world.objects.snapshot()));
    let beside = world.open_over(copy.clone()).unwrap();
    // What the first one has, which the collection here removes meanwhile.
    let lost = (store(&beside, 1), world.image());
    store(&beside, 5);
    forget(&world.open(), &made[..1]).unwrap();
    assert!(collect(&world.open()).unwrap().carried.arenas_removed > 0);
    forget(&world.open(), &made[1..2]).unwrap();
    let (shelf, came) = (world.objects.clone(), AtomicU64::new(0));
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        let is_plan = call.kind == CallKind::Create && call.name == "collections/2.plan";
        if is_plan && came.fetch_add(1, Ordering::Relaxed) == 0 {
            replicate(&*copy, &*shelf, &Silent, &Cancel::new()).unwrap();
            shelf.remove(&strongroom_repository::snapshot_object(lost.0)).unwrap();
        }
    });
    let outcome = collect(&world.open_over(Arc::new(acting)).unwrap()).unwrap();
    assert!(outcome.carried.arenas_removed > 0, "{outcome:?}");
    recover(&world.open());
    world.assert_holds(&world.open(), lost.0, &lost.1, "committed again");
}

/// A thief removes the snapshots of one tree, and only snapshots of another are left: nothing says which
/// trees were roots, and yet a prune keeps all that they need, held or not, until they are forgotten.
#[test]
fn what_cannot_be_recognised_stays() {
    for (seed, is_remembered) in [(62, true), (63, false)] {
        let world = World::bare(seed);
        let mut kept = Vec::new();
        for night in 0..4 {
            world.write("file", &noise(seed + night, 300_000));
            kept.push((world.backup().snapshot.id, world.image()));
        }
        let snapshots = names_in(&world.objects.snapshot(), "snapshots");
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("other"), noise(7, 5_000)).unwrap();
        if is_remembered {
            run(&world.open(), &options(other.path()), &Silent).unwrap();
        }
        snapshots.iter().for_each(|name| world.objects.remove(name).unwrap());
        if !is_remembered {
            // Nothing is left that knows how many there were but what they stored.
            let error = collect(&world.open()).unwrap_err();
            assert!(matches!(error, RepositoryError::NotCollectable { .. }), "{error}");
            let listener = Listener::new();
            let first = run(&world.open(), &options(other.path()), &listener).unwrap().snapshot;
            assert_eq!(first.sequence, 5);
            let said = listener.problems();
            assert!(
                said.iter().any(|heard| heard.message.contains("there is no snapshot, although")),
                "{said:?}"
            );
        }
        let found = check_all(&world.open());
        assert_eq!(found.missing_sequences, [1..=4]);
        let named: Vec<_> = found.unrecognised.iter().map(|left| left.id).collect();
        assert_eq!(named, kept.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        for _ in 0..2 {
            let pruned = collect(&world.open()).unwrap();
            assert_eq!(pruned.lost, named);
        }
        // Nor is a session of one of them ended, which a killed backup has left.
        let copied = world.open_objects(&world.objects.snapshot()).unwrap();
        std::mem::forget(Session::resume(&copied, named[0], 1, "host").unwrap());
        forget(&copied, &named[3..]).unwrap();
        let impatient = PruneOptions { patience: Duration::ZERO, ..ALL };
        let pruned = prune(&copied, &impatient, &Silent, &Cancel::new()).unwrap();
        let waiting: Vec<_> = pruned.waiting.iter().map(|session| session.id).collect();
        assert_eq!((pruned.ended, waiting), (vec![], vec![named[0]]));
        // What is forgotten goes.
        let copied = world.open_objects(&world.objects.snapshot()).unwrap();
        forget(&copied, &named).unwrap();
        let pruned = collect(&copied).unwrap();
        assert_eq!((pruned.lost.len(), pruned.snapshots.len()), (0, 4));
        assert!(pruned.carried.removed_bytes > 1_000_000, "{pruned:?}");
        // Another backup of the same paths shows what the others were.
        world.backup();
        recover(&world.open());
        for (id, image) in &kept {
            world.assert_holds(&world.open(), *id, image, "committed again");
        }
    }
}

/// What may never have been committed is let go without its number: the next snapshot has that, and is
/// missed when it is removed.
#[test]
fn the_number_of_what_was_given_up_is_still_missed() {
    let world = World::bare(67);
    let night = |night: u64| {
        world.write("file", &noise(67 + night, 300_000));
        world.backup().snapshot
    };
    night(0);
    let given_up = night(1).id;
    take(&world, given_up);
    forget(&world.open(), &[given_up]).unwrap();
    let pruned = collect(&world.open()).unwrap();
    assert_eq!((pruned.lost.len(), pruned.snapshots.len()), (0, 1), "{pruned:?}");
    let (next, _) = (night(2), night(3));
    assert_eq!(next.sequence, 2);
    take(&world, next.id);
    assert_eq!(check_all(&world.open()).missing_sequences, [2..=2]);
    assert_eq!(collect(&world.open()).unwrap().lost, [next.id]);
}

/// A stream that is stopped while its first byte is waited for.
struct Stopping(Cancel);

impl Read for Stopping {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.cancel();
        Err(io::ErrorKind::Interrupted.into())
    }
}

/// A stream that is stopped before its first byte makes no snapshot, also of one that can only store.
#[test]
fn a_stream_that_was_stopped_is_no_lost_snapshot() {
    let world = World::bare(68);
    add_key(&world.open(), LAPTOP, "laptop", NewAccess::PutOnly("laptop"), None).unwrap();
    for passphrase in [PASSPHRASE, LAPTOP] {
        let repository = Repository::open(world.surroundings(), passphrase).unwrap();
        for is_stopped in [false, true] {
            let cancel = Cancel::new();
            let options = options(Path::new("/"));
            let (mut stopping, bytes) = (Stopping(cancel.clone()), noise(68, 3_000));
            let mut stream = &bytes[..];
            let input: &mut dyn Read = if is_stopped { &mut stopping } else { &mut stream };
            let outcome =
                backup_reader(&repository, b"stream", input, &options, &Silent, &cancel).unwrap();
            assert_eq!(outcome.committed, !is_stopped);
        }
        let pruned = collect(&world.open()).unwrap();
        assert_eq!(pruned.lost, []);
        assert_eq!(check_all(&world.open()).lost_snapshots, []);
    }
}

/// The last snapshot, which this machine remembers, shows what the others were: one repair brings all back.
#[test]
fn one_repair_brings_back_all_of_them() {
    // Their names come in any order.
    for seed in 66..70 {
        let world = World::bare(seed).with_cache();
        let mut kept = Vec::new();
        for night in 0..4 {
            world.write("file", &noise(seed + night, 300_000));
            kept.push((world.backup().snapshot.id, world.image()));
        }
        for name in names_in(&world.objects.snapshot(), "snapshots") {
            world.objects.remove(&name).unwrap();
        }
        recover(&world.open());
        for (id, image) in &kept {
            world.assert_holds(&world.open(), *id, image, "committed again");
        }
        assert!(check_all(&world.open()).is_sound());
    }
}

/// The tree of `/` has many names, of which a backup changes one: most of its chunks are those of a snapshot
/// before. All of it is found again, and a prune keeps it.
#[test]
fn a_root_of_many_chunks_comes_back_whole() {
    for refs_max in [1, 16] {
        let mut world = World::bare(68);
        world.limits.recipe_refs_max = refs_max;
        let root = ForeignRoot { path: world.tree(), ..ForeignRoot::default() };
        let source = SourceOptions { root: Some(root), ..SourceOptions::default() };
        let options = BackupOptions { paths: vec!["/".into()], source, ..options(&world.tree()) };
        for number in 0..600 {
            world.write(&format!("a name {number:03}"), &noise(number, 100));
        }
        let mut kept = Vec::new();
        for night in 0..3 {
            world.write("a name 300", &noise(1000 + night, 5000));
            let made = run(&world.open(), &options, &Silent).unwrap().snapshot;
            assert!(made.root.depth > 0, "a node is above its chunks: {:?}", made.root);
            kept.push((made.id, read_back(&world.open(), made.id, Path::new("/")).unwrap()));
        }
        take(&world, kept[1].0);
        recover(&world.open());
        forget(&world.open(), &[kept[0].0]).unwrap();
        collect(&world.open()).unwrap();
        for (id, image) in &kept[1..] {
            let found = read_back(&world.open(), *id, Path::new("/")).unwrap();
            image.assert_same(&found, "committed again");
        }
    }
}

/// Snapshots are removed, a prune runs, and they are put back: they hold what they held.
#[track_caller]
fn check_put_back(world: &World, taken: &[(ObjectName, Vec<u8>)], kept: &[(SnapshotId, Image)]) {
    for _ in 0..2 {
        collect(&world.open()).unwrap();
    }
    for (name, object) in taken {
        world.objects.create(name, object).unwrap();
    }
    for (id, image) in kept {
        world.assert_holds(&world.open(), *id, image, "put back");
    }
}

fn take(world: &World, id: SnapshotId) -> (ObjectName, Vec<u8>) {
    let name = strongroom_repository::snapshot_object(id);
    let object = world.objects.snapshot()[&name].clone();
    world.objects.remove(&name).unwrap();
    (name, object)
}

/// What a removed snapshot had, and one that is to go has too, stays.
#[test]
fn a_snapshot_that_was_as_one_that_goes() {
    let world = World::bare(64);
    let night = |seed| {
        world.write("file", &noise(seed, 300_000));
        world.backup().snapshot.id
    };
    night(640);
    let second = (night(641), world.image());
    let same = world.backup().snapshot.id;
    night(642);
    let taken = take(&world, second.0);
    forget(&world.open(), &[same]).unwrap();
    check_put_back(&world, &[taken], &[second]);
}

/// Two backups at once have one number. If one of the two snapshots is removed, the number is not missed, and
/// what is left of it stays nevertheless, as `repair` would commit it again.
#[test]
fn one_of_two_with_the_same_number() {
    let world = World::bare(65);
    world.write("file", &noise(650, 300_000));
    world.backup();
    let other = World::bare(66);
    let (meanwhile, tree) = (world.open(), options(&other.tree()));
    other.write("other", &noise(660, 5_000));
    world.write("file", &noise(651, 300_000));
    let is_first = std::sync::atomic::AtomicBool::new(true);
    let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
        let is_commit = call.kind == CallKind::Create && call.folder() == "snapshots";
        if is_commit && is_first.swap(false, Ordering::Relaxed) {
            run(&meanwhile, &tree, &Silent).unwrap();
        }
    });
    let writer = world.open_over(Arc::new(acting)).unwrap();
    let made = run(&writer, &options(&world.tree()), &Silent).unwrap().snapshot;
    let kept = (made.id, world.image());
    assert_eq!(list_snapshots(&world.open()).unwrap().snapshots[1].sequence, made.sequence);
    world.write("file", &noise(652, 300_000));
    world.backup();
    let taken = take(&world, made.id);
    assert_eq!(collect(&world.open()).unwrap().lost, [made.id]);
    check_put_back(&world, &[taken], &[kept]);
}

/// Snapshots of a machine that may only store: removed before the owner saw them, or after; and giving one of
/// them up gives up none of the owner's that has its number.
#[test]
fn of_a_machine_that_may_only_store() {
    for was_seen in [false, true] {
        let world = World::bare(67);
        add_key(&world.open(), LAPTOP, "laptop", NewAccess::PutOnly("laptop"), None).unwrap();
        let laptop = || world.open_with(world.surroundings(), LAPTOP).unwrap();
        let night = |repository: &Repository, seed| {
            world.write("file", &noise(seed, 300_000));
            let id = run(repository, &options(&world.tree()), &Silent).unwrap().snapshot.id;
            (id, world.image())
        };
        let own = night(&world.open(), 670);
        let theirs: Vec<_> = (0..3).map(|number| night(&laptop(), 671 + number)).collect();
        night(&world.open(), 680);
        if was_seen {
            collect(&world.open()).unwrap();
        }
        let taken = [own.0, theirs[0].0].map(|id| take(&world, id));
        let mut lost = collect(&world.open()).unwrap().lost;
        lost.sort_unstable();
        let mut expected = vec![own.0, theirs[0].0];
        expected.sort_unstable();
        assert_eq!(lost, expected, "{was_seen}");
        forget(&world.open(), &[theirs[0].0]).unwrap();
        collect(&world.open()).unwrap();
        let found = check_all(&world.open());
        assert_eq!(found.missing_sequences, [1..=1]);
        assert!(found.misses_snapshots());
        check_put_back(&world, &taken[..1], &[own]);
    }
}
