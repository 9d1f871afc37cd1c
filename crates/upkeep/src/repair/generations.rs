//! Generations of arenas that a repair takes away, or must not build upon.
//!
//! What a repair rescues gets the owner's mark, and the mark says of which domain an arena is. So a
//! generation is rescued only if it is of the domain that the arena is of.

use std::collections::HashSet;

use strongroom_arena::scan::domain_claimed;
use strongroom_arena::{ArenaName, Generations, ListedArenas};
use strongroom_backend::{DIRECTORY_IN_PLACE, Removal, remove_object};
use strongroom_base::{ArenaId, Monitor};
use strongroom_repository::objects::read_whole;
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
        let sorted = match reader.store().sort_generations(listed.generations(newest.name.id)) {
            Err(error) if error.withheld().is_some() => continue,
            other => other?,
        };
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
        let sorted = match reader.store().sort_generations(listed.generations(id)) {
            // Nothing is known of them before all can be read.
            Err(error) if error.withheld().is_some() => continue,
            other => other?,
        };
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
/// that can be read; if none can, the first. Rubbish of which nothing says a domain is no other generation.
pub(super) fn may_rescue(
    repository: &Repository,
    (name, object): (ArenaName, &[u8]),
    sorted: &Generations,
    reader: &ChunkReader,
) -> bool {
    let known = sorted.genuine.iter().find_map(|listed| reader.store().arena_in(listed.name).ok());
    if let Some(known) = known {
        return domain_claimed(object) == Some(known.domain);
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
