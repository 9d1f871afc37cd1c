//! Looks which snapshots of other domains have arrived, and what is odd about them.
//!
//! A machine with a put-only key may say any time, and store any number of snapshots. What it cannot
//! choose is when the owner sees them first: so a look is recorded, and the next one knows that what
//! is new was made after it.

use std::collections::BTreeMap;

use strongroom_base::{SnapshotId, Timestamp};
use strongroom_catalog::Snapshot;
use strongroom_repository::{
    Arrival, Arrivals, Doubt, Look, Repository, RepositoryError, SeriesId, SnapshotList,
};

/// Nanoseconds of a day.
pub const DAY: i64 = 86_400 * 1_000_000_000;

/// A time may differ this much from what the looks prove: clocks differ.
const SLACK: i64 = DAY;

/// How many earlier snapshots say how large the next one is.
const SIZES: usize = 5;

/// A snapshot with less than one part in this many of the files or bytes is doubted.
const SHRINKING: u64 = 10;

/// Looks, and records what is new unless this is a rehearsal. Without snapshots of other domains
/// there is nothing to look at.
pub fn look(
    repository: &Repository,
    list: &SnapshotList,
    is_rehearsal: bool,
) -> Result<Arrivals, RepositoryError> {
    let foreign = foreign(list);
    if foreign.is_empty() {
        return Ok(Arrivals::default());
    }
    let mut arrivals = Arrivals::read(repository)?;
    let look = new_look(&foreign, &arrivals, repository.surroundings.clock.now());
    if !look.arrivals.is_empty() {
        match is_rehearsal {
            true => arrivals.push(&look),
            false => arrivals.record(repository, &look)?,
        }
    }
    Ok(arrivals)
}

/// Records that snapshots are right, though there was a doubt.
pub fn accept(
    repository: &Repository,
    list: &SnapshotList,
    snapshots: &[SnapshotId],
) -> Result<(), RepositoryError> {
    let mut arrivals = Arrivals::read(repository)?;
    let look = new_look(&foreign(list), &arrivals, repository.surroundings.clock.now());
    arrivals.record(repository, &Look { accepted: snapshots.to_vec(), ..look })
}

fn foreign(list: &SnapshotList) -> Vec<&Snapshot> {
    let all = list.snapshots.iter().chain(&list.forgotten);
    all.filter(|snapshot| !snapshot.domain.is_empty()).collect()
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
    last: Vec<[u64; 2]>,
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
        let mut sizes = Self { last: Vec::new(), is_first };
        seen[accepted.unwrap_or(0)..].iter().for_each(|(_, snapshot)| sizes.add(snapshot));
        sizes
    }

    fn add(&mut self, snapshot: &Snapshot) {
        if !snapshot.partial {
            self.last.push([snapshot.stats.files, snapshot.stats.bytes]);
        }
    }

    fn make_doubtful(&self, snapshot: &Snapshot) -> bool {
        let last = &self.last[self.last.len().saturating_sub(SIZES)..];
        if self.is_first || snapshot.partial || last.is_empty() {
            return false;
        }
        let sizes = [snapshot.stats.files, snapshot.stats.bytes];
        (0..sizes.len()).any(|which| {
            let mut usual: Vec<u64> = last.iter().map(|sizes| sizes[which]).collect();
            usual.sort_unstable();
            sizes[which].saturating_mul(SHRINKING) < usual[usual.len() / 2]
        })
    }
}
