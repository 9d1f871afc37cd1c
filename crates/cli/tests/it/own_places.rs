//! What belongs to a repository lies where people put it: below what they back up, and below what they
//! restore in place. It is neither stored nor removed there. And what was mounted, or is a link, is not
//! mistaken for what was backed up.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use strongroom_testkit::noise;

use crate::space::Disk;
use crate::world::{World, bytes_below, is_root, skipped};

fn run_in(world: &World, repository: &Path, words: &[&OsStr]) -> crate::world::Run {
    let place: [&OsStr; 2] = ["--repo".as_ref(), repository.as_ref()];
    world.run(place.iter().chain(words))
}

/// A repository whose stores, or whose only folder, lie below the tree.
#[test]
fn a_repository_below_its_tree_is_neither_stored_nor_removed() {
    for is_striped in [true, false] {
        let world = World::empty();
        let tree = world.tree();
        fs::create_dir_all(tree.join("papers")).unwrap();
        fs::write(tree.join("papers/photo"), noise(1, 600_000)).unwrap();
        let repository = match is_striped {
            true => {
                fs::write(tree.join("of.stripes"), "strongroom stripes, parity 1\np1\np2\np3\n")
                    .unwrap();
                tree.join("of.stripes")
            }
            false => tree.join("repository"),
        };
        let say = |words: &[&OsStr]| run_in(&world, &repository, words);
        say(&["init".as_ref()]).exits(0);
        let mut sizes = Vec::new();
        for night in 0..4 {
            fs::write(tree.join("papers/night"), format!("{night}")).unwrap();
            say(&["backup".as_ref(), tree.as_ref()]).exits(0);
            sizes.push(bytes_below(&tree));
        }
        assert!(sizes[3] < sizes[0] + 200_000, "it stores itself: {sizes:?}");
        // Something else goes, and the stripes file as well if it were not that of the repository.
        fs::write(tree.join("papers/surplus"), "x").unwrap();
        let old: &OsStr = "latest~3".as_ref();
        let back =
            say(&["restore".as_ref(), old, "--in-place".as_ref(), "--delete".as_ref()]).exits(0);
        assert!(!tree.join("papers/surplus").exists(), "{back:?}");
        assert_eq!(fs::read(tree.join("papers/night")).unwrap(), b"0");
        say(&["verify".as_ref(), "--data".as_ref()]).exits(0).says("and 4 snapshots");
    }
}

/// The replica from which a restore reads lies where the restore removes what the snapshot lacks.
#[test]
fn a_replica_below_the_tree_is_neither_stored_nor_removed() {
    let world = World::with_repository();
    let tree = world.tree();
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("photo"), noise(2, 2_000_000)).unwrap();
    world.run(["backup".as_ref(), tree.as_os_str()]).exits(0);
    let replica = tree.join("copy");
    world.run(["replicate".as_ref(), replica.as_os_str()]).exits(0);
    let arenas = fs::read_dir(world.repository().join("arenas")).unwrap();
    for arena in arenas.map(|entry| entry.unwrap().path()) {
        if fs::metadata(&arena).unwrap().len() > 1_000_000 {
            fs::remove_file(arena).unwrap();
        }
    }
    fs::remove_file(tree.join("photo")).unwrap();
    fs::write(tree.join("surplus"), "x").unwrap();
    let words = ["restore", "latest", "--in-place", "--delete", "--replica"].map(OsStr::new);
    let run = world.run(words.into_iter().chain([replica.as_os_str()]));
    run.exits(3).warns("because it holds the repository or its cache");
    assert_eq!(fs::read(tree.join("photo")).unwrap(), noise(2, 2_000_000));
    assert!(!tree.join("surplus").exists());
    // Nor where no option names it.
    world.say("repair").exits(4);
    world.say("restore latest --in-place --delete").warns("because it holds the repository");
    run_in(&world, &replica, &["verify".as_ref(), "--data".as_ref()]).exits(0);
    // Nor is it stored.
    let before = bytes_below(&world.repository());
    world.run(["backup".as_ref(), tree.as_os_str()]);
    assert!(bytes_below(&world.repository()) < before + 2_300_000, "it stores its replica");
    for words in ["replicate", "audit"] {
        let refused = world.run([words.as_ref(), world.repository().as_os_str()]);
        refused.exits(1).warns("is the repository itself");
    }
    let own = world.repository();
    world.run(["repair".as_ref(), "--from".as_ref(), own.as_os_str()]).exits(1).warns("itself");
}

/// A disk that is mounted on a directory that was empty, and what is on it, is no surplus.
#[test]
fn what_is_mounted_later_is_no_surplus() {
    if skipped("mounted later", (!is_root()).then_some("only root may mount")) {
        return;
    }
    let world = World::with_repository();
    let (tree, disk) = (world.tree(), world.tree().join("disk"));
    fs::create_dir_all(disk.join("inner")).unwrap();
    fs::write(tree.join("file"), "good").unwrap();
    world.run(["backup".as_ref(), tree.as_os_str()]).exits(0);
    fs::remove_dir_all(&disk).unwrap();
    let mounted = Disk::mount(&disk, "4M");
    assert!(mounted.is_some(), "tmpfs cannot be mounted");
    fs::create_dir(disk.join("inner")).unwrap();
    for name in ["precious", "inner/precious"] {
        fs::write(disk.join(name), "precious").unwrap();
    }
    fs::write(tree.join("file"), "bad").unwrap();
    fs::write(tree.join("surplus"), "x").unwrap();
    world.say("restore latest --in-place --delete -n").exits(0).says("1 would be deleted");
    let run = world.say("restore latest --in-place --delete").exits(3);
    run.says("1 deleted").warns("a file system is mounted there that was not");
    for name in ["precious", "inner/precious"] {
        assert_eq!(fs::read(disk.join(name)).unwrap(), b"precious");
    }
    assert_eq!(fs::read(tree.join("file")).unwrap(), b"good");
    // What was mounted when it was backed up is removed as ever.
    world.run(["backup".as_ref(), tree.as_os_str()]).exits(0);
    fs::write(disk.join("surplus"), "x").unwrap();
    world.say("restore latest --in-place --delete").exits(0).says("1 deleted");
    assert!(disk.join("precious").exists() && !disk.join("surplus").exists());
}

/// `/home` is a link to where the homes are. A restore in place must not put a directory there.
#[test]
fn a_link_above_what_was_backed_up_stays() {
    let world = World::with_repository();
    let (real, home) = (world.path("srv/home"), world.path("home"));
    for name in ["me", "other"] {
        fs::create_dir_all(real.join(name)).unwrap();
        fs::write(real.join(name).join("file"), "good").unwrap();
    }
    symlink("srv/home", &home).unwrap();
    let spelt = |slash: &str| format!("{}{slash}", home.display());
    for (path, beyond) in [(spelt("/me"), home.join("me")), (spelt("/"), home.clone())] {
        world.run(["backup", &path]).exits(0);
        for options in [vec!["-n"], vec![], vec!["--delete"]] {
            fs::write(real.join("me/file"), "bad").unwrap();
            let words = ["restore", "latest", "--in-place"].into_iter().chain(options.clone());
            let run = world.run(words).warns("it is a symbolic link. Restore the path beyond it");
            assert_eq!(run.code, Some(if options == ["-n"] { 0 } else { 3 }), "{run:?}");
            assert!(home.is_symlink() && real.join("other/file").exists(), "{path}, {options:?}");
            assert_eq!(fs::read(real.join("me/file")).unwrap(), b"bad");
        }
        // As the hint says.
        let what = format!("latest:{}", beyond.display());
        world.run(["restore", &what, "--in-place"]).exits(0);
        assert_eq!(fs::read(real.join("me/file")).unwrap(), b"good", "{what}");
        assert!(home.is_symlink());
    }
}
