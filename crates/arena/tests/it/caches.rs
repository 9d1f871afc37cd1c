//! What a store keeps in memory, and so does not read again.

use std::sync::Arc;

use strongroom_arena::{ArenaError, ArenaStore, CacheLimits, Redundancy};
use strongroom_base::ArenaId;
use strongroom_testkit::{CallKind, RecordingBackend};

use crate::{ARENA_BYTES, World, chunks, read};

/// Arenas of one chunk each: what small backups leave behind.
fn put_small_arenas(world: &World, count: usize) -> Vec<ArenaId> {
    let chunks = chunks(count);
    let put = |chunk: &Vec<u8>| {
        let arena = world.build(std::slice::from_ref(chunk), Redundancy::ARENA);
        world.put(arena.name.id, arena.object());
        arena.name.id
    };
    chunks.iter().map(put).collect()
}

fn recorded(
    world: &World,
    limits: CacheLimits,
) -> (ArenaStore, Arc<RecordingBackend<dyn strongroom_backend::Backend>>) {
    let backend: Arc<dyn strongroom_backend::Backend> = world.backend.clone();
    let backend = Arc::new(RecordingBackend::new(backend));
    let store = ArenaStore::new(backend.clone(), &world.keys, ARENA_BYTES, limits);
    (store, backend)
}

fn reads(backend: &RecordingBackend<dyn strongroom_backend::Backend>) -> usize {
    backend.take().iter().filter(|call| call.kind == CallKind::Read).count()
}

/// Sixteen summaries were kept, of whichever size: a walk through the trees of many small
/// backups read a summary for each tree.
#[test]
fn engine_22_a_second_pass_over_many_small_arenas_reads_nothing() {
    let world = World::new();
    let ids = put_small_arenas(&world, 200);
    let (store, backend) = recorded(&world, CacheLimits::default());
    for (pass, expected) in [400, 0].into_iter().enumerate() {
        for id in &ids {
            let arena = store.arena(*id).unwrap();
            read(&store, &arena, 0).unwrap();
        }
        assert_eq!(reads(&backend), expected, "pass {pass}: a summary and a block of each");
    }
}

#[test]
fn an_arena_beyond_repair_is_not_read_again_and_again() {
    let world = World::new();
    let ids = put_small_arenas(&world, 5);
    for id in &ids {
        world.put(*id, &[0; 5000]);
    }
    let (store, backend) = recorded(&world, CacheLimits::default());
    let open_all = || {
        for id in &ids {
            assert!(matches!(store.arena(*id), Err(ArenaError::Damaged { .. })));
        }
        backend.take().iter().map(|call| call.bytes).sum::<u64>()
    };
    open_all();
    let begins = 5 * 5000;
    assert_eq!(open_all(), begins, "only the beginning of each is looked at again");
}
