//! `key end-domain`: a domain ends. The owner says which of its snapshots count; all else that
//! is of it, now or later, was made by a machine that the owner does not know (`docs/design/0045-end-of-a-domain.md`).
//!
//! The plan can be printed and discarded. Carrying it out says so first, and then removes the key
//! slots: an ending that is interrupted is ended by another.

use std::collections::BTreeSet;

use strongroom_base::{SlotId, SnapshotId, Timestamp};
use strongroom_catalog::Snapshot;
use strongroom_repository::keys::{Access, KeySlot};
use strongroom_repository::{Arrivals, Repository, RepositoryError, end_domain, list_snapshots};

use crate::forget::{find_lost_endings, record_endings};
use crate::keys::{list_keys, remove_slot};

/// From when on snapshots do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// Those that the owner saw first at this time or later.
    Time(Timestamp),
    /// This one, and those that the owner saw first at the same time or later, and that are not before
    /// it in the order of their domain.
    Snapshot(SnapshotId),
}

/// A snapshot of a domain that ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weighed {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// When the owner saw it first.
    pub seen: Timestamp,
    /// Whether it counts.
    pub counts: bool,
}

/// What is to be said of the end of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndingPlan {
    /// The domain.
    pub domain: String,
    /// Its snapshots, oldest first.
    pub snapshots: Vec<Weighed>,
    /// The keys of the domain, which are removed.
    pub keys: Vec<KeySlot>,
    /// Keys that can only store, and do not say of which domain they are.
    pub unknown_keys: Vec<KeySlot>,
}

/// How a domain ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndingOutcome {
    /// The keys that were removed.
    pub keys: Vec<SlotId>,
    /// Snapshots of the domain that exist and do not count, those included that came meanwhile.
    pub late: Vec<SnapshotId>,
}

/// Weighs the snapshots of a domain. Without `since` those count that are there; if it has ended
/// before, those that counted already. Those in `keep` count in any case.
///
/// # Errors
///
/// Only the owner may. There is nothing of such a domain; or one of the snapshots that are named is
/// not of it.
pub fn plan_ending(
    repository: &Repository,
    domain: &str,
    since: Option<Since>,
    keep: &[SnapshotId],
) -> Result<EndingPlan, RepositoryError> {
    let owner = repository.keys.owner.as_ref().ok_or(RepositoryError::PutOnly)?;
    let id = owner.domain_id(domain);
    let list = list_snapshots(repository)?;
    let arrivals = Arrivals::read(repository)?;
    // What counted before, and what was seen when, has to be known.
    if let Some(withheld) = list.endings.withheld().or(arrivals.withheld()) {
        return Err(withheld.error());
    }
    let now = repository.surroundings.clock.now();
    let seen = |snapshot: &Snapshot| arrivals.seen(snapshot.id).map_or(now, |seen| seen.at);
    let of_domain = || list.all().filter(|snapshot| snapshot.domain == domain);
    let find = |id: SnapshotId| {
        let none = || RepositoryError::NoSuchSnapshot { name: format!("{domain}: {}", id.short()) };
        of_domain().find(|snapshot| snapshot.id == id).ok_or_else(none)
    };
    for kept in keep {
        find(*kept)?;
    }
    let first = match since {
        Some(Since::Snapshot(first)) => Some(find(first)?),
        _ => None,
    };
    let is_before = |snapshot: &Snapshot| match (since, first) {
        (Some(Since::Time(since)), _) => seen(snapshot) < since,
        (_, Some(first)) => (seen(snapshot), snapshot.order()) < (seen(first), first.order()),
        _ => true,
    };
    let mut snapshots: Vec<Weighed> = of_domain()
        .map(|snapshot| {
            let was_late = list.endings.is_late(snapshot);
            let counts = keep.contains(&snapshot.id) || (!was_late && is_before(snapshot));
            Weighed { snapshot: snapshot.clone(), seen: seen(snapshot), counts }
        })
        .collect();
    snapshots.sort_by_key(|weighed| weighed.snapshot.order());
    let (mut keys, mut unknown_keys) = (Vec::new(), Vec::new());
    for slot in list_keys(repository)?.into_iter().filter(|slot| slot.access == Access::PutOnly) {
        match slot.domain {
            Some(of) if of == id => keys.push(slot),
            Some(_) => {}
            // Without a name of its own, a key's domain has that of its label.
            None if slot.label == domain => keys.push(slot),
            None => unknown_keys.push(slot),
        }
    }
    let is_known = !snapshots.is_empty() || !keys.is_empty() || list.endings.of(domain).is_some();
    if domain.is_empty() || (!is_known && unknown_keys.is_empty()) {
        return Err(RepositoryError::NoSuchDomain { domain: domain.to_owned() });
    }
    Ok(EndingPlan { domain: domain.to_owned(), snapshots, keys, unknown_keys })
}

/// Ends the domain.
pub fn carry_out_ending(
    repository: &Repository,
    plan: &EndingPlan,
) -> Result<EndingOutcome, RepositoryError> {
    repository.check_mode()?;
    let counted = plan.snapshots.iter().filter(|weighed| weighed.counts);
    let counted: BTreeSet<SnapshotId> = counted.map(|weighed| weighed.snapshot.id).collect();
    let (list, arrivals) = (list_snapshots(repository)?, Arrivals::read(repository)?);
    let id = repository.keys.owner.as_ref().map(|owner| owner.domain_id(&plan.domain));
    let lost = find_lost_endings(repository, &list, &arrivals)?.into_iter();
    let lost = lost.filter(|(domain, _)| Some(*domain) == id).map(|(_, number)| number);
    end_domain(repository, &plan.domain, counted, lost.collect())?;
    let list = list_snapshots(repository)?;
    record_endings(repository, &list)?;
    let mut outcome = EndingOutcome::default();
    for slot in &plan.keys {
        remove_slot(repository, slot.id)?;
        outcome.keys.push(slot.id);
    }
    let late = list.late.iter().filter(|late| late.domain == plan.domain);
    outcome.late = late.map(|late| late.id).collect();
    Ok(outcome)
}
