//! What people type who know other backup programs: their words, lists of paths, and which snapshot
//! `latest` means.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::world::{PASSPHRASE, Run, World};

/// A repository and a tree of a few files.
fn with_files() -> World {
    let world = World::with_repository();
    for (name, text) in
        [("notes.txt", "notes"), ("big.iso", "image"), ("Old.TMP", "old"), ("texts/a b.txt", "a b")]
    {
        let path = world.tree().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    world
}

fn listed(world: &World, options: &[&str]) -> Vec<String> {
    let args = ["ls", "--recursive", "--json"].iter().chain(options);
    let out = world.run(args).exits(0).out;
    let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let entries = lines.filter(|line| line["event"] == "entry");
    let tree = format!("{}/", world.tree().display());
    let name = |path: &str| path.strip_prefix(&tree).unwrap_or(path).to_owned();
    entries.map(|entry| name(entry["path"].as_str().unwrap())).collect()
}

fn backup(world: &World, options: &[&str]) -> Run {
    world.run(["backup"].iter().chain(options))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn words_of_other_programs_are_commands() {
    let world = with_files();
    world.backup().exits(0);
    for words in [
        "check",
        "check --read-data",
        "check --read-data-subset 5%",
        "check --read-data-subset 3/20",
        "verify --sample 1/1",
    ] {
        world.say(words).exits(0).says("no damage was found");
    }
    for part in ["0/3", "4/3", "1/101", "/", "1/0"] {
        world.run(["verify", "--sample", part]).exits(2).warns("is not a part").warns("3/20");
    }
    world.say("tag --add keep --add x latest").exits(0).says("1 snapshot changed");
    world.say("tag --remove x latest").exits(0);
    world.say("snapshots --tag keep").exits(0).says("[keep]");
    world.say("snapshots --tag x").exits(0).warns("the only snapshot does not match");
    world.say("tag --set y latest").exits(0);
    world.say("snapshots --label y").exits(0).says("[y]");
    let copy = world.path("copy");
    world.run(["copy", text(&copy)]).exits(0);
    for option in ["--repo", "--repository"] {
        world.run(["check", option, text(&copy)]).exits(0);
    }
    let password = world.path("password");
    fs::write(&password, PASSPHRASE).unwrap();
    let mut command = world.command(["snapshots", "-p", text(&password)]);
    let run = Run::of(command.env_remove("STRONGROOM_PASSWORD").output().unwrap());
    run.exits(0).says("[y]");
}

#[test]
fn unlock_lists_backups_that_died_and_removes_nothing() {
    let world = with_files();
    world.say("unlock").exits(0).says("there are no locks");
    assert_eq!(world.say("unlock --json").exits(0).summary()["sessions"], 0);
    let mut running = world.command(["backup", "--stdin", "input"]);
    let mut running = running.stdin(Stdio::piped()).spawn().unwrap();
    let sessions = world.repository().join("sessions");
    let count = || fs::read_dir(&sessions).map_or(0, Iterator::count);
    for _ in 0..400 {
        std::thread::sleep(std::time::Duration::from_millis(25));
        if count() > 0 {
            break;
        }
    }
    // It dies without a word.
    running.kill().unwrap();
    running.wait().unwrap();
    world.say("unlock").exits(0).says("there are no locks").says("1 backup is running, or died");
    let run = world.say("unlock --json").exits(0);
    assert_eq!(run.summary()["sessions"], 1);
    let session: Value = serde_json::from_str(run.out.lines().next().unwrap()).unwrap();
    assert!(session["started"].is_string() && session["host"].is_string(), "{session}");
    assert_eq!(count(), 1);
}

#[test]
fn lists_of_paths() {
    let world = with_files();
    let tree = world.tree();
    let list = world.path("list");
    let lines = format!("# what I need\n{}\n\n/nowhere/at/all\n", tree.join("texts").display());
    fs::write(&list, lines).unwrap();
    // One that is missing does not cost the others.
    let run = backup(&world, &["--files-from", text(&list)]).exits(3);
    run.warns("\"/nowhere/at/all\" does not exist");
    assert_eq!(listed(&world, &[]), ["texts/a b.txt"]);
    // A list, and paths beside it; from standard input with odd names.
    let odd = tree.join("odd\nname");
    fs::write(&odd, "odd").unwrap();
    let raw = format!("{}\0{}\0", odd.display(), tree.join("notes.txt").display());
    let words = format!("backup {} --files-from0 -", tree.join("texts").display());
    world.feed(&words, raw.as_bytes()).exits(0);
    assert_eq!(listed(&world, &[]), ["notes.txt", "odd\nname", "texts/a b.txt"]);
    let list = text(&list);
    fs::write(list, "\n# nothing\n").unwrap();
    backup(&world, &["--files-from", list]).exits(1).warns("no path is listed in");
    backup(&world, &["--files-from", "/nowhere"]).exits(1).warns("cannot read the list of paths");
    backup(&world, &["--files-from", "-", "--files-from0", "-"]).exits(1).warns("give \"-\" once");
    backup(&world, &["--files-from", list, "--stdin", "x"]).exits(2).warns("cannot be used with");
    fs::write(list, format!("/{}\n", "x".repeat(200)).repeat(20_000)).unwrap();
    backup(&world, &["--files-from", list]).exits(1).warns("too many paths");
    backup(&world, &[]).exits(2).warns("required");
}

#[test]
fn excluding_as_other_programs_do() {
    let world = with_files();
    let tree = world.tree();
    let patterns = world.path("patterns");
    fs::write(&patterns, "*.iso\n").unwrap();
    backup(&world, &[text(&tree), "--exclude-from", text(&patterns), "--iexclude", "*.tmp"])
        .exits(0);
    assert_eq!(listed(&world, &[]), ["notes.txt", "texts", "texts/a b.txt"]);
    fs::write(&patterns, "*.ISO\nTEXTS/\n").unwrap();
    backup(&world, &[text(&tree), "--iexclude-file", text(&patterns), "--exclude", "*.tmp"])
        .exits(0);
    assert_eq!(listed(&world, &[]), ["Old.TMP", "notes.txt"]);
    backup(&world, &[text(&tree), "--iexclude", "a["]).exits(2).warns("a[");
}

#[test]
fn latest_is_narrowed_and_says_what_it_took() {
    let world = with_files();
    let tree = world.tree();
    let docs = tree.join("texts");
    backup(&world, &[text(&tree), "--host", "desk", "--tag", "whole"]).exits(0);
    backup(&world, &[text(&docs), "--host", "desk"]).exits(0);
    backup(&world, &[text(&docs), "--host", "lap"]).exits(0);
    assert_eq!(listed(&world, &[]), ["texts/a b.txt"]);
    let all = ["Old.TMP", "big.iso", "notes.txt", "texts", "texts/a b.txt"];
    assert_eq!(listed(&world, &["--label", "whole"]), all);
    assert_eq!(listed(&world, &["--path", text(&tree), "--host", "desk"]), all);
    let mut here = world.command(["ls", "--path", "texts", "--json"]);
    let run = Run::of(here.current_dir(&tree).output().unwrap()).exits(0);
    assert!(run.out.contains("a b.txt"), "{run:?}");
    assert_eq!(listed(&world, &["latest~1", "--host", "desk"]), all);
    world.say("ls --host lap").exits(0).warns("latest is snapshot ").warns("(lap, 20");
    let summary = world.say("ls --tag whole --json").exits(0).summary();
    let whole = summary["snapshot"].as_str().unwrap().to_owned();
    let at_docs = format!("latest:{}", docs.join("a b.txt").display());
    for (command, rest) in [("cat", &[][..]), ("dump", &[]), ("restore", &["--target", "x"])] {
        let args = [command, at_docs.as_str(), "--host", "lap"];
        let mut command = world.command(args.iter().chain(rest));
        let run = Run::of(command.current_dir(world.folder.path()).output().unwrap()).exits(0);
        assert!(run.err.contains("snapshot ") || run.out.contains("from snapshot "), "{run:?}");
    }
    let run = world.say("diff latest~1 latest --host desk --json").exits(0);
    assert_eq!(run.summary()["before"], whole.as_str());
    world.run(["find", "a b.txt", "--host", "lap"]).exits(0).says("1 snapshot");
    world.run(["find", "a b.txt", "--host", "desk"]).exits(0).says("2 snapshots");
    // What fits none says so, even if an id is typed.
    world.say("ls --host none").exits(1).warns("fits --host none").warns("hint");
    world.run(["ls", &whole, "--host", "lap"]).exits(1).warns("fits --host lap");
    world.run(["ls", &whole, "--host", "desk"]).exits(0);
    world.say("ls latest~9 --host desk").exits(1);
}

#[test]
fn a_part_is_listed_and_searched_by_patterns() {
    let world = with_files();
    fs::create_dir_all(world.tree().join("empty/dir")).unwrap();
    fs::write(world.tree().join("texts/c.iso"), "").unwrap();
    world.backup().exits(0);
    let check = |options: &[&str], expected: &[&str]| {
        assert_eq!(listed(&world, options), expected, "{options:?}");
    };
    check(&["--include", "*.iso"], &["big.iso", "texts", "texts/c.iso"]);
    check(&["--include", "empty"], &["empty", "empty/dir"]);
    check(&["-e", "texts", "-e", "empty", "--iexclude", "*.tmp"], &["big.iso", "notes.txt"]);
    check(&["--include", "*.iso", "-L", "1"], &["big.iso", "texts"]);
    // A tree has its corners where the last wanted entry is.
    let tree = world.run(["ls", "--tree", "--include", "*.iso", "-L", "2"]).exits(0).out;
    let lines: Vec<&str> = tree.lines().skip(1).collect();
    assert_eq!(lines, ["├── big.iso", "└── texts/", "    └── c.iso"], "{tree}");
    let tree = world.run(["ls", "--tree", "-e", "texts", "--exclude", "notes.txt"]).exits(0).out;
    assert!(tree.ends_with("└── empty/\n    └── dir/\n"), "{tree}");
    world.say("ls --include *.nothing").exits(3).warns("no file of the snapshot matches");
    world.say("ls --include [").exits(2).warns("unclosed character class");
    let found = |words: &[&str]| {
        let run = world.run(["find", "--json"].iter().chain(words)).exits(0);
        run.summary()["found"].as_u64().unwrap()
    };
    assert_eq!(found(&["*.iso"]), 2);
    assert_eq!(found(&["*.iso", "--exclude", "texts/"]), 1);
    assert_eq!(found(&["*", "--include", "texts"]), 3);
    assert_eq!(found(&["**/texts/*", "--iexclude", "C.*"]), 1);
}

#[test]
fn every_verb_that_names_snapshots_is_narrowed() {
    let world = with_files();
    let tree = world.tree();
    backup(&world, &[text(&tree), "--host", "desk", "--tag", "a"]).exits(0);
    backup(&world, &[text(&tree), "--host", "lap", "--tag", "a"]).exits(0);
    backup(&world, &[text(&tree.join("texts")), "--host", "lap"]).exits(0);
    let id = |words: &str| {
        let run = world.say(words).exits(0);
        run.summary()["snapshot"].as_str().unwrap().to_owned()
    };
    let desk = id("ls --host desk --json");
    let lap = id("ls --host lap --label a --json");
    let run = world.say("tag --add mine latest --host desk --json").exits(0);
    assert_eq!(run.summary()["changed"], serde_json::json!([desk]));
    let run = world.say("hold latest --tag a --host lap --reason why --json").exits(0);
    assert_eq!(run.summary()["held"], serde_json::json!([lap]));
    world.say("hold latest --tag none --reason why").exits(1).warns("fits --label none");
    world.say("hold --release latest --tag a --host lap").exits(0);
    // What is counted is of these; what is theirs alone depends on all.
    let counted = |words: &str| {
        let lines = world.say(words).exits(0).out;
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let wanted = ["snapshot_stats", "cost"];
        lines.filter(|line| wanted.contains(&line["event"].as_str().unwrap())).collect::<Vec<_>>()
    };
    let stats = counted("stats --host desk --json");
    assert_eq!(stats.len(), 1, "{stats:?}");
    assert_eq!((&stats[0]["snapshot"], &stats[0]["own_bytes"]), (&desk.clone().into(), &0.into()));
    assert_eq!(counted("stats --snapshots --label a --json").len(), 2);
    let costs = counted("stats --plot --host lap --json");
    assert_eq!(costs.len(), 2, "{costs:?}");
    assert!(
        costs
            .iter()
            .all(|cost| cost["host"] == "lap" && cost["own_stored_bytes"] != cost["stored_bytes"])
    );
    // Rules are for these alone, as are names.
    let run = world.say("forget --keep-last 1 --label a --host lap --dry-run --json").exits(0);
    assert_eq!(run.summary()["forgotten"], serde_json::json!([]));
    let run = world.say("forget latest --host lap --label a --json").exits(0);
    assert_eq!(run.summary()["forgotten"], serde_json::json!([lap]));
    world.say("forget --host lap").exits(1).warns("nothing says what to forget");
}

/// What a restore with these options makes, directories with a slash.
fn restored(world: &World, what: &str, options: &[&str]) -> (Run, Vec<String>) {
    let target = world.path("target");
    let _ = fs::remove_dir_all(&target);
    let args = ["restore", what, "--target", text(&target)];
    let run = world.run(args.iter().chain(options));
    let mut found = Vec::new();
    let mut rest = vec![target.clone()];
    while let Some(folder) = rest.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = text(path.strip_prefix(&target).unwrap()).to_owned();
            found.push(if path.is_dir() { format!("{name}/") } else { name });
            rest.extend(path.is_dir().then_some(path));
        }
    }
    found.sort();
    (run, found)
}

#[test]
fn a_part_is_restored_and_dumped_by_patterns() {
    let world = with_files();
    fs::create_dir_all(world.tree().join("deep/er/texts")).unwrap();
    fs::write(world.tree().join("deep/er/texts/c.TXT"), "c").unwrap();
    fs::create_dir_all(world.tree().join("empty/dir")).unwrap();
    world.backup().exits(0);
    let top = world.of("latest");
    let check = |options: &[&str], expected: &[&str]| {
        let (run, found) = restored(&world, &top, options);
        run.exits(0);
        assert_eq!(found, expected, "{options:?}");
    };
    // No empty directories beside those on the way.
    check(&["-i", "*.txt"], &["notes.txt", "texts/", "texts/a b.txt"]);
    check(
        &["--iinclude", "*.txt", "--exclude", "notes.*"],
        &["deep/", "deep/er/", "deep/er/texts/", "deep/er/texts/c.TXT", "texts/", "texts/a b.txt"],
    );
    check(&["--include", "empty"], &["empty/", "empty/dir/"]);
    check(
        &["-e", "texts/", "--iexclude", "*.tmp", "-e", "empty"],
        &["big.iso", "deep/", "deep/er/", "notes.txt"],
    );
    let anchored = format!("{}/deep/er", world.tree().display());
    check(&["-i", &anchored], &["deep/", "deep/er/", "deep/er/texts/", "deep/er/texts/c.TXT"]);
    // A pattern that matches nothing is no success.
    let (run, found) = restored(&world, &top, &["-i", "*.odt"]);
    run.exits(3).warns("no file of the snapshot matches");
    assert!(found.is_empty(), "{found:?}");
    let (run, _) = restored(&world, &top, &["-i", "*.txt", "--delete"]);
    run.exits(2).warns("cannot be used with");
    restored(&world, &top, &["-i", "a["]).0.exits(2).warns("a[");
    let (run, found) = restored(&world, &top, &["-i", "*.txt", "-n", "-v"]);
    run.exits(0).says("would restore 2 files");
    assert!(found.is_empty(), "{found:?}");
    let tar = |options: &[&str]| {
        let run = world.run(["dump", &top].iter().chain(options));
        let mut list = Command::new("tar");
        let list = list.arg("-t").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut list = list.spawn().unwrap();
        std::io::Write::write_all(&mut list.stdin.take().unwrap(), &run.bytes).unwrap();
        (run, Run::of(list.wait_with_output().unwrap()).exits(0).out)
    };
    let (run, names) = tar(&["-i", "*.txt"]);
    run.exits(0);
    assert_eq!(names, "./\nnotes.txt\ntexts/\ntexts/a b.txt\n");
    tar(&["-i", "*.odt"]).0.exits(3).warns("no file of the snapshot matches");
}

#[test]
fn what_is_only_on_the_way_keeps_what_it_is() {
    use std::os::unix::fs::PermissionsExt;
    let world = with_files();
    world.backup().exits(0);
    let docs = world.tree().join("texts");
    fs::set_permissions(&docs, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(docs.join("a b.txt"), "changed").unwrap();
    fs::write(world.tree().join("notes.txt"), "changed").unwrap();
    world.run(["restore", "latest", "--in-place", "-i", "a b.txt"]).exits(0);
    assert_eq!(fs::read(docs.join("a b.txt")).unwrap(), b"a b");
    assert_eq!(fs::read(world.tree().join("notes.txt")).unwrap(), b"changed");
    assert_eq!(docs.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    world.run(["restore", "latest", "--in-place", "-i", "texts"]).exits(0);
    assert_eq!(docs.metadata().unwrap().permissions().mode() & 0o777, 0o755);
}
