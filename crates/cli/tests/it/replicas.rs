//! Copies of a repository, as people use them.

use std::fs;

use crate::world::{CHEAP, World};

#[test]
fn a_replica_is_made_kept_and_restored_from_without_a_passphrase() {
    let world = World::with_tree(900);
    world.backup().exits(0);
    let [one, two] = ["one", "two"].map(|name| world.path(name).display().to_string());
    let replicate = |args: &[&str]| {
        let mut command = world.command(["replicate"].iter().chain(args));
        command.env_remove("STRONGROOM_PASSWORD");
        crate::world::Run::of(command.output().unwrap())
    };
    replicate(&[&one, "--dry-run"]).exits(0).says("a new place: would send");
    assert!(!world.path("one").exists());
    replicate(&[&one, &two]).exits(0).says("were there");
    let run = replicate(&["--json", &one]).exits(0);
    assert_eq!(run.summary()["sent"], 0);
    let target = world.path("out").display().to_string();
    world.run(["restore", "latest", "--target", &target, "--repo", &two]).exits(0);

    // One that cannot be written to does not keep the others from being copied to.
    world.backup().exits(0);
    fs::write(world.path("file"), "in the way").unwrap();
    let file = world.path("file").display().to_string();
    replicate(&[&file, &two]).exits(1).says("sent");
}

#[test]
fn another_repository_is_no_replica() {
    let world = World::with_tree(901);
    world.backup().exits(0);
    let other = world.path("other").display().to_string();
    world.run(["init", "--repo", &other].iter().chain(&CHEAP)).exits(0);
    world.run(["replicate", &other]).exits(1).warns("holds another repository").warns("hint");
    let nothing = world.path("nothing").display().to_string();
    world.run(["replicate", &other, "--repo", &nothing]).exits(6);
}

#[test]
fn a_repository_is_mended_and_made_again_from_a_replica() {
    let world = World::with_tree(902);
    world.backup().exits(0);
    let replica = world.path("replica").display().to_string();
    world.run(["replicate", &replica]).exits(0);
    let whole = strongroom_testkit::damage::files_below(&world.repository());
    let arenas: Vec<_> =
        whole.iter().filter(|path| path.parent().unwrap().ends_with("arenas")).collect();
    fs::write(arenas[0], "rubbish").unwrap();
    fs::remove_file(arenas[1]).unwrap();
    world.say("verify --data").exits(4);
    world.run(["repair", "--dry-run", "--from", &replica]).exits(0).says("fetch what is damaged");
    let run = world.run(["repair", "--json", "--from", &replica]).exits(0);
    let fetched = &run.summary()["replicas"];
    assert_eq!((&fetched["mended"], &fetched["returned"]), (&1.into(), &1.into()), "{fetched}");
    world.say("verify --data").exits(0);

    fs::remove_dir_all(world.repository()).unwrap();
    world.run(["repair", "--keyless", "--from", &replica]).exits(0).says("strongroom replicate");
    world.say("verify --data").exits(0);
    world.restored("latest");
}

#[test]
fn an_audit_finds_what_changed_in_a_replica() {
    let world = World::with_tree(903);
    world.backup().exits(0);
    let replica = world.path("replica").display().to_string();
    world.run(["replicate", &replica]).exits(0);
    world.run(["audit", &replica]).exits(0).says("no damage was found in the replica");
    let files = strongroom_testkit::damage::files_below(&world.path("replica"));
    let arena = files.iter().find(|path| path.parent().unwrap().ends_with("arenas")).unwrap();
    let mut bytes = fs::read(arena).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(arena, bytes).unwrap();
    let run = world.run(["audit", &replica, "--data"]).exits(4).says("1 object is damaged");
    let repository = world.repository().display().to_string();
    run.says("strongroom repair --repo");
    world.run(["repair", "--keyless", "--repo", &replica, "--from", &repository]).exits(0);
    world.run(["audit", &replica, "--data"]).exits(0);
    fs::remove_file(arena).unwrap();
    world.run(["audit", &replica]).exits(3).says("strongroom replicate");
}

#[test]
fn a_restore_reads_from_a_replica_what_is_lost() {
    let world = World::with_tree(904);
    world.backup().exits(0);
    let replica = world.path("replica").display().to_string();
    world.run(["replicate", &replica]).exits(0);
    for path in strongroom_testkit::damage::files_below(&world.repository()) {
        if path.parent().unwrap().ends_with("arenas") {
            let odd = path.to_str().unwrap().as_bytes().last().unwrap() % 2 == 1;
            if odd { fs::write(path, "rubbish").unwrap() } else { fs::remove_file(path).unwrap() }
        }
    }
    let target = world.path("out").display().to_string();
    let restore = ["restore", "latest", "--target", &target];
    world.run(restore).exits(4);
    fs::remove_dir_all(&target).unwrap();
    let run = world.run(restore.iter().chain(&["--replica", &replica])).exits(0);
    run.warns("strongroom repair --from");
    world.run(["ls", "latest", "--replica", &replica]).exits(0);

    // The whole repository is lost, and the replica is in the environment.
    fs::remove_dir_all(world.repository()).unwrap();
    fs::remove_dir_all(&target).unwrap();
    let mut command = world.command(restore);
    command.env("STRONGROOM_REPLICAS", format!("/nowhere,{replica}"));
    let run = crate::world::Run::of(command.output().unwrap()).exits(0);
    run.warns("/nowhere cannot be opened").warns("cannot be opened: there is no repository");
    // Another repository is no replica.
    let other = world.path("other").display().to_string();
    world.run(["init", "--repo", &other].iter().chain(&CHEAP)).exits(0);
    world.run(["ls", "--repo", &replica, "--replica", &other]).exits(1).warns("another repository");
}

#[test]
fn one_of_three_striped_stores_is_erased() {
    let world = World::with_tree(905);
    for store in ["one", "two", "three"] {
        fs::create_dir(world.path(store)).unwrap();
    }
    let file = world.path("backup.stripes");
    fs::write(&file, "strongroom stripes, parity 1\none\ntwo\nthree\n").unwrap();
    let file = file.display().to_string();
    let run = |args: &[&str]| world.run(args.iter().chain(&["--repo", &file]));
    run(&["ls"]).exits(6);
    run(&[&["init"][..], &CHEAP].concat()).exits(0);
    let tree = world.tree().display().to_string();
    run(&["backup", &tree]).exits(0);
    run(&["verify", "--data"]).exits(0).says("no damage was found");
    for store in ["one", "two", "three"] {
        fs::remove_dir_all(world.path(store)).unwrap();
        let target = world.path("out").display().to_string();
        run(&["restore", "latest", "--target", &target]).exits(0).warns("1 of the 3 stores");
        fs::remove_dir_all(&target).unwrap();
        run(&["backup", &tree]).exits(1).warns("strongroom repair");
        // A new disk, or the folder made again.
        fs::create_dir(world.path(store)).unwrap();
        run(&["repair"]).exits(0).says("again in stores");
        run(&["backup", &tree]).exits(0);
    }
    run(&["verify", "--data"]).exits(0).says("no damage was found");
    fs::remove_dir_all(world.path("one")).unwrap();
    fs::remove_dir_all(world.path("two")).unwrap();
    run(&["ls"]).exits(1).warns("1 of its 3 stores can be read, and it needs 2");
}
