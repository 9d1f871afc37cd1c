//! `find`: the entries of snapshots whose name or path fits a pattern.
//!
//! Snapshots share most of their trees, so a tree in which nothing fits is read once, however many
//! snapshots have it. One with something that fits is read in each, because each is named.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Known;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Monitor, Problem, Severity};
use strongroom_catalog::{Entry, Snapshot};
use strongroom_repository::{
    ChunkReader, EnteredDirectory, Found, Repository, SnapshotEvent, SnapshotWalk, TreeKey,
    TreeMemo,
};

use crate::error::EngineError;

/// What is looked for.
#[derive(Clone, Copy)]
pub enum FindPattern<'p> {
    /// Entries that fit, with their names.
    Name(&'p dyn Fn(&[u8], &Entry) -> bool),
    /// Entries that fit, with their paths, which begin with a slash.
    Path(&'p dyn Fn(&[u8], &Entry) -> bool),
}

impl FindPattern<'_> {
    fn fits(&self, path: &[u8], entry: &Entry) -> bool {
        match self {
            Self::Name(fits) => fits(&entry.name, entry),
            Self::Path(fits) => fits(path, entry),
        }
    }

    /// What a tree is remembered by: the same names have other paths elsewhere.
    fn key(&self, directory: &EnteredDirectory<'_>) -> TreeKey {
        let tree = TreeKey::of_tree(directory.tree);
        match self {
            Self::Name(_) => tree,
            Self::Path(_) => tree.at(directory.path),
        }
    }
}

/// An entry that fits.
#[derive(Debug, Clone, Copy)]
pub struct Sighting<'s> {
    /// The snapshot that has it.
    pub snapshot: &'s Snapshot,
    /// Where.
    pub path: &'s [u8],
    /// The entry.
    pub entry: &'s Entry,
}

/// What a search came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FindOutcome {
    /// Entries that fit, counted in each snapshot.
    pub found: u64,
    /// Directories of which entries are lost, which may have fitted.
    pub damaged: u64,
}

/// Gives each entry that fits to `visit`: snapshot by snapshot, sorted by path, a directory before
/// what it holds.
pub fn find(
    repository: &Repository,
    snapshots: &[Snapshot],
    pattern: FindPattern<'_>,
    visit: &mut dyn FnMut(&Sighting<'_>) -> Result<(), EngineError>,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<FindOutcome, EngineError> {
    let mut outcome = FindOutcome::default();
    // What is known of one domain's trees says nothing of another's.
    let mut known: HashMap<&str, (ChunkReader, TreeMemo<()>)> = HashMap::new();
    for snapshot in snapshots {
        let (reader, barren) = match known.entry(&snapshot.domain) {
            Known::Occupied(known) => known.into_mut(),
            Known::Vacant(vacant) => {
                let limits = CacheLimits::default();
                let reader = ChunkReader::of_domain(repository, &snapshot.domain, limits)?;
                // Trees in which nothing fits.
                let barren = TreeMemo::new(reader.limits().memo_kept_min);
                vacant.insert((reader, barren))
            }
        };
        monitor.detail(&format!("snapshot {}", snapshot.id.short()));
        // The directories that the walk is in, and whether something in each fits.
        let mut open: Vec<(TreeKey, bool)> = Vec::new();
        let mut walk = SnapshotWalk::new(&Found::root(snapshot), reader, cancel);
        while let Some(event) = walk.next()? {
            let (seen, entered) = match &event {
                SnapshotEvent::Enter(directory) => {
                    (directory.entry.map(|entry| (directory.path, entry)), Some(directory))
                }
                SnapshotEvent::Leaf { path, entry } => (Some((*path, *entry)), None),
                SnapshotEvent::Leave { .. } => {
                    let (key, fits) = open.pop().expect("what is left was entered");
                    match open.last_mut() {
                        _ if !fits => barren.insert(key, ()),
                        Some((_, above)) => *above = true,
                        None => {}
                    }
                    continue;
                }
                SnapshotEvent::Lost { path, error } => {
                    outcome.damaged += 1;
                    let message = format!(
                        "some entries of this directory are lost in snapshot {}: {error}",
                        snapshot.id.short()
                    );
                    let path = if path.is_empty() { b"/" } else { *path };
                    let path = Some(Path::new(OsStr::from_bytes(path)));
                    let severity = Severity::Damage;
                    monitor.problem(Problem { severity, path, message: &message });
                    continue;
                }
            };
            if let Some((path, entry)) = seen.filter(|(path, entry)| pattern.fits(path, entry)) {
                outcome.found += 1;
                visit(&Sighting { snapshot, path, entry })?;
                if let Some((_, above)) = open.last_mut() {
                    *above = true;
                }
            }
            if let Some(directory) = entered {
                let key = pattern.key(directory);
                match barren.get(key) {
                    Some(()) => walk.skip(),
                    None => open.push((key, false)),
                }
            }
        }
    }
    Ok(outcome)
}
