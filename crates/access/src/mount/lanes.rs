//! What reads the snapshots of each domain: what one domain may name, another may not, so they share
//! no reader and no cache (`docs/design/0043-possession.md`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use strongroom_arena::CacheLimits;
use strongroom_repository::{ChunkReader, Repository, RepositoryError};

use super::contents::Contents;
use super::listing::Listings;
use crate::chunks::{Chunks, Failure};

/// Besides the owner's, lanes of this many domains are open at a time: each has caches of its own.
const LANES_MAX: usize = 2;

/// Reads the snapshots of one domain.
pub struct Lane {
    pub listings: Listings,
    pub contents: Contents,
    chunks: Arc<Chunks>,
}

/// Opens lanes.
pub struct Lanes {
    repository: Arc<Repository>,
    cache: CacheLimits,
    directory_bytes: usize,
    // A plain mutex: held while a lane is opened, which reads nothing of a repository by hash.
    open: Mutex<HashMap<String, Arc<Lane>>>,
}

impl Lanes {
    /// With that of the owner open.
    pub fn new(
        repository: Arc<Repository>,
        cache: CacheLimits,
        directory_bytes: usize,
    ) -> Result<Self, RepositoryError> {
        let lanes = Self { repository, cache, directory_bytes, open: Mutex::default() };
        lanes.open("")?;
        Ok(lanes)
    }

    /// That of a domain.
    pub fn of(&self, domain: &str) -> Result<Arc<Lane>, Failure> {
        Ok(self.open(domain)?)
    }

    fn open(&self, domain: &str) -> Result<Arc<Lane>, RepositoryError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = open.get(domain) {
            return Ok(lane.clone());
        }
        let chunks = ChunkReader::of_domain(&self.repository, domain, self.cache)?;
        let chunks = Arc::new(Chunks::new(chunks));
        let listings = Listings::new(chunks.clone(), self.directory_bytes);
        let contents = Contents::new(chunks.clone());
        let lane = Arc::new(Lane { listings, contents, chunks });
        if open.len() > LANES_MAX {
            open.retain(|domain, _| domain.is_empty());
        }
        open.insert(domain.to_owned(), lane.clone());
        Ok(lane)
    }

    /// How many arenas had to be computed again from parity since this was last asked.
    pub fn take_heals(&self) -> u64 {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.values().map(|lane| lane.chunks.take_heals()).sum()
    }
}
