//! What goes wrong before anything is done: the code, the message, and the next step.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use strongroom_testkit::tree::{TreeOptions, grow};

use crate::world::{Run, World, has_program, is_root, program, skipped};

#[test]
fn a_wrong_passphrase() {
    let world = World::with_repository();
    let run = |word: &str| {
        let mut command = world.command(["snapshots"]);
        command.env("STRONGROOM_PASSWORD", word).output().unwrap()
    };
    let output = run("wrong");
    assert_eq!(output.status.code(), Some(5));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("hint: try again") && !message.contains("wrong\""), "{message}");
    world.say("snapshots --password-file /nowhere").exits(5).warns("--password-file");
    world.say("snapshots --password-command false").exits(5).warns("--password-command");
    let empty = World::empty();
    fs::write(empty.path("none"), "\n").unwrap();
    let words = format!("init --password-file {}", empty.path("none").display());
    empty.say(&words).exits(5).warns("empty passphrase");
}

#[test]
fn no_passphrase_at_all() {
    let world = World::with_repository();
    let mut command = Command::new("setsid");
    if skipped("no terminal", (!has_program("setsid")).then_some("setsid is not installed")) {
        return;
    }
    // Without a terminal the program cannot ask.
    command.arg("--wait").arg(program()).arg("snapshots");
    world.surround(&mut command);
    let output = command.env_remove("STRONGROOM_PASSWORD").output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{message}");
    assert!(message.contains("STRONGROOM_PASSWORD"), "{message}");
}

#[test]
fn no_repository() {
    let world = World::empty();
    for words in
        ["snapshots", "verify", "verify --keyless", "repair", "repair --keyless", "key list"]
    {
        world.say(words).exits(6).warns("strongroom init");
    }
    fs::create_dir(world.repository()).unwrap();
    world.say("snapshots").exits(6).warns("there is no repository at");
    fs::write(world.repository().join("thesis.txt"), "text").unwrap();
    world.say("snapshots").exits(6);
    world.say("init --kdf-memory 32KiB").exits(1).warns("choose an empty folder");
    let mut command = world.command(["snapshots"]);
    let output = command.env_remove("STRONGROOM_REPOSITORY").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("give --repo"));
    world.say("snapshots --repo s3://bucket").exits(1).warns("s3://");
}

#[test]
fn a_repository_of_another_user_is_not_damaged() {
    if skipped("another user", (!is_root()).then_some("only root becomes another user")) {
        return;
    }
    let world = World::with_repository();
    for path in [world.folder.path().to_owned(), world.repository()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for config in ["config", "config.copy"] {
        let config = world.repository().join(config);
        if config.exists() {
            fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(program()).arg("snapshots");
    world.surround(&mut command);
    let run = Run::of(command.output().unwrap()).exits(8);
    let place = world.repository();
    run.warns(place.to_str().unwrap()).warns("Permission denied").warns("hint: run it as the user");
}

#[test]
fn what_would_do_harm_or_nothing_is_refused() {
    let world = World::empty();
    fs::create_dir(world.tree()).unwrap();
    let tree = world.tree();
    let words = ["backup", "--init", "--dry-run", tree.to_str().unwrap()];
    world.run(words).exits(6).warns("a dry run creates none");
    assert!(!world.repository().exists());
    world.say("init --kdf-memory 32KiB").exits(0);
    let own = world.repository();
    let beside = world.path("beside");
    std::os::unix::fs::symlink(&own, &beside).unwrap();
    for target in [&own, &beside, &own.join(".")] {
        let run = world.run(["replicate", target.to_str().unwrap()]).exits(1);
        run.warns("is the repository itself");
    }
    world.say("snapshots --repo /media/usb/absent").exits(6).warns("its disk is mounted");
    // A variable that is empty says nothing.
    let mut command = world.command(["snapshots"]);
    command.env("STRONGROOM_PASSWORD_FILE", "").env("STRONGROOM_PROFILE", "");
    Run::of(command.output().unwrap()).exits(0);
    // What changes nothing says so.
    world.backup().exits(0);
    world.say("tag --add a latest").exits(0).says("1 snapshot changed");
    for words in ["tag --add a latest", "tag --set a latest", "tag --remove b latest"] {
        world.say(words).exits(0).says("0 snapshots changed");
    }
}

#[test]
fn a_repository_of_tomorrow() {
    let world = World::with_repository();
    let config = world.repository().join("config");
    let mut bytes = fs::read(&config).unwrap();
    let last = bytes.len() - 128;
    for at in [0, last] {
        let header = &mut bytes[at..at + 128];
        header[8..10].copy_from_slice(&999_u16.to_le_bytes());
        let checksum = crc32c::crc32c(&header[..124]);
        header[124..].copy_from_slice(&checksum.to_le_bytes());
    }
    // Its copy is as it was. Without a key it cannot be said whether a newer program stopped half-way.
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&config, &bytes).unwrap();
    world.say("repair --keyless").exits(1).warns("update Strongroom");
    world.say("verify --keyless").warns("update Strongroom");
    world.say("init").exits(1);
    assert!(fs::read(&config).unwrap() == bytes, "repair undid what a newer program did");
    // With a key its claim would have to prove itself: it does not, so its ends were changed.
    world.say("snapshots").exits(0).warns("999").warns("its copy was used");
    fs::create_dir(world.tree()).unwrap();
    world.backup().exits(0);
    world.say("verify").exits(4).warns("config");
    world.say("repair --dry-run").exits(0);
    assert!(fs::read(&config).unwrap() == bytes, "nothing was written yet");
    world.say("repair").exits(0);
    assert!(fs::read(&config).unwrap() != bytes, "its ends are as they were");
    world.say("verify").exits(0);
}

#[test]
fn names_of_snapshots_and_paths() {
    let world = World::with_tree(6);
    world.say("ls latest").exits(1).warns("no snapshot is named \"latest\"");
    world.backup().exits(0);
    for name in ["latest~1", "nonsense", "ffff0000ffff", "2001-01-01", "elsewhere:/@latest"] {
        world.run(["ls", name]).exits(1).warns("strongroom snapshots");
    }
    world.say("ls latest:/no/such/path").exits(1).warns("strongroom ls");
    world.say("restore latest:/no/such/path --target out").exits(1).warns("strongroom ls");
    let snapshots = world.say("--json snapshots").events("snapshot");
    let id = snapshots[0]["id"].as_str().unwrap();
    world.run(["ls", &id[..8]]).exits(0);
    world.run(["ls", "today"]).exits(0);
    world.run(["ls", &format!(":{}@today", world.tree().display())]).exits(0);
}

#[test]
fn command_lines_that_make_no_sense() {
    let world = World::with_repository();
    for words in [
        "backup",
        "frobnicate",
        "backup --stdin name path",
        "restore latest",
        "restore latest --target a --in-place",
        "diff latest latest --with .",
        "snapshots --json --quiet",
        "dump latest --format rar",
        "completions tcl",
    ] {
        world.say(words).exits(2);
    }
    for (words, hint) in [
        ("init --parity 101", "0 to 100"),
        ("init --kdf-memory 1KiB", "32KiB to 1GiB"),
        ("find [", "quotes"),
    ] {
        world.say(words).exits(1).warns(hint);
    }
    for (words, hint) in [
        ("backup --compression 40 .", "-7 to 22"),
        ("backup --exclude-larger-than huge .", "--exclude-larger-than"),
        ("verify --sample 0", "from 1 to 100"),
        ("drill --bytes much", "--bytes"),
        ("restore latest --target x --exclude [a", "unclosed character class"),
    ] {
        world.say(words).exits(2).warns(hint);
    }
}

#[test]
fn paths_that_are_not_there() {
    let world = World::with_repository();
    world.say("backup /nowhere/at/all").exits(1).warns("nothing was stored");
    world.say("snapshots").exits(0).warns("there are no snapshots yet");
    let fresh = World::empty();
    fresh.say("backup --init /nowhere/at/all").exits(1);
    assert!(!fresh.repository().exists(), "a repository was made for nothing");
}

#[test]
fn a_file_that_cannot_be_read() {
    let world = World::with_repository();
    let tree = world.tree();
    grow(&tree, 7, TreeOptions { entries: 5, ..TreeOptions::default() });
    let secret = tree.join("secret\nfile");
    fs::write(&secret, "secret").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    let run = if is_root() {
        if skipped(
            "as an unprivileged user",
            (!has_program("setpriv")).then_some("setpriv is not installed"),
        ) {
            return;
        }
        // The program may be in a folder that other users may not enter.
        let copy = world.path("strongroom");
        fs::copy(program(), &copy).unwrap();
        fs::set_permissions(world.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(world.path("cache")).unwrap();
        let owner = Command::new("chown")
            .args(["-R", "65534:65534"])
            .args([world.repository(), world.path("cache"), tree.clone()])
            .status();
        assert!(owner.unwrap().success());
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(copy).arg("backup").arg(&tree);
        world.surround(&mut command);
        command.output().unwrap()
    } else {
        world.command(["backup", tree.to_str().unwrap()]).output().unwrap()
    };
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert_eq!(run.status.code(), Some(3), "{out}\n{err}");
    assert!(err.contains("warning: ") && err.contains("secret\\nfile"), "{err}");
    assert!(out.contains("problems: see the warnings above"), "{out}");
    world.say("snapshots").exits(0);
}
