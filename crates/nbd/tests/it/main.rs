//! The server by the tools of others, the client with the servers of others, and both with sides
//! that do not keep to the protocol.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

mod client;
mod liars;
mod mutations;
mod ours;
mod overlay;
mod patience;
mod server;
mod world;
