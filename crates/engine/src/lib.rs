//! Floor 5: the verbs, one file or folder each; synchronous.
//!
//! A verb is a function of a repository, what it works on, its options, and a monitor. It never
//! prints, never reads the environment, and takes clock and randomness as parameters.

mod backup;
mod diff;
mod dump;
mod error;
mod find;
mod health;
mod keys;
mod memo;
mod own;
mod repair;
mod restore;
mod stats;
#[cfg(test)]
mod testing;
mod verify;
mod vouch;

pub use backup::profile::Profile;
pub use backup::{BackupOptions, BackupOutcome, backup, backup_reader};
pub use diff::{
    Change, ChangeKind, DiffOptions, DiffOutcome, DiffSide, Modified, Node, NodeKind, diff,
};
pub use dump::{DumpFormat, DumpOutcome, cat, dump};
pub use error::EngineError;
pub use find::{FindOutcome, FindPattern, Sighting, find};
pub use health::audit::Affected;
pub use health::census::{OpenSession, Unclaimed, find_rolled_back};
pub use health::fault::Fault;
pub use health::lost::LostSnapshot;
pub use keys::{NewAccess, add_key, change_key, list_keys, remove_key};
pub use repair::{
    RepairOutcome, RepairPlan, RepairStep, may_recover, plan_recovery, plan_repair, repair,
    repair_objects,
};
pub use restore::{RestoreOptions, RestoreOutcome, RestorePlace, restore};
pub use stats::{ArenaTotals, RepositoryStats, SnapshotStat, repository_stats, snapshot_stats};
pub use verify::{VerifyDepth, VerifyOutcome, verify, verify_objects};
pub use vouch::vouch;
