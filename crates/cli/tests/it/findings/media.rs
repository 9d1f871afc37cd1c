//! A medium that fails, and objects that an attacker planted.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use strongroom_testkit::Random;

use crate::mount::{cannot_mount, mounted_by};
use crate::world::{Run, World, skipped};

/// Two snapshots of a large file that does not compress and a few small ones.
fn world() -> World {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    let mut random = Random::new(3);
    fs::write(world.tree().join("large"), random.noise(3 << 20)).unwrap();
    fs::write(world.tree().join("small"), "one").unwrap();
    world.backup().exits(0);
    fs::write(world.tree().join("small"), "two").unwrap();
    world.backup().exits(0);
    world
}

fn objects(world: &World, folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(world.repository().join(folder)).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn by_size(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort_by_key(|path| path.metadata().unwrap().len());
    paths
}

/// The bytes of a file that the medium refuses.
struct Bad {
    what: &'static str,
    path: PathBuf,
    range: std::ops::Range<u64>,
}

/// Compiles what makes reads fail.
pub fn shim(world: &World) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/findings/refuses.c");
    let shim = world.path("refuses.so");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(source).arg("-ldl");
    assert!(compile.status().unwrap().success());
    shim
}

fn run_refusing(world: &World, shim: &Path, bad: &Bad, words: &[OsString]) -> Run {
    Run::of(refusing(world, shim, bad, words).output().unwrap())
}

fn refusing(world: &World, shim: &Path, bad: &Bad, words: &[OsString]) -> Command {
    let mut command = world.command(words);
    command
        .env("LD_PRELOAD", shim)
        .env("BAD_INODE", bad.path.metadata().unwrap().ino().to_string())
        .env("BAD_FROM", bad.range.start.to_string())
        .env("BAD_TO", bad.range.end.to_string());
    command
}

/// What is refused, by kind of object. The data arena's sector is within what parity gives back.
fn bad_objects(world: &World) -> Vec<Bad> {
    let arenas = by_size(objects(world, "arenas"));
    let data = arenas.last().unwrap().clone();
    let middle = data.metadata().unwrap().len() / 2 / 4096 * 4096;
    let snapshots = objects(world, "snapshots");
    // The older one: it was written first.
    let old = snapshots.iter().min_by_key(|path| path.metadata().unwrap().modified().unwrap());
    let all = 0..u64::MAX / 2;
    vec![
        Bad { what: "a sector of data", path: data.clone(), range: middle..middle + 4096 },
        Bad { what: "all data", path: data, range: all.clone() },
        Bad { what: "metadata", path: arenas[0].clone(), range: all.clone() },
        Bad { what: "an old snapshot", path: old.unwrap().clone(), range: all.clone() },
        Bad { what: "config", path: world.repository().join("config"), range: all.clone() },
        Bad { what: "a key slot", path: objects(world, "keys")[0].clone(), range: all },
    ]
}

/// Nothing that a medium refuses ends a verb: what is whole is handled, the rest is named.
#[test]
fn trial_03_a_bad_sector_ends_no_verb() {
    let world = world();
    let shim = shim(&world);
    let target = world.path("target");
    let tree = world.tree();
    let verbs: Vec<Vec<OsString>> = [
        "snapshots",
        "ls latest",
        "find small",
        "stats",
        "diff latest~1 latest",
        "verify",
        "verify --data",
        "repair --dry-run",
        "dump --format tar latest",
    ]
    .iter()
    .map(|words| words.split(' ').map(OsString::from).collect())
    .chain([
        vec!["restore".into(), "latest".into(), "--target".into(), target.clone().into()],
        vec!["backup".into(), "--force".into(), tree.into()],
    ])
    .collect();
    for bad in bad_objects(&world) {
        for words in &verbs {
            let _ = fs::remove_dir_all(&target);
            let run = run_refusing(&world, &shim, &bad, words);
            let what = format!("{}: {words:?}: {}\n{}", bad.what, run.out, run.err);
            assert!(matches!(run.code, Some(0 | 3 | 4)), "{:?}: {what}", run.code);
            if words[0] == "verify" && (words.len() == 2 || bad.what != "a sector of data") {
                assert_eq!(run.code, Some(4), "{what}");
                let name = bad.path.file_name().unwrap().to_str().unwrap();
                assert!(format!("{}{}", run.out, run.err).contains(name), "{what}");
            }
        }
    }
}

/// Every file below a directory that cannot be read, as the mount answers.
fn unreadable_below(path: &Path) -> Vec<(PathBuf, Option<i32>)> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return vec![(path.to_owned(), error.raw_os_error())],
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = match entry {
            Ok(entry) => entry.path(),
            Err(error) => {
                found.push((path.to_owned(), error.raw_os_error()));
                break;
            }
        };
        if path.is_symlink() {
            continue;
        } else if path.is_dir() {
            found.append(&mut unreadable_below(&path));
        } else if let Err(error) = fs::read(&path) {
            found.push((path, error.raw_os_error()));
        }
    }
    found
}

/// What the medium refuses is an error of the file that needs it, and is named once; all else is
/// read.
#[test]
fn engine_22_a_mount_over_a_medium_that_refuses_names_what_it_costs() {
    if skipped("a mount", cannot_mount()) {
        return;
    }
    let world = world();
    let shim = shim(&world);
    for (number, bad) in bad_objects(&world).iter().enumerate() {
        let folder = world.path(&format!("mnt{number}"));
        let words = ["--json".into(), "mount".into(), folder.clone().into()];
        let mut command = refusing(&world, &shim, bad, &words);
        let (child, said) = mounted_by(&mut command, &folder);
        let lost = unreadable_below(&folder.join("ids"));
        assert_eq!(unreadable_below(&folder.join("ids")), lost, "{}: each time", bad.what);
        let snapshots = fs::read_dir(folder.join("ids")).unwrap().count();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let run = World::finish(child);
        let what = format!("{}: {lost:?}\n{said}{}\n{}", bad.what, run.out, run.err);
        let unlisted = said.lines().filter(|line| line.contains("is not shown")).count();
        assert_eq!(unlisted + snapshots, 2, "{what}");
        assert!(lost.iter().all(|(_, errno)| *errno == Some(5)), "EIO alone: {what}");
        for (path, _) in &lost {
            let inside: PathBuf = path.components().skip(1 + folder.components().count()).collect();
            let id = inside.iter().next().unwrap().to_str().unwrap();
            let about = format!("in snapshot {id}: ");
            let name = format!("\"path\":\"/{}\"", inside.strip_prefix(id).unwrap().display());
            let named =
                run.out.lines().filter(|line| line.contains(&about) && line.contains(&name));
            assert_eq!(named.count(), 1, "{}: {what}", path.display());
        }
        // The first version of "small" is in the smaller arena of data.
        let expected = match bad.what {
            "all data" => (2, 3),
            "metadata" => (2, 1),
            "an old snapshot" => (1, 0),
            _ => (2, 0),
        };
        assert_eq!((snapshots, lost.len()), expected, "{what}");
    }
}

/// A sector is a lost shard like any other: what it held is restored, and `repair` writes the
/// object again, elsewhere.
#[test]
fn trial_03_parity_gives_back_what_a_bad_sector_held() {
    let world = world();
    let shim = shim(&world);
    let bad = bad_objects(&world).swap_remove(0);
    let target = world.path("target");
    let words =
        ["restore".into(), world.of("latest").into(), "--target".into(), target.clone().into()];
    run_refusing(&world, &shim, &bad, &words).exits(0);
    strongroom_testkit::assert_same(&world.tree(), &target);
    let before = bad.path.metadata().unwrap().ino();
    run_refusing(&world, &shim, &bad, &["repair".into()]).exits(0).says("1 repaired");
    assert_ne!(bad.path.metadata().unwrap().ino(), before, "it was not written again");
    world.say("verify --data").exits(0);
}

/// What a medium refuses today it may give tomorrow, or to another computer: nothing is put in its
/// place unless some of it was saved. Meanwhile the next backup stores again what is needed.
#[test]
fn trial_03_a_repair_leaves_what_the_medium_refuses() {
    let world = world();
    let shim = shim(&world);
    let Bad { path, .. } = bad_objects(&world).swap_remove(1);
    let bytes = fs::read(&path).unwrap();
    // All blocks of the arena, but not its summary.
    let bad = Bad { what: "all blocks", path, range: 4096..u64::MAX / 2 };
    let words = ["backup", "--force", world.tree().to_str().unwrap()].map(OsString::from);
    let before = strongroom_testkit::Image::of(&world.tree());
    run_refusing(&world, &shim, &bad, &["repair".into()]).exits(4);
    assert!(fs::read(&bad.path).unwrap() == bytes, "it was replaced");
    run_refusing(&world, &shim, &bad, &words).exits(0);
    let target = world.path("target");
    let words =
        ["restore".into(), world.of("latest").into(), "--target".into(), target.clone().into()];
    run_refusing(&world, &shim, &bad, &words).exits(0);
    before.assert_same(&strongroom_testkit::Image::of(&target), "healed");
    world.say("verify --data").exits(0);
}

/// A directory in the place of an object is damage to that object alone.
#[test]
fn trial_03_a_directory_in_the_place_of_an_object_ends_no_verb() {
    let world = world();
    for folder in ["arenas", "snapshots", "keys"] {
        let path = by_size(objects(&world, folder)).remove(0);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        for words in ["snapshots", "find small", "stats"] {
            let run = world.say(words);
            assert!(matches!(run.code, Some(0 | 3 | 4)), "{folder}: {words}: {run:?}");
        }
        for words in ["verify", "verify --data", "repair"] {
            world.say(words).exits(4);
        }
        assert!(path.is_dir(), "{folder}");
        fs::remove_dir(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        world.say("verify --data").exits(0);
    }
}

/// The header of an object: it is at both ends, and its last four bytes are its checksum.
fn header_bytes(object: &[u8]) -> usize {
    let is_header = |length: &usize| {
        let (header, checksum) = object[..*length].split_at(length - 4);
        object.ends_with(&object[..*length]) && crc32c::crc32c(header).to_le_bytes() == checksum
    };
    (64..256).find(is_header).expect("an object begins with a header")
}

/// The bytes of one object, relabelled as another: anybody who may create can make them.
fn relabelled(object: &[u8], as_object: &[u8]) -> Vec<u8> {
    let length = header_bytes(object);
    let mut forged = object.to_vec();
    let end = forged.len() - length;
    for at in [0, end] {
        let header = &mut forged[at..at + length];
        header[10] = as_object[10];
        header[16..32].copy_from_slice(&as_object[16..32]);
        let checksum = crc32c::crc32c(&header[..length - 4]);
        header[length - 4..].copy_from_slice(&checksum.to_le_bytes());
    }
    forged
}

/// A writer that may only create objects cannot make `repair` destroy what is whole.
#[test]
fn engine_01_a_planted_copy_replaces_nothing() {
    let world = world();
    let config = fs::read(world.repository().join("config")).unwrap();
    let mut before = Vec::new();
    for folder in ["arenas", "snapshots"] {
        for path in objects(&world, folder) {
            let bytes = fs::read(&path).unwrap();
            let copy = format!("{}.copy", path.display());
            fs::write(copy, relabelled(&config, &bytes)).unwrap();
            before.push((path, bytes));
        }
    }
    world.say("verify").exits(0);
    world.say("repair").exits(0);
    for (path, bytes) in before {
        assert!(fs::read(&path).unwrap() == bytes, "{} was replaced", path.display());
    }
    strongroom_testkit::assert_same(&world.tree(), &world.restored(&world.of("latest")));
}

/// Parity comes first: what is under another's name never replaces what parity makes whole.
#[test]
fn engine_01_a_planted_stand_in_never_comes_before_parity() {
    let world = world();
    let config = fs::read(world.repository().join("config")).unwrap();
    let victim = by_size(objects(&world, "arenas")).pop().unwrap();
    let bytes = fs::read(&victim).unwrap();
    let file = victim.file_name().unwrap().to_str().unwrap();
    let other = if file.starts_with('0') { "1" } else { "0" };
    let stand_in = victim.with_file_name(format!("{other}{}", &file[1..]));
    fs::write(&stand_in, relabelled(&config, &bytes)).unwrap();
    let mut scratched = bytes.clone();
    scratched[bytes.len() / 2] ^= 1;
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&victim, scratched).unwrap();
    world.say("repair").exits(4);
    assert!(fs::read(&victim).unwrap() == bytes, "parity was there");
}

/// A vast object of any kind is one damaged object.
#[test]
fn engine_08_a_vast_object_ends_no_verb() {
    let world = world();
    for folder in ["arenas", "snapshots", "sessions", "keys"] {
        let model = objects(&world, if folder == "sessions" { "snapshots" } else { folder });
        let file = model[0].file_name().unwrap().to_str().unwrap();
        let other = if file.starts_with('0') { "1" } else { "0" };
        let name = format!("{other}{}", &file[1..]);
        let path = world.repository().join(folder).join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::File::create(&path).unwrap().set_len(2 << 40).unwrap();
        world.backup().exits(0);
        assert!(matches!(world.say("snapshots").code, Some(0 | 4)));
        for words in ["verify", "verify --data", "repair --dry-run", "repair"] {
            let run = world.say(words);
            let named = format!("{}{}", run.out, run.err).contains(&name);
            assert!(matches!(run.code, Some(0 | 4)) && named, "{folder}: {words}: {run:?}");
        }
        // What cannot be read may be a newer snapshot.
        let latest = world.say("ls latest").exits(0);
        assert_eq!(latest.err.contains("may be newer"), path.exists() && folder == "snapshots");
        let ids = world.say("--json snapshots").events("snapshot");
        let id = ids.last().unwrap()["id"].as_str().unwrap();
        strongroom_testkit::assert_same(&world.tree(), &world.restored(&world.of(id)));
        // A repair takes away what nothing needs.
        let _ = fs::remove_file(&path);
        let _ = fs::remove_file(world.repository().join(folder).join(format!("{name}.copy")));
    }
}

/// The objects that everything hangs on are there twice.
#[test]
fn engine_08_a_vast_configuration_or_key_slot_is_named_and_mended() {
    let world = world();
    let slot = objects(&world, "keys")[0].file_name().unwrap().to_str().unwrap().to_owned();
    let slot = slot.trim_end_matches(".copy");
    let names = [
        "config".to_owned(),
        "config.copy".to_owned(),
        format!("keys/{slot}"),
        format!("keys/{slot}.copy"),
    ];
    for name in names {
        let path = world.repository().join(&name);
        let right = fs::read(&path).unwrap();
        fs::write(&path, b"").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(2 << 40).unwrap();
        assert!(matches!(world.backup().code, Some(0)), "{name}");
        for words in ["verify", "verify --data", "repair --dry-run", "repair"] {
            let run = world.say(words);
            let named = format!("{}{}", run.out, run.err).contains(&name);
            assert!(matches!(run.code, Some(0 | 4)) && named, "{name}: {words}: {run:?}");
        }
        assert!(fs::read(&path).unwrap() == right, "{name}");
        world.say("verify").exits(0);
    }
}

/// `find` and `ls` ended at the first directory that they could not read.
#[test]
fn trial_03_a_lost_directory_ends_no_search_and_no_list() {
    let world = World::with_repository();
    fs::create_dir_all(world.tree().join("lost")).unwrap();
    fs::write(world.tree().join("lost/inside.txt"), "one").unwrap();
    world.backup().exits(0);
    let before = objects(&world, "arenas");
    fs::write(world.tree().join("kept.txt"), "two").unwrap();
    world.backup().exits(0);
    for arena in before {
        fs::remove_file(arena).unwrap();
    }
    let lost = "some entries of this directory are lost";
    world.say("find *.txt").exits(4).says("kept.txt").warns(lost);
    world.say("ls -R latest").exits(4).says("kept.txt").warns(lost);
    world.say("stats --snapshots").exits(4);
}
