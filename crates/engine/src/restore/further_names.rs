//! Further names of files whose first name has not come back. They are not linked: what has the first
//! name may be an older file, and what has the further name may be right. They get the state of the
//! first.

use std::path::PathBuf;

use strongroom_catalog::Entry;
use strongroom_source::{DirectoryId, TargetError};

use super::Run;
use super::batch::{self, Damaged, Making, NameIn, NotBack};

impl Run<'_> {
    /// Notes an entry that cannot be made.
    pub(super) fn cannot_make(&mut self, parent: DirectoryId, entry: &Entry, error: &TargetError) {
        self.not_made(error);
        if entry.metadata.links > 1 {
            self.not_back.insert((parent, entry.name.clone()), NotBack::Failed);
        }
    }

    /// Leaves a further name of a file as it is, and says why.
    pub(super) fn leave_name(&mut self, first: &NameIn, why: &NotBack, new: &NameIn) {
        let path = self.target.path_of(new.0, &new.1);
        match why {
            NotBack::Damaged(salvage) => self.link_damaged(first, salvage.as_deref(), new),
            NotBack::Withheld(why) => {
                self.outcome.files_failed += 1;
                self.left_out(&path, why);
                self.outcome.withheld.push((path, why.clone()));
            }
            NotBack::Failed => {
                let first = self.target.path_of(first.0, &first.1);
                self.not_made(&TargetError::FirstName { path, first });
            }
        }
    }

    /// Gives the recovered parts of a file, if there are any, another of its names, marked as the first
    /// is.
    fn link_damaged(&mut self, first: &NameIn, salvage: Option<&[u8]>, new: &NameIn) {
        let linked = salvage.and_then(|salvage| self.link_salvage(first.0, salvage, new));
        let first = self.target.path_of(first.0, &first.1);
        let path = self.target.path_of(new.0, &new.1);
        self.damage(&Damaged {
            why: format!("it is another name of {}", first.display()),
            salvage: linked,
            making: if path.symlink_metadata().is_ok() { Making::Beside } else { Making::Fresh },
            path: path.clone(),
        });
        self.outcome.damaged.push(path);
    }

    fn link_salvage(
        &mut self,
        directory: DirectoryId,
        salvage: &[u8],
        new: &NameIn,
    ) -> Option<PathBuf> {
        for name in batch::damaged_names(&new.1) {
            match self.target.link_to_free((directory, salvage), (new.0, &name)) {
                Ok(false) => {}
                Ok(true) => return Some(self.target.path_of(new.0, &name)),
                Err(error) => {
                    self.problem(&error);
                    return None;
                }
            }
        }
        None
    }
}
