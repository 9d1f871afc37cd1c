//! Who takes part: each scope is small enough to be walked through whole, and each fault has one
//! in which it does its harm.

use crate::mutant::Mutant;
use crate::scope::{Decision, Scope};
use crate::set::Set;

/// One writer, one collector, snapshot 0 unwanted.
const BASIC: Scope = Scope {
    name: "a writer beside a collector",
    writers: 1,
    attempts: 1,
    contents: CONTENTS,
    stores: true,
    collectors: 1,
    collections: 1,
    unwanted: FIRST,
    forgetter: false,
    undoes: false,
    repairer: false,
    tears: false,
    lost_answers: 0,
    decision: Decision::OneName,
    mutant: None,
};

/// Its writer stores nothing, and wants the delta.
const FINDING: Scope = Scope { stores: false, contents: DELTA, ..BASIC };

/// A plan that is undone.
const BROUGHT_BACK: Scope = Scope {
    writers: 0,
    unwanted: Set::EMPTY,
    forgetter: true,
    undoes: true,
    lost_answers: 1,
    ..FINDING
};

/// Snapshot 0.
const FIRST: Set = Set::EMPTY.with(0);
/// The content of the base, and of the delta on it.
const CONTENTS: Set = Set::EMPTY.with(0).with(2);
/// That of the delta.
const DELTA: Set = Set::EMPTY.with(2);

/// Those that a bounded run walks through.
pub fn small() -> Vec<Scope> {
    vec![
        BASIC,
        Scope { name: "two collectors", collectors: 2, writers: 0, lost_answers: 2, ..BASIC },
        Scope {
            name: "forgotten, and taken back",
            writers: 0,
            unwanted: Set::EMPTY,
            forgetter: true,
            lost_answers: 1,
            ..BASIC
        },
        Scope { name: "condemned, and brought back", collections: 2, ..BROUGHT_BACK },
        Scope { name: "a repairer", repairer: true, ..BASIC },
        Scope { name: "a plan cannot be read", tears: true, collectors: 2, ..FINDING },
        Scope {
            name: "taken back from a plan that cannot be read",
            tears: true,
            collections: 2,
            ..BROUGHT_BACK
        },
        Scope { name: "two names", decision: Decision::TwoNames, lost_answers: 1, ..BASIC },
    ]
}

/// Those that only a long run does.
pub fn large() -> Vec<Scope> {
    vec![
        Scope { name: "answers are lost", attempts: 2, lost_answers: 1, ..BASIC },
        Scope { name: "a repairer, answers lost", repairer: true, lost_answers: 1, ..BASIC },
        Scope { name: "two collections", collections: 2, lost_answers: 1, ..BASIC },
        Scope { name: "two writers", writers: 2, ..FINDING },
        Scope { name: "a writer, two collectors", collectors: 2, ..FINDING },
        Scope {
            name: "a writer, a forgetter",
            unwanted: Set::EMPTY,
            forgetter: true,
            lost_answers: 1,
            ..FINDING
        },
        Scope {
            name: "two collectors, a forgetter",
            writers: 0,
            collectors: 2,
            unwanted: Set::EMPTY,
            forgetter: true,
            ..BASIC
        },
        Scope {
            name: "a writer, a plan that is undone",
            writers: 1,
            lost_answers: 0,
            ..BROUGHT_BACK
        },
        Scope { name: "two collectors, a plan that is undone", collectors: 2, ..BROUGHT_BACK },
        Scope { name: "a repairer, two collections", repairer: true, collections: 2, ..FINDING },
    ]
}

/// Each fault, with the scope in which it is looked for.
pub fn mutants() -> Vec<Scope> {
    use Mutant as M;
    let lossy = Scope { lost_answers: 1, ..BASIC };
    let with = |mutant, scope: Scope| Scope { mutant: Some(mutant), ..scope };
    let two_names = Scope { decision: Decision::TwoNames, ..BASIC };
    let taken_back = Scope { unwanted: Set::EMPTY, forgetter: true, lost_answers: 1, ..BASIC };
    vec![
        with(M::ReadsPlansBeforeItsSession, BASIC),
        with(M::ParentMayBeForgotten, BASIC),
        with(M::UsesWhatIsHeld, BASIC),
        with(M::UsesWhatWasWrittenBack, Scope { repairer: true, lost_answers: 1, ..FINDING }),
        with(M::AnyBase, BASIC),
        with(M::GivesUpUndecided, lossy),
        with(M::TakesItsOwnCommitForAFence, lossy),
        with(M::WriterLooksForNoFence, two_names),
        with(M::WritersListedBeforeThePlan, BASIC),
        with(M::WaitsForNoWriter, BASIC),
        with(M::ListsAgainBeforeItWaits, BASIC),
        with(M::MarksOnce, BASIC),
        with(M::SkipsTheUnreadable, BASIC),
        with(M::NeitherLooksAtBasesNorCloses, BASIC),
        with(M::VerdictsReplaceEachOther, Scope { collectors: 2, ..FINDING }),
        with(M::CarriesOutItsOwnDecision, Scope { collectors: 2, collections: 2, ..FINDING }),
        with(M::RemovesTombstones, BASIC),
        with(M::ListingsLag, BASIC),
        with(M::ForgetsAtOnce, Scope { writers: 2, forgetter: true, ..FINDING }),
        with(M::WishesReadOnce, Scope { writers: 0, ..taken_back }),
        with(
            M::ReadsVerdictsBeforePlans,
            Scope { writers: 0, collectors: 2, lost_answers: 0, ..taken_back },
        ),
        with(M::MarksTooLittleAndReckonsOnce, BASIC),
        with(M::UndoRemovesThePlan, BROUGHT_BACK),
        with(M::WishesAreRemoved, Scope { writers: 0, ..taken_back }),
        with(M::PassesOverATornPlan, Scope { tears: true, ..BASIC }),
        with(M::RemovesATornPlan, Scope { tears: true, collectors: 2, ..FINDING }),
    ]
}

/// Faults that something else makes up for: no harm comes of one alone.
pub fn harmless() -> Vec<Scope> {
    let with = |mutant| Scope { mutant: Some(mutant), ..BASIC };
    vec![
        with(Mutant::UsesDeltasWithoutTheirBases),
        with(Mutant::DoesNotClose),
        with(Mutant::MarksTooLittle),
        with(Mutant::ReckonsOnce),
    ]
}
