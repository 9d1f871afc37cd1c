//! Disks that lie: any bytes are changed, each call ends, and nothing panics.

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;

use strongroom_disk::{FileSystem, NodeKind, ReadAt, Swap, VolumeReader, open, volumes};
use strongroom_testkit::{Random, skipped};

use crate::world::{folder, lacks, make_ext, run};

/// An image with some bytes changed.
pub struct Changed<'a> {
    pub bytes: &'a [u8],
    pub changes: Vec<(u64, u8)>,
}

impl ReadAt for Changed<'_> {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..));
        let part = from.and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        for (at, byte) in &self.changes {
            if let Some(place) = at.checked_sub(offset).and_then(|at| buffer.get_mut(at as usize)) {
                *place = *byte;
            }
        }
        Ok(())
    }
}

/// Uses all of a file system. Returns how many names were found.
pub fn explore(files: &dyn FileSystem) -> usize {
    let mut seen = BTreeSet::from([files.root()]);
    let mut folders = vec![files.root()];
    let mut names = 0;
    let mut buffer = vec![0; 10_000];
    while let Some(folder) = folders.pop() {
        let mut found = Vec::new();
        drop(files.entries(folder, &mut |entry| {
            found.push(entry.inode);
            if found.len() < 10_000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }));
        names += found.len();
        for inode in found {
            let Ok(node) = files.node(inode) else { continue };
            if node.kind == NodeKind::Directory && seen.insert(inode) {
                folders.push(inode);
            } else if node.kind == NodeKind::File && seen.insert(inode) {
                drop(files.read(inode, 0, &mut buffer));
                drop(files.read(inode, node.metadata.size.saturating_sub(5), &mut buffer));
                drop(files.pieces(inode, 0..u64::MAX, &mut |_| ControlFlow::Continue(())));
            }
        }
    }
    if let Ok(free) = files.free() {
        assert!(free.bytes() <= files.facts().bytes);
    }
    names
}

fn image(options: &[&str], is_dirty: bool) -> Vec<u8> {
    let folder = folder();
    let (source, path) = (folder.path().join("source"), folder.path().join("image"));
    std::fs::create_dir_all(source.join("many")).unwrap();
    (0..100).for_each(|n| std::fs::write(source.join(format!("many/{n}")), "x").unwrap());
    for bytes in [10, 100, 30_000, 600_000] {
        std::fs::write(source.join(format!("file-{bytes}")), vec![bytes as u8; bytes]).unwrap();
    }
    std::os::unix::fs::symlink("t".repeat(200), source.join("link")).unwrap();
    run("setfattr", &["-n", "user.note", "-v", "kept", source.join("many/5").to_str().unwrap()]);
    make_ext(&path, "4M", &[options, &["-b", "1024", "-d", source.to_str().unwrap()]].concat());
    if is_dirty {
        let commands = folder.path().join("commands");
        std::fs::write(&commands, "jo\njw -b 3000,3001,3002 /bin/true\njw -r 3001\njc\n").unwrap();
        run("debugfs", &["-w", "-f", commands.to_str().unwrap(), path.to_str().unwrap()]);
    }
    std::fs::read(&path).unwrap()
}

/// The lines of 64 bytes in which there is something.
pub fn used(bytes: &[u8]) -> Vec<u64> {
    let lines = bytes.chunks(64).zip(0..);
    let used = lines.filter(|(line, _)| line.iter().any(|byte| *byte != 0));
    used.map(|(_, index)| index).collect()
}

/// Changes a few bytes where there is something, most of them where structures are.
pub fn changes(random: &mut Random, bytes: &[u8], used: &[u64]) -> Vec<(u64, u8)> {
    let count = 1 + random.below(6);
    let mut changes = Vec::new();
    for _ in 0..count {
        let at = match random.below(4) {
            0 => 1024 + random.below(1024),
            1 => 2048 + random.below(256),
            _ => *random.pick(used) * 64 + random.below(64),
        };
        let extreme = [0, 1, 0x7f, 0x80, 0xff, random.number() as u8];
        let value = *random.pick(&extreme);
        let width = random.below(4);
        changes.extend((0..=width).map(|n| (at + n, value)));
        if random.once_in(3) {
            changes.push((at, bytes[at as usize] ^ (1 << random.below(8))));
        }
    }
    changes
}

#[test]
fn changed_bytes_of_a_file_system_end_in_errors_or_in_other_files() {
    if skipped(lacks(&["mke2fs", "debugfs", "setfattr"])) {
        return;
    }
    let journal = ["-J", "size=1"];
    let sets = [
        image(&["-t", "ext4", "-O", "^metadata_csum", "-J", "size=1"], true),
        image(&["-t", "ext2"], false),
        image(&["-t", "ext4", "-O", "inline_data,^metadata_csum,^has_journal"], false),
        image(&[&["-t", "ext4"][..], &journal].concat(), true),
    ];
    for (set, bytes) in sets.iter().enumerate() {
        let used = used(bytes);
        let (mut opened, mut names) = (0, 0);
        for seed in 0..700 {
            let mut random = Random::new(seed * 4 + set as u64);
            let changed = Changed { bytes, changes: changes(&mut random, bytes, &used) };
            if let Ok(Some(files)) = open(&changed) {
                opened += 1;
                names += explore(&*files);
            }
        }
        assert!(opened > 200 && names > 10_000, "set {set}: {opened} {names}");
    }
}

#[test]
fn a_file_system_that_is_cut_off_anywhere_is_refused() {
    if skipped(lacks(&["mke2fs", "debugfs", "setfattr"])) {
        return;
    }
    let bytes = image(&["-t", "ext4", "-J", "size=1"], false);
    assert!(open(&bytes).unwrap().is_some());
    for end in (0..bytes.len()).step_by(40_009) {
        let short = bytes[..end].to_vec();
        assert!(!matches!(open(&short), Ok(Some(_))), "{end}");
    }
}

#[test]
fn a_list_of_blocks_that_repeats_itself_ends() {
    if skipped(lacks(&["mke2fs", "debugfs", "setfattr"])) {
        return;
    }
    let mut bytes = image(&["-t", "ext2"], false);
    // The block lists of the large file lead to themselves on each level.
    let files = open(&bytes).unwrap().unwrap();
    let mut large = 0;
    let root = files.root();
    let listed = files.entries(root, &mut |entry| {
        large = if entry.name == b"file-600000" { entry.inode } else { large };
        ControlFlow::Continue(())
    });
    listed.unwrap();
    let mut last = 0;
    let all = files.pieces(large, 0..u64::MAX, &mut |piece| {
        last = match piece.source {
            strongroom_disk::Source::Volume(at) => at / 1024,
            _ => 0,
        };
        ControlFlow::Continue(())
    });
    all.unwrap();
    drop(files);
    let list: Vec<u8> = (0..256).flat_map(|_| (last as u32).to_le_bytes()).collect();
    bytes[last as usize * 1024..][..1024].copy_from_slice(&list);
    // Its inode: the one with this size.
    let size = 600_000_u32.to_le_bytes();
    let inodes: Vec<usize> =
        (0..bytes.len() - 128).step_by(128).filter(|at| bytes[at + 4..at + 8] == size).collect();
    for at in inodes {
        bytes[at + 0x28 + 56..][..4].copy_from_slice(&(last as u32).to_le_bytes());
        bytes[at + 0x6c..][..4].fill(0x3f);
    }
    let files = open(&bytes).unwrap().unwrap();
    let mut pieces = 0_u64;
    let end = files.pieces(large, 0..u64::MAX, &mut |_| {
        pieces += 1;
        ControlFlow::Continue(())
    });
    assert!(end.is_err());
    assert!((1..=4096).contains(&pieces), "{pieces}");
    assert!(files.free().is_err());
}

#[test]
fn tables_of_noise_end() {
    let mut found = 0;
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let mut disk = random.noise(64 << 10);
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        for slot in 0..4 {
            let entry = &mut disk[446 + 16 * slot..][..16];
            entry[0] = 0;
            entry[4] = *random.pick(&[0x05, 0x83, 0xee, 0x0f, 0]);
            entry[8..16].fill(0);
            (entry[8], entry[12]) = (random.below(100) as u8, random.below(255) as u8);
        }
        for _ in 0..8 {
            let sector = random.below(127) as usize;
            disk.copy_within(446..512, sector * 512 + 446);
        }
        if random.once_in(2) {
            disk[512..524].copy_from_slice(b"EFI PART\0\0\x01\0");
        }
        if random.once_in(2) {
            disk[4086..4096].copy_from_slice(b"SWAPSPACE2");
            disk[1024..1028].copy_from_slice(&[1, 0, 0, 0]);
        }
        let disks: [&dyn ReadAt; 2] = [&disk, &disk];
        let layout = volumes(&disks);
        found += layout.volumes.len();
        for volume in &layout.volumes {
            let reader = VolumeReader::new(volume, &disks);
            let mut byte = [0];
            reader.read_at(volume.bytes - 1, &mut byte).unwrap();
            if let Ok(Some(swap)) = Swap::find(&reader) {
                assert!(swap.free.end <= volume.bytes);
            }
        }
    }
    assert!(found > 3000, "{found}");
}
