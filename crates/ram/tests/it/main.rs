//! The agent as it is, with a repository in memory: with programs that use the library, with programs
//! that speak for themselves and badly, and with a controller whose datagrams are recorded, forged and
//! repeated.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

mod calls;
mod clocks;
mod controller;
mod cuts;
mod days;
mod floods;
mod loads;
mod raw;
mod records;
mod rights;
mod rounds;
mod stuck;
mod unable;
mod world;
