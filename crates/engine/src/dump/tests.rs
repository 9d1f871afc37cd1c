//! Dumps, unpacked by other programs.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_arena::ArenaName;
use strongroom_base::{Cancel, Severity, Silent};
use strongroom_catalog::Snapshot;
use strongroom_repository::{ChunkReader, Found, RepositoryError, find_path};
use strongroom_testkit::tree::{set_mtime, sparse};
use strongroom_testkit::{Content, Image, Kind, Listener, noise};

use super::{ByteRange, DumpFormat, DumpOutcome, DumpPart, cat, cat_range, dump};
use crate::error::EngineError;
use crate::testing::World;

fn dumped(
    world: &World,
    snapshot: &Snapshot,
    path: &[u8],
    format: DumpFormat,
    listener: &Listener,
) -> (Vec<u8>, DumpOutcome) {
    let (mut out, cancel) = (Vec::new(), Cancel::new());
    let outcome = dump(
        &world.repository,
        snapshot,
        DumpPart { path, filter: None },
        format,
        &mut out,
        listener,
        &cancel,
    )
    .unwrap();
    (out, outcome)
}

/// Unpacks with the system's tar; returns its messages.
fn untar(archive: &[u8], into: &Path) -> String {
    fs::create_dir(into).unwrap();
    let file = into.with_extension("tar");
    fs::write(&file, archive).unwrap();
    let done = Command::new("tar")
        .args(["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "-xpf"])
        .arg(&file)
        .arg("-C")
        .arg(into)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    said
}

/// The same image with zeros for holes.
fn solid(mut image: Image) -> Image {
    for node in image.nodes.values_mut() {
        if let Kind::File(content) = &mut node.kind {
            let mut bytes = vec![0; content.bytes as usize];
            for (offset, run) in &content.runs {
                bytes[*offset as usize..][..run.len()].copy_from_slice(run);
            }
            *content = Content::default();
            content.push(&bytes);
        }
    }
    image
}

fn python(script: &str, arguments: &[&Path]) -> String {
    let done = Command::new("python3").arg("-c").arg(script).args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn tar_gives_back_what_was_there() {
    for seed in 1..5 {
        let world = World::new();
        world.grow(seed);
        let snapshot = world.backup();
        let listener = Listener::new();
        let (archive, outcome) =
            dumped(&world, &snapshot, &world.path(), DumpFormat::Tar, &listener);
        assert_eq!(listener.problems(), []);
        assert_eq!(outcome.files, snapshot.stats.files);
        assert_eq!(outcome.left_out, 0);
        let target = world.folder.path().join("target");
        untar(&archive, &target);
        solid(Image::of(&world.tree())).assert_same(&solid(Image::of(&target)), "unpacked");
        let listener = Listener::new();
        let again = dumped(&world, &snapshot, &world.path(), DumpFormat::Tar, &listener).0;
        assert!(archive == again, "the same snapshot gives the same archive");
    }
}

#[test]
fn another_program_reads_the_tar_too() {
    let world = World::new();
    world.grow(9);
    world.write(&format!("{}/größe", "d/".repeat(70)), b"long");
    let snapshot = world.backup();
    let (archive, _) = dumped(&world, &snapshot, &world.path(), DumpFormat::Tar, &Listener::new());
    let file = world.folder.path().join("archive.tar");
    fs::write(&file, archive).unwrap();
    let script = "
import os, sys, tarfile
for member in tarfile.open(sys.argv[1]):
    path = os.fsencode(os.path.join(sys.argv[2], member.name))
    stat = os.lstat(path)
    assert abs(member.mtime - stat.st_mtime) < 1e-3, (path, member.mtime, stat.st_mtime)
    assert member.mode == stat.st_mode & 0o7777, path
    assert (member.uid, member.gid) == (stat.st_uid, stat.st_gid), path
    if member.isreg(): assert member.size == stat.st_size, path
    if member.issym(): assert os.fsencode(member.linkname) == os.readlink(path), path
    print(1)
";
    let members = python(script, &[&file, &world.tree()]).lines().count() as u64;
    let directory_itself = 1;
    let above = world.tree().ancestors().count() as u64 - 2;
    let stats = snapshot.stats;
    assert_eq!(members, stats.files + stats.directories - above + directory_itself - 1);
}

#[test]
fn paths_are_relative_to_what_is_dumped() {
    let world = World::new();
    world.write("a/b/c", b"content");
    let snapshot = world.backup();
    let names = |path: &[u8]| {
        let (archive, _) = dumped(&world, &snapshot, path, DumpFormat::Tar, &Listener::new());
        let mut archive = tar::Archive::new(&archive[..]);
        let names: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|entry| String::from_utf8(entry.unwrap().path_bytes().into_owned()).unwrap())
            .collect();
        names
    };
    let below = |rest: &str| [world.path(), rest.as_bytes().to_vec()].concat();
    assert_eq!(names(&below("")), ["./", "a/", "a/b/", "a/b/c"]);
    assert_eq!(names(&below("/a/b/")), ["./", "c"]);
    assert_eq!(names(&below("/a/b/c")), ["c"]);
    let whole = names(b"/");
    let tree = String::from_utf8(world.path()).unwrap();
    assert_eq!(whole.last().unwrap(), &format!("{}/a/b/c", &tree[1..]));
}

#[test]
fn attributes_and_lists_of_access_come_along() {
    let world = World::new();
    world.write("file", b"x");
    world.write("directory/inside", b"x");
    let set = |program: &str, arguments: &[&str], name: &str| {
        let path = world.tree().join(name);
        Command::new(program).args(arguments).arg(path).status().unwrap().success()
    };
    if !set("setfattr", &["-n", "user.a=b%c", "-v", "value"], "file")
        || !set("setfacl", &["-m", "u:1234:rw,g:99:r"], "file")
        || !set("setfacl", &["-d", "-m", "u:1234:rwx"], "directory")
    {
        return;
    }
    let snapshot = world.backup();
    let (archive, _) = dumped(&world, &snapshot, &world.path(), DumpFormat::Tar, &Listener::new());
    let target = world.folder.path().join("target");
    untar(&archive, &target);
    Image::of(&world.tree()).assert_same(&Image::of(&target), "unpacked");
}

#[test]
fn zip_gives_back_what_it_can_tell() {
    let world = World::new();
    world.write("large", &noise(2, 400_000));
    world.write("empty", b"");
    world.write("größe/deep/er", b"deep");
    world.write("program", b"#!/bin/sh\n");
    sparse(&world.tree().join("sparse"), &[(1 << 20, b"middle")], 2 << 20);
    std::os::unix::fs::symlink("größe/deep", world.tree().join("link")).unwrap();
    fs::hard_link(world.tree().join("large"), world.tree().join("large-too")).unwrap();
    Command::new("chmod").arg("754").arg(world.tree().join("program")).status().unwrap();
    set_mtime(&world.tree().join("program"), 1_700_000_001, 5);
    let snapshot = world.backup();
    let listener = Listener::new();
    let (archive, outcome) = dumped(&world, &snapshot, &world.path(), DumpFormat::Zip, &listener);
    assert_eq!(listener.problems(), []);
    assert_eq!((outcome.files, outcome.directories, outcome.left_out), (7, 3, 0));
    let file = world.folder.path().join("archive.zip");
    fs::write(&file, &archive).unwrap();
    let target = world.folder.path().join("target");
    python(
        "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; z.extractall(sys.argv[2])",
        &[&file, &target],
    );
    for name in ["large", "empty", "größe/deep/er", "program", "sparse", "large-too"] {
        let (kept, given) = (fs::read(world.tree().join(name)), fs::read(target.join(name)));
        assert!(kept.unwrap() == given.unwrap(), "{name}");
    }
    // Info-ZIP restores modes, times and links too.
    let unpacked = world.folder.path().join("unpacked");
    let unzip = Command::new("unzip").arg("-q").arg(&file).arg("-d").arg(&unpacked).output();
    if let Ok(done) = unzip {
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let image = Image::of(&unpacked);
        let node = &image.nodes[&b"program"[..]];
        assert_eq!((node.mode, node.mtime), (0o754, 1_700_000_001_000_000_000));
        let target = "größe/deep".as_bytes().to_vec();
        assert_eq!(image.nodes[&b"link"[..]].kind, Kind::Symlink(target));
    }
}

#[test]
fn zip_tells_what_it_leaves_out_and_changes() {
    for seed in 1..4 {
        let world = World::new();
        world.grow(seed);
        for name in [&b"same\xff"[..], b"same\xfe"] {
            let name = OsStrExt::from_bytes(name);
            fs::write(world.tree().join::<&std::ffi::OsStr>(name), b"x").unwrap();
        }
        let snapshot = world.backup();
        let listener = Listener::new();
        let (archive, outcome) =
            dumped(&world, &snapshot, &world.path(), DumpFormat::Zip, &listener);
        let problems = listener.problems();
        assert!(problems.iter().all(|problem| problem.severity == Severity::Note), "{problems:?}");
        assert_eq!(outcome.left_out, problems.len() as u64);
        let file = world.folder.path().join("archive.zip");
        fs::write(&file, &archive).unwrap();
        let names = python(
            "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; [print(ascii(n)) for n in z.namelist()]",
            &[&file],
        );
        assert!(names.contains("'same\\ufffd'") && names.contains("'same\\ufffd~2'"), "{names}");
    }
}

#[test]
fn zip_names_every_file_apart() {
    let world = World::new();
    let write = |name: &[u8]| {
        let path = world.tree().join(Path::new(std::ffi::OsStr::from_bytes(name)));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    };
    // As text all of these names are the same.
    (0..1100_u32)
        .for_each(|number| write(&[0x80 + (number / 64) as u8, 0x80 + (number % 64) as u8]));
    // A file and a directory become the same, whichever comes first, and two directories.
    [&b"x\xfe"[..], b"x\xff/in", b"y\xfe/in", b"y\xff", b"z\xfe/in", b"z\xff/in"]
        .into_iter()
        .for_each(write);
    // A real name that a changed one has.
    [&b"w\x80"[..], "w\u{fffd}".as_bytes()].into_iter().for_each(write);
    write(b"back\\/in");
    let snapshot = world.backup();
    let listener = Listener::new();
    let (archive, outcome) = dumped(&world, &snapshot, &world.path(), DumpFormat::Zip, &listener);
    assert_eq!(outcome.files, 1100 + 6 + 2 + 1);
    assert_eq!(outcome.left_out, 1100 + 6 + 4 + 2, "with the directories");
    let file = world.folder.path().join("archive.zip");
    fs::write(&file, &archive).unwrap();
    let unpacked = world.folder.path().join("unpacked");
    let script = "
import sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
z.extractall(sys.argv[2])
[print(ascii(n)) for n in z.namelist()]
";
    let names = python(script, &[&file, &unpacked]);
    for name in ["x\\ufffd", "x\\ufffd~2/in", "y\\ufffd/in", "y\\ufffd~2", "z\\ufffd~2/in"] {
        assert!(names.contains(&format!("'{name}'")), "{name} in {names}");
    }
    assert!(names.contains("'back\\\\/'"), "{names}");
    let count = |image: Image| {
        let is_file = |kind: &Kind| matches!(kind, Kind::File(_));
        image.nodes.values().filter(|node| is_file(&node.kind)).count()
    };
    assert_eq!(count(Image::of(&unpacked)), count(Image::of(&world.tree())));
}

/// Chunks of noise that neither compression nor parity saves, and where they are.
fn damaged_world() -> (World, Snapshot) {
    let world = World::with_redundancy(strongroom_arena::Redundancy { per_mille: 0 });
    world.write("a", b"before");
    world.write("large", &noise(1, 300_000));
    fs::hard_link(world.tree().join("large"), world.tree().join("other")).unwrap();
    world.write("z", b"behind");
    let snapshot = world.backup();
    let reader = ChunkReader::of_domain(&world.repository, "", Default::default()).unwrap();
    let path = [world.path(), b"/large".to_vec()].concat();
    let Found::Entry { entry, .. } = find_path(&snapshot, &path, &reader).unwrap() else {
        panic!("a file is an entry")
    };
    let mut recipe = strongroom_catalog::RecipeReader::new(entry.content().unwrap(), &reader);
    recipe.seek_forward(150_000).unwrap();
    let (_, chunk) = recipe.next_chunk().unwrap().unwrap();
    world.remove(&ArenaName::first(chunk.location.arena).object());
    (world, snapshot)
}

#[test]
fn what_is_lost_becomes_zeros_and_is_named() {
    let (world, snapshot) = damaged_world();
    let kept = fs::read(world.tree().join("large")).unwrap();
    for format in [DumpFormat::Tar, DumpFormat::Zip] {
        let listener = Listener::new();
        let (archive, outcome) = dumped(&world, &snapshot, &world.path(), format, &listener);
        assert_eq!(outcome.damaged, [PathBuf::from("large"), PathBuf::from("other")]);
        let problems = listener.problems();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems.iter().all(|problem| problem.severity == Severity::Damage));
        if format == DumpFormat::Tar {
            let target = world.folder.path().join("target");
            untar(&archive, &target);
            let given = fs::read(target.join("large")).unwrap();
            assert_eq!(kept.len(), given.len());
            assert!(kept != given);
            assert!(kept.iter().zip(&given).all(|(kept, given)| kept == given || *given == 0));
            assert_eq!(fs::read(target.join("z")).unwrap(), b"behind");
        }
    }
    let path = [world.path(), b"/large".to_vec()].concat();
    let mut out = Vec::new();
    let error = cat(&world.repository, &snapshot, &path, &mut out).unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert!(kept.starts_with(&out), "nothing replaces what is lost");
}

#[test]
fn cat_gives_one_file() {
    let world = World::new();
    world.grow(4);
    let snapshot = world.backup();
    let path = |name: &str| [&world.path()[..], b"/", name.as_bytes()].concat();
    for name in ["large", "sparse", "hole", "empty"] {
        let mut out = Vec::new();
        let bytes = cat(&world.repository, &snapshot, &path(name), &mut out).unwrap();
        assert_eq!(bytes, out.len() as u64);
        assert!(out == fs::read(world.tree().join(name)).unwrap(), "{name}");
    }
    for (name, found) in [("link", "a symbolic link"), ("empty-directory", "a directory")] {
        match cat(&world.repository, &snapshot, &path(name), &mut Vec::new()) {
            Err(EngineError::Repository(RepositoryError::WrongKind { found: named, .. })) => {
                assert_eq!(named, found)
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn cat_gives_a_range() {
    let world = World::new();
    world.grow(4);
    let snapshot = world.backup();
    let path = |name: &str| [&world.path()[..], b"/", name.as_bytes()].concat();
    for name in ["large", "sparse", "hole", "empty"] {
        let whole = fs::read(world.tree().join(name)).unwrap();
        let size = whole.len() as u64;
        let offsets = [0, 1, size / 3, size / 2 + 1, size.saturating_sub(1), size];
        for offset in offsets.into_iter().filter(|offset| *offset <= size) {
            for length in [None, Some(0), Some(1), Some(size / 3), Some(size), Some(u64::MAX)] {
                let (range, mut out) = (ByteRange { offset, length }, Vec::new());
                let bytes = cat_range(&world.repository, &snapshot, &path(name), range, &mut out);
                let end = offset.saturating_add(length.unwrap_or(size)).min(size);
                assert_eq!(bytes.unwrap(), end - offset);
                assert!(out == whole[offset as usize..end as usize], "{name}: {range:?}");
            }
        }
        let range = ByteRange { offset: size + 1, length: Some(0) };
        match cat_range(&world.repository, &snapshot, &path(name), range, &mut Vec::new()) {
            Err(EngineError::BehindEnd { offset, bytes, .. }) => {
                assert_eq!((offset, bytes), (size + 1, size));
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn a_range_that_is_lost_is_an_error() {
    let (world, snapshot) = damaged_world();
    let path = [world.path(), b"/large".to_vec()].concat();
    let (range, mut out) = (ByteRange { offset: 150_000, length: Some(1) }, Vec::new());
    let error = cat_range(&world.repository, &snapshot, &path, range, &mut out).unwrap_err();
    assert!(error.is_damage() && out.is_empty(), "{error}");
}

/// A stream that ends early.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_stream_and_a_wish_to_stop_end_it() {
    let world = World::new();
    world.grow(3);
    let snapshot = world.backup();
    let repository = &world.repository;
    for format in [DumpFormat::Tar, DumpFormat::Zip] {
        for room in [0, 1000, 100_000] {
            let (mut out, cancel) = (Full(room), Cancel::new());
            let error = dump(
                repository,
                &snapshot,
                DumpPart { path: b"", filter: None },
                format,
                &mut out,
                &Silent,
                &cancel,
            )
            .unwrap_err();
            assert!(matches!(error, EngineError::Output(_)), "{error}");
        }
        let cancel = Cancel::new();
        let asked = cancel.clone();
        let listener = Listener::on_work(move |_| asked.cancel());
        let mut out = Vec::new();
        let error = dump(
            repository,
            &snapshot,
            DumpPart { path: b"", filter: None },
            format,
            &mut out,
            &listener,
            &cancel,
        )
        .unwrap_err();
        assert!(matches!(error, EngineError::Repository(RepositoryError::Cancelled(_))), "{error}");
        assert!(!out.windows(4).any(|bytes| bytes == b"PK\x05\x06"), "it must not look whole");
    }
}

#[test]
fn lost_names_cost_their_directory_alone() {
    let world = World::new();
    world.write("lost/file", b"x");
    let first = world.backup();
    world.write("whole/file", b"y");
    let snapshot = world.backup();
    world.remove(&ArenaName::first(first.root.refs[0].location.arena).object());
    for format in [DumpFormat::Tar, DumpFormat::Zip] {
        let listener = Listener::new();
        let (_, outcome) = dumped(&world, &snapshot, &world.path(), format, &listener);
        assert_eq!(outcome.damaged, [PathBuf::from("lost")]);
        assert_eq!((outcome.files, outcome.directories), (1, 3));
        assert_eq!(listener.problems()[0].severity, Severity::Damage);
    }
}
