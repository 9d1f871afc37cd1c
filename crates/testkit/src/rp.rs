//! An SDDS to store and load: an RP* file (Litwin, Neimat, Schneider, "RP*: a family of order
//! preserving scalable distributed data structures", VLDB 1994), as SDDS-2002 keeps one.
//!
//! A *file* is a set of records, each with a key and a value. It is spread over *servers*; each has
//! one *bucket*, which holds one range of the keys in a B+-tree in a memfd. A bucket that is full
//! gives its upper half to a server whose bucket is empty, a *spare*. A *client* has a table of
//! ranges that may be old: a server that does not have a key says which ranges it has and gave
//! away, and the client learns (an image adjustment message).
//!
//! ```text
//! Client ── Request ──▶ Server ── Bucket ── Tree ── Page ── Area (a memfd) ◀── agent
//!    ◀──── Moved ────────┘  └── Split ──▶ Server (a spare)
//! ```
//!
//! It is here to prove that a program's memory can be stored, evicted and loaded elsewhere. Nothing
//! is encrypted, and a server that dies loses its bucket: that is what snapshots are for.

mod area;
mod bucket;
mod client;
mod error;
mod link;
mod page;
mod registered;
mod server;
mod tree;
mod wire;
mod workload;

pub use area::{Area, PAGE_BYTES};
pub use bucket::{Bucket, Records};
pub use client::Client;
pub use error::{RpError, TreeError};
pub use registered::{AREA, register};
pub use server::{Registered, Role, Server, ServerOptions};
pub use tree::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use wire::{Condition, Image, Status};
pub use workload::{Checked, Workload};

#[cfg(test)]
mod tests;
