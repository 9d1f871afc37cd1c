//! What a client is made with, what it asks its caller to do, what the caller reports, and how a run
//! ends.

use std::fmt;

use strongroom_base::SnapshotId;
use strongroom_bucket::KeyRange;

use crate::message::{
    Acknowledgement, BucketNumber, Command, Cut, Description, Epoch, FileName, NodeId, Part, RunId,
    State,
};
use crate::union::{Overlap, Union};

/// What a client is made with.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Random, for this run alone.
    pub run: RunId,
    /// Random: it spreads commands over time.
    pub seed: u64,
    /// The highest epoch that an earlier client of this file kept; zero if there was none.
    pub known_epoch: Epoch,
    /// How long nodes are asked for their epochs and ranges at first, unless all keys are known
    /// earlier.
    pub ask_ms: u32,
    /// How long programs may be stopped, and how long the client waits until all is captured.
    pub deadline_ms: u32,
    /// How long nodes may take to store, to evict, or to load.
    pub store_ms: u32,
    /// The nodes of the cluster. A file is stored only if each has said what it has.
    pub nodes: Vec<NodeId>,
    /// Of those, the ones that are lost, and need not say anything.
    pub without: Vec<NodeId>,
    /// Whether empty buckets are stored as well: there is nothing that they could replace, or it is
    /// wanted.
    pub takes_empty: bool,
    /// How many deadlines the client waits for. Behind each but the last, what is missing is
    /// recovered.
    pub periods: u32,
}

/// What a run is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Ask all nodes what they have.
    Status,
    /// Store all buckets at one instant.
    Store {
        /// Whether to free their memory once the cut is committed.
        evicts: bool,
    },
    /// Free the memory of buckets that a committed cut holds.
    Evict {
        /// The cut.
        cut: Cut,
        /// Its buckets.
        parts: Vec<Part>,
    },
    /// Load the buckets of a cut.
    Load {
        /// The cut.
        cut: Cut,
        /// Its buckets, each with the node that is to load it.
        parts: Vec<Part>,
    },
}

/// What the caller must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEffect {
    /// Send a command to all nodes: by multicast, or to each of a list.
    Send(Command),
    /// Keep the epoch durably, then [`ClientInput::EpochKept`].
    KeepEpoch(Epoch),
    /// Commit the cut, a snapshot that names these trees, then [`ClientInput::Committed`].
    Commit {
        /// The epoch that it is of.
        epoch: Epoch,
        /// Its buckets. Their ranges cover all keys exactly once.
        parts: Vec<StoredPart>,
    },
    /// No bucket has these keys: run the hook. It must make sure that the bucket that had them does
    /// not come back, and may load it on another node ([`ClientInput::Moved`], if this run loads).
    Recover(KeyRange),
    /// The run is over.
    Finish(Outcome),
}

/// What the caller reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientInput {
    /// The epoch is on the disk.
    EpochKept(Epoch),
    /// The epoch could not be kept.
    EpochNotKept {
        /// Why.
        reason: String,
    },
    /// The cut is committed, as this snapshot.
    Committed(SnapshotId),
    /// The cut is not committed, or it is unknown whether it is.
    NotCommitted {
        /// Why.
        reason: String,
    },
    /// What was missing is recovered, and will not come back from where it was: nodes that do not
    /// answer need not.
    Recovered,
    /// A bucket is to be loaded on another node, from the next round on.
    Moved {
        /// The bucket.
        bucket: BucketNumber,
        /// The node that loads it now.
        node: NodeId,
    },
}

/// A bucket that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPart {
    /// Which, where, and as what.
    pub part: Part,
    /// What it held.
    pub description: Description,
}

/// Why a bucket, or a node, did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The node.
    pub node: NodeId,
    /// The bucket, if it is about one.
    pub bucket: Option<BucketNumber>,
    /// Its state, as the node said last.
    pub state: State,
    /// The node's reason, or what the client saw.
    pub reason: String,
}

/// What an eviction did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Eviction {
    /// Buckets whose memory is free.
    pub evicted: Vec<Part>,
    /// Buckets that keep their memory, as far as is known, and why.
    pub left: Vec<Problem>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// What nodes have.
    Status {
        /// One for each bucket, and for each node without one.
        answers: Vec<Acknowledgement>,
        /// Whether their ranges cover all keys.
        union: Union,
    },
    /// The cut is committed.
    Stored {
        /// The cut.
        cut: Cut,
        /// Its buckets.
        parts: Vec<StoredPart>,
        /// What was freed, if that was asked for.
        eviction: Option<Eviction>,
    },
    /// Buckets of a cut were evicted, or not.
    Evicted(Eviction),
    /// All keys are in memory.
    Loaded {
        /// The cut.
        cut: Cut,
        /// What nodes loaded.
        answers: Vec<Acknowledgement>,
    },
    /// It was cancelled before there was a cut, or before all of one was loaded. A run that was
    /// cancelled later ends with what it did.
    Cancelled,
    /// There is no cut, or not all of it is loaded.
    Failed(ClusterError),
}

/// Why there is no cut, or why not all of one is loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// Keys are missing, or claimed twice, or buckets failed.
    #[error(
        "file {file} is incomplete at the deadline{}{}{}. Start the agents of these keys, or load \
         their buckets from the last cut",
        list(": no bucket is ready for these keys:", missing),
        list("; claimed twice:", &Overlap::once(overlaps)),
        list(";", problems)
    )]
    Incomplete {
        /// The file.
        file: FileName,
        /// Keys that no bucket was ready for, or did not capture or load.
        missing: Vec<KeyRange>,
        /// Keys that more than one bucket claimed.
        overlaps: Vec<Overlap>,
        /// Buckets and nodes that failed.
        problems: Vec<Problem>,
    },
    /// What was captured is not stored.
    #[error(
        "file {file} was captured in epoch {epoch} and not stored{}: nothing was evicted; look \
         at the agents of these nodes and store again",
        list(";", problems)
    )]
    NotStored {
        /// The file.
        file: FileName,
        /// The epoch.
        epoch: Epoch,
        /// Buckets that did not store.
        problems: Vec<Problem>,
    },
    /// The cut could not be committed, or it is unknown whether it was.
    #[error(
        "the cut of file {file} in epoch {epoch} is not known to be committed: {reason}; nothing \
         was evicted, store again"
    )]
    NotCommitted {
        /// The file.
        file: FileName,
        /// The epoch.
        epoch: Epoch,
        /// Why.
        reason: String,
    },
    /// The client's own disk refused the epoch.
    #[error("the epoch of file {file} could not be kept: {reason}; no command was sent with it")]
    EpochNotKept {
        /// The file.
        file: FileName,
        /// Why.
        reason: String,
    },
    /// There is no higher epoch.
    #[error("file {file} has no epochs left: store it under another name")]
    EpochsUsedUp {
        /// The file.
        file: FileName,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(bucket) = self.bucket {
            write!(f, "bucket {bucket} on ")?;
        }
        write!(f, "node {}: {}", self.node, self.reason)
    }
}

/// Things that a message lists before it counts the rest.
const LISTED_MAX: usize = 8;

/// `before` and the things, or nothing if there are none.
fn list(before: &str, things: &[impl fmt::Display]) -> String {
    if things.is_empty() {
        return String::new();
    }
    let shown: Vec<String> = things.iter().take(LISTED_MAX).map(ToString::to_string).collect();
    let rest = match things.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    format!("{before} {}{rest}", shown.join(", "))
}
