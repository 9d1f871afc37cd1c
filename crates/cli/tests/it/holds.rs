//! `hold` and `label`, as people type them.

use crate::world::World;

fn three_snapshots() -> (World, Vec<String>) {
    let world = World::with_repository();
    std::fs::create_dir_all(world.tree()).unwrap();
    for version in ["one", "two", "three"] {
        std::fs::write(world.tree().join("file"), version).unwrap();
        world.run(["backup".as_ref(), world.tree().as_os_str()]).exits(0);
    }
    let run = world.say("snapshots --json").exits(0);
    let events = run.events("snapshot").into_iter();
    let ids = events.map(|event| event["id"].as_str().unwrap().to_owned());
    let ids = ids.collect();
    (world, ids)
}

#[test]
fn what_is_held_stays_and_says_why() {
    let (world, ids) = three_snapshots();
    let first = &ids[0];
    world.say("hold").exits(0).warns("no snapshot is held");
    world.say(&format!("hold {first}")).exits(1).warns("a hold needs a reason");
    world.say(&format!("hold {first} --until 2999-01-01")).exits(2);
    world.say(&format!("hold {first} --reason audit --until soon")).exits(1).warns("is not a date");
    world.say(&format!("hold {first} --reason audit --until 2020-01-01")).exits(1).warns("is over");
    world.say(&format!("hold {first} --reason audit --until 2200-12-31")).exits(0);
    let short = &first[..8];
    world.say("hold").exits(0).says(short).says("until 2200-12-31 23:59:59").says("audit");
    world.say("snapshots").exits(0).says("(held)");
    let held = world.say("snapshots --held --json").exits(0);
    let event = held.events("snapshot").remove(0);
    assert_eq!((event["id"].as_str(), &event["held"]["reason"]), (Some(&**first), &"audit".into()));
    world
        .say(&format!("forget latest {first}"))
        .exits(1)
        .warns(&format!("snapshot {short} is held: audit"))
        .warns("hold --release");
    world.say("forget --keep-last 1 -n").exits(0).says("keep: held").says("1 snapshot would be");
    world.say("forget --keep-last 1").exits(0).says("1 snapshot forgotten");
    world.say("prune").exits(0).says("removed 1 snapshot");
    world.say(&format!("hold --release {first}")).exits(0).says("1 snapshot held no longer");
    world.say("forget --keep-last 1").exits(0).says("1 snapshot forgotten");
    world.say("hold --release latest --reason x").exits(2);
}

#[test]
fn labels_are_changed_and_used() {
    let (world, ids) = three_snapshots();
    let first = &ids[0];
    world.say(&format!("label {first}")).exits(2);
    world.say(&format!("label {first} --add x --set y")).exits(2);
    world.say(&format!("label {first} --add gold --add old --description first")).exits(0);
    world.say(&format!("label {first} --remove old")).exits(0).says("1 snapshot changed");
    world.say("snapshots --label gold").exits(0).says("[gold] \"first\"").says(&first[..8]);
    world.say("snapshots --label old").exits(0).warns("none of 3 snapshots matches");
    world.say("forget --keep-label gold").exits(0).says("2 snapshots forgotten");
    world.run(["label", "latest", "--set", "", "--description", ""]).exits(0);
    world.say("snapshots --label gold").exits(0).warns("the only snapshot does not match");
    world.say("verify --data").exits(0);
}
