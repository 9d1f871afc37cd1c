//! Where chunks are that are not in the place that their recipe names: what a reader learns of it once,
//! and how often it learns it again.

use std::time::Duration;

use strongroom_arena::ArenaStore;
use strongroom_backend::Backend;
use strongroom_base::{Cancel, Fingerprint, Location, Silent, Stopwatch};

use crate::error::RepositoryError;
use crate::index::chunk_index::{ChunkIndex, FurtherPlaces};

/// Places are brought up to date again for a chunk that is nowhere if they are older than this …
const LIFETIME: Duration = Duration::from_secs(1);
/// … and than twice as much each time that it was in vain, up to this …
const LIFETIME_MAX: Duration = Duration::from_secs(60);
/// … but always than this many times what that took: most of the time is for reading.
const APART: u32 = 4;

/// Where chunks are, for failed hints.
pub struct KnownPlaces {
    /// One place of each chunk.
    pub index: ChunkIndex,
    /// Places besides the one in the index: found by reading every summary, once the index's own
    /// place has failed too.
    further: Option<FurtherPlaces>,
    /// How old all that is.
    pub freshness: Freshness,
}

impl KnownPlaces {
    /// Those in an index that is not up to date yet.
    pub fn of(index: ChunkIndex) -> Self {
        Self { index, further: None, freshness: Freshness::new() }
    }

    /// Brings them up to date. Returns whether any arena has come or gone.
    pub fn refresh(
        &mut self,
        backend: &dyn Backend,
        store: &ArenaStore,
    ) -> Result<bool, RepositoryError> {
        let watch = Stopwatch::start();
        let refreshed = self.index.refresh(backend, store, &Silent, &Cancel::new())?;
        let has_changed = refreshed.read + refreshed.vanished > 0;
        if has_changed {
            self.further = None;
        }
        self.freshness.was_refreshed(watch.elapsed());
        Ok(has_changed)
    }

    /// A place of a chunk that is not the index's, and not one of those already tried. The index drops
    /// its own with the arena: that is no proof that no other arena holds the chunk.
    pub fn further(
        &mut self,
        fingerprint: &Fingerprint,
        tried: &[Location],
        backend: &dyn Backend,
        store: &ArenaStore,
    ) -> Result<Option<Location>, RepositoryError> {
        let watch = Stopwatch::start();
        let further = match &mut self.further {
            Some(further) => further,
            empty => {
                let tags_max = FurtherPlaces::TAGS_MAX;
                empty.insert(FurtherPlaces::read(&self.index, backend, store, tags_max)?)
            }
        };
        let found = further.find(fingerprint, tried, &self.index, store);
        self.freshness.took = self.freshness.took.max(watch.elapsed());
        found
    }
}

/// How old places are, and how old they must be to be brought up to date again.
pub struct Freshness {
    /// When they had been brought up to date.
    since: Stopwatch,
    /// How long that took, or the longest search since.
    took: Duration,
    /// By how much was found lately.
    patience: Duration,
}

impl Freshness {
    fn new() -> Self {
        Self { since: Stopwatch::start(), took: Duration::ZERO, patience: LIFETIME }
    }

    /// From here on they are fresh, and not from when the listing began: that may take longer than they
    /// stay so, and then the arenas would be listed for each chunk.
    fn was_refreshed(&mut self, took: Duration) {
        (self.since, self.took) = (Stopwatch::start(), took);
    }

    /// Whether it may be worth it to bring them up to date.
    pub fn are_old(&self) -> bool {
        self.since.elapsed() >= self.must_be()
    }

    fn must_be(&self) -> Duration {
        self.patience.max(self.took * APART)
    }

    /// Takes note of whether a chunk was found for which they were brought up to date.
    pub fn was_looked_for(&mut self, is_found: bool) {
        self.patience = match is_found {
            true => LIFETIME,
            false => (self.patience * 2).min(LIFETIME_MAX),
        };
    }
}

#[cfg(test)]
mod tests;
