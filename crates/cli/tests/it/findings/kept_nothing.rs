//! A backup of nothing is no success, and a unit that means other things elsewhere is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::runs::{say, with_profile};
use crate::world::{Run, World, has_program, is_root, program, skipped};

/// A night that may remove what it can.
const NIGHT: &str = r#"
[default.backup]
paths = ["~/tree"]
[default.forget]
keep-last = 1
[default.prune]
max-unused = 0
"#;

fn files(world: &World, snapshot: &str) -> usize {
    let listed = world.run(["--json", "ls", "--recursive", snapshot]).exits(0);
    listed.events("entry").iter().filter(|entry| entry["kind"] == "file").count()
}

fn snapshots(world: &World) -> usize {
    world.say("--json snapshots").exits(0).events("snapshot").len()
}

fn empty(folder: &Path) {
    fs::remove_dir_all(folder).unwrap();
    fs::create_dir(folder).unwrap();
}

/// Home folders of many hosts are below a directory that may be searched and not listed.
#[test]
fn kept_1_4_a_home_below_a_directory_that_may_only_be_searched_is_stored() {
    let cannot = (!is_root() || !has_program("setpriv")).then_some("setpriv is for root");
    if skipped("another user", cannot) {
        return;
    }
    let world = World::with_repository();
    let home = world.path("home");
    let anna = home.join("anna");
    fs::create_dir_all(anna.join("deep")).unwrap();
    fs::write(anna.join("deep/letter"), "Dear all").unwrap();
    let copy = world.path("strongroom");
    fs::copy(program(), &copy).unwrap();
    fs::create_dir(world.path("cache")).unwrap();
    let owned = [world.repository(), world.path("cache"), anna.clone()];
    let owner = Command::new("chown").args(["-R", "65534:65534"]).args(owned).status();
    assert!(owner.unwrap().success());
    for folder in [world.folder.path(), &home] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o711)).unwrap();
    }
    let by_anna = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&copy).args(words);
        world.surround(&mut command);
        Run::of(command.current_dir(&anna).output().unwrap())
    };
    let path = anna.to_str().unwrap();
    by_anna(&["backup", path]).exits(0).says("1 file");
    by_anna(&["backup", "."]).exits(0).says("1 unchanged");
    by_anna(&["backup", &format!("{path}/deep/letter")]).exits(0).says("1 file");
    by_anna(&["diff", "latest~1", "--with", path]).exits(0);
    fs::remove_dir_all(anna.join("deep")).unwrap();
    by_anna(&["restore", "latest~1", "--in-place"]).exits(0);
    assert_eq!(fs::read(anna.join("deep/letter")).unwrap(), b"Dear all");
    by_anna(&["restore", "latest~1", "--target", &format!("{path}/back")]).exits(0);
    // What is asked for and cannot be reached at all leaves nothing.
    fs::set_permissions(&anna, fs::Permissions::from_mode(0o700)).unwrap();
    let owner = Command::new("chown").args(["0:0"]).arg(&anna).status();
    assert!(owner.unwrap().success());
    let count = || by_anna(&["--json", "snapshots"]).exits(0).events("snapshot").len();
    let before = count();
    by_anna(&["backup", path]).exits(1).warns("Permission denied").warns("nothing is backed up");
    assert_eq!(count(), before);
    assert_eq!(fs::read_dir(world.repository().join("sessions")).unwrap().count(), 0);
    fs::write(world.path("open"), "open").unwrap();
    let open = world.path("open");
    by_anna(&["backup", path, open.to_str().unwrap()]).exits(3).warns("Permission denied");
    assert_eq!(count(), before + 1);
}

/// The mount is gone for some nights: nothing that was good goes, until the owner says so.
#[test]
fn kept_1_4_nights_without_the_mount_remove_nothing() {
    let world = with_profile(NIGHT);
    say(&world, "run").exits(0);
    let good = files(&world, "latest");
    assert!(good > 0);
    empty(&world.tree());
    for night in 1..=3 {
        let run = say(&world, "run").exits(3);
        assert!(run.out.contains("left out: the backup is doubtful"), "{night}: {}", run.out);
        assert!(run.err.contains("it is empty, and was not at the last backup"), "{}", run.err);
        let status = say(&world, "status --json").exits(3).summary();
        assert_eq!(status["state"], "warning");
        assert_eq!(status["last_run"]["steps"][0]["outcome"], "doubtful");
        let time = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        assert!(time(&status["last_good_backup"]) < time(&status["last_run"]["started"]));
    }
    // By hand neither.
    world.say("forget --keep-last 1").exits(3).warns("far fewer files").says("keep: frozen");
    world.say("prune --max-unused 0").exits(0);
    assert_eq!(files(&world, "latest~3"), good);
    // It is meant so: one word, and all is as it was.
    world.say("forget --accept latest").exits(0);
    say(&world, "run").exits(0);
    assert_eq!((snapshots(&world), files(&world, "latest")), (1, 0));
    say(&world, "status").exits(0);
    say(&world, "run").exits(0);
}

/// One of two sources is gone, and it is the smaller: no count of files shows that.
#[test]
fn kept_1_4_one_source_of_two_that_is_gone_costs_none_of_its_files() {
    let world = World::with_tree(1);
    let little = world.path("little");
    fs::create_dir(&little).unwrap();
    fs::write(little.join("key"), "secret").unwrap();
    let (tree, little) = (world.tree(), little.to_str().unwrap().to_owned());
    let backup = || world.run(["backup", tree.to_str().unwrap(), &little]);
    backup().exits(0);
    empty(Path::new(&little));
    for _ in 0..3 {
        backup().exits(3).warns("little").warns("it is empty, and was not at the last backup");
        world.say("forget --keep-last 1").exits(0).says("lacks a source, and none follows");
        world.say("prune --max-unused 0").exits(0);
    }
    world.say(&format!("cat latest~3:{little}/key")).exits(0).says("secret");
    world.say("forget --accept latest").exits(0);
    backup().exits(0);
    world.say("forget --keep-last 1").exits(0).says("forgotten");
    assert_eq!(snapshots(&world), 1);
}

/// A source that is gone for a night, and then has a file that something has written below the mount
/// point: it is still missing, until what was in it is there again.
#[test]
fn a_file_below_an_empty_mount_point_brings_nothing_back() {
    let world = World::with_tree(2);
    let disk = world.path("disk");
    fs::create_dir(&disk).unwrap();
    for number in 0..3 {
        fs::write(disk.join(format!("of the disk {number}")), "content").unwrap();
    }
    let (tree, of_disk) = (world.tree(), disk.to_str().unwrap().to_owned());
    let backup = || world.run(["backup", tree.to_str().unwrap(), &of_disk]);
    let forget = || {
        world.say("forget --keep-last 1").exits(0);
        world.say("prune --max-unused 0").exits(0);
    };
    backup().exits(0);
    let away = world.path("away");
    for is_empty_first in [true, false] {
        fs::rename(&disk, &away).unwrap();
        fs::create_dir(&disk).unwrap();
        if is_empty_first {
            backup().exits(3).warns("it is empty, and was not at the last backup");
        }
        fs::write(disk.join("log"), "written by a service").unwrap();
        for _ in 0..3 {
            backup().exits(3).warns("most of what was in it is not there any more");
            forget();
        }
        world.run(["find", "of the disk 1"]).exits(0).says("of the disk 1");
        fs::remove_dir_all(&disk).unwrap();
        fs::rename(&away, &disk).unwrap();
        backup().exits(0);
        forget();
        assert_eq!(snapshots(&world), 1, "it is whole again");
    }
    // It is meant so.
    fs::rename(&disk, &away).unwrap();
    fs::create_dir(&disk).unwrap();
    fs::write(disk.join("log"), "").unwrap();
    backup().exits(3);
    world.say("forget --accept latest").exits(0);
    backup().exits(0);
}

/// A mount below a source that is gone, with files below its mount point or without.
#[test]
fn a_mount_below_a_source_that_is_gone_costs_none_of_its_files() {
    if skipped("a mount", (!is_root()).then_some("only root mounts")) {
        return;
    }
    for is_empty in [true, false] {
        let world = with_profile(NIGHT);
        let mount = world.tree().join("mount");
        fs::create_dir(&mount).unwrap();
        if !is_empty {
            fs::write(mount.join("below"), "the mount").unwrap();
        }
        let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&mount).status();
        assert!(mounted.unwrap().success());
        for number in 0..3 {
            fs::write(mount.join(format!("of the mount {number}")), "content").unwrap();
        }
        say(&world, "run").exits(0);
        assert!(Command::new("umount").arg(&mount).status().unwrap().success());
        for night in 1..=3 {
            let run = say(&world, "run").exits(3);
            assert!(run.out.contains("left out: the backup is doubtful"), "{night}: {}", run.out);
            assert_eq!(snapshots(&world), 1 + night);
        }
        world.say("forget --accept latest").exits(0);
        say(&world, "run").exits(0);
        say(&world, "run").exits(0);
    }
}

/// The same, with the directory that it was mounted at gone too, as that of a ZFS without its key.
#[test]
fn a_mount_that_is_gone_with_its_directory_costs_none_of_its_files() {
    if skipped("a mount", (!is_root()).then_some("only root mounts")) {
        return;
    }
    let world = with_profile(NIGHT);
    let [mount, other] = ["mount", "other"].map(|name| world.tree().join(name));
    for directory in [&mount, &other] {
        fs::create_dir(directory).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(directory).status();
        assert!(mounted.unwrap().success());
        for number in 0..3 {
            fs::write(directory.join(format!("of the mount {number}")), "content").unwrap();
        }
    }
    let unmount = |directory: &Path| {
        assert!(Command::new("umount").arg(directory).status().unwrap().success());
        fs::remove_dir(directory).unwrap();
    };
    say(&world, "run").exits(0);
    unmount(&mount);
    for night in 1..=3 {
        let run = say(&world, "run").exits(3).warns("what was mounted there at the last backup");
        assert!(run.out.contains("left out: the backup is doubtful"), "{night}: {}", run.out);
        assert_eq!(snapshots(&world), 1 + night);
        // It is not what it was, and is not the mount either.
        fs::write(world.tree().join(format!("new {night}")), "content").unwrap();
    }
    fs::create_dir(&mount).unwrap();
    for number in 0..3 {
        fs::write(mount.join(format!("of the mount {number}")), "content").unwrap();
    }
    say(&world, "run").exits(0);
    assert_eq!(snapshots(&world), 1, "it is there again");
    unmount(&other);
    say(&world, "run").exits(3);
    world.say("forget --accept latest").exits(0);
    say(&world, "run").exits(0);
    // A directory that was no mount is not missed, nor is what is excluded.
    fs::remove_dir_all(&mount).unwrap();
    say(&world, "run").exits(0);
    fs::create_dir(&other).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&other).status();
    assert!(mounted.unwrap().success());
    fs::write(other.join("file"), "content").unwrap();
    say(&world, "run").exits(0);
    unmount(&other);
    say(&world, "run").exits(3);
    let excluding = NIGHT.replace("paths =", "exclude = [\"other\"]\npaths =");
    crate::runs::write_profile(&world, &excluding);
    say(&world, "run").exits(0);
}

/// Locks and unlocks homes in an image of ext4, as `fscrypt` and `systemd-homed` do.
const FSCRYPT: &str = r#"
import fcntl, os, struct, sys
verb, root, *homes = sys.argv[1:]
fd = os.open(root, os.O_RDONLY)
for number, home in enumerate(homes):
    raw = bytes([number + 1]) * 64
    key = bytearray(struct.pack('<II32sII32s', 2, 0, b'', 64, 0, b'') + raw)
    fcntl.ioctl(fd, 0xC0506617, key)
    name = bytes(key[8:24])
    if verb == 'lock':
        fcntl.ioctl(fd, 0xC0406618, bytearray(struct.pack('<II32sI20s', 2, 0, name, 0, b'')))
    elif verb == 'make':
        os.makedirs(home)
        policy = struct.pack('<BBBBB3s16s', 2, 1, 4, 3, 0, b'', name)
        at = os.open(home, os.O_RDONLY)
        fcntl.ioctl(at, 0x800C6613, policy)
        os.close(at)
"#;

/// A home that is encrypted by its file system is listed without its key, under other names.
#[test]
fn a_home_without_its_key_costs_none_of_its_files() {
    if skipped("a mount", (!is_root()).then_some("only root mounts")) {
        return;
    }
    let world = with_profile(NIGHT);
    let (image, root) = (world.path("image"), world.tree().join("homes"));
    fs::create_dir(&root).unwrap();
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let run = |program: &str, words: &[&std::ffi::OsStr]| {
        let output = Command::new(program).args(words).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let words = |text: &'static str| text.split(' ').map(std::ffi::OsStr::new);
    let make: Vec<_> = words("-q -t ext4 -O encrypt").chain([image.as_os_str()]).collect();
    run("mke2fs", &make);
    let mount: Vec<_> = words("-o loop").chain([image.as_os_str(), root.as_os_str()]).collect();
    run("mount", &mount);
    let [me, other] = ["me", "other"].map(|name| root.join(name));
    let fscrypt = |verb: &'static str, homes: &[&Path]| {
        let mut words = ["-c", FSCRYPT, verb].map(std::ffi::OsStr::new).to_vec();
        words.push(root.as_os_str());
        words.extend(homes.iter().map(|home| home.as_os_str()));
        run("python3", &words);
    };
    fscrypt("make", &[&me, &other]);
    for home in [&me, &other] {
        fs::create_dir_all(home.join("letters/old")).unwrap();
        fs::write(home.join("letters/old/first"), "content").unwrap();
        fs::write(home.join("diary"), "content").unwrap();
    }
    // One is never unlocked at night: that is said, and freezes nothing.
    fscrypt("lock", &[&me, &other]);
    fscrypt("unlock", &[&me]);
    for _ in 0..2 {
        say(&world, "run").exits(3).warns("Required key not available");
        assert_eq!(snapshots(&world), 1);
    }
    fscrypt("lock", &[&me]);
    for night in 1..=3 {
        let said = ["its key is not there", "most of what was in it"][usize::from(night > 1)];
        let run = say(&world, "run").exits(3).warns(said);
        assert!(run.out.contains("left out: the backup is doubtful"), "{night}: {}", run.out);
        assert_eq!(snapshots(&world), 1 + night);
    }
    fscrypt("unlock", &[&me]);
    say(&world, "run").exits(3);
    assert_eq!(snapshots(&world), 1, "it is there again");
    run("umount", &[root.as_os_str()]);
}

/// A directory below a source that cannot be opened any more, and a file that cannot be read: nothing
/// that was good goes, on any night, until they can be read again or the owner says so.
#[test]
fn kept_o6_what_cannot_be_read_any_more_freezes_the_rules() {
    let cannot = (!is_root() || !has_program("setpriv")).then_some("setpriv is for root");
    if skipped("another user", cannot) {
        return;
    }
    // The last may be listed, and says nothing of what is in it.
    for (unreadable, locked, is_removed) in
        [("dir", 0, false), ("dir/file 1", 0, false), ("dir", 0, true), ("dir", 0o400, false)]
    {
        let world = with_profile(NIGHT);
        let tree = world.tree();
        fs::create_dir_all(tree.join("dir")).unwrap();
        // It never could be read, and freezes nothing.
        fs::create_dir_all(tree.join("never/below")).unwrap();
        for number in 0..3 {
            fs::write(tree.join(format!("dir/file {number}")), "content").unwrap();
        }
        let copy = world.path("strongroom");
        fs::copy(program(), &copy).unwrap();
        fs::set_permissions(world.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let owner = ["-hR", "65534:65534"];
        let owned = Command::new("chown").args(owner).arg(world.folder.path()).status();
        assert!(owned.unwrap().success());
        let lock = |path: &Path, is_locked: bool| {
            let mode = if is_locked { locked } else { 0o700 };
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        lock(&tree.join("never"), true);
        let by_user = |words: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
            command.arg(&copy).args(words.split(' '));
            world.surround(&mut command);
            command.env_remove("STRONGROOM_REPOSITORY").env_remove("STRONGROOM_PASSWORD");
            Run::of(command.output().unwrap())
        };
        let kept = || by_user("--json snapshots").exits(0).events("snapshot").len();
        by_user("run").exits(3);
        by_user("run").exits(3);
        assert_eq!(kept(), 1, "the rules are not frozen");
        let whole = files_of(&by_user("--json ls --recursive latest").exits(0));
        lock(&tree.join(unreadable), true);
        for night in 1..=3 {
            let run = by_user("run").exits(3);
            assert!(run.out.contains("left out: the backup is doubtful"), "{night}: {}", run.out);
            let status = by_user("status --json").exits(3).summary();
            assert_eq!(status["last_run"]["steps"][0]["outcome"], "doubtful");
            let time = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
            assert!(time(&status["last_good_backup"]) < time(&status["last_run"]["started"]));
            assert_eq!(kept(), 1 + night);
        }
        by_user("forget --keep-last 1").exits(0).says("lacks a source, and none follows");
        by_user("prune --max-unused 0").exits(0);
        let oldest = by_user("--json ls --recursive latest~3").exits(0);
        assert_eq!(files_of(&oldest), whole);
        match is_removed {
            true => fs::remove_dir_all(tree.join(unreadable)).unwrap(),
            false => lock(&tree.join(unreadable), false),
        }
        by_user("run").exits(3);
        assert_eq!(kept(), 1, "{unreadable}: the rules go on");
        let after = files_of(&by_user("--json ls --recursive latest").exits(0));
        assert_eq!(after == whole, !is_removed);
        // It is meant so.
        if !is_removed {
            lock(&tree.join(unreadable), true);
            by_user("run").exits(3).says("doubtful");
            by_user("forget --accept latest").exits(0);
            by_user("run").exits(3);
            assert_eq!(kept(), 1);
        }
    }
}

fn files_of(listed: &Run) -> usize {
    listed.events("entry").iter().filter(|entry| entry["kind"] == "file").count()
}

/// The first backup of a path that has nothing of what is expected of it.
#[test]
fn kept_o18_a_first_backup_of_nothing_is_said() {
    let make_device = |path: &Path, kind: &str, major: &str| {
        let made = Command::new("mknod").arg(path).args([kind, major, "0"]).status();
        made.is_ok_and(|made| made.success())
    };
    let world = World::with_repository();
    let full = world.path("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("file"), "content").unwrap();
    let named = |name: &str| world.path("sources").join(name);
    fs::create_dir(world.path("sources")).unwrap();
    std::os::unix::fs::symlink(&full, named("link to a folder")).unwrap();
    std::os::unix::fs::symlink(full.join("file"), named("link to a file")).unwrap();
    std::os::unix::fs::symlink("/nonexistent/place", named("dangling link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(named("socket")).unwrap();
    assert!(Command::new("mkfifo").arg(named("pipe")).status().unwrap().success());
    fs::create_dir(named("empty")).unwrap();
    fs::write(named("empty file"), "").unwrap();
    let mut table = vec![
        ("link to a folder", 3, "only the link is stored"),
        ("link to a file", 3, "only the link is stored"),
        ("dangling link", 3, "leads nowhere"),
        ("socket", 3, "has no content"),
        ("pipe", 3, "has no content"),
        ("empty", 0, "it is empty"),
        ("nothing at all", 1, "nothing at all"),
    ];
    for (name, kind, major) in [("block device", "b", "7"), ("character device", "c", "1")] {
        if make_device(&named(name), kind, major) {
            table.push((name, 3, "whose content is not stored"));
        }
    }
    for (name, code, words) in table {
        let path = named(name);
        let before = snapshots(&world);
        // The first time, and each time after it until its owner accepts it.
        for _ in 0..2 {
            let run = world.run(["backup", path.to_str().unwrap()]).exits(code);
            assert!(run.err.contains(words), "{name}: {}", run.err);
        }
        let made = if code == 1 { 0 } else { 2 };
        assert_eq!(snapshots(&world), before + made, "{name}");
        if code == 3 {
            world.say("forget --accept latest").exits(0);
            let run = world.run(["backup", path.to_str().unwrap()]).exits(0);
            assert!(!run.err.contains(words), "{name} was accepted: {}", run.err);
        }
    }
    // With a slash it is the folder.
    let path = format!("{}/", named("link to a folder").display());
    world.run(["backup", &path]).exits(0);
    assert_eq!(files(&world, "latest"), 1);
    world.feed("backup --stdin of-nothing", b"").exits(3).warns("it is empty");
    world.say("forget --accept latest").exits(0);
    world.feed("backup --stdin of-nothing", b"").exits(0);
}

/// A source of which nothing can be read is no success either.
#[test]
fn kept_o18_a_first_backup_in_which_nothing_can_be_read_is_said() {
    let cannot = (!is_root() || !has_program("setpriv")).then_some("setpriv is for root");
    if skipped("another user", cannot) {
        return;
    }
    let world = World::with_repository();
    let tree = world.path("closed");
    fs::create_dir(&tree).unwrap();
    for name in ["one", "two"] {
        fs::write(tree.join(name), name).unwrap();
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let copy = world.path("strongroom");
    fs::copy(program(), &copy).unwrap();
    fs::create_dir(world.path("cache")).unwrap();
    let owned = [world.repository(), world.path("cache")];
    assert!(
        Command::new("chown").args(["-R", "65534:65534"]).args(owned).status().unwrap().success()
    );
    fs::set_permissions(world.folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let by_user = |path: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&copy).arg("backup").arg(path);
        world.surround(&mut command);
        Run::of(command.output().unwrap())
    };
    by_user(&tree).exits(3).warns("one").warns("two");
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o000)).unwrap();
    by_user(&tree).exits(1).warns("nothing is backed up of");
    assert_eq!(snapshots(&world), 1);
}

/// A program whose output ends up empty, or says why it failed.
#[test]
fn kept_1_4_a_stream_of_nothing_or_of_next_to_nothing_is_said() {
    let world = World::with_repository();
    let dump = vec![b'x'; 1 << 16];
    world.feed("backup --stdin dump", &dump).exits(0);
    world.feed("backup --stdin dump", b"").exits(3).warns("it is empty");
    world.feed("backup --stdin dump", b"connection refused").exits(3).warns("than usual");
    world.say("backup --stdin dump --stdin-from-command true").exits(3).warns("it is empty");
    world.say("forget --keep-last 1").exits(3).says("keep: frozen");
    assert_eq!(snapshots(&world), 4);
    world.feed("backup --stdin dump", &dump).exits(0);
    world.say("forget --keep-last 1").exits(3).says("keep: frozen");
}

#[test]
fn kept_1_5_months_are_not_minutes() {
    let world = World::with_tree(1);
    world.backup().exits(0);
    world.backup().exits(0);
    for unit in ["6m", "3M", "5h30m"] {
        let run = world.say(&format!("forget -n --keep-within {unit}")).exits(2);
        run.warns("min").warns("mo");
        world.say(&format!("forget -n --keep-last 1 --quarantine {unit}")).exits(2).warns("mo");
        world.say(&format!("find --newer {unit} x")).exits(2).warns("mo");
        world.say(&format!("prune -n --patience {unit}")).exits(2).warns("mo");
    }
    for unit in ["6mo", "90min", "1y5m7d2h", "1y5mo7d2h", "5h30min"] {
        world.say(&format!("forget -n --keep-within {unit}")).exits(0).says("0 snapshots");
    }
    // Two labels, and one that must be there with another, in other programs.
    for words in ["forget -n --keep-last 1 --keep-tag a,b", "backup -n --tag a,b /"] {
        world.say(words).exits(2).warns("a label has no comma");
    }
    let profile =
        "[default.backup]\npaths = [\"~/tree\"]\n[default.forget]\nkeep-within = \"6m\"\n";
    let world = with_profile(profile);
    let check = say(&world, "profile check").warns("6min").warns("6mo");
    assert_ne!(check.code, Some(0));
    let run = say(&world, "run");
    assert!(run.code != Some(0) && run.out.contains("failed: forget"), "{}", run.out);
}
