//! What is in there: `ls`, `find`, `cat`, `diff`, `dump`, `stats`.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use strongroom_testkit::tree::set_mtime;

use crate::world::{World, has_program, skipped};

/// A small tree, stored, changed, and stored again.
fn two_days() -> World {
    let world = World::with_repository();
    let tree = world.tree();
    fs::create_dir_all(tree.join("notes/old")).unwrap();
    for (path, text) in
        [("notes/a.txt", "first"), ("notes/b.txt", "same"), ("notes/old/c.txt", "c"), ("kind", "k")]
    {
        fs::write(tree.join(path), text).unwrap();
    }
    fs::write(tree.join(std::ffi::OsStr::from_bytes(b"bad\x1b[2J\xff")), "x").unwrap();
    world.backup().exits(0);
    fs::write(tree.join("notes/a.txt"), "second").unwrap();
    fs::set_permissions(tree.join("notes/b.txt"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_dir_all(tree.join("notes/old")).unwrap();
    fs::remove_file(tree.join("kind")).unwrap();
    symlink("elsewhere", tree.join("kind")).unwrap();
    fs::write(tree.join("new"), "new").unwrap();
    set_mtime(&tree.join("notes"), 1_700_000_000, 0);
    world.backup().exits(0);
    world
}

#[test]
fn lists_and_finds() {
    let world = two_days();
    let list = world.say(&format!("ls {}", world.of("latest"))).exits(0).out;
    assert!(list.contains("/notes/\n") && !list.contains("a.txt"), "{list}");
    assert!(list.contains("bad\\u{1b}[2J\\xff"), "{list}");
    let long = world.say(&format!("ls -l {}/notes", world.of("latest"))).exits(0).out;
    assert!(long.contains("-rw-------") && long.contains("b.txt"), "{long}");
    let one = world.say(&format!("ls {}/notes/a.txt", world.of("latest"))).exits(0).out;
    assert!(one.ends_with("/notes/a.txt\n") && one.lines().count() == 1, "{one}");
    let found = world.say("find c.*").exits(0).out;
    assert_eq!(found.lines().count(), 1, "{found}");
    assert_eq!(world.say("find *.TXT --ignore-case").exits(0).out.lines().count(), 5);
    assert_eq!(world.say("find *.txt --snapshot latest").exits(0).out.lines().count(), 2);
    world.say("find nothing-like-it").exits(0).warns("nothing of that name");
}

#[test]
fn writes_a_file() {
    let world = two_days();
    assert_eq!(world.say(&format!("cat {}/notes/a.txt", world.of("latest~1"))).out, "first");
    assert_eq!(world.say(&format!("cat {}/notes/a.txt", world.of("latest"))).out, "second");
    let json = world.say(&format!("cat --json {}/notes/a.txt", world.of("latest"))).exits(0);
    assert_eq!(json.out, "second");
    assert!(json.err.contains("\"event\":\"summary\""), "{}", json.err);
    world.say(&format!("cat {}/notes", world.of("latest"))).exits(1).warns("a directory");
    world.say(&format!("cat {}/none", world.of("latest"))).exits(1).warns("strongroom ls");
    world.say("cat latest").exits(1).warns("after a colon");
}

#[test]
fn tells_differences() {
    let world = two_days();
    let top = world.tree().display().to_string();
    let run = world.say("diff latest~1 latest").exits(0);
    for line in [
        format!("M {top}/notes/a.txt (content)"),
        format!("M {top}/notes/b.txt (mode)"),
        format!("- {top}/notes/old/"),
        format!("- {top}/notes/old/c.txt"),
        format!("T {top}/kind (file to symlink)"),
        format!("+ {top}/new"),
    ] {
        assert!(run.out.lines().any(|printed| printed == line), "no {line:?} in\n{}", run.out);
    }
    assert!(!run.out.contains("(time)"), "{}", run.out);
    assert!(run.out.contains("1 added, 2 removed, 2 changed"), "{}", run.out);
    world.say("diff latest~1 latest --times").exits(0).says("/notes/ (time)");
    world.say("diff latest~1 latest --quiet").exits(0);
    world.say("diff latest latest").exits(0).says("no differences");

    // A part, from inside it.
    let words = format!("diff {}/notes {}/notes", world.of("latest~1"), world.of("latest"));
    world.say(&words).exits(0).says("M a.txt (content)\n");
    // What exists there now, and a copy of it.
    world.say("diff latest").exits(0).says("no differences");
    fs::write(world.tree().join("notes/b.txt"), "SAME").unwrap();
    let run = world.say("diff latest").exits(0);
    assert!(run.out.contains(&format!("M {top}/notes/b.txt (content)")), "{}", run.out);
    let words = format!("diff {} --with {top}", world.of("latest"));
    world.say(&words).exits(0).says("M notes/b.txt (content)\n");
    // A change that hides behind size and time is seen by who looks closely.
    let words =
        format!("diff {} --with {}", world.of("latest"), world.restored("latest").display());
    world.say(&words).exits(0);

    let run = world.run(["diff", "latest", &top]);
    run.exits(1).warns("--with");
    world.say("diff latest --with /nowhere/at/all").exits(1).warns("error: ");
}

#[test]
fn looks_into_files_when_asked() {
    let world = two_days();
    let copy = world.restored(&world.of("latest"));
    let words = format!("diff {} --with {}", world.of("latest"), copy.display());
    world.say(&words).exits(0).says("no differences");
    let file = copy.join("notes/a.txt");
    let before = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, "SECOND").unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(before).unwrap();
    world.say(&words).exits(0).says("no differences");
    world.say(&format!("{words} --content")).exits(0).says("M notes/a.txt (content)");
}

#[test]
fn dumps_archives() {
    let world = two_days();
    let run = world.say(&format!("dump {}", world.of("latest"))).exits(0).warns("wrote 5 files");
    let lists: [(&str, &[&str], &[u8]); 2] =
        [("tar", &["tf", "-"], &run.bytes), ("unzip", &["-l", "archive.zip"], b"")];
    let zip = world.say(&format!("dump --format zip --quiet {}", world.of("latest"))).exits(0);
    assert_eq!(zip.err, "");
    fs::write(world.path("archive.zip"), &zip.bytes).unwrap();
    fs::write(world.path("archive.tar"), &run.bytes).unwrap();
    for (program, args, _) in lists {
        if skipped(program, (!has_program(program)).then_some("it is not installed")) {
            continue;
        }
        let input = fs::File::open(world.path("archive.tar")).unwrap();
        let mut command = Command::new(program);
        command.args(args).current_dir(world.folder.path()).stdin(Stdio::from(input));
        let output = command.output().unwrap();
        let list = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && list.contains("notes/a.txt"), "{program}: {list}");
    }
    let json = world.say("dump --json latest").exits(0);
    assert!(json.err.contains("\"event\":\"summary\""), "{}", json.err);
    let none = world.say(&format!("dump {}/none", world.of("latest"))).exits(1);
    assert!(none.bytes.is_empty());
}

#[test]
fn counts() {
    let world = two_days();
    let all = world.say("stats").exits(0).out;
    for word in ["snapshots", "deduplication", "compression", "data", "metadata"] {
        assert!(all.contains(word), "no {word} in\n{all}");
    }
    let table = world.say("stats --snapshots").exits(0).out;
    assert!(table.starts_with("id ") && table.contains("freed if removed:"), "{table}");
    let quiet = world.say("stats --snapshots --quiet").exits(0).out;
    assert_eq!(quiet.lines().count(), 3, "{quiet}");
    let one = world.say("stats latest~1 latest~1 --quiet").exits(0).out;
    assert_eq!(one.lines().count(), 2, "{one}");
    world.say("stats latest~7").exits(1).warns("strongroom snapshots");
}

#[test]
fn how_it_was_stored() {
    let world = two_days();
    let tree = world.tree();
    fs::write(tree.join("more"), "more and more ".repeat(50_000)).unwrap();
    let words = format!("backup --stages --compression auto --readers 1 {}", tree.display());
    world.say(&words).exits(0).says("stages busy: walk ").says("bottleneck: ");
    fs::write(tree.join("more"), "more and less ".repeat(50_000)).unwrap();
    let words = format!("backup --json --no-deltas {}", tree.display());
    let json = world.say(&words).exits(0).out;
    assert!(json.contains("\"deltas\":0") && json.contains("\"compress\":"), "{json}");
}
