//! Restores that are cut short, and restores of what is damaged.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use strongroom_backend::{Backend, MemoryBackend, Promises};
use strongroom_base::{Cancel, Monitor, Progress, Severity, Silent, SnapshotId};
use strongroom_engine::{EngineError, restore};
use strongroom_repository::{InitOptions, Repository, RepositoryError, read_snapshot};
use strongroom_testkit::damage::names_in;
use strongroom_testkit::{
    CallKind, Calls, Change, FaultKind, FaultPlan, FaultyBackend, Image, Kind, Listener, Random,
    RecordingBackend, noise, skip,
};

use crate::damage::{each_damage, is_within_parity, scene};
use crate::read_back::lost_paths;
use crate::restore::{exactly, into, restore_whole, run_restore};
use crate::world::{PASSPHRASE, World, init_options, options, run, scratch};

/// Fails each reading call in turn; afterwards a healthy restore completes what was begun.
fn check_faults(seed: u64, plan: impl Fn(u64) -> FaultPlan, what: &str) {
    let world = World::new(seed);
    let id = world.backup().snapshot.id;
    let image = world.image();
    let scratch = scratch();
    for at in 0.. {
        let what = format!("{what} at call {at}");
        let target = scratch.path().join("target");
        let faulty = Arc::new(FaultyBackend::new(world.objects.clone(), plan(at)));
        let outcome = world
            .open_over(faulty.clone())
            .map_err(EngineError::from)
            .and_then(|repository| run_restore(&repository, id, &into(&world.tree(), &target)));
        match outcome {
            Ok(outcome) => {
                assert_eq!(outcome.damaged, [] as [PathBuf; 0], "{what}: nothing is damaged");
                image.assert_same(&Image::of(&target), &what);
            }
            Err(error) => assert!(!error.is_damage(), "{what}: {error}"),
        }
        restore_whole(&world, id, &into(&world.tree(), &target));
        image.assert_same(&Image::of(&target), &format!("resumed after {what}"));
        std::fs::remove_dir_all(&target).unwrap();
        if faulty.fired() == 0 {
            assert!(at > 10);
            return;
        }
    }
}

#[test]
fn a_hiccup_at_any_call() {
    check_faults(140, |at| FaultPlan::hiccup(Calls::all(), at, FaultKind::Io), "hiccup");
}

#[test]
fn the_repository_is_gone_from_any_call_on() {
    check_faults(141, FaultPlan::crash, "crash");
}

/// A repository of arenas that are worth fetching whole, with deltas in the last snapshot.
fn with_long_arenas(seed: u64) -> (World, SnapshotId) {
    let world = World::empty(seed).with_cache();
    let init = InitOptions { arena_bytes: 8 << 20, ..init_options() };
    Repository::init(world.surroundings(), PASSPHRASE, &init).unwrap();
    let mut random = Random::new(seed);
    std::fs::create_dir_all(world.tree()).unwrap();
    let mut files: Vec<Vec<u8>> = (0..20).map(|_| random.noise(1 << 20)).collect();
    for version in 0..2 {
        for (number, bytes) in files.iter_mut().enumerate().skip(5 * version) {
            bytes[500_000] ^= 1;
            world.write(&format!("{number}"), bytes);
        }
        world.backup();
    }
    let id = world.backup().snapshot.id;
    (world, id)
}

/// The place of a world, as one that sends on behind a part, such as a server of FTP.
fn sending_no_parts<B: Backend>(place: Arc<B>) -> Arc<RecordingBackend<B>> {
    let promises = Promises { in_flight: 4, sends_parts: false, ..Promises::LOCAL };
    Arc::new(RecordingBackend::new(place).promising(promises))
}

#[test]
fn a_place_that_sends_no_parts_fails_at_any_call() {
    let (world, id) = with_long_arenas(143);
    let image = world.image();
    let plans = [
        |at| FaultPlan::hiccup(Calls::all(), at, FaultKind::Io),
        |at| FaultPlan::lasting(Calls::all(), at, FaultKind::Io),
    ];
    for plan in plans {
        for at in 0.. {
            let target = world.folder.path().join(format!("target-{at}"));
            let faulty = Arc::new(FaultyBackend::new(world.objects.clone(), plan(at)));
            let place = sending_no_parts(faulty.clone());
            let outcome = world
                .open_over(place)
                .map_err(EngineError::from)
                .and_then(|repository| run_restore(&repository, id, &into(&world.tree(), &target)));
            match outcome {
                Ok(outcome) => {
                    assert_eq!(outcome.damaged, [] as [PathBuf; 0], "call {at}");
                    image.assert_same(&Image::of(&target), &format!("call {at}"));
                }
                Err(error) => assert!(!error.is_damage(), "call {at}: {error}"),
            }
            let _ = std::fs::remove_dir_all(&target);
            if faulty.fired() == 0 {
                assert!(at > 10);
                break;
            }
        }
    }
}

#[test]
fn what_is_damaged_in_an_arena_that_was_fetched_whole_is_healed() {
    let (world, id) = with_long_arenas(144);
    let image = world.image();
    let mut objects = world.objects.snapshot();
    for (_, object) in objects.iter_mut().filter(|(_, object)| object.len() > 4 << 20) {
        let middle = object.len() / 2;
        object[middle..middle + 100].iter_mut().for_each(|byte| *byte ^= 0x55);
    }
    let place = sending_no_parts(Arc::new(MemoryBackend::from_snapshot(objects)));
    let repository = world.open_over(place).unwrap();
    let target = world.folder.path().join("target");
    let outcome = run_restore(&repository, id, &into(&world.tree(), &target)).unwrap();
    assert_eq!((outcome.problems, outcome.damaged.len()), (0, 0));
    image.assert_same(&Image::of(&target), "healed");
}

struct StopAfter {
    cancel: Cancel,
    left: AtomicU64,
}

impl Monitor for StopAfter {
    fn progress(&self, _: &Progress) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.cancel.cancel();
        }
    }
}

#[test]
fn stopped_and_resumed() {
    let world = World::new(142);
    let id = world.backup().snapshot.id;
    let image = world.image();
    let scratch = scratch();
    for calls in 1..30 {
        let target = scratch.path().join("target");
        let repository = world.open();
        let snapshot = read_snapshot(&repository, id).unwrap();
        let stop = StopAfter { cancel: Cancel::new(), left: AtomicU64::new(calls) };
        let options = into(&world.tree(), &target);
        let stopped = restore(&repository, &snapshot, &options, &stop, &stop.cancel);
        if let Err(error) = &stopped {
            assert!(
                matches!(error, EngineError::Repository(RepositoryError::Cancelled(_))),
                "{error}"
            );
        }
        let resumed = restore_whole(&world, id, &options);
        image.assert_same(&Image::of(&target), "resumed");
        if stopped.is_ok() {
            assert_eq!(resumed.bytes_written, 0);
        }
        std::fs::remove_dir_all(&target).unwrap();
    }
}

/// A restore that was asked to stop has stopped, or is finished: items in a queue are neither.
#[test]
fn stopped_at_any_read_it_is_no_success() {
    let world = World::new(145);
    let id = world.backup().snapshot.id;
    let image = world.image();
    let scratch = scratch();
    let target = scratch.path().join("target");
    let mut stopped = 0;
    for at in 0.. {
        let cancel = Cancel::new();
        let (stop, reads) = (cancel.clone(), AtomicU64::new(0));
        let backend = RecordingBackend::acting(world.objects.clone(), move |call| {
            if call.kind == CallKind::Read && reads.fetch_add(1, Ordering::Relaxed) == at {
                stop.cancel();
            }
        });
        let repository = world.open_over(Arc::new(backend)).unwrap();
        let snapshot = read_snapshot(&repository, id).unwrap();
        let mut options = into(&world.tree(), &target);
        // Everything to be read fits into the queue.
        options.workers = 64;
        match restore(&repository, &snapshot, &options, &Silent, &cancel) {
            Ok(_) => image.assert_same(&Image::of(&target), &format!("stopped at {at}")),
            Err(error) => {
                assert!(
                    matches!(error, EngineError::Repository(RepositoryError::Cancelled(_))),
                    "{error}"
                );
                stopped += 1;
            }
        }
        let _ = std::fs::remove_dir_all(&target);
        if !cancel.is_cancelled() {
            break;
        }
    }
    assert!(stopped > 5, "{stopped}");
}

/// Exactly what is lost is named as damaged; everything else is right.
#[test]
fn exactly_what_is_lost_is_named() {
    let scene = scene(143);
    let world = &scene.world;
    let scratch = scratch();
    let target = scratch.path().join("target");
    let (mut partly, mut cut) = (0, 0);
    each_damage(&scene, |structure, name, change, objects| {
        let what = format!("{change:?} of {structure:?} {name}");
        let repository = world.open_objects(objects).unwrap();
        for (id, image) in &scene.kept {
            let _ = std::fs::remove_dir_all(&target);
            let Ok(snapshot) = read_snapshot(&repository, *id) else { continue };
            let options = into(Path::new(""), &target);
            let outcome =
                restore(&repository, &snapshot, &options, &Silent, &Cancel::new()).unwrap();
            let lost = lost_paths(&repository, *id);
            assert!(lost.is_empty() || !is_within_parity(change), "{what}");
            let named: BTreeSet<PathBuf> = outcome
                .damaged
                .iter()
                .map(|path| Path::new("/").join(path.strip_prefix(&target).unwrap()))
                .collect();
            assert_eq!(named, lost, "{what}");
            let below = target.join(world.tree().strip_prefix("/").unwrap());
            if !below.exists() {
                assert!(!lost.is_empty(), "{what}");
                continue;
            }
            let is_named = |node: &[u8]| {
                let path = world.tree().join(os(node));
                lost.iter().any(|lost| path == *lost || path.starts_with(lost))
            };
            let restored = Image::of(&below);
            for (path, node) in &image.nodes {
                let marked = restored.nodes.get(&[path, &b".damaged"[..]].concat());
                if let (Kind::File(whole), Some(Kind::File(part))) =
                    (&node.kind, marked.map(|node| &node.kind))
                {
                    assert_eq!(part.bytes, whole.bytes, "{what}: {:?} is cut short", os(path));
                    cut += 1;
                }
                match restored.nodes.get(path) {
                    Some(put_back) if !is_named(path) => {
                        let apart = lost.is_empty() || node.linked_to.is_none();
                        let same = node.kind == put_back.kind && node.mtime == put_back.mtime;
                        assert!(same || node.kind == Kind::Directory, "{what}: {:?}", os(path));
                        assert!(!apart || node == put_back || node.kind == Kind::Directory);
                    }
                    Some(_) => {}
                    None => assert!(is_named(path), "{what}: {:?} is missing", os(path)),
                }
            }
            partly += usize::from(!lost.is_empty());
        }
    });
    assert!(partly > 5, "some snapshots are damaged in part");
    assert!(cut > 5, "some files are damaged in part");
}

fn os(bytes: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}

/// A hard link to a lost file is lost too, and leaves no wrong link.
#[test]
fn every_name_of_a_lost_file_is_named() {
    let world = World::new(144);
    let id = world.backup().snapshot.id;
    let mut objects = world.objects.snapshot();
    for name in names_in(&objects, "arenas") {
        if name.file().as_bytes()[0] < b'8' {
            Change::Removed.on_object(&mut objects, &name);
        }
    }
    let repository = world.open_objects(&objects).unwrap();
    let target = world.folder.path().join("target");
    let snapshot = read_snapshot(&repository, id).unwrap();
    let listener = Listener::new();
    let options = into(&world.tree(), &target);
    let outcome = restore(&repository, &snapshot, &options, &listener, &Cancel::new()).unwrap();
    for name in
        ["large", "level0/level1/level2/level3/level4/level5/level6/level7/level8/level9/large-too"]
    {
        assert!(outcome.damaged.contains(&target.join(name)), "{name}: {:?}", outcome.damaged);
        assert!(!target.join(name).exists());
    }
    let problems = listener.problems();
    let others: Vec<_> =
        problems.iter().filter(|problem| problem.severity != Severity::Damage).collect();
    assert!(others.is_empty(), "what is lost is reported as damage: {others:?}");
    // That does not make wrong what is right at the target already.
    let other = world.folder.path().join("other");
    restore_whole(&world, id, &into(&world.tree(), &other));
    let outcome = run_restore(&repository, id, &exactly(&world.tree(), &other)).unwrap();
    assert_eq!(outcome.damaged, [] as [PathBuf; 0]);
    world.image().assert_same(&Image::of(&other), "nothing was needed");
}

#[test]
fn reads_that_lie() {
    let world = World::new(145);
    let id = world.backup().snapshot.id;
    let objects = Arc::new(MemoryBackend::from_snapshot(world.objects.snapshot()));
    let scratch = scratch();
    for kind in [FaultKind::FlipBit, FaultKind::Short, FaultKind::Zeros] {
        for at in 0..40 {
            let calls = Calls::of(&[CallKind::Read]).within("arenas");
            let faulty =
                Arc::new(FaultyBackend::new(objects.clone(), FaultPlan::hiccup(calls, at, kind)));
            let repository = world.open_over(faulty).unwrap();
            let target = scratch.path().join("target");
            let outcome = run_restore(&repository, id, &into(&world.tree(), &target)).unwrap();
            assert_eq!(outcome.damaged, [] as [PathBuf; 0], "{kind:?} at {at}");
            world.image().assert_same(&Image::of(&target), &format!("{kind:?} at {at}"));
            std::fs::remove_dir_all(&target).unwrap();
        }
    }
}

/// More than ext4 takes: its end is a hole that a disk without holes would have no room for.
#[test]
fn a_file_that_cannot_reach_its_length_leaves_what_exists() {
    let world = World::bare(147);
    let memory = scratch();
    let (tree, target) = (memory.path().join("tree"), world.folder.path().join("target"));
    let (file, restored) = (tree.join("disk.img"), target.join("disk.img"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::create_dir(&target).unwrap();
    let long = |path: &Path| std::fs::File::create(path).unwrap().set_len(20 << 40);
    if long(&file).is_err() || long(&restored).is_ok() {
        return skip("this takes a file system that takes longer files than another one");
    }
    std::fs::write(&file, noise(147, 100_000)).unwrap();
    std::fs::File::options().write(true).open(&file).unwrap().set_len(20 << 40).unwrap();
    let id = run(&world.open(), &options(&tree), &Silent).unwrap().snapshot.id;
    for existing in [Some(b"whole"), None] {
        for patch in [false, true] {
            std::fs::remove_file(&restored).unwrap_or_default();
            existing.map(|bytes| std::fs::write(&restored, bytes)).transpose().unwrap();
            let mut options = into(&tree, &target);
            options.target.patch = patch;
            let outcome = run_restore(&world.open(), id, &options).unwrap();
            assert_eq!((outcome.files_failed, outcome.problems), (1, 1), "{existing:?}");
            let left = std::fs::read(&restored).ok();
            assert_eq!(left.as_deref(), existing.map(|bytes| &bytes[..]));
            assert_eq!(std::fs::read_dir(&target).unwrap().count(), existing.into_iter().count());
        }
    }
}
