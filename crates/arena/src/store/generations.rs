//! In which generation an arena exists.
//!
//! A location has no generation: slots are stable through all of them. An arena is read in the
//! generation that is known, or in its first. If that object is missing or damaged beyond repair,
//! the arenas are listed, and the greatest generation that can be read is used.
//!
//! Normally an arena exists in one generation. A rewriting that is interrupted leaves two of one
//! domain, and so do copies of a repository that were both used and then brought together. A slot
//! has the same chunk in all of them, so the arena is their union.
//!
//! But every client that may create objects can create a generation of another domain's arena, with
//! any content; and of its own arenas, after a thief has taken it over. Which domain an arena is of, and
//! which generations count: `docs/format/repository.md`, *Generations*.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use strongroom_base::{ArenaId, DomainId, Stopwatch};

use super::{ArenaStore, lock};
use crate::error::ArenaError;
use crate::name::{ArenaName, ListedArena, ListedArenas};
use crate::opened::Arena;

/// How often the arenas are listed for one of them that others rewrite at the same time.
const LISTINGS_MAX: u32 = 5;
/// An arena that is in no listing may have been stored after the last one, and rewritten since. The arenas are
/// listed again for such a one if the last listing is older than this …
const LISTING_LIFETIME: Duration = Duration::from_secs(1);
/// … and than twice as much each time that it was in vain, up to this.
const LISTING_LIFETIME_MAX: Duration = Duration::from_secs(600);

/// What is known of the names of arenas.
#[derive(Default)]
pub(super) struct KnownNames {
    /// Arenas that are known to exist in another generation than their first.
    generations: HashMap<ArenaId, u32>,
    /// All arenas, once they had to be listed.
    listed: Option<ListedArenas>,
    /// When they were.
    since: Option<Stopwatch>,
    /// How old a listing must be to be made again for an arena that is in none.
    patience: HashMap<ArenaId, Duration>,
    /// Their further generations that only replicas have.
    elsewhere: HashMap<ArenaId, Vec<ArenaName>>,
    /// For arenas of which the listing shows several generations: those that count.
    several: HashMap<ArenaId, Vec<ArenaName>>,
    /// Whether it was asked which generations are genuine.
    are_genuine: bool,
}

impl KnownNames {
    fn is_elsewhere(&self, name: ArenaName) -> bool {
        self.elsewhere.get(&name.id).is_some_and(|names| names.contains(&name))
    }
}

/// The generations of one arena that a listing shows.
#[derive(Debug, Clone, Default)]
pub struct Generations {
    /// Those of the domain that the arena is of, ascending. Their slots together are the arena's.
    pub genuine: Vec<ListedArena>,
    /// Further ones of its domain without the owner's mark, beside others that count, which agree with these.
    /// A repair makes one of an arena whose summary is lost, and programs of before there were marks did; so
    /// can a thief who has the machine's key. What they alone have is read, and compared with its fingerprint if
    /// it has one; and nothing of the arena is removed. But no writer relies on them, and nothing goes in
    /// their favour.
    pub unmarked: Vec<ListedArena>,
    /// Generations of other domains, and further ones of its own domain that contradict what the owner has
    /// made: their makers had no right to make them.
    pub planted: Vec<ListedArena>,
    /// Those of several domains, if it is not known of which the arena is.
    pub undecided: Vec<ListedArena>,
    /// Those that cannot be read, and why.
    pub unread: Vec<(ListedArena, String)>,
    /// Several domains claim the arena, and neither a mark of the owner nor a voucher proves of which
    /// it is: nothing of it may be removed.
    pub is_contested: bool,
}

impl Generations {
    /// Those in which something needed may be, ascending: while it is not proved of which domain the
    /// arena is, all that can be read.
    pub fn to_keep(&self) -> Vec<ListedArena> {
        let mut kept = self.genuine.clone();
        if self.is_contested {
            kept.extend(self.planted.iter().chain(&self.undecided));
            kept.sort_unstable();
        }
        kept
    }

    /// Whether nothing of the arena may be removed.
    pub fn is_frozen(&self) -> bool {
        self.is_contested || !self.unmarked.is_empty()
    }

    /// Generations that a repair takes away, unless something names what they alone have.
    pub fn to_take_away(&self) -> impl Iterator<Item = &ListedArena> {
        self.planted.iter().chain(&self.unmarked)
    }
}

/// What a generation says of itself.
struct Claim {
    listed: ListedArena,
    arena: Arc<Arena>,
}

/// Of which domain an arena is.
enum Rightful {
    /// That cannot be forged.
    Proved(DomainId),
    /// Its first generation is of this domain.
    First(DomainId),
    /// It cannot be said.
    Unknown,
}

/// Of which domain an arena is, in this order: the owner's, if a generation is; that of a generation
/// with the owner's mark; that of one which is trusted; the only one; that of the first generation,
/// because names of arenas are random and not known before.
fn rightful(claims: &[Claim], is_one_unread: bool) -> Rightful {
    let only = |which: &dyn Fn(&Claim) -> bool| {
        let mut found = claims.iter().filter(|claim| which(claim)).map(|claim| claim.arena.domain);
        let first = found.next()?;
        Some(found.all(|other| other == first).then_some(first))
    };
    let proofs: [&dyn Fn(&Claim) -> bool; 3] =
        [&|claim| claim.arena.domain == DomainId::ZERO, &|claim| claim.arena.is_marked, &|claim| {
            claim.arena.trusted
        }];
    for proof in proofs {
        match only(proof) {
            Some(Some(domain)) => return Rightful::Proved(domain),
            Some(None) => return Rightful::Unknown,
            None => {}
        }
    }
    let first = claims.iter().find(|claim| claim.listed.name.generation == 0);
    match (only(&|_| true), first) {
        (Some(Some(domain)), _) if !is_one_unread => Rightful::Proved(domain),
        (_, Some(first)) => Rightful::First(first.arena.domain),
        _ => Rightful::Unknown,
    }
}

/// Divides the generations of the rightful domain, which ascend, into those that count, those without a
/// mark that contradict none of them, and the others. Those that the owner made count. The first counts,
/// unless it contradicts one of them: after it was rewritten its name is free. A machine makes no further
/// ones, so they count only if there are no others.
fn divide_own(claims: Vec<Claim>) -> (Vec<Claim>, Vec<Claim>, Vec<Claim>) {
    let (marked, unmarked): (Vec<Claim>, Vec<Claim>) =
        claims.into_iter().partition(|claim| claim.arena.is_marked);
    let agrees = |claim: &Claim| marked.iter().all(|it| it.arena.agrees_with(&claim.arena));
    let (first, further): (Vec<Claim>, Vec<Claim>) =
        unmarked.into_iter().partition(|claim| claim.listed.name.generation == 0 && agrees(claim));
    let counting: Vec<Claim> = first.into_iter().chain(marked).collect();
    if counting.is_empty() {
        return (further, Vec::new(), Vec::new());
    }
    let agrees = |claim: &Claim| counting.iter().all(|it| it.arena.agrees_with(&claim.arena));
    let (unmarked, planted) = further.into_iter().partition(agrees);
    (counting, unmarked, planted)
}

impl ArenaStore {
    /// Records a generation in which an arena is known to exist. From now on it is this one that is read, also
    /// if another was opened before.
    pub fn learn(&self, name: ArenaName) {
        let mut known = lock(&self.known);
        match name.generation {
            0 => known.generations.remove(&name.id),
            generation => known.generations.insert(name.id, generation),
        };
        drop(known);
        let is_other = |arena: Option<Arc<Arena>>| arena.is_some_and(|arena| arena.name() != name);
        if is_other(self.arenas.get(&name.id)) || is_other(self.outlines.get(&name.id)) {
            self.drop_opened(name.id);
        }
    }

    /// Calls `read` with the generation of the arena that is known, and otherwise with the greatest
    /// that can be read.
    pub(super) fn any_generation<T>(
        &self,
        id: ArenaId,
        read: impl Fn(ArenaName) -> Result<T, ArenaError>,
    ) -> Result<T, ArenaError> {
        let first = self.first_to_try(id);
        let error = match read(first) {
            Err(error) if error.is_lost() => error,
            other => return other,
        };
        self.other_generation(first, error, read)
    }

    /// The generation that is known, and otherwise the first; one that only replicas have is not tried
    /// before those that are here.
    fn first_to_try(&self, id: ArenaId) -> ArenaName {
        let known = lock(&self.known);
        let generation = known.generations.get(&id).copied();
        let first = ArenaName { id, generation: generation.unwrap_or(0) };
        if generation.is_some() || !known.is_elsewhere(first) {
            return first;
        }
        let here = known.listed.as_ref().and_then(|listed| listed.generations(id).last());
        here.map_or(first, |here| here.name)
    }

    /// Whether only replicas have a generation of an arena of which others are here.
    pub(super) fn is_elsewhere(&self, name: ArenaName) -> bool {
        lock(&self.known).is_elsewhere(name)
    }

    /// The generations that only replicas have, of arenas of which the listing shows others.
    fn list_elsewhere(&self, here: &ListedArenas) -> HashMap<ArenaId, Vec<ArenaName>> {
        let mut elsewhere: HashMap<ArenaId, Vec<ArenaName>> = HashMap::new();
        for replica in self.backend.replicas() {
            // Another replica may answer.
            let Ok(there) = ListedArenas::list(&**replica) else { continue };
            for newest in there.newest() {
                let id = newest.name.id;
                let known = here.generations(id);
                let is_known = |name| known.iter().any(|listed| listed.name == name);
                let names = there.generations(id).iter().map(|listed| listed.name);
                if !known.is_empty() {
                    elsewhere.entry(id).or_default().extend(names.filter(|name| !is_known(*name)));
                }
            }
        }
        elsewhere.values_mut().for_each(|names| {
            names.sort_unstable();
            names.dedup();
        });
        elsewhere
    }

    /// Calls `read` with the other generations of an arena, greatest first; those that only replicas
    /// have come last. `error` is why the one that was tried cannot be read; it is returned if none can.
    ///
    /// The arenas are listed once, and again when one is missing that was known to exist, or that may have been
    /// stored since: it was rewritten since.
    pub(super) fn other_generation<T>(
        &self,
        tried: ArenaName,
        error: ArenaError,
        read: impl Fn(ArenaName) -> Result<T, ArenaError>,
    ) -> Result<T, ArenaError> {
        let may_exist = tried.generation > 0 || self.may_be_listed(tried);
        let mut is_stale = may_exist && is_missing(&error);
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
            if may_exist {
                let mut known = lock(&self.known);
                let patience = known.patience.entry(tried.id).or_insert(LISTING_LIFETIME);
                *patience = (*patience * 2).min(LISTING_LIFETIME_MAX);
            }
            self.drop_opened(tried.id);
        }
        Err(error)
    }

    /// Whether a generation is in the last listing, or may be in the next one.
    fn may_be_listed(&self, name: ArenaName) -> bool {
        let known = lock(&self.known);
        let listed = known.listed.as_ref().map_or(&[][..], |listed| listed.generations(name.id));
        let patience = known.patience.get(&name.id).copied().unwrap_or(LISTING_LIFETIME);
        let is_old = known.since.as_ref().is_some_and(|since| since.elapsed() > patience);
        listed.iter().any(|arena| arena.name == name) || (listed.is_empty() && is_old)
    }

    /// The generations of an arena in the listing, ascending, which is made first if there is none or
    /// it is out of date; before them those that only replicas have.
    fn listed_generations(
        &self,
        id: ArenaId,
        is_stale: bool,
    ) -> Result<Vec<ArenaName>, ArenaError> {
        let is_unlisted = lock(&self.known).listed.is_none();
        if is_stale || is_unlisted {
            let listed = ListedArenas::list(&*self.backend)?;
            let elsewhere = self.list_elsewhere(&listed);
            let mut known = lock(&self.known);
            (known.listed, known.several) = (Some(listed), HashMap::new());
            known.since = Some(Stopwatch::start());
            known.elsewhere = elsewhere;
        }
        let known = lock(&self.known);
        let found = known.listed.as_ref().map_or(&[][..], |listed| listed.generations(id));
        let mut names = known.elsewhere.get(&id).cloned().unwrap_or_default();
        names.extend(found.iter().map(|arena| arena.name));
        Ok(names)
    }

    /// Which of the listed generations of one arena are its own.
    pub fn sort_generations(&self, generations: &[ListedArena]) -> Result<Generations, ArenaError> {
        if generations.len() < 2 {
            let genuine = generations.to_vec();
            return Ok(Generations { genuine, ..Generations::default() });
        }
        let (mut claims, mut unread) = (Vec::new(), Vec::new());
        for listed in generations {
            match self.arena_in(listed.name) {
                Ok(arena) => claims.push(Claim { listed: *listed, arena }),
                Err(error) if error.is_unreadable() => unread.push((*listed, error.to_string())),
                Err(error) => return Err(error),
            }
        }
        let domain = rightful(&claims, !unread.is_empty());
        let (is_proved, domain) = match domain {
            Rightful::Proved(domain) => (true, Some(domain)),
            Rightful::First(domain) => (false, Some(domain)),
            Rightful::Unknown => (false, None),
        };
        let (own, others): (Vec<Claim>, Vec<Claim>) =
            claims.into_iter().partition(|claim| domain == Some(claim.arena.domain));
        let is_contested = !is_proved && !others.is_empty();
        let (genuine, unmarked, further) = divide_own(own);
        let listed = |claims: Vec<Claim>| -> Vec<ListedArena> {
            claims.into_iter().map(|claim| claim.listed).collect()
        };
        let (genuine, unmarked) = (listed(genuine), listed(unmarked));
        let (others, further) = (listed(others), listed(further));
        let (mut planted, undecided) = match domain {
            Some(_) => (others, Vec::new()),
            None => (Vec::new(), others),
        };
        planted.extend(further);
        planted.sort_unstable();
        Ok(Generations { genuine, unmarked, planted, undecided, unread, is_contested })
    }

    /// The generations of an arena in which its slots are looked for, newest first, and last those without a
    /// mark. It is found out once for each listing.
    pub(super) fn generations_of(&self, id: ArenaId) -> Result<Vec<ArenaName>, ArenaError> {
        if let Some(names) = lock(&self.known).several.get(&id) {
            return Ok(names.clone());
        }
        let names = self.listed_generations(id, false)?;
        if names.len() < 2 {
            return Ok(names);
        }
        let listed: Vec<_> =
            names.into_iter().map(|name| ListedArena { name, object_bytes: 0 }).collect();
        let sorted = self.sort_generations(&listed)?;
        let found = sorted.genuine.iter().chain(&sorted.undecided).rev();
        let found = found.chain(sorted.unmarked.iter().rev());
        let names: Vec<ArenaName> = found.map(|listed| listed.name).collect();
        lock(&self.known).several.insert(id, names.clone());
        Ok(names)
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
            if let Some(genuine) = self.sort_generations(generations)?.genuine.last() {
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
