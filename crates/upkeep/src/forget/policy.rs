//! What rules are, and what becomes of a snapshot by them.

use strongroom_base::Timestamp;
use strongroom_catalog::Snapshot;
use strongroom_repository::Arrivals;

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

/// What rules about other domains need to know.
pub struct Circumstances<'c> {
    /// What was seen of them, and when.
    pub arrivals: &'c Arrivals,
    /// The owner's time.
    pub now: Timestamp,
    /// What was first seen less than these nanoseconds ago stays, and counts for no rule.
    pub quarantine: i64,
    /// The time zone.
    pub periods: &'c dyn Fn(Timestamp) -> Periods,
}

/// Why the owner has to look at a snapshot before anything of its series is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    /// Its time and the time at which it was first seen do not fit.
    Dated {
        /// When it was first seen.
        seen: Timestamp,
    },
    /// It has far fewer files or bytes than those before it.
    Shrunken,
    /// There are far more snapshots on its day than usual.
    TooMany {
        /// How many there are.
        count: u32,
        /// How many are usual.
        usual: u32,
    },
    /// Something that only a newer program finds odd.
    Unknown,
}

/// What becomes of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged<'s> {
    /// The snapshot.
    pub snapshot: &'s Snapshot,
    /// The rules that keep it; if there is none, it goes.
    pub kept_by: Vec<&'static str>,
    /// Why the owner has to look at it before anything of its series goes.
    pub alarm: Option<Alarm>,
}

impl<'s> Judged<'s> {
    /// One that no rule has seen yet.
    pub fn new(snapshot: &'s Snapshot) -> Self {
        Self { snapshot, kept_by: Vec::new(), alarm: None }
    }
}

/// The name of a rule, how many periods it is about, and which period.
pub(super) type CalendarRule = (&'static str, u32, fn(Periods) -> i64);

impl Policy {
    /// Whether it keeps nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The rules about days and longer.
    pub(super) fn calendar_rules(&self) -> [CalendarRule; 4] {
        [
            ("daily", self.daily, |periods| periods.day),
            ("weekly", self.weekly, |periods| periods.week),
            ("monthly", self.monthly, |periods| periods.month),
            ("yearly", self.yearly, |periods| periods.year),
        ]
    }
}
