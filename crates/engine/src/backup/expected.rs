//! What a backup is expected to find, by the snapshots before it. What has far less is doubted: why,
//! and what follows of it, is in `docs/design/0019-retention.md`.

use std::collections::BTreeMap;

use strongroom_base::units::{bytes_text, count_text, counted};
use strongroom_catalog::{Snapshot, SnapshotStats};
use strongroom_repository::{Arrivals, OwnSeries, Repository, Usual};

/// What is expected.
#[derive(Debug, Default)]
pub struct Expected {
    usual: Usual,
    /// Paths of which the parent has nothing although something was expected then, and names that were
    /// in them.
    pub were_missing: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    /// Whether what the owner has accepted is known, and so not among these.
    pub knows_accepted: bool,
}

impl Expected {
    /// By these snapshots of the same host and paths, oldest first. A key that may only store
    /// remembers the last one alone.
    pub fn of(repository: &Repository, series: &[Snapshot], parent: Option<&Snapshot>) -> Self {
        let mut known = OwnSeries::of(series, &Arrivals::default());
        let is_owner = repository.keys.can_read() && repository.secret.domain_name().is_empty();
        if known.has_doubts() && is_owner {
            // If they cannot be read, a doubt is said once more than needed.
            let arrivals = Arrivals::read(repository).unwrap_or_default();
            known = OwnSeries::of(series, &arrivals);
        }
        let lacking = parent.filter(|parent| known.lacking.contains(&parent.id));
        let were_missing = lacking.map(|parent| parent.missing.clone()).unwrap_or_default();
        Self { usual: known.usual, were_missing, knows_accepted: is_owner }
    }

    /// What is wrong with a backup that has far less than usual.
    pub fn shortfall(&self, stats: &SnapshotStats) -> Option<String> {
        let [files, bytes] = self.usual.files_and_bytes()?;
        self.usual.is_far_above(stats).then(|| {
            format!(
                "far less was found than usual: {} and {}, not {} and {}",
                counted(stats.files, "file", "files"),
                bytes_text(stats.bytes),
                count_text(files),
                bytes_text(bytes),
            )
        })
    }
}
