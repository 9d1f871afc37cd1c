//! Floor 6: buckets in memory. The agent of a node stores and loads them for its programs and for the
//! client of a cluster (SDDS-2002).
//!
//! ```text
//! program ─ Unix socket ─▶ agent ─▶ jobs (threads) ─▶ keeper ─▶ repository
//!                           ▲ │
//!                   command │ │ acknowledgement          UDP
//!                           │ ▼
//!                          client ─▶ the cut: a snapshot of the agents' snapshots
//! ```
//!
//! What is said, and when, is decided elsewhere: with programs by `strongroom-bucket`, between nodes by
//! the state machines of `strongroom-cluster`. Here are the sockets, the clock, the threads and the
//! repository that they need.

pub mod about;
pub mod agent;
pub mod client;
mod counts;
pub mod cut;
mod datagrams;
pub mod files;
mod hex;
pub mod keeper;
mod loading;
mod opened;
