//! Makes an index as large as that of many terabytes, for `campaign/index-memory`: made-up
//! fingerprints in made-up arenas, and for each arena an object of the size that the index knows,
//! so that none seems to have vanished. On the medium the objects are holes.
//!
//! ```text
//! fill_index CACHE-OF-THE-REPOSITORY FOLDER-OF-ARENAS ARENAS CHUNKS-OF-EACH
//! ```
#![expect(clippy::disallowed_methods, reason = "an example is a program")]

use std::error::Error;
use std::fs::File;
use std::path::Path;

use strongroom_base::{ArenaId, Entropy, Fingerprint, Location, SeededEntropy, Silent, SnapshotId};
use strongroom_repository::ChunkIndex;

const OBJECT_BYTES: u64 = 16 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cache, folder, arenas, chunks] = &arguments[..] else {
        return Err("give CACHE-OF-THE-REPOSITORY FOLDER-OF-ARENAS ARENAS CHUNKS-OF-EACH".into());
    };
    let (arenas, chunks): (u32, u32) = (arenas.parse()?, chunks.parse()?);
    let entropy = SeededEntropy::new(1);
    let mut index = ChunkIndex::open(Some(Path::new(cache)))?;
    for _ in 0..arenas {
        let arena = ArenaId(entropy.array());
        let object = Path::new(folder).join(format!("{arena}.0"));
        File::create_new(object)?.set_len(OBJECT_BYTES)?;
        index.begin_arena(arena, SnapshotId::ZERO);
        for slot in 0..chunks {
            let location = Location { arena, slot };
            index.insert(&Fingerprint(entropy.array()), location, false);
        }
        index.finish_arena(arena, OBJECT_BYTES);
    }
    index.flush(&Silent);
    Ok(())
}
