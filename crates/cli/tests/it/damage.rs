//! Damage is reported, repaired if possible, and otherwise named.

use std::fs;
use std::path::PathBuf;

use strongroom_testkit::{Change, assert_same, compare};

use crate::world::{Run, World};

/// The largest arena, which holds data.
fn largest_arena(world: &World) -> PathBuf {
    let files = strongroom_testkit::damage::files_below(&world.repository().join("arenas"));
    files.into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

#[test]
fn a_scratch_is_repaired_from_parity() {
    let world = World::with_tree(8);
    world.backup().exits(0);
    let arena = largest_arena(&world);
    let whole = fs::read(&arena).unwrap();
    make_writable(&arena);
    Change::Scratch(500, 100).on_file(&arena);
    world.say("verify").exits(0);
    world.say("verify --data").exits(4).says("run `strongroom repair`");
    world.say("verify --data --keyless").exits(4);
    // What parity can give back is given back while reading, and people are asked to repair it.
    assert_same(&world.tree(), &world.restored(&world.of("latest")));
    let again = world.path("again");
    let restored = world.run(["restore", "latest", "--target", again.to_str().unwrap()]);
    restored.exits(0).warns("run `strongroom repair`");
    world.say("repair --dry-run").exits(0).says("from parity");
    world.say("repair --keyless").exits(0).says("1 repaired");
    assert_eq!(fs::read(&arena).unwrap().len(), whole.len());
    world.say("verify --data").exits(0).says("no damage was found");
}

/// Only to find out whether a snapshot was removed takes a key.
#[test]
fn a_keyless_plan_needs_no_key() {
    let world = World::with_tree(10);
    world.backup().exits(0);
    for snapshot in fs::read_dir(world.repository().join("snapshots")).unwrap() {
        fs::remove_file(snapshot.unwrap().path()).unwrap();
    }
    let mut command = world.command(["repair", "--dry-run", "--keyless"]);
    let run = Run::of(command.env_remove("STRONGROOM_PASSWORD").output().unwrap());
    run.exits(0).says("nothing to repair");
}

#[test]
fn what_is_lost_is_named_and_heals() {
    let world = World::with_tree(9);
    world.backup().exits(0);
    let arena = largest_arena(&world);
    make_writable(&arena);
    Change::Zeros.on_file(&arena);
    world.say("verify").exits(4).says("lost in snapshot");
    let target = world.path("out");
    let run = world.say(&format!("restore {} --target {}", world.of("latest"), target.display()));
    run.exits(4).warns("damage: ");
    let run = world.say("repair").exits(4);
    assert!(run.out.contains("back up the same paths again"), "{}", run.out);
    world.say(&format!("backup --force {}", world.tree().display())).exits(0);
    assert!(compare(&world.tree(), &world.restored(&world.of("latest"))).is_empty());
}

/// An arena that is gone leaves nothing to repair: what needs it is named all the same, before and
/// by the repair, with the ways to get it back; and each of them works.
#[test]
fn what_a_missing_arena_takes_is_named_by_a_dry_run_too() {
    let world = World::with_tree(9);
    world.backup().exits(0);
    let replica = world.path("replica").display().to_string();
    world.run(["replicate", &replica]).exits(0);
    let arena = largest_arena(&world);
    fs::remove_file(&arena).unwrap();
    let lost = world.say("verify --data").exits(4).says("repair --from REPLICA").says("back up");
    let lost: Vec<&str> = lost.out.lines().filter(|line| line.starts_with("lost in")).collect();
    assert!(!lost.is_empty());
    for words in ["repair --dry-run", "repair"] {
        let run = world.say(words).exits(4).says("nothing can be repaired");
        let run = run.says("cannot be restored whole").says("repair --from REPLICA");
        let run = run.says("back up the same");
        let named: Vec<&str> = run.out.lines().filter(|line| line.starts_with("lost in")).collect();
        assert_eq!(named, lost, "{words}");
    }
    let plan = world.say("--json repair --dry-run").exits(4);
    let plan = plan.events("plan").remove(0);
    assert_eq!(plan["affected"].as_array().unwrap().len(), lost.len(), "{plan}");
    assert_eq!(plan["steps"], serde_json::json!([]));
    // Without a key it is not known, and said to be so.
    world.say("repair --dry-run --keyless").exits(0).says("the snapshots were not read");
    // With a replica nothing would stay lost; with one that lacks it as well, all of it would.
    world.run(["repair", "--dry-run", "--from", &replica]).exits(0).says("because it is missing");
    let there = world.path("replica/arenas").join(arena.file_name().unwrap());
    assert!(there.exists(), "{}", there.display());
    let aside = world.path("aside");
    fs::rename(&there, &aside).unwrap();
    let run = world.run(["repair", "--dry-run", "--from", &replica]).exits(4);
    assert!(!run.says("cannot be restored whole").out.contains("--from REPLICA"));
    fs::rename(&aside, &there).unwrap();
    world.run(["repair", "--from", &replica]).exits(0);
    world.say("repair --dry-run").exits(0).says("nothing to repair");
}

#[test]
fn a_lost_configuration_comes_back_from_its_copy() {
    let world = World::with_tree(10);
    world.backup().exits(0);
    let config = world.repository().join("config");
    make_writable(&config);
    Change::Half.on_file(&config);
    world.say("verify --data").exits(4);
    world.say("repair").exits(0);
    world.say("verify --data").exits(0);
    assert_same(&world.tree(), &world.restored(&world.of("latest")));
}

#[test]
fn the_cache_is_only_a_cache() {
    let world = World::with_tree(11);
    world.backup().exits(0);
    for file in strongroom_testkit::damage::files_below(&world.path("cache")) {
        make_writable(&file);
        Change::Half.on_file(&file);
    }
    world.backup().exits(0);
    fs::remove_dir_all(world.path("cache")).unwrap();
    world.backup().exits(0);
    world.say("verify --data").exits(0);
    assert_same(&world.tree(), &world.restored(&world.of("latest")));
}

fn make_writable(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
