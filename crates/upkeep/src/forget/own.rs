//! What rules keep of a series of the owner's domain, and why.
//!
//! In a series, a rule such as "7 daily" keeps the newest snapshot of each of the last seven days
//! that have one. What no rule keeps goes. An incomplete snapshot counts for no rule: it is kept
//! until a complete one of its series follows.

use strongroom_base::Timestamp;

use super::policy::{CalendarRule, Judged, Periods, Policy};

/// Judges one series, of which these are the places, newest first.
pub(super) fn judge_series(
    policy: &Policy,
    judged: &mut [Judged<'_>],
    places: &[usize],
    periods: &dyn Fn(Timestamp) -> Periods,
) {
    let is_complete = |place: &&usize| !judged[**place].snapshot.partial;
    let complete: Vec<usize> = places.iter().filter(is_complete).copied().collect();
    let newest = complete.first().map(|place| judged[*place].snapshot.started);
    let is_last = |place: &&usize| judged[**place].snapshot.partial;
    let open = places.iter().take_while(is_last).count();
    for place in &places[..open] {
        judged[*place].kept_by.push("incomplete, and none follows");
    }
    for place in complete.iter().take(policy.last as usize) {
        judged[*place].kept_by.push("last");
    }
    let hourly: CalendarRule = ("hourly", policy.hourly, |periods| periods.hour);
    for (name, count, period) in [hourly].into_iter().chain(policy.calendar_rules()) {
        let mut met: Vec<i64> = Vec::new();
        for place in &complete {
            let period = period(periods(judged[*place].snapshot.started));
            if met.len() < count as usize && !met.contains(&period) {
                met.push(period);
                judged[*place].kept_by.push(name);
            }
        }
    }
    for place in &complete {
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
