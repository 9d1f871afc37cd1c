//! A machine that backs up with a put-only key: what its second backup opens and stores.
#![expect(clippy::disallowed_methods, reason = "a test that reads the environment")]

use std::fs;
use std::path::Path;

use strongroom_base::{Entropy, SeededEntropy};

use crate::unchanged::files_opened;
use crate::world::{Run, World};

/// As `key generate` makes them.
const PUT_ONLY: &str =
    "strongroom-key-a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a572949ae1";

/// A repository with a put-only key.
fn world() -> World {
    let world = World::with_repository();
    let file = world.path("put-only key");
    fs::write(&file, PUT_ONLY).unwrap();
    let words = ["key", "add", "--put-only", "--label", "laptop", "--new-password-file"];
    world.run(words.iter().map(AsRef::as_ref).chain([file.as_os_str()])).exits(0);
    fs::create_dir(world.tree()).unwrap();
    world
}

/// Backs the tree up with the put-only key.
fn back_up(world: &World) -> Run {
    say(world, &format!("--json backup {}", world.tree().display())).exits(0)
}

/// Words with blanks between them, with the put-only key.
fn say(world: &World, words: &str) -> Run {
    let mut command = world.command(words.split(' '));
    Run::of(command.env("STRONGROOM_PASSWORD", PUT_ONLY).output().unwrap())
}

/// Files of the tree: `STRONGROOM_UNCHANGED_FILES`, or some that take no time.
fn files() -> u32 {
    let number = std::env::var("STRONGROOM_UNCHANGED_FILES").ok();
    number.map_or(3000, |number| number.parse().unwrap())
}

#[test]
fn engine_13_a_put_only_key_opens_no_unchanged_file() {
    let world = world();
    for number in 0..files() {
        let folder = world.tree().join((number / 100).to_string());
        if number % 100 == 0 {
            fs::create_dir(&folder).unwrap();
        }
        fs::write(folder.join(number.to_string()), number.to_string().repeat(50)).unwrap();
    }
    world.settle();
    back_up(&world);
    let Some(opened) = files_opened(&world, PUT_ONLY) else { return };
    assert_eq!(opened.len(), 0, "such as {:?}", opened.first());
    let again = back_up(&world).summary();
    assert_eq!((&again["chunks"], &again["files"]), (&0.into(), &files().into()));
}

#[test]
fn engine_13_a_put_only_key_stores_deltas() {
    let world = world();
    let file = world.tree().join("noise");
    let mut bytes = vec![0; 8 << 20];
    SeededEntropy::new(13).fill(&mut bytes);
    fs::write(&file, &bytes).unwrap();
    back_up(&world);
    for part in bytes.chunks_mut(1 << 20) {
        part[500_000] ^= 0xff;
    }
    fs::write(&file, &bytes).unwrap();
    let stored = back_up(&world).summary()["bytes_stored"].as_u64().unwrap();
    assert!(stored < 64 << 10, "{stored} bytes were stored for 8 that changed");
    let restored = world.restored(&format!("latest:{}", file.display()));
    assert!(fs::read(restored.join("noise")).unwrap() == bytes, "the restored file is another");
}

/// A machine has the parents that it remembers, and nothing else that is stored.
#[test]
fn engine_13_a_put_only_key_names_a_parent_and_reads_nothing() {
    let world = world();
    fs::write(world.tree().join("file"), "content").unwrap();
    let id = back_up(&world).summary()["snapshot"].as_str().unwrap().to_owned();
    let tree = world.tree().display().to_string();
    say(&world, &format!("backup --parent {id} {tree}")).exits(0);
    say(&world, &format!("backup --parent latest {tree}")).exits(0);
    let other = say(&world, &format!("backup --parent 0123456789abcdef {tree}"));
    assert_ne!(other.code, Some(0), "{}", other.out);
    for words in ["ls latest", "snapshots", "find file", "cat latest:/file"] {
        let run = say(&world, words);
        assert_ne!(run.code, Some(0), "{words}: {}", run.out);
    }
}

/// A machine that was stolen: what it stored before counts, and what comes later does not.
#[test]
fn kept_9_the_domain_of_a_machine_ends() {
    let world = world();
    let folder = world.tree();
    let ids = |words: &str| -> Vec<String> {
        let run = world.say(words).exits(0);
        let id = |event: &serde_json::Value| event["id"].as_str().unwrap().to_owned();
        run.events("snapshot").iter().map(id).collect()
    };
    fs::write(folder.join("file"), "before").unwrap();
    back_up(&world);
    let counted = ids("--json snapshots");
    let domain = world.say("--json key list").exits(0);
    assert!(domain.out.contains("laptop"), "{}", domain.out);
    // The thief has a copy of the keys, and the folder as it was: slots are put back.
    let keys = world.path("keys of before");
    let copy = |from: &Path, to: &Path| {
        fs::create_dir_all(to).unwrap();
        for file in fs::read_dir(from).unwrap().map(|file| file.unwrap()) {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    };
    copy(&world.repository().join("keys"), &keys);

    // Nothing is done before it is confirmed.
    world.say("key end-domain laptop").exits(1).says(&counted[0][..8]);
    assert!(world.say("key list").exits(0).out.contains("laptop"));
    let run = world.say("key end-domain laptop --yes").exits(0);
    run.says("the domain laptop has ended: 1 snapshot counts of it, and 1 key was removed")
        .warns("remove its token");
    world.say("key list").exits(0).says("the domain laptop has ended");
    let refused = say(&world, &format!("backup {}", folder.display()));
    assert_ne!(refused.code, Some(0), "its key is gone: {refused:?}");

    // A program of before there were ends does not ask, and stores in the name of the domain.
    copy(&keys, &world.repository().join("keys"));
    let ended = world.repository().join("ended");
    let aside = world.path("ended aside");
    fs::rename(&ended, &aside).unwrap();
    fs::create_dir(&ended).unwrap();
    fs::write(folder.join("file"), "of the thief").unwrap();
    back_up(&world);
    fs::remove_dir_all(&ended).unwrap();
    fs::rename(&aside, &ended).unwrap();
    let refused = say(&world, &format!("backup {}", folder.display()));
    refused.exits(1).warns("the domain \"laptop\" has ended");

    // Only what was there counts, for every verb.
    assert_eq!(ids("--json snapshots"), counted);
    world.say("snapshots").exits(0).warns("1 snapshot does not count");
    let late = ids("--json snapshots --late");
    assert_eq!(late.len(), 1);
    assert_eq!(fs::read(world.restored(&world.of("latest")).join("file")).unwrap(), b"before");
    let run = world.say(&format!("ls {}", late[0])).exits(1);
    assert!(run.err.contains("domain"), "{}", run.err);
    // It is no damage, and no verb forgets it unasked.
    world.say("verify").exits(0).says("1 snapshot does not count");
    world.say("repair").exits(0).says("nothing to repair");
    world.say("forget --keep-last 1").exits(0);
    assert_eq!(ids("--json snapshots --late"), late);
    world.say("forget --late --dry-run").exits(0).says("1 snapshot would be forgotten");
    world.say("forget --late").exits(0).says("1 snapshot");
    world.say("prune --max-unused 0").exits(0).says("removed 1 snapshot");
    world.say("verify --data").exits(0).says("no damage was found");
    assert_eq!(fs::read(world.restored(&world.of("latest")).join("file")).unwrap(), b"before");
    // The name is never used again.
    let file = world.path("put-only key");
    let words = ["key", "add", "--put-only", "--domain", "laptop", "--new-password-file"];
    let run = world.run(words.iter().map(AsRef::as_ref).chain([file.as_os_str()]));
    assert_ne!(run.code, Some(0), "{run:?}");
}
