//! A mounted tree is the tree that was backed up.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::compare::{assert_same, names};
use strongroom_testkit::{skip, skipped};

use crate::fixture::{Fixture, can_mount, tight};
use crate::sample::make_all;

#[test]
fn everything_is_as_it_was() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    make_all(&fixture.source());
    let snapshot = fixture.backup();
    assert_eq!(snapshot.stats.problems, 0);
    let _mount = fixture.mount();
    let mounted = fixture.mounted(&snapshot, &fixture.source());
    assert!(assert_same(&fixture.source(), &mounted) > 3000);
    let mut source = fixture.source().into_os_string();
    source.push("/");
    let args = ["-naXAHc", "--itemize-changes", "--delete"];
    match Command::new("rsync").args(args).arg(source).arg(&mounted).output() {
        Ok(output) => {
            let lines = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(lines, "");
        }
        Err(error) => skip(&format!("rsync: {error}")),
    }
    assert!(fixture.reports.take().is_empty());
}

#[test]
fn everything_is_as_it_was_with_almost_no_memory() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    make_all(&fixture.source());
    let snapshot = fixture.backup();
    let _mount = fixture.mount_with(tight);
    assert_same(&fixture.source(), &fixture.mounted(&snapshot, &fixture.source()));
}

#[test]
fn other_users_see_what_the_modes_allow() {
    let is_root = rustix::process::geteuid().is_root();
    if skipped((!is_root).then_some("only root can make these entries")) || !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    make_all(&fixture.source());
    let set_mode = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(fixture.source(), mode).unwrap();
    };
    let _mount = fixture.mount_with(|options| options.allow_other = true);
    set_mode(0o700);
    let closed = fixture.mounted(&fixture.backup(), &fixture.source());
    set_mode(0o755);
    fs::set_permissions(fixture.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let open = fixture.mounted(&fixture.backup(), &fixture.source());
    assert_same(&fixture.source(), &open);
    let can_read = |path: PathBuf, user: u32| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={user}"), "--regid=4242", "--clear-groups", "cat"]);
        command.arg(path).output().unwrap().status.success()
    };
    assert!(can_read(open.join("small"), 4242));
    assert!(!can_read(open.join("random"), 4242), "its mode is 0600");
    assert!(can_read(open.join("random"), 1234), "its access control list names this user");
    assert!(!can_read(closed.join("small"), 4242), "the folder was closed when it was kept");
}

#[test]
fn nothing_can_be_changed_and_what_is_not_there_is_not() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fs::write(fixture.source().join("file"), b"kept").unwrap();
    let snapshot = fixture.backup();
    let _mount = fixture.mount();
    let mounted = fixture.mounted(&snapshot, &fixture.source());
    assert!(fs::write(mounted.join("file"), b"new").is_err());
    assert!(fs::write(mounted.join("new"), b"new").is_err());
    assert!(fs::remove_file(mounted.join("file")).is_err());
    assert!(fs::create_dir(fixture.mountpoint().join("new")).is_err());
    for name in ["none", "file/none", "a", "z"] {
        assert!(mounted.join(name).symlink_metadata().is_err(), "{name}");
        assert!(mounted.join(name).symlink_metadata().is_err(), "{name}, as remembered");
    }
    assert_eq!(names(&mounted), ["file"]);
    let unknown = fixture.mountpoint().join("ids/00000000");
    assert!(unknown.symlink_metadata().is_err());
}
