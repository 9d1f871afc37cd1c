//! Other file systems inside a tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_source::{
    DirectoryId, ExcludeReason, SourceOptions, Target, TargetError, TargetOptions, TreeSource,
    WalkEvent, ZeroSize,
};

use crate::kinds::is_root;

/// Something mounted, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(arguments: &[&str], at: &Path) -> Option<Self> {
        let done =
            is_root() && Command::new("mount").args(arguments).arg(at).status().ok()?.success();
        if !done {
            strongroom_testkit::skip("nothing can be mounted here");
        }
        done.then(|| Self(at.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// The leaves below `root`, and the mount points left out.
fn leaves(paths: &[PathBuf], root: &Path, one_file_system: bool) -> Vec<String> {
    let options = SourceOptions { one_file_system, ..SourceOptions::default() };
    let mut source = TreeSource::open(paths, &options).unwrap();
    let mut leaves = Vec::new();
    while let Some(event) = source.next() {
        match event {
            WalkEvent::Leaf { .. } => {
                leaves.push(source.path().strip_prefix(root).unwrap().display().to_string());
            }
            WalkEvent::Excluded { path, why } => {
                assert_eq!(why, ExcludeReason::MountPoint);
                leaves.push(format!("-{}", path.strip_prefix(root).unwrap().display()));
            }
            WalkEvent::Problem { error, .. } => panic!("{error}"),
            _ => {}
        }
    }
    leaves
}

#[test]
fn one_file_system_keeps_mount_points_empty() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for name in ["a", "bound", "mounted", "z"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    fs::write(root.join("a/1"), "").unwrap();
    fs::write(root.join("z/2"), "").unwrap();
    let Some(_tmpfs) = Mounted::new(&["-t", "tmpfs", "none"], &root.join("mounted")) else {
        return;
    };
    let Some(_bind) =
        Mounted::new(&["--bind", root.join("a").to_str().unwrap()], &root.join("bound"))
    else {
        return;
    };
    fs::create_dir_all(root.join("mounted/deep/er")).unwrap();
    fs::write(root.join("mounted/3"), "").unwrap();
    fs::write(root.join("mounted/deep/er/4"), "").unwrap();
    let paths = |names: &[&str]| names.iter().map(|name| root.join(name)).collect::<Vec<_>>();
    let check = |names: &[&str], one_file_system, expected: &[&str]| {
        assert_eq!(leaves(&paths(names), &root, one_file_system), expected, "{names:?}");
    };
    check(&[""], false, &["a/1", "bound/1", "mounted/3", "mounted/deep/er/4", "z/2"]);
    check(&[""], true, &["a/1", "-bound", "-mounted", "z/2"]);
    // A mounted file system that was given is taken.
    check(&["mounted"], true, &["mounted/3", "mounted/deep/er/4"]);
    check(&["", "mounted"], true, &["a/1", "-bound", "mounted/3", "mounted/deep/er/4", "z/2"]);
    check(&["", "mounted/deep"], true, &["a/1", "-bound", "mounted/deep/er/4", "z/2"]);
}

#[test]
fn nothing_is_removed_from_what_is_mounted() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("d/mounted")).unwrap();
    let Some(_tmpfs) = Mounted::new(&["-t", "tmpfs", "none"], &folder.path().join("d/mounted"))
    else {
        return;
    };
    fs::write(folder.path().join("d/mounted/precious"), "").unwrap();
    let target = Target::open(folder.path(), TargetOptions::default()).unwrap();
    let error = target.remove(DirectoryId::ROOT, b"d").unwrap_err();
    assert!(matches!(error, TargetError::MountInTheWay { .. }), "{error}");
    assert_eq!(error.path(), folder.path().join("d/mounted"));
    assert!(folder.path().join("d/mounted/precious").exists());
}

#[test]
fn there_and_back_on_tmpfs() {
    let (folder, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(_tmpfs) = Mounted::new(&["-t", "tmpfs", "none"], folder.path()) else { return };
    fs::write(from.path().join("file"), vec![b'x'; 100_000]).unwrap();
    let sparse = fs::File::create(from.path().join("sparse")).unwrap();
    sparse.set_len(10 << 20).unwrap();
    std::os::unix::fs::symlink("file", from.path().join("link")).unwrap();
    let outcome = crate::copy::copy(from.path(), folder.path());
    assert_eq!(outcome.problems, Vec::<String>::new());
    crate::compare::assert_same(from.path(), &crate::copy::copied(from.path(), folder.path()));
}

/// A single file may be on a file system of its own.
#[test]
fn a_mounted_file_is_judged_by_its_own_file_system() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "mounted", "z"] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    let arguments = ["--bind", "/proc/sys/kernel/ostype"];
    let Some(_bind) = Mounted::new(&arguments, &folder.path().join("mounted")) else { return };
    let source = TreeSource::open(&[folder.path().into()], &SourceOptions::default()).unwrap();
    let mut zero_sizes = Vec::new();
    for event in source {
        if let WalkEvent::Leaf { entry, .. } = event {
            zero_sizes.push(entry.file_system().zero_size);
        }
    }
    let expected =
        [ZeroSize::Empty, ZeroSize::MadeUp { name: "proc", has_lengths: false }, ZeroSize::Empty];
    assert_eq!(zero_sizes, expected);
}
