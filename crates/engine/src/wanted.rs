//! A walk through a snapshot that gives only what a filter wants, and the directories on the way to
//! that.
//!
//! A directory that is only on the way is given when something below it is wanted, so a search for
//! one file in a large tree makes no empty directories. Between the two it waits: the memory is that
//! of the directories that the walk is in.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use strongroom_base::Cancel;
use strongroom_catalog::{Entry, Recipe};
use strongroom_repository::{
    ChunkReader, EnteredDirectory, Found, RepositoryError, SnapshotEvent, SnapshotWalk,
};
use strongroom_source::{PathFilter, Verdict};

/// As a [`SnapshotWalk`], of what is wanted.
pub struct WantedWalk<'w> {
    walk: SnapshotWalk<'w>,
    filter: Option<&'w PathFilter>,
    /// The directories that the walk is in.
    levels: Vec<Level>,
    /// How many of those were given, from the top.
    ///
    /// Invariant: at most `due`, and that at most `levels.len()`.
    given: usize,
    /// How many of them are given before the walk goes on.
    due: usize,
    /// What is given after them.
    held: Option<Held>,
    /// Nothing below this level is given, for the caller passes over it.
    skipped: Option<usize>,
    /// What the last event borrows.
    path: Vec<u8>,
    entry: Option<Box<Entry>>,
}

/// An event, and whether it is about a directory that is only on the way to what is wanted.
pub struct WantedEvent<'w> {
    /// The event.
    pub event: SnapshotEvent<'w>,
    /// Whether it is about a directory of which only something below it is wanted.
    pub on_the_way: bool,
}

/// A directory that the walk is in.
struct Level {
    path: Vec<u8>,
    entry: Option<Entry>,
    tree: Recipe,
    partial: bool,
    verdict: Verdict,
}

/// An event that is given later, or now.
enum Held {
    Enter(usize),
    Leaf { path: Vec<u8>, entry: Box<Entry> },
    Leave { path: Vec<u8> },
    Lost { path: Vec<u8>, error: RepositoryError },
}

impl<'w> WantedWalk<'w> {
    /// A walk from `found` down, of all of it if there is no filter.
    pub fn new(
        found: &Found,
        filter: Option<&'w PathFilter>,
        reader: &'w ChunkReader,
        cancel: &Cancel,
    ) -> Self {
        let walk = SnapshotWalk::new(found, reader, cancel);
        Self {
            walk,
            filter,
            levels: Vec::new(),
            given: 0,
            due: 0,
            held: None,
            skipped: None,
            path: Vec::new(),
            entry: None,
        }
    }

    /// As [`SnapshotWalk::passing_withheld`].
    pub fn passing_withheld(self) -> Self {
        Self { walk: self.walk.passing_withheld(), ..self }
    }

    /// The next event; none at the end.
    #[expect(clippy::should_implement_trait, reason = "an event borrows from the walk")]
    pub fn next(&mut self) -> Result<Option<WantedEvent<'_>>, RepositoryError> {
        let Some(filter) = self.filter else {
            let event = self.walk.next()?;
            return Ok(event.map(|event| WantedEvent { event, on_the_way: false }));
        };
        let Some(next) = self.advance(filter)? else { return Ok(None) };
        Ok(Some(self.event(next)))
    }

    /// Passes over what the directory holds that was entered just now. It has no `Leave`.
    pub fn skip(&mut self) {
        if self.filter.is_none() {
            return self.walk.skip();
        }
        self.given -= 1;
        self.due = self.given;
        self.held = None;
        self.skipped = Some(self.given);
    }

    fn advance(&mut self, filter: &PathFilter) -> Result<Option<Held>, RepositoryError> {
        loop {
            if self.given < self.due {
                self.given += 1;
                return Ok(Some(Held::Enter(self.given - 1)));
            }
            if self.held.is_some() {
                return Ok(self.held.take());
            }
            let Some(event) = self.walk.next()? else { return Ok(None) };
            let above = self.levels.last().map(|level| level.verdict);
            let is_skipped = self.skipped.is_some();
            match event {
                SnapshotEvent::Enter(directory) => {
                    let verdict = match above {
                        Some(above) => filter.judge(as_path(directory.path), true, above),
                        None => filter.judge_top(as_path(directory.path)),
                    };
                    if verdict == Verdict::Unwanted || is_skipped {
                        self.walk.skip();
                        continue;
                    }
                    let is_top = self.levels.is_empty();
                    self.levels.push(Level::of(&directory, verdict));
                    if is_top || verdict == Verdict::Wanted {
                        self.due = self.levels.len();
                    }
                }
                SnapshotEvent::Leaf { path, entry } => {
                    let verdict = match above {
                        Some(above) => filter.judge(as_path(path), false, above),
                        // It was named itself.
                        None => Verdict::Wanted,
                    };
                    if verdict == Verdict::Wanted && !is_skipped {
                        let entry = Box::new(entry.clone());
                        self.held = Some(Held::Leaf { path: path.to_vec(), entry });
                        self.due = self.levels.len();
                    }
                }
                SnapshotEvent::Leave { path } => {
                    let path = path.to_vec();
                    self.levels.pop();
                    let was_given = self.given > self.levels.len();
                    self.given = self.given.min(self.levels.len());
                    self.due = self.given;
                    if self.skipped == Some(self.levels.len()) {
                        self.skipped = None;
                    } else if was_given {
                        return Ok(Some(Held::Leave { path }));
                    }
                }
                // It may be something wanted that is lost.
                SnapshotEvent::Lost { path, error } => {
                    if !is_skipped {
                        self.held = Some(Held::Lost { path: path.to_vec(), error });
                        self.due = self.levels.len();
                    }
                }
            }
        }
    }

    /// Keeps what an event borrows, and lends it.
    fn event(&mut self, next: Held) -> WantedEvent<'_> {
        let whole = |event| WantedEvent { event, on_the_way: false };
        match next {
            Held::Enter(place) => {
                let level = &self.levels[place];
                let on_the_way = level.verdict == Verdict::OnTheWay;
                WantedEvent { event: SnapshotEvent::Enter(level.entered()), on_the_way }
            }
            Held::Leaf { path, entry } => {
                self.path = path;
                let entry = self.entry.insert(entry);
                whole(SnapshotEvent::Leaf { path: &self.path, entry })
            }
            Held::Leave { path } => {
                self.path = path;
                whole(SnapshotEvent::Leave { path: &self.path })
            }
            Held::Lost { path, error } => {
                self.path = path;
                whole(SnapshotEvent::Lost { path: &self.path, error })
            }
        }
    }
}

impl Level {
    fn of(directory: &EnteredDirectory<'_>, verdict: Verdict) -> Self {
        Self {
            path: directory.path.to_vec(),
            entry: directory.entry.cloned(),
            tree: directory.tree.clone(),
            partial: directory.partial,
            verdict,
        }
    }

    fn entered(&self) -> EnteredDirectory<'_> {
        let Self { path, entry, tree, partial, .. } = self;
        EnteredDirectory { path, entry: entry.as_ref(), tree, partial: *partial }
    }
}

/// The top of a whole snapshot has an empty path.
fn as_path(path: &[u8]) -> &Path {
    if path.is_empty() { Path::new("/") } else { Path::new(OsStr::from_bytes(path)) }
}
