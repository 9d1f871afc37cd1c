//! Pictures of numbers: of values over time, and of shares. Laid out by hand, for a terminal
//! ([`text`]) or as an SVG file ([`svg`]).

pub mod svg;
pub mod text;

use strongroom_base::Timestamp;
use strongroom_base::units::bytes_text;

use crate::dates;

/// What a value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// How many of one thing there are for one of another.
    Ratio,
}

impl Unit {
    /// A value as people read it.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Bytes => bytes_text(value as u64),
            Self::Ratio => format!("{value:.1} : 1"),
        }
    }
}

/// A value that changes at some times, and keeps until the next.
#[derive(Debug, Clone)]
pub struct Series {
    /// What it is.
    pub title: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// Times, sorted, and values.
    pub points: Vec<(Timestamp, f64)>,
}

impl Series {
    /// The largest value; one if there is none, so that it can be divided by.
    pub fn most(&self) -> f64 {
        let most = self.points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        if most > 0.0 { most } else { 1.0 }
    }

    /// The first and the last time.
    pub fn span(&self) -> Option<Span> {
        Some(Span { first: self.points.first()?.0, last: self.points.last()?.0 })
    }

    /// The value at a time; none before the first.
    pub fn at(&self, time: Timestamp) -> Option<f64> {
        let place = self.points.partition_point(|(known, _)| *known <= time);
        Some(self.points[place.checked_sub(1)?].1)
    }
}

/// From a first to a last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub first: Timestamp,
    /// The last.
    pub last: Timestamp,
}

/// Nanoseconds of two days: if all is within these, the time of day matters.
const TWO_DAYS: i128 = 2 * 86_400_000_000_000;

impl Span {
    fn nanoseconds(self) -> i128 {
        i128::from(self.last.0) - i128::from(self.first.0)
    }

    /// Whether there is one time only.
    pub fn is_moment(self) -> bool {
        self.first == self.last
    }

    /// The time after this many of equal parts of the way.
    pub fn time(self, part: usize, parts: usize) -> Timestamp {
        let way = self.nanoseconds() * part as i128 / parts.max(1) as i128;
        let time = i128::from(self.first.0) + way;
        Timestamp(i64::try_from(time).unwrap_or(self.last.0))
    }

    /// Which share of the way a time is at: zero to one.
    pub fn share(self, time: Timestamp) -> f64 {
        if self.is_moment() {
            return 0.0;
        }
        let way = i128::from(time.0) - i128::from(self.first.0);
        way as f64 / self.nanoseconds() as f64
    }

    /// A time as short as this span allows.
    pub fn text(self, time: Timestamp) -> String {
        let text = dates::text(time);
        let characters = if self.nanoseconds() < TWO_DAYS { 16 } else { 10 };
        // At the ends of what can be recorded it is no date.
        if matches!(time, Timestamp::LATEST | Timestamp::EARLIEST) {
            return text;
        }
        text.chars().take(characters).collect()
    }
}

/// A bar of two parts.
#[derive(Debug, Clone)]
pub struct Bar {
    /// What it is, safe for a terminal.
    pub label: String,
    /// The whole of it.
    pub whole: u64,
    /// The part that is its own.
    pub own: u64,
}

/// All that is drawn.
#[derive(Debug, Clone)]
pub struct Picture {
    /// What it is of, safe for a terminal.
    pub title: String,
    /// Values over time.
    pub series: Vec<Series>,
    /// The title of the bars.
    pub bars_title: &'static str,
    /// Shares, the largest first.
    pub bars: Vec<Bar>,
}

/// At most this many bars are drawn; the rest is in the JSON.
pub const BARS_MAX: usize = 20;

impl Picture {
    /// The bars that are drawn, and how many more there are.
    pub fn shown_bars(&self) -> (&[Bar], usize) {
        let shown = &self.bars[..self.bars.len().min(BARS_MAX)];
        (shown, self.bars.len() - shown.len())
    }
}

#[cfg(test)]
mod tests;
