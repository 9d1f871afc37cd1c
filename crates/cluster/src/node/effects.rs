//! What a node asks its agent to do, and what the agent reports.

use std::net::SocketAddr;

use strongroom_base::SnapshotId;

use crate::message::{Acknowledgement, BucketNumber, Cut, Description, Epoch};
use crate::record::Record;

/// What the agent must do. The `epoch` of an effect is repeated in its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeEffect {
    /// Write the record durably, then [`NodeInput::Persisted`]. Records are written in order.
    Persist {
        /// Which write this is.
        number: u64,
        /// What to write, as a whole.
        record: Record,
    },
    /// Stop the program, then ask it for its description, then [`NodeInput::Quiesced`].
    Quiesce {
        /// The bucket.
        bucket: BucketNumber,
        /// The round.
        epoch: Epoch,
    },
    /// Copy what the bucket holds, then [`NodeInput::Captured`].
    Capture {
        /// The bucket.
        bucket: BucketNumber,
        /// The round.
        epoch: Epoch,
    },
    /// Let the program go on, or give up stopping it. It has no result.
    Resume {
        /// The bucket.
        bucket: BucketNumber,
    },
    /// End a capture or its storing, and forget the copy. It has no result.
    Drop {
        /// The bucket.
        bucket: BucketNumber,
        /// The round.
        epoch: Epoch,
    },
    /// Store the copy as a snapshot, then [`NodeInput::Stored`].
    Store {
        /// The bucket.
        bucket: BucketNumber,
        /// The round.
        epoch: Epoch,
    },
    /// Compare memory and description with a snapshot, then [`NodeInput::Compared`].
    Compare {
        /// The bucket.
        bucket: BucketNumber,
        /// The round.
        epoch: Epoch,
        /// What this node stored it as.
        snapshot: SnapshotId,
    },
    /// Free the bucket's memory, then [`NodeInput::Freed`]. If its program ended or went on since the
    /// comparison, free nothing and report [`NodeInput::Failed`]. No other round has the bucket
    /// before one of the two is reported.
    Free {
        /// The bucket.
        bucket: BucketNumber,
        /// The round.
        epoch: Epoch,
    },
    /// Load a bucket that is not in memory, then [`NodeInput::Loaded`]. If it cannot be loaded, leave
    /// nothing of it that a round stores, and report [`NodeInput::Failed`]. No other round has the bucket before one of
    /// the two is reported.
    Load {
        /// The bucket.
        bucket: BucketNumber,
        /// The round.
        epoch: Epoch,
        /// The agent's snapshot that holds it; maybe another agent's.
        snapshot: SnapshotId,
        /// The cut.
        cut: Cut,
    },
    /// Send an acknowledgement.
    Acknowledge {
        /// Where to.
        to: SocketAddr,
        /// What.
        acknowledgement: Acknowledgement,
    },
}

/// What the agent reports: results of effects, and what programs do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeInput {
    /// A record is on the disk, and so are all with lower numbers.
    Persisted {
        /// Which.
        number: u64,
    },
    /// A record could not be written.
    NotPersisted {
        /// Which.
        number: u64,
        /// Why.
        reason: String,
    },
    /// A program registered a bucket.
    Attached {
        /// The bucket.
        bucket: BucketNumber,
        /// What it holds.
        description: Description,
    },
    /// A program says that its bucket changed, as by a split.
    Described {
        /// The bucket.
        bucket: BucketNumber,
        /// What it holds now.
        description: Description,
    },
    /// A program ended, or gave its bucket up.
    Detached {
        /// The bucket.
        bucket: BucketNumber,
    },
    /// A program is stopped.
    Quiesced {
        /// The bucket.
        bucket: BucketNumber,
        /// That of the effect.
        epoch: Epoch,
        /// What it holds, asked after it stopped.
        description: Description,
    },
    /// A copy is complete.
    Captured {
        /// The bucket.
        bucket: BucketNumber,
        /// That of the effect.
        epoch: Epoch,
        /// What was copied.
        description: Description,
    },
    /// A copy is in a committed snapshot of the agent.
    Stored {
        /// The bucket.
        bucket: BucketNumber,
        /// That of the effect.
        epoch: Epoch,
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// Memory was compared with a snapshot.
    Compared {
        /// The bucket.
        bucket: BucketNumber,
        /// That of the effect.
        epoch: Epoch,
        /// Whether nothing differs.
        is_equal: bool,
    },
    /// Memory is free, and the program has no bucket of this number any more.
    Freed {
        /// The bucket.
        bucket: BucketNumber,
        /// That of the effect.
        epoch: Epoch,
    },
    /// A bucket is in memory again.
    Loaded {
        /// The bucket.
        bucket: BucketNumber,
        /// That of the effect.
        epoch: Epoch,
        /// What it holds.
        description: Description,
    },
    /// An effect failed, or what it did was undone: a program that was stopped goes on.
    Failed {
        /// The bucket.
        bucket: BucketNumber,
        /// That of the effect.
        epoch: Epoch,
        /// Why.
        reason: String,
    },
}
