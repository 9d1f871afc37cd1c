//! Dates as people write and read them, in their own time zone.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};
use strongroom_base::Timestamp;
use strongroom_upkeep::Periods;

/// The last moment that a date or time of day means: a day means its end, a minute its last
/// second.
pub fn last_moment(text: &str) -> Option<Timestamp> {
    last_moment_at(text, &Zoned::now())
}

fn last_moment_at(text: &str, now: &Zoned) -> Option<Timestamp> {
    let end_of_day = Time::constant(23, 59, 59, 999_999_999);
    let civil: DateTime = match text {
        "now" => return Some(timestamp(now)),
        "today" => now.date().to_datetime(end_of_day),
        "yesterday" => now.date().checked_sub(1.day()).ok()?.to_datetime(end_of_day),
        _ => match text.len() {
            10 => text.parse::<Date>().ok()?.to_datetime(end_of_day),
            16 => {
                let minute: DateTime = format!("{}:59", text.replace(' ', "T")).parse().ok()?;
                minute.with().subsec_nanosecond(999_999_999).build().ok()?
            }
            19 => {
                let second: DateTime = text.replace(' ', "T").parse().ok()?;
                second.with().subsec_nanosecond(999_999_999).build().ok()?
            }
            _ => return None,
        },
    };
    civil.to_zoned(now.time_zone().clone()).ok().map(|zoned| timestamp(&zoned))
}

/// A span of time such as `36h`, `14d` or `8w`, in nanoseconds.
pub fn span(text: &str) -> Result<i64, String> {
    let wrong = || "write a number and m, h, d, w or y, such as 36h or 14d".to_owned();
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let seconds: i64 = match unit {
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        "y" => 366 * 86_400,
        _ => return Err(wrong()),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    let span = i64::from(number).checked_mul(seconds * 1_000_000_000);
    span.ok_or_else(|| "longer than 292 years".to_owned())
}

/// The hour, day, week, month and year of a time, in the user's time zone.
pub fn periods(time: Timestamp) -> Periods {
    let moment = jiff::Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or_default();
    periods_in(&moment.to_zoned(TimeZone::system()))
}

fn periods_in(moment: &Zoned) -> Periods {
    let date = moment.date();
    let epoch = Date::constant(1970, 1, 1);
    let day = i64::from(date.since(epoch).map_or(0, |span| span.get_days()));
    let (year, month) = (i64::from(date.year()), i64::from(date.month()));
    Periods {
        hour: moment.timestamp().as_second().div_euclid(3600),
        day,
        // The epoch was a Thursday.
        week: (day + 3).div_euclid(7),
        month: year * 12 + month,
        year,
    }
}

fn timestamp(zoned: &Zoned) -> Timestamp {
    let nanos = zoned.timestamp().as_nanosecond();
    match i64::try_from(nanos) {
        Ok(nanos) => Timestamp(nanos),
        Err(_) if nanos < 0 => Timestamp::EARLIEST,
        Err(_) => Timestamp::LATEST,
    }
}

/// `2026-11-21 12:30:05`. A time at either end of what can be recorded is not exact.
pub fn text(time: Timestamp) -> String {
    match time {
        Timestamp::LATEST => "2262 or later".to_owned(),
        Timestamp::EARLIEST => "1677 or earlier".to_owned(),
        time => in_zone(time, TimeZone::system()),
    }
}

fn in_zone(time: Timestamp, zone: TimeZone) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(time.0)) {
        Ok(moment) => moment.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => format!("{} ns", time.0),
    }
}

/// `2026-11-21T11:30:05.123456789Z`, for programs.
pub fn rfc3339(time: Timestamp) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_mean_their_last_moment() {
        let now: Zoned = "2026-11-21T12:30:05+01:00[+01:00]".parse().unwrap();
        let at = |text: &str| {
            last_moment_at(text, &now).map(|time| in_zone(time, now.time_zone().clone()))
        };
        for (text, moment) in [
            ("2026-11-20", "2026-11-20 23:59:59"),
            ("2026-11-20 08:15", "2026-11-20 08:15:59"),
            ("2026-11-20T08:15:10", "2026-11-20 08:15:10"),
            ("today", "2026-11-21 23:59:59"),
            ("yesterday", "2026-11-20 23:59:59"),
            ("now", "2026-11-21 12:30:05"),
        ] {
            assert_eq!(at(text).as_deref(), Some(moment), "{text}");
        }
        for text in
            ["", "2026-13-01", "2026-11-31", "soon", "deadbeef", "20261120", "2026-11-20T08"]
        {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn years_that_cannot_be_recorded_keep_their_side() {
        let now = Zoned::now();
        assert_eq!(last_moment_at("2300-01-01", &now), Some(Timestamp::LATEST));
        assert_eq!(last_moment_at("1066-10-14", &now), Some(Timestamp::EARLIEST));
        assert_eq!(text(Timestamp::LATEST), "2262 or later");
        assert_eq!(in_zone(Timestamp(-1), TimeZone::UTC), "1969-12-31 23:59:59");
    }
}
