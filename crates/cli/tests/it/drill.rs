//! Drills: a sample is restored, compared, and the result is kept.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use strongroom_testkit::{Change, Random};

use crate::world::{Run, World, is_root};

/// A repository with one snapshot of `count` files of some KiB, and everything else that a tree
/// has.
pub fn drilled(count: u64) -> World {
    let world = World::with_tree(21);
    let mut random = Random::new(count);
    for number in 0..count {
        let noise = random.noise(3000 + 100 * number as usize);
        fs::write(world.tree().join(format!("noise-{number:03}")), noise).unwrap();
    }
    world.backup().exits(0);
    world
}

/// Drills, and gives what it says to programs.
#[track_caller]
pub fn drill(world: &World, words: &str, exit: i32) -> Value {
    let words = format!("--json drill {words}");
    world.say(words.trim_end()).exits(exit).summary()
}

/// All scratch folders that are left.
pub fn left_over(folder: PathBuf) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("strongroom-drill-") {
            found.push(path);
        } else if path.is_dir() {
            found.extend(left_over(path));
        }
    }
    found
}

pub fn largest_arena(world: &World) -> PathBuf {
    let files = strongroom_testkit::damage::files_below(&world.repository().join("arenas"));
    files.into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

#[test]
fn a_sound_snapshot_is_proved_and_the_list_says_so() {
    let world = drilled(10);
    world.say("--json snapshots").exits(0).says("\"proved\":null");
    world.say("drill").exits(0).says("proved restorable: ").says("seed ");
    world.say("snapshots").exits(0).says("(proved 20");
    let listed = world.say("--json snapshots").exits(0);
    let listed: Value = serde_json::from_str(listed.out.lines().next().unwrap()).unwrap();
    assert_eq!(listed["proved"]["verdict"], "proved");
    assert_eq!(listed["proved"]["time"], listed["proved"]["last_proved"]);
    assert!(listed["proved"]["files"].as_u64().unwrap() >= 10);
    // What the owner says afterwards does not remove it.
    world.say("label latest --add gold").exits(0);
    world.say("snapshots").exits(0).says("(proved 20").says("[gold]");
    assert_eq!(left_over(world.path("cache")), [] as [PathBuf; 0]);
}

#[test]
fn all_that_was_drilled_is_the_whole_snapshot_after_one_turn() {
    let world = drilled(30);
    let first = drill(&world, "--files 9", 0);
    let total = first["entries_total"].as_u64().unwrap();
    let (mut seed, mut entries, mut drills) = (first["next_seed"].clone(), 9, 1);
    while entries < total {
        let next = drill(&world, "--files 9", 0);
        assert_eq!(next["seed"], seed, "it begins where the last one ended");
        seed = next["next_seed"].clone();
        entries += next["entries"].as_u64().unwrap();
        drills += 1;
        assert!(drills < 30, "{entries} of {total}");
    }
    assert_eq!(drills, total.div_ceil(9));
}

#[test]
fn a_sample_covers_other_entries_each_time() {
    let world = drilled(30);
    let mut seen = BTreeSet::new();
    for _ in 0..40 {
        let kept = drill(&world, "--sample 10% --keep", 0);
        let folder = PathBuf::from(kept["kept"].as_str().unwrap());
        let mode = folder.metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        let tree = folder.join(world.tree().strip_prefix("/").unwrap());
        for entry in fs::read_dir(&tree).into_iter().flatten() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            seen.extend(Some(name).filter(|name| name.starts_with("noise")));
        }
        fs::remove_dir_all(&folder).unwrap();
    }
    assert_eq!(seen.len(), 30);
}

#[test]
fn a_sample_has_a_file_with_content_if_there_is_one() {
    let world = World::with_repository();
    for number in 0..60 {
        fs::create_dir_all(world.tree().join(number.to_string())).unwrap();
        fs::write(world.tree().join(format!("empty-{number}")), "").unwrap();
    }
    fs::write(world.tree().join("letter"), "a letter").unwrap();
    world.backup().exits(0);
    for words in ["--sample 1%", "--files 1", "--bytes 1KiB"] {
        for seed in ["0", "3", "77"] {
            let proved = drill(&world, &format!("{words} --seed {seed}"), 0);
            assert_eq!(proved["bytes"], 8, "{words} {seed}: {proved}");
        }
    }
}

#[test]
fn a_seed_repeats_a_drill_and_finds_the_same() {
    let world = drilled(20);
    let first = drill(&world, "--bytes 40KiB", 0);
    let seed = first["seed"].as_str().unwrap();
    let again = drill(&world, &format!("--bytes 40KiB --seed {seed}"), 0);
    assert_eq!(again["same_as_before"], true);
    for field in ["next_seed", "entries", "bytes", "files"] {
        assert_eq!(first[field], again[field], "{field}");
    }
    let other = drill(&world, "--bytes 40KiB --seed 1", 0);
    assert_eq!(
        (&other["same_as_before"], &other["seed"]),
        (&Value::Null, &"0000000000000001".into())
    );
}

#[test]
fn what_is_lost_fails_the_drill_and_is_named() {
    let world = drilled(10);
    world.say("drill").exits(0);
    let arena = largest_arena(&world);
    fs::set_permissions(&arena, fs::Permissions::from_mode(0o600)).unwrap();
    Change::Zeros.on_file(&arena);
    let run = world.say("drill").exits(4).says("FAILED").says("run `strongroom verify`");
    assert!(run.err.contains("noise-00"), "{}", run.err);
    assert!(!run.err.contains("strongroom-drill-"), "paths are those of the snapshot: {}", run.err);
    world.say("snapshots").says("(drill failed 20");
    let listed = world.say("--json snapshots");
    let listed: Value = serde_json::from_str(listed.out.lines().next().unwrap()).unwrap();
    assert_eq!(listed["proved"]["verdict"], "failed");
    assert!(listed["proved"]["last_proved"].is_string(), "the earlier proof is remembered");
    assert_eq!(left_over(world.path("cache")), [] as [PathBuf; 0]);
}

#[test]
fn files_here_are_compared_if_they_did_not_change() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    for name in ["same", "changed", "gone"] {
        fs::write(world.tree().join(name), name.repeat(3000)).unwrap();
    }
    world.backup().exits(0);
    fs::write(world.tree().join("changed"), "else").unwrap();
    fs::remove_file(world.tree().join("gone")).unwrap();
    let source = &drill(&world, "", 0)["source"];
    assert_eq!(
        (&source["same"], &source["changed"], &source["gone"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!(drill(&world, "--no-source", 0)["source"]["same"], 0);
}

#[test]
fn the_words_of_bad_input() {
    let world = drilled(1);
    world
        .say("drill --scratch /no/such/folder")
        .exits(1)
        .warns("--scratch DIR")
        .warns("/no/such/folder");
    world.say("drill --seed xyz").exits(2).warns("up to 16 digits from 0 to f");
    world.say("drill --sample 0").exits(2).warns("a number from 1 to 100");
    world.say("drill --bytes many").exits(2).warns("10MiB");
    world.say("drill --files 0").exits(2);
    world.say("drill --files 1 --bytes 1").exits(2);
    world.say("drill ffffffff").exits(1).warns("strongroom snapshots");
    world.say("drill latest:/no/such").exits(1).warns("strongroom ls");
    if !is_root() {
        let folder = world.path("closed");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o500)).unwrap();
        world.say(&format!("drill --scratch {}", folder.display())).exits(1).warns("may write");
    }
}

#[test]
fn a_command_judges_what_was_restored() {
    let world = drilled(3);
    let run = |command: &str| {
        let what = world.of("latest");
        world.run(["drill", &what, "--sample", "100%", "--command", command])
    };
    run("test -s noise-000 && test -d \"$STRONGROOM_DRILL\"").exits(0).says("proved restorable");
    run("exit 7").exits(1).says("FAILED").says("exit code 7");
    world.say("snapshots").says("(drill failed 20");
}

#[test]
fn a_key_that_may_only_store_cannot_drill() {
    let world = drilled(1);
    let file = world.path("new");
    let secret =
        "strongroom-key-a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a572949ae1";
    fs::write(&file, secret).unwrap();
    let words = format!("key add --put-only --new-password-file {}", file.display());
    world.say(&words).exits(0);
    let mut command = world.command(["drill", "--no-record"]);
    let run = Run::of(command.env("STRONGROOM_PASSWORD", secret).output().unwrap());
    run.exits(1).warns("a key that may read");
}

#[test]
fn a_stopped_drill_leaves_nothing() {
    let world = drilled(3);
    let mut command = world.command(["drill", "--command", "sleep 60"]);
    let child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while left_over(world.path("cache")).is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    World::finish(child).exits(130);
    assert_eq!(left_over(world.path("cache")), [] as [PathBuf; 0]);
    world.say("--json snapshots").says("\"proved\":null");
}

#[test]
fn a_scratch_that_is_too_small_is_refused_with_a_smaller_sample() {
    if crate::world::skipped("a small disk", (!is_root()).then_some("only root may mount")) {
        return;
    }
    let world = drilled(60);
    let folder = world.path("small");
    let disk = crate::space::Disk::mount(&folder, "256K");
    if crate::world::skipped("a small disk", disk.is_none().then_some("it cannot be mounted here"))
    {
        return;
    }
    let words = format!("drill --scratch {}", folder.display());
    let run = world.say(&words).exits(1).warns("there is no disk for the drill");
    let hint = run.err.split("--bytes ").nth(1).unwrap().split_whitespace().next().unwrap();
    let smaller = world.say(&format!("{words} --bytes {hint}"));
    assert!(matches!(smaller.code, Some(0 | 3)), "{}\n{}", smaller.out, smaller.err);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn an_empty_folder_is_proved() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    world.backup().exits(0);
    let summary = drill(&world, "", 0);
    assert_eq!((&summary["verdict"], &summary["files"]), (&"proved".into(), &0.into()));
}
