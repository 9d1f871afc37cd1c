//! Programs and an agent that keeps versions in memory, through Rust, C and Python; and programs that
//! do not keep to the protocol.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

mod again;
mod agent;
mod calls;
mod foreign;
mod hostile;
mod quiesce;
mod trouble;
mod world;
