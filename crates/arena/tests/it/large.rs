//! The longest chunk, and an arena larger than usual.

use strongroom_arena::format::CHUNK_BYTES_MAX;
use strongroom_arena::{ArenaError, ArenaStore, CacheLimits, Redundancy};
use strongroom_testkit::noise;

use crate::{World, block_range, read};

/// Forty blocks of one chunk of 4 MiB each: 160 MiB.
#[test]
fn an_arena_of_the_longest_chunks() {
    let world = World { block_chunks: 1, ..World::new() };
    let chunks: Vec<_> = (0..40).map(|number| noise(number, CHUNK_BYTES_MAX)).collect();
    let finished = world.build(&chunks, Redundancy { per_mille: 10 });
    world.put(finished.name.id, finished.object());
    let arena = world.store.arena(finished.name.id).unwrap();
    for slot in [0, 17, 39] {
        assert!(read(&world.store, &arena, slot).unwrap() == chunks[slot as usize], "{slot}");
    }
    let mut damaged = finished.object().to_vec();
    let block = block_range(&finished, 17);
    damaged[block.start..block.start + (64 << 10)].fill(0);
    world.put(finished.name.id, &damaged);
    let store =
        ArenaStore::new(world.backend.clone(), &world.keys, 160 << 20, CacheLimits::default());
    let arena = store.arena(finished.name.id).unwrap();
    assert!(read(&store, &arena, 17).unwrap() == chunks[17], "within parity");
    assert_eq!(store.heals(), 1);
}

/// A summary that is longer than the first read of an arena, and than the room before the blocks.
#[test]
fn an_arena_of_many_short_chunks() {
    let world = World { block_chunks: 500, ..World::new() };
    let chunks: Vec<_> = (0..6000).map(|number| noise(number, 40)).collect();
    let finished = world.build(&chunks, Redundancy::ARENA);
    world.put(finished.name.id, finished.object());
    let arena = world.store.arena(finished.name.id).unwrap();
    assert_eq!(arena.summary, finished.summary);
    for slot in (0..6000).step_by(700) {
        assert_eq!(read(&world.store, &arena, slot).unwrap(), chunks[slot as usize]);
    }
    assert_eq!(world.store.heals(), 0);
    let mut cut = finished.object().to_vec();
    cut.truncate(70 << 10);
    world.put(finished.name.id, &cut);
    let opened = world.fresh_store().arena(finished.name.id).map(|_| ());
    assert!(matches!(opened, Err(ArenaError::Damaged { .. })), "cut within its summary");
}
