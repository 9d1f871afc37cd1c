//! What the medium refuses to read is computed again from parity, like any other damage; and no
//! object takes more memory than an object of its kind can have.

use std::ops::Range;
use std::sync::Arc;

use strongroom_arena::envelope::format::{HEADER_BYTES, Header, ObjectKind};
use strongroom_arena::envelope::{self, RawObject, read_object};
use strongroom_arena::{
    ArenaError, ArenaName, ArenaStore, CacheLimits, FinishedArena, Origin, Redundancy,
    object_bytes_max,
};
use strongroom_backend::{
    Backend, BackendError, MemoryBackend, ObjectInfo, ObjectName, Promises, Room, Stores,
};
use strongroom_testkit::RefusingBackend;

use crate::{ARENA_BYTES, World, block_range, chunks, read, summary_range};

const SECTOR: usize = 4 << 10;

/// The sector that holds a byte.
fn sector_of(at: usize) -> Range<u64> {
    let start = at / SECTOR * SECTOR;
    start as u64..(start + SECTOR) as u64
}

fn store_over(world: &World, finished: &FinishedArena, bad: Range<u64>) -> ArenaStore {
    let name = ArenaName::first(finished.name.id).object();
    let backend = Arc::new(RefusingBackend::with_bad(world.backend.clone(), &name, bad));
    ArenaStore::new(backend, &world.keys, ARENA_BYTES, CacheLimits::default())
}

#[test]
fn a_bad_sector_anywhere_costs_nothing_that_parity_gives_back() {
    let world = World::new();
    let chunks = chunks(60);
    let finished = world.build(&chunks, Redundancy { per_mille: 200 });
    world.put(finished.name.id, finished.object());
    let end = finished.object().len();
    for (what, at) in [
        ("the header", 0),
        ("a block", block_range(&finished, 5).start),
        ("the summary", summary_range(&finished).start),
        ("parity", end - 2 * SECTOR),
        ("the trailer", end - 1),
    ] {
        let store = store_over(&world, &finished, sector_of(at));
        let arena = store.arena(finished.name.id).unwrap();
        for (slot, chunk) in (0..).zip(&chunks) {
            assert_eq!(&read(&store, &arena, slot).unwrap(), chunk, "{what}");
        }
    }
}

#[test]
fn beyond_parity_what_the_medium_gives_is_read() {
    let world = World::new();
    let chunks = chunks(60);
    let finished = world.build(&chunks, Redundancy { per_mille: 0 });
    world.put(finished.name.id, finished.object());
    let bad = block_range(&finished, 5);
    let store = store_over(&world, &finished, bad.start as u64..bad.start as u64 + 1);
    let arena = store.arena(finished.name.id).unwrap();
    for (slot, chunk) in (0..).zip(&chunks) {
        let found = read(&store, &arena, slot);
        match arena.block_of(slot) {
            Some(5) => assert!(matches!(found, Err(ArenaError::Damaged { .. })), "{found:?}"),
            _ => assert_eq!(&found.unwrap(), chunk),
        }
    }
    let refused = store_over(&world, &finished, 0..u64::MAX).arena(finished.name.id);
    assert!(matches!(refused, Err(ArenaError::Damaged { .. })), "it is there, and cannot be read");
}

#[test]
fn what_is_refused_is_read_as_zeros_and_counted() {
    let name = ObjectName::top("config");
    let bytes: Vec<u8> = (0..200_000).map(|at| 1 + (at % 255) as u8).collect();
    let inner = Arc::new(MemoryBackend::new());
    inner.create(&name, &bytes).unwrap();
    for (bad, zeros) in [
        (0..0, 0..0),
        (5000..5001, 4096..8192),
        (8191..8193, 4096..12288),
        (0..1, 0..4096),
        (199_999..200_000, 196_608..200_000),
    ] {
        let backend = RefusingBackend::with_bad(inner.clone(), &name, bad.clone());
        let mut expected = bytes.clone();
        expected[zeros.clone()].fill(0);
        let refused_bytes = zeros.len() as u64;
        let found = read_object(&backend, &name, 1 << 20).unwrap();
        assert!(found == RawObject { bytes: expected, refused_bytes, unasked_bytes: 0 }, "{bad:?}");
    }
    let backend = RefusingBackend::with_bad(inner, &name, 0..u64::MAX);
    assert!(read_object(&backend, &name, 1 << 20).is_err_and(|error| error.is_unreadable()));
}

/// Of a region that is worn out not every sector is asked for, and what is behind it all the same.
#[test]
fn what_is_behind_a_bad_region_is_read() {
    let name = ObjectName::top("config");
    let bytes: Vec<u8> = (0..12 << 20).map(|at| 1 + (at % 255) as u8).collect();
    let inner = Arc::new(MemoryBackend::new());
    inner.create(&name, &bytes).unwrap();
    let backend = RefusingBackend::with_bad(inner, &name, 1 << 20..5 << 20);
    let found = read_object(&backend, &name, 16 << 20).unwrap();
    assert_eq!(found.bytes.len(), bytes.len());
    assert!(found.bytes[..1 << 20] == bytes[..1 << 20]);
    assert!(found.bytes[8 << 20..] == bytes[8 << 20..]);
    assert!(found.unasked_bytes >= 2 << 20 && found.refused_bytes < 7 << 20);
    assert_eq!(found.refused_bytes - found.unasked_bytes, 2 << 20);
}

/// A sparse object of 2 TiB, with a header or without.
struct Vast(Vec<u8>);

impl Vast {
    const BYTES: u64 = 2 << 40;
}

impl Backend for Vast {
    fn read(&self, _: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        assert!(length <= 64 << 20, "{length} bytes are asked for");
        let mut bytes = vec![0; length];
        let start = usize::try_from(offset).unwrap().min(self.0.len());
        let known = &self.0[start..self.0.len().min(start + length)];
        bytes[..known.len()].copy_from_slice(known);
        Ok(bytes)
    }

    fn size(&self, _: &ObjectName) -> Result<u64, BackendError> {
        Ok(Self::BYTES)
    }

    fn create(&self, _: &ObjectName, _: &[u8]) -> Result<(), BackendError> {
        unreachable!("it is only read")
    }

    fn replace(&self, _: &ObjectName, _: &[u8]) -> Result<(), BackendError> {
        unreachable!("it is only read")
    }

    fn remove(&self, _: &ObjectName) -> Result<(), BackendError> {
        unreachable!("it is only read")
    }

    fn room(&self) -> Option<&dyn Room> {
        None
    }

    fn stores(&self) -> Option<&dyn Stores> {
        None
    }

    fn complaint(&self) -> Option<String> {
        None
    }

    fn list(&self, _: &str) -> Result<Vec<ObjectInfo>, BackendError> {
        unreachable!("it is only read")
    }

    fn sweep(&self) -> Result<usize, BackendError> {
        unreachable!("it is only read")
    }

    fn promises(&self) -> Promises {
        unreachable!("it is only read")
    }

    fn holds_at_most(&self, _: &str) -> Result<bool, BackendError> {
        unreachable!("it is only read")
    }

    fn describe(&self) -> String {
        "vast".to_owned()
    }

    fn folders(&self) -> Vec<std::path::PathBuf> {
        Vec::new()
    }
}

#[test]
fn a_vast_object_takes_no_memory() {
    let name = ObjectName::top("config");
    let small = world_object();
    let claims = |body_bytes| {
        let mut header = envelope::peek(&small).unwrap();
        header.body_bytes = body_bytes;
        header.shard_bytes_log2 = 16;
        header.parity_shards = 0;
        header.pack().to_vec()
    };
    for (what, start) in [("zeros", Vec::new()), ("a header that claims 2 GiB", claims(2 << 30))] {
        let found = read_object(&Vast(start), &name, 32 << 20);
        assert!(matches!(found, Err(BackendError::TooLarge { .. })), "{what}: {found:?}");
    }
    // Bytes after the end of an object are not read; they are damage that repair removes.
    let found = read_object(&Vast(small.clone()), &name, 32 << 20).unwrap();
    let inspected = envelope::inspect(&found.bytes).unwrap();
    assert!(!inspected.is_whole() && inspected.is_repairable());
    assert_eq!(envelope::repair(&found.bytes).unwrap(), small);
}

fn world_object() -> Vec<u8> {
    let identity = envelope::Identity {
        kind: ObjectKind::Config,
        id: [7; 16],
        generation: 0,
        origin: Origin::NONE,
    };
    let object = envelope::seal_small(&[9; 300], identity);
    assert!(Header::unpack(&object[..HEADER_BYTES]).is_ok());
    object
}

#[test]
fn the_bound_leaves_room_for_any_arena() {
    assert!(object_bytes_max(16 << 20) > 2 * (16 << 20));
    assert!(object_bytes_max(u32::MAX) > u64::from(u32::MAX));
}
