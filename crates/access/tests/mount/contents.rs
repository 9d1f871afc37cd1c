//! Bytes at any place, by many readers.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::SeekFrom;
use strongroom_testkit::noise;

use crate::compare::assert_same;
use crate::fixture::{Fixture, can_mount, tight};
use crate::sample::{HOLE_BYTES, make_all};

#[test]
fn any_range_of_any_file() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    make_all(&fixture.source());
    let snapshot = fixture.backup();
    let _mount = fixture.mount_with(tight);
    let mounted = fixture.mounted(&snapshot, &fixture.source());
    for name in ["long", "sparse", "random"] {
        let expected = File::open(fixture.source().join(name)).unwrap();
        let found = File::open(mounted.join(name)).unwrap();
        let size = expected.metadata().unwrap().size();
        for (round, place) in noise(9, 8 * 200).chunks(8).enumerate() {
            let offset = u64::from_le_bytes(place.try_into().unwrap()) % (size + 1000);
            let mut bytes = vec![0; (1 + round * 997) % 300_000];
            let mut other = bytes.clone();
            let count = expected.read_at(&mut bytes, offset).unwrap();
            assert_eq!(found.read_at(&mut other, offset).unwrap(), count);
            assert!(bytes == other, "{name} at {offset}, {} bytes", bytes.len());
        }
    }
}

#[test]
fn many_readers_at_once() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    make_all(&fixture.source());
    let snapshot = fixture.backup();
    let _mount = fixture.mount_with(tight);
    let mounted = fixture.mounted(&snapshot, &fixture.source());
    let state = AtomicU64::new(7);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_same(&fixture.source(), &mounted));
            scope.spawn(|| {
                let expected = fs::read(fixture.source().join("long")).unwrap();
                let found = File::open(mounted.join("long")).unwrap();
                for _ in 0..200 {
                    let step = state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
                    let offset = (step >> 20) % (expected.len() as u64 - 5000);
                    let mut bytes = vec![0; 5000];
                    found.read_exact_at(&mut bytes, offset).unwrap();
                    let start = usize::try_from(offset).unwrap();
                    assert!(bytes == expected[start..start + 5000], "at {offset}");
                }
            });
        }
    });
}

#[test]
fn holes_are_told() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    make_all(&fixture.source());
    let snapshot = fixture.backup();
    let _mount = fixture.mount();
    let mounted = fixture.mounted(&snapshot, &fixture.source());
    let sparse = File::open(mounted.join("sparse")).unwrap();
    let sectors = sparse.metadata().unwrap().blocks();
    assert!(sectors * 512 < 2 << 20, "{sectors} sectors");
    let data = rustix::fs::seek(&sparse, SeekFrom::Data(0)).unwrap();
    assert!((1..=HOLE_BYTES / 2).contains(&data), "{data}");
    let hole = rustix::fs::seek(&sparse, SeekFrom::Hole(data)).unwrap();
    assert!((HOLE_BYTES / 2 + 10..HOLE_BYTES).contains(&hole), "{hole}");
    assert_eq!(rustix::fs::seek(&sparse, SeekFrom::Hole(0)).unwrap(), 0);
    let behind = rustix::fs::seek(&sparse, SeekFrom::Data(HOLE_BYTES * 2 - 10));
    assert_eq!(behind, Err(rustix::io::Errno::NXIO));
    let whole = File::open(mounted.join("random")).unwrap();
    assert_eq!(rustix::fs::seek(&whole, SeekFrom::Hole(0)).unwrap(), 5 << 20);
    assert_eq!(rustix::fs::seek(&whole, SeekFrom::Data(12_345)).unwrap(), 12_345);
}
