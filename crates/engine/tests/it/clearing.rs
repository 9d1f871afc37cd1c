//! What a restore that deletes must leave alone: everything that the snapshot does not know of.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_backend::LocalBackend;
use strongroom_base::{Cancel, Silent};
use strongroom_catalog::Snapshot;
use strongroom_engine::{BackupOptions, RestoreOptions, RestorePlace, backup, restore};
use strongroom_repository::{Repository, read_snapshot};
use strongroom_testkit::Listener;

use crate::restore::{exactly, restore_whole};
use crate::world::{PASSPHRASE, World, init_options, options, run};

/// Puts a path back where it came from, and deletes what the snapshot does not have.
fn in_place(path: &Path) -> RestoreOptions {
    let mut options = exactly(path, Path::new(""));
    options.place = RestorePlace::InPlace;
    options
}

/// A world whose tree is made of these files, each holding its name.
fn world_of(seed: u64, files: &[&str]) -> World {
    let world = World::empty(seed);
    Repository::init(world.surroundings(), PASSPHRASE, &init_options()).unwrap();
    put(&world.tree(), files);
    world
}

fn put(folder: &Path, files: &[&str]) {
    for file in files {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, file).unwrap();
    }
}

/// The files below a folder, sorted.
fn files(folder: &Path) -> Vec<String> {
    let mut found = strongroom_testkit::damage::files_below(folder);
    found.sort();
    let short = |path: &PathBuf| path.strip_prefix(folder).unwrap().display().to_string();
    found.iter().map(short).collect()
}

#[test]
fn what_the_backup_left_out_stays() {
    let stored =
        ["plain/a", "pattern/a", "marker/.nobackup", "big/a", "deep/in/a", "skipped/within/a"];
    let left_out = ["pattern/a.iso", "marker/a", "big/long", "deep/in/b.iso", "skipped/a"];
    let world = world_of(301, &stored);
    put(&world.tree(), &left_out);
    fs::write(world.tree().join("big/long"), [b'x'; 5000]).unwrap();
    let mut wanted = options(&world.tree());
    wanted.source.excludes = vec!["*.iso".to_owned()];
    wanted.source.exclude_if_present = vec![b".nobackup".to_vec()];
    wanted.source.file_bytes_max = Some(4000);
    let skipped = world.tree().join("skipped");
    wanted.source.skip_inodes = vec![strongroom_source::InodeId::of_path(&skipped).unwrap()];
    // The second round finds the directories as the first has stored them.
    for round in 0..2 {
        let outcome = run(&world.open(), &wanted, &Silent).unwrap();
        assert!(round == 0 || outcome.written.data_chunks == 0);
        let before = files(&world.tree());
        put(&world.tree(), &["plain/surplus", "pattern/surplus", "deep/surplus", "surplus/a"]);
        let predicted = {
            let mut dry = in_place(&world.tree());
            dry.dry_run = true;
            restore_whole_quietly(&world, &outcome.snapshot, &dry)
        };
        let done = restore_whole_quietly(&world, &outcome.snapshot, &in_place(&world.tree()));
        assert_eq!((done, predicted), (4, 4), "plain/surplus, deep/surplus, surplus and surplus/a");
        let mut after = before.clone();
        after.push("pattern/surplus".to_owned());
        after.sort();
        assert_eq!(files(&world.tree()), after);
        fs::remove_file(world.tree().join("pattern/surplus")).unwrap();
    }
}

/// Restores without a problem, and returns how much was deleted.
fn restore_whole_quietly(world: &World, snapshot: &Snapshot, options: &RestoreOptions) -> u64 {
    let outcome = restore(&world.open(), snapshot, options, &Silent, &Cancel::new()).unwrap();
    assert_eq!((outcome.problems, outcome.damaged.len()), (0, 0));
    outcome.deleted
}

#[test]
fn what_a_stopped_backup_did_not_reach_stays() {
    let all = ["a/1", "b/1", "b/2", "b/3", "c/1", "d"];
    for stop_at in all {
        let world = world_of(302, &all);
        let cancel = Cancel::new();
        let stop = cancel.clone();
        let stop_at = world.tree().join(stop_at);
        let listener = Listener::on_work(move |path| {
            if path == stop_at {
                stop.cancel();
            }
        });
        let stopped = backup(&world.open(), &options(&world.tree()), &listener, &cancel).unwrap();
        assert!(stopped.snapshot.partial);
        restore_whole_quietly(&world, &stopped.snapshot, &in_place(&world.tree()));
        restore_whole_quietly(&world, &stopped.snapshot, &in_place(Path::new("/")));
        assert_eq!(files(&world.tree()), all);
    }
}

/// A directory above the paths that were backed up was only passed through.
#[test]
fn files_beside_what_was_backed_up_stay() {
    let world = world_of(303, &["a", "sub/b"]);
    let above = world.folder.path();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let set_mode = |mode| fs::set_permissions(above, Permissions::from_mode(mode)).unwrap();
    set_mode(0o750);
    let id = world.backup().snapshot.id;
    put(above, &["beside", "folder/beside"]);
    set_mode(0o711);
    for path in [above, Path::new("/"), Path::new(""), world.tree().as_path()] {
        put(&world.tree(), &["surplus", "sub/surplus"]);
        let mut dry = in_place(path);
        dry.dry_run = true;
        assert_eq!(restore_whole(&world, id, &in_place(path)).deleted, 2, "{path:?}");
        put(&world.tree(), &["surplus", "sub/surplus"]);
        let snapshot = read_snapshot(&world.open(), id).unwrap();
        assert_eq!(restore_whole_quietly(&world, &snapshot, &dry), 2, "{path:?}");
        assert_eq!(mode(above), 0o711, "{path:?}");
    }
    restore_whole(&world, id, &in_place(&world.tree().join("sub")));
    assert_eq!(files(above), ["beside", "folder/beside", "tree/a", "tree/sub/b", "tree/surplus"]);
    // If nothing exists there, it is made as in the snapshot.
    fs::remove_dir_all(above).unwrap();
    restore_whole(&world, id, &in_place(above));
    assert_eq!(files(above), ["tree/a", "tree/sub/b"]);
    assert_eq!(mode(above), 0o750);
}

/// The repository was created where the snapshot has nothing.
#[test]
fn the_repository_itself_stays() {
    let world = world_of(304, &["a"]).with_cache();
    let elsewhere = world.folder.path().join("room");
    let backend = Arc::new(LocalBackend::create(&elsewhere).unwrap());
    let repository = Repository::init(world.over(backend), PASSPHRASE, &init_options()).unwrap();
    let snapshot = run(&repository, &options(&world.tree()), &Silent).unwrap().snapshot;
    drop(repository);
    let moved = world.tree().join("deep/room");
    fs::create_dir(world.tree().join("deep")).unwrap();
    fs::rename(&elsewhere, &moved).unwrap();
    let before = files(&moved);
    put(&world.tree(), &["surplus"]);
    let backend = Arc::new(LocalBackend::open(&moved).unwrap());
    let repository = world.open_over(backend).unwrap();
    let options = in_place(&world.tree());
    let outcome = restore(&repository, &snapshot, &options, &Silent, &Cancel::new()).unwrap();
    assert_eq!((outcome.deleted, outcome.problems), (1, 1), "it is reported");
    assert_eq!(files(&moved), before);
    assert!(!world.tree().join("surplus").exists());
}

/// A disk that was not mounted, as the snapshot itself says.
#[test]
fn what_the_snapshot_says_was_missing_stays() {
    let world = world_of(305, &["etc/a", "data/b", "data/deep/c"]);
    let (etc, data) = (world.tree().join("etc"), world.tree().join("data"));
    let given = BackupOptions { paths: vec![etc, data.clone()], ..options(&world.tree()) };
    run(&world.open(), &given, &Silent).unwrap();
    let mounted = world.folder.path().join("mounted");
    fs::rename(&data, &mounted).unwrap();
    fs::create_dir(&data).unwrap();
    let snapshot = run(&world.open(), &given, &Silent).unwrap().snapshot;
    assert_eq!(snapshot.missing.len(), 1, "{:?}", snapshot.missing);
    fs::remove_dir(&data).unwrap();
    fs::rename(&mounted, &data).unwrap();
    let before = files(&world.tree());
    let said_of = |options: &RestoreOptions| {
        let listener = Listener::new();
        let repository = world.open();
        let outcome = restore(&repository, &snapshot, options, &listener, &Cancel::new()).unwrap();
        let said = listener.problems().into_iter().map(|problem| problem.message);
        let said =
            said.filter(|it| it.contains("nothing was removed from") && it.contains("mounted"));
        (outcome.deleted, said.count())
    };
    for (from, clears_etc) in [(Path::new(""), 1), (data.as_path(), 0)] {
        put(&world.tree(), &["etc/surplus"]);
        for dry_run in [true, false] {
            let options = RestoreOptions { dry_run, ..in_place(from) };
            assert_eq!(said_of(&options), (clears_etc, 1), "{from:?} {dry_run}");
        }
        fs::remove_file(world.tree().join("etc/surplus")).unwrap_or_default();
        assert_eq!(files(&world.tree()), before, "{from:?}");
    }
    let other = world.folder.path().join("other");
    put(&other, &["here"]);
    assert_eq!(said_of(&exactly(&data, &other)), (0, 1));
    assert_eq!(files(&other), ["here"]);
}
