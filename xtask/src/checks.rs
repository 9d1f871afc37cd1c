//! What must hold of the documents and the sources, and a report of what does not.

mod changes;
mod circles;
mod cited;
mod dependencies;
mod design;
mod floors;
mod glossary;
mod json;
mod names;
pub mod phrases;
mod sources;
mod tests_named;

use std::fmt;

use crate::tree::Tree;

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file that is wrong.
    pub path: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// All checks.
pub fn check_docs(tree: &Tree) -> Vec<Finding> {
    let checks: [fn(&Tree) -> Vec<Finding>; 15] = [
        names::links_resolve,
        names::paths_exist,
        floors::floors_hold,
        design::documents_are_linked,
        design::documents_have_their_parts,
        glossary::words_stand_once,
        sources::heads_say_what_for,
        sources::no_machine_shows,
        circles::imports_form_no_circle,
        phrases::phrases_are_plain,
        tests_named::tests_are_named,
        cited::cited_tests_exist,
        dependencies::dependencies_are_explained,
        changes::changes_can_be_assembled,
        json::events_are_documented,
    ];
    checks.iter().flat_map(|check| check(tree)).collect()
}
