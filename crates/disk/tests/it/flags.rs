//! Every bit of every word of flags: it is in the list of what is carried out, or the volume is not
//! understood, and nothing of it is free.

use std::path::Path;

use strongroom_disk::{
    DiskError, FlagWord, ImageOptions, NotUnderstood, ReadAt, State, flag_words, open, open_image,
};
use strongroom_testkit::skipped;

use crate::hostile::Changed;
use crate::world::{folder, lacks, make_btrfs, make_ext, make_xfs, run};

/// Where a word is, and how it is stored.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    bytes: usize,
    is_big_endian: bool,
}

fn le(at: usize, bytes: usize) -> Place {
    Place { at, bytes, is_big_endian: false }
}

fn be(at: usize, bytes: usize) -> Place {
    Place { at, bytes, is_big_endian: true }
}

fn word(name: &str) -> FlagWord {
    *flag_words().iter().find(|word| word.name == name).unwrap_or_else(|| panic!("{name}"))
}

/// A bit of a word, set; `None` if it was set before.
fn set(image: &[u8], place: Place, bit: usize) -> Option<(u64, u8)> {
    let byte = if place.is_big_endian { place.bytes - 1 - bit / 8 } else { bit / 8 };
    let at = place.at + byte;
    let mask = 1 << (bit % 8);
    (image[at] & mask == 0).then(|| (at as u64, image[at] | mask))
}

/// Puts the checksum of a structure right after a change.
type Seal<'s> = &'s dyn Fn(&[u8], &mut Vec<(u64, u8)>);

/// Goes through the bits of a word. Returns how many of them are not known.
fn sweep(image: &[u8], name: &str, place: Place, seal: Seal<'_>) -> usize {
    let word = word(name);
    let mut unknown = 0;
    for bit in 0..place.bytes * 8 {
        let Some(change) = set(image, place, bit) else {
            assert!(word.known >> bit & 1 != 0, "{name}: bit {bit} of a usual volume is not known");
            continue;
        };
        let mut changes = vec![change];
        seal(image, &mut changes);
        let volume = Changed { bytes: image, changes };
        let what = format!("bit {bit} of {name}");
        let state = match open(&volume) {
            Ok(Some(files)) => {
                let is_trusted = files.facts().state.is_trusted();
                assert!(is_trusted || files.free().is_err(), "{what}");
                Ok(files.facts().state)
            }
            Ok(None) => panic!("{what}: it is no file system any more"),
            Err(error) => Err(error),
        };
        let is_unknown_here = |why: NotUnderstood| matches!(why, NotUnderstood::Flags { word, bits } if word == name && bits == 1 << bit);
        match (word.known >> bit & 1 != 0, state) {
            (true, Ok(State::NotUnderstood(why))) => assert!(!is_unknown_here(why), "{what}"),
            (true, Err(DiskError::NotUnderstood(why))) => assert!(!is_unknown_here(why), "{what}"),
            (true, _) => {}
            (false, Ok(State::NotUnderstood(_))) => unknown += 1,
            (false, Err(DiskError::NotUnderstood(_) | DiskError::Unsupported { .. })) => {
                unknown += 1;
            }
            (false, other) => panic!("{what}: {other:?}"),
        }
    }
    unknown
}

/// The document has the lists as they are.
#[test]
fn the_document_lists_what_is_carried_out() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/design/0039-not-understood.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter(|line| line.contains(" | 0x"));
    let listed: Vec<String> = rows.map(str::to_owned).collect();
    let row = |word: &FlagWord| format!("| {} | {:#x} |", word.name, word.known);
    assert_eq!(listed, flag_words().iter().map(row).collect::<Vec<_>>());
}

fn unsealed(_: &[u8], _: &mut Vec<(u64, u8)>) {}

/// The bytes of a structure with the changes.
fn changed(image: &[u8], changes: &[(u64, u8)], start: usize, bytes: usize) -> Vec<u8> {
    let mut part = vec![0; bytes];
    let volume = Changed { bytes: image, changes: changes.to_vec() };
    volume.read_at(start as u64, &mut part).unwrap();
    part
}

fn put(changes: &mut Vec<(u64, u8)>, at: usize, bytes: &[u8]) {
    changes.extend((at as u64..).zip(bytes.iter().copied()));
}

fn number(bytes: &[u8], at: usize) -> usize {
    bytes[at..at + 4].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

fn image(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

#[test]
fn kept_1_7_every_flag_of_ext4_is_known_or_refused() {
    if skipped(lacks(&["mke2fs"])) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    // Without checksums of metadata, each change is valid by itself.
    make_ext(&path, "20M", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^uninit_bg"]);
    let image = image(&path);
    let count = |name, place| sweep(&image, name, place, &unsealed);
    assert_eq!(count("compatible features of ext4", le(0x45c, 4)), 23);
    assert_eq!(count("incompatible features of ext4", le(0x460, 4)), 19);
    assert_eq!(count("read-only compatible features of ext4", le(0x464, 4)), 17);
    assert_eq!(count("the state of ext4", le(0x43a, 2)), 13);
    assert_eq!(count("flags of ext4", le(0x560, 4)), 29);
    let journal = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
    let journal = (0..image.len()).step_by(1024).find(|at| image[*at..].starts_with(&journal));
    let journal = journal.unwrap();
    let count = |name, at| sweep(&image, name, be(journal + at, 4), &unsealed);
    assert_eq!(count("compatible features of the journal of ext4", 0x24), 31);
    assert_eq!(count("incompatible features of the journal of ext4", 0x28), 26);
    assert_eq!(count("read-only compatible features of the journal of ext4", 0x2c), 32);

    // The flags of an inode: of the root.
    let table = number(&image, 2048 + 8) * 1024;
    let inode_bytes = usize::from(image[0x458]) | usize::from(image[0x459]) << 8;
    let flags = le(table + inode_bytes + 0x20, 4);
    let known = word("flags of an inode of ext4").known;
    for bit in 0..32 {
        let Some(change) = set(&image, flags, bit) else { continue };
        let volume = Changed { bytes: &image, changes: vec![change] };
        let files = open(&volume).unwrap().unwrap();
        let free = files.free();
        if known >> bit & 1 == 0 {
            assert!(matches!(free, Err(DiskError::NotUnderstood(_))), "bit {bit}: {free:?}");
        }
    }
    // Other systems, other revisions.
    for (at, value) in [(0x448, 1), (0x448, 2), (0x44c, 2), (0x41c, 1)] {
        let volume = Changed { bytes: &image, changes: vec![(at, value)] };
        let files = open(&volume).unwrap().unwrap();
        assert!(matches!(files.facts().state, State::NotUnderstood(_)), "{at:#x}: {value}");
        assert!(files.free().is_err());
    }
}

#[test]
fn kept_1_7_every_flag_of_xfs_is_known_or_refused() {
    if skipped(lacks(&["mkfs.xfs"])) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    make_xfs(&path, "110M", &["-b", "size=4096"]);
    let seal: Seal<'_> = &|image, changes| {
        let mut sector = changed(image, changes, 0, 512);
        sector[224..228].fill(0);
        put(changes, 224, &crc32c::crc32c(&sector).to_le_bytes());
    };
    let v5 = image(&path);
    let count = |name, place| sweep(&v5, name, place, seal);
    assert_eq!(count("the version of XFS", be(100, 2)), 1);
    assert_eq!(count("more features of XFS 5", be(200, 4)), 27);
    assert_eq!(count("compatible features of XFS", be(208, 4)), 32);
    assert_eq!(count("read-only compatible features of XFS", be(212, 4)), 28);
    assert_eq!(count("incompatible features of XFS", be(216, 4)), 24);
    assert_eq!(count("incompatible features of the log of XFS", be(220, 4)), 31);
    assert_eq!(count("flags of XFS", be(178, 1)), 7);
    make_xfs(&path, "110M", &["-m", "crc=0,finobt=0", "-b", "size=4096"]);
    let v4 = image(&path);
    assert_eq!(sweep(&v4, "more features of XFS 4", be(200, 4), &unsealed), 28);
}

#[test]
fn kept_1_7_every_flag_of_btrfs_is_known_or_refused() {
    if skipped(lacks(&["mkfs.btrfs"])) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    make_btrfs(&path, "120M", &[]);
    let image = image(&path);
    const AT: usize = 64 << 10;
    let seal: Seal<'_> = &|image, changes| {
        let superblock = changed(image, changes, AT, 4096);
        put(changes, AT, &crc32c::crc32c(&superblock[32..]).to_le_bytes());
    };
    let count = |name, at| sweep(&image, name, le(AT + at, 8), seal);
    assert_eq!(count("flags of Btrfs", 56), 56);
    assert_eq!(count("compatible features of Btrfs", 172), 64);
    assert_eq!(count("read-only compatible features of Btrfs", 180), 60);
    assert_eq!(count("incompatible features of Btrfs", 188), 51);
}

#[test]
fn kept_1_7_every_flag_of_what_windows_has_is_known_or_refused() {
    if skipped(lacks(&["mkfs.ntfs", "mkfs.fat", "mkfs.exfat"])) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    let name = path.to_str().unwrap();
    let fresh = |size: &str, tool: &str, options: &[&str]| {
        drop(std::fs::remove_file(&path));
        run("truncate", &["-s", size, name]);
        run(tool, &[options, &[name]].concat());
        image(&path)
    };
    let ntfs = fresh("20M", "mkfs.ntfs", &["-q", "-F"]);
    // The fourth record of the MFT describes the volume.
    let cluster = usize::from(ntfs[13]) * 512;
    let record = number(&ntfs, 48) * cluster + 3 * 1024;
    let mut at = record + usize::from(ntfs[record + 20]);
    while number(&ntfs, at) != 0x70 {
        at += number(&ntfs, at + 4);
    }
    let information = at + usize::from(ntfs[at + 20]);
    assert_eq!(sweep(&ntfs, "flags of a volume of NTFS", le(information + 10, 2), &unsealed), 7);
    for version in [(3, 2), (4, 0), (1, 1)] {
        let changes =
            vec![(information as u64 + 8, version.0), (information as u64 + 9, version.1)];
        let volume = Changed { bytes: &ntfs, changes };
        let files = open(&volume).unwrap().unwrap();
        assert!(matches!(files.facts().state, State::NotUnderstood(_)), "{version:?}");
    }
    for bits in ["12", "16", "32"] {
        let size = if bits == "12" { "3M" } else { "40M" };
        let options: &[&str] = if bits == "32" { &["-F", bits, "-s", "1"] } else { &["-F", bits] };
        let fat = fresh(size, "mkfs.fat", options);
        let state = if bits == "32" { 65 } else { 37 };
        assert_eq!(sweep(&fat, "the state of FAT", le(state, 1), &unsealed), 6, "FAT{bits}");
        if bits == "32" {
            assert_eq!(sweep(&fat, "flags of FAT32", le(40, 2), &unsealed), 11);
        }
    }
    let exfat = fresh("20M", "mkfs.exfat", &[]);
    assert_eq!(sweep(&exfat, "flags of exFAT", le(106, 2), &unsealed), 12);
}

#[test]
fn kept_1_7_every_flag_of_an_image_is_known_or_refused() {
    if skipped(lacks(&["qemu-img"])) {
        return;
    }
    let folder = folder();
    for (format, name, place, expected) in [
        ("qcow2", "incompatible features of qcow2", be(72, 8), 59),
        ("vmdk", "flags of VMDK", le(8, 4), 27),
    ] {
        let path = folder.path().join(format!("image.{format}"));
        run("qemu-img", &["create", "-q", "-f", format, path.to_str().unwrap(), "4M"]);
        let fresh = image(&path);
        let mut refused = 0;
        for bit in 0..place.bytes * 8 {
            let Some((at, byte)) = set(&fresh, place, bit) else { continue };
            if word(name).known >> bit & 1 != 0 {
                continue;
            }
            let mut bytes = fresh.clone();
            bytes[at as usize] = byte;
            std::fs::write(&path, bytes).unwrap();
            let error = open_image(&path, ImageOptions::default()).map(drop).unwrap_err();
            assert!(error.to_string().contains("not supported"), "{name}: bit {bit}: {error}");
            refused += 1;
        }
        assert_eq!(refused, expected, "{name}");
    }
}
