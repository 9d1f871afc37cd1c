//! What all regions of a snapshot share while they are stored.

use strongroom_base::Cancel;
use strongroom_repository::{ChunkReader, Repository, StreamCutter};

use crate::backup::BackupOptions;

/// What all regions share.
pub struct Shared<'s, 'r> {
    /// The repository.
    pub repository: &'r Repository,
    /// Reads the parent.
    pub reader: &'r ChunkReader,
    /// Names chunks.
    pub cutter: StreamCutter,
    /// Which kept chunks are compared with their fingerprints.
    pub turn: u64,
    /// How it is stored.
    pub options: &'s BackupOptions,
    /// The request to stop.
    pub cancel: &'s Cancel,
}
