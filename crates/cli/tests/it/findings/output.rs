//! What is printed, and that nothing in a repository can act on the terminal.

use std::fs;
use std::io::Read;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::world::{CHEAPEST_TYPED, World};

/// Characters on which a terminal acts.
fn is_unsafe(character: char) -> bool {
    (character.is_control() && character != '\n')
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[track_caller]
fn assert_safe(what: &str, text: &str) {
    assert!(!text.contains(is_unsafe), "{what}: {text:?}");
}

const HOSTILE: &str = "x\u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}2J\u{202e}y";

#[test]
fn engine_14_texts_of_a_snapshot_cannot_command_the_terminal() {
    let world = World::with_tree(41);
    let tree = world.tree().display().to_string();
    world.run(["backup", "--host", HOSTILE, "--label", HOSTILE, &tree]).exits(0);
    for words in ["snapshots", "--json snapshots", "stats --snapshots", "debug snapshot latest"] {
        let run = world.say(words).exits(0);
        assert_safe(words, &run.out);
    }
    // Programs get the text itself.
    let json = world.say("--json snapshots").exits(0).events("snapshot").remove(0);
    assert_eq!(json["host"], HOSTILE);
    let target = world.path("out").display().to_string();
    assert_safe("restore", &world.run(["restore", "latest", "--target", &target]).exits(0).out);
}

#[test]
fn engine_14_labels_of_keys_cannot_command_the_terminal() {
    let world = World::with_repository();
    let file = world.path("second");
    fs::write(&file, "second").unwrap();
    let file = file.display().to_string();
    let add = ["key", "add", "--label", HOSTILE, "--new-password-file", &file];
    world.run(add.iter().chain(&CHEAPEST_TYPED)).exits(0);
    assert_safe("key list", &world.say("key list").exits(0).out);
}

#[test]
fn engine_14_names_cannot_command_the_terminal_and_are_not_ambiguous() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    for name in ["cr\r", "cr\\r", "fdp.\u{202e}exe", "\u{2067}x", HOSTILE] {
        fs::write(world.tree().join(name), name).unwrap();
    }
    world.backup().exits(0);
    let top = world.tree().display().to_string();
    for words in [
        format!("ls {}", world.of("latest")),
        format!("ls -l {}", world.of("latest")),
        "find *".to_owned(),
        format!("restore latest --target {}/out -v", world.folder.path().display()),
    ] {
        let run = world.say(&words).exits(0);
        assert_safe(&words, &run.out);
        assert_safe(&words, &run.err);
    }
    let list = world.say(&format!("ls {}", world.of("latest"))).exits(0).out;
    assert!(list.contains(&format!("{top}/cr\\r\n")), "{list}");
    assert!(list.contains(&format!("{top}/cr\\\\r\n")), "{list}");
    fs::remove_file(world.tree().join("cr\r")).unwrap();
    let diff = world.say("diff latest").exits(0);
    assert_safe("diff", &diff.out);
}

#[test]
fn trial_08_a_closed_pipe_is_not_an_error_event() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    fs::write(world.tree().join("noise"), strongroom_testkit::noise(8, 4 << 20)).unwrap();
    world.backup().exits(0);
    let mut child = world.start("--json dump latest");
    let mut some = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let run = World::finish(child);
    assert!(!run.err.contains("\"error\""), "{}", run.err);
}

#[test]
fn trial_08_several_first_backups_at_once() {
    let world = World::empty();
    fs::create_dir(world.tree()).unwrap();
    fs::write(world.tree().join("file"), "text").unwrap();
    let words = format!("backup --init {}", world.tree().display());
    let children: Vec<_> = (0..4).map(|_| world.start(&words)).collect();
    for child in children {
        World::finish(child).exits(0);
    }
    let list = world.say("snapshots").exits(0).out;
    assert_eq!(list.lines().count(), 5, "{list}");
}

#[test]
fn trial_08_a_mount_never_hides_files() {
    let world = World::with_repository();
    let folder = world.path("used");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("mine"), "mine").unwrap();
    let mut child = world.start(&format!("mount {}", folder.display()));
    for _ in 0..400 {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    if child.try_wait().unwrap().is_none() {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    }
    World::finish(child).exits(1).warns("is not empty");
}

#[test]
fn trial_14_find_joins_what_never_changed() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    for name in ["changes.txt", "stays.txt"] {
        fs::write(world.tree().join(name), "first").unwrap();
    }
    for round in 0..4 {
        fs::write(world.tree().join("changes.txt"), "x".repeat(round + 10)).unwrap();
        world.backup().exits(0);
    }
    let found = world.say("find *.txt").exits(0).out;
    assert_eq!(found.lines().filter(|line| line.contains("stays")).count(), 1, "{found}");
    assert_eq!(found.lines().filter(|line| line.contains("changes")).count(), 4, "{found}");
    let found = world.say("--json find stays.txt").exits(0).events("entry");
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn trial_readme_ls_shows_what_was_backed_up() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    fs::write(world.tree().join("file"), "text").unwrap();
    world.backup().exits(0);
    let list = world.say("ls latest").exits(0).out;
    assert_eq!(list, format!("{}/file\n", world.tree().display()));
}

#[test]
fn trial_08_who_cannot_read_the_snapshots_does_not_count_them() {
    // A put-only key knows nothing of the snapshots, and says so.
    let world = World::with_tree(42);
    world.backup().exits(0);
    let file = world.path("put");
    fs::write(&file, "put only").unwrap();
    let file = file.display().to_string();
    let add = ["key", "add", "--put-only", "--new-password-file", &file];
    world.run(add.iter().chain(&CHEAPEST_TYPED)).exits(0);
    let run = world.run(["stats", "--password-file", &file]).exits(0);
    assert!(!run.out.contains("deduplication"), "{}", run.out);
    let run = run.says("cannot read the snapshots");
    assert!(!run.out.contains("snapshots  "), "{}", run.out);
    let run = world.say("verify --keyless").exits(0);
    assert!(!run.out.contains("0 snapshots"), "{}", run.out);
}
