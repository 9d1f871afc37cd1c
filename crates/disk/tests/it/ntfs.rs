//! Volumes of NTFS that ntfs-3g wrote: what we see is what ntfs-3g shows.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use strongroom_disk::{DiskError, FileSystem, Kind, NodeKind, Source, State, Unclean, open};
use strongroom_testkit::{Random, skipped};

use crate::hostile::{Changed, changes, explore, used};
use crate::world::{
    Image, Tree, assert_same, check_parts, folder, kernels_tree, lacks, our_tree, overwrite_free,
    run,
};

fn cannot() -> Option<&'static str> {
    let tools = lacks(&["mkfs.ntfs", "ntfs-3g", "ntfs-3g.probe", "setfattr", "python3"]);
    let is_root = rustix::process::geteuid().is_root();
    tools
        .or((!is_root).then_some("only root may mount"))
        .or((!Path::new("/dev/fuse").exists()).then_some("there is no /dev/fuse"))
}

fn make(path: &Path, size: &str, options: &[&str]) {
    drop(std::fs::remove_file(path));
    let path = path.to_str().unwrap();
    run("truncate", &["-s", size, path]);
    run("mkfs.ntfs", &[&["-q", "-F", "-L", "Läbel"], options, &[path]].concat());
}

/// An image that ntfs-3g shows, until it is dropped.
struct Shown {
    at: PathBuf,
    server: Child,
}

impl Shown {
    fn new(image: &Path, options: &str) -> Self {
        let at = image.with_extension("shown");
        std::fs::create_dir_all(&at).unwrap();
        let before = at.metadata().unwrap().dev();
        let options = format!("no_detach,streams_interface=xattr,compression,{options}");
        let mut command = Command::new("ntfs-3g");
        command.arg("-o").arg(options).arg(image).arg(&at).env("LC_ALL", "C.UTF-8");
        let null = std::process::Stdio::null;
        let mut server = command.stderr(null()).stdout(null()).spawn().unwrap();
        while at.metadata().is_ok_and(|root| root.dev() == before) {
            assert!(server.try_wait().unwrap().is_none(), "ntfs-3g shows nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { at, server }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        run("umount", &[self.at.to_str().unwrap()]);
        // It writes what it still has before it ends.
        self.server.wait().unwrap();
    }
}

/// Leaves out what ntfs-3g has no answer to, or an own one: owners, modes, and the upper half of
/// references.
fn comparable(mut tree: Tree) -> Tree {
    for (path, seen) in &mut tree {
        let metadata = seen.metadata_mut();
        metadata.mode = 0;
        metadata.inode &= 0xffff_ffff_ffff;
        if path.is_empty() {
            metadata.links = 1;
        }
    }
    tree
}

fn shown_tree(image: &Path) -> Tree {
    let shown = Shown::new(image, "ro");
    comparable(kernels_tree(&shown.at))
}

/// The number of a file.
fn find(files: &dyn FileSystem, path: &str) -> u64 {
    path.split('/').fold(files.root(), |folder, wanted| {
        let mut found = None;
        let listed = files.entries(folder, &mut |entry| {
            if entry.name == wanted.as_bytes() {
                found = Some(entry.inode);
            }
            ControlFlow::Continue(())
        });
        listed.unwrap();
        found.unwrap_or_else(|| panic!("{path}"))
    })
}

fn pieces(files: &dyn FileSystem, path: &str) -> Vec<strongroom_disk::Piece> {
    let mut pieces = Vec::new();
    let all = files.pieces(find(files, path), 0..u64::MAX, &mut |piece| {
        pieces.push(piece);
        ControlFlow::Continue(())
    });
    all.unwrap();
    pieces
}

fn populate(image: &Path, salt: u32) {
    let shown = Shown::new(image, "rw");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/populate_ntfs.py");
    let command = format!("cd '{}' && python3 '{}' {salt}", shown.at.display(), script.display());
    run("env", &["LC_ALL=C.UTF-8", "bash", "-c", &command]);
}

#[test]
fn a_volume_that_ntfs_3g_wrote_is_seen_as_it_shows_it() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    let sets: [(&[&str], &str); 4] = [
        (&["-c", "4096"], "20M"),
        (&["-c", "65536"], "50M"),
        (&["-c", "1024"], "16M"),
        (&["-c", "512", "-s", "512"], "14M"),
    ];
    for (salt, (options, size)) in (0..).zip(sets) {
        let what = format!("{options:?}");
        make(&path, size, options);
        // Clusters of more than 4 KiB cannot be compressed.
        let salt = if options.contains(&"65536") { 1 } else { salt * 2 };
        populate(&path, salt);
        let image = Image::open(&path);
        let files = open(&image).unwrap().unwrap();
        let facts = files.facts();
        assert_eq!((facts.kind, facts.state), (Kind::Ntfs, State::Clean), "{what}");
        assert_eq!(facts.label, "Läbel".as_bytes());
        let ours = comparable(our_tree(&*files, &image));
        assert!(ours.len() > 250);
        assert_same(&ours, &shown_tree(&path), &what);
        let mode = |path| files.node(find(&*files, path)).unwrap().metadata.mode;
        assert_eq!((mode("linked"), mode("folder")), (0o644, 0o755));
        if salt != 1 {
            let kinds = |path| pieces(&*files, path).into_iter().map(|piece| piece.source);
            assert!(kinds("packed/text").any(|source| source == Source::Inside), "{what}");
            assert!(kinds("packed/noise").any(|source| source != Source::Inside), "{what}");
            assert_eq!(pieces(&*files, "packed/zeros").len(), 0);
            for path in ["packed/text", "packed/mixed", "packed/holes"] {
                check_parts(&*files, find(&*files, path), &mut Random::new(salt.into()));
            }
        }
        for path in ["pieces", "holes", "folder/large", "folder/record"] {
            check_parts(&*files, find(&*files, path), &mut Random::new(salt.into()));
        }
        let many = pieces(&*files, "pieces").len();
        assert!(many > 200 || salt == 1, "{what}: {many}");

        let free = files.free().unwrap_or_else(|error| panic!("{what}: {error}"));
        let said = run("ntfsinfo", &["-m", path.to_str().unwrap()]);
        let clusters = said.lines().find_map(|line| line.trim().strip_prefix("Free Clusters:"));
        let clusters = clusters.unwrap().trim().split(' ').next().unwrap().parse::<u64>().unwrap();
        assert_eq!(free.bytes(), clusters * facts.block_bytes, "{what}");
        overwrite_free(&path, &free);
        assert_same(&ours, &shown_tree(&path), &what);
        run("ntfs-3g.probe", &["--readwrite", path.to_str().unwrap()]);
    }
}

/// Sets an extended attribute to bytes.
fn set(path: &Path, name: &str, value: &[u8]) {
    let value: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    run("setfattr", &["-n", name, "-v", &format!("0x{value}"), path.to_str().unwrap()]);
}

/// The value of a reparse point with one name.
fn reparse(tag: u32, name: &str) -> Vec<u8> {
    let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let numbers = [0, units.len() as u16, units.len() as u16 + 2, 0];
    let mut data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    data.extend(units);
    data.extend([0; 4]);
    [&tag.to_le_bytes()[..], &(data.len() as u32).to_le_bytes(), &data].concat()
}

#[test]
fn what_windows_adds_is_understood_or_refused() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    make(&path, "10M", &[]);
    let shown = Shown::new(&path, "rw");
    let at = shown.at.clone();
    for name in ["a long name for windows.text", "whole", "locked"] {
        std::fs::write(at.join(name), vec![7; 5000]).unwrap();
    }
    set(&at.join("a long name for windows.text"), "system.ntfs_dos_name", b"ALONGN~1.TXT");
    set(&at.join("locked"), "system.ntfs_attrib_be", &[0, 0, 0, 0x21]);
    std::fs::create_dir(at.join("junction")).unwrap();
    set(
        &at.join("junction"),
        "system.ntfs_reparse_data",
        &reparse(0xa000_0003, r"\??\C:\Users\All"),
    );
    let wof = [&0x8000_0017_u32.to_le_bytes()[..], &[16, 0, 0, 0], &[1; 16]].concat();
    set(&at.join("whole"), "system.ntfs_reparse_data", &wof);
    drop(shown);
    let image = Image::open(&path);
    let files = open(&image).unwrap().unwrap();
    let mut names = BTreeSet::new();
    let listed = files.entries(files.root(), &mut |entry| {
        names.insert(String::from_utf8_lossy(entry.name).into_owned());
        ControlFlow::Continue(())
    });
    listed.unwrap();
    let expected = ["a long name for windows.text", "junction", "locked", "whole"];
    assert_eq!(names, expected.map(str::to_owned).into());
    let node = |name| files.node(find(&*files, name)).unwrap();
    assert_eq!(node(expected[0]).metadata.links, 1, "the short name is no link");
    let target = b"C:/Users/All".to_vec();
    assert_eq!(node("junction").kind, NodeKind::Symlink { target });
    assert_eq!((node("locked").metadata.mode, node("whole").kind), (0o444, NodeKind::File));
    let refused = files.read(find(&*files, "whole"), 0, &mut [0; 10]);
    assert!(matches!(refused, Err(DiskError::Unsupported { .. })), "{refused:?}");
    assert!(files.free().is_ok());
}

/// The page of a journal that Windows closed, or did not.
fn restart_page(log_bytes: u64, client: u16, flags: u16) -> Vec<u8> {
    let mut page = vec![0; 4096];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"RSTR");
    put(4, &[0x1e, 0, 9, 0]);
    put(16, &[0, 0x10, 0, 0, 0, 0x10, 0, 0, 0x30, 0, 1, 0, 1, 0]);
    put(0x30, &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    put(0x30 + 10, &[0xff, 0xff]);
    put(0x30 + 12, &client.to_le_bytes());
    put(0x30 + 14, &flags.to_le_bytes());
    // The bits of a number in the log, the sizes of the area and its head, and of the log.
    put(0x30 + 16, &[67 - (64 - log_bytes.leading_zeros()) as u8, 0, 0, 0, 0xd0, 0, 0x30, 0]);
    put(0x30 + 24, &log_bytes.to_le_bytes());
    // The client has no other before or behind it.
    put(0x60 + 16, &[0xff; 4]);
    (1..=8).for_each(|sector| put(sector * 512 - 2, &[1, 0]));
    put(0x1e, &[1, 0]);
    page
}

#[test]
fn volumes_that_are_dirty_or_hibernated_have_nothing_free() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    make(&path, "10M", &[]);
    let shown = Shown::new(&path, "rw");
    for name in ["pagefile.sys", "hiberfil.sys"] {
        std::fs::write(shown.at.join(name), vec![0; 50_000]).unwrap();
    }
    drop(shown);
    let image = Image(std::fs::File::options().read(true).write(true).open(&path).unwrap());
    let state = || open(&image).unwrap().unwrap().facts().state;
    let check = |expected: Option<Unclean>, verdict: i32| {
        assert_eq!(state(), expected.map_or(State::Clean, State::Dirty));
        let files = open(&image).unwrap().unwrap();
        assert_eq!(files.free().is_ok(), expected.is_none());
        assert_eq!(files.page_files().is_ok(), expected.is_none());
        assert!(files.node(find(&*files, "pagefile.sys")).is_ok());
        let probe = Command::new("ntfs-3g.probe").arg("--readwrite").arg(&path).output().unwrap();
        assert_eq!(probe.status.code(), Some(verdict), "{expected:?}");
    };
    check(None, 0);
    let files = open(&image).unwrap().unwrap();
    let mut swap = files.page_files().unwrap();
    swap.sort_unstable();
    let mut expected = [find(&*files, "pagefile.sys"), find(&*files, "hiberfil.sys")];
    expected.sort_unstable();
    assert_eq!(swap, expected);

    let place = |files: &dyn FileSystem, number: u64| {
        let mut at = None;
        let found = files.pieces(number, 0..1, &mut |piece| {
            at = if let Source::Volume(place) = piece.source { Some(place) } else { None };
            ControlFlow::Break(())
        });
        found.unwrap();
        at.unwrap()
    };
    let hibernation = place(&*files, find(&*files, "hiberfil.sys"));
    let log = place(&*files, 2);
    let log_bytes = files.node(2).unwrap().metadata.size;
    drop(files);
    image.0.write_all_at(b"hibr", hibernation).unwrap();
    check(Some(Unclean::Hibernated), 14);
    image.0.write_all_at(b"WAKE", hibernation).unwrap();
    check(None, 0);
    let mut before = vec![0; 8192];
    image.0.read_exact_at(&mut before, log).unwrap();
    assert!(before.iter().all(|byte| *byte == 0xff));
    let log_is = |client, flags| {
        let page = restart_page(log_bytes, client, flags);
        image.0.write_all_at(&[&page[..], &page].concat(), log).unwrap();
    };
    log_is(0, 0);
    check(Some(Unclean::JournalInUse), 15);
    log_is(0, 2);
    check(None, 0);
    log_is(0xffff, 0);
    check(None, 0);
    image.0.write_all_at(&[7], log + 510).unwrap();
    assert_eq!(state(), State::Dirty(Unclean::JournalInUse));
    image.0.write_all_at(&before, log).unwrap();
    check(None, 0);

    // The flags of the volume, in its own record.
    let mut sector = [0; 512];
    image.0.read_exact_at(&mut sector, 0).unwrap();
    let cluster = u64::from(sector[13]) * 512;
    let mft = u64::from_le_bytes(sector[48..56].try_into().unwrap()) * cluster;
    let mut record = vec![0; 1024];
    image.0.read_exact_at(&mut record, mft + 3 * 1024).unwrap();
    let is_information = |at: &usize| record[*at..].starts_with(&[0x70, 0, 0, 0, 0x28, 0, 0, 0]);
    let information = (0x30..900).step_by(8).find(is_information).unwrap();
    image.0.write_all_at(&[1], mft + 3 * 1024 + information as u64 + 24 + 10).unwrap();
    assert_eq!(state(), State::Dirty(Unclean::Errors));
}

/// A small volume with some of everything.
fn small() -> Vec<u8> {
    let folder = folder();
    let path = folder.path().join("image");
    make(&path, "4M", &["-c", "1024"]);
    let shown = Shown::new(&path, "rw");
    let at = &shown.at;
    std::fs::create_dir(at.join("many")).unwrap();
    (0..100).for_each(|n| std::fs::write(at.join(format!("many/name {n}")), "x").unwrap());
    std::fs::write(at.join("file"), vec![7; 100_000]).unwrap();
    std::fs::create_dir(at.join("packed")).unwrap();
    set(&at.join("packed"), "system.ntfs_attrib_be", &[0, 0, 8, 0]);
    std::fs::write(at.join("packed/text"), b"some text ".repeat(9000)).unwrap();
    set(&at.join("file"), "user.stream", &[9; 3000]);
    std::os::unix::fs::symlink("target", at.join("link")).unwrap();
    drop(shown);
    std::fs::read(&path).unwrap()
}

#[test]
fn changed_bytes_of_ntfs_end_in_errors_or_in_other_files() {
    if skipped(cannot()) {
        return;
    }
    let bytes = small();
    let used = used(&bytes);
    let (mut opened, mut names) = (0, 0);
    for seed in 0..300 {
        let changes = changes(&mut Random::new(seed), &bytes, &used);
        let changed = Changed { bytes: &bytes, changes };
        if let Ok(Some(files)) = open(&changed) {
            opened += 1;
            names += explore(&*files);
        }
    }
    assert!(opened > 100 && names > 5000, "{opened} {names}");
    // Each byte of the boot sector, and of the records that describe the file system.
    let cluster = u64::from(bytes[13]) * 512;
    let mft = u64::from_le_bytes(bytes[48..56].try_into().unwrap()) * cluster;
    let places = (0..100).chain((0..16).flat_map(|n| mft + n * 1024..mft + n * 1024 + 480));
    for at in places {
        let before = bytes[at as usize];
        let value = [0, 0x80, 0xff, before ^ 1][(at % 4) as usize];
        let changed = Changed { bytes: &bytes, changes: vec![(at, value)] };
        if let Ok(Some(files)) = open(&changed) {
            drop(files.node(files.root()));
            drop(files.entries(files.root(), &mut |_| ControlFlow::Continue(())));
            if at % 8 == 0 {
                drop(files.free());
            }
        }
    }
    for end in (0..bytes.len()).step_by(40_009) {
        assert!(!matches!(open(&bytes[..end].to_vec()), Ok(Some(_))), "{end}");
    }
}
