//! What `find` and `ls` select, and how it looks: trees, colours, names that can be pasted.

use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::world::{Run, World, has_program, program, skipped};

fn with_files() -> World {
    let world = World::with_repository();
    let tree = world.tree();
    fs::create_dir_all(tree.join("texts/deep")).unwrap();
    fs::write(tree.join("texts/a b.txt"), "a b").unwrap();
    fs::write(tree.join("texts/deep/it's"), "x").unwrap();
    fs::write(tree.join("Big.iso"), vec![7; 300_000]).unwrap();
    std::os::unix::fs::symlink("Big.iso", tree.join("link")).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    File::options().write(true).open(tree.join("Big.iso")).unwrap().set_modified(old).unwrap();
    world.backup().exits(0);
    world
}

/// The names that were found.
fn found(world: &World, options: &[&str]) -> Vec<String> {
    let out = world.run(["find", "--json"].iter().chain(options)).exits(0).out;
    let lines = out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let entries = lines.filter(|line| line["event"] == "entry");
    let tree = format!("{}/", world.tree().display());
    let names =
        entries.filter_map(|entry| Some(entry["path"].as_str()?.strip_prefix(&tree)?.to_owned()));
    names.collect()
}

#[test]
fn found_by_size_time_and_kind() {
    let world = with_files();
    for (options, expected) in [
        (&["--size", "+100k"][..], &["Big.iso"][..]),
        (&["--size", "-1k"], &["texts/a b.txt", "texts/deep/it's"]),
        (&["--size", "2..3"], &["texts/a b.txt"]),
        (&["--size", "300000"], &["Big.iso"]),
        (&["--older", "2021-01-01", "--type", "f"], &["Big.iso"]),
        (&["--newer", "1d", "--type", "f"], &["texts/a b.txt", "texts/deep/it's"]),
        (&["--type", "d,l", "--newer", "1d"], &["link", "texts", "texts/deep"]),
        (&["--iname", "big*"], &["Big.iso"]),
        (&["--iname", "*B*", "--size", "-1k"], &["texts/a b.txt"]),
        (&["*.txt", "--size", "+1k"], &[]),
    ] {
        assert_eq!(found(&world, options), expected, "{options:?}");
    }
    world.run(["find", "x", "--size", "big"]).exits(2).warns("is not a size");
    world.run(["find", "x", "--newer", "soon"]).exits(2).warns("write a date");
    world.run(["find", "x", "--type", "q"]).exits(2).warns("invalid value");
    world.say("find").exits(2).warns("required");
    world.run(["find", "x", "--iname", "y"]).exits(2).warns("cannot be used with");
    world
        .run(["find", "--size", "+1G"])
        .exits(0)
        .warns("nothing of that name, size, time and kind");
    // One line for what did not change.
    world.backup().exits(0);
    let run = world.run(["find", "Big.iso", "--human-readable"]).exits(0).says("2 snapshots");
    assert_eq!(run.out.lines().count(), 1, "{}", run.out);
    assert!(run.out.contains("293.0 KiB"), "{}", run.out);
}

#[test]
fn a_listing_as_a_tree_and_by_levels() {
    let world = with_files();
    let tree = world.run(["ls", "--tree"]).exits(0).out;
    let top = world.tree().display().to_string();
    let expected = format!(
        "{top}/\n├── Big.iso\n├── link\n└── texts/\n    ├── a b.txt\n    └── deep/\n        └── it's\n"
    );
    assert_eq!(tree, expected);
    let tree = world.run(["ls", "--tree", "--depth", "1"]).exits(0).out;
    assert_eq!(tree, format!("{top}/\n├── Big.iso\n├── link\n└── texts/\n"));
    let lines =
        |options: &[&str]| world.run(["ls"].iter().chain(options)).exits(0).out.lines().count();
    assert_eq!([lines(&[]), lines(&["-L", "2"]), lines(&["-R"])], [3, 5, 6]);
    let long = world.run(["ls", "--tree", "--long", "--human-readable"]).exits(0).out;
    assert!(long.contains("293.0 KiB") && long.contains("├── Big.iso"), "{long}");
    assert!(long.contains("link -> Big.iso"), "{long}");
    world.run(["ls", "-L", "0"]).exits(2);
}

/// The program at a terminal that `script` makes.
fn on_a_terminal(world: &World, words: &str, variables: &[(&str, &str)]) -> Run {
    let mut command = Command::new("script");
    let line = format!("{} {words} --no-pager", program().display());
    command.args(["-qec", &line, "/dev/null"]);
    world.surround(&mut command);
    command.env("TERM", "xterm").env("SHELL", "/bin/sh").envs(variables.iter().copied());
    Run::of(command.output().unwrap())
}

#[test]
fn colours_and_quotes_are_for_terminals() {
    let world = with_files();
    let piped = world.run(["ls", "-R"]).exits(0).out;
    assert!(!piped.contains('\x1b') && piped.contains("texts/a b.txt\n"), "{piped:?}");
    let forced = world.run(["ls", "-R", "--color", "always"]).exits(0).out;
    assert!(forced.contains("\x1b[1;34m") && forced.contains("texts/a b.txt\n"), "{forced:?}");
    let run = world.run(["snapshots", "--color=always"]).exits(0).out;
    assert!(run.contains("\x1b[33m"), "{run:?}");
    let verified = world.run(["verify", "--color=always"]).exits(0).out;
    assert!(verified.contains("\x1b[32mno damage"), "{verified:?}");
    let run = world.run(["ls", "nothing", "--color", "always"]).exits(1);
    assert!(run.err.contains("\x1b[1;31merror:\x1b[0m"), "{:?}", run.err);
    world.run(["ls", "--color", "maybe"]).exits(2);
    if skipped("a terminal", (!has_program("script")).then_some("script is not installed")) {
        return;
    }
    let shown = on_a_terminal(&world, "ls -R", &[]).exits(0).out;
    assert!(shown.contains("\x1b[1;34m") && shown.contains("texts/a b.txt'"), "{shown:?}");
    assert!(shown.contains("texts/deep/it's\""), "{shown:?}");
    let plain = on_a_terminal(&world, "ls -R", &[("NO_COLOR", "1")]).exits(0).out;
    assert!(!plain.contains('\x1b') && plain.contains("texts/a b.txt'"), "{plain:?}");
}
