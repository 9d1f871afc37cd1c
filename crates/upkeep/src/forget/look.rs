//! Looks which snapshots of other domains have arrived, and what is odd about them.
//!
//! A machine with a put-only key may say any time, and store any number of snapshots. What it cannot
//! choose is when the owner sees them first: so a look is recorded, and the next one knows that what
//! is new was made after it.

use std::collections::BTreeMap;

use strongroom_base::{DomainId, SnapshotId, Timestamp};
use strongroom_catalog::Snapshot;
use strongroom_repository::objects::ending_name;
use strongroom_repository::{
    Arrival, Arrivals, Doubt, Endings, Look, OwnSeries, Repository, RepositoryError, SeriesId,
    SnapshotList, Usual,
};

/// Nanoseconds of a day.
pub const DAY: i64 = 86_400 * 1_000_000_000;

/// A time may differ this much from what the looks prove: clocks differ.
const SLACK: i64 = DAY;

/// Looks, and records what is new unless this is a rehearsal. Without snapshots of other domains
/// there is nothing to look at, and without a doubt of the owner's own nothing to be accepted.
///
/// # Errors
///
/// [`RepositoryError::EndingLost`] if an earlier look knew of the end of a domain that is not known
/// any more: what came since would count again.
pub fn look(
    repository: &Repository,
    list: &SnapshotList,
    is_rehearsal: bool,
) -> Result<Arrivals, RepositoryError> {
    let foreign = foreign(list);
    if foreign.is_empty() && !has_own_doubts(list) {
        return Ok(Arrivals::default());
    }
    let mut arrivals = Arrivals::read(repository)?;
    refuse_lost_endings(repository, list, &arrivals)?;
    let mut look = new_look(&foreign, &arrivals, repository.surroundings.clock.now());
    look.ended = list.endings.last().collect();
    let is_news = !look.ended.iter().all(|ending| arrivals.ended().contains(ending));
    if !look.arrivals.is_empty() || is_news {
        // If the looks are withheld, all is seen for the first time, which keeps it.
        match is_rehearsal || arrivals.withheld().is_some() {
            true => arrivals.push(&look),
            false => arrivals.record(repository, &look)?,
        }
    }
    Ok(arrivals)
}

/// Records which domains have ended, beside what is new: if what the owner says of their ends gets
/// lost, that is noticed.
pub fn record_endings(repository: &Repository, list: &SnapshotList) -> Result<(), RepositoryError> {
    let mut arrivals = Arrivals::read(repository)?;
    let mut look = new_look(&foreign(list), &arrivals, repository.surroundings.clock.now());
    look.ended = list.endings.last().collect();
    arrivals.record(repository, &look)
}

/// Records that snapshots are right, though there was a doubt. Those of the owner's own domain are
/// recorded with their series: after one of them is gone, what is older is still settled.
pub fn accept(
    repository: &Repository,
    list: &SnapshotList,
    snapshots: &[SnapshotId],
) -> Result<(), RepositoryError> {
    let mut arrivals = Arrivals::read(repository)?;
    let now = repository.surroundings.clock.now();
    let mut look = new_look(&foreign(list), &arrivals, now);
    look.ended = list.endings.last().collect();
    let own = list.snapshots.iter().filter(|snapshot| {
        let is_unseen = arrivals.seen(snapshot.id).is_none();
        snapshot.domain.is_empty() && snapshots.contains(&snapshot.id) && is_unseen
    });
    look.arrivals.extend(own.map(|snapshot| Arrival {
        snapshot: snapshot.id,
        series: SeriesId::of(snapshot),
        time: snapshot.started.min(now),
        doubt: None,
    }));
    arrivals.record(repository, &Look { accepted: snapshots.to_vec(), ..look })
}

fn foreign(list: &SnapshotList) -> Vec<&Snapshot> {
    let counted = list.snapshots.iter().chain(&list.forgotten);
    counted.filter(|snapshot| !snapshot.domain.is_empty()).collect()
}

/// Fails if a look knew of the end of a domain that is not known any more.
fn refuse_lost_endings(
    repository: &Repository,
    list: &SnapshotList,
    arrivals: &Arrivals,
) -> Result<(), RepositoryError> {
    match find_lost_endings(repository, list, arrivals)?.first() {
        Some((domain, number)) => {
            Err(RepositoryError::EndingLost { name: ending_name(*domain, *number) })
        }
        None => Ok(()),
    }
}

/// What an earlier look knew of the ends of domains, and is not there or cannot be read any more, nor
/// was replaced: by domain and number.
pub fn find_lost_endings(
    repository: &Repository,
    list: &SnapshotList,
    arrivals: &Arrivals,
) -> Result<Vec<(DomainId, u32)>, RepositoryError> {
    let unknown_to = |endings: &Endings, asked: &mut Vec<(DomainId, u32)>| match endings.withheld()
    {
        // What is withheld is not lost.
        Some(_) => asked.clear(),
        None => asked.retain(|(domain, number)| !endings.know(*domain, *number)),
    };
    let mut lost: Vec<(DomainId, u32)> = arrivals.ended().iter().copied().collect();
    unknown_to(&list.endings, &mut lost);
    if !lost.is_empty() {
        // A domain may have ended between the listing of the snapshots and that of the looks.
        unknown_to(&Endings::read(repository)?, &mut lost);
    }
    Ok(lost)
}

fn has_own_doubts(list: &SnapshotList) -> bool {
    let mut series: BTreeMap<(&str, &[Vec<u8>]), Vec<&Snapshot>> = BTreeMap::new();
    for snapshot in list.snapshots.iter().filter(|snapshot| snapshot.domain.is_empty()) {
        series.entry((&snapshot.host, &snapshot.paths)).or_default().push(snapshot);
    }
    let nothing_accepted = Arrivals::default();
    series.into_values().any(|series| OwnSeries::of(series, &nothing_accepted).has_doubts())
}

/// What a look now sees for the first time, of these snapshots of other domains.
pub fn new_look(snapshots: &[&Snapshot], known: &Arrivals, now: Timestamp) -> Look {
    let mut new: BTreeMap<SeriesId, Vec<&Snapshot>> = BTreeMap::new();
    for snapshot in snapshots.iter().filter(|snapshot| known.seen(snapshot.id).is_none()) {
        new.entry(SeriesId::of(snapshot)).or_default().push(snapshot);
    }
    let before = known.last_look().unwrap_or(Timestamp::EARLIEST);
    let mut look = Look { time: now, ..Look::default() };
    for (series, mut new) in new {
        new.sort_by_key(|snapshot| (snapshot.started, snapshot.id));
        let mut sizes = Sizes::before(snapshots, known, series);
        for snapshot in new {
            let doubt = match () {
                () if is_dated_outside(snapshot, before, now) => Some(Doubt::Dated),
                () if sizes.make_doubtful(snapshot) => Some(Doubt::Shrunken),
                () => None,
            };
            if doubt.is_none() {
                sizes.add(snapshot);
            }
            let time = snapshot.started.max(before).min(now);
            look.arrivals.push(Arrival { snapshot: snapshot.id, series, time, doubt });
        }
    }
    look
}

/// Whether a snapshot says that it was ended before the last look, which did not see it, or that it
/// was begun after this one.
fn is_dated_outside(snapshot: &Snapshot, before: Timestamp, now: Timestamp) -> bool {
    let Snapshot { started, ended, .. } = snapshot;
    ended.0.saturating_add(SLACK) < before.0 || started.0 > now.0.saturating_add(SLACK)
}

/// How large the last snapshots of a series were, as their writer says.
struct Sizes {
    usual: Usual,
    /// Whether this look is the first that sees the series: it has nothing to be compared with.
    is_first: bool,
}

impl Sizes {
    /// Of those that were seen before and are not doubted; no older than the last that the owner
    /// accepted, so that what has become small for good is doubted once.
    fn before(snapshots: &[&Snapshot], known: &Arrivals, series: SeriesId) -> Self {
        let mut seen: Vec<(Timestamp, &Snapshot)> = snapshots
            .iter()
            .filter(|snapshot| known.doubt(snapshot.id).is_none())
            .filter_map(|snapshot| Some((known.seen(snapshot.id)?.arrival, *snapshot)))
            .filter(|(arrival, _)| arrival.series == series)
            .map(|(arrival, snapshot)| (arrival.time, snapshot))
            .collect();
        seen.sort_by_key(|(time, snapshot)| (*time, snapshot.id));
        let accepted = seen.iter().rposition(|(_, snapshot)| known.is_accepted(snapshot.id));
        let is_first = known.of_series(series).next().is_none();
        let mut usual = Usual::default();
        seen[accepted.unwrap_or(0)..].iter().for_each(|(_, snapshot)| usual.add(snapshot));
        Self { usual, is_first }
    }

    fn add(&mut self, snapshot: &Snapshot) {
        self.usual.add(snapshot);
    }

    fn make_doubtful(&self, snapshot: &Snapshot) -> bool {
        !self.is_first && !snapshot.partial && self.usual.is_far_above(&snapshot.stats)
    }
}

#[cfg(test)]
mod tests;
