//! The reader of the verbs that look after a repository. They say what is whole, lost and needed, and
//! copy what is sealed; no verb of this crate gives content to anybody, so each may read what any
//! snapshot names, its domain's or not (`docs/design/0043-possession.md`).

use strongroom_arena::CacheLimits;
use strongroom_repository::{ChunkReader, Repository, RepositoryError};

/// A reader with its own caches, of everything.
#[expect(clippy::disallowed_methods, reason = "this crate gives no content away")]
pub fn reader_of_everything(
    repository: &Repository,
    limits: CacheLimits,
) -> Result<ChunkReader, RepositoryError> {
    ChunkReader::of_everything(repository, limits)
}
