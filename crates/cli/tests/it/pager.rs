//! The pager of long lists at a terminal.

use std::process::Command;

use crate::tty::{Tty, cannot};
use crate::world::{World, has_program, skipped};

/// A snapshot with more files than a screen has lines.
fn with_many() -> World {
    let world = World::with_repository();
    std::fs::create_dir(world.tree()).unwrap();
    for number in 100..300 {
        std::fs::write(world.tree().join(format!("file-{number}")), "").unwrap();
    }
    std::fs::write(world.tree().join("a b"), "").unwrap();
    world.backup().exits(0);
    std::fs::write(world.tree().join("another"), "one more").unwrap();
    std::fs::write(world.tree().join("another still"), "one more").unwrap();
    world.backup().exits(0);
    world
}

/// What is at the terminal after a command with this pager.
fn shown(world: &World, words: &str, pager: &[(&str, &str)]) -> String {
    let mut tty = Tty::open();
    let child = tty.start_with(world, words, |command| {
        command.env("TERM", "xterm").envs(pager.iter().copied());
    });
    tty.read_to_end(child, 0);
    tty.shown
}

#[test]
fn a_list_at_a_terminal_goes_through_the_pager() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = with_many();
    let marking = ("STRONGROOM_PAGER", "sed 's/^/paged: /'");
    for words in ["ls latest", "find file-100", "snapshots", "diff latest~1 latest"] {
        let text = shown(&world, words, &[marking]);
        // Progress is taken off its line.
        let text = text.replace("\x1b[2K", "\n");
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        // The notes before the first line of the list go to the terminal itself.
        let first = lines.iter().position(|line| line.starts_with("paged: "));
        let rest = &lines[first.unwrap_or_else(|| panic!("{words}: {text}"))..];
        assert!(rest.iter().all(|line| line.starts_with("paged: ")), "{words}: {text}");
        // No progress goes into it.
        assert!(rest.iter().all(|line| !line.contains("compared ")), "{words}: {text}");
    }
    // Names look as at a terminal.
    let text = shown(&world, "ls latest", &[marking]);
    assert!(text.contains("paged: ") && text.contains("/a b'"), "{text}");
    for words in ["ls latest --no-pager", "ls latest --json", "hold"] {
        assert!(!shown(&world, words, &[marking]).contains("paged: "), "{words}");
    }
    let other = ("PAGER", "sed s/^/other:/");
    assert!(shown(&world, "ls latest", &[other]).contains("other:"));
    assert!(shown(&world, "ls latest", &[other, marking]).contains("paged: "));
    for off in [("PAGER", ""), ("STRONGROOM_PAGER", "cat"), ("TERM", "dumb")] {
        assert!(!shown(&world, "ls latest", &[other, off]).contains("other:"), "{off:?}");
    }
    assert!(!world.run(["ls"]).exits(0).out.contains("other:"));
}

#[test]
fn what_was_pasted_behind_the_command_stays_for_the_shell() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = with_many();
    let mut tty = Tty::open();
    tty.types("echo the next line\n");
    let child = tty.start_with(&world, "ls latest", |command| {
        command.env("TERM", "xterm").env("PAGER", "sed s/^/paged:/");
    });
    tty.read_to_end(child, 0);
    assert!(tty.shown.contains("file-299") && !tty.shown.contains("paged:"), "{}", tty.shown);
}

#[test]
fn without_the_pager_the_list_is_printed() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = with_many();
    let text = shown(&world, "ls latest", &[("PAGER", "no-such-program --here")]);
    assert!(text.contains("file-100") && text.contains("file-299"), "{text}");
}

#[test]
fn less_is_left_before_the_end_and_after_ctrl_c() {
    let less = || (!has_program("less")).then_some("less is not installed");
    if skipped("a pager", cannot().or_else(less)) {
        return;
    }
    let world = with_many();
    for keys in ["q", "\x03\x03q"] {
        let mut tty = Tty::open();
        let child = tty.start_with(&world, "ls latest", |command: &mut Command| {
            command.env("TERM", "xterm").env("LINES", "24").env("COLUMNS", "80");
        });
        tty.wait_for("file-110");
        for key in keys.chars() {
            // Each key by itself: after Ctrl-C, less throws away what was typed before.
            std::thread::sleep(std::time::Duration::from_millis(300));
            tty.types(&key.to_string());
        }
        tty.read_to_end(child, 0);
        assert!(!tty.shown.contains("file-299"), "{}", tty.shown);
        assert!(!tty.shown.contains("error"), "{}", tty.shown);
    }
}
