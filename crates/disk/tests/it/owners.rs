//! Volumes that something else may own as well: their files are listed, and nothing of them is free.

use std::fs::File;
use std::os::unix::fs::FileExt;

use strongroom_disk::{ReadAt, State, open, open_swap, volumes};
use strongroom_testkit::skipped;

use crate::hostile::Changed;
use crate::world::{Image, folder, lacks, make_ext, run};

/// What other owners leave: a layer below the file system, or another file system.
const MARKS: [(u64, &[u8]); 13] = [
    (0, b"LUKS\xba\xbe"),
    (512, b"LABELONE"),
    (4096, b"\xfc\x4e\x2b\xa9"),
    (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    (32_769, b"CD001"),
    (65_588, b"ReIsErFs"),
    (65_600, b"_BHRfS_M"),
    (512, b"EFI PART"),
    (512, b"\x57\x45\x56\x82"),
    (3072, b"PRIVHEAD"),
    // ZFS: its list of names and values, and an uberblock of either order of bytes.
    (16_404, b"\0\0\0\x07version"),
    (131_072, b"\x0c\xb1\xba\0\0\0\0\0"),
    (131_072 + 127 * 1024, b"\0\0\0\0\0\xba\xb1\x0c"),
];

fn with<'a>(image: &'a [u8], at: u64, mark: &[u8]) -> Changed<'a> {
    Changed { bytes: image, changes: (at..).zip(mark.iter().copied()).collect() }
}

#[test]
fn kept_1_7_nothing_is_free_where_another_owner_left_a_mark() {
    if skipped(lacks(&["mke2fs", "mkswap", "mkfs.fat"])) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    let name = path.to_str().unwrap();
    make_ext(&path, "20M", &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^uninit_bg"]);
    let ext = std::fs::read(&path).unwrap();
    let clean = open(&ext).unwrap().unwrap();
    assert!(clean.free().unwrap().bytes() > 1 << 20);
    drop(clean);
    for (at, mark) in MARKS {
        let volume = with(&ext, at, mark);
        let files = open(&volume).unwrap().unwrap();
        assert!(matches!(files.facts().state, State::NotUnderstood(_)), "mark at {at}");
        assert!(files.free().is_err() && files.node(files.root()).is_ok(), "mark at {at}");
    }
    // The boot sector of a FAT before it.
    run("truncate", &["-s", "3M", name]);
    run("mkfs.fat", &["-F", "12", name]);
    let fat = std::fs::read(&path).unwrap();
    let volume = with(&ext, 0, &fat[..512]);
    assert!(open(&volume).unwrap().unwrap().free().is_err());

    run("truncate", &["-s", "2M", name]);
    run("mkswap", &["-q", "-f", name]);
    let swap = std::fs::read(&path).unwrap();
    assert!(open_swap(&swap).unwrap().is_some());
    for (at, mark) in MARKS {
        assert_eq!(open_swap(&with(&swap, at, mark)).unwrap(), None, "mark at {at}");
    }
    // A part of a RAID whose mark is at the end; of one of level 1, each part is the whole.
    for (level, is_alone) in [(1, true), (0, false), (5, false)] {
        let at = (20 << 20) - (64 << 10);
        let mut volume = with(&ext, at, b"\xfc\x4e\x2b\xa9");
        volume.changes.push((at + 28, level));
        assert_eq!(open(&volume).unwrap().unwrap().free().is_ok(), is_alone, "level {level}");
    }
}

#[test]
fn kept_1_7_nothing_is_free_in_the_partitions_of_a_table_that_may_be_a_remainder() {
    if skipped(lacks(&["sfdisk"])) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("disk");
    let name = path.to_str().unwrap();
    run("truncate", &["-s", "64M", name]);
    let script = format!("printf 'label: gpt\\nstart=2048,size=20480\\n' | sfdisk -q {name}");
    run("bash", &["-c", &script]);
    let is_shared = |reader: &dyn ReadAt| {
        let layout = volumes(&[reader]);
        layout.volumes.iter().map(|volume| volume.is_shared).collect::<Vec<_>>()
    };
    let image = Image::open(&path);
    assert_eq!(is_shared(&image), [false]);
    // Another use of the disk removed the first sector, or the first copy as well.
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0; 512], 0).unwrap();
    assert_eq!(is_shared(&image), [true]);
    file.write_all_at(&[0; 512], 512).unwrap();
    assert_eq!(is_shared(&image), [true]);
    // Both are gone, or there is something that is neither a table nor a boot loader.
    let mut bytes = vec![0; 1 << 20];
    assert_eq!(is_shared(&bytes), [false]);
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    assert_eq!(is_shared(&bytes), [false]);
    bytes[446] = 3;
    assert_eq!(is_shared(&bytes), [true]);
    let mut bytes = vec![0; 1 << 20];
    bytes[512..520].copy_from_slice(b"EFI PART");
    assert_eq!(is_shared(&bytes), [true]);
}

/// A guest that uses a volume as a disk: what was there before can survive its table.
#[test]
fn nothing_is_free_where_a_volume_has_a_partition_table() {
    if skipped(lacks(&["mke2fs", "mkswap", "mkfs.fat", "sfdisk"])) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    let name = path.to_str().unwrap();
    let script = format!("printf 'label: dos\\n2048,,83\\n' | sfdisk -q {name}");
    make_ext(&path, "20M", &["-t", "ext4", "-b", "4096"]);
    assert!(open(&Image::open(&path)).unwrap().unwrap().free().is_ok());
    run("bash", &["-c", &script]);
    let table = std::fs::read(&path).unwrap()[440..512].to_vec();
    let image = Image::open(&path);
    let files = open(&image).unwrap().unwrap();
    assert!(matches!(files.facts().state, State::NotUnderstood(_)), "{:?}", files.facts().state);
    assert!(files.free().is_err());

    run("truncate", &["-s", "2M", name]);
    run("mkswap", &["-q", "-f", name]);
    assert!(open_swap(&Image::open(&path)).unwrap().is_some());
    run("bash", &["-c", &script]);
    assert_eq!(open_swap(&Image::open(&path)).unwrap(), None);

    // A program that writes the table alone leaves the boot sector of a FAT around it.
    drop(std::fs::remove_file(&path));
    run("truncate", &["-s", "3M", name]);
    run("mkfs.fat", &["-F", "12", name]);
    let fat = std::fs::read(&path).unwrap();
    assert!(!volumes(&[&fat]).volumes[0].is_shared && open(&fat).unwrap().unwrap().free().is_ok());
    let both = [&fat[..440], &table, &fat[512..]].concat();
    assert!(volumes(&[&both]).volumes[0].is_shared);
    assert!(open(&both).unwrap().unwrap().free().is_err());
}

/// Windows keeps for a shadow copy what was freed since, in its place.
#[test]
fn nothing_is_free_where_a_volume_has_shadow_copies() {
    if skipped(lacks(&["mkfs.ntfs"])) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    let name = path.to_str().unwrap();
    run("truncate", &["-s", "8M", name]);
    run("mkfs.ntfs", &["-q", "-F", name]);
    let ntfs = std::fs::read(&path).unwrap();
    let id = *b"\x6b\x87\x08\x38\x76\xc1\x48\x4e\xb7\xae\x04\x04\x6e\x6c\xc7\x52";
    let mut volume = with(&ntfs, 0x1e00, &id);
    assert!(open(&volume).unwrap().unwrap().free().unwrap().bytes() > 1 << 20);
    volume.changes.push((0x1e00 + 50, 0x11));
    let files = open(&volume).unwrap().unwrap();
    let state = files.facts().state;
    assert!(state.to_string().contains("shadow copies"), "{state}");
    assert!(files.free().is_err() && files.node(files.root()).is_ok());
}
