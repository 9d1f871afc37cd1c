//! The names of exports.
//!
//! ```text
//! vm1/vda                     the disk in the newest snapshot that has it
//! vm1/vda@latest              the same
//! vm1/vda@2026-11-20          in the newest snapshot of that day
//! vm1/vda@0123abcd            in the snapshot whose identifier begins so
//! ```

use std::fmt;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use strongroom_base::Timestamp;

/// How many digits of an identifier are needed at least.
const ID_DIGITS_MIN: usize = 4;

/// An export's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportName {
    /// Machine and disk, such as `vm1/vda`.
    pub disk: String,
    /// Of which snapshot.
    pub which: Which,
}

/// Which of the snapshots that have a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The newest.
    Latest,
    /// The newest of a day.
    Day(Date),
    /// The one whose identifier begins so.
    Id(String),
}

impl ExportName {
    /// Reads a name. What follows the last `@` says which snapshot, if it has the form of that;
    /// otherwise it belongs to the name of the disk.
    pub fn parse(text: &str) -> Self {
        let text = text.strip_prefix('/').unwrap_or(text);
        if let Some((disk, which)) = text.rsplit_once('@')
            && let Some(which) = Which::parse(which)
        {
            return Self { disk: disk.to_owned(), which };
        }
        Self { disk: text.to_owned(), which: Which::Latest }
    }
}

impl Which {
    fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        if text.len() == 10
            && text.as_bytes()[4] == b'-'
            && let Ok(date) = text.parse::<Date>()
        {
            return Some(Self::Day(date));
        }
        let is_id = (ID_DIGITS_MIN..=32).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| Self::Id(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for ExportName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.which {
            Which::Latest => write!(f, "{}@latest", self.disk),
            Which::Day(day) => write!(f, "{}@{day}", self.disk),
            Which::Id(id) => write!(f, "{}@{id}", self.disk),
        }
    }
}

/// The day of a moment.
pub fn day_of(moment: Timestamp, zone: &TimeZone) -> Date {
    let instant = jiff::Timestamp::from_nanosecond(i128::from(moment.0))
        .expect("64 bits of nanoseconds end in 2262, jiff's years end in 9999");
    zone.to_datetime(instant).date()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_which_night() {
        let day = jiff::civil::date(2026, 11, 20);
        for (text, disk, which) in [
            ("vm1/vda", "vm1/vda", Which::Latest),
            ("/vm1/vda", "vm1/vda", Which::Latest),
            ("vm1/vda@latest", "vm1/vda", Which::Latest),
            ("vm1/vda@2026-11-20", "vm1/vda", Which::Day(day)),
            ("vm1/vda@2026-11-31", "vm1/vda@2026-11-31", Which::Latest),
            ("vm1/vda@0123ABCD", "vm1/vda", Which::Id("0123abcd".to_owned())),
            ("vm1/vda@20261120", "vm1/vda", Which::Id("20261120".to_owned())),
            ("vm1/vda@abc", "vm1/vda@abc", Which::Latest),
            ("me@work/vda", "me@work/vda", Which::Latest),
            ("me@work/vda@latest", "me@work/vda", Which::Latest),
            ("vm1/vda@2026-\u{e4}-2", "vm1/vda@2026-\u{e4}-2", Which::Latest),
            ("", "", Which::Latest),
        ] {
            let expected = ExportName { disk: disk.to_owned(), which };
            assert_eq!(ExportName::parse(text), expected, "{text}");
            assert_eq!(ExportName::parse(&expected.to_string()), expected);
        }
    }

    #[test]
    fn a_day_is_one_of_the_zone() {
        let before_midnight = Timestamp(1_785_448_741_000_000_000);
        let day = |zone| day_of(before_midnight, &zone).to_string();
        assert_eq!(day(TimeZone::UTC), "2026-07-30");
        assert_eq!(day(TimeZone::fixed(jiff::tz::offset(3))), "2026-07-31");
    }
}
