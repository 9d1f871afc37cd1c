//! Which snapshots a person's rules keep, and why.
//!
//! Snapshots of one host and the same paths are a series. In a series, a rule such as "7 daily"
//! keeps the newest snapshot of each of the last seven days that have one. What no rule keeps goes.
//! An incomplete snapshot counts for no rule: it is kept until a complete one of its series follows.

use std::collections::BTreeMap;

use strongroom_base::Timestamp;
use strongroom_catalog::Snapshot;

/// The hour, day, week, month and year that a time falls into, in some time zone: numbers that are
/// equal for times of the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periods {
    /// The hour. The two hours with one name, when clocks are set back, differ.
    pub hour: i64,
    /// The day.
    pub day: i64,
    /// The week, from Monday on.
    pub week: i64,
    /// The month.
    pub month: i64,
    /// The year.
    pub year: i64,
}

/// Which snapshots of each series are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// The newest.
    pub last: u32,
    /// The newest of each of at most this many hours.
    pub hourly: u32,
    /// The newest of each of at most this many days.
    pub daily: u32,
    /// The newest of each of at most this many weeks.
    pub weekly: u32,
    /// The newest of each of at most this many months.
    pub monthly: u32,
    /// The newest of each of at most this many years.
    pub yearly: u32,
    /// All that are at most this many nanoseconds older than the newest.
    pub within: Option<i64>,
    /// All with one of these labels.
    pub labels: Vec<String>,
}

/// What becomes of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged<'s> {
    /// The snapshot.
    pub snapshot: &'s Snapshot,
    /// The rules that keep it; if there is none, it goes.
    pub kept_by: Vec<&'static str>,
}

impl Policy {
    /// Whether it keeps nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What becomes of these snapshots, which come oldest first; in the same order.
    pub fn judge<'s>(
        &self,
        snapshots: &[&'s Snapshot],
        periods: &dyn Fn(Timestamp) -> Periods,
    ) -> Vec<Judged<'s>> {
        let mut judged: Vec<Judged<'s>> =
            snapshots.iter().map(|snapshot| Judged { snapshot, kept_by: Vec::new() }).collect();
        let mut series: BTreeMap<(&str, &[Vec<u8>]), Vec<usize>> = BTreeMap::new();
        for (place, snapshot) in snapshots.iter().enumerate() {
            series.entry((&snapshot.host, &snapshot.paths)).or_default().push(place);
        }
        for mut places in series.into_values() {
            places.reverse();
            self.judge_series(&mut judged, &places, periods);
        }
        judged
    }

    /// Judges one series, of which these are the places, newest first.
    fn judge_series(
        &self,
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
        for place in complete.iter().take(self.last as usize) {
            judged[*place].kept_by.push("last");
        }
        type Period = fn(Periods) -> i64;
        let rules: [(&'static str, u32, Period); 5] = [
            ("hourly", self.hourly, |periods| periods.hour),
            ("daily", self.daily, |periods| periods.day),
            ("weekly", self.weekly, |periods| periods.week),
            ("monthly", self.monthly, |periods| periods.month),
            ("yearly", self.yearly, |periods| periods.year),
        ];
        for (name, count, period) in rules {
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
            let Judged { snapshot, kept_by } = &mut judged[*place];
            let age = newest.map_or(0, |newest| newest.0.saturating_sub(snapshot.started.0));
            if self.within.is_some_and(|within| age <= within) {
                kept_by.push("within");
            }
            if self.labels.iter().any(|label| snapshot.labels.contains(label)) {
                kept_by.push("label");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use strongroom_base::SnapshotId;

    use super::*;

    const HOUR: i64 = 3600 * 1_000_000_000;

    /// Months of thirty days, years of twelve months.
    fn periods(time: Timestamp) -> Periods {
        let day = time.0.div_euclid(24 * HOUR);
        let (week, month) = (day.div_euclid(7), day.div_euclid(30));
        Periods { hour: time.0.div_euclid(HOUR), day, week, month, year: month.div_euclid(12) }
    }

    fn at(hour: i64) -> Snapshot {
        let started = Timestamp(hour * HOUR);
        Snapshot { started, host: "a".to_owned(), ..Snapshot::empty(SnapshotId([1; 16])) }
    }

    /// The hours of what is kept, and by what.
    fn kept(policy: &Policy, snapshots: &[Snapshot]) -> Vec<(i64, Vec<&'static str>)> {
        let snapshots: Vec<&Snapshot> = snapshots.iter().collect();
        let judged = policy.judge(&snapshots, &periods).into_iter();
        let kept = judged.filter(|judged| !judged.kept_by.is_empty());
        kept.map(|judged| (judged.snapshot.started.0 / HOUR, judged.kept_by)).collect()
    }

    #[test]
    fn each_rule_keeps_the_newest_of_its_last_periods() {
        let snapshots: Vec<Snapshot> = (0..24 * 40).step_by(6).map(at).collect();
        let newest = 24 * 40 - 6;
        let last = Policy { last: 2, ..Policy::default() };
        assert_eq!(kept(&last, &snapshots), [(newest - 6, vec!["last"]), (newest, vec!["last"])]);
        let daily = Policy { daily: 2, ..Policy::default() };
        let expected = [(newest - 24, vec!["daily"]), (newest, vec!["daily"])];
        assert_eq!(kept(&daily, &snapshots), expected);
        let monthly = Policy { monthly: 9, ..Policy::default() };
        let expected = [(30 * 24 - 6, vec!["monthly"]), (newest, vec!["monthly"])];
        assert_eq!(kept(&monthly, &snapshots), expected);
        let both = Policy { daily: 1, weekly: 1, within: Some(6 * HOUR), ..Policy::default() };
        let expected = [(newest - 6, vec!["within"]), (newest, vec!["daily", "weekly", "within"])];
        assert_eq!(kept(&both, &snapshots), expected);
    }

    #[test]
    fn each_series_has_its_own_and_incomplete_ones_wait_for_the_next() {
        let other = Snapshot { host: "b".to_owned(), ..at(1) };
        let partial = |hour| Snapshot { partial: true, ..at(hour) };
        let labelled = Snapshot { labels: vec!["gold".to_owned()], ..at(2) };
        let snapshots = [at(0), other, labelled, partial(3), at(4), partial(5)];
        let labels = vec!["gold".to_owned()];
        let policy = Policy { last: 1, labels, ..Policy::default() };
        let expected = [
            (1, vec!["last"]),
            (2, vec!["label"]),
            (4, vec!["last"]),
            (5, vec!["incomplete, and none follows"]),
        ];
        assert_eq!(kept(&policy, &snapshots), expected);
        assert!(Policy::default().is_empty() && !policy.is_empty());
    }
}
