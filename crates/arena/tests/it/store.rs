//! Reading what was stored, whole or damaged.

use std::sync::Arc;

use strongroom_arena::envelope::HEADROOM;
use strongroom_arena::envelope::format::ObjectKind;
use strongroom_arena::format::FRAME_BYTES;
use strongroom_arena::{ArenaContent, ArenaError, ArenaName, NearArenas, Redundancy};
use strongroom_backend::Backend;
use strongroom_base::{ArenaId, DomainId, MasterSecret, NamingSecret, RepositoryKeys, WriteKeys};

use crate::rescue::rescued;
use crate::{BLOCK_CHUNKS, World, block_range, chunks, head_range, read, summary_range};

#[test]
fn every_chunk_comes_back() {
    let world = World::new();
    let chunks = chunks(20);
    let finished = world.build(&chunks, Redundancy::ARENA);
    world.put(finished.name.id, finished.object());
    let arena = world.store.arena(finished.name.id).unwrap();
    assert_eq!(arena.summary, finished.summary);
    assert_eq!(arena.generation, 0);
    for (slot, chunk) in (0..).zip(&chunks) {
        assert_eq!(&read(&world.store, &arena, slot).unwrap(), chunk);
        let fingerprint = world.keys.write.naming.data.fingerprint(chunk);
        assert_eq!(arena.slot(slot).unwrap().fingerprint, fingerprint);
    }
    assert_eq!((arena.block_of(20), arena.slot(20)), (None, None));
    assert_eq!(arena.slots().map(|(slot, _)| slot).collect::<Vec<_>>(), Vec::from_iter(0..20));
    let blocks = world.store.read_blocks(&arena, 1..=4).unwrap();
    assert_eq!(blocks.len(), 4);
    assert_eq!(blocks[0].slots(), 3..6);
    assert_eq!(world.store.heals(), 0);
}

/// Readers do not notice damage of any part of an arena that is within parity.
#[test]
fn damage_within_parity_is_healed_and_counted() {
    let world = World::new();
    let chunks = chunks(20);
    let finished = world.build(&chunks, Redundancy { per_mille: 200 });
    let places = [
        ("header", 0..HEADROOM),
        ("head", head_range()),
        (
            "a block's frame",
            block_range(&finished, 2).start..block_range(&finished, 2).start + FRAME_BYTES,
        ),
        ("a block", block_range(&finished, 2)),
        ("the last block", block_range(&finished, 6)),
        ("the summary", summary_range(&finished)),
    ];
    for (name, range) in places {
        let mut damaged = finished.object().to_vec();
        damaged[range].iter_mut().for_each(|byte| *byte ^= 0x55);
        world.put(finished.name.id, &damaged);
        let store = world.fresh_store();
        let arena = store.arena(finished.name.id).unwrap();
        for (slot, chunk) in (0..).zip(&chunks) {
            assert_eq!(&read(&store, &arena, slot).unwrap(), chunk, "{name}");
        }
        assert_eq!(store.heals(), 1, "{name}: computed once, then kept");
    }
}

#[test]
fn damage_beyond_parity_is_told_and_the_rest_is_read() {
    let world = World::new();
    let chunks = chunks(20);
    let finished = world.build(&chunks, Redundancy::ARENA);
    let mut damaged = finished.object().to_vec();
    damaged[block_range(&finished, 2)].fill(0);
    world.put(finished.name.id, &damaged);
    let arena = world.store.arena(finished.name.id).unwrap();
    for (slot, chunk) in (0..).zip(&chunks) {
        let found = read(&world.store, &arena, slot);
        if slot as usize / BLOCK_CHUNKS == 2 {
            assert!(matches!(found, Err(ArenaError::Damaged { .. })), "{slot}");
        } else {
            assert_eq!(&found.unwrap(), chunk);
        }
    }
    assert_eq!(world.store.heals(), 0);
}

/// Slots are stable through all generations, so any generation that can be read is used.
#[test]
fn any_readable_generation_of_several_is_read() {
    let world = World::new();
    let chunks = chunks(20);
    let finished = world.build(&chunks, Redundancy { per_mille: 0 });
    let id = finished.name.id;
    let next = rescued(&world, &finished, finished.object()).unwrap().arena;
    let [first_name, next_name] = [finished.name.object(), next.name.object()];
    let damaged = |object: &[u8]| [&object[..HEADROOM], &vec![7; object.len() - HEADROOM]].concat();
    let put = |name, object: &[u8]| world.backend.replace(name, object).unwrap();
    let check = |what: &str, known: u32, generation: u32| {
        let store = world.fresh_store();
        store.learn(ArenaName { id, generation: known });
        let arena = store.arena(id).unwrap();
        assert_eq!(arena.generation, generation, "{what}");
        assert_eq!(read(&store, &arena, 19).unwrap(), chunks[19], "{what}");
    };
    put(&first_name, finished.object());
    check("the first alone", 0, 0);
    check("the first alone, another one known", 1, 0);
    put(&next_name, next.object());
    check("both", 0, 0);
    check("both, the next one known", 1, 1);
    put(&next_name, &damaged(next.object()));
    check("the next one damaged", 1, 0);
    put(&first_name, &damaged(finished.object()));
    put(&next_name, next.object());
    check("the first damaged", 0, 1);
    put(&next_name, &damaged(next.object()));
    let both = world.fresh_store().arena(id).map(|_| ());
    assert!(matches!(both, Err(ArenaError::Damaged { .. })), "{both:?}");
    world.backend.remove(&next_name).unwrap();
    world.backend.remove(&first_name).unwrap();
    let gone = world.fresh_store().arena(id).map(|_| ());
    assert!(matches!(gone, Err(ArenaError::Missing { .. })), "{gone:?}");
}

#[test]
fn a_generation_under_another_s_name_is_no_arena() {
    let world = World::new();
    let finished = world.build(&chunks(4), Redundancy::ARENA);
    let next = ArenaName { generation: 1, ..finished.name };
    world.backend.create(&next.object(), finished.object()).unwrap();
    let found = world.store.arena(finished.name.id).map(|_| ());
    assert!(found.is_err(), "{found:?}");
}

#[test]
fn what_is_missing_is_told() {
    let world = World::new();
    let id = ArenaId([1; 16]);
    assert!(matches!(world.store.arena(id), Err(ArenaError::Missing { arena }) if arena == id));
}

#[test]
fn an_arena_in_the_place_of_another_is_told() {
    let world = World::new();
    let [one, two] = [4, 5].map(|count| world.build(&chunks(count), Redundancy::ARENA));
    world.put(one.name.id, two.object());
    let found = world.store.arena(one.name.id).map(|_| ());
    assert!(matches!(found, Err(ArenaError::Damaged { .. })), "{found:?}");
    assert_eq!(world.store.heals(), 0);
}

/// A block in the place of another, with a matching envelope.
#[test]
fn a_block_in_the_place_of_another_is_noticed() {
    let world = World::new();
    let chunks = vec![vec![1; 3000]; 6];
    let finished = world.build(&chunks, Redundancy { per_mille: 0 });
    let [first, second] = [block_range(&finished, 0), block_range(&finished, 1)];
    assert_eq!(first.len(), second.len());
    let mut swapped = finished.object().to_vec();
    swapped.copy_within(first, second.start);
    world.put(finished.name.id, &swapped);
    let arena = world.store.arena(finished.name.id).unwrap();
    assert!(matches!(read(&world.store, &arena, 3), Err(ArenaError::Damaged { .. })));
}

#[test]
fn a_put_only_holder_sees_the_summary_alone() {
    let world = World::new();
    let finished = world.build(&chunks(4), Redundancy::ARENA);
    world.put(finished.name.id, finished.object());
    let keys = RepositoryKeys { owner: None, ..world.keys.clone() };
    let store = strongroom_arena::ArenaStore::new(
        world.backend.clone(),
        &keys,
        crate::ARENA_BYTES,
        Default::default(),
    );
    let arena = store.arena(finished.name.id).unwrap();
    assert_eq!(arena.summary, finished.summary);
    assert!(matches!(store.block(&arena, 0), Err(ArenaError::PutOnly)));
}

/// An arena belongs to the domain whose key seals its summary.
#[test]
fn a_summary_opens_only_with_the_key_of_its_domain() {
    let world = World::new();
    let domain = DomainId([7; 16]);
    let keys = world.keys.domain(domain).unwrap();
    let laptop = RepositoryKeys {
        write: WriteKeys { domain: keys, ..world.keys.write.clone() },
        owner: None,
    };
    let other = RepositoryKeys { owner: None, ..world.keys.clone() };
    let finished = world.build_as(&laptop.write, &chunks(4), Redundancy::ARENA);
    world.put(finished.name.id, finished.object());
    let open = |keys: &RepositoryKeys| {
        let store = strongroom_arena::ArenaStore::new(
            world.backend.clone(),
            keys,
            crate::ARENA_BYTES,
            Default::default(),
        );
        store.arena(finished.name.id).map(|arena| (arena.domain, arena.trusted))
    };
    assert_eq!(open(&laptop).unwrap(), (domain, true));
    assert_eq!(
        open(&world.keys).unwrap(),
        (domain, false),
        "the owner opens it, and does not trust"
    );
    let error = open(&other).unwrap_err();
    assert!(matches!(error, ArenaError::Foreign { domain: found, .. } if found == domain));
}

#[test]
fn another_repository_s_keys_open_nothing() {
    let world = World::new();
    let finished = world.build(&chunks(4), Redundancy::ARENA);
    world.put(finished.name.id, finished.object());
    let keys = MasterSecret([6; 32]).keys(&NamingSecret([5; 32]));
    let store = strongroom_arena::ArenaStore::new(
        world.backend.clone(),
        &keys,
        crate::ARENA_BYTES,
        Default::default(),
    );
    assert!(matches!(store.arena(finished.name.id), Err(ArenaError::Damaged { .. })));
    assert_eq!(store.heals(), 0);
}

#[test]
fn a_name_tells_what_an_arena_holds() {
    let finished = World::new().build(&chunks(1), Redundancy::ARENA);
    assert_eq!(ArenaContent::of(finished.name.id), ArenaContent::Data);
    assert_eq!(ArenaContent::of(ArenaId([0x80; 16])).object_kind(), ObjectKind::MetadataArena);
    assert_eq!(
        ArenaName::first(finished.name.id).object().as_str(),
        format!("arenas/{}.0", finished.name.id)
    );
}

/// What an arena costs in requests: two to open it, one for each run of blocks.
#[test]
fn caches_spare_reads() {
    let world = World::new();
    let finished = world.build(&chunks(6), Redundancy::ARENA);
    world.put(finished.name.id, finished.object());
    let arena = world.store.arena(finished.name.id).unwrap();
    read(&world.store, &arena, 0).unwrap();
    world.backend.remove(&ArenaName::first(finished.name.id).object()).unwrap();
    let arena = world.store.arena(finished.name.id).expect("its summary is in the cache");
    read(&world.store, &arena, 2).expect("its first block is in the cache");
    assert!(matches!(read(&world.store, &arena, 3), Err(ArenaError::Missing { .. })));
    world.store.forget(finished.name.id);
    assert!(matches!(world.store.arena(finished.name.id), Err(ArenaError::Missing { .. })));
}

/// Copies that claim to have room, and keep nothing: the disk of the cache is full.
struct KeepsNothing;

impl NearArenas for KeepsNothing {
    fn read(&self, _: ArenaName, _: u64, _: usize) -> Option<Vec<u8>> {
        None
    }

    fn has_room(&self, _: u64) -> bool {
        true
    }
}

#[test]
fn an_arena_that_is_not_kept_is_not_near() {
    let world = World::new();
    let finished = world.build(&chunks(20), Redundancy::ARENA);
    world.put(finished.name.id, finished.object());
    assert!(!world.fresh_store().bring_near(finished.name.id), "there is nothing near");
    let store = world.fresh_store().with_near(Some(Arc::new(KeepsNothing)));
    assert!(!store.bring_near(finished.name.id));
    assert!(!store.bring_near(ArenaId::ZERO), "it does not exist");
    assert!(store.arena(finished.name.id).is_ok());
}
