//! What client and nodes say to each other: commands, acknowledgements, and the identifiers in them.
//! How they become bytes is in `format.rs`, how bytes are protected in `seal.rs`.

use std::fmt;

use strongroom_base::SnapshotId;
use strongroom_bucket::KeyRange;

/// Bytes that the name of a file may have at most.
pub const FILE_NAME_BYTES_MAX: usize = 64;
/// Bytes of a reason that travel; what is behind them is cut off.
pub const REASON_BYTES_MAX: usize = 160;
/// Nodes that a command lists at most as having answered. The others answer again.
pub const ANSWERED_MAX: usize = 200;
/// Parts of a cut that one command lists at most. A client sends several commands for more.
pub const PARTS_MAX: usize = 24;

/// Why a text does not name a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no name of a file: 1 to 64 bytes without \"/\" and control characters")]
pub struct FileNameError(pub String);

/// The name of a file, whose buckets are on many nodes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(String);

impl FileName {
    /// The name, which is a folder of each snapshot: 1 to 64 bytes, no `/`, not `.` or `..`.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub fn new(name: &str) -> Result<Self, FileNameError> {
        let fits = (1..=FILE_NAME_BYTES_MAX).contains(&name.len());
        let is_plain = !name.contains(|c: char| c == '/' || c.is_control());
        if fits && is_plain && name != "." && name != ".." {
            return Ok(Self(name.to_owned()));
        }
        Err(FileNameError(name.to_owned()))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names a node; made at random when it joins the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub [u8; 16]);

/// The first bytes of a node's name, by which a command lists those that have answered. If two nodes
/// have the same, one is not heard again, and then nothing is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeTag(pub [u8; 4]);

impl NodeId {
    /// Its first bytes.
    pub fn tag(&self) -> NodeTag {
        NodeTag([self.0[0], self.0[1], self.0[2], self.0[3]])
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

/// Names a bucket in its file, on any node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketNumber(pub u32);

impl fmt::Display for BucketNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Numbers the rounds of a file. It only rises; zero is before the first round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Names one run of a client, at random. An acknowledgement repeats it, so that an old one never
/// passes for a new one, and two clients that took the same epoch are distinct by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

/// A snapshot that holds a file at one instant, and the epoch in which it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cut {
    /// The epoch of its PREPARE.
    pub epoch: Epoch,
    /// The client's snapshot.
    pub snapshot: SnapshotId,
}

/// One bucket of a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// The bucket.
    pub bucket: BucketNumber,
    /// The node that stored it, or that is to load it.
    pub node: NodeId,
    /// The snapshot of that node's agent.
    pub snapshot: SnapshotId,
}

/// What a node is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// Say what you hold, and your highest epoch. Changes nothing.
    Status,
    /// Stop the programs and say which ranges they have. Those of empty buckets go on at once.
    Prepare,
    /// Capture, let the programs go on, store.
    Cut,
    /// Let the programs go on. There will be no cut in this epoch.
    Abort,
    /// Free the listed buckets if their memory is what the cut holds.
    Evict {
        /// The committed cut.
        cut: Cut,
        /// The buckets to free, of all nodes: at most [`PARTS_MAX`].
        parts: Vec<Part>,
    },
    /// Load the listed buckets.
    Load {
        /// The cut to load from.
        cut: Cut,
        /// Which node loads what: at most [`PARTS_MAX`].
        parts: Vec<Part>,
    },
    /// The same as `Prepare`, also for buckets that are empty.
    PrepareAll,
}

/// What a client says to all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The file that is meant.
    pub file: FileName,
    /// The run that it belongs to.
    pub run: RunId,
    /// The round that it belongs to. Of `Status`, zero.
    pub epoch: Epoch,
    /// What to do.
    pub verb: Verb,
    /// How long a node may keep programs stopped, in milliseconds from receipt.
    pub deadline_ms: u32,
    /// Nodes that answered for all of their buckets, and need not again: at most [`ANSWERED_MAX`].
    pub answered: Vec<NodeTag>,
}

/// How far a bucket is, in the epoch that is named beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// No round concerns it.
    Idle,
    /// Its program was asked to stop.
    Preparing,
    /// Its program is stopped.
    Ready,
    /// What it held is copied; its program goes on.
    Captured,
    /// The copy is in a snapshot, and the node remembers that on its disk.
    Stored,
    /// It is compared with what was stored, or being freed.
    Evicting,
    /// Its memory is free.
    Evicted,
    /// Its memory was not what was stored. Nothing was freed.
    Changed,
    /// It is being loaded.
    Loading,
    /// It was loaded.
    Loaded,
    /// It did not do what was asked; the reason is beside it.
    Failed,
    /// The node refuses the command: its epoch is over, or not this node's.
    Refused,
    /// Its areas are zeros, so it takes no part in the round.
    Empty,
}

/// What a program says of its bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// The keys that it holds; `None` if it holds none yet.
    pub range: Option<KeyRange>,
    /// How many splits led to this range.
    pub split_version: u64,
    /// Bytes of its areas.
    pub bytes: u64,
    /// What is known of what they hold.
    pub content: Content,
}

/// Whether a bucket holds anything: a program that has just begun may say which keys it has, and have
/// nothing of what belongs to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Content {
    /// It was not looked at since its program came.
    #[default]
    Unknown,
    /// Its areas are zeros.
    Empty,
    /// They are not.
    Filled,
}

/// What a node says to a client of one of its buckets, or of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The run whose command is answered.
    pub run: RunId,
    /// The epoch that the state belongs to.
    pub epoch: Epoch,
    /// Who answers.
    pub node: NodeId,
    /// The highest epoch that the node has on its disk.
    pub highest: Epoch,
    /// The bucket; `None` if the node speaks of itself: it has no bucket, or it refuses.
    pub bucket: Option<BucketNumber>,
    /// How many buckets of the node answer the same command. Who has not heard of as many has not
    /// heard all that the node claims.
    pub buckets: u16,
    /// How far the bucket is.
    pub state: State,
    /// The bucket as its program described it last: while stopped, if it is ready or further.
    pub description: Description,
    /// The agent's snapshot, if it is stored.
    pub snapshot: Option<SnapshotId>,
    /// Why it failed or was refused; otherwise empty.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_folder() {
        for name in ["", ".", "..", "a/b", "a\nb", &"x".repeat(65)] {
            assert!(FileName::new(name).is_err(), "{name:?}");
        }
        for name in ["a", "orders.2026", "ä", &"x".repeat(64)] {
            assert_eq!(FileName::new(name).map(|name| name.to_string()).as_deref(), Ok(name));
        }
    }
}
