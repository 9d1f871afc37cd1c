//! Random trees: put back into nothing, and over one another.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode};
use strongroom_source::{SourceOptions, TargetOptions, TreeSource};

use crate::compare::assert_same;
use crate::copy::{copied, copy_from};
use crate::kinds::{set_mtime, set_xattr};

/// One change of a tree; an impossible one is skipped.
#[derive(Debug, Clone)]
struct Step {
    path: String,
    make: Make,
    mode: u32,
    owner: u32,
    mtime: (i64, i64),
    xattr: Option<(u8, Vec<u8>)>,
}

#[derive(Debug, Clone)]
enum Make {
    Directory,
    File { size: u64, extents: Vec<(u64, usize)> },
    Symlink(String),
    Fifo,
    HardLink(String),
}

fn paths() -> impl Strategy<Value = String> {
    prop::collection::vec("[abc.]{1,2}[x\u{e9}]?", 1..4)
        .prop_map(|names| names.join("/"))
        .prop_filter("names of their own", |path| {
            path.split('/').all(|name| name != "." && name != "..")
        })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let make = prop_oneof![
        3 => Just(Make::Directory),
        4 => (0_u64..300_000, prop::collection::vec((0_u64..250_000, 1_usize..50_000), 0..3))
            .prop_map(|(size, extents)| Make::File { size, extents }),
        1 => "[a-z./]{1,20}".prop_map(|text| Make::Symlink(format!("nowhere/{text}"))),
        1 => Just(Make::Fifo),
        1 => paths().prop_map(Make::HardLink),
    ];
    let xattr = prop::option::of((0_u8..3, prop::collection::vec(any::<u8>(), 0..50)));
    let mtime = (-1_000_000_000_i64..4_000_000_000, 0_i64..1_000_000_000);
    let step = (paths(), make, 0_u32..0o10000, 0_u32..70_000, mtime, xattr).prop_map(
        |(path, make, mode, owner, mtime, xattr)| Step { path, make, mode, owner, mtime, xattr },
    );
    prop::collection::vec(step, 0..25)
}

/// Makes a tree. As root it changes owners and modes, so nothing it does may leave the tree: its
/// links lead nowhere, it goes through none, and it changes them only by their own name.
fn build(root: &Path, steps: &[Step]) {
    let root = &root.canonicalize().unwrap();
    for step in steps {
        let path = root.join(&step.path);
        let _ = fs::create_dir_all(path.parent().unwrap());
        if path.parent().unwrap().canonicalize().ok().as_deref() != path.parent() {
            continue;
        }
        let made = match &step.make {
            Make::Directory => fs::create_dir(&path).is_ok(),
            Make::File { size, extents } => write(&path, *size, extents),
            Make::Symlink(target) => symlink(target, &path).is_ok(),
            Make::Fifo => rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).is_ok(),
            Make::HardLink(of) => {
                fs::symlink_metadata(root.join(of)).is_ok_and(|stat| !stat.is_dir())
                    && fs::hard_link(root.join(of), &path).is_ok()
            }
        };
        if !made || fs::symlink_metadata(&path).unwrap().is_symlink() {
            continue;
        }
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(step.owner), Some(step.owner / 2)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(step.mode)).unwrap();
            if let Some((name, value)) = &step.xattr {
                set_xattr(&path, &format!("trusted.{name}"), value);
            }
        }
        set_mtime(&path, step.mtime.0, step.mtime.1);
    }
}

fn write(path: &Path, size: u64, extents: &[(u64, usize)]) -> bool {
    use std::os::unix::fs::FileExt;
    let Ok(file) = fs::File::create_new(path) else { return false };
    file.set_len(size).unwrap();
    for &(offset, bytes) in extents {
        file.write_all_at(&vec![offset as u8 | 1; bytes], offset).unwrap();
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn any_tree_over_any_other(first in steps(), second in steps()) {
        let (folder, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = folder.path().join("tree");
        let there = copied(&root, to.path());
        let options = TargetOptions { delete: true, ..TargetOptions::default() };
        for steps in [&first, &second] {
            fs::create_dir(&root).unwrap();
            build(&root, steps);
            for again in [false, true] {
                let paths = [root.clone()];
                let mut source = TreeSource::open(&paths, &SourceOptions::default()).unwrap();
                let outcome = copy_from(&mut source, to.path(), options);
                prop_assert_eq!(outcome.problems, Vec::<String>::new());
                prop_assert!(!again || outcome.written == 0, "{} written again", outcome.written);
                assert_same(&root, &there);
            }
            fs::remove_dir_all(&root).unwrap();
        }
    }
}
