//! Generations of arenas that a repair takes away, or must not build upon.
//!
//! What a repair rescues gets the owner's mark, and the mark says of which domain an arena is. So a
//! generation is rescued only if it is of the domain that the arena is of.

use std::collections::HashSet;

use strongroom_arena::scan::domain_claimed;
use strongroom_arena::{ArenaName, Generations, ListedArenas};
use strongroom_backend::{DIRECTORY_IN_PLACE, Removal, remove_object};
use strongroom_base::{ArenaId, Monitor};
use strongroom_repository::{ChunkReader, Repository, RepositoryError};

use super::mend::{RepairOutcome, lose};
use super::named::find_named;

/// Generations that others planted over the arenas of a domain.
pub(super) fn find_planted(
    repository: &Repository,
    reader: &ChunkReader,
) -> Result<Vec<ArenaName>, RepositoryError> {
    let listed = ListedArenas::list(repository.backend())?;
    let mut planted = Vec::new();
    for newest in listed.newest() {
        let sorted = reader.store().sort_generations(listed.generations(newest.name.id))?;
        planted.extend(sorted.planted.iter().map(|listed| listed.name));
    }
    Ok(planted)
}

/// Takes generations away that others planted over the arenas of a domain, and returns the arenas that
/// are left as they are, because it is not proved of which domain they are.
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
        let sorted = reader.store().sort_generations(listed.generations(id))?;
        if !sorted.planted.is_empty() || !sorted.undecided.is_empty() {
            all.push((id, sorted));
        }
    }
    let (contested, proved): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(_, sorted)| sorted.is_contested && sorted.undecided.is_empty());
    let named = find_named(repository, reader, &listed, &contested)?;
    for (id, sorted) in contested.into_iter().chain(proved) {
        if named.contains(&id) {
            for planted in &sorted.planted {
                let why = "of the same arena there are generations of several domains, and something \
                           names what is in this one: left as it is";
                lose(outcome, &planted.name.object(), why, monitor);
            }
            left.insert(id);
            continue;
        }
        if !sorted.undecided.is_empty() {
            for planted in &sorted.undecided {
                let why = "of the same arena there are generations of several domains, and nothing \
                           says of which it is: left as it is";
                lose(outcome, &planted.name.object(), why, monitor);
            }
            left.insert(id);
            continue;
        }
        for planted in &sorted.planted {
            let name = planted.name.object();
            if remove_object(repository.backend(), &name)? == Removal::Directory {
                lose(outcome, &name, DIRECTORY_IN_PLACE, monitor);
                continue;
            }
            reader.store().forget(id);
            outcome.taken_away += 1;
            let message = "taken away: planted over the arena of another domain";
            monitor.detail(&format!("{name}: {message}"));
        }
    }
    Ok(left)
}

/// Whether a damaged generation may be rescued: the only one, or one that names the domain of those
/// that can be read; if none can, the first.
pub(super) fn may_rescue(
    name: ArenaName,
    object: &[u8],
    sorted: &Generations,
    reader: &ChunkReader,
) -> bool {
    let is_only = sorted.unread.len() + sorted.genuine.len() < 2;
    let known = sorted.genuine.iter().find_map(|listed| reader.store().arena_in(listed.name).ok());
    match known {
        _ if is_only => true,
        Some(known) => domain_claimed(object) == Some(known.domain),
        None => name.generation == 0,
    }
}
