//! In which generation an arena exists.
//!
//! A location has no generation: slots are stable through all of them. An arena is read in the
//! generation that is known, or in its first. If that object is missing or damaged beyond repair,
//! the arenas are listed, and the greatest generation that can be read is used.

use std::collections::HashMap;

use strongroom_base::ArenaId;

use super::{ArenaStore, lock};
use crate::error::ArenaError;
use crate::name::{ArenaName, ListedArenas};

/// What is known of the names of arenas.
#[derive(Default)]
pub(super) struct KnownNames {
    /// Arenas that are known to exist in another generation than their first.
    generations: HashMap<ArenaId, u32>,
    /// All arenas, once they had to be listed.
    listed: Option<ListedArenas>,
}

impl ArenaStore {
    /// Records a generation in which an arena is known to exist.
    pub fn learn(&self, name: ArenaName) {
        let mut known = lock(&self.known);
        match name.generation {
            0 => known.generations.remove(&name.id),
            generation => known.generations.insert(name.id, generation),
        };
    }

    /// Calls `read` with the generation of the arena that is known, and otherwise with the greatest
    /// that can be read.
    pub(super) fn any_generation<T>(
        &self,
        id: ArenaId,
        read: impl Fn(ArenaName) -> Result<T, ArenaError>,
    ) -> Result<T, ArenaError> {
        let generation = lock(&self.known).generations.get(&id).copied().unwrap_or(0);
        let first = ArenaName { id, generation };
        let error = match read(first) {
            Err(error) if error.is_lost() => error,
            other => return other,
        };
        for name in self.other_generations(first, &error)? {
            match read(name) {
                Err(error) if error.is_lost() => {}
                other => {
                    self.learn(name);
                    return other;
                }
            }
        }
        Err(error)
    }

    /// The other generations of an arena, greatest first. The arenas are listed once, and again if
    /// an arena is missing that existed then: it was rewritten since.
    pub(super) fn other_generations(
        &self,
        tried: ArenaName,
        error: &ArenaError,
    ) -> Result<Vec<ArenaName>, ArenaError> {
        let is_missing = matches!(error, ArenaError::Missing { .. });
        let is_stale = match &lock(&self.known).listed {
            None => true,
            Some(listed) => {
                let mut names = listed.generations(tried.id).iter();
                is_missing && names.any(|arena| arena.name == tried)
            }
        };
        if is_stale {
            let listed = ListedArenas::list(&*self.backend)?;
            lock(&self.known).listed = Some(listed);
        }
        let known = lock(&self.known);
        let found = known.listed.as_ref().map_or(&[][..], |listed| listed.generations(tried.id));
        let names = found.iter().rev().map(|arena| arena.name);
        Ok(names.filter(|name| *name != tried).collect())
    }
}
