//! Programs in C that use VELOC, with an agent that keeps versions in memory: all functions, and
//! programs that are killed and go on.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

#[path = "../../../bucket/tests/it/agent.rs"]
#[expect(dead_code, reason = "the programs of the library ask for more of the agent")]
mod agent;
mod functions;
mod heat;
mod originals;
mod world;
