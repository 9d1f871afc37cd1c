//! The times of DOS: years since 1980, in steps of two seconds.

use strongroom_base::Timestamp;

/// The time that a date and a time of DOS name, if the clock on the wall showed UTC.
///
/// A field that is out of its range counts as the nearest one in it.
pub(crate) fn timestamp(date: u16, time: u16) -> Timestamp {
    let (date, time) = (i64::from(date), i64::from(time));
    let days = days(1980 + (date >> 9), ((date >> 5) & 15).clamp(1, 12), (date & 31).max(1));
    let (hours, minutes, seconds) =
        ((time >> 11).min(23), ((time >> 5) & 63).min(59), ((time & 31) * 2).min(59));
    Timestamp((days * 86400 + hours * 3600 + minutes * 60 + seconds) * 1_000_000_000)
}

/// Days since 1970 (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let seconds = |date, time| timestamp(date, time).0 / 1_000_000_000;
        assert_eq!(seconds(0, 0), 315_532_800, "1980-01-01");
        assert_eq!(seconds(20 << 9 | 2 << 5 | 29, 23 << 11 | 59 << 5 | 29), 951_868_798);
        assert_eq!(seconds(46 << 9 | 11 << 5 | 25, 0), 1_795_564_800, "2026-11-25");
        assert_eq!(seconds(u16::MAX, u16::MAX), 4_354_819_199, "2107-12-31, the last second");
    }
}
