//! The overlay: what it keeps, what a crash leaves of it, and files that are not its own.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use strongroom_nbd::{Export, Overlay, OverlayError, Zeroing};
use strongroom_testkit::{Random, noise};

use crate::world::Memory;

/// Its last cluster is short.
const BYTES: usize = (2 << 20) + 12_345;

fn open(folder: &Path) -> Result<Overlay, OverlayError> {
    let base = Arc::new(Memory::new(noise(1, BYTES)));
    Overlay::open(&folder.join("overlay"), base, [7; 32])
}

fn content(overlay: &Overlay) -> Vec<u8> {
    let mut content = Vec::new();
    overlay.append(0..BYTES as u64, &mut content).unwrap();
    content
}

/// Changes an overlay, and a plain copy of it.
fn change(overlay: &Overlay, expected: &mut [u8], random: &mut Random) {
    let begin = random.below(BYTES as u64 - 1);
    let end = (begin + 1 + random.below(300 << 10)).min(BYTES as u64);
    let part = &mut expected[begin as usize..end as usize];
    match random.below(4) {
        0 => {
            let zeroing = Zeroing { keeps_space: random.once_in(2), only_if_fast: false };
            overlay.write_zeroes(begin..end, zeroing).unwrap();
            part.fill(0);
        }
        _ => {
            random.fill(part);
            overlay.write_at(begin, part).unwrap();
        }
    }
}

#[test]
fn it_keeps_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut expected = noise(1, BYTES);
    let mut random = Random::new(2);
    for _ in 0..6 {
        let overlay = open(folder.path()).unwrap();
        assert!(content(&overlay) == expected);
        for _ in 0..30 {
            change(&overlay, &mut expected, &mut random);
        }
        assert!(content(&overlay) == expected);
        let mut position = 0;
        while position < BYTES as u64 {
            for extent in overlay.extents(position..BYTES as u64).unwrap() {
                let end = position + extent.bytes;
                let part = &expected[position as usize..end as usize];
                assert!(!extent.is_hole || part.iter().all(|&byte| byte == 0));
                position = end;
            }
        }
        assert_eq!(position, BYTES as u64);
    }
}

/// The files as they are at some moment, opened again: all that was flushed is there, and each
/// cluster is as it was flushed or as it became later.
#[test]
fn a_copy_at_any_time_has_what_was_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let crashed = tempfile::tempdir().unwrap();
    let mut expected = noise(1, BYTES);
    let mut random = Random::new(3);
    let overlay = open(folder.path()).unwrap();
    let mut flushed = expected.clone();
    let mut unflushed_changes = 0;
    for round in 0..60 {
        change(&overlay, &mut expected, &mut random);
        if random.once_in(3) {
            overlay.flush().unwrap();
            flushed.clone_from(&expected);
        }
        for name in ["overlay", "overlay.map"] {
            std::fs::copy(folder.path().join(name), crashed.path().join(name)).unwrap();
        }
        let found = content(&open(crashed.path()).unwrap());
        for ((found, flushed), expected) in
            found.chunks(65536).zip(flushed.chunks(65536)).zip(expected.chunks(65536))
        {
            assert!(found == flushed || found == expected, "round {round}");
            unflushed_changes += u32::from(flushed != expected);
        }
    }
    assert!(unflushed_changes > 20);
}

#[test]
fn threads_in_one_cluster_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let overlay = open(folder.path()).unwrap();
    // Each thread writes every eighth sector of clusters that are all still in the base.
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let overlay = &overlay;
            scope.spawn(move || {
                for sector in (thread..(2 << 20) / 512).step_by(8) {
                    overlay.write_at(sector * 512, &[thread as u8 + 1; 512]).unwrap();
                }
            });
        }
    });
    let content = content(&overlay);
    for (number, sector) in content[..2 << 20].chunks(512).enumerate() {
        assert!(sector.iter().all(|&byte| byte == (number % 8) as u8 + 1), "sector {number}");
    }
    assert!(content[2 << 20..] == noise(1, BYTES)[2 << 20..]);
}

#[test]
fn trimmed_clusters_take_no_space() {
    let folder = tempfile::tempdir().unwrap();
    let overlay = open(folder.path()).unwrap();
    overlay.write_at(0, &noise(9, BYTES)).unwrap();
    overlay.flush().unwrap();
    let blocks = || {
        let file = folder.path().join("overlay");
        std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512
    };
    let before = blocks();
    overlay.trim(0..1 << 20).unwrap();
    assert!(before - blocks() >= 1 << 20, "{before} {}", blocks());
    assert!(content(&overlay)[..1 << 20].iter().all(|&byte| byte == 0));
    let fast = Zeroing { keeps_space: true, only_if_fast: true };
    let error = overlay.write_zeroes(0..4096, fast).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    assert_eq!(overlay.bytes_written(), (BYTES as u64).div_ceil(65536) * 65536);
}

#[test]
fn other_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overlay");
    let map = folder.path().join("overlay.map");
    let overlay = open(folder.path()).unwrap();
    assert!(matches!(open(folder.path()), Err(OverlayError::InUse { .. })));
    overlay.write_at(0, &[1; 10]).unwrap();
    drop(overlay);
    let base = || Arc::new(Memory::new(noise(1, BYTES)));
    let other = Overlay::open(&path, base(), [8; 32]);
    assert!(matches!(other, Err(OverlayError::OtherBase { .. })));
    let shorter = Arc::new(Memory::new(vec![0; BYTES - 1]));
    let other = Overlay::open(&path, shorter, [7; 32]);
    assert!(matches!(other, Err(OverlayError::OtherBase { .. })));
    // Without its data, the map would show zeros.
    std::fs::rename(&path, folder.path().join("away")).unwrap();
    assert!(matches!(open(folder.path()), Err(OverlayError::NoData { .. })));
    std::fs::rename(folder.path().join("away"), &path).unwrap();
    assert_eq!(content(&open(folder.path()).unwrap())[..10], [1; 10]);
    let whole = std::fs::read(&map).unwrap();
    let mut random = Random::new(5);
    for round in 0..300 {
        let mut damaged = whole.clone();
        match random.below(3) {
            0 => damaged.truncate(random.below(whole.len() as u64) as usize),
            1 => damaged.extend_from_slice(&[0; 4096]),
            _ => damaged[random.below(60) as usize] ^= 1 << random.below(8),
        }
        std::fs::write(&map, &damaged).unwrap();
        let opened = open(folder.path());
        assert!(opened.is_err() || damaged == whole, "{round}");
    }
    // One that is missing was there before the data; only one beside which there is none is begun.
    std::fs::remove_file(&map).unwrap();
    assert!(matches!(open(folder.path()), Err(OverlayError::NoMap { .. })));
    let data = std::fs::read(&path).unwrap();
    assert_eq!(data[..10], [1; 10], "nothing was written over it");
    std::fs::write(&map, &whole).unwrap();
    let mut file = File::options().write(true).open(&map).unwrap();
    // A bit that damage has set: a cluster of zeros, but no panic.
    file.seek(SeekFrom::Start(4096)).unwrap();
    file.write_all(&[0xff; 4096]).unwrap();
    drop(file);
    assert_eq!(content(&open(folder.path()).unwrap()).len(), BYTES);
}

/// What a machine writes is not for all users of this one.
#[test]
fn an_overlay_is_its_owner_s_alone() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).unwrap());
    for name in ["overlay", "overlay.map"] {
        let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}
