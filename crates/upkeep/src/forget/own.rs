//! What rules keep of a series of the owner's domain, and why.
//!
//! In a series, a rule such as "7 daily" keeps the newest snapshot of each of the last seven days
//! that have one. What no rule keeps goes. A snapshot that is incomplete, or that lacks a source,
//! counts for no rule: it is kept until one follows that is whole. If one has far less than those
//! before it, nothing of the series goes until the owner has looked: see `OwnSeries`.

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
    let Circumstances { arrivals, periods, now, .. } = circumstances;
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
    let is_whole = |place: &usize| {
        let snapshot = judged[*place].snapshot;
        !snapshot.partial && !series.lacking.contains(&snapshot.id)
    };
    let open = places.iter().take_while(|place| !is_whole(place)).count();
    let whole: Vec<usize> = places.iter().filter(|place| is_whole(place)).copied().collect();
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
    let (ahead, whole): (Vec<usize>, Vec<usize>) =
        whole.into_iter().partition(|place| judged[*place].snapshot.started.0 > limit);
    for place in ahead {
        judged[place].kept_by.push("dated in the future");
    }
    let newest = whole.first().map(|place| judged[*place].snapshot.started);
    for place in whole.iter().take(policy.last as usize) {
        judged[*place].kept_by.push("last");
    }
    let hourly: CalendarRule = ("hourly", policy.hourly, |periods| periods.hour);
    for (name, count, period) in [hourly].into_iter().chain(policy.calendar_rules()) {
        let mut met: Vec<i64> = Vec::new();
        for place in &whole {
            let period = period(periods(judged[*place].snapshot.started));
            if met.len() < count as usize && !met.contains(&period) {
                met.push(period);
                judged[*place].kept_by.push(name);
            }
        }
    }
    for place in &whole {
        let Judged { snapshot, kept_by, .. } = &mut judged[*place];
        let age = newest.map_or(0, |newest| newest.0.saturating_sub(snapshot.started.0));
        if policy.within.is_some_and(|within| age <= within) {
            kept_by.push("within");
        }
        if policy.labels.iter().any(|label| snapshot.labels.contains(label)) {
            kept_by.push("label");
        }
    }
}
