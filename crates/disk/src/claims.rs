//! Which clusters the files of a tree have: each cluster is in one chain at most.

use crate::clusters::{Chain, Clusters, FIRST, Link};
use crate::error::{DiskError, Result};

/// The clusters of the chains that were seen.
pub(crate) struct Claims {
    words: Vec<u64>,
}

impl Claims {
    pub(crate) fn new(clusters: &Clusters<'_>) -> Self {
        Self { words: vec![0; (clusters.count as usize).div_ceil(64)] }
    }

    /// Whether a chain has this cluster. The cluster exists.
    pub(crate) fn has(&self, cluster: u32) -> bool {
        let index = cluster.saturating_sub(FIRST);
        self.words.get((index / 64) as usize).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    /// Follows a chain to its end. A cluster that was seen before is an error, so a chain that leads
    /// back ends.
    pub(crate) fn claim(&mut self, clusters: &Clusters<'_>, chain: Chain) -> Result<()> {
        if let Some(count) = chain.consecutive {
            clusters.check(chain.first, count)?;
            return (0..count).try_for_each(|n| self.claim_one(chain.first + n as u32));
        }
        let mut cluster = chain.first;
        loop {
            clusters.check(cluster, 1)?;
            self.claim_one(cluster)?;
            match clusters.link(cluster)? {
                Link::Next(next) => cluster = next,
                Link::End => return Ok(()),
                Link::Free | Link::Bad => {
                    return Err(damaged("a chain is broken, by cluster", chain.first));
                }
            }
        }
    }

    fn claim_one(&mut self, cluster: u32) -> Result<()> {
        if self.has(cluster) {
            return Err(damaged("a cluster that is in two chains", cluster));
        }
        let index = cluster.saturating_sub(FIRST);
        if let Some(word) = self.words.get_mut((index / 64) as usize) {
            *word |= 1 << (index % 64);
        }
        Ok(())
    }
}

fn damaged(what: &'static str, cluster: u32) -> DiskError {
    DiskError::damaged(what, cluster.into())
}
