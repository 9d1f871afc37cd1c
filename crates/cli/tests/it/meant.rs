//! What was meant: where a slip of a person, a variable that is set, or another machine in the same repository
//! would make the program do something else with files or snapshots of others.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::runs::{bare, say, wait_for, with_profile, write_profile};
use crate::world::{PASSPHRASE, Run, World};

const RULES: &str = "[default.forget]\nkeep-last = 1\n[default.prune]\nmax-unused = \"0\"\n";

const OTHER: &str =
    "strongroom-key-3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3cd814f45f";

/// How many snapshots of a host there are.
fn of_host(world: &World, host: &str) -> usize {
    let listed = say(world, &format!("--json snapshots --host {host}")).exits(0);
    listed.events("snapshot").len()
}

/// A section whose name is misspelt is none: the rules would be for all that others have stored.
#[test]
fn a_profile_with_a_mistake_removes_nothing() {
    let world = with_profile("[default.backup]\npaths = [\"~/tree\"]\n");
    for _ in 0..3 {
        say(&world, "backup --host server").exits(0);
    }
    write_profile(&world, &format!("[default.backpu]\npaths = [\"~/tree\"]\n{RULES}"));
    say(&world, "run").exits(1).warns("backpu");
    assert_eq!(of_host(&world, "server"), 3);
    // With a backup beside it that is made, and says what is wrong.
    let of_server = "[default.backup]\npaths = [\"~/tree\"]\nhost = \"server\"\n";
    write_profile(&world, &format!("{of_server}[default.verfy]\n{RULES}"));
    say(&world, "run").exits(3).warns("nothing is forgotten or removed until it is right");
    assert_eq!(of_host(&world, "server"), 4);
    write_profile(&world, &format!("{of_server}{RULES}"));
    say(&world, "run").exits(0);
    assert_eq!(of_host(&world, "server"), 1);
}

/// The variable beats the profile, whose rules are not made for what it names.
#[test]
fn a_profile_is_not_run_in_the_repository_of_a_variable() {
    let world = with_profile(&format!("[default.backup]\npaths = [\"~/tree\"]\n{RULES}"));
    let other = world.path("other").display().to_string();
    let with_variable = |words: &str| {
        let mut command = bare(&world, words);
        command.env("STRONGROOM_REPOSITORY", &other);
        Run::of(command.output().unwrap())
    };
    let own = world.path("passphrase").display().to_string();
    with_variable(&format!("init --kdf-memory 32KiB --password-file {own}")).exits(0);
    with_variable("--profile default run -n").exits(2).warns("STRONGROOM_REPOSITORY");
    with_variable("--profile default run").exits(2).warns("STRONGROOM_REPOSITORY");
    // It is a run that failed, of which those hear who should.
    say(&world, "status").exits(1).says("not tried");
    say(&world, "--profile default run").exits(0);
    assert_eq!(with_variable(&format!("snapshots --password-file {own}")).exits(0).out, "");
    // What is typed is meant.
    with_variable(&format!("--profile default --repo {other} run")).exits(0);
    // The rules alone may be for another one.
    let sections = "[default.backup]\npaths = [\"~/tree\"]\n[default.forget]\nkeep-last = 1\n";
    write_profile(&world, &format!("{sections}repo = \"HERE/repository\"\n"));
    let file = world.path(".config/strongroom/config.toml");
    let text = fs::read_to_string(&file).unwrap();
    let repository = world.repository().display().to_string();
    fs::write(&file, text.replacen(&format!("repo = \"{repository}\"\n"), "", 1)).unwrap();
    let run = with_variable("--profile default run").exits(2);
    assert!(
        run.out.contains("backup     done") && run.out.contains("forget     failed: not tried")
    );
}

/// One repository has many names.
#[test]
fn a_profile_is_run_in_its_repository_however_a_variable_names_it() {
    let world = with_profile("[default.verify]\n");
    let whole = world.repository().display().to_string();
    for name in [format!("{whole}/"), format!("file://{whole}"), "repository".to_owned()] {
        let mut command = bare(&world, "--profile default run");
        command.env("STRONGROOM_REPOSITORY", &name).current_dir(world.folder.path());
        Run::of(command.output().unwrap()).exits(0);
    }
}

/// By hand and in a run the same comes first: what is typed, the options of the profile, its variables.
#[test]
fn variables_of_a_profile_come_behind_its_options_in_a_run_too() {
    let world = with_profile(
        "[default.environment]\nSTRONGROOM_REPOSITORY = \"HERE/elsewhere\"\n\
         STRONGROOM_PASSWORD = \"other\"\n\
         [default.run]\nbefore = ['test \"${STRONGROOM_REPOSITORY##*/}\" = elsewhere']\n\
         [default.verify]\n",
    );
    let file = world.path(".config/strongroom/config.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    say(&world, "verify").exits(0);
    say(&world, "run").exits(0);
    // If nothing else says it, they do.
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("password-file = \"~/passphrase\"\n", "");
    fs::write(&file, &text).unwrap();
    say(&world, "run").exits(5);
    let right = format!("PASSWORD = \"{PASSPHRASE}\"");
    fs::write(&file, text.replace("PASSWORD = \"other\"", &right)).unwrap();
    say(&world, "run").exits(0);
}

/// A repository of a profile is not made with the passphrase of another one, from which it takes over the rest.
#[test]
fn the_passphrase_that_is_said_nearest_is_the_one() {
    let world = with_profile(
        "[b]\nextends = \"default\"\nrepo = \"HERE/b\"\npassword-command = \"cat ~/typed\"\n\
         [c]\nextends = \"default\"\nrepo = \"HERE/c\"\n\
         [c.init]\npassword-command = \"cat ~/typed\"\n\
         [d]\nextends = \"default\"\nrepo = \"HERE/d\"\n\
         [d.environment]\nSTRONGROOM_PASSWORD_COMMAND = \"cat ~/typed\"\n\
         [e]\nextends = \"of e\"\nrepo = \"HERE/e\"\n\
         [e.environment]\nSTRONGROOM_PASSWORD_COMMAND = \"cat ~/typed\"\n\
         [\"of e\".environment]\nSTRONGROOM_PASSWORD_FILE = \"~/passphrase\"\n\
         [f]\nrepo = \"HERE/b\"\n\
         [f.environment]\nSTRONGROOM_PASSWORD_FILE = \"~/passphrase\"\n",
    );
    fs::write(world.path("typed"), format!("{OTHER}\n")).unwrap();
    let typed = world.path("typed").display().to_string();
    for profile in ["b", "c", "d", "e"] {
        say(&world, &format!("--profile {profile} init --kdf-memory 32KiB")).exits(0);
        let repository = world.path(profile).display().to_string();
        let opened = say(&world, &format!("--repo {repository} snapshots --password-file {typed}"));
        assert_eq!(opened.code, Some(0), "{profile}: {}", opened.err);
    }
    // What is not in the profile comes before all that is, whichever way it names.
    let mut command = bare(&world, "--profile f snapshots");
    Run::of(command.output().unwrap()).exits(5);
    Run::of(command.env("STRONGROOM_PASSWORD", OTHER).output().unwrap()).exits(0);
    say(&world, "profile show b").exits(0).says("password-command");
    assert!(!say(&world, "profile show b").out.contains("password-file"));
}

/// A section says more than the lines above all sections.
#[test]
fn an_option_of_a_command_counts_before_one_of_all() {
    let world = with_profile("[default.verify]\nrepo = \"HERE/elsewhere\"\n");
    say(&world, "--profile default verify").exits(6).warns("elsewhere");
}

/// `init` with a passphrase that was typed makes a repository that this one opens, and not the one of a profile.
#[test]
fn a_passphrase_that_was_typed_is_the_one() {
    let world = with_profile("");
    let repository = world.path("second").display().to_string();
    let with = |words: &str, variable: Option<(&str, &str)>| {
        let words = format!("--profile default --repo {repository} {words}");
        let mut command = bare(&world, &words);
        command.envs(variable);
        Run::of(command.output().unwrap())
    };
    fs::write(world.path("typed"), format!("{OTHER}\n")).unwrap();
    let typed = world.path("typed").display().to_string();
    let mut command = bare(&world, &format!("--profile default --repo {repository} init"));
    command.args(["--kdf-memory", "32KiB", "--password-command", &format!("cat {typed}")]);
    Run::of(command.output().unwrap()).exits(0);
    with(&format!("snapshots --password-file {typed}"), None).exits(0);
    with("snapshots", Some(("STRONGROOM_PASSWORD", OTHER))).exits(0);
    with("snapshots", None).exits(5);
    // What was typed comes before a variable, whichever way it names.
    let mut command = bare(&world, &format!("--repo {repository} snapshots"));
    command.args(["--password-command", &format!("cat {typed}")]);
    command.env("STRONGROOM_PASSWORD_FILE", world.path("passphrase"));
    Run::of(command.output().unwrap()).exits(0);
}

/// In place, `latest` of another machine would go over the files of this one.
#[test]
fn latest_is_no_other_machine_s_in_place() {
    let world = World::with_tree(9);
    let file = world.tree().join("own");
    fs::write(&file, "of this machine").unwrap();
    world.backup().exits(0);
    fs::write(&file, "of the other").unwrap();
    let tree = world.tree().display().to_string();
    world.say(&format!("backup {tree} --host other")).exits(0);
    fs::write(&file, "now").unwrap();
    world.say("restore latest --in-place").exits(1).warns("--host other");
    assert_eq!(fs::read_to_string(&file).unwrap(), "now");
    world.say("restore latest --in-place --host other").exits(0);
    assert_eq!(fs::read_to_string(&file).unwrap(), "of the other");
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    world.say(&format!("restore latest --in-place --host {name}")).exits(0);
    assert_eq!(fs::read_to_string(&file).unwrap(), "of this machine");
    // A drill proves a night of this machine.
    let drilled = world.say("--json drill").exits(0).summary();
    let own = world.say(&format!("--json snapshots --host {name}")).events("snapshot");
    assert_eq!(drilled["snapshot"], own[0]["id"]);
}

/// Who names the folder above means that the part is put back below it.
#[test]
fn nothing_is_deleted_above_what_is_restored() {
    let world = World::with_tree(10);
    world.backup().exits(0);
    let beside = world.path("beside");
    fs::write(&beside, "not in the snapshot").unwrap();
    let (tree, above) = (world.tree().display().to_string(), world.path("").display().to_string());
    let words = format!("restore latest:{tree} --target {above} --delete");
    world.say(&words).exits(1).warns("which is above");
    assert!(beside.exists());
    world.say(&format!("restore latest:{tree} --target {tree} --delete")).exits(0);
    // The folder above is a link by now.
    let [outer, moved] = ["outer", "moved"].map(|name| world.path(name));
    fs::create_dir_all(outer.join("me")).unwrap();
    let me = outer.join("me").display().to_string();
    world.say(&format!("backup {me}")).exits(0);
    fs::rename(&outer, &moved).unwrap();
    symlink(&moved, &outer).unwrap();
    fs::create_dir(moved.join("you")).unwrap();
    let words = format!("restore latest:{me} --target {} --delete", outer.display());
    world.say(&words).exits(1).warns("which is above");
    assert!(moved.join("you").exists());
}

#[test]
fn a_path_in_a_snapshot_is_not_forgotten_with_all_of_it() {
    let world = World::with_tree(11);
    world.backup().exits(0);
    for verb in ["forget", "hold --reason trial", "label add=x"] {
        let run = world.say(&format!("{verb} latest:/etc"));
        assert_eq!(run.code, Some(2), "{verb}: {}{}", run.out, run.err);
    }
    world.say("forget latest --yes").exits(0);
    let forgotten = world.say("--json snapshots --forgotten").events("snapshot");
    let id = forgotten[0]["id"].as_str().unwrap().to_owned();
    world.say(&format!("forget --undo {id} --dry-run")).exits(2);
    assert_eq!(world.say("--json snapshots --forgotten").events("snapshot").len(), 1);
}

/// What restores a snapshot without one of its sources has not restored all.
#[test]
fn a_snapshot_that_lacks_a_source_is_not_restored_whole() {
    let world = World::with_tree(12);
    let (tree, other) = (world.tree().display().to_string(), world.path("other"));
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "text").unwrap();
    let words = format!("backup {tree} {}", other.display());
    world.say(&words).exits(0);
    fs::remove_file(other.join("file")).unwrap();
    world.say(&words).exits(3);
    let target = world.path("target").display().to_string();
    world.say(&format!("restore latest --target {target}")).exits(3).warns("lacks what was in");
    let target = world.path("of the tree").display().to_string();
    world.run(["restore", &format!("latest:{tree}"), "--target", &target]).exits(0);
    world.say("dump latest").exits(3).warns("lacks what was in");
    world.run(["dump", &format!("latest:{tree}")]).exits(0);
}

/// A terminal that goes away ends a run as Ctrl-C does: what it began is undone. The shell and the kernel both
/// say it, and what ends the session asks the program to stop: that is no second Ctrl-C.
#[test]
fn a_terminal_that_goes_away_stops_a_run_and_its_hooks_follow() {
    let world = with_profile(
        "[default.backup]\npaths = [\"~/tree\"]\n[default.run]\n\
         before = [\"touch ~/begun; sleep 100\"]\n\
         after = [\"touch ~/ending; sleep 1; touch ~/after\"]\n",
    );
    for is_passed_over in [false, true] {
        for name in ["begun", "ending", "after"] {
            let _ = fs::remove_file(world.path(name));
        }
        let how = if is_passed_over { "--ignore-signal=HUP" } else { "--default-signal=HUP" };
        let mut command = started_by_env(how, &bare(&world, "run"));
        let mut child = command.spawn().unwrap();
        wait_for(&world.path("begun"));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        if is_passed_over {
            std::thread::sleep(std::time::Duration::from_millis(500));
            assert!(child.try_wait().unwrap().is_none(), "it goes on");
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        } else {
            wait_for(&world.path("ending"));
            for signal in [rustix::process::Signal::HUP, rustix::process::Signal::TERM] {
                rustix::process::kill_process(pid, signal).unwrap();
            }
        }
        let status = child.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (Some(130), None));
        assert!(world.path("after").exists());
    }
}

/// The same command, started by `env` with this option: the tests may run where a hangup is passed over.
fn started_by_env(option: &str, command: &Command) -> Command {
    let mut other = Command::new("env");
    other.arg(option).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}
