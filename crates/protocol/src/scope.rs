//! Who takes part in a run, and what may go wrong in it.

use crate::mutant::Mutant;
use crate::set::Set;

/// How a session is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// By the exclusive creation of one name: the snapshot or a tombstone.
    OneName,
    /// By two names, each put before one looks for the other: no exclusive create is needed.
    TwoNames,
}

/// Who takes part, and what may go wrong.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// For the report.
    pub name: &'static str,
    /// Writers.
    pub writers: u8,
    /// Sessions that each writer begins at most.
    pub attempts: u8,
    /// The contents that writers want besides those of their parents.
    pub contents: Set,
    /// Whether writers may store what they want. If not, they name either what they find, or what
    /// their parent names.
    pub stores: bool,
    /// Collectors. Each may carry out any step of any collection.
    pub collectors: u8,
    /// Collections that are made at most.
    pub collections: u8,
    /// Snapshots that are to be forgotten from the beginning.
    pub unwanted: Set,
    /// A person forgets a snapshot at any time, and may take it back.
    pub forgetter: bool,
    /// That person takes it back only once a plan has condemned it.
    pub undoes: bool,
    /// A process repairs an arena in its place, or rescues it.
    pub repairer: bool,
    /// A plan and its copy can no longer be read, at any time; once.
    pub tears: bool,
    /// How many answers are lost at most.
    pub lost_answers: u8,
    /// How sessions are decided.
    pub decision: Decision,
    /// What is done wrong.
    pub mutant: Option<Mutant>,
}

impl Scope {
    /// Whether this is done wrong.
    pub fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
