//! Who takes part in the model of generations, and what can be done wrong: each mistake has a scope in which it
//! does its harm, or is made up for by something else.

/// Who takes part, and what is done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histories {
    pub name: &'static str,
    /// Copies of the repository; the first is copied into the second, once.
    pub copies: u8,
    /// Collectors of each copy.
    pub collectors: u8,
    /// Verdicts of each copy, and wishes.
    pub verdicts: u8,
    /// A thief plants a generation, and commits a snapshot that names what is not his.
    pub has_thief: bool,
    /// A thief has the machine's key, and makes a generation of its domain.
    pub is_taken_over: bool,
    /// The owner vouches for what a verification found right.
    pub has_auditor: bool,
    /// The owner takes away what is planted.
    pub has_repairer: bool,
    /// The summary of the only generation of a copy is lost, once, and the owner saves all else.
    pub is_damaged: bool,
    pub mistake: Option<Mistake>,
}

/// What can be done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// The greatest generation is taken for all of the arena.
    GreatestIsAll,
    /// A generation is removed below one that does not have all its slots. Harmless alone, because a
    /// rewriting has what is left of all that were listed.
    RemovesUncovered,
    /// Rewritings that take out different slots have the same name.
    NamesAreCounted,
    /// An arena that was removed, and came back with a copy, goes unmarked.
    SweepsUnmarked,
    /// A sample vouches for an arena that two domains claim.
    VouchesForOne,
    /// The owner's generations have no mark.
    HasNoMark,
    /// Something is removed of an arena although it is not proved whose it is. Harmless alone: the
    /// owner's mark proves it of all that were rewritten, and of the others the first generation is.
    RemovesContested,
    /// A collection ends although an arena of it came to be contested, and was left as it was.
    EndsWithContested,
    /// A snapshot may name what other domains have stored.
    ReadsForAnybody,
    /// Copies are brought together while a collector is at work.
    CopiesBesideACollector,
    /// A copy takes what is under a name for what it would bring.
    TakesNamesForObjects,
    /// All generations of the machine's domain count, with a mark or without.
    CountsWithoutMark,
    /// A rewriting takes a chunk from the greatest generation that says that it has it. Harmless alone: of
    /// those that count, a marked one is greater than one that is not.
    BelievesTheGreatest,
    /// A generation covers another that has other chunks in the same slots. Harmless alone: those that
    /// count never do.
    CoversByNumbers,
    /// A generation that was saved without a summary is planted as soon as there is one with a mark.
    UnmarkedIsPlanted,
    /// Such a generation is read, and does not keep the arena from being removed.
    UnmarkedFreezesNothing,
    /// A repair takes such a generation away although something names what it alone has.
    UnmarkedIsTakenAway,
}

impl Histories {
    pub fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Where the thief is: the copy in which all ends.
    pub fn last(&self) -> u8 {
        self.copies - 1
    }
}

const THIEF: Histories = Histories {
    name: "a thief, an auditor, a repairer",
    copies: 1,
    collectors: 2,
    verdicts: 2,
    has_thief: true,
    is_taken_over: false,
    has_auditor: true,
    has_repairer: true,
    is_damaged: false,
    mistake: None,
};

const TAKEN_OVER: Histories = Histories {
    name: "a machine that was taken over, an auditor, a repairer",
    has_thief: false,
    is_taken_over: true,
    ..THIEF
};

const COPIED: Histories = Histories {
    name: "two copies, brought together",
    copies: 2,
    collectors: 1,
    verdicts: 2,
    has_thief: false,
    is_taken_over: false,
    has_auditor: false,
    has_repairer: false,
    is_damaged: false,
    mistake: None,
};

const SAVED_AND_COPIED: Histories = Histories {
    name: "two copies, of which one is damaged, brought together",
    has_repairer: true,
    is_damaged: true,
    ..COPIED
};

const COPIED_AND_PLANTED: Histories = Histories {
    name: "two copies, brought together, and a thief",
    has_thief: true,
    has_repairer: true,
    ..COPIED
};

/// What takes seconds, and what takes longer.
pub fn scopes(is_whole: bool) -> Vec<Histories> {
    let mut scopes = vec![THIEF, TAKEN_OVER, COPIED, SAVED_AND_COPIED];
    if is_whole {
        scopes.push(COPIED_AND_PLANTED);
    }
    scopes
}

/// Each does harm.
pub fn mutants() -> Vec<Histories> {
    let with = |mistake, scope: Histories| Histories { mistake: Some(mistake), ..scope };
    vec![
        with(Mistake::GreatestIsAll, COPIED),
        with(Mistake::NamesAreCounted, COPIED),
        with(Mistake::SweepsUnmarked, COPIED),
        with(Mistake::CopiesBesideACollector, COPIED),
        with(Mistake::VouchesForOne, THIEF),
        with(Mistake::HasNoMark, THIEF),
        with(Mistake::EndsWithContested, THIEF),
        with(Mistake::ReadsForAnybody, THIEF),
        with(Mistake::TakesNamesForObjects, COPIED_AND_PLANTED),
        with(Mistake::CountsWithoutMark, TAKEN_OVER),
        with(Mistake::UnmarkedIsPlanted, SAVED_AND_COPIED),
        with(Mistake::UnmarkedFreezesNothing, SAVED_AND_COPIED),
        with(Mistake::UnmarkedIsTakenAway, SAVED_AND_COPIED),
    ]
}

/// Mistakes that something else makes up for.
pub fn harmless() -> Vec<Histories> {
    let with = |mistake, scope: Histories| Histories { mistake: Some(mistake), ..scope };
    vec![
        with(Mistake::RemovesUncovered, COPIED),
        with(Mistake::RemovesContested, THIEF),
        with(Mistake::CoversByNumbers, TAKEN_OVER),
        with(Mistake::BelievesTheGreatest, TAKEN_OVER),
    ]
}
