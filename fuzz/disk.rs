//! Disks that another program wrote: tables, LVM's metadata, ext2, ext3 and ext4 with their
//! journals, FAT, exFAT and NTFS.
//!
//! For any bytes, each call ends, within bounded memory. The input is a list of patches of
//! a disk of zeros, so that a mutation changes a field, and a seed is a small image.

#![no_main]

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::process::Command;

use libfuzzer_sys::fuzz_target;
use strongroom_disk::{FileSystem, NodeKind, ReadAt, Swap, VolumeReader, open, volumes};
use strongroom_fuzz::{Input, measure, write_seeds_if_asked};

const DISK_BYTES: usize = 1 << 20;
const PATCH_BYTES: usize = 256;
/// What a disk of this size may take: the cache of metadata blocks, and what is read at once.
const MEMORY_BYTES_MAX: usize = 24 << 20;
/// Names and files that are looked at.
const LOOKS_MAX: usize = 2000;

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    let disk = disk(&mut Input::new(data));
    let measured = measure(|| {
        let disks: [&dyn ReadAt; 1] = [&disk];
        let layout = volumes(&disks);
        for volume in layout.volumes.iter().take(8) {
            let reader = VolumeReader::new(volume, &disks);
            if let Ok(Some(swap)) = Swap::find(&reader) {
                assert!(swap.free.end <= volume.bytes);
            }
            if let Ok(Some(files)) = open(&reader) {
                explore(&*files, volume.bytes);
            }
        }
    });
    assert!(measured.peak_bytes < MEMORY_BYTES_MAX, "{} bytes", measured.peak_bytes);
});

/// A disk of zeros with patches: a place of three bytes, a length, and the bytes.
fn disk(input: &mut Input<'_>) -> Vec<u8> {
    let mut disk = vec![0; DISK_BYTES];
    while !input.is_empty() {
        let [low, middle, high, length] = input.array();
        let at = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
        let at = at % (DISK_BYTES - PATCH_BYTES);
        let bytes = input.bytes(usize::from(length) + 1);
        disk[at..at + bytes.len()].copy_from_slice(bytes);
    }
    disk
}

fn explore(files: &dyn FileSystem, volume_bytes: u64) {
    let mut seen = BTreeSet::from([files.root()]);
    let mut folders = vec![files.root()];
    let mut looks_left = LOOKS_MAX;
    let mut buffer = vec![0; 4096];
    while let Some(folder) = folders.pop() {
        let mut found = Vec::new();
        drop(files.entries(folder, &mut |entry| {
            found.push(entry.inode);
            looks_left = looks_left.saturating_sub(1);
            if looks_left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }));
        for inode in found {
            let Ok(node) = files.node(inode) else { continue };
            if !seen.insert(inode) {
                continue;
            }
            if node.kind == NodeKind::Directory {
                folders.push(inode);
            }
            drop(files.read(inode, 0, &mut buffer));
            drop(files.read(inode, node.metadata.size.saturating_sub(9), &mut buffer));
            let mut end = 0;
            drop(files.pieces(inode, 0..u64::MAX, &mut |piece| {
                assert!(piece.offset >= end && piece.bytes > 0);
                end = piece.offset + piece.bytes;
                assert!(end <= node.metadata.size);
                ControlFlow::Continue(())
            }));
        }
    }
    drop(strongroom_disk::swap_files(files));
    if let Ok(free) = files.free() {
        assert!(free.ranges().all(|range| range.start < range.end && range.end <= volume_bytes));
    }
}

/// The patches that make an image.
fn patches(image: &[u8]) -> Vec<u8> {
    let mut patches = Vec::new();
    for (index, part) in image.chunks(PATCH_BYTES).enumerate() {
        let Some(last) = part.iter().rposition(|byte| *byte != 0) else { continue };
        let at = ((index * PATCH_BYTES) as u32).to_le_bytes();
        patches.extend([at[0], at[1], at[2], last as u8]);
        patches.extend(&part[..=last]);
    }
    patches
}

/// Images of the tools, if they are installed; a table by hand in any case.
fn seeds() -> Vec<Vec<u8>> {
    let mut table = vec![0; 512];
    table[446 + 4] = 0x83;
    table[446 + 8] = 1;
    table[446 + 13] = 2;
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    let sets: [&[&str]; 4] = [
        &["-t", "ext2", "-O", "^resize_inode"],
        &["-t", "ext4", "-O", "^metadata_csum,^has_journal,inline_data,^resize_inode"],
        &["-t", "ext4", "-O", "^has_journal,^resize_inode"],
        &["-t", "ext4", "-O", "^metadata_csum,meta_bg,^resize_inode,^has_journal", "-g", "256"],
    ];
    let mut seeds = vec![patches(&table)];
    seeds.extend(sets.into_iter().filter_map(image).map(|image| patches(&image)));
    seeds.extend(FOREIGN.into_iter().filter_map(foreign).map(|image| patches(&image)));
    seeds
}

/// Tools that make other file systems, and copy a file into them: `IMAGE`, `FILE` and a name.
const FOREIGN: [(&[&str], &[&str]); 5] = [
    (&["mkfs.vfat", "-F", "12", "IMAGE"], &["mcopy", "-i", "IMAGE", "FILE", "::a longer name"]),
    (&["mkfs.vfat", "-F", "12", "-s", "1", "IMAGE"], &["mmd", "-i", "IMAGE", "::folder"]),
    (&["mkfs.vfat", "-F", "32", "-s", "1", "IMAGE"], &["mcopy", "-i", "IMAGE", "FILE", "::name"]),
    (&["mkfs.exfat", "-c", "512", "-b", "4K", "-L", "label", "IMAGE"], &["true"]),
    (&["mkfs.ntfs", "-q", "-F", "-c", "512", "IMAGE"], &["ntfscp", "-f", "IMAGE", "FILE", "name"]),
];

fn foreign((make, fill): (&[&str], &[&str])) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().ok()?;
    let (file, path) = (folder.path().join("file"), folder.path().join("image"));
    std::fs::write(&file, vec![7; 15_000]).ok()?;
    std::fs::write(&path, vec![0; DISK_BYTES]).ok()?;
    for words in [make, fill] {
        let words = words.iter().map(|word| match *word {
            "IMAGE" => path.as_os_str().to_owned(),
            "FILE" => file.as_os_str().to_owned(),
            other => other.into(),
        });
        let words: Vec<_> = words.collect();
        let tool = Command::new(&words[0]).args(&words[1..]).output().ok()?;
        tool.status.success().then_some(())?;
    }
    let mut image = std::fs::read(&path).ok()?;
    // What is behind it no patch can reach.
    image.truncate(DISK_BYTES - PATCH_BYTES);
    Some(image)
}

fn image(options: &[&str]) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().ok()?;
    let (source, path) = (folder.path().join("source"), folder.path().join("image"));
    std::fs::create_dir_all(source.join("inner")).ok()?;
    std::fs::write(source.join("inner/small"), "content").ok()?;
    std::fs::write(source.join("large"), vec![7; 15_000]).ok()?;
    std::os::unix::fs::symlink("target", source.join("link")).ok()?;
    std::fs::write(&path, vec![0; DISK_BYTES - PATCH_BYTES]).ok()?;
    let mut tool = Command::new("mke2fs");
    tool.args(["-q", "-F", "-b", "1024", "-N", "32", "-d"]).arg(source);
    let made = tool.args(options).arg(&path).arg("1000").status().ok()?;
    made.success().then(|| std::fs::read(&path).ok()).flatten()
}
