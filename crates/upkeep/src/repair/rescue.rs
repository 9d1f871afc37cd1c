//! What is left of an arena that parity cannot repair, as its next generation.
//!
//! The next generation is created, read and only then put in the place of the damaged one. What must not be
//! saved under the mark of the owner is said in `generations.rs`.

use std::borrow::Cow;
use std::collections::HashSet;

use strongroom_arena::envelope::RawObject;
use strongroom_arena::scan::rescue;
use strongroom_arena::{
    ArenaName, ArenaStore, FinishedArena, Generations, ListedArenas, Rewriting, StoredChunk,
};
use strongroom_backend::{Backend, BackendError, remove_object};
use strongroom_base::{Monitor, Problem, Severity};
use strongroom_repository::objects::read_whole;
use strongroom_repository::{ChunkReader, Repository, RepositoryError};

use super::generations::may_rescue;
use super::mend::{RepairOutcome, lose};
use super::plan::RepairStep;
use crate::health::bad::BadPlaces;

/// How many names are tried for the next generation of an arena.
const NAMES_TRIED: u32 = 16;

/// Creates an arena's next generation, before the one that it is made of is removed. If it exists already,
/// another repair was faster, or was cut short before it removed the old one. If it has other bytes, false is
/// returned.
fn create_next_generation(
    backend: &dyn Backend,
    next: &FinishedArena,
) -> Result<bool, BackendError> {
    let name = next.name.object();
    match backend.create(&name, next.object()) {
        Err(BackendError::AlreadyExists { .. }) => {}
        other => other?,
    }
    // Nothing is removed before the next generation was read.
    Ok(backend.read(&name, 0, next.object().len() + 1)? == next.object())
}

/// Whether other generations of an arena that can be read have all that one that would be created has.
fn has_all(
    store: &ArenaStore,
    sorted: &Generations,
    arena: ArenaName,
    next: &FinishedArena,
) -> bool {
    let others = sorted.genuine.iter().filter(|listed| listed.name != arena);
    let others: Vec<_> = others.filter_map(|listed| store.arena_in(listed.name).ok()).collect();
    let held: HashSet<u32> =
        others.iter().flat_map(|other| other.slots().map(|(slot, _)| slot)).collect();
    let opened = store.open_arena_in(next.name, next.object());
    opened.is_ok_and(|next| next.slots().all(|(slot, _)| held.contains(&slot)))
        && !others.is_empty()
}

/// A name for the next generation of an arena, above all that can be read: what cannot is in no reader's
/// way, but may have the first name that is tried.
fn free_name(
    repository: &Repository,
    arena: ArenaName,
    sorted: &Generations,
    object: &[u8],
) -> Result<Option<ArenaName>, BackendError> {
    let open = sorted.genuine.iter().chain(sorted.to_take_away()).chain(&sorted.undecided);
    let mut name = open.map(|listed| listed.name).fold(arena, ArenaName::max);
    for _ in 0..NAMES_TRIED {
        let Some(next) = name.rewritten(object) else { break };
        match repository.backend().size(&next.object()) {
            Err(error) if error.is_not_found() => return Ok(Some(next)),
            Err(error) if !error.is_damage() => return Err(error),
            _ => name = next,
        }
    }
    Ok(None)
}

/// An arena of which a part is to be saved.
pub(super) struct Rescue {
    pub(super) arena: ArenaName,
    pub(super) why: String,
}

/// Arenas whose deltas cannot be read in the first turn wait for the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    First,
    Last,
}

impl Rescue {
    pub(super) fn of(step: &RepairStep) -> Option<Self> {
        let RepairStep::Rescue { arena, why } = step else { return None };
        Some(Self { arena: *arena, why: why.clone() })
    }

    /// Creates the next generation of the arena, with what could be saved, and removes the broken
    /// one. Returns false if it must wait for the last turn.
    pub(super) fn run(
        &self,
        repository: &Repository,
        reader: &ChunkReader,
        outcome: &mut RepairOutcome,
        bad: &mut BadPlaces,
        monitor: &dyn Monitor,
        turn: Turn,
    ) -> Result<bool, RepositoryError> {
        let (arena, why) = (self.arena, self.why.as_str());
        let name = arena.object();
        let read = || read_whole(repository.backend(), &name, repository.config.arena_bytes);
        let RawObject { bytes: object, refused_bytes, unasked_bytes } = match read() {
            Err(error) if error.is_not_found() => return Ok(true),
            Err(error) if error.is_damage() => {
                bad.add_broken(arena.id, reader);
                lose(outcome, &name, why, monitor);
                return Ok(true);
            }
            other => other?,
        };
        // What is not saved is removed, unless it was not asked for: a single wrong read must not decide that.
        if !read().is_ok_and(|again| again.bytes == object) {
            bad.add_broken(arena.id, reader);
            lose(outcome, &name, "its bytes change from read to read: left as it is", monitor);
            return Ok(true);
        }
        let listed = ListedArenas::list(repository.backend())?;
        let generations = listed.generations(arena.id);
        let sorted = match reader.store().sort_generations(generations) {
            Err(error) if error.withheld().is_some() => {
                bad.add_broken(arena.id, reader);
                let message =
                    format!("left as it is: another generation of it is withheld: {error}");
                let path = Some(name.as_str().as_ref());
                monitor.problem(Problem { severity: Severity::Warning, path, message: &message });
                outcome.postponed.push(name);
                return Ok(true);
            }
            other => other?,
        };
        if !may_rescue(repository, (arena, &object), &sorted, reader) {
            bad.add_broken(arena.id, reader);
            lose(outcome, &name, why, monitor);
            return Ok(true);
        }
        let is_read = sorted
            .genuine
            .iter()
            .any(|listed| listed.name != arena && reader.store().arena_in(listed.name).is_ok());
        let Some(next) = free_name(repository, arena, &sorted, &object)? else {
            bad.add_broken(arena.id, reader);
            lose(outcome, &name, "no name is left for its next generation", monitor);
            return Ok(true);
        };
        let rescuing = Rewriting {
            generation: next.generation,
            keys: repository.write_keys(),
            redundancy: repository.redundancy(),
            padding: repository.config.padding,
        };
        let (mut unread, mut withheld) = (0, None);
        let mut expand = |stored: StoredChunk<'_>| match reader.expand(stored) {
            Ok(bytes) => Some(Cow::into_owned(bytes)),
            Err(error) => {
                unread += 1;
                withheld = withheld.or(error.withheld());
                None
            }
        };
        let rescued = rescue(reader.store(), arena, &object, &rescuing, &mut expand);
        // What is left out is removed: a delta whose base cannot be read today may be read tomorrow.
        if let Some(withheld) = withheld {
            bad.add_broken(arena.id, reader);
            let message = format!("left as it is: bases of its chunks are {withheld}");
            let path = Some(name.as_str().as_ref());
            monitor.problem(Problem { severity: Severity::Warning, path, message: &message });
            outcome.postponed.push(name);
            return Ok(true);
        }
        if turn == Turn::First && unread > 0 {
            return Ok(false);
        }
        // Another reader may still read what the medium refuses today.
        let rescued = rescued.ok().filter(|saved| saved.blocks_saved > 0 || refused_bytes == 0);
        let opens =
            |next: &FinishedArena| reader.store().open_arena_in(next.name, next.object()).is_ok();
        let Some(rescued) = rescued.filter(|rescued| opens(&rescued.arena)) else {
            bad.add_broken(arena.id, reader);
            lose(outcome, &name, why, monitor);
            return Ok(true);
        };
        let stays = unasked_bytes > 0;
        if stays && has_all(reader.store(), &sorted, arena, &rescued.arena) {
            let what = format!(
                "{why}; what can be read of it is in another generation already, and not every part was \
                 asked for: move it away if its medium gives no more"
            );
            lose(outcome, &name, &what, monitor);
            return Ok(true);
        }
        if rescued.blocks_saved == 0 && stays {
            bad.add_broken(arena.id, reader);
            lose(outcome, &name, why, monitor);
            return Ok(true);
        }
        if rescued.blocks_saved == 0 && is_read {
            // The others say what the arena holds. An empty generation would be in the way of one that
            // another copy has.
            remove_object(repository.backend(), &name)?;
            reader.store().forget(arena.id);
            lose(outcome, &name, why, monitor);
            return Ok(true);
        }
        if !create_next_generation(repository.backend(), &rescued.arena)? {
            bad.add_broken(arena.id, reader);
            lose(outcome, &name, "its next generation exists already, with other bytes", monitor);
            return Ok(true);
        }
        if !stays {
            remove_object(repository.backend(), &name)?;
        }
        reader.store().forget(arena.id);
        reader.store().learn(rescued.arena.name);
        match rescued.blocks_saved {
            0 => lose(outcome, &name, why, monitor),
            blocks if stays => {
                outcome.rescued += 1;
                let kept = format!(
                    "{why}; {blocks} blocks saved, and it stays beside them: not every part that its medium \
                     refuses was asked for"
                );
                lose(outcome, &name, &kept, monitor);
            }
            blocks => {
                outcome.rescued += 1;
                monitor.detail(&format!("{name}: {blocks} blocks saved ({why})"));
            }
        }
        Ok(true)
    }
}
