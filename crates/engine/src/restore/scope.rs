//! What of the target a restore may change beside what it puts back.
//!
//! A snapshot does not hold all that stands where it was made: the directories above what was
//! asked for were only passed through, and of others something was left out. What it does not have
//! is surplus only where it would have it.

use strongroom_catalog::Snapshot;
use strongroom_repository::Found;

use super::{RestoreOptions, RestorePlace};

/// Where a restore may remove what the snapshot does not have, and set what directories are.
pub(crate) struct Scope {
    /// What the backup was asked for; none where all that comes is put below one directory.
    roots: Option<Vec<Vec<u8>>>,
    delete: bool,
}

impl Scope {
    /// That of a restore of this snapshot.
    pub(crate) fn new(snapshot: &Snapshot, options: &RestoreOptions) -> Self {
        let in_place = options.place == RestorePlace::InPlace;
        let roots = in_place.then(|| snapshot.paths.clone());
        Self { roots, delete: options.target.delete }
    }

    /// Where the restore begins, by the path that [`Scope::covers`] takes.
    pub(crate) fn start(&self, found: &Found) -> Vec<u8> {
        match found {
            Found::Entry { path, .. } if self.roots.is_some() => [b"/", path.as_slice()].concat(),
            _ => Vec::new(),
        }
    }

    /// True for a directory of which the backup was to hold all.
    pub(crate) fn covers(&self, path: &[u8]) -> bool {
        let Some(roots) = &self.roots else { return true };
        roots.iter().any(|root| {
            let root = root.strip_suffix(b"/").unwrap_or(root);
            path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        })
    }

    /// True for a directory from which what the snapshot does not have is to be removed, unless
    /// the backup left something of it out.
    pub(crate) fn clears(&self, path: &[u8]) -> bool {
        self.delete && self.covers(path)
    }
}
