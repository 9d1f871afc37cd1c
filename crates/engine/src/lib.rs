//! Floor 5: the verbs over files and snapshots, one file or folder each; synchronous.
//!
//! A verb is a function of a repository, what it works on, its options, and a monitor. It never
//! prints, never reads the environment, and takes clock and randomness as parameters.
#![warn(
    clippy::iter_over_hash_type,
    reason = "the order of calls is one that the simulation can repeat"
)]

mod backup;
mod diff;
mod drill;
mod dump;
mod error;
mod find;
mod own;
mod parts;
mod restore;
mod stored_regions;
#[cfg(test)]
mod testing;
mod wanted;

pub use backup::combined::{CombinedPart, combine};
pub use backup::image::{
    Changed, Disk, Machine, MachineBackup, MachineOptions, MachineOutcome, backup_machine,
    check_machine, memory_path,
};
pub use backup::profile::Profile;
pub use backup::region::{
    Region, RegionCounts, RegionOptions, RegionOutcome, Stillness, StillnessGuard, backup_regions,
};
pub use backup::{
    AsMade, BackupOptions, BackupOutcome, BegunWalk, ChangedFiles, backup, backup_reader,
    backup_walk,
};
pub use diff::{
    Change, ChangeKind, DiffOptions, DiffOutcome, DiffSide, Modified, Node, NodeKind, diff,
};
pub use drill::{
    DrillAmount, DrillFinding, DrillOptions, DrillOutcome, FindingKind, SourceCounts, drill,
};
pub use dump::{ByteRange, DumpFormat, DumpOutcome, DumpPart, cat, cat_range, dump};
pub use error::EngineError;
pub use find::{FindOutcome, FindPattern, Sighting, find};
pub use restore::{
    DiskOutcome, RestoreOptions, RestoreOutcome, RestorePlace, disks_of, load_region, read_disk,
    restore, restore_disk,
};
pub use stored_regions::{MARKS_FOLDER, StoredRegion, folders_in, region_at, regions_of};
pub use wanted::{WantedEvent, WantedWalk};
