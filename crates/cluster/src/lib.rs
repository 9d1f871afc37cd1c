//! Floor 1: how the buckets of a file, on many nodes, are stored, loaded and evicted at one instant.
//!
//! This is the protocol alone, after SDDS-2002 (§2.1). There are no sockets here, no clock, no
//! threads and no repository: messages, the time and results come in, messages and effects go out.
//! The agents of a cluster and the simulation in `tests/it` drive the same code.
//!
//! ```text
//!  client                                                     each node
//!    │ STATUS ─────────────────────────────────────────────────▶ │ has which ranges, which epoch?
//!    │ (own epoch e on the disk)                                 │
//!    │ PREPARE e ──────────────────────────────────────────────▶ │ e on the disk, programs stop
//!    │ ◀───────────────────────────────── ready, [low, high), v  │
//!    │ all keys exactly once?                                    │
//!    │ CUT e ──────────────────────────────────────────────────▶ │ copy, programs go on
//!    │ ◀───────────────────────────────────────────── captured   │ store the copy
//!    │ ◀─────────────────────────────────── stored as snapshot S │
//!    │ commit the cut: a snapshot that names all S               │
//!    │ EVICT e+1, cut, parts ──────────────────────────────────▶ │ stop, compare with S, free
//!    │ ◀──────────────────────────── evicted, or changed         │
//! ```
//!
//! - [`Node`] is what the agent of a node does, [`Client`] what the client does. The heads of
//!   `node.rs` and `client.rs` list their invariants.
//! - [`Union`] says whether ranges cover all keys exactly once. A client knows no list of buckets:
//!   it is complete when the keys are.
//! - [`Command`] and [`Acknowledgement`] are all that is said. [`seal_command`] and its siblings
//!   make datagrams of them, of at most [`DATAGRAM_BYTES_MAX`] bytes.
//!
//! # Why a cut is of one instant
//!
//! A node is ready in an epoch at most once, and captures only what has been stopped since. CUT is
//! sent when all ranges are ready. So when CUT is sent, all buckets that are captured later are
//! stopped, and none of them changes until it is captured. A bucket whose stop was broken (its
//! program died, its node restarted, the deadline passed) fails for the whole epoch, and then there
//! is no cut.
//!
//! # What programs must keep to
//!
//! - A program that is stopped changes neither its memory nor its range.
//! - A bucket claims only keys that it holds. While a split hands keys over, both buckets may claim
//!   them, with different split versions, and then the keys must not change.
//!
//! # What no datagram can do
//!
//! Datagrams may be lost, doubled, late, replayed and forged. Commands are idempotent by file, epoch
//! and verb; a node keeps its highest epoch on its disk before it acts. Nothing is freed by one
//! command: a node frees only what it stored itself, for the cut that the command names, and only
//! if it is equal. `docs/format/cluster.md` has the bytes, `docs/design/0036-buckets.md` the
//! decisions.

mod chance;
mod client;
mod format;
mod message;
mod node;
mod record;
mod seal;
mod union;

pub use client::{
    Client, ClientEffect, ClientInput, ClientOptions, ClusterError, Eviction, Outcome, Problem,
    StoredPart, Task,
};
pub use format::FormatError;
pub use message::{
    ANSWERED_MAX, Acknowledgement, BucketNumber, Command, Content, Cut, Description, Epoch,
    FILE_NAME_BYTES_MAX, FileName, FileNameError, NodeId, NodeTag, PARTS_MAX, Part,
    REASON_BYTES_MAX, RunId, State, Verb,
};
pub use node::{Node, NodeEffect, NodeInput, NodeOptions};
pub use record::{Kept, Record};
pub use seal::{
    DATAGRAM_BYTES_MAX, DatagramError, GroupKey, NodeKey, open_acknowledgement, open_command,
    seal_acknowledgement, seal_command,
};
pub use union::{Claim, Holder, Overlap, Union};
