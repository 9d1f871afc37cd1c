//! Walking a snapshot, or a part of it: depth first, names sorted.
//!
//! Every verb that looks at more than one directory of a snapshot walks it this way, so one rule
//! says what becomes of a directory that is damaged: its loss is reported once, what can still be
//! read of it follows, and the walk goes on. `find_path` is for a single path, and a backup reads
//! the trees of its parent along with the directories of the machine.

use strongroom_base::Cancel;
use strongroom_catalog::{Entry, EntryKind, Recipe, TreeReader};

use super::chunk_reader::ChunkReader;
use super::lookup::Found;
use crate::error::RepositoryError;

/// A directory of which more chunks than this are lost is given up. A hostile tree may name one
/// lost chunk without end.
const LOSSES_MAX: u32 = 1000;

/// What a walk comes to. Paths begin with a slash; that of the whole snapshot's top is empty.
pub enum SnapshotEvent<'w> {
    /// A directory. What it holds comes next, up to its `Leave`, unless it is skipped.
    Enter(EnteredDirectory<'w>),
    /// An entry that is no directory.
    Leaf {
        /// Its path.
        path: &'w [u8],
        /// The entry.
        entry: &'w Entry,
    },
    /// The end of the directory that was entered last and not left yet.
    Leave {
        /// Its path.
        path: &'w [u8],
    },
    /// Entries of the directory that the walk is in cannot be read: once for each directory.
    Lost {
        /// The path of the directory.
        path: &'w [u8],
        /// Why.
        error: RepositoryError,
    },
}

/// A directory that a walk comes to.
#[derive(Debug, Clone, Copy)]
pub struct EnteredDirectory<'w> {
    /// Its path.
    pub path: &'w [u8],
    /// Its entry; none for the top of a whole snapshot.
    pub entry: Option<&'w Entry>,
    /// What it holds.
    pub tree: &'w Recipe,
    /// The backup left something of it out.
    pub partial: bool,
}

impl EnteredDirectory<'_> {
    /// As what a walk can begin at.
    pub fn found(&self) -> Found {
        match self.entry {
            None => Found::Root { tree: self.tree.clone(), partial: self.partial },
            Some(entry) => {
                let path = self.path.strip_prefix(b"/").unwrap_or(self.path);
                Found::Entry { entry: Box::new(entry.clone()), path: path.to_vec() }
            }
        }
    }
}

/// A walk through a snapshot's trees.
pub struct SnapshotWalk<'r> {
    reader: &'r ChunkReader,
    cancel: Cancel,
    top: Found,
    path: Vec<u8>,
    // An explicit stack: trees are deeper than stacks.
    levels: Vec<Level<'r>>,
    next: Next,
    passes_withheld: bool,
}

/// A directory on the way.
struct Level<'r> {
    entries: TreeReader<'r, ChunkReader>,
    path_bytes: usize,
    losses: u32,
}

/// What the walk does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    ReportTop,
    /// Go into the directory that was reported last.
    Descend,
    Advance,
}

/// What the walk came to.
enum Step {
    Entry,
    Leave,
    Lost(RepositoryError),
}

impl<'r> SnapshotWalk<'r> {
    /// A walk from `found` down, which is the first event.
    pub fn new(found: &Found, reader: &'r ChunkReader, cancel: &Cancel) -> Self {
        let path = match found {
            Found::Root { .. } => Vec::new(),
            Found::Entry { path, .. } => [b"/", path.as_slice()].concat(),
        };
        let (top, cancel) = (found.clone(), cancel.clone());
        Self {
            reader,
            cancel,
            top,
            path,
            levels: Vec::new(),
            next: Next::ReportTop,
            passes_withheld: false,
        }
    }

    /// The same walk, to which a directory that the place withholds is [`SnapshotEvent::Lost`] too:
    /// the error says so, and the walk goes on. Otherwise it ends the walk.
    pub fn passing_withheld(self) -> Self {
        Self { passes_withheld: true, ..self }
    }

    /// The next event; none at the end.
    ///
    /// # Errors
    ///
    /// Returns an error if the walk was cancelled, or if the place that keeps the repository fails.
    /// What is wrong with stored data is an event.
    #[expect(clippy::should_implement_trait, reason = "an event borrows from the walk")]
    pub fn next(&mut self) -> Result<Option<SnapshotEvent<'_>>, RepositoryError> {
        self.cancel.check()?;
        let Some(step) = self.step()? else { return Ok(None) };
        if matches!(step, Step::Entry) && self.tree().is_some() {
            self.next = Next::Descend;
        }
        let path = self.path.as_slice();
        Ok(Some(match (step, self.entry()) {
            (Step::Leave, _) => SnapshotEvent::Leave { path },
            (Step::Lost(error), _) => SnapshotEvent::Lost { path, error },
            (Step::Entry, entry) => match (self.tree(), entry) {
                (Some((tree, partial)), entry) => {
                    SnapshotEvent::Enter(EnteredDirectory { path, entry, tree, partial })
                }
                (None, entry) => {
                    let entry = entry.expect("only the top has no entry, and it has a tree");
                    SnapshotEvent::Leaf { path, entry }
                }
            },
        }))
    }

    /// Passes over what the directory holds that was entered just now. It has no `Leave`.
    pub fn skip(&mut self) {
        self.next = Next::Advance;
    }

    fn step(&mut self) -> Result<Option<Step>, RepositoryError> {
        match std::mem::replace(&mut self.next, Next::Advance) {
            Next::ReportTop => return Ok(Some(Step::Entry)),
            Next::Descend => {
                let (tree, _) = self.tree().expect("only directories are descended into");
                let entries = TreeReader::new(tree, self.reader);
                self.levels.push(Level { entries, path_bytes: self.path.len(), losses: 0 });
            }
            Next::Advance => {}
        }
        let Some(level) = self.levels.last_mut() else { return Ok(None) };
        self.path.truncate(level.path_bytes);
        loop {
            let error = match level.entries.advance().map_err(RepositoryError::from) {
                Ok(true) => {
                    self.path.push(b'/');
                    self.path.extend_from_slice(&level.entries.entry().name);
                    return Ok(Some(Step::Entry));
                }
                Ok(false) => break,
                Err(error) if error.is_damage() => error,
                Err(error) if error.is_withheld() && self.passes_withheld => error,
                Err(error) => return Err(error),
            };
            level.losses += 1;
            match level.losses {
                1 => return Ok(Some(Step::Lost(error))),
                LOSSES_MAX.. => break,
                _ => {}
            }
        }
        self.levels.pop();
        Ok(Some(Step::Leave))
    }

    /// The entry that the walk came to last; none at the top of a whole snapshot.
    fn entry(&self) -> Option<&Entry> {
        match (self.levels.last(), &self.top) {
            (Some(level), _) => Some(level.entries.entry()),
            (None, Found::Entry { entry, .. }) => Some(entry),
            (None, Found::Root { .. }) => None,
        }
    }

    /// What it holds, and whether the backup left something of that out, if it is a directory.
    fn tree(&self) -> Option<(&Recipe, bool)> {
        match (self.entry().map(|entry| &entry.kind), &self.top) {
            (Some(EntryKind::Directory { tree, partial }), _) => Some((tree, *partial)),
            (Some(_), _) => None,
            (None, Found::Root { tree, partial }) => Some((tree, *partial)),
            (None, Found::Entry { .. }) => None,
        }
    }
}
