//! Generations of arenas that a repair takes away, or must not build upon.
//!
//! What a repair rescues counts before all that machines make. So a generation is rescued only if it is one
//! that counts, or if there is none: the head of an arena says of which domain it is, and anybody can write
//! a head; and anybody can seal blocks for the owner.

use std::collections::HashSet;

use strongroom_arena::scan::domain_claimed;
use strongroom_arena::{ArenaName, Generations, ListedArenas};
use strongroom_backend::{DIRECTORY_IN_PLACE, Removal, remove_object};
use strongroom_base::{ArenaId, Monitor};
use strongroom_repository::objects::read_whole;
use strongroom_repository::{ChunkReader, Repository, RepositoryError};

use super::mend::{RepairOutcome, lose};
use super::named::find_named;
use super::rubbish::open_sessions;

/// Generations of arenas that their makers had no right to make.
pub(super) fn find_planted(
    repository: &Repository,
    reader: &ChunkReader,
) -> Result<Vec<ArenaName>, RepositoryError> {
    let listed = ListedArenas::list(repository.backend())?;
    let mut planted = Vec::new();
    for newest in listed.newest() {
        let sorted = match reader.store().sort_generations(listed.generations(newest.name.id)) {
            Err(error) if error.withheld().is_some() => continue,
            other => other?,
        };
        planted.extend(sorted.to_take_away().map(|listed| listed.name));
    }
    Ok(planted)
}

/// Takes generations away that their makers had no right to make, and returns the arenas that are left as
/// they are: it is not proved of which domain they are, or something names what is in such a generation.
pub(super) fn take_planted_away(
    repository: &Repository,
    reader: &ChunkReader,
    outcome: &mut RepairOutcome,
    monitor: &dyn Monitor,
) -> Result<HashSet<ArenaId>, RepositoryError> {
    let listed = ListedArenas::list(repository.backend())?;
    let mut left = HashSet::new();
    let mut all = Vec::new();
    for newest in listed.newest() {
        let id = newest.name.id;
        let sorted = match reader.store().sort_generations(listed.generations(id)) {
            // Nothing is known of them before all can be read.
            Err(error) if error.withheld().is_some() => continue,
            other => other?,
        };
        if sorted.to_take_away().next().is_some() || !sorted.undecided.is_empty() {
            all.push((id, sorted));
        }
    }
    // Before the snapshots are listed: a session that is gone by now has committed, or never will.
    let has_sessions = !open_sessions(repository)?.is_empty();
    let named = find_named(repository, reader, &listed, &all)?;
    for (id, sorted) in all {
        let Generations { planted, unmarked, undecided, .. } = sorted;
        let mut going = Vec::new();
        if named.contains(&id) || has_sessions {
            // A backup that began when it was the only one relies on what is in it.
            let message = "left as it is: something needs what is in this generation alone, or may";
            for listed in &unmarked {
                monitor.detail(&format!("{}: {message}", listed.name.object()));
            }
        } else {
            going.extend(unmarked);
        }
        let (disputed, why) = if named.contains(&id) && !planted.is_empty() {
            let why = "the generations of its arena have different makers, and something names what is \
                       in this one alone: left as it is";
            (planted, why)
        } else {
            going.extend(planted);
            let why = "of the same arena there are generations of several domains, and nothing says of \
                       which it is: left as it is";
            (undecided, why)
        };
        if !disputed.is_empty() {
            for listed in disputed {
                lose(outcome, &listed.name.object(), why, monitor);
            }
            left.insert(id);
            continue;
        }
        for listed in going {
            let name = listed.name.object();
            if remove_object(repository.backend(), &name)? == Removal::Directory {
                lose(outcome, &name, DIRECTORY_IN_PLACE, monitor);
                continue;
            }
            reader.store().forget(id);
            outcome.taken_away += 1;
            let message = "taken away: it does not count, and nothing needs what is in it alone";
            monitor.detail(&format!("{name}: {message}"));
        }
    }
    Ok(left)
}

/// Whether a damaged generation may be rescued. If its summary opens, that says of which domain it is, and
/// it must be one that counts. Otherwise no generation must be readable, and it must be the first, or the
/// only one that names a domain. Rubbish is no other generation.
pub(super) fn may_rescue(
    repository: &Repository,
    (name, object): (ArenaName, &[u8]),
    sorted: &Generations,
    reader: &ChunkReader,
) -> bool {
    let store = reader.store();
    if store.open_arena_in(name, object).is_ok() {
        return sorted.genuine.iter().any(|listed| listed.name == name);
    }
    let mut others = sorted.genuine.iter().map(|listed| listed.name).filter(|it| *it != name);
    if others.any(|other| store.arena_in(other).is_ok()) {
        return false;
    }
    let claims = |other: ArenaName| {
        let arena_bytes = repository.config.arena_bytes;
        // What cannot be read at all may be one.
        read_whole(repository.backend(), &other.object(), arena_bytes)
            .map_or(true, |other| domain_claimed(&other.bytes).is_some())
    };
    let mut others = sorted.unread.iter().map(|(listed, _)| listed.name).filter(|it| *it != name);
    name.generation == 0 || !others.any(claims)
}
