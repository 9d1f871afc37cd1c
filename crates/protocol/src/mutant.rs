//! What can be done wrong: each is a protocol that one could have written, and loses data.

/// A protocol with one fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// W2 before W1: the lists are read before the session is there to be waited for.
    ReadsPlansBeforeItsSession,
    /// W4 without F: a parent may be one that is about to go.
    ParentMayBeForgotten,
    /// W5 looks only at what verdicts removed, not at what a plan condemns.
    UsesWhatIsHeld,
    /// W5 looks only at plans, not at verdicts: what a repair wrote back is used.
    UsesWhatWasWrittenBack,
    /// W5 without the bases of deltas. Harmless alone, because of C7.
    UsesDeltasWithoutTheirBases,
    /// A base need not fulfil W5.
    AnyBase,
    /// W9: a lost answer to the commit ends the session undecided.
    GivesUpUndecided,
    /// W8: a retry that finds its own commit takes it for a fence.
    TakesItsOwnCommitForAFence,
    /// Two names: the writer acknowledges without a look for a fence.
    WriterLooksForNoFence,
    /// C4 before C3.
    WritersListedBeforeThePlan,
    /// No C5.
    WaitsForNoWriter,
    /// C6's listing before C5.
    ListsAgainBeforeItWaits,
    /// No second mark.
    MarksOnce,
    /// C2 and C6 pass over a snapshot that they cannot read.
    SkipsTheUnreadable,
    /// C2 and C6 do not mark all that a snapshot needs. Harmless alone, because of the second
    /// reckoning.
    MarksTooLittle,
    /// There is no second reckoning. Harmless alone.
    ReckonsOnce,
    /// Both.
    MarksTooLittleAndReckonsOnce,
    /// C7 removes bases of what stays. Harmless alone, because of W5 and the second reckoning.
    DoesNotClose,
    /// Both of the two that are harmless alone.
    NeitherLooksAtBasesNorCloses,
    /// C7's create is not exclusive.
    VerdictsReplaceEachOther,
    /// C8 follows what this collector decided, and not what the verdict says.
    CarriesOutItsOwnDecision,
    /// C5 cleans up tombstones.
    RemovesTombstones,
    /// The store's listings do not show what was created before they began.
    ListingsLag,
    /// Forgetting removes the snapshot at once.
    ForgetsAtOnce,
    /// The wishes are read in C2 alone.
    WishesReadOnce,
    /// Undo sees that there is no verdict before it reads the plan.
    ReadsVerdictsBeforePlans,
    /// What a plan condemns is brought back by the removal of the plan.
    UndoRemovesThePlan,
    /// A wish is taken back by the removal of its object.
    WishesAreRemoved,
    /// W2 takes a plan that cannot be read for none.
    PassesOverATornPlan,
    /// C1 removes a plan that cannot be read, and makes another.
    RemovesATornPlan,
}
