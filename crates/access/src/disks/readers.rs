//! What reads the disks in snapshots of each domain: what one domain may name, another may not, so
//! they share no reader, no cache and no thread that reads ahead (`docs/design/0043-possession.md`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use strongroom_arena::CacheLimits;
use strongroom_base::{ByteCache, Monitor};
use strongroom_repository::{ChunkReader, Repository, RepositoryError};

use super::disk::Shared;
use super::fetcher::Fetcher;
use super::map::Nodes;
use crate::chunks::Chunks;

/// Nodes of recipes that are kept: those of some 16 GiB of disks.
const NODE_BYTES_MAX: usize = 16 << 20;
/// Chunks of which only a part was wanted.
const RECENT_BYTES_MAX: usize = 24 << 20;
/// Blocks that are fetched at a time from a place far away.
const FETCHERS_MAX: usize = 16;
/// Besides the owner's, readers of this many domains are kept that no open disk uses.
const UNUSED_MAX: usize = 1;

/// Opens readers.
pub struct Readers {
    repository: Arc<Repository>,
    cache: CacheLimits,
    monitor: Arc<dyn Monitor>,
    // A plain mutex: held while a reader is opened, which reads nothing of a repository by hash.
    open: Mutex<HashMap<String, Arc<Shared>>>,
}

impl Readers {
    /// With that of the owner open.
    pub fn new(
        repository: Arc<Repository>,
        cache: CacheLimits,
        monitor: Arc<dyn Monitor>,
    ) -> Result<Self, RepositoryError> {
        let readers = Self { repository, cache, monitor, open: Mutex::default() };
        readers.of("")?;
        Ok(readers)
    }

    /// What all disks in snapshots of a domain share.
    pub fn of(&self, domain: &str) -> Result<Arc<Shared>, RepositoryError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = open.get(domain) {
            return Ok(shared.clone());
        }
        let unused = |(domain, shared): (&String, &Arc<Shared>)| {
            !domain.is_empty() && Arc::strong_count(shared) == 1
        };
        if open.iter().filter(|entry| unused(*entry)).count() >= UNUSED_MAX {
            open.retain(|domain, shared| !unused((domain, shared)));
        }
        let shared = Arc::new(self.open(domain)?);
        open.insert(domain.to_owned(), shared.clone());
        Ok(shared)
    }

    fn open(&self, domain: &str) -> Result<Shared, RepositoryError> {
        let reader = ChunkReader::of_domain(&self.repository, domain, self.cache)?;
        let chunks = Arc::new(Chunks::new(reader));
        let nodes = Arc::new(Nodes::new(chunks.clone(), NODE_BYTES_MAX));
        let threads = chunks.requests_in_flight().min(FETCHERS_MAX);
        let fetcher = Fetcher::start(chunks.clone(), nodes.clone(), threads).map_err(|error| {
            RepositoryError::Argument(format!("no thread can be made: {error}"))
        })?;
        let recent = ByteCache::new(RECENT_BYTES_MAX);
        Ok(Shared { chunks, nodes, recent, fetcher, monitor: self.monitor.clone() })
    }
}
