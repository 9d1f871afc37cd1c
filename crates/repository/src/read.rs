//! Reading: chunks, paths in snapshots, whole snapshots.

pub mod chunk_reader;
pub mod disks;
mod known_places;
pub mod lookup;
pub mod memo;
pub mod walk;
