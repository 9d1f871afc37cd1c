//! Further names of files: they are linked, or restored as files of their own if the target has no links.
//!
//! Those of files whose first name has not come back are not linked: what has the first
//! name may be an older file, and what has the further name may be right. They get the state of the
//! first.

use std::path::PathBuf;

use strongroom_catalog::Entry;
use strongroom_source::{DirectoryId, TargetError};

use super::Run;
use super::batch::{self, Damaged, FurtherName, Making, NameIn, NotBack};
use crate::error::EngineError;

impl Run<'_> {
    /// Gives the files that were written their further names.
    pub(super) fn link(&mut self, names: Vec<FurtherName>) -> Result<(), EngineError> {
        let mut apart = Vec::new();
        let count = names.len() as u64;
        for name in names {
            let (first, new) = (&name.first, (name.directory, name.entry.name.clone()));
            if let Some(why) = self.not_back.get(first).cloned() {
                self.leave_name(first, &why, &new);
                continue;
            }
            let free = self.refuse_another(new.0, &new.1, name.exists);
            let linked =
                free.and_then(|()| self.target.hard_link((first.0, &first.1), (new.0, &new.1)));
            match linked {
                Ok(()) => {}
                Err(error) if error.is_lack_of_links() => apart.push((name, error)),
                Err(error) => self.not_made(&error),
            }
        }
        // The others are counted when they are made.
        self.progress.files += count - apart.len() as u64;
        self.monitor.progress(&self.progress);
        if apart.is_empty() {
            return Ok(());
        }
        // A long file of which a part is written waits for its next batch.
        let begun = self.batch.begun.take();
        let made = self.make_apart(apart);
        let left = std::mem::replace(&mut self.batch.begun, begun);
        if let Some(left) = left {
            left.discard(self.target);
        }
        made
    }

    /// Restores further names that cannot be links as files of their own.
    fn make_apart(&mut self, names: Vec<(FurtherName, TargetError)>) -> Result<(), EngineError> {
        for (name, error) in names {
            self.unlinked += 1;
            self.monitor.detail(&format!("{error}: it is restored as a file of its own"));
            self.make(name.directory, name.entry, name.exists)?;
            if self.batch.is_full(self.reader.limits()) {
                self.flush()?;
            }
        }
        self.flush()
    }

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
