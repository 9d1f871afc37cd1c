//! What was removed behind the program's back, and what others left.

use std::fs;
use std::path::Path;
use std::process::Command;

use strongroom_testkit::Random;

use crate::world::World;

const GONE: &str = "the last snapshot that this machine made";

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

/// A repository of two snapshots, of which the second is the machine's last.
fn world() -> World {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    fs::write(world.tree().join("file"), "one").unwrap();
    world.backup().exits(0);
    world
}

fn change_and_back_up(world: &World, content: &str) {
    fs::write(world.tree().join("file"), content).unwrap();
    world.backup().exits(0);
}

/// The name of the snapshot that was made last.
fn newest(world: &World) -> String {
    let run = world.say("--json snapshots").exits(0);
    let events = run.out.lines().filter_map(|line| serde_json::from_str(line).ok());
    let ids = events.filter_map(|event: serde_json::Value| Some(event["id"].as_str()?.to_owned()));
    ids.collect::<Vec<_>>().pop().unwrap()
}

/// Every verb that opens the repository says so, until this machine has made another snapshot.
#[test]
fn engine_17_a_repository_that_went_back_is_noticed() {
    let world = world();
    let older = world.path("older");
    copy(&world.repository(), &older);
    change_and_back_up(&world, "two");
    let run = world.say("snapshots").exits(0);
    assert!(!run.err.contains(GONE), "{}", run.err);
    copy(&older, &world.repository());
    for words in ["snapshots", "ls latest", "stats", "diff latest latest"] {
        world.say(words).exits(0).warns(GONE);
    }
    world.say("verify").exits(4).warns(GONE).says("1 snapshot is missing, sequence 2");
    let run = world.say("--json verify").exits(4);
    assert_eq!(run.summary()["missing_sequences"], serde_json::json!([[2, 2]]));
    assert!(run.summary()["rolled_back"].is_string(), "{}", run.out);
    fs::write(world.tree().join("file"), "three").unwrap();
    world.backup().exits(3).warns(GONE);
    let run = world.say("verify").exits(3).says("1 snapshot is missing, sequence 2");
    assert!(!run.err.contains(GONE), "{}", run.err);
}

/// A machine without a cache remembers nothing, but the numbers of the snapshots have a gap.
#[test]
fn trial_05_a_gap_in_the_sequence_is_noticed() {
    let world = world();
    let first = fs::read_dir(world.repository().join("snapshots")).unwrap().next().unwrap();
    change_and_back_up(&world, "two");
    world.say("verify").exits(0).says("no damage was found");
    fs::remove_file(first.unwrap().path()).unwrap();
    fs::remove_dir_all(world.path("cache")).unwrap();
    world.say("verify").says("1 snapshot is missing, sequence 1");
}

/// A snapshot that is equal to its neighbours leaves nothing of its own that is lost: the night is gone
/// all the same, and no word says that all is well.
#[test]
fn kept_o17_a_missing_night_is_not_called_sound() {
    let world = world();
    let arenas = || fs::read_dir(world.repository().join("arenas")).unwrap().count();
    // The folder of all tests is above the tree: where another one changes it meanwhile, that is stored.
    let mut equal = 1;
    loop {
        let before = arenas();
        world.backup().exits(0);
        equal += 1;
        if arenas() == before {
            break;
        }
    }
    world.backup().exits(0);
    let ids = world.say("--json snapshots").exits(0).events("snapshot");
    let id = ids[equal - 1]["id"].as_str().unwrap();
    fs::remove_file(world.repository().join("snapshots").join(id)).unwrap();
    for words in ["verify", "verify --data"] {
        let missing = format!("1 snapshot is missing, sequence {equal}");
        let run = world.say(words).exits(3).says(&missing);
        assert!(
            run.out.ends_with("no damage was found in the snapshots that are there\n"),
            "{run:?}"
        );
    }
    let run = world.say("--json verify").exits(3);
    assert_eq!(run.summary()["sound"], false, "{}", run.out);
    assert_eq!(run.summary()["missing_sequences"], serde_json::json!([[equal, equal]]));
}

/// Verbs that go through several snapshots name those that they could not look at; verbs that use the
/// newest say that it may not be: on any machine, not only on the one that made it.
#[test]
fn kept_o4_a_snapshot_that_cannot_be_read_is_never_passed_over_in_silence() {
    let world = world();
    change_and_back_up(&world, "two");
    let id = newest(&world);
    fs::write(world.repository().join("snapshots").join(&id), "").unwrap();
    fs::remove_dir_all(world.path("cache")).unwrap();
    let named = format!("snapshot {}: ", &id[..8]);
    for words in ["find file", "snapshots", "stats --snapshots", "stats --fragmentation"] {
        world.say(words).exits(4).warns(&named);
    }
    let (target, tree) = (world.path("again"), world.tree());
    let (target, tree) = (target.display(), tree.display());
    for (words, code) in [
        ("find file --snapshot latest".to_owned(), 0),
        ("ls latest".to_owned(), 0),
        ("diff latest latest".to_owned(), 0),
        (format!("cat latest:{tree}/file"), 3),
        (format!("restore latest --target {target}"), 3),
        ("drill latest".to_owned(), 3),
    ] {
        let run = world.say(&words).exits(code).warns("cannot be read, and may be newer");
        assert_eq!(run.err.matches("may be newer").count(), 1, "{words}: {}", run.err);
    }
    let ids = world.say("--json snapshots").exits(4).events("snapshot");
    let first = ids[0]["id"].as_str().unwrap();
    let run = world.say(&format!("ls {first}")).exits(0);
    assert!(!run.err.contains("may be newer"), "it was named: {}", run.err);
}

/// Anybody can remove 700 bytes; `repair` commits the snapshot again from the trees that exist.
#[test]
fn trial_05_a_removed_snapshot_is_noticed_and_recovered() {
    for (backups, removed) in [(3, 1), (2, 1), (1, 0)] {
        let world = world();
        let mut ids = vec![newest(&world)];
        for number in 1..backups {
            change_and_back_up(&world, &format!("version {number}"));
            ids.push(newest(&world));
        }
        let id = &ids[removed];
        let image = format!("{id}:{}", world.tree().display());
        let before = strongroom_testkit::Image::of(&world.restored(&image));
        fs::remove_file(world.repository().join("snapshots").join(id)).unwrap();
        let what = format!("of {backups} snapshots number {removed}");
        for words in ["verify", "verify --data"] {
            let run = world.say(words).exits(4);
            assert!(run.out.contains(&id[..8]) && run.out.contains("removed"), "{what}: {run:?}");
        }
        let run = world.say("repair --dry-run").exits(0);
        assert!(run.out.contains(&id[..8]), "{what}: {run:?}");
        world.say("repair").exits(0).says("1 snapshot committed again");
        world.say("snapshots").exits(0).says("recovered");
        let run = world.say("verify --data").exits(0);
        assert!(!run.out.contains("missing"), "{what}: {run:?}");
        let target = world.path("again");
        let _ = fs::remove_dir_all(&target);
        // Whether it is complete is not known, and the exit code says so.
        world.run(["restore", &image, "--target", target.to_str().unwrap()]).exits(3);
        let after = strongroom_testkit::Image::of(&target);
        before.assert_same(&after, &what);
        world.say("repair").exits(0).says("nothing to repair");
    }
}

/// A recovered snapshot counts as incomplete, and is held: no rule drops it for a later one.
#[test]
fn kept_o11_a_recovered_snapshot_outlives_every_rule() {
    let world = world();
    let mut ids = vec![newest(&world)];
    for content in ["two", "three", "four"] {
        change_and_back_up(&world, content);
        ids.push(newest(&world));
    }
    let before = fs::read(world.restored(&world.of(&ids[1])).join("file")).unwrap();
    fs::remove_file(world.repository().join("snapshots").join(&ids[1])).unwrap();
    world.say("repair").exits(0).says("1 snapshot committed again");
    world.say("hold").exits(0).says(&ids[1][..8]);
    world.say("forget --keep-last 1").exits(0).says("keep: held");
    world.say("prune --max-unused 0").exits(0);
    let again = world.path("again");
    let words = ["restore", &world.of(&ids[1]), "--target", again.to_str().unwrap()];
    world.run(words).exits(3);
    assert_eq!(fs::read(again.join("file")).unwrap(), before);
    // Its owner lets it go.
    world.say(&format!("hold --release {}", ids[1])).exits(0);
    world.say("forget --keep-last 1").exits(0);
    world.say("prune --max-unused 0").exits(0).says("removed 1 snapshot");
}

/// A snapshot of whose object rubbish is left is as gone as a removed one: it is committed again, and
/// nothing advises to forget it meanwhile.
#[test]
fn kept_o7_a_snapshot_of_which_rubbish_is_left_is_recovered() {
    type Spoil = fn(&[u8]) -> Vec<u8>;
    let ways: [(&str, Spoil); 4] = [
        ("emptied", |_| Vec::new()),
        ("cut", |object| object[..object.len() / 10].to_vec()),
        ("zeros", |object| vec![0; object.len()]),
        ("rubbish", |_| Random::new(7).noise(2000)),
    ];
    for (way, spoil) in ways {
        for (backups, spoilt) in [(3, 1), (2, 1)] {
            let what = format!("{way}: of {backups} snapshots number {spoilt}");
            let world = world();
            let mut ids = vec![newest(&world)];
            for number in 1..backups {
                fs::write(world.tree().join(format!("file {number}")), "new").unwrap();
                change_and_back_up(&world, &format!("version {number}"));
                ids.push(newest(&world));
            }
            let id = &ids[spoilt];
            let image = format!("{id}:{}", world.tree().display());
            let before = strongroom_testkit::Image::of(&world.restored(&image));
            let object = world.repository().join("snapshots").join(id);
            let spoilt_object = spoil(&fs::read(&object).unwrap());
            fs::write(&object, &spoilt_object).unwrap();
            println!("{what}");
            let is_newest = spoilt + 1 == backups;
            let run = world.say("ls latest").exits(0);
            assert_eq!(run.err.contains(GONE) && run.err.contains("damaged"), is_newest, "{what}");
            let run = world.say("verify").exits(4);
            let said = format!("snapshot {} of", &id[..8]);
            assert!(run.out.contains(&said), "{what}: {}", run.out);
            run.says("its files are still there: `strongroom repair` commits it");
            let run = world.say("prune --max-unused 0").exits(4);
            run.warns("`strongroom repair`");
            world.say("repair --dry-run").exits(0).says("commit it again");
            assert_eq!(fs::read(&object).unwrap(), spoilt_object, "{what}");
            world.say("repair --keyless").exits(4);
            let run = world.say("repair").exits(0).says("1 snapshot committed again");
            assert!(!run.out.contains("cannot be repaired"), "{what}: {}", run.out);
            let run = world.say("verify --data").exits(0);
            assert!(!run.out.contains("missing"), "{what}: {}", run.out);
            let target = world.path("again");
            world.run(["restore", &image, "--target", target.to_str().unwrap()]).exits(3);
            before.assert_same(&strongroom_testkit::Image::of(&target), &what);
            world.say("prune --max-unused 0").exits(0);
            world.say("repair").exits(0).says("nothing to repair");
        }
    }
}

/// What is none of the repository's objects, and what interrupted backups left, has a name.
#[test]
fn trial_08_verify_names_what_does_not_belong() {
    let world = world();
    let arena = fs::read_dir(world.repository().join("arenas")).unwrap().next().unwrap().unwrap();
    let planted = format!("{}.copy", arena.file_name().to_str().unwrap());
    fs::copy(arena.path(), arena.path().with_file_name(&planted)).unwrap();
    fs::write(world.repository().join("snapshots/notes.txt"), "mine").unwrap();
    let session = "0123456789abcdef0123456789abcdef";
    fs::create_dir_all(world.repository().join("sessions")).unwrap();
    fs::write(world.repository().join("sessions").join(session), "torn").unwrap();
    for words in ["verify", "verify --data", "verify --keyless"] {
        let run = world.say(words);
        for name in [planted.as_str(), "snapshots/notes.txt"] {
            assert!(run.err.contains(name), "{words}: {name}: {}", run.err);
        }
        assert!(run.out.contains("1 backup has not ended"), "{words}: {}", run.out);
        assert!(run.out.contains(session), "{words}: {}", run.out);
    }
    world.say("repair");
    assert!(arena.path().with_file_name(&planted).exists(), "it was removed");
}
