//! What is recovered of an arena that parity cannot repair.

use std::time::Duration;

use strongroom_arena::envelope::{self, HEADROOM, Redundancy};
use strongroom_arena::format::FRAME_BYTES;
use strongroom_arena::scan::{Rescued, rescue};
use strongroom_arena::writer::padme;
use strongroom_arena::{ArenaError, FinishedArena, Rewriting};
use strongroom_base::ArenaId;

use crate::rewrite::padding_numbers;
use crate::{
    BLOCK_CHUNKS, World, block_range, chunks, head_range, last_head_range, read, summary_range,
};

pub fn rescued(
    world: &World,
    finished: &FinishedArena,
    object: &[u8],
) -> Result<Rescued, ArenaError> {
    let rescuing = Rewriting {
        generation: finished.name.generation + 1,
        keys: &world.keys.write,
        redundancy: Redundancy::ARENA,
        padding: false,
    };
    rescue(&world.store, finished.name, object, &rescuing, &mut |_| None)
}

/// Destroys ranges and checks that all blocks but the `lost` ones are saved, in their slots.
fn check(name: &str, lost: &[usize], destroy: impl Fn(&FinishedArena, &mut Vec<u8>)) {
    let world = World::new();
    let chunks = chunks(30);
    let finished = world.build(&chunks, Redundancy { per_mille: 0 });
    let mut damaged = finished.object().to_vec();
    destroy(&finished, &mut damaged);
    let saved = rescued(&world, &finished, &damaged).unwrap();
    assert_eq!((saved.blocks_saved, saved.blocks_before), (10 - lost.len(), Some(10)), "{name}");
    let arena = saved.arena;
    assert_eq!(Some(arena.name), finished.name.next());
    world.put(finished.name.id, &damaged);
    world.rewrite(&arena);
    let opened = world.store.arena(arena.name.id).unwrap();
    assert_eq!(opened.generation, 1, "{name}");
    assert_eq!(opened.summary, arena.summary, "{name}");
    for (slot, chunk) in (0..).zip(&chunks) {
        let found = read(&world.store, &opened, slot);
        if lost.contains(&(slot as usize / BLOCK_CHUNKS)) {
            assert!(matches!(found, Err(ArenaError::SlotLost { .. })), "{name}, {slot}");
        } else {
            assert_eq!(&found.unwrap(), chunk, "{name}, {slot}");
            assert_eq!(
                opened.slot(slot).unwrap().fingerprint,
                world.keys.write.naming.data.fingerprint(chunk)
            );
        }
    }
}

#[test]
fn all_blocks_but_the_destroyed_ones_are_saved() {
    check("nothing lost", &[], |_, _| {});
    check("the summary", &[], |finished, object| object[summary_range(finished)].fill(0));
    check("two blocks", &[3, 7], |finished, object| {
        object[block_range(finished, 3)].fill(0);
        object[block_range(finished, 7)].fill(0xff);
    });
    check("frames", &[0, 9], |finished, object| {
        object[block_range(finished, 0).start] ^= 1;
        object[block_range(finished, 9).start + 9] ^= 1;
    });
    check("one byte of a block, and the summary", &[4], |finished, object| {
        object[block_range(finished, 4).start + 1000] ^= 1;
        object[summary_range(finished)].fill(0);
    });
    check("the end", &[6, 7, 8, 9], |finished, object| {
        object.truncate(block_range(finished, 6).end - 1);
    });
    check("the first head", &[], |_, object| object[head_range()].fill(0));
    check("the header", &[5], |finished, object| {
        object[..HEADROOM].fill(0);
        object[block_range(finished, 5)].fill(0);
    });
    check("bytes that look like frames", &[1], |finished, object| {
        let frame = block_range(finished, 2).start;
        let frame = object[frame..frame + FRAME_BYTES].to_vec();
        for place in block_range(finished, 1).step_by(100).take(20) {
            object[place..place + 4].copy_from_slice(b"BLK.");
            object[place + 40..place + 40 + FRAME_BYTES].copy_from_slice(&frame);
        }
    });
}

/// Padding is left out of a rescue, and the rescued arena gets its own.
#[test]
fn a_padded_arena_stays_padded() {
    let world = World { padded: true, ..World::new() };
    let finished = world.build(&chunks(30), Redundancy { per_mille: 0 });
    let body_bytes = |object: &[u8]| envelope::peek(object).unwrap().body_bytes();
    assert_eq!(padme(body_bytes(finished.object())), body_bytes(finished.object()));
    let mut damaged = finished.object().to_vec();
    damaged[block_range(&finished, 3)].fill(0);
    let saved = rescued(&world, &finished, &damaged).unwrap();
    assert_eq!((saved.blocks_saved, saved.blocks_before), (9, Some(10)));
    assert_eq!(padme(body_bytes(saved.arena.object())), body_bytes(saved.arena.object()));
    assert!(body_bytes(saved.arena.object()) < body_bytes(finished.object()));
}

/// Zeros that are sealed under the number of the lost block, and under its key, would reveal it.
#[test]
fn padding_of_a_rescued_arena_has_numbers_of_its_own() {
    let world = World { padded: true, ..World::new() };
    let finished = world.build(&chunks(30), Redundancy { per_mille: 0 });
    let mut damaged = finished.object().to_vec();
    damaged[block_range(&finished, 9)].fill(0);
    let saved = rescued(&world, &finished, &damaged).unwrap().arena;
    let mut used: Vec<u32> = finished.summary.blocks.iter().map(|b| b.frame.number).collect();
    used.extend(padding_numbers(&finished));
    let numbers = padding_numbers(&saved);
    assert!(!numbers.is_empty() && numbers.iter().all(|n| !used.contains(n)), "{numbers:?}");
}

#[test]
fn without_any_block_nothing_is_made() {
    let world = World::new();
    let finished = world.build(&chunks(6), Redundancy { per_mille: 0 });
    let mut damaged = finished.object().to_vec();
    damaged[block_range(&finished, 0).start..block_range(&finished, 1).end].fill(0);
    let saved = rescued(&world, &finished, &damaged).unwrap();
    assert!(saved.arena.summary.slots.is_empty());
    assert_eq!((saved.blocks_saved, saved.blocks_before), (0, Some(2)));
}

#[test]
fn without_its_key_an_arena_is_lost() {
    let world = World::new();
    let finished = world.build(&chunks(6), Redundancy { per_mille: 0 });
    let mut damaged = finished.object().to_vec();
    damaged[head_range()].fill(0);
    damaged[last_head_range(&finished)].fill(0);
    assert!(matches!(rescued(&world, &finished, &damaged), Err(ArenaError::Damaged { .. })));
    assert!(matches!(rescued(&world, &finished, b""), Err(ArenaError::Damaged { .. })));
}

/// A reader that opened the arena before it was rewritten continues to read.
#[test]
fn a_reader_of_the_generation_before_continues() {
    let world = World::new();
    let chunks = chunks(30);
    let finished = world.build(&chunks, Redundancy { per_mille: 0 });
    world.put(finished.name.id, finished.object());
    let before = world.store.arena(finished.name.id).unwrap();
    let mut damaged = finished.object().to_vec();
    damaged[block_range(&finished, 1)].fill(0);
    let arena = rescued(&world, &finished, &damaged).unwrap().arena;
    world.rewrite(&arena);
    assert_eq!(read(&world.store, &before, 0).unwrap(), chunks[0]);
    assert_eq!(read(&world.store, &before, 29).unwrap(), chunks[29]);
    assert!(matches!(read(&world.store, &before, 4), Err(ArenaError::SlotLost { .. })));
    assert_eq!(world.store.arena(arena.name.id).unwrap().generation, 1);
    assert_eq!(world.store.heals(), 0);
}

/// A reader that lives for days, as a mount does, has listed the arenas once.
#[test]
fn what_was_stored_and_rewritten_since_the_listing_is_found() {
    let world = World::new();
    assert!(world.store.arena(ArenaId([7; 16])).is_err());
    let chunks = chunks(30);
    let finished = world.build(&chunks, Redundancy { per_mille: 0 });
    world.put(finished.name.id, finished.object());
    let mut damaged = finished.object().to_vec();
    damaged[block_range(&finished, 1)].fill(0);
    world.rewrite(&rescued(&world, &finished, &damaged).unwrap().arena);
    std::thread::sleep(Duration::from_millis(1100));
    let arena = world.store.arena(finished.name.id).unwrap();
    assert_eq!(read(&world.store, &arena, 29).unwrap(), chunks[29]);
}

/// Two programs that rewrite an arena at the same time, differently, must not seal under one key
/// and number.
#[test]
fn different_summaries_of_a_generation_have_different_keys() {
    let world = World::new();
    let finished = world.build(&chunks(30), Redundancy { per_mille: 0 });
    let salts = [1, 2].map(|lost| {
        let mut damaged = finished.object().to_vec();
        damaged[block_range(&finished, lost)].fill(0);
        let arena = rescued(&world, &finished, &damaged).unwrap().arena;
        let start = summary_range(&arena).start;
        arena.object()[start..start + 16].to_vec()
    });
    assert_ne!(salts[0], salts[1]);
}

/// A reader that opened the arena before it was rewritten finds each block by its number.
#[test]
fn what_was_cached_before_a_rescue_is_not_taken_for_its_neighbour() {
    let world = World::new();
    let chunks = chunks(30);
    let finished = world.build(&chunks, Redundancy { per_mille: 0 });
    world.put(finished.name.id, finished.object());
    let old = world.store.arena(finished.name.id).unwrap();
    let mut damaged = finished.object().to_vec();
    damaged[block_range(&finished, 1)].fill(0);
    let saved = rescued(&world, &finished, &damaged).unwrap();
    world.rewrite(&saved.arena);
    // It is healed, because it is no longer where the summary in memory says.
    let slot = |block: usize| (block * BLOCK_CHUNKS) as u32;
    assert_eq!(read(&world.store, &old, slot(2)).unwrap(), chunks[2 * BLOCK_CHUNKS]);
    let new = world.store.arena(finished.name.id).unwrap();
    assert_eq!((old.generation, new.generation), (0, 1));
    for (block, arena) in [(3, &new), (2, &new), (3, &old), (2, &old), (9, &new), (9, &old)] {
        assert_eq!(read(&world.store, arena, slot(block)).unwrap(), chunks[block * BLOCK_CHUNKS]);
    }
}
