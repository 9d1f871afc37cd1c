//! Every kind of difference is found and named.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// Makes the same tree twice, changes the second, and looks for one line about it.
fn check(change: impl Fn(&Path), expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let sides = [folder.path().join("one"), folder.path().join("two")];
    for root in &sides {
        fs::create_dir_all(root.join("dir")).unwrap();
        fs::write(root.join("file"), [1; 5000]).unwrap();
        fs::hard_link(root.join("file"), root.join("hard")).unwrap();
        fs::write(root.join("other"), b"other").unwrap();
        symlink("file", root.join("link")).unwrap();
    }
    change(&sides[1]);
    let epoch = rustix::fs::Timespec { tv_sec: 7, tv_nsec: 9 };
    for root in &sides {
        let marked = root.join("late").exists();
        for path in Image::of(root).nodes.keys().rev() {
            let times = rustix::fs::Timestamps { last_access: epoch, last_modification: epoch };
            let path = root.join(OsStr::from_bytes(path));
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::utimensat(rustix::fs::CWD, &path, &times, flags).unwrap();
        }
        if marked {
            fs::write(root.join("other"), b"other").unwrap();
            fs::remove_file(root.join("late")).unwrap();
        }
    }
    let found = compare(&sides[0], &sides[1]);
    if expected.is_empty() {
        assert_eq!(found, [""; 0]);
    } else {
        assert!(found.iter().any(|line| line.contains(expected)), "{expected}: {found:?}");
    }
}

#[test]
fn differences_are_told() {
    check(|_| {}, "");
    check(|root| fs::remove_file(root.join("other")).unwrap(), "other: only in the first");
    check(|root| fs::write(root.join("new"), b"").unwrap(), "new: only in the second");
    check(|root| fs::write(root.join("other"), b"othar").unwrap(), "other: content differs");
    check(|root| fs::write(root.join("other"), b"oth").unwrap(), "other: 5 bytes, not 3");
    check(|root| fs::write(root.join("late"), b"").unwrap(), "other: mtime");
    check(
        |root| {
            let mode = fs::Permissions::from_mode(0o700);
            fs::set_permissions(root.join("dir"), mode).unwrap();
        },
        "dir: mode 755, not 700",
    );
    check(
        |root| {
            fs::remove_file(root.join("hard")).unwrap();
            fs::copy(root.join("file"), root.join("hard")).unwrap();
        },
        "hard: linked to",
    );
    check(
        |root| {
            fs::remove_file(root.join("link")).unwrap();
            symlink("dir", root.join("link")).unwrap();
        },
        "link: a link to \"file\", not a link to \"dir\"",
    );
    check(
        |root| {
            fs::remove_dir(root.join("dir")).unwrap();
            fs::write(root.join("dir"), b"").unwrap();
        },
        "dir: Directory, not a file",
    );
}

#[test]
fn holes_are_told_from_zeros() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
    let sparse = fs::File::create(&one).unwrap();
    sparse.set_len(3 << 20).unwrap();
    sparse.write_all_at(b"x", 1 << 20).unwrap();
    let mut bytes = vec![0; 3 << 20];
    bytes[1 << 20] = b'x';
    fs::write(&two, &bytes).unwrap();
    let [one, two] = [one, two].map(|path| content(&path, 3 << 20).unwrap());
    assert_eq!(one.first_difference(&two), None);
    assert_ne!(one, two);
    let mut three = Content::default();
    three.push(&bytes[..1 << 20]);
    three.push(b"y");
    three.push_hole((2 << 20) - 1);
    assert_eq!(one.first_difference(&three), Some(1 << 20));
    assert_eq!(three.first_difference(&two), Some(1 << 20));
}

#[test]
fn a_part_of_an_image_is_an_image() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("a/b")).unwrap();
    fs::write(folder.path().join("a/b/c"), b"1").unwrap();
    fs::write(folder.path().join("ab"), b"1").unwrap();
    let whole = Image::of(folder.path());
    Image::of(&folder.path().join("a")).assert_same(&whole.below(b"a"), "a");
    whole.assert_same(&whole.below(b""), "all");
}
