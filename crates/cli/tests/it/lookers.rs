//! Verbs that only look create and change nothing: neither where they look, nor where they are typed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::world::{Run, World};

/// What only looks, and what only says what it would do. `TREE` is a folder that was backed up, `NEW`
/// a place where nothing is.
const LOOKERS: [&str; 44] = [
    "snapshots",
    "snapshots --forgotten",
    "snapshots --late",
    "ls latest",
    "ls --recursive latest",
    "find file",
    "diff latest latest",
    "diff latest",
    "cat latest:TREE/file",
    "dump latest",
    "restore --dry-run latest --target NEW",
    "backup --dry-run TREE",
    "forget --dry-run --keep-last 1",
    "hold",
    "prune --dry-run",
    "prune --dry-run --later",
    "verify --no-vouch",
    "verify --no-vouch --data",
    "verify --keyless",
    "repair --dry-run",
    "repair --dry-run --keyless",
    "replicate --dry-run NEW",
    "replicate --dry-run --mirror NEW",
    "replicate --dry-run --mirror REPLICA",
    "audit REPLICA",
    "unlock",
    "stats",
    "stats --snapshots",
    "stats --fragmentation",
    "key list",
    "key end-domain laptop",
    "token list",
    "token list --house NEW",
    "token remove 0123456789ab --house NEW",
    "profile check",
    "profile show default",
    "schedule --show --cron --user",
    "schedule --dry-run --cron --user",
    "status",
    "status --format nagios",
    "debug sessions",
    "debug index",
    "debug snapshot latest",
    "debug tree latest",
];

/// Names, kinds, sizes and times of all that is below a folder.
fn all_below(folder: &Path) -> BTreeMap<PathBuf, (u32, u64, i64, i64)> {
    let mut all = BTreeMap::new();
    let mut rest = vec![folder.to_owned()];
    while let Some(path) = rest.pop() {
        let stat = path.symlink_metadata().unwrap();
        if stat.is_dir() {
            rest.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let length = if stat.is_dir() { 0 } else { stat.len() };
        all.insert(path, (stat.mode(), length, stat.mtime(), stat.mtime_nsec()));
    }
    all
}

/// Runs a verb in a folder of its own, with a home of its own.
fn look(world: &World, words: &str) -> Run {
    let words = words
        .replace("TREE", world.tree().to_str().unwrap())
        .replace("NEW", world.path("new").to_str().unwrap())
        .replace("REPLICA", world.path("replica").to_str().unwrap());
    let mut command = world.command(words.split(' '));
    command.current_dir(world.path("here")).env("HOME", world.path("home"));
    Run::of(command.output().unwrap())
}

#[test]
fn kept_o19_who_only_looks_creates_nothing() {
    // Where nothing is, nothing comes to be, not even a cache.
    let absent = World::empty();
    for name in ["here", "home"] {
        fs::create_dir(absent.path(name)).unwrap();
    }
    let before = all_below(absent.folder.path());
    for words in LOOKERS {
        let run = look(&absent, words);
        assert_eq!(all_below(absent.folder.path()), before, "{words}: {run:?}");
    }
    // A repository stays as it is, to the times of its folders. The cache is the program's own.
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    for content in ["one", "two", "three"] {
        fs::write(world.tree().join("file"), content).unwrap();
        world.backup().exits(0);
    }
    for name in ["here", "home"] {
        fs::create_dir(world.path(name)).unwrap();
    }
    world.say(&format!("replicate {}", world.path("replica").display())).exits(0);
    world.say("forget latest~1").exits(0);
    let below = || {
        let mut all = all_below(world.folder.path());
        all.retain(|path, _| !path.starts_with(world.path("cache")) && path != world.folder.path());
        all
    };
    let before = below();
    for words in LOOKERS {
        let run = look(&world, words);
        let after = below();
        let changed: Vec<_> =
            after.iter().filter(|(path, is)| before.get(*path) != Some(is)).collect();
        assert!(changed.is_empty() && after == before, "{words} changed {changed:?}: {run:?}");
    }
}
