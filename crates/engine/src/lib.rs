//! Floor 5: the repository, and one file per verb; synchronous.
//!
//! A verb is a function of a repository, what it works on, its options, and a monitor. It never
//! prints, never reads the environment, and takes clock and randomness as parameters.

pub mod audit;
pub mod backup;
mod basis;
mod chunk_index;
mod chunk_reader;
mod chunk_writer;
pub mod config;
pub mod diff;
mod dry_restore;
pub mod dump;
mod error;
pub mod key_slot;
pub mod keys;
pub mod lookup;
pub mod objects;
pub mod packer;
pub mod profile;
pub mod repair;
pub mod repository;
pub mod restore;
pub mod session;
pub mod snapshots;
pub mod stats;
mod stream;
#[cfg(test)]
mod testing;
pub mod verify;
pub mod walk;

pub use backup::{BackupOptions, BackupOutcome, backup, backup_reader};
pub use chunk_index::ChunkIndex;
pub use chunk_reader::ChunkReader;
pub use chunk_writer::WriteStats;
pub use diff::{
    Change, ChangeKind, DiffOptions, DiffOutcome, DiffSide, Modified, Node, NodeKind, diff,
};
pub use dump::{DumpFormat, DumpOutcome, cat, dump};
pub use error::EngineError;
pub use packer::{Compression, PackOptions};
pub use profile::Profile;
pub use repair::{RepairOutcome, RepairPlan, RepairStep, plan_repair, repair, repair_objects};
pub use repository::{InitOptions, Repository, Surroundings};
pub use restore::{RestoreOptions, RestoreOutcome, RestorePlace, restore};
pub use snapshots::{SnapshotList, SnapshotName, find_snapshot, list_snapshots};
pub use stats::{ArenaTotals, RepositoryStats, SnapshotStat, repository_stats, snapshot_stats};
pub use verify::{VerifyDepth, VerifyOutcome, verify, verify_objects};
pub use walk::SnapshotWalk;
