//! An unchanged tree costs a walk.

use std::process::Command;

use strongroom_testkit::tree::{TreeOptions, grow};

use crate::world::{PASSPHRASE, World, bytes_below, has_program, program, skipped};

#[test]
fn an_unchanged_tree_adds_next_to_nothing() {
    let world = World::with_repository();
    grow(&world.tree(), 15, TreeOptions { entries: 300, ..TreeOptions::default() });
    world.settle();
    world.backup().exits(0);
    let before = bytes_below(&world.repository());
    let run = world.say(&format!("--json backup {}", world.tree().display())).exits(0);
    assert_eq!(run.summary()["bytes_new"], 0, "{}", run.out);
    let added = bytes_below(&world.repository()) - before;
    // A folder above the tree has perhaps changed: that makes one small arena of metadata.
    assert!(added < 4096, "{added} bytes were added");
}

#[test]
fn an_unchanged_file_is_not_opened() {
    let world = World::with_tree(16);
    world.settle();
    world.backup().exits(0);
    let Some(opened) = files_opened(&world, PASSPHRASE) else { return };
    assert!(opened.is_empty(), "{}", opened.join("\n"));
}

/// The calls that open files of the tree in a backup with this passphrase; none if calls cannot be
/// traced here.
pub fn files_opened(world: &World, passphrase: &str) -> Option<Vec<String>> {
    if skipped("strace", (!has_program("strace")).then_some("it is not installed")) {
        return None;
    }
    // A log for each thread (`-ff`), so that no call is torn in two by another's.
    let logs = world.path("trace");
    std::fs::create_dir(&logs).unwrap();
    let mut command = Command::new("strace");
    command.args(["-ff", "-y", "-e", "trace=open,openat,openat2", "-o"]);
    command.arg(logs.join("of")).arg(program()).arg("backup").arg(world.tree());
    world.surround(&mut command);
    let output = command.env("STRONGROOM_PASSWORD", passphrase).output().unwrap();
    if skipped("strace", (!output.status.success()).then_some("it may not trace here")) {
        return None;
    }
    let mut text = String::new();
    for log in std::fs::read_dir(&logs).unwrap() {
        text += &std::fs::read_to_string(log.unwrap().path()).unwrap();
    }
    let tree = world.tree().display().to_string();
    let opened = text.lines().filter(|line| {
        // The opened file is after the arrow, with its path.
        let opened = line.rsplit_once(" = ").is_some_and(|(_, result)| result.contains(&tree));
        opened && !line.contains("O_DIRECTORY") && !line.contains("O_PATH")
    });
    let opened = opened.map(str::to_owned).collect();
    let is_seen = text.contains(&format!("<{tree}>"));
    assert!(is_seen, "the walk was not seen, or not by its paths:\n{text}");
    Some(opened)
}
