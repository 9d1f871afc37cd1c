//! What a restore may change in the target beside what it puts back.
//!
//! A snapshot does not hold everything in its directories. The backup only passed through those
//! above the paths it was asked for, and it left things out of others. What a directory has and
//! the snapshot lacks is surplus only below the paths that were backed up, wherever they are
//! restored to.

use strongroom_catalog::Snapshot;

use super::{RestoreOptions, RestorePlace};

/// From which directories surplus may be removed, and whose metadata may be set.
pub(crate) struct Scope {
    /// The paths that the backup was asked for.
    roots: Vec<Vec<u8>>,
    /// Those at and below them of which the backup lacked something that it expected.
    missing: Vec<Vec<u8>>,
    in_place: bool,
    delete: bool,
}

impl Scope {
    /// That of a restore of this snapshot.
    pub(crate) fn new(snapshot: &Snapshot, options: &RestoreOptions) -> Self {
        Self {
            roots: snapshot.paths.clone(),
            missing: snapshot.missing.keys().cloned().collect(),
            in_place: options.place == RestorePlace::InPlace,
            delete: options.target.delete,
        }
    }

    /// True for a directory of the snapshot whose metadata is put back. In place, a directory that
    /// the backup only passed through keeps what it has, if one exists.
    pub(crate) fn sets_metadata(&self, path: &[u8], exists: bool) -> bool {
        !self.in_place || !exists || self.covers(path)
    }

    /// True for a directory of the snapshot from whose place surplus is removed, unless the backup
    /// left something out of it.
    pub(crate) fn clears(&self, path: &[u8]) -> bool {
        self.delete && self.covers(path)
    }

    /// True for a directory of which the snapshot itself says that something was missing at or above it,
    /// such as a disk that was not mounted: what the snapshot lacks is not surplus.
    pub(crate) fn is_missing(&self, path: &[u8]) -> bool {
        self.missing.iter().any(|missing| is_at_or_below(path, missing))
    }

    /// True for a name in a directory of the snapshot at or below which something was missing.
    pub(crate) fn leads_to_missing(&self, directory: &[u8], name: &[u8]) -> bool {
        let directory = directory.strip_suffix(b"/").unwrap_or(directory);
        let path = [directory, b"/", name].concat();
        self.missing.iter().any(|missing| is_at_or_below(missing, &path))
    }

    /// True for a directory whose place must not be a symbolic link in the target: in place, that of a
    /// path that was backed up, or above one. A backup follows such links.
    pub(crate) fn leads_on(&self, path: &[u8]) -> bool {
        self.in_place && self.roots.iter().any(|root| is_at_or_below(root, path))
    }

    /// True for a directory below a path that was backed up, and not that path itself.
    pub(crate) fn is_below_root(&self, path: &[u8]) -> bool {
        !self.roots.iter().any(|root| root.strip_suffix(b"/").unwrap_or(root) == path)
    }

    /// True for a directory that the backup was to hold as a whole.
    fn covers(&self, path: &[u8]) -> bool {
        self.roots.iter().any(|root| is_at_or_below(path, root))
    }
}

/// Whether a path is another, or below it; slashes at their ends do not count.
fn is_at_or_below(path: &[u8], other: &[u8]) -> bool {
    let [path, other] = [path, other].map(|path| path.strip_suffix(b"/").unwrap_or(path));
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
