//! The passphrase, asked for on a terminal.

use std::process::Command;

use crate::tty::{Tty, cannot};
use crate::world::{PASSPHRASE, World, program, skipped};

#[test]
fn what_is_typed_is_never_shown() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = World::with_repository();
    let mut tty = Tty::open();
    let mut child = tty.start(&world, "snapshots");
    tty.wait_for("Passphrase of ");
    assert!(!tty.echoes());
    tty.types(&format!("{PASSPHRASE}\n"));
    tty.wait_for("there are no snapshots yet");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(tty.echoes());
    assert!(!tty.shown.contains(PASSPHRASE), "{}", tty.shown);
}

#[test]
fn a_mistyped_passphrase_is_asked_for_again_twice() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = World::with_repository();
    let mut tty = Tty::open();
    let mut child = tty.start(&world, "snapshots");
    for typed in ["wrong", PASSPHRASE] {
        tty.wait_for("Passphrase of ");
        tty.types(&format!("{typed}\n"));
    }
    tty.wait_for("there are no snapshots yet");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut child = tty.start(&world, "snapshots");
    for reply in ["try again", "try again", "error: "] {
        tty.wait_for("Passphrase of ");
        tty.types("wrong\n");
        tty.wait_for(reply);
    }
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn a_new_passphrase_is_asked_for_until_it_is_the_same_twice() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = World::empty();
    let mut tty = Tty::open();
    let mut child = tty.start(&world, "init --kdf-memory 32KiB");
    tty.wait_for("New passphrase: ");
    tty.types("\n");
    tty.wait_for("protects nothing");
    for (second, reply) in [("another", "differ"), (PASSPHRASE, "created repository")] {
        tty.wait_for("New passphrase: ");
        tty.types(&format!("{PASSPHRASE}\n"));
        tty.wait_for("The same again: ");
        tty.types(&format!("{second}\n"));
        tty.wait_for(reply);
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    world.say("snapshots").exits(0);
}

#[test]
fn ctrl_c_gives_the_terminal_back() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = World::with_repository();
    let mut tty = Tty::open();
    let mut child = tty.start(&world, "snapshots");
    tty.wait_for("Passphrase of ");
    tty.types("half of it\x03");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(tty.echoes());
}

#[test]
fn an_archive_is_not_written_to_a_terminal() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = World::with_repository();
    let mut tty = Tty::open();
    let mut child = tty.start(&world, "dump latest");
    tty.wait_for("such as `strongroom dump");
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn progress_leaves_nothing_behind() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = World::with_tree(22);
    let mut tty = Tty::open();
    std::fs::write(world.path("word"), PASSPHRASE).unwrap();
    let word = world.path("word");
    let words = format!("backup --password-file {} {}", word.display(), world.tree().display());
    let mut child = tty.start_with(&world, &words, |command| {
        command.env("TERM", "xterm");
    });
    tty.wait_for("grew by");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // What was on its line before the summary was cleared.
    let (before, _) = tty.shown.split_once("snapshot ").unwrap();
    assert!(
        before.is_empty() || before.ends_with("\x1b[2K") || before.ends_with('\r'),
        "{before:?}"
    );
}

/// A profile without any source of the passphrase.
fn with_profile(steps: &str) -> World {
    let world = World::with_tree(3);
    let folder = world.path(".config/strongroom");
    std::fs::create_dir_all(&folder).unwrap();
    let repository = world.repository().display().to_string();
    let text = format!("[default]\nrepo = \"{repository}\"\n{steps}");
    std::fs::write(folder.join("config.toml"), text).unwrap();
    world
}

const STEPS: &str = "[default.backup]\npaths = [\"~/tree\"]\n[default.verify]\n\
    [default.run]\nbefore = \"env; ls -l /proc/self/fd /proc/$PPID/fd; cat /proc/$PPID/cmdline\"\n";

#[test]
fn a_run_asks_once_for_all_of_its_steps() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = with_profile(STEPS);
    let mut tty = Tty::open();
    let mut child = tty.start(&world, "run --profile default");
    tty.wait_for("Passphrase of ");
    assert!(!tty.echoes());
    tty.types(&format!("{PASSPHRASE}\n"));
    tty.wait_for("profile default: all done");
    tty.wait_for("verify     done");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(tty.shown.matches("Passphrase of").count(), 1, "{}", tty.shown);
    assert!(!tty.shown.contains(PASSPHRASE), "{}", tty.shown);
    // It is nowhere on the disk either.
    for file in strongroom_testkit::damage::files_below(&world.path(".local")) {
        assert!(!String::from_utf8_lossy(&std::fs::read(file).unwrap()).contains(PASSPHRASE));
    }
}

#[test]
fn a_wrong_passphrase_of_a_run_is_tried_once() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = with_profile(STEPS);
    let mut tty = Tty::open();
    let mut child = tty.start(&world, "run --profile default");
    tty.wait_for("Passphrase of ");
    tty.types("wrong\n");
    tty.wait_for("failed: backup, verify");
    tty.wait_for("not tried: the passphrase is wrong");
    assert_eq!(child.wait().unwrap().code(), Some(5));
    // Ctrl-C at the question stops the run.
    let mut child = tty.start(&world, "run --profile default");
    tty.wait_for("Passphrase of ");
    tty.types("\x03");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(tty.echoes());
}

#[test]
fn a_new_passphrase_for_a_run_is_typed_twice() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let steps = "[default.backup]\npaths = [\"~/tree\"]\ninit = true\nkdf-memory = \"32KiB\"\n[default.verify]\n";
    let world = with_profile(steps);
    std::fs::remove_dir_all(world.repository()).unwrap();
    // As if none had ever been there.
    std::fs::remove_dir_all(world.path(".local/state/strongroom/places")).unwrap();
    let mut tty = Tty::open();
    let mut child = tty.start(&world, "run --profile default");
    tty.wait_for("New passphrase: ");
    tty.types(&format!("{PASSPHRASE}\n"));
    tty.wait_for("The same again: ");
    tty.types(&format!("{PASSPHRASE}\n"));
    tty.wait_for("profile default: all done");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    world.say("snapshots").exits(0);
}

#[test]
fn without_a_terminal_a_run_says_once_what_is_missing() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let steps = "[default.backup]\npaths = [\"~/tree\"]\n[default.prune]\n\
                 [default.verify]\npassword-file = \"~/own\"\n\
                 [default.run]\non-failure = \"cat > ~/said\"\n";
    let world = with_profile(steps);
    std::fs::write(world.path("own"), PASSPHRASE).unwrap();
    let mut command = Command::new("setsid");
    command.arg("--wait").arg(program()).arg("run");
    world.surround(&mut command);
    command.env_remove("STRONGROOM_PASSWORD").env_remove("STRONGROOM_REPOSITORY");
    let run = crate::world::Run::of(command.output().unwrap()).exits(5);
    let err = run.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(err.matches("no passphrase was given").count(), 1, "{err}");
    assert!(err.contains("give --password-file"), "{err}");
    let said = std::fs::read_to_string(world.path("said")).unwrap();
    for line in [
        "failed: backup",
        "not tried: there is no passphrase",
        "no passphrase was given",
        "left out: the backup failed",
        "verify     done",
    ] {
        assert!(said.contains(line), "no {line:?} in\n{said}");
    }
}
