//! An arena's next generation, without some of its chunks.

use std::collections::BTreeSet;

use proptest::prelude::*;
use strongroom_arena::format::{BlockFrame, FRAME_BYTES};
use strongroom_arena::{ArenaError, FinishedArena, Redundancy, Rewriting, Source, rewrite};
use strongroom_backend::Backend;
use strongroom_base::{ArenaId, Entropy, Fingerprint};

use crate::{BLOCK_CHUNKS, World, block_range, chunks, head_of, read, summary_range};

impl World {
    /// The next generation of an arena, without these slots.
    fn rewritten(
        &self,
        arena: &FinishedArena,
        object: &[u8],
        gone: &BTreeSet<u32>,
    ) -> Result<FinishedArena, ArenaError> {
        let rewriting = Rewriting {
            generation: arena.name.generation + 1,
            keys: &self.keys.write,
            redundancy: Redundancy::ARENA,
            padding: self.padded,
        };
        let source = Source { name: arena.name, object };
        rewrite(&self.store, &[source], &|slot| gone.contains(&slot), &rewriting)
    }

    fn assert_holds(&self, arena: &FinishedArena, chunks: &[Vec<u8>], gone: &BTreeSet<u32>) {
        let store = self.fresh_store();
        let opened = store.open_arena_in(arena.name, arena.object()).unwrap();
        self.backend.create(&arena.name.object(), arena.object()).unwrap();
        store.learn(arena.name);
        for (slot, chunk) in (0..).zip(chunks) {
            let named = opened.slot(slot).map(|named| named.fingerprint);
            if gone.contains(&slot) {
                assert!(named.is_none_or(|named| named == Fingerprint::ZERO), "slot {slot}");
                let place = opened.block_of(slot);
                let block = place.map(|place| store.block(&opened, place).unwrap());
                assert!(block.is_none_or(|block| block.chunk(slot).is_none()), "slot {slot}");
            } else {
                assert_eq!(named, Some(self.keys.write.naming.data.fingerprint(chunk)));
                assert_eq!(&read(&store, &opened, slot).unwrap(), chunk, "slot {slot}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// What stays, stays in its slot, through two generations; and a damaged arena is healed.
    #[test]
    fn the_rest_stays_in_its_slots(
        first in prop::collection::btree_set(0..20_u32, 0..20),
        more in prop::collection::btree_set(0..20_u32, 0..20),
        padded in any::<bool>(),
    ) {
        let world = World { padded, ..World::new() };
        let chunks = chunks(20);
        let before = world.build(&chunks, Redundancy { per_mille: 1000 });
        let mut damaged = before.object().to_vec();
        damaged[block_range(&before, 2)].fill(0);
        let once = world.rewritten(&before, &damaged, &first).unwrap();
        world.assert_holds(&once, &chunks, &first);
        let both: BTreeSet<u32> = first.union(&more).copied().collect();
        let twice = world.rewritten(&once, once.object(), &both).unwrap();
        prop_assert_eq!(twice.name.generation, 2);
        world.assert_holds(&twice, &chunks, &both);
        prop_assert!(twice.object().len() <= once.object().len() + 4096);
    }
}

#[test]
fn whole_blocks_are_kept_byte_for_byte() {
    let world = World::new();
    let before = world.build(&chunks(12), Redundancy::ARENA);
    let gone: BTreeSet<u32> = (BLOCK_CHUNKS as u32..2 * BLOCK_CHUNKS as u32).collect();
    let after = world.rewritten(&before, before.object(), &gone).unwrap();
    assert_eq!(head_of(&after).salt, [0; 12]);
    for (kept, was) in [(0, 0), (1, 2), (2, 3)] {
        let (kept, was) = (block_range(&after, kept), block_range(&before, was));
        assert_eq!(after.object()[kept], before.object()[was]);
    }
}

/// One number under one key for two messages would reveal both.
#[test]
fn no_number_is_used_twice_under_one_key() {
    let world = World::new();
    let before = world.build(&chunks(12), Redundancy::ARENA);
    let one = world.rewritten(&before, before.object(), &BTreeSet::from([4])).unwrap();
    let other = world.rewritten(&before, before.object(), &BTreeSet::from([5])).unwrap();
    let salts = [&before, &one, &other].map(|arena| head_of(arena).salt);
    assert!(salts[0] != salts[1] && salts[1] != salts[2] && salts[0] != salts[2], "{salts:?}");
}

/// Two programs that make the same of an arena make the same bytes, and of two
/// that do not, no block has the key of the other's.
#[test]
fn the_same_rewriting_has_the_same_bytes() {
    for padded in [false, true] {
        let world = World { padded, ..World::new() };
        let before = world.build(&chunks(12), Redundancy::ARENA);
        let made = |gone: &[u32]| {
            world.entropy.fill(&mut [0; 5]);
            let gone = gone.iter().copied().collect();
            world.rewritten(&before, before.object(), &gone).unwrap()
        };
        let (one, same, other) = (made(&[4, 7]), made(&[4, 7]), made(&[4, 8]));
        assert_eq!(one.object(), same.object());
        assert!(head_of(&one).salt != head_of(&other).salt && head_of(&one).salt != [0; 12]);
        let mut damaged = before.object().to_vec();
        damaged[summary_range(&before)].fill(0);
        let saved = || {
            world.entropy.fill(&mut [0; 5]);
            crate::rescue::rescued(&world, &before, &damaged).unwrap().arena
        };
        assert_eq!(saved().object(), saved().object());
    }
}

/// The blocks of padding in an object, which no summary has: their numbers.
pub fn padding_numbers(arena: &FinishedArena) -> Vec<u32> {
    let last = block_range(arena, arena.summary.blocks.len() - 1).end;
    let (mut at, mut numbers) = (last, Vec::new());
    while let Ok(frame) = BlockFrame::unpack(&arena.object()[at..]) {
        numbers.push(frame.number);
        at += FRAME_BYTES + frame.sealed_bytes as usize;
    }
    numbers
}

/// Two generations of one arena, each without what the other has: the next has what is left of both.
#[test]
fn kept_h1_what_is_left_of_several_generations_is_in_the_next() {
    for padded in [false, true] {
        let world = World { padded, ..World::new() };
        let chunks = chunks(20);
        let first = world.build(&chunks, Redundancy::ARENA);
        let one = world.rewritten(&first, first.object(), &(0..7).collect()).unwrap();
        let other: BTreeSet<u32> = [3, 4].into_iter().chain(9..20).collect();
        let other = world.rewritten(&first, first.object(), &other).unwrap();
        let rewriting = Rewriting {
            generation: 2,
            keys: &world.keys.write,
            redundancy: Redundancy::ARENA,
            padding: padded,
        };
        let sources = [&one, &other].map(|it| Source { name: it.name, object: it.object() });
        let gone = BTreeSet::from([1, 3, 4, 12]);
        let next = rewrite(&world.store, &sources, &|slot| slot == 1 || slot == 12, &rewriting);
        world.assert_holds(&next.unwrap(), &chunks, &gone);
    }
}

/// What the owner has made says so, and nothing else does.
#[test]
fn kept_h2_a_generation_after_the_first_has_the_owner_s_mark() {
    let world = World::new();
    let first = world.build(&chunks(12), Redundancy::ARENA);
    let next = world.rewritten(&first, first.object(), &BTreeSet::from([4])).unwrap();
    let is_marked =
        |it: &FinishedArena| world.store.open_arena_in(it.name, it.object()).unwrap().is_marked;
    assert!(!is_marked(&first) && is_marked(&next));
    let planted = world.build_in(&world.keys.write, &chunks(12), Redundancy::ARENA, 1);
    assert!(!is_marked(&planted), "who has the keys of its domain alone cannot make one");
    let saved = crate::rescue::rescued(&world, &first, first.object()).unwrap();
    assert!(is_marked(&saved.arena));
}

/// Padding is a message: of two rewritings none shares a key with another that makes other bytes, also if they
/// take out different slots.
#[test]
fn kept_h4_padding_is_sealed_under_a_key_of_its_generation() {
    let world = World { padded: true, ..World::new() };
    let before = world.build(&chunks(12), Redundancy::ARENA);
    let whole_blocks = (0..BLOCK_CHUNKS as u32).collect();
    let one = world.rewritten(&before, before.object(), &whole_blocks).unwrap();
    let other = world.rewritten(&before, before.object(), &BTreeSet::new()).unwrap();
    let saved = crate::rescue::rescued(&world, &before, before.object()).unwrap().arena;
    let mut salts: Vec<_> = [&before, &one, &other].map(|it| head_of(it).salt).to_vec();
    salts.sort_unstable();
    salts.dedup();
    assert_eq!(salts.len(), 3, "{salts:?}");
    assert_eq!(saved.object(), other.object(), "the same of the same arena");
}

#[test]
fn a_damaged_arena_beyond_parity_is_not_rewritten() {
    let world = World::new();
    let before = world.build(&chunks(12), Redundancy { per_mille: 0 });
    let mut damaged = before.object().to_vec();
    damaged[block_range(&before, 1)].fill(0);
    let error = world.rewritten(&before, &damaged, &BTreeSet::from([4])).err();
    assert!(matches!(error, Some(ArenaError::Damaged { .. })), "{error:?}");
}

/// A listing may be older than what the reader has learned since.
#[test]
fn a_reader_follows_an_arena_through_its_generations() {
    let world = World::new();
    let chunks = chunks(20);
    let mut arena = world.build(&chunks, Redundancy { per_mille: 0 });
    let id = arena.name.id;
    world.backend.create(&arena.name.object(), arena.object()).unwrap();
    // Lists the arenas.
    assert!(matches!(world.store.arena(ArenaId([9; 16])), Err(ArenaError::Missing { .. })));
    for slot in 0..6 {
        let gone = BTreeSet::from([slot]);
        let next = world.rewritten(&arena, arena.object(), &gone).unwrap();
        world.backend.create(&next.name.object(), next.object()).unwrap();
        world.backend.remove(&arena.name.object()).unwrap();
        arena = next;
        if slot == 0 {
            // As a refreshed index does.
            world.store.learn(arena.name);
        }
        if slot % 2 == 1 {
            world.store.forget(id);
            let opened = world.store.arena(id).unwrap();
            assert_eq!(opened.name(), arena.name);
            assert_eq!(read(&world.store, &opened, 19).unwrap(), chunks[19]);
        }
    }
    world.backend.remove(&arena.name.object()).unwrap();
    world.store.forget(id);
    assert!(matches!(world.store.arena(id), Err(ArenaError::Missing { .. })));
}

/// Which generation is read is said by who has looked at the names, not by which one was opened last.
#[test]
fn a_store_reads_the_generation_that_it_learnt() {
    let world = World::new();
    let first = world.build(&chunks(8), Redundancy::ARENA);
    let next = world.rewritten(&first, first.object(), &BTreeSet::from([1])).unwrap();
    for arena in [&first, &next] {
        world.backend.create(&arena.name.object(), arena.object()).unwrap();
    }
    for (before, after) in [(&first, &next), (&next, &first), (&next, &next)] {
        let store = world.fresh_store();
        store.learn(before.name);
        store.outline(before.name.id).unwrap();
        store.arena(before.name.id).unwrap();
        store.learn(after.name);
        assert_eq!(store.arena(after.name.id).unwrap().name(), after.name);
        assert_eq!(store.outline(after.name.id).unwrap().name(), after.name);
    }
}
