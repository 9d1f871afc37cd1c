//! What a backup is asked for: paths that do not exist, the repository itself, what a command writes.

use std::fs;

use crate::world::World;

fn with_a_file() -> World {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    fs::write(world.tree().join("file"), "content").unwrap();
    world
}

#[test]
fn trial_08_the_other_paths_are_stored_if_one_does_not_exist() {
    let world = with_a_file();
    let (tree, missing) = (world.tree(), world.path("unplugged"));
    let paths = [tree.to_str().unwrap(), missing.to_str().unwrap()];
    world.run(["backup"].iter().chain(&paths)).exits(3).warns("unplugged");
    let restored = world.restored(&world.of("latest"));
    assert_eq!(fs::read(restored.join("file")).unwrap(), b"content");
    world.run(["backup", paths[1]]).exits(1).warns("does not exist");
}

#[test]
fn trial_08_the_repository_is_never_stored_in_itself() {
    let world = with_a_file();
    let repository = world.repository();
    let inside = repository.join("arenas");
    for own in [&repository, &inside] {
        let own = own.to_str().unwrap();
        world.run(["backup", own]).exits(1).warns("never stored in themselves");
        let run = world.run(["backup", world.tree().to_str().unwrap(), own]).exits(3);
        run.warns("never stored in themselves");
    }
}

/// With the program of before, `--stdin` alone stores what was read before the producer died.
#[test]
fn engine_23_nothing_is_stored_of_a_command_that_fails() {
    let world = World::with_repository();
    let stdin = ["backup", "--stdin", "dump", "--stdin-from-command"];
    world.run(stdin.iter().chain(&["echo half; exit 3"])).exits(1).warns("failed");
    let sessions = fs::read_dir(world.repository().join("snapshots"));
    assert_eq!(sessions.map_or(0, Iterator::count), 0);
    world.run(stdin.iter().chain(&["echo whole"])).exits(0);
    world.say("cat latest:/dump").exits(0).says("whole");
}
