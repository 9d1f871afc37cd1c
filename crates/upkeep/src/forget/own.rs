//! What rules keep of a series of the owner's domain, and why.
//!
//! In a series, a rule such as "7 daily" keeps the newest snapshot of each of the last seven days
//! that have one. What no rule keeps goes. A snapshot that is incomplete, or that lacks a source, takes
//! no place of one that is whole: it is kept until one follows that is whole. One that lacks a source is
//! kept, too, if the rules would keep it beside all others. If one has far less than those before it,
//! nothing of the series goes until the owner has looked: see `OwnSeries`.

use std::cmp::Reverse;
use std::collections::HashSet;

use strongroom_base::Timestamp;
use strongroom_repository::OwnSeries;

use super::look::DAY;
use super::policy::{Alarm, CalendarRule, Circumstances, Judged, Policy};

/// Judges one series, of which these are the places, newest first.
pub(super) fn judge_series(
    policy: &Policy,
    judged: &mut [Judged<'_>],
    places: &[usize],
    circumstances: &Circumstances<'_>,
) {
    let Circumstances { arrivals, now, .. } = circumstances;
    let oldest_first = places.iter().rev().map(|place| judged[*place].snapshot);
    let series = OwnSeries::of(oldest_first, arrivals);
    for place in places {
        if series.doubted.contains(&judged[*place].snapshot.id) {
            judged[*place].alarm = Some(Alarm::Shrunken);
        }
    }
    if !series.doubted.is_empty() {
        for place in places {
            judged[*place].kept_by.push("frozen");
        }
        return;
    }
    let is_whole = |judged: &[Judged<'_>], place: &usize| {
        let snapshot = judged[*place].snapshot;
        !snapshot.partial && !series.lacking.contains(&snapshot.id)
    };
    let open = places.iter().take_while(|place| !is_whole(judged, place)).count();
    for place in &places[..open] {
        let judged = &mut judged[*place];
        judged.kept_by.push(match judged.snapshot.partial {
            true => "incomplete, and none follows",
            false => "lacks a source, and none follows",
        });
    }
    // What a wrong clock has dated after now would be the newest for ever: it takes no place of
    // others, and all others would be too old beside it.
    let limit = now.0.saturating_add(DAY);
    let complete = places.iter().filter(|place| !judged[**place].snapshot.partial).copied();
    let (ahead, mut complete): (Vec<usize>, Vec<usize>) =
        complete.partition(|place| judged[*place].snapshot.started.0 > limit);
    for place in ahead {
        judged[place].kept_by.push("dated in the future");
    }
    // What was taken over from another program comes before all that was made here, whenever that was.
    if complete.iter().any(|place| judged[*place].snapshot.origin.is_some()) {
        complete.sort_by_key(|place| Reverse(judged[*place].snapshot.started));
    }
    let whole: Vec<usize> =
        complete.iter().filter(|place| is_whole(judged, place)).copied().collect();
    apply(policy, judged, &whole, &|_| true, circumstances);
    // A time in which a source lacked is better known by what was there than not at all.
    let is_left = |place: &&usize| judged[**place].kept_by.is_empty() && !is_whole(judged, place);
    let left: HashSet<usize> = complete.iter().filter(is_left).copied().collect();
    apply(policy, judged, &complete, &|place| left.contains(&place), circumstances);
    for place in places {
        let Judged { snapshot, kept_by, .. } = &mut judged[*place];
        if snapshot.partial && policy.labels.iter().any(|it| snapshot.labels.contains(it)) {
            kept_by.push("label");
        }
    }
}

/// Applies the rules to snapshots of a series, newest first, and notes which of them keep one that is asked
/// about.
fn apply(
    policy: &Policy,
    judged: &mut [Judged<'_>],
    newest_first: &[usize],
    is_asked: &dyn Fn(usize) -> bool,
    circumstances: &Circumstances<'_>,
) {
    let keep = |judged: &mut [Judged<'_>], place: &usize, rule| {
        if is_asked(*place) {
            judged[*place].kept_by.push(rule);
        }
    };
    for place in newest_first.iter().take(policy.last as usize) {
        keep(judged, place, "last");
    }
    let hourly: CalendarRule = ("hourly", policy.hourly, |periods| periods.hour);
    for (name, count, period) in [hourly].into_iter().chain(policy.calendar_rules()) {
        let mut met: Vec<i64> = Vec::new();
        for place in newest_first {
            let period = period((circumstances.periods)(judged[*place].snapshot.started));
            if met.len() < count as usize && !met.contains(&period) {
                met.push(period);
                keep(judged, place, name);
            }
        }
    }
    let started = |place: &usize| judged[*place].snapshot.started;
    let newest =
        policy.within.and_then(|within| newest_in(newest_first.iter().map(started), within));
    for place in newest_first {
        let age =
            newest.map_or(0, |newest| newest.0.saturating_sub(judged[*place].snapshot.started.0));
        if policy.within.is_some_and(|within| age <= within) {
            keep(judged, place, "within");
        }
        let labels = &judged[*place].snapshot.labels;
        if policy.labels.iter().any(|label| labels.contains(label)) {
            keep(judged, place, "label");
        }
    }
}

/// From when `within` is counted: the newest snapshot. If that is more than `within` later than the one before,
/// the clock was wrong or the machine was off, and then the one before: nothing goes because of one night.
fn newest_in(newest_first: impl Iterator<Item = Timestamp>, within: i64) -> Option<Timestamp> {
    let mut newest_first = newest_first;
    let newest = newest_first.next()?;
    let before = newest_first.next();
    Some(before.filter(|before| newest.0.saturating_sub(before.0) > within).unwrap_or(newest))
}

#[cfg(test)]
mod tests;
