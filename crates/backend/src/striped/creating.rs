//! Creating: the first store decides, and what a store had before is never taken away again.

use std::sync::Arc;

use super::format::Index;
use super::pieces::pieces_name;
use super::{Found, Store, StripedBackend};
use crate::{BackendError, ObjectName, Operation, holds};

impl StripedBackend {
    /// Creates an object in all stores.
    pub(super) fn create_in_all(
        &self,
        name: &ObjectName,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        let stores = self.all(Operation::Write, name)?;
        // What any store had before is not taken away again.
        let before = match self.may_be_taken(&stores, name) {
            true => self.look_again(name)?,
            false => None,
        };
        if let Some(found) = &before
            && !found.is(bytes)
        {
            self.complete(&stores, name, found)?;
            return Err(BackendError::AlreadyExists { name: name.clone() });
        }
        let pieces = match self.is_small(bytes) {
            true => None,
            false => {
                let put = |store: &Store, name: &ObjectName, piece: &[u8]| {
                    match store.create(name, piece) {
                        // Another piece has the hash of this object: it is damaged.
                        Err(BackendError::AlreadyExists { .. }) => store.replace(name, piece),
                        other => other,
                    }
                };
                Some(self.put_pieces(&stores, name, bytes, put)?)
            }
        };
        let packed = pieces.as_ref().map(Index::pack);
        let kept = packed.as_deref().unwrap_or(bytes);
        if before.is_some() {
            self.indexes().remove(name);
            return self.create_again(&stores, name, kept);
        }
        for (number, store) in stores.iter().enumerate() {
            match store.create(name, kept) {
                Ok(()) => {}
                Err(BackendError::AlreadyExists { name }) => {
                    // Another one was first.
                    for before in stores[..number].iter().rev() {
                        before.remove(&name)?;
                    }
                    if let Some(found) = self.look_again(&name)? {
                        self.complete(&stores, &name, &found)?;
                    }
                    if let Some(index) = &pieces {
                        self.take_back_pieces(&stores, &name, index)?;
                    }
                    return Err(BackendError::AlreadyExists { name });
                }
                // The first store has decided.
                Err(error) if number > 0 => return Err(error.unsettled()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether a store may have something under a name. All are asked at once.
    fn may_be_taken(&self, stores: &[&Store], name: &ObjectName) -> bool {
        let is_free = |store: &Store| store.size(name).is_err_and(|error| error.is_not_found());
        std::thread::scope(|scope| {
            let begun: Vec<_> = stores
                .iter()
                .map(|store| {
                    let store = Arc::clone(store);
                    scope.spawn(move || is_free(&store))
                })
                .collect();
            begun.into_iter().any(|thread| !thread.join().unwrap_or(false))
        })
    }

    /// What is under a name, of which it is not known whether any store has something.
    fn look_again(&self, name: &ObjectName) -> Result<Option<Found>, BackendError> {
        self.indexes().remove(name);
        match self.look(name) {
            Err(error) if error.is_not_found() => Ok(None),
            other => other.map(Some),
        }
    }

    /// Brings what has a name into the stores that have nothing: its creator may have died, and this
    /// program is about to say that it exists.
    fn complete(
        &self,
        stores: &[&Store],
        name: &ObjectName,
        found: &Found,
    ) -> Result<(), BackendError> {
        let Some(kept) = found.kept() else { return Ok(()) };
        for store in stores {
            match store.create(name, &kept) {
                Err(BackendError::AlreadyExists { .. }) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Creates in all stores what some have.
    fn create_again(
        &self,
        stores: &[&Store],
        name: &ObjectName,
        kept: &[u8],
    ) -> Result<(), BackendError> {
        for store in stores {
            let created = match store.create(name, kept) {
                // It is damaged there, or was replaced in some stores only.
                Err(BackendError::AlreadyExists { .. }) => store.replace(name, kept),
                // Some places want room even for what is there.
                Err(BackendError::NoSpace { .. }) if holds(&***store, name, kept)? => Ok(()),
                other => other,
            };
            created.map_err(BackendError::unsettled)?;
        }
        Ok(())
    }

    /// Removes the pieces of an object that was not created, unless a store has its index.
    fn take_back_pieces(
        &self,
        stores: &[&Store],
        name: &ObjectName,
        index: &Index,
    ) -> Result<(), BackendError> {
        let pieces = pieces_name(name, index);
        for store in stores {
            let start = match store.read(name, 0, self.shape.index_bytes() + 1) {
                Err(error) if error.is_not_found() => continue,
                // It may be this index.
                Err(_) => return Ok(()),
                Ok(start) => start,
            };
            if self.index_in(&start).is_some_and(|index| pieces_name(name, &index) == pieces) {
                return Ok(());
            }
        }
        self.remove_pieces(stores, &pieces)
    }
}
