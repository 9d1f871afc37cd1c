//! Which shapes the schedules met.

use strongroom_base::regimes::{ARE_COUNTED, Regime, table};

/// Those that schedules must meet: all that its verbs have. Only the model of the engine verifies,
/// repairs, restores and replicates, which takes several threads of one program; only its trees have
/// more than one entry, and only its machines have keys that may not read.
pub const MET: [Regime; 15] = [
    Regime::RecipeWithNode,
    Regime::RecipeOfDepth3,
    Regime::TreeWithNode,
    Regime::TreeOfDepth3,
    Regime::DeltaStored,
    Regime::DeltaRead,
    Regime::ArenaOfBlocks,
    Regime::ArenaRewritten,
    Regime::CacheEvicted,
    Regime::MemoForgot,
    Regime::IndexOfSegments,
    Regime::PlanCutOfSlots,
    Regime::PlanCutOfSnapshots,
    Regime::EndCut,
    Regime::ArenaOfSlots,
];

/// Schedules after which each of them must have been met.
const SCHEDULES_MIN: u64 = 1000;

/// Prints how often each was met. Returns false if one was not, although there were schedules enough.
pub fn show(schedules: u64) -> bool {
    if !ARE_COUNTED {
        println!("regimes are not counted: build with the feature `regimes`");
        return true;
    }
    let (text, missing) = table(&MET);
    println!("regimes:\n{text}");
    if schedules < SCHEDULES_MIN || missing.is_empty() {
        return true;
    }
    println!("never met: {missing:?}");
    false
}
