//! The walk over small trees: its events, their order, and what is left out.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// The walk as text, seen from `root`: `name/` for a directory, `^` for its end.
pub(super) fn walked(source: &mut TreeSource, root: &Path) -> String {
    let mut words = Vec::new();
    while let Some(event) = source.next() {
        let from_root = |path: &Path| match path.strip_prefix(root) {
            Ok(rest) => Some(rest.to_string_lossy().into_owned()),
            Err(_) => None,
        };
        let inside = from_root(source.path());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        words.extend(match &event {
            WalkEvent::EnterDirectory { entry, .. } => inside.map(|_| {
                assert_eq!(entry.path(), source.path());
                format!("{}/", text(entry.name()))
            }),
            WalkEvent::LeaveDirectory => inside.map(|_| "^".to_owned()),
            WalkEvent::Leaf { entry, kind } => inside.map(|_| {
                assert_eq!(entry.path(), source.path());
                match kind {
                    LeafKind::Symlink { target } => {
                        format!("{}->{}", text(entry.name()), text(target))
                    }
                    _ => text(entry.name()),
                }
            }),
            WalkEvent::Excluded { path, why } => {
                let why = format!("{why:?}");
                let why = why.split([' ', '{']).next().unwrap_or_default();
                from_root(path).map(|path| format!("-{path}:{why}"))
            }
            WalkEvent::Problem { path, error } => {
                let error = format!("{error:?}");
                let error = error.split([' ', '{']).next().unwrap_or_default();
                from_root(path).map(|path| format!("!{path}:{error}"))
            }
        });
    }
    words.join(" ")
}

fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for directory in ["a/b/c", "a.d", "cache/deep", "z"] {
        fs::create_dir_all(folder.path().join(directory)).unwrap();
    }
    for file in ["a/1", "a/b/2", "a/b/c/3.o", "a.d/4", "cache/5", "cache/deep/6", "z/7"] {
        fs::write(folder.path().join(file), file).unwrap();
    }
    symlink("a/b", folder.path().join("link")).unwrap();
    folder
}

fn check(paths: &[&str], change: impl FnOnce(&Path, &mut SourceOptions), expected: &str) {
    let folder = tree();
    let root = folder.path().canonicalize().unwrap();
    let paths: Vec<_> =
        paths.iter().map(|path| PathBuf::from(format!("{}/{path}", root.display()))).collect();
    let mut options = SourceOptions::default();
    change(&root, &mut options);
    let mut source = TreeSource::open(&paths, &options).unwrap();
    let name = root.file_name().unwrap().to_string_lossy();
    let text = walked(&mut source, &root);
    assert_eq!(text.replacen(&format!("{name}/"), "./", 1), expected, "{paths:?}");
}

#[test]
fn everything_in_order() {
    let expected = "./ a/ 1 b/ 2 c/ 3.o ^ ^ ^ a.d/ 4 ^ cache/ 5 deep/ 6 ^ ^ link->a/b z/ 7 ^ ^";
    check(&[""], |_, _| {}, expected);
    check(&["a", "", "z/7", "link/2"], |_, _| {}, expected);
}

#[test]
fn only_wanted_children_on_the_way() {
    check(&["a/b/c", "z/7"], |_, _| {}, "./ a/ b/ c/ 3.o ^ ^ ^ z/ 7 ^ ^");
    check(&["link"], |_, _| {}, "./ link->a/b ^");
    check(&["link/"], |_, _| {}, "./ link/ 2 c/ 3.o ^ ^ ^");
    check(&["link/c"], |_, _| {}, "./ link/ c/ 3.o ^ ^ ^");
}

#[test]
fn patterns_leave_out() {
    let exclude = |patterns: &'static [&'static str]| {
        move |root: &Path, options: &mut SourceOptions| {
            let root = root.to_str().unwrap();
            options.excludes = patterns.iter().map(|text| text.replace("ROOT", root)).collect();
        }
    };
    check(
        &["a"],
        exclude(&["*.o", "/1", "ROOT/a/b/2"]),
        "./ a/ 1 b/ -a/b/2:Pattern c/ -a/b/c/3.o:Pattern ^ ^ ^ ^",
    );
    check(&["a"], exclude(&["b/"]), "./ a/ 1 -a/b:Pattern ^ ^");
    // Given paths are always taken, and so are the directories on the way to them, but nothing
    // else.
    check(&["a/b"], exclude(&["b/", "a"]), "./ a/ b/ 2 c/ 3.o ^ ^ ^ ^");
    check(&["a", "a/b/c"], exclude(&["b/"]), "./ a/ 1 b/ c/ 3.o ^ ^ ^ ^");
}

#[test]
fn directories_without_their_content() {
    check(
        &["cache", "z"],
        |_, options| options.exclude_if_present = vec![b"none".to_vec(), b"5".to_vec()],
        "./ cache/ -cache:Marker ^ z/ 7 ^ ^",
    );
    check(
        &["cache", "cache/deep/6"],
        |_, options| options.exclude_if_present = vec![b"5".to_vec()],
        "./ cache/ -cache:Marker deep/ 6 ^ ^ ^",
    );
    let tag = "Signature: 8a477f597d28d172789f06886806bc55\n# made by a test";
    for (text, expected) in [
        (tag, "./ cache/ -cache:CacheDirectory CACHEDIR.TAG ^ ^"),
        (&tag[1..], "./ cache/ 5 CACHEDIR.TAG deep/ 6 ^ ^ ^"),
        (&tag[..20], "./ cache/ 5 CACHEDIR.TAG deep/ 6 ^ ^ ^"),
    ] {
        let write = |root: &Path, options: &mut SourceOptions| {
            fs::write(root.join("cache/CACHEDIR.TAG"), text).unwrap();
            options.cachedir_tag = true;
        };
        check(&["cache"], write, expected);
    }
    check(
        &["cache", "z"],
        |root, options| {
            options.skip_inodes = vec![InodeId::of_path(&root.join("cache")).unwrap()];
        },
        "./ cache/ -cache:SkippedInode ^ z/ 7 ^ ^",
    );
}

#[test]
fn big_files_are_left_out() {
    let limit = |_: &Path, options: &mut SourceOptions| options.file_bytes_max = Some(5);
    check(&["a"], limit, "./ a/ 1 b/ 2 c/ -a/b/c/3.o:TooBig ^ ^ ^ ^");
    check(&["a/b/c/3.o"], limit, "./ a/ b/ c/ 3.o ^ ^ ^ ^");
}

#[test]
fn what_vanishes_is_told() {
    let folder = tree();
    let root = folder.path().canonicalize().unwrap();
    let mut source = TreeSource::open(&[root.join("a")], &SourceOptions::default()).unwrap();
    while source.path() != root.join("a/1") {
        source.next().unwrap();
    }
    fs::remove_dir_all(root.join("a/b")).unwrap();
    assert_eq!(walked(&mut source, &root), "!a/b:Vanished ^ ^");
    assert_eq!(source.counts().problems, 1);
}

/// An automount point is seen as it was, and mounted by being opened.
#[test]
fn a_given_path_that_is_mounted_when_it_is_opened_is_no_boundary() {
    let given = Path::new("/dev/shm");
    let options = SourceOptions { one_file_system: true, ..SourceOptions::default() };
    let mut source = TreeSource::open(&[given.to_owned()], &options).unwrap();
    while let Some(event) = source.next() {
        assert!(matches!(event, WalkEvent::EnterDirectory { .. }), "{event:?}");
        if source.path() == Path::new("/dev") {
            break;
        }
    }
    let frame = source.frames.last().unwrap();
    let (place, node) = (frame.place.clone().unwrap(), source.plan.child(frame.node, c"shm"));
    // What was seen is the directory below the mount, here another one.
    let seen = inode::stat_at(rustix::fs::CWD, c"/dev").unwrap();
    source.path.extend_from_slice(b"/shm");
    let name = Name { place, at: 0 };
    assert_eq!(name.text(), c"shm");
    let shm = inode::stat_at(rustix::fs::CWD, c"/dev/shm").unwrap();
    assert_ne!(inode::device_of(&shm), inode::device_of(&seen), "it is mounted");
    let event = source.enter(Found { name: Some(name), whole: true, node, denied: None }, &seen);
    assert!(matches!(event, WalkEvent::EnterDirectory { .. }), "{event:?}");
    assert!(source.frames.last().unwrap().whole);
}
