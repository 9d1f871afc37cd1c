//! What a user without rights can read and put back. The tests of this user run in a separate
//! process, which is this program again.
#![expect(clippy::disallowed_methods, reason = "a test that reads the environment or the clock")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_catalog::{DeviceNumber, EntryKind, Metadata, Xattr};
use strongroom_source::{
    DirectoryId, SourceError, SourceOptions, Target, TargetError, TargetOptions, TreeSource,
    WalkEvent,
};

use crate::kinds::is_root;

const PLACE: &str = "STRONGROOM_TEST_OF_NOBODY";
const OTHER_USER: u32 = 65534;

#[test]
fn without_rights() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&root, 0o755);
    fs::create_dir_all(root.join("tree/closed")).unwrap();
    fs::write(root.join("tree/closed/file"), "").unwrap();
    fs::create_dir(root.join("tree/unsearchable")).unwrap();
    fs::write(root.join("tree/unsearchable/file"), "").unwrap();
    fs::write(root.join("tree/open"), "open").unwrap();
    fs::write(root.join("tree/secret"), "secret").unwrap();
    mode(&root.join("tree/closed"), 0o700);
    mode(&root.join("tree/unsearchable"), 0o744);
    mode(&root.join("tree/secret"), 0o600);
    fs::create_dir(root.join("target")).unwrap();
    chown(root.join("target"), Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    fs::write(root.join("target/shared"), "root's").unwrap();
    mode(&root.join("target/shared"), 0o666);
    // Directories that may be searched, and not listed.
    fs::create_dir_all(root.join("home/anna/deep")).unwrap();
    fs::write(root.join("home/anna/deep/file"), "hers").unwrap();
    for name in ["home/anna", "home/anna/deep", "home/anna/deep/file"] {
        chown(root.join(name), Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    }
    mode(&root.join("home"), 0o711);
    // The program itself may be in a folder that only its owner may enter.
    let program = root.join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    mode(&program, 0o755);
    for test in [
        "rights::walks",
        "rights::restores",
        "rights::passes_what_may_only_be_searched",
        "rights::removes_what_a_killed_restore_has_left",
    ] {
        let run = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(PLACE, &root)
            .current_dir("/")
            .output();
        let Ok(run) = run else {
            strongroom_testkit::skip("setpriv is not installed");
            return;
        };
        let text = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success() && text.contains("1 passed"), "{text}");
    }
}

fn place() -> Option<PathBuf> {
    std::env::var_os(PLACE).map(PathBuf::from)
}

/// A file has its mode before it has its name.
#[test]
#[ignore = "run by without_rights, as another user"]
fn removes_what_a_killed_restore_has_left() {
    let Some(root) = place() else { return };
    let folder = root.join("target/left");
    fs::create_dir(&folder).unwrap();
    // No process has such a number.
    let path = |number: u32| folder.join(format!(".strongroom-restore-{}-{number}", 1 << 22 | 1));
    for (number, mode) in [(0, 0o600), (1, 0o444), (2, 0o200)] {
        fs::write(path(number), "a whole copy").unwrap();
        fs::set_permissions(path(number), fs::Permissions::from_mode(mode)).unwrap();
    }
    let held = path(3);
    fs::write(&held, "of a restore that lives").unwrap();
    fs::set_permissions(&held, fs::Permissions::from_mode(0o444)).unwrap();
    let holder = fs::File::open(&held).unwrap();
    holder.lock().unwrap();
    Target::open(&folder, TargetOptions::default()).unwrap();
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [held]);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
#[ignore = "run by without_rights, as another user"]
fn walks() {
    let Some(root) = place() else { return };
    let mut source = TreeSource::open(&[root.join("tree")], &SourceOptions::default()).unwrap();
    let mut events = Vec::new();
    while let Some(event) = source.next() {
        let name = source.path().file_name().map(|name| name.to_string_lossy().into_owned());
        if !source.path().starts_with(root.join("tree")) {
            continue;
        }
        let name = name.unwrap();
        match event {
            WalkEvent::EnterDirectory { .. } => events.push(format!("{name}/")),
            WalkEvent::LeaveDirectory => {}
            WalkEvent::Leaf { entry, .. } => {
                let read = entry.xattrs();
                assert!(read.xattrs.is_empty() && read.problem.is_none(), "{read:?}");
                match entry.open_file() {
                    Ok(_) => events.push(name),
                    Err(SourceError::Io { operation: "open", error, .. }) => {
                        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
                        events.push(format!("{name}:denied"));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            WalkEvent::Problem { error, .. } => {
                assert!(error.to_string().contains("Permission denied"), "{error}");
                events.push(format!("!{name}"));
            }
            WalkEvent::Excluded { .. } => panic!("{name}"),
        }
    }
    let expected =
        ["tree/", "closed/", "!closed", "open", "secret:denied", "unsearchable/", "!file"];
    assert_eq!(events, expected);
    let inside = root.join("tree/closed/file");
    let error = TreeSource::open(&[inside], &SourceOptions::default()).unwrap_err();
    assert!(error.to_string().contains("Permission denied"), "{error}");
}

#[test]
#[ignore = "run by without_rights, as another user"]
fn restores() {
    let Some(root) = place() else { return };
    let path = root.join("target");
    let options = TargetOptions::default();
    assert!(!options.owner);
    let target = Target::open(&path, options).unwrap();
    let metadata = |mode| Metadata { mode, uid: 0, gid: 0, ..Metadata::default() };
    let mode = |name: &str| fs::symlink_metadata(path.join(name)).unwrap().mode() & 0o7777;
    let top = DirectoryId::ROOT;

    // Another user's program must not run as this user; the rest of the mode is kept.
    let file = target.open_file_for_write(top, b"program", 4).unwrap();
    file.write_at(0, b"text").unwrap();
    assert_eq!(target.finish_file(file, &metadata(0o6555)).len(), 0);
    assert_eq!(mode("program"), 0o555);
    // A file that may not be written is replaced.
    let file = target.open_file_for_write(top, b"program", 4).unwrap();
    assert!(file.is_fresh());
    drop(file);
    // So is a file of another user, whose mode could not be set.
    let file = target.open_file_for_write(top, b"shared", 4).unwrap();
    assert!(file.is_fresh());
    file.write_at(0, b"ours").unwrap();
    assert_eq!(target.finish_file(file, &metadata(0o640)).len(), 0);
    assert_eq!((mode("shared"), fs::read(path.join("shared")).unwrap()), (0o640, b"ours".into()));

    // Attributes of users are put back although the mode does not let their owner write.
    let noted = |mode, note: &[u8]| {
        let xattr = Xattr { name: b"user.note".to_vec(), value: note.to_vec() };
        Metadata { xattrs: vec![xattr], ..metadata(mode) }
    };
    let note = |name: &str| {
        let mut value = [0; 9];
        rustix::fs::getxattr(path.join(name), "user.note", &mut value)
            .map(|bytes| value[..bytes].to_vec())
    };
    let file = target.create_file(top, b"noted", 0).unwrap();
    assert_eq!(target.finish_file(file, &noted(0o444, b"first")).len(), 0);
    assert_eq!((mode("noted"), note("noted")), (0o444, Ok(b"first".to_vec())));
    let folder = target.create_directory(top, b"folder").unwrap();
    assert_eq!(target.apply_directory_metadata(folder, &noted(0o500, b"of it")).unwrap().len(), 0);
    assert_eq!((mode("folder"), note("folder")), (0o500, Ok(b"of it".to_vec())));
    for (metadata, expected) in [
        (noted(0o444, b"second"), Ok(b"second".to_vec())),
        (metadata(0o440), Err(rustix::io::Errno::NODATA)),
    ] {
        let problems = target.apply_file_metadata(top, b"noted", &metadata).unwrap();
        assert_eq!((problems.len(), mode("noted")), (0, metadata.mode.into()));
        assert_eq!(note("noted").map_err(|_| rustix::io::Errno::NODATA), expected);
    }

    let device = EntryKind::CharDevice(DeviceNumber { major: 1, minor: 3 });
    let error = target.create_special(top, b"null", &device, &metadata(0o600)).unwrap_err();
    assert!(error.to_string().contains("create the special file"), "{error}");
    let fifo = target.create_special(top, b"fifo", &EntryKind::Fifo, &metadata(0o640)).unwrap();
    assert_eq!((fifo.len(), mode("fifo")), (0, 0o640));

    // A directory that may not be written to is opened for writing, and closed again.
    for _ in 0..2 {
        let closed = target.create_directory(top, b"closed").unwrap();
        let file = target.open_file_for_write(closed, b"file", 0).unwrap();
        assert_eq!(target.finish_file(file, &metadata(0o444)).len(), 0);
        assert_eq!(target.apply_directory_metadata(closed, &metadata(0o500)).unwrap().len(), 0);
        assert_eq!(mode("closed"), 0o500);
    }

    // A directory on the way is left as it was, also by a restore that ends early.
    fs::create_dir(path.join("way")).unwrap();
    fs::set_permissions(path.join("way"), fs::Permissions::from_mode(0o500)).unwrap();
    for is_left in [true, false] {
        let target = Target::open(&path, options).unwrap();
        let way = target.create_directory(top, b"way").unwrap();
        target.create_file(way, is_left.to_string().as_bytes(), 0).unwrap();
        assert_eq!(mode("way"), 0o700);
        if is_left {
            target.leave_directory(way).unwrap();
            assert_eq!(mode("way"), 0o500);
        }
        drop(target);
        assert_eq!(mode("way"), 0o500);
    }

    // A directory in the way is removed in any case, as it belongs to this user.
    target.remove(top, b"closed").unwrap();
    assert!(!path.join("closed").exists());

    // If owners cannot be put back, that is reported.
    let options = TargetOptions { owner: true, ..options };
    let target = Target::open(&path, options).unwrap();
    let problems = target.create_symlink(top, b"link", b"x", &metadata(0o777)).unwrap();
    assert!(
        matches!(&problems[..], [TargetError::Io { operation: "change the owner of", .. }]),
        "{problems:?}"
    );
}

#[test]
#[ignore = "run by without_rights, as another user"]
fn passes_what_may_only_be_searched() {
    let Some(root) = place() else { return };
    let home = root.join("home");
    let walked = |paths: &[&str]| {
        let paths: Vec<PathBuf> = paths.iter().map(|path| home.join(path)).collect();
        let mut source = TreeSource::open(&paths, &SourceOptions::default()).unwrap();
        let mut events = Vec::new();
        while let Some(event) = source.next() {
            let Ok(path) = source.path().strip_prefix(&root) else { continue };
            if path == Path::new("") {
                continue;
            }
            let path = path.display();
            match event {
                WalkEvent::EnterDirectory { entry, .. } => {
                    let read = entry.xattrs();
                    assert!(read.xattrs.is_empty() && read.problem.is_none(), "{read:?}");
                    events.push(format!("{path}/ {:o}", entry.metadata().mode));
                }
                WalkEvent::Leaf { entry, .. } => {
                    entry.open_file().unwrap();
                    events.push(format!("{path}"));
                }
                WalkEvent::Problem { .. } => events.push(format!("!{path}")),
                _ => {}
            }
        }
        events
    };
    let below = ["home/anna/ 755", "home/anna/deep/ 755", "home/anna/deep/file"];
    let whole = [&["home/ 711"], &below[..]].concat();
    assert_eq!(walked(&["anna"]), whole);
    assert_eq!(walked(&["anna", "anna/deep/file"]), whole);
    assert_eq!(walked(&["anna/deep/file"]), whole);
    // It was asked for itself: that it may not be listed is a problem, and the rest is stored.
    assert_eq!(walked(&["", "anna"]), [&["home/ 711", "!home"], &below[..]].concat());
    assert_eq!(walked(&[""]), ["home/ 711", "!home"]);

    let target = Target::open(&home, TargetOptions::default()).unwrap();
    let anna = target.create_directory(DirectoryId::ROOT, b"anna").unwrap();
    let file = target.open_file_for_write(anna, b"new", 4).unwrap();
    file.write_at(0, b"text").unwrap();
    let metadata = Metadata { mode: 0o640, ..Metadata::default() };
    assert_eq!(target.finish_file(file, &metadata).len(), 0);
    target.sync().unwrap();
    assert!(target.list(DirectoryId::ROOT).unwrap_err().is_denied());
    assert_eq!(fs::read(home.join("anna/new")).unwrap(), b"text");
    target.remove(anna, b"new").unwrap();
    // Below `/`, each directory on the way is opened by its name.
    let target = Target::open(Path::new("/"), TargetOptions::default()).unwrap();
    let mut above = DirectoryId::ROOT;
    for name in home.join("anna").components().skip(1) {
        above = target.create_directory(above, name.as_os_str().as_encoded_bytes()).unwrap();
    }
    let file = target.open_file_for_write(above, b"new", 0).unwrap();
    assert_eq!(target.finish_file(file, &metadata).len(), 0);
    assert!(home.join("anna/new").exists());
}
