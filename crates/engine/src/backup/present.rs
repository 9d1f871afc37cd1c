//! Whether what another snapshot names can be named again.

use std::collections::HashSet;

use strongroom_catalog::recipe::{Visit, for_each_chunk};
use strongroom_catalog::{ChunkRef, Recipe};
use strongroom_repository::{ChunkReader, ErrorKind, RepositoryError};

use crate::error::EngineError;

/// Whether every chunk that a recipe needs still exists, as `check` says of each.
pub fn is_whole(
    content: &Recipe,
    reader: &ChunkReader,
    check: &dyn Fn(&ChunkRef) -> Result<bool, RepositoryError>,
) -> Result<bool, EngineError> {
    let (mut is_whole, mut nodes) = (true, HashSet::new());
    let visited = for_each_chunk(content, reader, &mut |chunk, level| {
        is_whole = is_whole && check(chunk)?;
        let is_new = level == 0 || nodes.insert((level, chunk.fingerprint));
        Ok::<_, RepositoryError>(if is_whole && is_new { Visit::Into } else { Visit::Past })
    });
    match visited {
        // A node that is damaged, that this machine has no key for, or that the place does not give.
        Err(error) if error.is_unreadable() || error.kind() == ErrorKind::PutOnly => Ok(false),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(is_whole),
    }
}
