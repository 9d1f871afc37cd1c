//! What a node keeps on its disk for one file, so that it never goes back behind it.

use std::collections::BTreeMap;

use strongroom_base::SnapshotId;

use crate::message::{BucketNumber, Cut, Epoch};

/// What the last round that ended left of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It was stored.
    Stored {
        /// In this epoch.
        epoch: Epoch,
        /// As this snapshot of the agent.
        snapshot: SnapshotId,
    },
    /// It was freed, because this cut holds it.
    Evicted(Cut),
    /// It was loaded from this cut.
    Loaded(Cut),
}

/// The record of one file on one node. It is written as a whole, and a record that is written later
/// has all that an earlier one has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The highest epoch that the node took part in.
    pub epoch: Epoch,
    /// Its buckets, if a round ended for them.
    pub kept: BTreeMap<BucketNumber, Kept>,
}
