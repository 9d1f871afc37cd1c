//! The passphrase, asked for on a terminal.

use crate::tty::{Tty, cannot};
use crate::world::{PASSPHRASE, World, skipped};

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
