//! What rules keep of a series that a machine with a put-only key made.
//!
//! A thief of the key may add any snapshot to the series, but removes none: what the rules would keep
//! without the thief's snapshots is kept beside them, or nothing of the series is removed until the
//! owner has looked. Why, and what is not covered: `docs/design/0019-retention.md`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use strongroom_base::Timestamp;
use strongroom_repository::{Doubt, Seen, SeriesId};

use super::look::DAY;
use super::policy::{Alarm, Circumstances, Judged, Periods, Policy};

/// What arrived in the first days of a series says how many snapshots a day are usual.
const LEARNING: i64 = 14 * DAY;

/// A snapshot of the series.
#[derive(Debug, Clone, Copy)]
struct Member {
    place: usize,
    time: Timestamp,
    day: i64,
    is_partial: bool,
}

/// How many snapshots of a series arrived on each day, and how many are usual.
struct Habit {
    counts: BTreeMap<i64, u32>,
    usual: u32,
    first_seen: Timestamp,
}

impl Habit {
    fn of(series: SeriesId, circumstances: &Circumstances<'_>) -> Self {
        let Circumstances { arrivals, periods, .. } = circumstances;
        let seen: Vec<(i64, Seen)> =
            arrivals.of_series(series).map(|seen| (periods(seen.arrival.time).day, seen)).collect();
        let first_seen = seen.iter().map(|(_, seen)| seen.at).min().unwrap_or(circumstances.now);
        let mut counts: BTreeMap<i64, u32> = BTreeMap::new();
        let mut learnt: BTreeMap<i64, u32> = BTreeMap::new();
        let mut accepted: BTreeSet<i64> = BTreeSet::new();
        for (day, Seen { arrival, at }) in &seen {
            *counts.entry(*day).or_default() += 1;
            if at.0.saturating_sub(first_seen.0) <= LEARNING && arrival.doubt.is_none() {
                *learnt.entry(*day).or_default() += 1;
            }
            if arrivals.is_accepted(arrival.snapshot) {
                accepted.insert(*day);
            }
        }
        let of_accepted = accepted.iter().map(|day| counts[day]);
        let usual = learnt.values().copied().chain(of_accepted).max().unwrap_or(0).max(1);
        Self { counts, usual, first_seen }
    }

    fn count(&self, day: i64) -> u32 {
        self.counts.get(&day).copied().unwrap_or(0)
    }

    /// Whether a day has more snapshots than usual. One of them may be a thief's, so none of them
    /// takes the place of another.
    fn is_unusual(&self, day: i64) -> bool {
        self.count(day) > self.usual
    }

    fn has_far_too_many(&self, day: i64) -> bool {
        self.count(day) > 2 * self.usual + 2
    }
}

/// Judges one series, of which these are the places.
pub(super) fn judge_series(
    policy: &Policy,
    judged: &mut [Judged<'_>],
    places: &[usize],
    circumstances: &Circumstances<'_>,
) {
    let Some(first) = places.first() else { return };
    let Circumstances { arrivals, now, quarantine, periods } = circumstances;
    let habit = Habit::of(SeriesId::of(judged[*first].snapshot), circumstances);
    let mut settled = Vec::new();
    for place in places {
        let snapshot = judged[*place].snapshot;
        let seen = arrivals.seen(snapshot.id);
        let Some(Seen { arrival, at }) = seen else {
            judged[*place].kept_by.push("quarantine");
            continue;
        };
        let day = periods(arrival.time).day;
        judged[*place].alarm = match arrivals.doubt(snapshot.id) {
            Some(Doubt::Dated) => Some(Alarm::Dated { seen: at }),
            Some(Doubt::Shrunken) => Some(Alarm::Shrunken),
            Some(Doubt::Other(_)) => Some(Alarm::Unknown),
            None if habit.has_far_too_many(day) && !arrivals.is_accepted(snapshot.id) => {
                Some(Alarm::TooMany { count: habit.count(day), usual: habit.usual })
            }
            None => None,
        };
        if now.0.saturating_sub(at.0) < *quarantine {
            judged[*place].kept_by.push("quarantine");
            continue;
        }
        // One that lacks a source is no more whole than one that was stopped.
        let is_lacking = !snapshot.missing.is_empty() && !arrivals.is_accepted(snapshot.id);
        let (time, is_partial) = (arrival.time, snapshot.partial || is_lacking);
        settled.push(Member { place: *place, time, day, is_partial });
    }
    let all_are_kept_by = match () {
        () if places.iter().any(|place| judged[*place].alarm.is_some()) => Some("frozen"),
        () if now.0.saturating_sub(habit.first_seen.0) < LEARNING => Some("new series"),
        () => None,
    };
    if let Some(reason) = all_are_kept_by {
        for place in places {
            judged[*place].kept_by = vec![reason];
        }
        return;
    }
    // Newest first.
    settled
        .sort_by_key(|member| std::cmp::Reverse((member.time, judged[member.place].snapshot.id)));
    let mut rules = Rules { policy, judged, habit, periods: *periods, asked: None };
    rules.keep_incomplete(&settled);
    settled.retain(|member| !rules.judged[member.place].snapshot.partial);
    let (whole, lacking): (Vec<Member>, Vec<Member>) =
        settled.iter().copied().partition(|member| !member.is_partial);
    rules.apply(&whole);
    rules.keep_unusual_days(&whole);
    // A time in which a source lacked is better known by what was there than not at all.
    let is_left = |member: &&Member| rules.judged[member.place].kept_by.is_empty();
    rules.asked = Some(lacking.iter().filter(is_left).map(|member| member.place).collect());
    rules.apply(&settled);
}

/// The rules at work on one series.
struct Rules<'r, 's> {
    policy: &'r Policy,
    judged: &'r mut [Judged<'s>],
    habit: Habit,
    periods: &'r dyn Fn(Timestamp) -> Periods,
    /// Those that are asked about, if not all are.
    asked: Option<HashSet<usize>>,
}

impl Rules<'_, '_> {
    fn keep(&mut self, member: &Member, rule: &'static str) {
        if self.asked.as_ref().is_some_and(|asked| !asked.contains(&member.place)) {
            return;
        }
        let kept_by = &mut self.judged[member.place].kept_by;
        if !kept_by.contains(&rule) {
            kept_by.push(rule);
        }
    }

    /// Those after which no complete one follows that is surely the machine's.
    fn keep_incomplete(&mut self, newest_first: &[Member]) {
        for member in newest_first {
            match member.is_partial {
                true => self.keep(member, "incomplete, and none follows"),
                false if self.habit.is_unusual(member.day) => {}
                false => return,
            }
        }
    }

    fn apply(&mut self, newest_first: &[Member]) {
        self.keep_last(newest_first);
        self.keep_hourly(newest_first);
        for (name, count, period) in self.policy.calendar_rules() {
            self.keep_calendar(newest_first, name, count, period);
        }
        // The newest of a day may be a thief's; the oldest of that day is not younger than the
        // machine's own.
        let newest_day = newest_first.first().map(|newest| newest.day);
        let of_newest_day = |member: &&Member| Some(member.day) == newest_day;
        let newest = newest_first.iter().take_while(of_newest_day).last().map(|m| m.time);
        // A day that comes after a pause of more than that, or seems to, makes no other too old.
        let before = newest_first.iter().find(|member| !of_newest_day(member)).map(|m| m.time);
        let newest = match (newest, before, self.policy.within) {
            (Some(newest), Some(before), Some(within))
                if newest.0.saturating_sub(before.0) > within =>
            {
                Some(before)
            }
            _ => newest,
        };
        for member in newest_first {
            let age = newest.map_or(0, |newest| newest.0.saturating_sub(member.time.0));
            if self.policy.within.is_some_and(|within| age <= within) {
                self.keep(member, "within");
            }
            let labels = &self.judged[member.place].snapshot.labels;
            if self.policy.labels.iter().any(|label| labels.contains(label)) {
                self.keep(member, "label");
            }
        }
    }

    /// The newest. A day counts for no more than usual, and an unusual one is kept whole.
    fn keep_last(&mut self, newest_first: &[Member]) {
        let mut left = self.policy.last;
        for day in newest_first.chunk_by(|a, b| a.day == b.day) {
            let is_unusual = self.habit.is_unusual(day[0].day);
            let count = u32::try_from(day.len()).unwrap_or(u32::MAX);
            let counted = left.min(count).min(self.habit.usual);
            if left == 0 {
                return;
            }
            let kept = if is_unusual { day.len() } else { counted as usize };
            day[..kept].iter().for_each(|member| self.keep(member, "last"));
            left -= counted;
        }
    }

    /// The first and the last of each hour; the same for days.
    fn keep_hourly(&mut self, newest_first: &[Member]) {
        let mut left = self.policy.hourly;
        for day in newest_first.chunk_by(|a, b| a.day == b.day) {
            if left == 0 {
                return;
            }
            let hour = |member: &Member| (self.periods)(member.time).hour;
            let hours: Vec<&[Member]> = day.chunk_by(|a, b| hour(a) == hour(b)).collect();
            let count = u32::try_from(hours.len()).unwrap_or(u32::MAX);
            let counted = left.min(count).min(self.habit.usual);
            if self.habit.is_unusual(day[0].day) {
                day.iter().for_each(|member| self.keep(member, "hourly"));
            } else {
                for hour in &hours[..counted as usize] {
                    self.keep(&hour[0], "hourly");
                    self.keep(&hour[hour.len() - 1], "hourly");
                }
            }
            left -= counted;
        }
    }

    /// The first and the last of each of the last periods that have one.
    fn keep_calendar(
        &mut self,
        newest_first: &[Member],
        name: &'static str,
        count: u32,
        period: fn(Periods) -> i64,
    ) {
        let periods = self.periods;
        let of = |member: &Member| period(periods(member.time));
        for members in newest_first.chunk_by(|a, b| of(a) == of(b)).take(count as usize) {
            self.keep(&members[0], name);
            self.keep(&members[members.len() - 1], name);
        }
    }

    /// If one of an unusual day is kept, all of that day are.
    fn keep_unusual_days(&mut self, newest_first: &[Member]) {
        for day in newest_first.chunk_by(|a, b| a.day == b.day) {
            let is_kept = |member: &Member| !self.judged[member.place].kept_by.is_empty();
            if self.habit.is_unusual(day[0].day) && day.iter().any(is_kept) {
                for member in day {
                    if self.judged[member.place].kept_by.is_empty() {
                        self.judged[member.place].kept_by.push("unusual day");
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
