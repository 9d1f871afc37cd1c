//! The names that exist in a directory of the target before anything is put into it.

use std::collections::HashSet;

use strongroom_source::{DirectoryId, TargetError};

use super::Run;

/// The names that exist in a directory of the target.
pub enum Names {
    Known(HashSet<Vec<u8>>),
    /// It cannot be listed: any name may exist.
    Unknown,
}

impl Names {
    pub fn may_hold(&self, name: &[u8]) -> bool {
        match self {
            Self::Known(names) => names.contains(name),
            Self::Unknown => true,
        }
    }
}

impl Run<'_> {
    /// Fails if a name that did not exist when its directory was listed exists now: it is then
    /// another entry of the snapshot, whose name this file system takes for the same. A file is made
    /// so that it replaces nothing.
    pub(super) fn refuse_another(
        &self,
        parent: DirectoryId,
        name: &[u8],
        exists: bool,
    ) -> Result<(), TargetError> {
        if exists { Ok(()) } else { self.target.refuse_taken(parent, name) }
    }
}
