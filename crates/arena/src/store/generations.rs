//! In which generation an arena exists.
//!
//! A location has no generation: slots are stable through all of them. An arena is read in the
//! generation that is known, or in its first. If that object is missing or damaged beyond repair,
//! the arenas are listed, and the greatest generation that can be read is used.
//!
//! Normally an arena exists in one generation. A rewriting that is interrupted leaves two, of one
//! domain: who rewrites an arena keeps its domain. But every client that may create objects can
//! create a generation of another domain's arena, with any content: which of several are
//! genuine is asked before anything is removed, and if a chunk is not where it should be.

use std::collections::HashMap;

use strongroom_base::ArenaId;

use super::opening::Wanted;
use super::{ArenaStore, lock};
use crate::error::ArenaError;
use crate::name::{ArenaName, ListedArena, ListedArenas};

/// How often the arenas are listed for one of them that others rewrite at the same time.
const LISTINGS_MAX: u32 = 5;

/// What is known of the names of arenas.
#[derive(Default)]
pub(super) struct KnownNames {
    /// Arenas that are known to exist in another generation than their first.
    generations: HashMap<ArenaId, u32>,
    /// All arenas, once they had to be listed.
    listed: Option<ListedArenas>,
    /// Whether it was asked which generations are genuine.
    are_genuine: bool,
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
        self.other_generation(first, error, read)
    }

    /// Calls `read` with the other generations of an arena, greatest first. `error` is why the one
    /// that was tried cannot be read; it is returned if none can.
    ///
    /// The arenas are listed once, and again when one is missing that was known to exist: it was
    /// rewritten since.
    pub(super) fn other_generation<T>(
        &self,
        tried: ArenaName,
        error: ArenaError,
        read: impl Fn(ArenaName) -> Result<T, ArenaError>,
    ) -> Result<T, ArenaError> {
        let was_known = tried.generation > 0 || self.is_listed(tried);
        let mut is_stale = was_known && is_missing(&error);
        for _ in 0..LISTINGS_MAX {
            let names = self.listed_generations(tried.id, is_stale)?;
            is_stale = false;
            for name in names.into_iter().rev().filter(|name| *name != tried) {
                match read(name) {
                    Err(error) if error.is_lost() => is_stale |= is_missing(&error),
                    other => {
                        self.learn(name);
                        return other;
                    }
                }
            }
            if !is_stale {
                break;
            }
        }
        if is_missing(&error) {
            // So that the arenas are not listed again for each chunk of one that is gone.
            self.learn(ArenaName { generation: 0, ..tried });
            self.drop_opened(tried.id);
        }
        Err(error)
    }

    fn is_listed(&self, name: ArenaName) -> bool {
        let known = lock(&self.known);
        let listed = known.listed.as_ref().map_or(&[][..], |listed| listed.generations(name.id));
        listed.iter().any(|arena| arena.name == name)
    }

    /// The generations of an arena in the listing, which is made first if there is none or it is
    /// out of date.
    fn listed_generations(
        &self,
        id: ArenaId,
        is_stale: bool,
    ) -> Result<Vec<ArenaName>, ArenaError> {
        let is_unlisted = lock(&self.known).listed.is_none();
        if is_stale || is_unlisted {
            let listed = ListedArenas::list(&*self.backend)?;
            lock(&self.known).listed = Some(listed);
        }
        let known = lock(&self.known);
        let found = known.listed.as_ref().map_or(&[][..], |listed| listed.generations(id));
        Ok(found.iter().map(|arena| arena.name).collect())
    }

    /// Those of the listed generations of one arena that its writer or its owner can have made;
    /// `None` if that cannot be said. If one was made with the own key, or the owner vouches for it,
    /// those of its domain are genuine.
    pub fn genuine(
        &self,
        generations: &[ListedArena],
    ) -> Result<Option<Vec<ListedArena>>, ArenaError> {
        let all = || Ok(Some(generations.to_vec()));
        if generations.len() < 2 {
            return all();
        }
        let (mut claims, mut trusted) = (Vec::new(), Vec::new());
        for generation in generations {
            match self.open_or_heal(generation.name, Wanted::Any) {
                Ok(arena) => {
                    claims.push((*generation, arena.domain));
                    trusted.extend(arena.trusted.then_some(arena.domain));
                }
                Err(error) if error.is_unreadable() => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(domain) = trusted.first() {
            let are_one = trusted.iter().all(|other| other == domain);
            claims.retain(|(_, other)| other == domain);
            return Ok(are_one.then(|| claims.into_iter().map(|(listed, _)| listed).collect()));
        }
        // One that cannot be read may be the genuine one.
        let are_all_read = claims.len() == generations.len();
        let are_one = claims.windows(2).all(|pair| pair[0].1 == pair[1].1);
        match claims.is_empty() || (are_all_read && are_one) {
            true => all(),
            false => Ok(None),
        }
    }

    /// Lists the arenas, and turns to the genuine generation of each that has several. Only the first
    /// call does so; it returns whether there was any.
    pub fn turn_to_genuine(&self) -> Result<bool, ArenaError> {
        if std::mem::replace(&mut lock(&self.known).are_genuine, true) {
            return Ok(false);
        }
        let listed = ListedArenas::list(&*self.backend)?;
        let mut turned = false;
        for newest in listed.newest() {
            let generations = listed.generations(newest.name.id);
            if generations.len() < 2 {
                continue;
            }
            if let Some(genuine) =
                self.genuine(generations)?.and_then(|found| found.last().copied())
            {
                self.forget(newest.name.id);
                self.learn(genuine.name);
                turned = true;
            }
        }
        Ok(turned)
    }
}

fn is_missing(error: &ArenaError) -> bool {
    matches!(error, ArenaError::Missing { .. })
}
