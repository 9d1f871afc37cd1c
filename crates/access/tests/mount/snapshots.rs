//! The directories above the snapshots, and how mounts begin and end.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

use jiff::tz::{TimeZone, offset};
use rustix::mount::MountFlags;
use strongroom_access::MountError;
use strongroom_base::Timestamp;
use strongroom_repository::snapshot_object;

use crate::compare::{assert_same, names};
use crate::fixture::{Fixture, can_mount};
use crate::sample::append;

/// 30 July 2026, 23:59:01 in UTC.
const EVENING: Timestamp = Timestamp(1_785_455_941_000_000_000);

/// Of every mount of snapshots.
const FLAGS: MountFlags = MountFlags::RDONLY
    .union(MountFlags::NODEV)
    .union(MountFlags::NOSUID)
    .union(MountFlags::NOATIME);

#[test]
fn a_snapshot_stands_in_three_places() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::at(EVENING);
    fs::write(fixture.source().join("file"), b"one").unwrap();
    let snapshot = fixture.backup();
    let zone = TimeZone::fixed(offset(2));
    let _mount = fixture.mount_with(|options| options.time_zone = zone);
    let mounted = fixture.mountpoint();
    assert_eq!(names(&mounted), ["hosts", "ids", "snapshot"]);
    assert_eq!(names(&mounted.join("ids")), [snapshot.id.short().as_str()]);
    let paths = names(&mounted.join("hosts/here"));
    let path = fixture.source();
    let name = path.strip_prefix("/").unwrap().to_str().unwrap();
    assert_eq!(paths, [name.replace('%', "%25").replace('_', "%5F").replace('/', "_").as_str()]);
    let series = mounted.join("hosts/here").join(&paths[0]);
    assert_eq!(names(&series), ["2026-07-31T01-59-01", "latest"]);
    let inner = path.strip_prefix("/").unwrap();
    for place in [
        mounted.join("ids").join(snapshot.id.short()),
        series.join("2026-07-31T01-59-01"),
        series.join("latest"),
        mounted.join("snapshot/2026/07/31/015901"),
    ] {
        assert_same(&fixture.source(), &place.join(inner));
        let status = place.metadata().unwrap();
        assert_eq!(status.mtime() * 1_000_000_000, EVENING.0, "{place:?}");
    }
}

#[test]
fn new_snapshots_appear_and_removed_ones_go() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::at(EVENING);
    fs::write(fixture.source().join("file"), b"one").unwrap();
    let _mount = fixture.mount();
    let ids = fixture.mountpoint().join("ids");
    assert!(names(&ids).is_empty());
    let first = fixture.backup();
    assert_eq!(names(&ids), [first.id.short().as_str()]);
    let inner = fixture.source().strip_prefix("/").unwrap().to_owned();
    let series = fixture.mountpoint().join("hosts/here");
    let series = series.join(&names(&series)[0]);
    let file = series.join("latest").join(&inner).join("file");
    assert_eq!(fs::read(&file).unwrap(), b"one");
    append(&fixture.source().join("file"), b" two");
    // In the same second, and directly by its name, without reading the list.
    fixture.set_time(Timestamp(EVENING.0 + 500_000_000));
    let second = fixture.backup();
    assert_eq!(
        fs::read(fixture.mounted(&second, &fixture.source()).join("file")).unwrap(),
        b"one two"
    );
    let day = fixture.mountpoint().join("snapshot/2026/07/30");
    assert_eq!(names(&day), ["235901", "235901-2"]);
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(fs::read(&file).unwrap(), b"one two", "latest leads to the new one");
    fixture.repository.backend().remove(&snapshot_object(first.id)).unwrap();
    assert_eq!(names(&ids), [second.id.short().as_str()]);
    std::thread::sleep(Duration::from_millis(1100));
    assert!(ids.join(first.id.short()).symlink_metadata().is_err());
    assert!(fixture.reports.take().is_empty());
}

#[test]
fn inode_numbers_stay() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let deep = fixture.source().join("a/b/c");
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), b"one").unwrap();
    fs::hard_link(deep.join("file"), fixture.source().join("link")).unwrap();
    let snapshot = fixture.backup();
    let _mount = fixture.mount();
    let root = fixture.mounted(&snapshot, &fixture.source());
    let inodes = || {
        let paths = ["", "a", "a/b", "a/b/c", "a/b/c/file", "link"];
        paths.map(|path| root.join(path).symlink_metadata().unwrap().ino())
    };
    let before = inodes();
    assert_eq!(before[4], before[5]);
    // When a mount is changed, the kernel forgets what is not in use; if that is not allowed, the
    // test is only weaker.
    if let Err(error) = rustix::mount::mount_remount(fixture.mountpoint(), FLAGS, c"") {
        println!("nothing is forgotten: {error}");
    }
    assert_eq!(inodes(), before);
}

#[test]
fn unmounted_by_itself() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fs::write(fixture.source().join("file"), b"one").unwrap();
    let snapshot = fixture.backup();
    let mut mount = fixture.mount();
    let file = fixture.mounted(&snapshot, &fixture.source()).join("file");
    let open = fs::File::open(&file).unwrap();
    assert!(matches!(mount.unmount(), Err(MountError::Busy { .. })));
    drop(open);
    mount.unmount().unwrap();
    assert!(!file.exists());
    assert!(names(&fixture.mountpoint()).is_empty());
    mount.unmount().unwrap();
    drop(mount);
    drop(fixture.mount());
    assert!(names(&fixture.mountpoint()).is_empty(), "dropped, and so unmounted");
}

#[test]
fn unmounted_from_outside() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    for program in ["fusermount3", "umount"] {
        let mount = fixture.mount();
        let waiting = std::thread::spawn(move || mount.wait());
        assert_eq!(names(&fixture.mountpoint()).len(), 3);
        let mut command = Command::new(program);
        if program == "fusermount3" {
            command.arg("-u");
        }
        assert!(command.arg(fixture.mountpoint()).status().unwrap().success());
        waiting.join().unwrap().unwrap();
    }
    let mount = fixture.mount();
    let unmounter = mount.unmounter();
    let waiting = std::thread::spawn(move || mount.wait());
    unmounter.unmount().unwrap();
    waiting.join().unwrap().unwrap();
    unmounter.unmount().unwrap();
}

#[test]
fn dropped_while_in_use_it_is_gone_from_the_tree() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fs::write(fixture.source().join("file"), b"still here").unwrap();
    let snapshot = fixture.backup();
    let mount = fixture.mount();
    let file = fixture.mounted(&snapshot, &fixture.source()).join("file");
    let open = fs::File::open(&file).unwrap();
    drop(mount);
    assert!(!file.exists());
    assert_eq!(std::io::read_to_string(open).unwrap(), "still here");
}

#[test]
fn where_nothing_can_be_mounted() {
    let fixture = Fixture::new();
    let options = strongroom_access::MountOptions::new(TimeZone::UTC);
    let nowhere = fixture.folder.path().join("nowhere");
    let refused = strongroom_access::mount(
        fixture.repository.clone(),
        &nowhere,
        &options,
        fixture.reports.clone(),
    );
    assert!(matches!(refused, Err(MountError::Mount { .. })));
}
