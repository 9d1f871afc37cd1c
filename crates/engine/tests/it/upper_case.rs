//! Restores onto a file system that takes two names for the same, and keeps neither owners nor modes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::CWD;
use strongroom_base::{Cancel, Silent};
use strongroom_engine::restore;
use strongroom_testkit::{Listener, skip};

use crate::restore::into;
use crate::world::{World, options, run};

/// A disk of Windows, mounted until this value is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(folder: &Path) -> Option<Self> {
        let (image, at) = (folder.join("disk"), folder.join("target"));
        fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        fs::create_dir(&at).unwrap();
        let done = |command: &mut Command| command.output().is_ok_and(|it| it.status.success());
        let made = done(Command::new("mkfs.ntfs").args(["-q", "-F"]).arg(&image));
        let mount = &mut Command::new("lowntfs-3g");
        let mounted = made && done(mount.args(["-o", "ignore_case"]).arg(&image).arg(&at));
        if !mounted {
            skip("no file system can be mounted that takes upper case for lower");
        }
        mounted.then(|| Self(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn of_two_names_that_are_one_at_the_target_the_first_is_restored() {
    let world = World::bare(148);
    for name in ["Foo/p", "Foo/x", "foo/q", "foo/x", "N", "first"] {
        world.write(name, name.as_bytes());
    }
    let at = |name: &str| world.tree().join(name);
    symlink("one", at("A")).unwrap();
    symlink("two", at("a")).unwrap();
    for (number, name) in ["P", "p"].iter().enumerate() {
        let mode = if number == 0 { 0o600 } else { 0o644 };
        rustix::fs::mkfifoat(CWD, at(name), mode.into()).unwrap();
    }
    fs::hard_link(at("first"), at("n")).unwrap();
    let Some(Mounted(target)) = &Mounted::new(world.folder.path()) else { return };
    let snapshot = run(&world.open(), &options(&world.tree()), &Silent).unwrap().snapshot;
    let listener = Listener::new();
    let options = into(&world.tree(), target);
    restore(&world.open(), &snapshot, &options, &listener, &Cancel::new()).unwrap();
    let problems = listener.problems().into_iter();
    let messages = problems.map(|problem| problem.message);
    let taken: BTreeSet<_> = messages.filter(|it| it.contains("already exists")).collect();
    let message =
        |name| format!("{:?} was not written, because it already exists", target.join(name));
    assert_eq!(taken, ["a", "foo", "n", "p"].map(message).into());
    assert_eq!(fs::read_link(target.join("A")).unwrap(), Path::new("one"));
    assert_eq!(fs::read(target.join("N")).unwrap(), b"N");
    assert_eq!(fs::read(target.join("Foo/x")).unwrap(), b"Foo/x");
    assert!(target.join("Foo/p").exists() && !target.join("Foo/q").exists());
}

/// It says that it has set an owner and a mode, and sets none.
#[test]
fn what_a_file_system_does_not_keep_is_reported_once() {
    let world = World::bare(150);
    for name in ["one", "two", "three"] {
        world.write(name, name.as_bytes());
        let path = world.tree().join(name);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        chown(path, Some(1000), Some(1000)).unwrap();
    }
    let Some(Mounted(target)) = &Mounted::new(world.folder.path()) else { return };
    let snapshot = run(&world.open(), &options(&world.tree()), &Silent).unwrap().snapshot;
    let listener = Listener::new();
    let options = into(&world.tree(), target);
    let outcome = restore(&world.open(), &snapshot, &options, &listener, &Cancel::new()).unwrap();
    let problems = listener.problems();
    for what in ["owner", "mode"] {
        let text = format!("has another {what} than was restored");
        let said = problems.iter().filter(|problem| problem.message.contains(&text));
        assert_eq!(said.count(), 1, "{problems:?}");
    }
    assert_eq!((outcome.problems, outcome.files_failed), (2, 0));
}
