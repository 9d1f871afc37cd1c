//! Floor 5: the verbs over a repository itself, one file or folder each; synchronous.
//!
//! They ask what is in it, whether it is whole, and who may open it, and mend what is not whole.
//! None knows a file tree of this machine. Like every verb, none prints or reads the environment,
//! and clock and randomness are parameters.
#![warn(
    clippy::iter_over_hash_type,
    reason = "the order of calls is one that the simulation can repeat"
)]

mod audit;
mod collect;
mod defragment;
mod ending;
mod flight;
mod forget;
mod health;
mod keys;
mod lock;
mod reader;
mod reckoning;
mod repair;
mod replicate;
mod room;
mod stats;
mod verify;
mod vouch;

pub use audit::{AuditFault, AuditOptions, AuditOutcome, audit_replica};
pub use collect::{
    Carried, Later, PruneOptions, PruneOutcome, Undone, Worth, prune, prune_later, undo_prune,
};
pub use defragment::{Gathered, defragment};
pub use ending::{EndingOutcome, EndingPlan, Since, Weighed, carry_out_ending, plan_ending};
pub use forget::{
    Alarm, Circumstances, ForgetOptions, Judged, Periods, Policy, Series, accept, forget, hold,
    judge, release, remember,
};
pub use health::audit::Affected;
pub use health::census::{OpenSession, OwnGone, Unclaimed, find_rolled_back};
pub use health::fault::Fault;
pub use health::lost::{LostSnapshot, Unrecognised};
pub use keys::{NewAccess, add_key, change_key, list_keys, remove_key};
pub use lock::{LockOutcome, lock};
pub use reckoning::reckon_same;
pub use repair::{
    FetchOutcome, FetchPlan, FetchStep, Known, Needed, RepairOutcome, RepairPlan, RepairStep,
    fetch, fetch_needed, may_recover, plan_fetch, plan_losses, plan_recovery, plan_removals,
    plan_repair, repair, repair_objects,
};
pub use replicate::{
    CopyOutcome, CopyPlan, MirrorOutcome, MirrorPlan, mirror, plan_mirror, plan_replica,
    preview_mirror, replicate, replicate_within,
};
pub use stats::{
    ArenaTotals, Cost, CostOwner, Growth, GrowthPoint, RepositoryStats, SnapshotStat, growth_stats,
    repository_stats, snapshot_stats,
};
pub use verify::{VerifyDepth, VerifyOutcome, verify, verify_objects, verify_within};
pub use vouch::vouch;
