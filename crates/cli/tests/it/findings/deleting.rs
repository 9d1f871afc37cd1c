//! What `restore --delete` must leave alone.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::world::{World, has_program, is_root, program, skipped};

#[test]
fn trial_01_a_snapshot_of_a_part_removes_nothing_beside_it() {
    let world = World::with_repository();
    let tree = world.tree();
    fs::create_dir_all(tree.join("a")).unwrap();
    for name in ["a/1", "b", "3"] {
        fs::write(tree.join(name), name).unwrap();
    }
    let part = tree.join("a");
    let summary = world.run(["--json", "backup", part.to_str().unwrap()]).exits(0).summary();
    let snapshot = summary["snapshot"].as_str().unwrap();
    fs::write(tree.join("a/surplus"), "").unwrap();

    let tree_text = tree.to_str().unwrap();
    let what = format!("{snapshot}:{tree_text}");
    world.run(["restore", &what, "--target", tree_text, "--delete"]).exits(0).says("1 deleted");
    assert!(tree.join("b").exists() && tree.join("3").exists(), "the backup only passed by");
    assert!(!tree.join("a/surplus").exists(), "this it was to hold");
}

#[test]
fn trial_01_a_dry_run_counts_what_is_below_directories() {
    let world = World::with_repository();
    let tree = world.tree();
    fs::create_dir_all(&tree).unwrap();
    world.backup().exits(0);
    fs::create_dir_all(tree.join("surplus/deep")).unwrap();
    for name in ["surplus/1", "surplus/deep/2", "surplus/deep/3"] {
        fs::write(tree.join(name), name).unwrap();
    }
    let what = world.of("latest");
    let restore = ["restore", &what, "--target", tree.to_str().unwrap(), "--delete"];
    world.run(restore.iter().chain(&["-n"])).exits(0).says("5 would be deleted");
    assert!(tree.join("surplus/deep/3").exists());
    world.run(restore).exits(0).says("5 deleted");
    assert!(!tree.join("surplus").exists());
}

/// A machine in a folder: the program with its libraries, and files of several people.
fn make_machine(root: &Path) {
    let program = program();
    let listed = Command::new("ldd").arg(&program).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/'));
    for library in libraries {
        let copy = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(library, copy).unwrap();
    }
    for folder in ["bin", "etc", "home/me/docs", "home/other", "proc", "tmp"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::copy(program, root.join("bin/strongroom")).unwrap();
    for name in ["etc/passwd", "home/me/beside", "home/me/docs/mine", "home/other/theirs"] {
        fs::write(root.join(name), name).unwrap();
    }
}

/// The program, run in the machine; `/proc` is mounted there for as long as it runs.
fn in_machine(world: &World, root: &Path, words: &str) -> std::process::Output {
    let script = format!(
        "mount -t proc proc '{root}/proc' && exec chroot '{root}' /bin/strongroom {words}",
        root = root.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    world.surround(&mut command);
    command.env("STRONGROOM_REPOSITORY", "/room").env("STRONGROOM_CACHE", "/cache");
    command.output().unwrap()
}

#[test]
fn trial_01_a_machine_survives_a_restore_to_its_root() {
    let wanted = ["unshare", "chroot", "mount", "ldd"];
    let missing = (!is_root()).then_some("only root can change the root");
    let missing = missing.or((!wanted.iter().all(|it| has_program(it))).then_some("no chroot"));
    if skipped("a machine in a folder", missing) {
        return;
    }
    let world = World::empty();
    let root = world.path("machine");
    make_machine(&root);
    let backup = in_machine(&world, &root, "backup --init --kdf-memory 32KiB /home/me/docs");
    assert_eq!(backup.status.code(), Some(0), "{backup:?}");
    for what in ["latest", "latest:/home", "latest:/home/me/docs"] {
        fs::write(root.join("home/me/docs/surplus"), "").unwrap();
        let restore = in_machine(&world, &root, &format!("restore {what} --target / --delete"));
        for name in ["bin/strongroom", "etc/passwd", "home/me/beside", "home/other/theirs"] {
            assert!(root.join(name).exists(), "{what} removed {name}: {restore:?}");
        }
        assert_eq!(restore.status.code(), Some(1), "it is refused: {restore:?}");
    }
    let restore = in_machine(&world, &root, "restore latest --in-place --delete");
    assert_eq!(restore.status.code(), Some(0), "{restore:?}");
    assert!(!root.join("home/me/docs/surplus").exists());
    assert!(root.join("etc/passwd").exists() && root.join("home/me/beside").exists());
}
