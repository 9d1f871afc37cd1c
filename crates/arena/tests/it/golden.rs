//! An arena of fixed content under fixed keys and randomness: frozen bytes.
#![expect(clippy::disallowed_methods, reason = "a test that reads the environment or the clock")]

use std::path::Path;

use strongroom_arena::{ArenaName, Redundancy, Rewriting, Source, rewrite};
use strongroom_base::ArenaId;

use crate::{World, chunks, read};

/// BLAKE3 of the arena that this program makes.
///
/// It changes in two cases only. When the format changes: then so does its version (except for
/// version 0), and the arena of the version before stays in `golden/`, to be read for ever. When a
/// new zstd, or another default level, compresses differently: then `arena-v0.bin` must still be
/// readable. In either case take the new value from the failing test, and write a new file only for
/// a new version: `STRONGROOM_WRITE_GOLDEN=1 cargo test -p strongroom-arena golden`.
const ARENA_HASH: &str = "94fb1f2a5622f2ca769d97db27e0190b502d7e60c12d7296564aa434a0f29263";

/// The same of its next generation.
const REWRITTEN_HASH: &str = "acae8f39ef4cfb5688bd8b21613f8915e151abd2d0e0593a8139586738991c51";

const ARENA_NAME: &str = "435290c5d9a1113133707ff3b34b14ed";

fn golden_file() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/arena-v0.bin")
}

/// Some chunks that do not compress and one that does.
fn content() -> Vec<Vec<u8>> {
    let mut chunks = chunks(4);
    chunks.push(b"strongroom ".repeat(300));
    chunks
}

#[test]
fn the_arena_that_is_made_is_frozen() {
    let finished = World::new().build(&content(), Redundancy::ARENA);
    if std::env::var_os("STRONGROOM_WRITE_GOLDEN").is_some() {
        std::fs::write(golden_file(), finished.object()).unwrap();
    }
    let hash = blake3::hash(finished.object()).to_hex();
    assert_eq!((finished.name.id.to_string().as_str(), hash.as_str()), (ARENA_NAME, ARENA_HASH));
}

/// Its next generation, without a chunk in the midst of a block: an absent entry in a directory, and
/// what stays of the block sealed again under the arena's salt.
#[test]
fn the_arena_that_is_rewritten_is_frozen() {
    let world = World::new();
    let id: ArenaId = ARENA_NAME.parse().unwrap();
    let keys = &world.keys.write;
    let rewriting =
        Rewriting { generation: 1, keys, redundancy: Redundancy::ARENA, padding: false };
    let object = std::fs::read(golden_file()).unwrap();
    let source = Source { name: ArenaName::first(id), object: &object };
    let rewritten = rewrite(&world.store, &[source], &|slot| slot == 1, &rewriting);
    let hash = blake3::hash(rewritten.unwrap().object()).to_hex();
    assert_eq!(hash.as_str(), REWRITTEN_HASH);
}

#[test]
fn the_arena_that_was_made_is_read() {
    let world = World::new();
    let id: ArenaId = ARENA_NAME.parse().unwrap();
    world.put(id, &std::fs::read(golden_file()).unwrap());
    let arena = world.store.arena(id).unwrap();
    for (slot, chunk) in (0..).zip(content()) {
        assert_eq!(read(&world.store, &arena, slot).unwrap(), chunk);
    }
    assert_eq!(world.store.heals(), 0);
}
