//! What the main commands print for people, as a whole. Ids, times and sizes are left out.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use strongroom_testkit::tree::set_mtime;

use crate::world::{Run, World};

/// A small tree with a known content.
fn small_tree(world: &World) {
    let tree = world.tree();
    fs::create_dir_all(tree.join("notes")).unwrap();
    for (path, text) in [("notes/a.txt", "first"), ("notes/b.txt", "same"), ("plan", "plan")] {
        fs::write(tree.join(path), text).unwrap();
    }
    std::os::unix::fs::symlink("plan", tree.join("link")).unwrap();
    set_mtime(&tree.join("notes"), 1_700_000_000, 0);
}

fn change(world: &World) {
    let notes = world.tree().join("notes");
    fs::write(notes.join("a.txt"), "second").unwrap();
    fs::write(notes.join("new.txt"), "new").unwrap();
    fs::set_permissions(notes.join("b.txt"), fs::Permissions::from_mode(0o600)).unwrap();
}

/// What a run printed, with a placeholder for all that differs from run to run.
fn shown(world: &World, name: &str, run: &Run) -> String {
    let folder = world.folder.path().display().to_string();
    let text = format!("exit {}\n{}{}", run.code.unwrap_or(-1), run.out, run.err);
    let lines = text.replace(&folder, "FOLDER");
    // How many objects, blocks and chunks there are is for other tests to say.
    let is_inside = ["verify", "repair", "replicate", "audit", "stats"]
        .iter()
        .any(|word| name.starts_with(word));
    lines.lines().map(|line| redacted(line, is_inside)).collect::<Vec<_>>().join("\n")
}

fn redacted(line: &str, all_numbers: bool) -> String {
    let indent = line.len() - line.trim_start().len();
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut text = " ".repeat(indent.min(2));
    for (place, word) in words.iter().enumerate() {
        if place > 0 {
            text.push(' ');
        }
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
        // Eight digits may as well be an identifier.
        let is_count = is_number && word.len() != 8;
        // Whether a directory's time differs depends on how coarse the file system's clock is.
        let is_of_times = words[place + 1..].starts_with(&["more", "only", "in", "a", "time:"]);
        if is_of_times || (all_numbers && is_count && words[0] != "exit") {
            text.push('N');
            continue;
        }
        text.push_str(&redacted_word(word, words.get(place + 1).copied().unwrap_or_default()));
    }
    text
}

/// The word with its punctuation, if nothing of it differs from run to run.
fn redacted_word(word: &str, next: &str) -> String {
    let core = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let is_hex = core.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = !core.is_empty() && core.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let unit = next.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let has_unit = matches!(unit, "B" | "KiB" | "MiB" | "ms" | "s" | "B/s" | "KiB/s" | "MiB/s");
    let placeholder = if is_hex && matches!(core.len(), 8 | 16 | 32) {
        "ID"
    } else if core.len() == 10 && core.matches('-').count() == 2 {
        "DATE"
    } else if core.len() == 8 && core.matches(':').count() == 2 {
        "TIME"
    } else if is_number && (has_unit || core.contains('.')) {
        "N"
    } else if matches!(core, "B" | "KiB" | "MiB" | "B/s" | "KiB/s" | "MiB/s") {
        "BYTES"
    } else if matches!(core, "ms" | "s") {
        "SECONDS"
    } else {
        return word.to_owned();
    };
    word.replace(core, placeholder)
}

#[test]
fn the_main_commands_read_well() {
    let world = World::with_repository();
    small_tree(&world);
    let tree = world.tree().display().to_string();
    let backup = ["backup", "--host", "laptop", "--label", "nightly", &tree];
    let check = |name: &str, args: &[&str]| {
        insta::assert_snapshot!(name.replace(' ', "-"), shown(&world, name, &world.run(args)));
    };
    check("snapshots of nothing", &["snapshots"]);
    check("backup dry run", &["backup", "--dry-run", &tree]);
    check("backup first", &backup);
    check("backup unchanged", &backup);
    change(&world);
    check("backup changed", &backup);
    check("snapshots", &["snapshots"]);
    check("snapshots of a path", &["snapshots", "--path", "/elsewhere"]);
    check("ls", &["ls"]);
    check("ls recursive", &["ls", "-R"]);
    check("find nothing", &["find", "nothing"]);
    check("diff", &["diff", "latest~1", "latest"]);
    check("diff same", &["diff", "latest", "latest"]);
    let out = world.path("out").display().to_string();
    check("restore dry run", &["restore", "latest", "--target", &out, "--dry-run"]);
    check("restore", &["restore", "latest", "--target", &out]);
    check("restore again", &["restore", "latest", "--target", &out]);
    check("verify", &["verify"]);
    check("verify data", &["verify", "--data"]);
    check("verify keyless", &["verify", "--keyless"]);
    check("repair dry run", &["repair", "--dry-run"]);
    check("repair", &["repair"]);
    let replica = world.path("replica").display().to_string();
    check("replicate dry run", &["replicate", "--dry-run", &replica]);
    check("replicate", &["replicate", &replica]);
    check("replicate again", &["copy", &replica, "--mirror"]);
    check("audit", &["audit", &replica]);
    check("stats", &["stats"]);
    check("stats of snapshots", &["stats", "--snapshots"]);
    check("key list", &["key", "list"]);
}

#[test]
fn errors_read_well() {
    let world = World::with_repository();
    small_tree(&world);
    let check = |name: &str, args: &[&str]| {
        insta::assert_snapshot!(name.replace(' ', "-"), shown(&world, name, &world.run(args)));
    };
    check("error no snapshot", &["restore", "latest", "--in-place"]);
    check("error no path given", &["backup"]);
    check("error path missing", &["backup", "/nowhere/at/all"]);
    check("error no repository", &["snapshots", "--repo", "/nowhere/at/all"]);
    check("error pattern", &["find", "["]);
    check("error word of another program", &["compact"]);
    let wrong = world.path("wrong");
    fs::write(&wrong, "wrong").unwrap();
    check("error passphrase", &["snapshots", "--password-file", wrong.to_str().unwrap()]);
    world.run(["backup", world.tree().to_str().unwrap(), "--host", "laptop"]).exits(0);
    check("error no such snapshot", &["ls", "latest~5"]);
    check("error no such path", &["ls", "latest:/nowhere"]);
    check("error cat of nothing", &["cat", "latest"]);
}
