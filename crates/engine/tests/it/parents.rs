//! Parents: what is taken over from the last snapshot still exists.

use std::fs;

use strongroom_backend::Backend;
use strongroom_base::{Severity, Silent};
use strongroom_engine::BackupOptions;
use strongroom_repository::snapshot_object;
use strongroom_testkit::damage::names_in;
use strongroom_testkit::{Heard, Listener, noise};

use crate::world::{World, options, run};

/// Backs up, edits, backs up again, and compares both.
#[track_caller]
fn check(seed: u64, edit: impl Fn(&World)) -> strongroom_engine::BackupOutcome {
    let (outcome, problems) = check_all(seed, edit);
    assert_eq!(problems, []);
    outcome
}

/// The same, and what was said of the second backup.
#[track_caller]
fn check_all(seed: u64, edit: impl Fn(&World)) -> (strongroom_engine::BackupOutcome, Vec<Heard>) {
    let world = World::new(seed);
    let first = world.backup();
    let before = world.image();
    edit(&world);
    let listener = Listener::new();
    let second = run(&world.open(), &options(&world.tree()), &listener).unwrap();
    assert_eq!(second.snapshot.parent, Some(first.snapshot.id));
    let repository = world.open();
    world.assert_holds(&repository, second.snapshot.id, &world.image(), "after the edit");
    world.assert_holds(&repository, first.snapshot.id, &before, "before the edit");
    (second, listener.problems())
}

#[test]
fn a_file_becomes_a_directory() {
    check(21, |world| {
        fs::remove_file(world.tree().join("large")).unwrap();
        fs::create_dir(world.tree().join("large")).unwrap();
        fs::write(world.tree().join("large/inside"), b"new").unwrap();
    });
}

#[test]
fn a_directory_becomes_a_file() {
    check(22, |world| {
        fs::remove_dir_all(world.tree().join("level0")).unwrap();
        fs::write(world.tree().join("level0"), b"a file now").unwrap();
    });
}

#[test]
fn a_directory_becomes_a_link_to_itself() {
    check(23, |world| {
        let [from, to] = ["level0", "moved"].map(|name| world.tree().join(name));
        fs::rename(&from, &to).unwrap();
        std::os::unix::fs::symlink("moved", &from).unwrap();
    });
}

#[test]
fn everything_is_gone() {
    let (outcome, problems) = check_all(24, |world| {
        fs::remove_dir_all(world.tree()).unwrap();
        fs::create_dir(world.tree()).unwrap();
    });
    assert_eq!(outcome.written.data_chunks, 0);
    let [Heard { severity, message, .. }] = &problems[..] else { panic!("{problems:?}") };
    assert_eq!(*severity, Severity::Warning);
    assert!(message.contains("it is empty, and was not at the last backup"), "{message}");
}

#[test]
fn a_hard_link_is_cut_and_another_made() {
    check(25, |world| {
        let (large, too) = (world.tree().join("large"), world.tree().join("large-three"));
        fs::hard_link(&large, &too).unwrap();
        fs::remove_file(world.tree().join("empty-too")).unwrap();
    });
}

#[test]
fn only_metadata_changed() {
    let outcome = check(26, |world| {
        strongroom_testkit::tree::set_mtime(&world.tree().join("large"), 77, 7);
    });
    assert_eq!(outcome.written.data_chunks_new, 0);
    // Both of its names.
    assert_eq!(outcome.files_changed, 2);
}

#[test]
fn content_changed_behind_the_same_size_and_mtime() {
    // ctime shows it: no program can set that.
    check(27, |world| {
        let path = world.tree().join("large");
        let times = fs::metadata(&path).unwrap().modified().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[100] ^= 1;
        fs::write(&path, bytes).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(times).unwrap();
    });
}

#[test]
fn names_before_between_and_behind_all_others() {
    check(28, |world| {
        for name in ["\u{1}first", "large\u{1}", "\u{7f}last", "largf"] {
            fs::write(world.tree().join(name), name).unwrap();
        }
    });
}

#[test]
fn a_chain_of_deletions() {
    let world = World::new(29);
    let mut kept = vec![(world.backup().snapshot.id, world.image())];
    loop {
        let (_, files) = strongroom_testkit::tree::listing(&world.tree());
        if files.is_empty() {
            break;
        }
        files.iter().step_by(2).for_each(|file| fs::remove_file(file).unwrap());
        kept.push((world.backup().snapshot.id, world.image()));
    }
    let repository = world.open();
    for (id, image) in &kept {
        world.assert_holds(&repository, *id, image, "a version of the chain");
    }
}

#[test]
fn another_host_is_no_parent() {
    let world = World::new(30);
    world.backup();
    let mut options = options(&world.tree());
    options.host = "other".to_owned();
    let outcome = run(&world.open(), &options, &Silent).unwrap();
    assert_eq!(outcome.snapshot.parent, None);
    assert_eq!(outcome.files_unchanged, 0);
    assert_eq!(outcome.written.data_chunks_new, 0);
}

/// Content may be in two places, and the parent names one of them for a name that it has, the index the
/// other for a name that is new. It is one file nevertheless.
#[test]
fn the_names_of_one_file_agree_wherever_its_content_is() {
    for names_first in [true, false] {
        let world = World::bare(40);
        let (one, two) = (world.tree().join("one"), world.tree().join("two"));
        fs::create_dir_all(&one).unwrap();
        fs::create_dir_all(&two).unwrap();
        fs::write(one.join("file"), noise(1, 30_000)).unwrap();
        fs::hard_link(one.join("file"), two.join("file")).unwrap();
        world.backup();
        let first = world.objects.snapshot();
        let arenas = names_in(&first, "arenas");
        arenas.iter().for_each(|name| world.objects.remove(name).unwrap());
        let again = world.backup().snapshot.id;
        arenas.iter().for_each(|name| world.objects.create(name, &first[name]).unwrap());
        if names_first {
            world.objects.remove(&snapshot_object(again)).unwrap();
        }
        for (from, to) in [("two", "three"), ("three", "before"), ("one", "four")] {
            fs::rename(world.tree().join(from), world.tree().join(to)).unwrap();
            let outcome = world.backup();
            let what = format!("{names_first}, {to}");
            world.assert_holds(&world.open(), outcome.snapshot.id, &world.image(), &what);
            assert_eq!((outcome.files_unchanged, outcome.files_new), (1, 1), "{what}");
        }
    }
}

/// A file is remembered until all of its names were met, and it is said when too many are to come.
#[test]
fn more_files_with_several_names_than_are_remembered() {
    const FILES: usize = 8;
    let mut world = World::bare(41);
    let [one, two] = ["one", "two"].map(|name| world.tree().join(name));
    fs::create_dir_all(&one).unwrap();
    fs::create_dir_all(&two).unwrap();
    for file in 0..FILES {
        let name = format!("{file}");
        fs::write(one.join(&name), noise(file as u64, 5_000)).unwrap();
        fs::hard_link(one.join(&name), two.join(&name)).unwrap();
    }
    for (linked_max, forced) in
        [(FILES - 1, true), (FILES - 1, false), (FILES, true), (FILES, false)]
    {
        world.limits.linked_max = linked_max;
        let listener = Listener::new();
        let options = BackupOptions { force: forced, ..options(&world.tree()) };
        let outcome = run(&world.open(), &options, &listener).unwrap();
        let said = listener.problems();
        match linked_max < FILES {
            true => {
                assert!(
                    said.iter().any(|heard| heard.message.contains("more than 7 files had names"))
                );
                assert_eq!((said.len(), said[0].severity), (1, Severity::Note), "{said:?}");
            }
            false => assert_eq!(said, []),
        }
        // Nothing else is kept twice, so the names of each agree nevertheless.
        let what = format!("{linked_max}, {forced}");
        world.assert_holds(&world.open(), outcome.snapshot.id, &world.image(), &what);
        assert!(!outcome.snapshot.partial, "{what}");
    }
    // Names that come one after another need no room.
    for file in 0..FILES {
        fs::rename(two.join(format!("{file}")), one.join(format!("{file}-too"))).unwrap();
    }
    world.backup();
    world.limits.linked_max = 1;
    let listener = Listener::new();
    let outcome = run(&world.open(), &options(&world.tree()), &listener).unwrap();
    assert_eq!(outcome.files_unchanged, 2 * FILES as u64);
    assert_eq!(listener.problems(), []);
}
