//! What lies in the place of an object and is no file, what restores that were killed have left, and a
//! repository that was pruned before the second reader: as people meet them.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use strongroom_testkit::Random;

use crate::world::World;

/// Three snapshots; the first was forgotten, and pruned.
fn pruned() -> World {
    let world = World::with_repository();
    fs::create_dir_all(world.tree()).unwrap();
    for version in ["one", "two", "three"] {
        fs::write(world.tree().join("file"), version.repeat(5000)).unwrap();
        fs::write(world.tree().join(version), version.repeat(9000)).unwrap();
        world.run(["backup".as_ref(), world.tree().as_os_str()]).exits(0);
    }
    world.say("forget latest~2").exits(0);
    world.say("prune --max-unused 0").exits(0);
    world
}

/// Puts something into the place of an object.
type Put = fn(&Path);

const ODD: [(&str, Put); 7] = [
    ("a socket", |path| drop(UnixListener::bind(path).unwrap())),
    ("nothing", |path| fs::write(path, "").unwrap()),
    ("rubbish", |path| fs::write(path, [7; 16]).unwrap()),
    ("a FIFO", |path| {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }),
    ("a directory", |path| fs::create_dir(path).unwrap()),
    ("a link", |path| symlink("/dev/null", path).unwrap()),
    ("a link to nothing", |path| symlink("no-such-file", path).unwrap()),
];

#[test]
fn kept_h4_what_is_no_file_stops_no_verb() {
    for (odd, put) in ODD {
        for name in ["1.done", "2.plan", "2.verdict", "2.done", "9.plan"] {
            let world = pruned();
            let path = world.repository().join("collections").join(name);
            let _ = fs::remove_file(&path);
            put(&path);
            let what = format!("{odd} as {name}");
            println!("{what}");
            world.say("snapshots").exits(0).says("tree");
            world.say("ls latest").exits(0);
            let target = world.path("restored");
            world.run(["restore", "latest", "--target", target.to_str().unwrap()]).exits(0);
            world.run(["backup".as_ref(), world.tree().as_os_str()]).exits(0);
            world.say("forget latest~1").exits(0).says("1 snapshot forgotten");
            world.say("verify").exits(4).warns(&format!("collections/{name}"));
            // A directory is nothing that a program may take away.
            if odd == "a directory" {
                world.say("repair").exits(4).warns("move it away");
                fs::remove_dir(&path).unwrap();
            } else {
                world.say("repair").exits(0).says(&format!("collections/{name}: take it away"));
            }
            world.say("repair").exits(0).says("nothing to repair");
            world.say("prune --max-unused 0").exits(0);
            world.say("verify --data").exits(0).says("no damage was found");
            world.say("snapshots").exits(0).says("tree");
        }
    }
}

/// A directory in the place of an end that is to be written: the prune says what to do.
#[test]
fn kept_h4_an_end_that_cannot_be_written_says_what_to_do() {
    let world = pruned();
    world.say("forget latest~1").exits(0);
    world.say("prune --max-unused 0 --later").exits(0).says("condemned 1 snapshot");
    let end = world.repository().join("collections/2.done");
    fs::create_dir(&end).unwrap();
    for _ in 0..2 {
        world.say("prune").exits(1).warns("2.done: it is a directory, not a file: move it away");
    }
    world.say("verify --data").exits(4).warns("2.done");
    fs::remove_dir(&end).unwrap();
    world.say("prune").exits(0);
    world.say("verify --data").exits(0).says("no damage was found");
}

/// What is no file, in folders of what others than the owner store: nothing needs it, so `prune` goes on,
/// and `repair` takes it away.
#[test]
fn kept_h4_what_is_no_file_is_taken_away_wherever_it_lies() {
    let id = "5a".repeat(16);
    for (odd, put) in ODD {
        for name in
            [format!("sessions/{id}"), format!("keys/{}", &id[..16]), format!("arenas/{id}.0")]
        {
            let world = pruned();
            let path = world.repository().join(&name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            put(&path);
            println!("{odd} as {name}");
            world.run(["backup".as_ref(), world.tree().as_os_str()]).exits(0);
            world.say("verify").exits(4).warns(&name[..name.find('/').unwrap()]);
            if odd == "a directory" {
                world.say("repair").exits(4).warns("it is a directory, not a file");
            } else {
                world.say("repair").exits(0);
                world.say("verify --data").exits(0).says("no damage was found");
                put(&path);
            }
            world.say("forget latest~1").exits(0).says("1 snapshot forgotten");
            // It is looked at only by a prune that has something to remove.
            world.say("prune --max-unused 0").exits(0).says("removed 1 snapshot");
            if odd == "a directory" {
                fs::remove_dir(&path).unwrap();
            }
            world.say("repair").exits(0);
            world.say("repair").exits(0).says("nothing to repair");
            world.say("verify --data").exits(0).says("no damage was found");
        }
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// In the place of a snapshot that is forgotten, and of a further generation of each arena: a prune goes on,
/// and a repair does all that it can.
#[test]
fn what_is_no_file_stops_no_removal() {
    for (odd, put) in ODD {
        println!("{odd}");
        let world = pruned();
        let snapshots = world.repository().join("snapshots");
        let before = names_in(&snapshots);
        fs::write(world.tree().join("four"), "four".repeat(9000)).unwrap();
        world.run(["backup".as_ref(), world.tree().as_os_str()]).exits(0);
        let id = names_in(&snapshots).into_iter().find(|id| !before.contains(id)).unwrap();
        world.run(["backup".as_ref(), world.tree().as_os_str()]).exits(0);
        world.say(&format!("forget {id}")).exits(0);
        fs::remove_file(snapshots.join(&id)).unwrap();
        put(&snapshots.join(&id));
        world.say("prune --max-unused 0").exits(0).says("removed 1 snapshot");
        // A directory is nothing that a program may take away.
        if odd == "a directory" {
            world.say("verify").exits(4).warns("move it away");
            fs::remove_dir(snapshots.join(&id)).unwrap();
        }
        assert!(snapshots.join(&id).symlink_metadata().is_err());
        world.say("verify --data").exits(0).says("no damage was found");

        let arenas = world.repository().join("arenas");
        let names = names_in(&arenas);
        for name in &names {
            let (arena, generation) = name.split_once('.').unwrap();
            let next = generation.parse::<u32>().unwrap() + 1;
            put(&arenas.join(format!("{arena}.{next}")));
        }
        world.say("ls latest").exits(0);
        let repaired = world.say("repair");
        if odd == "a directory" {
            repaired.exits(4).warns("move it away");
            for name in names_in(&arenas).iter().filter(|name| !names.contains(name)) {
                fs::remove_dir(arenas.join(name)).unwrap();
            }
        } else {
            repaired.exits(0);
        }
        assert_eq!(names_in(&arenas), names);
        world.say("repair").exits(0).says("nothing to repair");
        world.say("verify --data").exits(0).says("no damage was found");
    }
}

/// A snapshot of another repository, put there by a person: it stops a prune, and all say how to go on.
#[test]
fn a_snapshot_of_another_repository() {
    let (world, other) = (pruned(), pruned());
    let [ours, theirs] = [&world, &other].map(|world| world.repository().join("snapshots"));
    let id = names_in(&theirs).remove(0);
    let first = world.say("snapshots --json").exits(0).events("snapshot").remove(0);
    let first = first["id"].as_str().unwrap();
    fs::copy(theirs.join(&id), ours.join(&id)).unwrap();
    world.say("verify").exits(4).warns(&id[..8]);
    world.say("repair").exits(4).warns(&format!("`strongroom forget {id}` lets it go"));
    world.say("forget latest~1").exits(1).warns(&id[..8]);
    world.say(&format!("forget {first}")).exits(0);
    world.say("prune").exits(4);
    world.say(&format!("forget {id}")).exits(0);
    world.say("prune --max-unused 0").exits(0).says("removed 2 snapshots");
    world.say("verify --data").exits(0).says("no damage was found");
    world.say("repair").exits(0).says("nothing to repair");
    assert_eq!(names_in(&ours).len(), 1);
}

/// Each verb says what to do about a file in the place of a folder, and goes on afterwards.
#[test]
fn a_file_in_the_place_of_a_folder() {
    let world = pruned();
    let mut said = 0;
    for folder in ["sessions", "forgotten", "remarks", "arrivals", "vouchers", "ended"] {
        let path = world.repository().join(folder);
        let aside = world.path("aside");
        let was_there = path.exists();
        if was_there {
            fs::rename(&path, &aside).unwrap();
        }
        fs::write(&path, "").unwrap();
        for verb in ["snapshots", "verify", "repair", "prune"] {
            let run = world.say(verb);
            let is_said = run.err.contains("a file is in the place of this folder: move it away");
            said += u32::from(is_said);
            assert!(is_said || run.code == Some(0), "{folder}, {verb}: {}", run.err);
        }
        fs::remove_file(&path).unwrap();
        if was_there {
            fs::rename(&aside, &path).unwrap();
        }
        world.say("verify").exits(0);
    }
    assert!(said > 12, "{said} verbs said it");
}

/// A verdict and a plan are read from their copies, and written again from them.
#[test]
fn kept_h4_a_verdict_is_written_again_from_its_copy() {
    let world = pruned();
    let folder = world.repository().join("collections");
    let verdict = fs::read(folder.join("1.verdict")).unwrap();
    assert_eq!(fs::read(folder.join("1.verdict.copy")).unwrap(), verdict);
    for name in ["1.verdict", "1.verdict.copy"] {
        fs::write(folder.join(name), "torn").unwrap();
        world.say("snapshots").exits(0);
        world.say("verify").exits(4).warns(name);
        world.say("repair").exits(0).says(&format!("collections/{name}: write it again from"));
        assert_eq!(fs::read(folder.join(name)).unwrap(), verdict, "{name}");
        world.say("verify").exits(0);
    }
    fs::remove_file(folder.join("1.verdict.copy")).unwrap();
    world.say("verify").exits(0).says("no damage was found");
}

/// Who may create names and copy bytes can leave it there: it is whole, of the owner's, and no use.
#[test]
fn kept_p_p1_a_copy_under_another_name_stops_no_prune_and_is_taken_away() {
    let world = World::with_repository();
    fs::create_dir_all(world.tree()).unwrap();
    let put = world.path("put");
    world.say(&format!("key generate {}", put.display())).exits(0);
    let domain = "key add --put-only --domain laptop --label laptop --new-password-file";
    world.say(&format!("{domain} {}", put.display())).exits(0);
    for version in ["one", "two", "three"] {
        fs::write(world.tree().join(version), version.repeat(9000)).unwrap();
        let mut command = world.command(["backup".as_ref(), world.tree().as_os_str()]);
        if version == "one" {
            command.env_remove("STRONGROOM_PASSWORD").env("STRONGROOM_PASSWORD_FILE", &put);
            command.env("STRONGROOM_CACHE", world.path("cache-of-laptop"));
        }
        crate::world::Run::of(command.output().unwrap()).exits(0);
    }
    world.say("verify --data").exits(0);
    world.say("label --add gold latest").exits(0);
    world.say("forget latest~1").exits(0);
    let plan = world.repository().join("collections/1.plan");
    world.say("prune --later --max-unused 0").exits(0).says("condemned");
    fs::copy(&plan, world.path("plan")).unwrap();
    world.say("prune --now --max-unused 0").exits(0).says("removed 1 snapshot");
    fs::write(world.tree().join("four"), "four".repeat(9000)).unwrap();
    world.backup().exits(0);
    world.say("forget latest~1").exits(0);
    world.say("key end-domain laptop --yes").exits(0);
    let first = |folder: &str| {
        let mut names: Vec<_> = fs::read_dir(world.repository().join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| !path.to_str().unwrap().ends_with(".copy"))
            .collect();
        names.sort();
        names.remove(0)
    };
    let other = "0123456789abcdef0123456789abcdef";
    let verdict = world.repository().join("collections/1.verdict");
    let copies = [
        (verdict.clone(), "collections/7.plan".to_owned()),
        (verdict, "collections/8.plan.copy".to_owned()),
        (world.path("plan"), "collections/9.plan".to_owned()),
        (first("arrivals"), "arrivals/50".to_owned()),
        (first("forgotten"), format!("forgotten/{other}.1")),
        (first("remarks"), format!("remarks/{other}.1")),
        (first("ended"), format!("ended/{other}.9")),
        (first("vouchers"), format!("vouchers/{other}")),
        (first("keys"), "keys/0123456789abcdef".to_owned()),
    ];
    for (from, name) in &copies {
        fs::copy(from, world.repository().join(name)).unwrap();
    }
    let run = world.say("verify").exits(4);
    for (_, name) in &copies {
        assert!(run.err.contains(name.trim_end_matches(".copy")), "{name}: {}", run.err);
    }
    world.say("prune --later --max-unused 0").exits(0).says("condemned");
    world.say("prune --later --max-unused 0").exits(0).says("removed 1 snapshot");
    let run = world.say("repair").exits(0);
    assert!(run.out.contains(", 0 lost"), "{}", run.out);
    for (_, name) in &copies {
        assert!(!world.repository().join(name).exists(), "{name}");
    }
    world.say("repair").exits(0).says("nothing to repair");
    world.say("verify --data").exits(0).says("no damage was found");
}

/// Nothing of it is needed any more, so nothing waits for it, and nothing brings it back.
#[test]
fn kept_p_c1_a_forgotten_snapshot_that_is_damaged_stops_no_prune() {
    for is_condemned in [true, false] {
        let world = pruned();
        let id = world.say("snapshots --json").events("snapshot")[0]["id"].to_string();
        world.say("forget latest~1").exits(0);
        if is_condemned {
            world.say("prune --later --max-unused 0").exits(0).says("condemned");
        }
        let folder = world.repository().join("snapshots");
        let snapshot = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let snapshot = snapshot
            .into_iter()
            .find(|path| id.contains(path.file_name().unwrap().to_str().unwrap()));
        fs::write(snapshot.unwrap(), "").unwrap();
        world.say("verify").exits(0).warns("it is forgotten, and the next prune removes it");
        world.say("repair").exits(0).says("nothing to repair");
        if !is_condemned {
            world.say("prune --later --max-unused 0").exits(0).says("condemned");
        }
        world.say("prune --later --max-unused 0").exits(0).says("removed 1 snapshot");
        world.say("verify --data").exits(0).says("no damage was found");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }
}

/// Anybody who may store can leave it there, and so can a disk that was full.
#[test]
fn kept_o5_rubbish_that_nothing_needs_stops_no_prune_and_is_taken_away() {
    const NAMES: [&str; 4] = [
        "arenas/0123456789abcdef0123456789abcdef.0",
        "keys/0123456789abcdef",
        "vouchers/0123456789abcdef0123456789abcdef",
        "manifests/0123456789abcdef0123456789abcdef",
    ];
    for rubbish in [Vec::new(), Random::new(5).noise(2000)] {
        let world = pruned();
        for name in NAMES {
            let path = world.repository().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &rubbish).unwrap();
        }
        world.say("forget latest~1").exits(0);
        world.say("prune --later --max-unused 0").exits(0).says("condemned");
        world.say("prune --later --max-unused 0").exits(0).says("removed 1 snapshot");
        let run = world.say("verify").exits(4).says("`strongroom repair`");
        for name in NAMES {
            assert!(run.err.contains(name), "{name}: {}", run.err);
        }
        world.say("repair --keyless").exits(4);
        world.say("repair").exits(0).says("4 objects taken away");
        assert!(NAMES.iter().all(|name| !world.repository().join(name).exists()));
        world.say("verify --data").exits(0).says("no damage was found");
        world.say("repair").exits(0).says("nothing to repair");
        world.restored(&world.of("latest"));
    }
}

/// A name as a restore that was killed leaves it; no process has this number.
const LEFTOVER: &str = ".strongroom-restore-4194305-3";

#[test]
fn kept_h9_a_restore_removes_what_a_killed_one_left() {
    let world = World::with_repository();
    fs::create_dir_all(world.tree().join("below")).unwrap();
    fs::write(world.tree().join("file"), "content").unwrap();
    fs::write(world.tree().join("below/file"), "content").unwrap();
    world.run(["backup".as_ref(), world.tree().as_os_str()]).exits(0);
    let target = world.path("restored");
    let restore = || {
        world.run(["restore", "latest", "--target", target.to_str().unwrap()]).exits(0);
    };
    restore();
    let files = strongroom_testkit::damage::files_below(&target);
    let folders = files.iter().map(|file| file.parent().unwrap());
    let left: Vec<_> = folders.map(|folder| folder.join(LEFTOVER)).collect();
    assert_eq!(left.len(), 2);
    left.iter().for_each(|left| fs::write(left, vec![1; 1 << 16]).unwrap());
    restore();
    assert_eq!(strongroom_testkit::damage::files_below(&target), files);
}
