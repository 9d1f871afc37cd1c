//! Damaged arenas, computed again from their parity, in memory; and what parity cannot give, from
//! replicas, if the backend has any.
//!
//! A reader so gets what was stored as long as parity can give it back; [`ArenaStore::heals`]
//! counts how often that was needed, for the verb to advise a repair.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use strongroom_base::Stopwatch;
use strongroom_base::regimes::{Regime, reached};

use super::ArenaStore;
use crate::envelope::format::Header;
use crate::envelope::{self, HEADROOM, read_object};
use crate::error::{ArenaError, backend_error, damaged, envelope_error};
use crate::name::ArenaName;
use crate::writer::ArenaContent;

/// For at least this long an arena that could not be healed is not tried again.
const FAILURE_LIFETIME_MIN: Duration = Duration::from_secs(10);
/// A failing disk can take minutes to refuse an arena: most time goes into reading others.
const FAILURE_LIFETIME_FACTOR: u32 = 10;

/// What became of an arena that had to be computed again.
#[derive(Clone)]
pub(super) enum Healed {
    /// Its object, from the header to the end of its body.
    Whole(Arc<Vec<u8>>),
    /// It is damaged beyond repair, which is not found out again before its time.
    Lost { what: Arc<str>, since: Stopwatch, lifetime: Duration },
}

impl ArenaStore {
    /// How often something had to be computed again from parity.
    pub fn heals(&self) -> u64 {
        self.heals.load(Ordering::Relaxed)
    }

    /// Whether all of an arena exists, or can be computed again. Reads the whole object.
    pub fn can_be_healed(&self, name: ArenaName) -> Result<bool, ArenaError> {
        match self.heal(name) {
            Ok(_) => Ok(true),
            Err(error) if error.is_lost() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The object up to the end of its body, computed again from parity.
    pub(super) fn heal(&self, name: ArenaName) -> Result<Arc<Vec<u8>>, ArenaError> {
        match self.healed.get(&name) {
            Some(Healed::Whole(object)) => return Ok(object),
            Some(Healed::Lost { what, since, lifetime }) if since.elapsed() < lifetime => {
                return Err(damaged(name.id, what));
            }
            _ => {}
        }
        let since = Stopwatch::start();
        match self.compute_again(name) {
            Ok(object) => {
                reached(Regime::ArenaHealed);
                let object = Arc::new(object);
                self.healed.put(name, Healed::Whole(object.clone()), object.capacity());
                Ok(object)
            }
            Err(ArenaError::Damaged { arena, what }) => {
                let lifetime = FAILURE_LIFETIME_MIN.max(since.elapsed() * FAILURE_LIFETIME_FACTOR);
                let reason: Arc<str> = Arc::from(what.as_str());
                let lost = Healed::Lost { what: reason.clone(), since, lifetime };
                self.healed.put(name, lost, reason.len());
                Err(ArenaError::Damaged { arena, what })
            }
            Err(error) => Err(error),
        }
    }

    fn compute_again(&self, name: ArenaName) -> Result<Vec<u8>, ArenaError> {
        let id = name.id;
        let read = read_object(&*self.backend, &name.object(), self.object_bytes_max)
            .map_err(|error| backend_error(id, error));
        let object = match read {
            Err(error) if error.is_lost() => {
                return self.fetch_from_replicas(name, &[]).ok_or(error).map(without_proofs);
            }
            other => other?,
        };
        let repaired = match envelope::repair(&object.bytes) {
            Ok(repaired) => repaired,
            Err(error) => {
                let fetched = self.fetch_from_replicas(name, &object.bytes);
                return fetched.ok_or(envelope_error(id, error)).map(without_proofs);
            }
        };
        // Another arena, whole, in the place of this one.
        if !envelope::peek(&repaired).is_ok_and(|header| is_of(name, &header))
            && let Some(fetched) = self.fetch_from_replicas(name, &[])
        {
            return Ok(without_proofs(fetched));
        }
        // If an object is whole and still does not open, it was not healed but sealed in this form.
        if object.refused_bytes > 0 || repaired != object.bytes {
            self.heals.fetch_add(1, Ordering::Relaxed);
        }
        drop(object);
        Ok(without_proofs(repaired))
    }

    /// The object as replicas give it, with what is left of it here.
    fn fetch_from_replicas(&self, name: ArenaName, damaged: &[u8]) -> Option<Vec<u8>> {
        let is_wanted = |header: &Header| is_of(name, header);
        for replica in self.backend.replicas() {
            let (object, most) = (name.object(), self.object_bytes_max);
            let fetched = envelope::fetch_from(&**replica, &object, damaged, &is_wanted, most);
            // Another replica may answer.
            if let Ok(Some(fetched)) = fetched {
                self.heals.fetch_add(1, Ordering::Relaxed);
                return Some(fetched.object);
            }
        }
        None
    }
}

/// Whether a header is that of an arena.
fn is_of(name: ArenaName, header: &Header) -> bool {
    header.id == name.id.0
        && header.generation == name.generation
        && header.kind == ArenaContent::of(name.id).object_kind()
}

/// An object from its header to the end of its body: tables and parity have done their work.
fn without_proofs(mut object: Vec<u8>) -> Vec<u8> {
    if let Ok(header) = envelope::peek(&object) {
        let body_bytes = usize::try_from(header.body_bytes).unwrap_or(usize::MAX);
        object.truncate(HEADROOM.saturating_add(body_bytes));
        object.shrink_to_fit();
    }
    object
}
