//! A life with backups, from the first day to the lost disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use strongroom_testkit::tree::{TreeOptions, mutate};
use strongroom_testkit::{Image, assert_same, compare};

use crate::world::World;

#[test]
fn from_the_first_backup_to_the_lost_disk() {
    let world = World::with_tree(1);
    let first = Image::of(&world.tree());
    world.backup().exits(0).says("snapshot ").says("the repository grew by");
    mutate(&world.tree(), 2, TreeOptions::default());
    let second = Image::of(&world.tree());
    world.backup().exits(0).says("unchanged");

    let list = world.say("snapshots").exits(0);
    assert_eq!(list.out.lines().count(), 3, "{}", list.out);
    world.say("verify --data").exits(0).says("no damage was found");

    // The whole, a part, and the day before.
    let whole = world.restored("latest");
    let inside = whole.join(world.tree().strip_prefix("/").unwrap());
    Image::of(&inside).assert_same(&second, "the whole snapshot");
    Image::of(&world.restored(&world.of("latest"))).assert_same(&second, "what is in the tree");
    Image::of(&world.restored(&world.of("latest~1"))).assert_same(&first, "the day before");

    // The disk is gone.
    fs::remove_dir_all(world.tree()).unwrap();
    world.say("restore latest --in-place").exits(0);
    Image::of(&world.tree()).assert_same(&second, "in place");
    world.say("restore latest --in-place").exits(0).says("0 B written");
    world.say("restore latest~1 --in-place --delete").exits(0);
    Image::of(&world.tree()).assert_same(&first, "back to the day before");
}

#[test]
fn nothing_is_written_by_a_dry_run() {
    let world = World::with_tree(3);
    world.say(&format!("backup --dry-run {}", world.tree().display())).exits(0).says("dry run");
    world.say("snapshots").exits(0).warns("there are no snapshots yet");
    world.backup().exits(0);
    let target = world.path("nowhere");
    let words = format!("restore latest --dry-run --target {}", target.display());
    world.say(&words).exits(0).says("would restore");
    assert!(!target.exists());
}

#[test]
fn a_stream_is_stored_and_read_back() {
    let world = World::with_repository();
    let text = "line\n".repeat(100_000);
    world.feed("backup --stdin dump.sql", text.as_bytes()).exits(0);
    let run = world.say("cat latest:dump.sql").exits(0);
    assert!(run.bytes == text.as_bytes());
    // Programs that make the stream may end early; nothing is a stream too.
    world.feed("backup --stdin empty", b"").exits(3).warns("it is empty");
    assert!(world.say("cat latest:empty").exits(0).bytes.is_empty());
}

#[test]
fn what_is_excluded_stays_out() {
    let world = World::with_repository();
    let tree = world.tree();
    for (path, text) in [
        ("keep/a.txt", "a"),
        ("keep/b.log", "b"),
        ("cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n"),
        ("cache/object", "object"),
        ("skip/.nobackup", ""),
        ("skip/file", "file"),
        ("patterns/x.tmp", "x"),
        ("large", &"x".repeat(5000)),
    ] {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let patterns = world.path("patterns.txt");
    fs::write(&patterns, "*.tmp\n").unwrap();
    let words = format!(
        "backup --exclude *.log --exclude-file {} --exclude-if-present .nobackup \
         --exclude-caches --exclude-larger-than 4KiB {}",
        patterns.display(),
        tree.display()
    );
    world.say(&words).exits(0).says("excluded");
    let list = world.say(&format!("ls -R {}", world.of("latest"))).exits(0).out;
    for kept in ["keep/a.txt", "cache/", "CACHEDIR.TAG", "skip/"] {
        assert!(list.contains(kept), "{kept} is not in\n{list}");
    }
    for gone in ["b.log", "object", "skip/file", "x.tmp", "large"] {
        assert!(!list.contains(gone), "{gone} is in\n{list}");
    }
}

#[test]
fn the_first_backup_makes_the_repository() {
    let world = World::empty();
    fs::create_dir(world.tree()).unwrap();
    fs::write(world.tree().join("file"), "text").unwrap();
    let words = format!("backup --init --kdf-memory 32KiB {}", world.tree().display());
    world.say(&words).exits(0).says("created repository").warns("Store the passphrase");
    let again = world.say(&words).exits(0);
    assert!(!again.out.contains("created repository"));
    assert_same(&world.tree(), &world.restored(&world.of("latest")));
}

#[test]
fn keys_come_and_go() {
    let world = World::with_tree(4);
    world.backup().exits(0);
    let file = |name: &str, text: &str| {
        let path = world.path(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let second = file("second", "second passphrase\r\nand a line that does not count\n");
    let third = file("third", "third passphrase");
    let add = format!("key add --label office --new-password-file {second} --kdf-memory 8MiB");
    world.say(&add).exits(0).says("key added");
    let list = world.say(&format!("key list --password-file {second}")).exits(0);
    assert!(list.out.contains("office") && list.out.lines().count() == 3, "{}", list.out);
    let change = format!(
        "key change --password-file {second} --new-password-file {third} --kdf-memory 8MiB"
    );
    world.say(&change).exits(0).says("key changed");
    world.say(&format!("snapshots --password-file {second}")).exits(5).warns("passphrase");
    world.say(&format!("snapshots --password-file {third}")).exits(0);
    world.say(&format!("snapshots --password-command cat<{third}")).exits(0);

    let keys = world.say("key list").exits(0).out;
    let used = keys.lines().find_map(|line| line.split_once('*')).unwrap().0.to_owned();
    world.say(&format!("key remove --password-file {third} {used}")).exits(0).says("key removed");
    world.say("snapshots").exits(5);
    let keys = world.say(&format!("key list --password-file {third}")).exits(0).out;
    let last = keys.lines().find_map(|line| line.split_once('*')).unwrap().0.to_owned();
    let remove = format!("key remove --password-file {third} {last}");
    world.say(&remove).exits(1).warns("add another key first");
}

#[test]
fn a_machine_has_a_passphrase_of_its_own() {
    let world = World::with_tree(6);
    let file = world.path("machine");
    let generate = format!("key generate {}", file.display());
    world.say(&generate).exits(0).says("--new-password-file").warns("Store the passphrase");
    let passphrase = fs::read_to_string(&file).unwrap();
    assert!(passphrase.starts_with("strongroom-key-") && passphrase.ends_with('\n'));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    world.say(&generate).exits(1).warns("does not exist yet");
    assert_eq!(fs::read_to_string(&file).unwrap(), passphrase, "it was not written over");
    let file = file.display();
    world.say(&format!("key add --label machine --new-password-file {file}")).exits(0);
    let backup = format!("backup --password-file {file} {}", world.tree().display());
    world.say(&backup).exits(0);
    assert!(compare(&world.tree(), &world.restored(&world.of("latest"))).is_empty());
}

#[test]
fn a_key_that_only_stores_reads_nothing() {
    let world = World::with_tree(5);
    let file = world.path("put");
    fs::write(&file, "put only").unwrap();
    let file = file.display();
    let add = format!("key add --put-only --new-password-file {file} --kdf-memory 8MiB");
    world.say(&add).exits(0);
    let backup = format!("backup --password-file {file} {}", world.tree().display());
    world.say(&backup).exits(0);
    world.say(&format!("ls --password-file {file} latest")).exits(1).warns("hint: ");
    assert!(compare(&world.tree(), &world.restored(&world.of("latest"))).is_empty());
}
