//! Which rare shapes and paths a run of tests has met: a counter for each.
//!
//! Small data takes few of the shapes that the format allows, and a test that never meets one says
//! nothing about it. So the model of the engine and the simulation print these counters, and fail if
//! one that they must meet is zero. The counters exist where assertions do (and with the feature
//! `regimes`, for a simulation that is optimized); elsewhere [`reached`] is nothing.

use std::sync::atomic::{AtomicU64, Ordering};

/// A shape or a path that only large or old repositories have, unless limits are small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Regime {
    /// A recipe was written that has a node.
    RecipeWithNode,
    /// A recipe was written that has nodes above nodes above nodes.
    RecipeOfDepth3,
    /// A tree of several chunks was written.
    TreeOfChunks,
    /// A tree was written whose recipe has a node.
    TreeWithNode,
    /// A tree was written whose recipe has nodes above nodes above nodes.
    TreeOfDepth3,
    /// A chunk of a stored tree was named again, unread.
    TreeChunkNamedAgain,
    /// A delta was stored.
    DeltaStored,
    /// A delta was read.
    DeltaRead,
    /// An arena of several blocks was written.
    ArenaOfBlocks,
    /// An arena was written again, without what was not needed.
    ArenaRewritten,
    /// An arena was computed again from its parity.
    ArenaHealed,
    /// A chunk was found in another place than its reference says.
    ChunkElsewhere,
    /// A cache bounded by bytes let something go.
    CacheEvicted,
    /// A memory of trees let some go.
    MemoForgot,
    /// The marks of good references were dropped.
    MarksForgot,
    /// The index had several segments.
    IndexOfSegments,
    /// A plan did not have room for all slots.
    PlanCutOfSlots,
    /// A plan did not have room for all snapshots.
    PlanCutOfSnapshots,
    /// An end of a collection did not have room for those before it.
    EndCut,
    /// A restore wrote a batch before its end.
    BatchFull,
    /// A restore wrote a file in parts.
    FileInParts,
    /// A backup read no further ahead.
    AheadFull,
    /// A backup did not remember the content of a file with several names.
    LinksFull,
    /// The record of a machine dropped a snapshot or a session.
    RecordFull,
    /// An arena was closed because its summary was long.
    ArenaOfSlots,
    /// Vouchers were written in several objects.
    VouchersCut,
    /// An object waited because others in flight had too many bytes.
    FlightFull,
    /// More was lost than a verification names.
    LossesCut,
    /// A good reference was not remembered, because its slot is great.
    SlotNotMarked,
    /// A snapshot was there that a collection of another copy had taken, and that was kept after all.
    KeptAfterAll,
}

impl Regime {
    /// All of them.
    pub const ALL: [Self; 30] = [
        Self::RecipeWithNode,
        Self::RecipeOfDepth3,
        Self::TreeOfChunks,
        Self::TreeWithNode,
        Self::TreeOfDepth3,
        Self::TreeChunkNamedAgain,
        Self::DeltaStored,
        Self::DeltaRead,
        Self::ArenaOfBlocks,
        Self::ArenaRewritten,
        Self::ArenaHealed,
        Self::ChunkElsewhere,
        Self::CacheEvicted,
        Self::MemoForgot,
        Self::MarksForgot,
        Self::IndexOfSegments,
        Self::PlanCutOfSlots,
        Self::PlanCutOfSnapshots,
        Self::EndCut,
        Self::BatchFull,
        Self::FileInParts,
        Self::AheadFull,
        Self::LinksFull,
        Self::RecordFull,
        Self::ArenaOfSlots,
        Self::VouchersCut,
        Self::FlightFull,
        Self::LossesCut,
        Self::SlotNotMarked,
        Self::KeptAfterAll,
    ];

    /// How often it was met in this process; always zero if nothing is counted.
    pub fn count(self) -> u64 {
        COUNTS[self as usize].load(Ordering::Relaxed)
    }
}

static COUNTS: [AtomicU64; Regime::ALL.len()] = [const { AtomicU64::new(0) }; Regime::ALL.len()];

/// Whether anything is counted.
pub const ARE_COUNTED: bool = cfg!(any(debug_assertions, feature = "regimes"));

/// Counts a regime.
#[inline]
pub fn reached(regime: Regime) {
    if ARE_COUNTED {
        COUNTS[regime as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a regime if this is true.
#[inline]
pub fn reached_if(is_reached: bool, regime: Regime) {
    if is_reached {
        reached(regime);
    }
}

/// A line for each of these regimes, and which of them was never met.
pub fn table(regimes: &[Regime]) -> (String, Vec<Regime>) {
    let line = |regime: &Regime| format!("  {:>12}  {regime:?}", regime.count());
    let lines: Vec<String> = regimes.iter().map(line).collect();
    let missing = regimes.iter().copied().filter(|regime| regime.count() == 0).collect();
    (lines.join("\n"), missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_regime_has_a_counter_of_its_own() {
        for (place, regime) in Regime::ALL.into_iter().enumerate() {
            assert_eq!(regime as usize, place, "{regime:?}");
        }
        // No other test of this crate meets it.
        let regime = Regime::FileInParts;
        assert_eq!(table(&[regime]).1, [regime]);
        reached_if(false, regime);
        assert_eq!(regime.count(), 0);
        reached_if(true, regime);
        let (text, missing) = table(&[regime]);
        assert_eq!((text.as_str(), missing), ("             1  FileInParts", Vec::new()));
    }
}
