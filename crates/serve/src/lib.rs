//! Floor 6: our own server.
//!
//! A *room* is a folder that holds one repository; a *house* is a folder of rooms, with the tokens
//! that open them. A client that is let in has a [`Role`], and every request is compared with it
//! (`room.rs`). The server has no key. Before it acknowledges an object it checks the object's
//! envelope, so what arrives damaged is refused while the client still has it; by the same envelopes
//! it verifies and repairs rooms by itself (`watch.rs`).
//!
//! A connection ([`attend`]) is the same over the pipes of `ssh` and over TLS (`listen.rs`). What it
//! may take of this machine is bounded in each direction: frames, uploads, requests, threads, and
//! the memory in which objects are checked (`limits.rs`).

mod attend;
mod house;
mod limits;
mod listen;
mod listing;
mod log;
mod metrics;
mod notes;
mod rights;
mod room;
mod token;
mod upload;
mod watch;

pub use attend::{Door, Entrance, attend};
pub use house::{House, HouseError};
pub use limits::Limits;
pub use listen::{Identity, ListenOptions, listen};
pub use log::{AuditLog, LogError, check_log};
pub use rights::{Role, Verb};
pub use room::{Checks, Room, Visitor};
pub use token::{NewToken, Token, TokenError};
