//! Restore: the whole, a part, in place; what is right already is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_arena::{ArenaContent, ArenaName};
use strongroom_backend::{ObjectName, Promises};
use strongroom_base::{Cancel, Silent, SnapshotId};
use strongroom_engine::{EngineError, RestoreOptions, RestoreOutcome, RestorePlace, restore};
use strongroom_repository::{InitOptions, Repository, RepositoryError, read_snapshot};
use strongroom_source::{FilterOptions, PathFilter, TargetOptions};
use strongroom_testkit::tree::{grow, listing, mutate};
use strongroom_testkit::{Call, CallKind, Image, Kind, Listener, Random, RecordingBackend, skip};

use crate::world::{PASSPHRASE, TREE, World, init_options, options, run};

/// All of a path, by two threads, nothing deleted.
pub fn into(path: &Path, place: &Path) -> RestoreOptions {
    RestoreOptions {
        filter: None,
        path: std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec(),
        place: RestorePlace::Into(place.to_owned()),
        target: TargetOptions::default(),
        kept: Vec::new(),
        dry_run: false,
        verify: false,
        workers: 2,
    }
}

/// The same, deleting what is not in the snapshot.
pub fn exactly(path: &Path, place: &Path) -> RestoreOptions {
    let mut options = into(path, place);
    options.target.delete = true;
    options
}

pub fn run_restore(
    repository: &Repository,
    id: SnapshotId,
    options: &RestoreOptions,
) -> Result<RestoreOutcome, EngineError> {
    let snapshot = read_snapshot(repository, id)?;
    restore(repository, &snapshot, options, &Silent, &Cancel::new())
}

/// Restores, and fails the test if anything was wrong.
#[track_caller]
pub fn restore_whole(world: &World, id: SnapshotId, options: &RestoreOptions) -> RestoreOutcome {
    let repository = world.open();
    let snapshot = read_snapshot(&repository, id).unwrap();
    let listener = Listener::new();
    let outcome = restore(&repository, &snapshot, options, &listener, &Cancel::new()).unwrap();
    assert_eq!(listener.problems(), []);
    assert_eq!((outcome.problems, outcome.damaged.len()), (0, 0));
    assert_eq!(listener.last_progress().files, outcome.files, "every file was reported");
    outcome
}

fn target(world: &World) -> PathBuf {
    world.folder.path().join("target")
}

#[test]
fn whole_snapshots_land_with_their_paths() {
    for seed in 120..123 {
        let world = World::new(seed);
        let id = world.backup().snapshot.id;
        let outcome = restore_whole(&world, id, &into(Path::new(""), &target(&world)));
        let below = world.tree().strip_prefix("/").unwrap().to_owned();
        world.image().assert_same(&Image::of(&target(&world).join(below)), "the whole");
        let files = world.image().nodes.values().filter(|n| n.kind != Kind::Directory).count();
        assert_eq!(outcome.files, files as u64);
    }
}

#[test]
fn a_part_is_put_into_the_place() {
    let world = World::new(123);
    let id = world.backup().snapshot.id;
    restore_whole(&world, id, &into(&world.tree(), &target(&world)));
    world.image().assert_same(&Image::of(&target(&world)), "the tree");
    let part = world.tree().join("level0/level1");
    let place = world.folder.path().join("part");
    restore_whole(&world, id, &into(&part, &place));
    Image::of(&part).assert_same(&Image::of(&place), "a directory");
    let place = world.folder.path().join("file");
    restore_whole(&world, id, &into(&world.tree().join("large"), &place));
    let large = |place: &Path| fs::read(place.join("large")).unwrap();
    assert!(large(&place) == large(&world.tree()));
    let missing = into(&world.tree().join("no such"), &place);
    let error = run_restore(&world.open(), id, &missing).unwrap_err();
    assert!(
        matches!(error, EngineError::Repository(RepositoryError::NoSuchPath { .. })),
        "{error}"
    );
}

#[test]
fn in_place_after_ten_edits() {
    let world = World::new(124);
    let id = world.backup().snapshot.id;
    let image = world.image();
    let beside = world.folder.path().join("beside");
    fs::write(&beside, b"not below any path of the snapshot").unwrap();
    for seed in 0..4 {
        world.mutate(seed);
        let mut options = exactly(Path::new(""), Path::new(""));
        options.place = RestorePlace::InPlace;
        restore_whole(&world, id, &options);
        image.assert_same(&world.image(), "in place");
        assert!(beside.exists());
    }
}

#[test]
fn any_version_over_any_other() {
    let world = World::new(125);
    let mut kept = Vec::new();
    for version in 0..6 {
        kept.push((world.backup().snapshot.id, world.image()));
        world.mutate(version);
    }
    for place in [0, 5, 1, 4, 4, 2, 3, 0] {
        let (id, image) = &kept[place];
        let outcome = restore_whole(&world, *id, &exactly(&world.tree(), &target(&world)));
        image.assert_same(&Image::of(&target(&world)), &format!("version {place}"));
        if place == 4 {
            // Twice after each other.
            let again = restore_whole(&world, *id, &exactly(&world.tree(), &target(&world)));
            assert_eq!(again.bytes_written, 0);
            assert!(outcome.bytes_written == 0 || again.files_right >= outcome.files_right);
        }
    }
}

#[test]
fn whatever_stands_at_the_target_gives_way() {
    let world = World::new(126);
    let id = world.backup().snapshot.id;
    for seed in 0..4 {
        restore_whole(&world, id, &exactly(&world.tree(), &target(&world)));
        mutate(&target(&world), 200 + seed, TREE);
        restore_whole(&world, id, &exactly(&world.tree(), &target(&world)));
        world.image().assert_same(&Image::of(&target(&world)), "over edits");
    }
    fs::remove_dir_all(target(&world)).unwrap();
    grow(&target(&world), 300, TREE);
    restore_whole(&world, id, &exactly(&world.tree(), &target(&world)));
    world.image().assert_same(&Image::of(&target(&world)), "over another tree");
}

/// Files that are separate in the snapshot are one file at the target.
#[test]
fn links_at_the_target_are_cut() {
    let world = World::new(127);
    for name in ["one", "two", "three"] {
        fs::write(world.tree().join(name), format!("{name} has bytes of its own")).unwrap();
    }
    fs::hard_link(world.tree().join("three"), world.tree().join("three-too")).unwrap();
    let id = world.backup().snapshot.id;
    restore_whole(&world, id, &into(&world.tree(), &target(&world)));
    let outside = world.folder.path().join("outside");
    fs::write(&outside, b"one has bytes of its own").unwrap();
    for name in ["one", "two", "three-too"] {
        fs::remove_file(target(&world).join(name)).unwrap();
        fs::hard_link(&outside, target(&world).join(name)).unwrap();
    }
    restore_whole(&world, id, &into(&world.tree(), &target(&world)));
    world.image().assert_same(&Image::of(&target(&world)), "cut apart");
    assert_eq!(fs::read(&outside).unwrap(), b"one has bytes of its own", "it is not ours");
}

#[test]
fn links_at_the_target_are_not_followed() {
    let world = World::new(128);
    let id = world.backup().snapshot.id;
    let outside = world.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("large"), b"not ours").unwrap();
    let before = Image::of(&outside);
    fs::create_dir(target(&world)).unwrap();
    std::os::unix::fs::symlink(&outside, target(&world).join("level0")).unwrap();
    std::os::unix::fs::symlink(outside.join("large"), target(&world).join("large")).unwrap();
    restore_whole(&world, id, &exactly(&world.tree(), &target(&world)));
    world.image().assert_same(&Image::of(&target(&world)), "over links");
    before.assert_same(&Image::of(&outside), "outside");
}

/// What exists there, and when its inode last changed.
fn touched(root: &Path) -> BTreeMap<PathBuf, (i64, i64)> {
    let (directories, files) = listing(root);
    let all = directories.into_iter().chain(files);
    let stamp = |path: PathBuf| {
        let stat = fs::symlink_metadata(&path).unwrap();
        (path, (stat.ctime(), stat.ctime_nsec()))
    };
    all.map(stamp).collect()
}

#[test]
fn what_is_right_is_left_alone_and_costs_no_data() {
    let world = World::new(129);
    let id = world.backup().snapshot.id;
    restore_whole(&world, id, &into(&world.tree(), &target(&world)));
    let before = touched(&target(&world));
    let recording = Arc::new(RecordingBackend::new(world.objects.clone()));
    let repository = world.open_over(recording.clone()).unwrap();
    recording.take();
    let outcome = run_restore(&repository, id, &into(&world.tree(), &target(&world))).unwrap();
    assert_eq!(outcome.bytes_written, 0);
    let is_data = |name: &str| name.starts_with("arenas/") && name.as_bytes()[7] < b'8';
    let calls = recording.take();
    assert!(calls.iter().all(|call| !is_data(&call.name)), "no arena of data is read");
    assert!(calls.iter().all(|call| !call.kind.is_write()));
    let after = touched(&target(&world));
    let rewritten: Vec<_> = before.iter().filter(|(path, t)| after[*path] != **t).collect();
    // Directories get their times again; holes are punched again.
    let files: Vec<_> = rewritten
        .iter()
        .filter(|(path, _)| fs::symlink_metadata(path).unwrap().is_file())
        .map(|(path, _)| path.strip_prefix(target(&world)).unwrap())
        .collect();
    assert_eq!(files, [] as [&Path; 0], "files that were right were touched");
}

#[test]
fn only_the_wrong_chunks_of_a_wrong_file_are_written() {
    let world = World::new(130);
    fs::copy(world.tree().join("large"), world.tree().join("single")).unwrap();
    let id = world.backup().snapshot.id;
    restore_whole(&world, id, &into(&world.tree(), &target(&world)));
    let single = target(&world).join("single");
    let file = fs::File::options().write(true).open(&single).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"wrong", 100_000).unwrap();
    drop(file);
    let outcome = restore_whole(&world, id, &into(&world.tree(), &target(&world)));
    let chunk = init_options().chunk_limits.max() as u64;
    assert!((1..=chunk).contains(&outcome.bytes_written), "{outcome:?}");
    world.image().assert_same(&Image::of(&target(&world)), "put right");
}

#[test]
fn each_part_of_each_arena_is_read_once() {
    let world = World::new(131);
    let id = world.backup().snapshot.id;
    let recording = Arc::new(RecordingBackend::new(world.objects.clone()));
    let repository = world.open_over(recording.clone()).unwrap();
    recording.take();
    run_restore(&repository, id, &into(&world.tree(), &target(&world))).unwrap();
    let mut reads: Vec<_> = recording
        .take()
        .into_iter()
        .filter(|call| call.kind == CallKind::Read && call.folder() == "arenas")
        .filter(|call| call.name.as_bytes()[7] < b'8')
        // Opening an arena is one read of its beginning, which is longer than these arenas.
        .filter(|call| call.offset > 0)
        .map(|call| (call.name, call.offset, call.offset + call.bytes))
        .collect();
    reads.sort();
    assert!(!reads.is_empty());
    let again = reads.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].2 > pair[1].1);
    assert_eq!(again, None, "some bytes were read twice");
    let arenas: BTreeSet<_> = reads.iter().map(|read| &read.0).collect();
    // Two short reads for head and summary, one for all the blocks.
    assert!(reads.len() <= arenas.len() * 4, "{} reads of {}", reads.len(), arenas.len());
}

#[test]
fn a_dry_run_touches_nothing() {
    let world = World::new(132);
    let id = world.backup().snapshot.id;
    for exists_before in [false, true] {
        if exists_before {
            restore_whole(&world, id, &into(&world.tree(), &target(&world)));
            mutate(&target(&world), 7, TREE);
        }
        let before = exists_before.then(|| Image::of(&target(&world)));
        let mut options = exactly(&world.tree(), &target(&world));
        options.dry_run = true;
        let dry = run_restore(&world.open(), id, &options).unwrap();
        assert_eq!(target(&world).exists(), exists_before);
        if let Some(before) = before {
            before.assert_same(&Image::of(&target(&world)), "a dry run");
        }
        options.dry_run = false;
        options.verify = true;
        let done = restore_whole(&world, id, &options);
        assert_eq!((dry.files, dry.directories), (done.files, done.directories));
        assert_eq!((dry.bytes, dry.deleted), (done.bytes, done.deleted));
    }
}

#[test]
fn two_restores_beside_a_backup() {
    let world = World::new(133).with_cache();
    let id = world.backup().snapshot.id;
    let image = world.image();
    let other = world.folder.path().join("other");
    grow(&other, 134, TREE);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| run(&world.open(), &options(&other), &Silent).unwrap());
        for place in ["a", "b"] {
            let (world, image) = (&world, &image);
            scope.spawn(move || {
                let place = world.folder.path().join(place);
                restore_whole(world, id, &into(&world.tree(), &place));
                image.assert_same(&Image::of(&place), "beside others");
            });
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_partial_snapshot_can_be_put_back() {
    let world = World::new(135);
    let cancel = Cancel::new();
    let stop = cancel.clone();
    let listener = Listener::on_work(move |what| {
        if what.ends_with("large") {
            stop.cancel();
        }
    });
    let outcome =
        strongroom_engine::backup(&world.open(), &options(&world.tree()), &listener, &cancel);
    let snapshot = outcome.unwrap().snapshot;
    assert!(snapshot.partial);
    restore_whole(&world, snapshot.id, &into(&world.tree(), &target(&world)));
    let kept = Image::of(&target(&world));
    assert!(!kept.nodes.is_empty());
    assert!(!kept.nodes.contains_key(&b"large"[..]), "no half of a file is put back");
}

/// FTP has no request for a part: what follows a part is sent too.
#[test]
fn what_is_mostly_needed_is_read_at_once_from_a_place_that_sends_no_parts() {
    let world = World::empty(136).with_cache();
    let init = InitOptions { arena_bytes: 8 << 20, ..init_options() };
    Repository::init(world.surroundings(), PASSPHRASE, &init).unwrap();
    let mut random = Random::new(136);
    fs::create_dir_all(world.tree()).unwrap();
    for number in 0..40 {
        world.write(&format!("{number}"), &random.noise(1 << 20));
    }
    let id = world.backup().snapshot.id;
    let reads_of = |path: &Path| {
        let promises = Promises { in_flight: 4, sends_parts: false, ..Promises::LOCAL };
        let far = RecordingBackend::new(world.objects.clone()).promising(promises);
        let far = Arc::new(far);
        let repository = world.open_over(far.clone()).unwrap();
        far.take();
        let place = tempfile::tempdir().unwrap();
        let outcome = run_restore(&repository, id, &into(path, &place.path().join("new")));
        assert_eq!(outcome.unwrap().problems, 0);
        let is_data = |call: &Call| {
            let arena: Option<ArenaName> = ObjectName::parse(&call.name)
                .filter(|name| name.folder() == "arenas")
                .and_then(|name| name.file().parse().ok());
            arena.is_some_and(|arena| ArenaContent::of(arena.id) == ArenaContent::Data)
        };
        let calls = far.take().into_iter().filter(|call| call.kind == CallKind::Read);
        calls.filter(is_data).collect::<Vec<Call>>()
    };
    let whole = reads_of(&world.tree());
    let arenas: BTreeSet<&str> = whole.iter().map(|call| call.name.as_str()).collect();
    // The last is short, and is opened and read.
    assert!(arenas.len() >= 5 && whole.len() <= arenas.len() + 1, "{whole:?}");
    let of_one = reads_of(&world.tree().join("7"));
    let bytes: u64 = of_one.iter().map(|call| call.bytes).sum();
    assert!((1 << 20..3 << 20).contains(&bytes), "{of_one:?}");
}

/// A user other than root opens a read-only directory to restore into it.
#[test]
fn a_directory_on_the_way_stays_read_only() {
    const USER: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        return skip("only root can become another user");
    }
    let world = World::bare(149);
    world.write("folder/one", b"one");
    world.write("folder/two", b"two");
    let id = world.backup().snapshot.id;
    let (target, folder) = (target(&world), target(&world).join("folder"));
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(world.folder.path(), 0o755);
    fs::create_dir_all(&folder).unwrap();
    for path in [&target, &folder] {
        std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
    }
    mode(&folder, 0o555);
    let by_thread = || {
        let user = rustix::process::Uid::from_raw(USER);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let includes = vec!["two".to_owned()];
        let filter = FilterOptions { includes, ..FilterOptions::default() };
        let filter = PathFilter::new(filter).unwrap();
        run_restore(&world.open(), id, &RestoreOptions { filter, ..into(&world.tree(), &target) })
    };
    let outcome = std::thread::scope(|scope| scope.spawn(by_thread).join().unwrap()).unwrap();
    assert_eq!(outcome.problems, 0);
    assert_eq!(fs::read(folder.join("two")).unwrap(), b"two");
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o555);
}
