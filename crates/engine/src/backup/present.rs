//! Whether what another snapshot names can be named again.

use std::collections::HashSet;

use strongroom_catalog::Recipe;
use strongroom_catalog::recipe::{Visit, for_each_chunk};
use strongroom_repository::{ChunkReader, ChunkWriter, ErrorKind, RepositoryError};

use crate::error::EngineError;

/// Whether every chunk that a recipe needs still exists.
pub fn is_present(
    content: &Recipe,
    reader: &ChunkReader,
    writer: &ChunkWriter<'_>,
) -> Result<bool, EngineError> {
    let (mut is_present, mut nodes) = (true, HashSet::new());
    let visited = for_each_chunk(content, reader, &mut |chunk, level| {
        is_present = is_present && writer.is_present(chunk)?;
        let is_new = level == 0 || nodes.insert((level, chunk.fingerprint));
        Ok::<_, RepositoryError>(if is_present && is_new { Visit::Into } else { Visit::Past })
    });
    match visited {
        // A node that is damaged, or that this machine has no key for.
        Err(error) if error.is_damage() || error.kind() == ErrorKind::PutOnly => Ok(false),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(is_present),
    }
}
