//! The protocol in a simulated cluster: a seed is a schedule. Nodes, programs and clients die and come
//! back, datagrams are lost, doubled, late, replayed and forged, and a judge compares what happened
//! with what was promised.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

mod agents;
mod clients;
mod dice;
mod judge;
mod network;
mod programs;
mod schedules;
mod world;
