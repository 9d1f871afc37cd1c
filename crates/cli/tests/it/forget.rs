//! Forgetting snapshots and freeing their room, as people type it.

use std::fs;

use strongroom_testkit::Image;
use strongroom_testkit::tree::{TreeOptions, grow, mutate};

use crate::world::World;

const TREE: TreeOptions =
    TreeOptions { entries: 20, chunk_bytes: 64 << 10, file_bytes_max: 300 << 10 };

/// A repository of five versions of a tree, and the image of the last.
fn five_versions(seed: u64) -> (World, Image) {
    let world = World::with_repository();
    grow(&world.tree(), seed, TREE);
    for version in 0..5 {
        mutate(&world.tree(), seed + version, TREE);
        world.run(["backup".as_ref(), world.tree().as_os_str()]).exits(0);
    }
    let image = Image::of(&world.tree());
    (world, image)
}

fn stored_bytes(world: &World) -> u64 {
    let arenas = fs::read_dir(world.repository().join("arenas")).unwrap();
    arenas.map(|arena| arena.unwrap().metadata().unwrap().len()).sum()
}

fn ids(world: &World) -> Vec<String> {
    ids_of(world, 0)
}

/// The same, if the list ends with another code.
fn ids_of(world: &World, code: i32) -> Vec<String> {
    let run = world.say("snapshots --json").exits(code);
    let events = run.out.lines().map(|line| serde_json::from_str(line).unwrap());
    let ids = events.filter(|event: &serde_json::Value| event["event"] == "snapshot");
    ids.map(|event| event["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn rules_are_shown_and_then_followed() {
    let (world, image) = five_versions(1);
    let before = stored_bytes(&world);
    let all = ids(&world);
    world
        .say("forget --keep-last 2 --dry-run")
        .exits(0)
        .says("keep: last")
        .says("3 snapshots would be forgotten");
    assert_eq!(ids(&world), all, "nothing was done");
    world.say("forget --keep-last 2").exits(0).says("3 snapshots forgotten");
    assert_eq!(ids(&world), all[3..]);
    world.say("snapshots").exits(0).warns("3 snapshots are forgotten");
    world.say("snapshots --forgotten").exits(0).says(&all[0][..8]);
    world.say(&format!("forget --undo {}", all[2])).exits(0).says("1 snapshot kept after all");
    assert_eq!(ids(&world), all[2..]);
    world.say("prune --dry-run").exits(0).says("would remove 2 snapshots");
    let rehearsed = world.say("prune --max-unused 0 --dry-run --json").exits(0).summary();
    assert_eq!(stored_bytes(&world), before, "nothing was done");
    let summary = world.say("prune --max-unused 0 --json").exits(0).summary();
    assert_eq!(summary["snapshots"].as_array().unwrap().len(), 2);
    for field in ["snapshots", "arenas_removed", "arenas_rewritten", "bytes_removed"] {
        assert_eq!(rehearsed[field], summary[field], "{field}");
    }
    assert!(summary["arenas_removed"].as_u64().unwrap() > 0, "{summary}");
    assert!(stored_bytes(&world) < before);
    assert_eq!(ids(&world), all[2..]);
    world.say(&format!("forget --undo {}", all[0])).exits(1).warns("no snapshot is named");
    world.say("prune --max-unused 0").exits(0).says("nothing to remove");
    world.say("verify --data").exits(0);
    let target = world.path("restored");
    world.run(["restore".as_ref(), "latest".as_ref(), "--target".as_ref(), target.as_os_str()]);
    let restored = target.join(world.tree().strip_prefix("/").unwrap());
    image.assert_same(&Image::of(&restored), "restored");
}

#[test]
fn what_is_typed_wrong_changes_nothing() {
    let (world, _) = five_versions(2);
    let all = ids(&world);
    world.say("forget").exits(1).warns("--keep-daily 7");
    world.say("forget latest --keep-last 1").exits(2);
    world.say("forget --undo").exits(2);
    world.say("forget ffffffff").exits(1).warns("no snapshot is named");
    world.say("forget --keep-within 3").exits(2).warns("36h");
    world.say("prune --max-unused 101").exits(2);
    world.say("prune --patience soon").exits(2).warns("36h");
    let everything = format!("forget {}", all.join(" "));
    world.say(&everything).exits(1).warns("no snapshot would be left");
    assert_eq!(ids(&world), all);
    world.say(&format!("{everything} --yes")).exits(0);
    world.say("prune").exits(0).says("removed 5 snapshots");
    assert_eq!(stored_bytes(&world), 0);
    world.say("verify --data").exits(0);
    world.run(["backup".as_ref(), world.tree().as_os_str()]).exits(0);
    assert_eq!(ids(&world).len(), 1);
}

/// Rules that would leave none of a host's snapshots ask first, and say what would remain.
#[test]
fn rules_that_leave_nothing_of_a_host_ask_first() {
    let (world, _) = five_versions(6);
    let other = ["backup", "--host", "other", "--label", "gold"].map(AsRef::as_ref);
    let tree = world.tree();
    world.run(other.into_iter().chain([tree.as_os_str()])).exits(0);
    let all = ids(&world);
    world
        .say("forget --keep-label gold")
        .exits(1)
        .warns("none would be left of")
        .warns("1 snapshot of others would")
        .warns("--yes");
    assert_eq!(ids(&world), all);
    world.say("forget --keep-label gold -n").exits(0).says("5 snapshots would be forgotten");
    world.say("forget --keep-label gold --yes").exits(0);
    assert_eq!(ids(&world), all[5..]);
}

/// One path with a blank is not two paths, although both are shown in the same way.
#[test]
fn series_that_look_the_same_are_two() {
    let world = World::with_repository();
    let here = world.folder.path().to_str().unwrap().to_owned();
    let one = format!("{here}/a {here}/b");
    let two = [format!("{here}/a"), format!("{here}/b")];
    for path in two.iter().chain([&one]) {
        fs::create_dir_all(path).unwrap();
        fs::write(format!("{path}/file"), path).unwrap();
    }
    for _ in 0..2 {
        world.run(["backup", &two[0], &two[1]]).exits(0);
    }
    world.run(["backup", "--label", "gold", &one]).exits(0);
    let all = ids(&world);
    world.say("forget --keep-label gold").exits(1).warns("none would be left of");
    assert_eq!(ids(&world), all);
    world.say("forget --keep-last 1").exits(0);
    assert_eq!(ids(&world), all[1..]);
}

/// Rules for the host and paths of one snapshot alone.
#[test]
fn rules_can_be_for_one_series() {
    let (world, _) = five_versions(8);
    let tree = world.tree();
    for host in ["other", "other"] {
        world.run(["backup".as_ref(), "--host".as_ref(), host.as_ref(), tree.as_os_str()]).exits(0);
    }
    let all = ids(&world);
    world.say("forget --series-of latest").exits(2);
    world.say("forget --series-of latest latest").exits(2);
    world.say("forget --series-of latest --all-series --keep-last 1").exits(2);
    world.say("forget --series-of ffffffff --keep-last 1").exits(1).warns("no snapshot is named");
    assert_eq!(ids(&world), all);
    world
        .say("forget --series-of latest --keep-last 1")
        .exits(0)
        .says("5 snapshots stay: these rules are not for their host or paths")
        .says("1 snapshot forgotten");
    assert_eq!(ids(&world), [&all[..5], &all[6..]].concat());
    // A forgotten one names its series, too.
    world.say(&format!("forget {}", all[4])).exits(0);
    world.say(&format!("forget --series-of {} --keep-last 2", all[4])).exits(0);
    assert_eq!(ids(&world), [&all[2..4], &all[6..]].concat());
    world.say("forget --all-series --keep-last 1").exits(0).says("1 snapshot forgotten");
}

#[test]
fn the_calendar_shows_what_stays_and_what_goes() {
    let (world, _) = five_versions(7);
    let run = world.say("forget --keep-last 2 -n --calendar").exits(0);
    let run = run.says("Mo   Tu   We   Th   Fr   Sa   Su").says("- goes");
    assert!(!run.out.contains('\u{1b}'), "no colours outside of a terminal");
    // All were made on one day, or on both sides of a midnight.
    assert!(run.out.lines().any(|line| line.contains('*') || line.contains('-')), "{}", run.out);
    world.say("forget --calendar").exits(2);
    let json = world.say("forget --keep-last 2 -n --calendar --json").exits(0);
    assert!(!json.out.contains("Mo   Tu"));
}

/// A machine with a put-only key whose backup is suddenly empty: rules remove nothing of it until the
/// owner has looked.
#[test]
fn a_suspicious_snapshot_is_named_and_stops_the_rules() {
    let world = World::with_repository();
    grow(&world.tree(), 5, TREE);
    let key = world.path("laptop.key");
    world.run(["key".as_ref(), "generate".as_ref(), key.as_os_str()]).exits(0);
    let add = ["key", "add", "--put-only", "--domain", "laptop", "--new-password-file"];
    world.run(add.iter().map(|word| word.as_ref()).chain([key.as_os_str()])).exits(0);
    let back_up = || {
        let mut words = vec!["backup".as_ref(), "--password-file".as_ref(), key.as_os_str()];
        let tree = world.tree();
        words.push(tree.as_os_str());
        world.run(words)
    };
    back_up().exits(0);
    let seen = || fs::read_dir(world.repository().join("arrivals")).map_or(0, Iterator::count);
    world.say("forget --keep-last 1 -n").exits(0).says("keep: new series");
    assert_eq!(seen(), 0, "nothing was recorded");
    world.say("forget --keep-last 1").exits(0).says("nothing to forget");
    assert_eq!(seen(), 1);
    fs::remove_dir_all(world.tree()).unwrap();
    fs::create_dir(world.tree()).unwrap();
    back_up().exits(3).warns("it is empty, and was not at the last backup");
    back_up().exits(3).warns("it is empty, and was not at the last backup");
    world.say("forget latest").exits(0);
    let run = world.say("forget --keep-last 1").exits(3);
    run.warns("is suspicious: it has far fewer files").says("keep: frozen").says("--accept");
    let id = ids(&world).pop().unwrap();
    world.say("forget --accept").exits(1).warns("nothing says what to accept");
    world.say("forget --accept --keep-last 1").exits(2);
    world.say(&format!("forget --accept {id} -n")).exits(0);
    world.say("forget --keep-last 1 --json").exits(3).says("fewer files");
    world.say(&format!("forget --accept {id}")).exits(0).says("1 snapshot accepted");
    world.say("forget --keep-last 1").exits(0).says("keep: new series");
    world.say("forget --keep-last 1 --quarantine soon").exits(2).warns("36h");
    world.say("prune").exits(0);
    world.say("verify --data").exits(0);
}

/// Rubbish under a snapshot's name stops a prune, because it may have been one, until the owner
/// says that it may go.
#[test]
fn what_cannot_be_read_can_be_forgotten() {
    let (world, _) = five_versions(4);
    let name = "ffeeddccbbaa99887766554433221100";
    let first = ids(&world).remove(0);
    fs::write(world.repository().join("snapshots").join(name), "rubbish").unwrap();
    // The one before it is not the one that is meant.
    for words in ["forget latest", "hold latest --reason r", "label latest --add l"] {
        world.say(words).exits(1).warns("may mean snapshot ffeeddcc").warns("write the id");
    }
    world.say(&format!("forget {first}")).exits(0);
    world.say("prune").exits(4).warns("ffeeddcc").warns("Forget only what no repair");
    assert_eq!(ids_of(&world, 4).len(), 4);
    world.say("forget ffeeddcc").exits(0).says("1 snapshot forgotten");
    world.say("prune").exits(0).says("removed 2 snapshots");
    assert_eq!(ids(&world).len(), 4);
    world.say("verify --data").exits(0);
}

/// A backup that was killed before its commit does not hold a collection up for ever.
#[test]
fn a_session_without_a_writer_is_named_and_can_be_ended() {
    let (world, _) = five_versions(4);
    let other = World::with_repository();
    other.run(["backup".as_ref(), world.tree().as_os_str()]).exits(0);
    world.say("forget latest~3").exits(0);
    // The object of a session that says nothing of itself.
    let session = world.repository().join("sessions").join("00112233445566778899aabbccddeeff");
    fs::create_dir_all(session.parent().unwrap()).unwrap();
    fs::write(&session, "rubbish").unwrap();
    world.say("prune").exits(0).says("ended backup 00112233").says("removed 1 snapshot");
    assert!(!session.exists());
    world.say("verify --data").exits(0);
    assert_eq!(ids(&world).len(), 4);
}

#[test]
fn what_a_run_condemns_can_be_brought_back() {
    let world = World::with_repository();
    fs::create_dir_all(world.tree()).unwrap();
    for version in ["one", "two"] {
        fs::write(world.tree().join("file"), version).unwrap();
        world.run(["backup".as_ref(), world.tree().as_os_str()]).exits(0);
    }
    world.say("prune --undo").exits(0).says("nothing is condemned");
    world.say("forget --keep-last 1").exits(0).says("1 snapshot forgotten");
    world.say("prune --later").exits(0).says("condemned 1 snapshot").says("prune --undo");
    world.say("prune --undo -n").exits(2);
    world.say("prune --undo").exits(0).says("1 snapshot is no longer forgotten");
    world.say("prune --later").exits(0).says("nothing to remove");
    world.say("forget --keep-last 1").exits(0).says("1 snapshot forgotten");
    world.say("prune --later").exits(0).says("condemned 1 snapshot");
    // Each night removes what the one before has condemned.
    fs::write(world.tree().join("file"), "three").unwrap();
    world.run(["backup".as_ref(), world.tree().as_os_str()]).exits(0);
    world.say("forget --keep-last 1").exits(0).says("1 snapshot forgotten");
    let night = world.say("prune --later").exits(0).says("condemned 1 snapshot ").out.clone();
    assert!(night.contains("removed 1 snapshot and"), "{night}");
    world.say("prune --later").exits(0).says("removed 1 snapshot");
    world.say("forget --keep-last 1").exits(0);
    world.say("prune --later --now").exits(0);
}
