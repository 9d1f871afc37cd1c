//! Files whose metadata does not prove what is in them: in images that another program made, and where
//! a size of 0 means that the size is not known.

use std::collections::HashMap;
use std::path::Path;

use strongroom_base::{Cancel, Silent, Timestamp};
use strongroom_engine::{
    BackupOptions, BackupOutcome, DiffOptions, DiffSide, DrillAmount, DrillOptions, cat, diff,
    drill,
};
use strongroom_source::{
    Correction, Corrections, FileSystem, ForeignRoot, SourceOptions, ZeroSize,
};
use strongroom_testkit::{Listener, Mapped};

use crate::world::{World, options, run};

const IMAGE: FileSystem = FileSystem { times_prove: false, zero_size: ZeroSize::Empty };
const UNSIZED: FileSystem = FileSystem { times_prove: true, zero_size: ZeroSize::Unknown };
const KERNEL: FileSystem = FileSystem { times_prove: true, zero_size: ZeroSize::Empty };

/// A file that says 0 bytes, and has some.
const MADE_UP: &str = "/proc/sys/kernel/ostype";
const SAID: &[u8] = b"Linux\n";

fn content(world: &World, outcome: &BackupOutcome, path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    cat(&world.open(), &outcome.snapshot, path.as_bytes(), &mut bytes).unwrap();
    bytes
}

fn of(world: &World, paths: &[&str], file_system: Option<FileSystem>) -> BackupOptions {
    let paths = paths.iter().map(Into::into).collect();
    let source = SourceOptions { file_system, ..SourceOptions::default() };
    BackupOptions { paths, source, ..options(&world.tree()) }
}

/// Two images with the same times, mounted in turn at the same place.
#[test]
fn another_image_with_the_same_times_is_read() {
    for (file_system, expected) in [(IMAGE, "1.0.2"), (KERNEL, "1.0.1")] {
        let world = World::bare(61);
        let time = Some(Timestamp(315_532_800_000_000_000));
        let fixed = Correction { mtime: time, ctime: time, ..Correction::default() };
        let by_path =
            ["/app", "/same", "/link"].map(|path| (path.as_bytes().to_vec(), fixed.clone()));
        let root = ForeignRoot {
            path: world.tree(),
            corrections: Corrections::new(HashMap::from(by_path)),
            ..ForeignRoot::default()
        };
        let source = SourceOptions {
            root: Some(root),
            file_system: Some(file_system),
            ..SourceOptions::default()
        };
        let options = BackupOptions { paths: vec!["/".into()], source, ..options(&world.tree()) };
        world.write("app", b"1.0.1");
        world.write("same", b"the same");
        std::os::unix::fs::symlink("app", world.tree().join("link")).unwrap();
        run(&world.open(), &options, &Silent).unwrap();
        world.write("app", b"1.0.2");
        let outcome = run(&world.open(), &options, &Silent).unwrap();
        assert_eq!(content(&world, &outcome, "/app"), expected.as_bytes());
        assert_eq!(content(&world, &outcome, "/same"), b"the same");
        // What was read and is the same is unchanged.
        let changed = u64::from(file_system == IMAGE);
        let counted = (outcome.files_new, outcome.files_changed, outcome.files_unchanged);
        assert_eq!(counted, (0, changed, 2 - changed));
    }
}

#[test]
fn a_file_that_does_not_know_its_size_is_read_to_its_end() {
    let world = World::bare(62);
    world.write("empty", b"");
    let tree = world.tree();
    let paths = [MADE_UP, tree.to_str().unwrap()];
    let options = of(&world, &paths, Some(UNSIZED));
    let empty = tree.join("empty");
    for night in 0..2 {
        let listener = Listener::new();
        let outcome = run(&world.open(), &options, &listener).unwrap();
        assert_eq!(listener.problems(), []);
        assert_eq!(content(&world, &outcome, MADE_UP), SAID);
        assert_eq!(content(&world, &outcome, empty.to_str().unwrap()), b"");
        assert_eq!(outcome.snapshot.stats.bytes, SAID.len() as u64);
        // The kernel may have made the other one again, with another time.
        assert_eq!(outcome.files_new, if night == 0 { 2 } else { 0 });
        assert!(outcome.files_unchanged >= night);
    }
}

/// A given one that is empty after all is as doubtful as any.
#[test]
fn a_given_file_of_unknown_size_that_is_empty_is_doubted() {
    let world = World::bare(63);
    world.write("dump", b"content");
    let dump = world.tree().join("dump");
    let options = of(&world, &[dump.to_str().unwrap()], Some(UNSIZED));
    run(&world.open(), &options, &Silent).unwrap();
    world.write("dump", b"");
    let listener = Listener::new();
    let outcome = run(&world.open(), &options, &listener).unwrap();
    assert!(outcome.is_doubtful);
    let [problem] = &listener.problems()[..] else { panic!("{:?}", listener.problems()) };
    assert!(problem.message.contains("it is empty, and was not"), "{problem:?}");
}

#[test]
fn what_the_kernel_makes_up_is_stored_as_empty_and_reported_once() {
    let world = World::bare(64);
    let options = of(&world, &[MADE_UP, "/proc/sys/kernel/osrelease"], None);
    let listener = Listener::new();
    let outcome = run(&world.open(), &options, &listener).unwrap();
    assert_eq!(content(&world, &outcome, MADE_UP), b"");
    let [problem] = &listener.problems()[..] else { panic!("{:?}", listener.problems()) };
    assert_eq!(problem.path.as_deref(), Some(Path::new("/proc")));
    assert!(problem.message.contains("files of proc are made up"), "{problem:?}");
    assert_eq!(outcome.snapshot.stats.problems, 1);
}

/// A length that is not 0 says no more: `/proc/kcore` has all that a machine can address, and a file of
/// sysfs has a page.
#[test]
fn what_the_kernel_makes_up_with_a_length_is_not_read() {
    let world = World::bare(66);
    for path in ["/sys/kernel/uevent_seqnum", "/sys/kernel/mm/transparent_hugepage/enabled"] {
        let length = std::fs::metadata(path).unwrap().len();
        assert!(length > 0, "{path}");
        let listener = Listener::new();
        let outcome = run(&world.open(), &of(&world, &[path], None), &listener).unwrap();
        assert_eq!((content(&world, &outcome, path), outcome.snapshot.stats.bytes), (vec![], 0));
        assert!(listener.problems()[0].message.contains("are made up"), "{path}");
    }
}

/// No comparison says that it is the same.
#[test]
fn what_the_kernel_makes_up_is_not_compared() {
    let world = World::bare(65);
    let outcome = run(&world.open(), &of(&world, &[MADE_UP], None), &Silent).unwrap();
    let (repository, snapshot) = (world.open(), &outcome.snapshot);
    let sides = (
        DiffSide::Snapshot { snapshot, path: MADE_UP.as_bytes() },
        DiffSide::Directory(Path::new(MADE_UP)),
    );
    for content in [false, true] {
        let listener = Listener::new();
        let options = DiffOptions { content };
        let cancel = Cancel::new();
        let found =
            diff(&repository, sides.0, sides.1, options, &mut |_| Ok(()), &listener, &cancel);
        assert_eq!(found.unwrap().problems, 1);
        let [problem] = &listener.problems()[..] else { panic!("{:?}", listener.problems()) };
        assert!(problem.message.contains("were not compared"), "{problem:?}");
    }
    let options = DrillOptions {
        path: Vec::new(),
        amount: DrillAmount::Percent(100),
        seed: None,
        scratch: world.folder.path().to_owned(),
        host: "host".to_owned(),
        keep: false,
        source: true,
        record: false,
        workers: 2,
    };
    let drilled =
        drill(&repository, snapshot, &options, &|_| None, &Silent, &Cancel::new()).unwrap();
    assert_eq!(drilled.source.same, 0);
    // The kernel may have made it again, with another time.
    assert_eq!(drilled.source.unreadable + drilled.source.changed, 1);
}

/// There a page that is mapped for writing changes the times once, and never again.
#[test]
fn a_file_in_memory_that_is_written_through_a_mapping_is_read_each_night() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = folder.path().join("file");
    let world = World::bare(66);
    std::fs::write(&file, [b'A'; 4096]).unwrap();
    let mut mapped = Mapped::new(&file);
    for byte in *b"ABC" {
        mapped.write(byte);
        let outcome = run(&world.open(), &options(folder.path()), &Silent).unwrap();
        assert_eq!(content(&world, &outcome, file.to_str().unwrap())[0], byte);
    }
}

/// A file of sysfs says a page, and has a line.
#[test]
fn a_file_that_ends_before_its_size_is_stored_as_far_as_it_goes() {
    let world = World::bare(69);
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    // Held open, as the kernel may make its inode again, with another time.
    let held = std::fs::File::open(path).unwrap();
    let said = std::fs::read(path).unwrap();
    assert!((said.len() as u64) < held.metadata().unwrap().len());
    let listener = Listener::new();
    let outcome = run(&world.open(), &of(&world, &[path], Some(KERNEL)), &listener).unwrap();
    assert_eq!(content(&world, &outcome, path), said);
    assert_eq!(outcome.snapshot.stats.bytes, said.len() as u64);
    let [problem] = &listener.problems()[..] else { panic!("{:?}", listener.problems()) };
    assert!(problem.message.contains("it ended before the size that it has"), "{problem:?}");
}

/// Paths are part of the snapshot: that they are too many is said before hours are spent on what they name.
#[test]
fn more_paths_than_a_snapshot_can_have_are_refused_at_the_beginning() {
    let world = World::bare(70);
    let deep = (0..18).fold(world.tree(), |deep, _| deep.join("a".repeat(200)));
    std::fs::create_dir_all(&deep).unwrap();
    let paths: Vec<_> = (0..900).map(|number| deep.join(number.to_string())).collect();
    paths.iter().for_each(|path| std::fs::write(path, b"").unwrap());
    let before = world.objects.snapshot();
    let many = BackupOptions { paths, ..options(&world.tree()) };
    let refused = run(&world.open(), &many, &Silent).unwrap_err().to_string();
    assert!(refused.contains("the paths are too many for a snapshot"), "{refused}");
    assert!(world.objects.snapshot() == before, "nothing was begun");
}
