//! What a place that keeps versions showed at an earlier time.

use std::fmt;

use jiff::Timestamp as Time;
use strongroom_base::Timestamp;

/// How a place with versions is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    /// As it was at a time, by the place's own clock.
    AsOf(Timestamp),
    /// Each name with this version, counted from the oldest, which is 0, or with its newest if it
    /// has fewer. Removed names are shown too.
    Version(usize),
}

impl fmt::Display for Past {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsOf(time) => {
                let time = Time::from_nanosecond(i128::from(time.0)).unwrap_or_default();
                write!(f, "as of {time:.0}")
            }
            Self::Version(0) => write!(f, "in its oldest versions"),
            Self::Version(number) => write!(f, "in version {} of each name", number + 1),
        }
    }
}
