//! Floor 1: placeholder
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
    Acknowledgement, BucketNumber, Command, Cut, Description, Epoch, FILE_NAME_BYTES_MAX, FileName,
    FileNameError, NodeId, PARTS_MAX, Part, RunId, State, Verb,
};
pub use node::{Node, NodeEffect, NodeInput, NodeOptions};
pub use record::{Kept, Record};
pub use seal::{
    DATAGRAM_BYTES_MAX, DatagramError, GroupKey, NodeKey, open_acknowledgement, open_command,
    seal_acknowledgement, seal_command,
};
pub use union::{Claim, Holder, Overlap, Union};
