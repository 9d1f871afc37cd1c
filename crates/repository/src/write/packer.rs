//! Packs new chunks into blocks and blocks into arenas, while the caller goes on.
//!
//! ```text
//! caller ── drafts ──▶ workers: compress, encrypt ──▶ (in order) ──▶ sealer: parity ──▶ writer
//! ```
//!
//! The caller learns a chunk's location at once. It must not commit anything that names the chunk
//! before [`Packer::finish`] has returned: only then every arena is on the medium. Every queue is
//! bounded: at most [`blocks_in_flight`] blocks of a lane are between the caller and their arena,
//! and while one arena is written, a second gets its parity (or, far away, is written too), and
//! a third is built. An arena is
//! closed by the sizes of blocks a fixed distance back, and by what those let expect of the blocks
//! since, not by timing: the same chunks in the same order give the same arenas.
//!
//! [`blocks_in_flight`]: options::blocks_in_flight

mod ladder;
mod lane;
mod lengths;
pub mod options;
mod stages;

use std::sync::Arc;

use strongroom_arena::{ArenaContent, ArenaSeed, Origin, StoredChunk};
use strongroom_backend::BackendError;
use strongroom_base::{ArenaId, ArenaSecret, Entropy, Fingerprint, Location, WriteKeys};

use super::times::StageTimes;
use crate::repository::Repository;
use lane::Lane;
pub use lane::Packed;
use options::{METADATA_BLOCK_BYTES_MAX, PackOptions};
use stages::Stages;
pub use stages::WrittenArena;

/// Packs chunks into arenas. Data and metadata go to separate ones.
pub struct Packer {
    data: Lane,
    metadata: Lane,
    stages: Stages,
    /// Written arenas that the caller knows of.
    known: usize,
    /// This many more may be closed before the caller waits.
    behind_max: usize,
    keys: WriteKeys,
    secret: Option<ArenaSecret>,
    entropy: Arc<dyn Entropy>,
}

impl Packer {
    /// Starts the threads. The keys of the arenas are derived from the secret, if there is one.
    pub fn start(
        repository: &Repository,
        origin: Origin,
        secret: Option<&ArenaSecret>,
        options: PackOptions,
        times: &Arc<StageTimes>,
    ) -> Self {
        let arena_bytes = repository.config.arena_bytes as usize;
        let of_metadata = options.block_bytes.min(METADATA_BLOCK_BYTES_MAX);
        let summary_bytes = repository.limits.summary_bytes_max;
        let lane =
            |content, block_bytes| Lane::new(content, block_bytes, arena_bytes, summary_bytes);
        Self {
            data: lane(ArenaContent::Data, options.block_bytes),
            metadata: lane(ArenaContent::Metadata, of_metadata),
            stages: Stages::start(repository, origin, options, times),
            known: 0,
            behind_max: repository.limits.arenas_behind_max,
            keys: repository.write_keys().clone(),
            secret: secret.cloned(),
            entropy: repository.surroundings.entropy.clone(),
        }
    }

    /// Packs a chunk and says where it will be.
    pub fn put(
        &mut self,
        content: ArenaContent,
        fingerprint: Fingerprint,
        chunk: StoredChunk<'_>,
    ) -> Packed {
        let lane = match content {
            ArenaContent::Data => &mut self.data,
            ArenaContent::Metadata => &mut self.metadata,
        };
        let (keys, entropy) = (&self.keys, &*self.entropy);
        let draw = || match &self.secret {
            Some(secret) => ArenaSeed::derive(content, keys, secret, entropy),
            None => ArenaSeed::draw(content, keys, entropy),
        };
        lane.put(fingerprint, chunk, draw, &self.stages)
    }

    /// Whether chunks are still added to this arena.
    pub fn is_open(&self, arena: ArenaId) -> bool {
        self.data.is_open(arena) || self.metadata.is_open(arena)
    }

    /// A chunk of the arena to which chunks of its kind are added now.
    pub fn chunk(&mut self, place: Location) -> Option<StoredChunk<'_>> {
        let lane = match ArenaContent::of(place.arena) {
            ArenaContent::Data => &mut self.data,
            ArenaContent::Metadata => &mut self.metadata,
        };
        lane.chunk(place.slot, &self.stages)
    }

    /// Waits until one more arena is on the medium, of those that get no more chunks.
    pub fn wait_written(&mut self) -> Result<WrittenArena, BackendError> {
        let written = self.stages.wait_written()?;
        self.known += 1;
        Ok(written)
    }

    /// Arenas that were written since the last call; the first failure, if one failed. Waits while
    /// more are behind than may be.
    pub fn take_written(&mut self) -> Result<Vec<WrittenArena>, BackendError> {
        let mut written = self.stages.take_written()?;
        self.known += written.len();
        while self.data.closed() + self.metadata.closed() - self.known > self.behind_max {
            written.push(self.wait_written()?);
        }
        Ok(written)
    }

    /// Writes what is left and waits until every arena is on the medium. A packer that is dropped
    /// instead leaves the arenas it has written; the next session finds them.
    pub fn finish(mut self) -> Result<Vec<WrittenArena>, BackendError> {
        self.data.finish(&self.stages);
        self.metadata.finish(&self.stages);
        self.stages.finish()
    }
}
