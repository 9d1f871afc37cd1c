//! `verify --data` vouches: what it read of other domains' arenas, and found right, may be built
//! upon by everybody (`docs/design/0015-domains-and-generations.md`).

use std::collections::HashSet;

use strongroom_arena::{ArenaStore, CacheLimits, ListedArenas, Voucher};
use strongroom_base::{ArenaId, DomainId};
use strongroom_repository::{Endings, Repository, RepositoryError, read_vouchers, write_vouchers};

use crate::health::look::Vouchable;
use crate::verify::VerifyOutcome;

/// Vouches for the arenas that a verification found right. A delta is worth what its bases are, so
/// all bases must be in arenas that are trusted or vouched for at the same time. Of an arena in
/// several generations all must be of one domain: a voucher says whose it is. For a domain that has
/// ended there are no vouchers. Returns how many arenas it vouched for.
pub fn vouch(repository: &Repository, outcome: &VerifyOutcome) -> Result<usize, RepositoryError> {
    let store = repository.arena_store(CacheLimits::default());
    store.trust(read_vouchers(repository)?);
    let listed = ListedArenas::list(repository.backend())?;
    let mut accepted = undisputed(&store, &listed, outcome)?;
    without_ended(repository, &store, &mut accepted)?;
    let vouchers = with_trusted_bases(&store, accepted);
    if !vouchers.is_empty() {
        write_vouchers(repository, &vouchers)?;
    }
    Ok(vouchers.len())
}

/// What was found right, of arenas that one domain alone claims.
fn undisputed<'o>(
    store: &ArenaStore,
    listed: &ListedArenas,
    outcome: &'o VerifyOutcome,
) -> Result<Vec<&'o Vouchable>, RepositoryError> {
    let mut undisputed = Vec::new();
    for vouchable in &outcome.vouchable {
        let generations = listed.generations(vouchable.voucher.arena);
        let sorted = store.sort_generations(generations)?;
        if sorted.genuine.len() == generations.len() {
            undisputed.push(vouchable);
        }
    }
    Ok(undisputed)
}

/// Leaves out the arenas of domains that have ended: who has their keys is not known.
fn without_ended(
    repository: &Repository,
    store: &ArenaStore,
    accepted: &mut Vec<&Vouchable>,
) -> Result<(), RepositoryError> {
    let Some(owner) = &repository.keys.owner else { return Ok(()) };
    let endings = Endings::read(repository)?;
    let ended: HashSet<DomainId> =
        endings.all().map(|ending| owner.domain_id(&ending.domain)).collect();
    if !ended.is_empty() {
        // Of an arena that cannot be opened any more nothing is known.
        let is_of = |arena: ArenaId| store.arena(arena).map(|arena| arena.domain).ok();
        accepted.retain(|it| is_of(it.voucher.arena).is_some_and(|of| !ended.contains(&of)));
    }
    Ok(())
}

fn with_trusted_bases(store: &ArenaStore, mut accepted: Vec<&Vouchable>) -> Vec<Voucher> {
    let is_trusted = |arena: &ArenaId| store.arena(*arena).is_ok_and(|arena| arena.trusted);
    loop {
        let names: HashSet<ArenaId> = accepted.iter().map(|arena| arena.voucher.arena).collect();
        let before = accepted.len();
        accepted.retain(|arena| {
            arena.bases.iter().all(|base| names.contains(base) || is_trusted(base))
        });
        if accepted.len() == before {
            return accepted.into_iter().map(|arena| arena.voucher.clone()).collect();
        }
    }
}
