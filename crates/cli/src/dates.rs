//! Dates as people write and read them, in their own time zone.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};
use strongroom_base::Timestamp;
use strongroom_base::units::duration_text;
use strongroom_upkeep::Periods;

/// The last moment that a date or time of day means: a day means its end, a minute its last
/// second.
pub fn last_moment(text: &str) -> Option<Timestamp> {
    last_moment_at(text, &Zoned::now())
}

/// The first moment that a date or time of day means.
pub fn first_moment(text: &str) -> Option<Timestamp> {
    first_moment_at(text, &Zoned::now())
}

fn first_moment_at(text: &str, now: &Zoned) -> Option<Timestamp> {
    let last = last_moment_at(text, now)?;
    if text == "now" || matches!(last, Timestamp::LATEST | Timestamp::EARLIEST) {
        return Some(last);
    }
    let moment = jiff::Timestamp::from_nanosecond(i128::from(last.0)).ok()?;
    let civil = moment.to_zoned(now.time_zone().clone()).datetime();
    let first = match text.len() {
        16 => civil.with().second(0).subsec_nanosecond(0).build().ok()?,
        19 => civil.with().subsec_nanosecond(0).build().ok()?,
        _ => civil.date().to_datetime(Time::midnight()),
    };
    first.to_zoned(now.time_zone().clone()).ok().map(|zoned| timestamp(&zoned))
}

/// The moment that is a span of nanoseconds before now.
pub fn ago(span: i64) -> Timestamp {
    Timestamp(timestamp(&Zoned::now()).0.saturating_sub(span))
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

/// The hour, day, week, month and year of a time, in the user's time zone.
pub fn periods(time: Timestamp) -> Periods {
    let moment = jiff::Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or_default();
    periods_in(&moment.to_zoned(TimeZone::system()))
}

/// The day of a time, in the user's time zone.
pub fn day(time: Timestamp) -> Date {
    let moment = jiff::Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or_default();
    moment.to_zoned(TimeZone::system()).date()
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

/// Whether a time is further in the future than clocks that are put right may make it.
pub fn is_in_future(time: Timestamp, now: Timestamp) -> bool {
    const SLACK: i64 = 3_600_000_000_000;
    time.0 > now.0.saturating_add(SLACK)
}

/// How long ago a time is, in words.
pub fn age_text(then: Timestamp, now: Timestamp) -> String {
    let nanos = now.0.saturating_sub(then.0);
    let Ok(nanos) = u64::try_from(nanos) else { return "in the future".to_owned() };
    let days = nanos / 86_400_000_000_000;
    match days {
        0 if nanos < 1_000_000_000 => "just now".to_owned(),
        0 | 1 => format!("{} ago", duration_text(Duration::from_secs(nanos / 1_000_000_000))),
        days => format!("{days} days ago"),
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

/// `Sat 2026-11-21 12:30:05`, as systemd writes times that will come.
pub fn text_with_day(time: Timestamp) -> String {
    let moment = jiff::Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or_default();
    moment.to_zoned(TimeZone::system()).strftime("%a %Y-%m-%d %H:%M:%S").to_string()
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

/// The time that [`rfc3339`] wrote.
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let moment: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(moment.as_nanosecond()).ok().map(Timestamp)
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
        let first = |text: &str| {
            first_moment_at(text, &now).map(|time| in_zone(time, now.time_zone().clone()))
        };
        for (text, moment) in [
            ("2026-11-20", "2026-11-20 00:00:00"),
            ("2026-11-20 08:15", "2026-11-20 08:15:00"),
            ("2026-11-20T08:15:10", "2026-11-20 08:15:10"),
            ("yesterday", "2026-11-20 00:00:00"),
        ] {
            assert_eq!(first(text).as_deref(), Some(moment), "{text}");
        }
        for text in
            ["", "2026-13-01", "2026-11-31", "soon", "deadbeef", "20261120", "2026-11-20T08"]
        {
            assert_eq!(at(text), None, "{text}");
        }
    }

    /// The hours of each day from a first to a last one, in a zone.
    fn hours_of_days(zone: &str, first: &str, last: &str) -> Vec<usize> {
        let zone = TimeZone::get(zone).unwrap();
        let (first, last): (Date, Date) = (first.parse().unwrap(), last.parse().unwrap());
        let start = first.to_zoned(zone.clone()).unwrap().timestamp().as_second();
        let end = last.tomorrow().unwrap().to_zoned(zone.clone()).unwrap().timestamp().as_second();
        let moments = (start..end).step_by(3600);
        let periods: Vec<Periods> = moments
            .map(|second| jiff::Timestamp::from_second(second).unwrap().to_zoned(zone.clone()))
            .map(|moment| periods_in(&moment))
            .collect();
        let hours: std::collections::BTreeSet<i64> = periods.iter().map(|p| p.hour).collect();
        assert_eq!(hours.len(), periods.len(), "no two hours are one");
        periods.chunk_by(|a, b| a.day == b.day).map(<[Periods]>::len).collect()
    }

    #[test]
    fn days_have_the_hours_that_they_have() {
        assert_eq!(hours_of_days("Europe/Berlin", "2026-03-28", "2026-03-30"), [24, 23, 24]);
        assert_eq!(hours_of_days("Europe/Berlin", "2026-10-24", "2026-10-26"), [24, 25, 24]);
        // Here clocks change at midnight: the day begins at one o'clock.
        assert_eq!(hours_of_days("America/Sao_Paulo", "2018-11-03", "2018-11-05"), [24, 23, 24]);
        // There was no 30 December.
        assert_eq!(hours_of_days("Pacific/Apia", "2011-12-29", "2011-12-31"), [24, 24]);
    }

    #[test]
    fn weeks_begin_on_monday_and_cross_years() {
        let of = |text: &str| periods_in(&text.parse::<Zoned>().unwrap());
        let sunday = of("2026-12-27T23:59:59[Europe/Berlin]");
        let monday = of("2026-12-28T00:00:00[Europe/Berlin]");
        let new_year = of("2027-01-01T00:00:00[Europe/Berlin]");
        let next_sunday = of("2027-01-03T23:59:59[Europe/Berlin]");
        assert_eq!((sunday.week + 1, sunday.day + 1), (monday.week, monday.day));
        assert_eq!((monday.week, new_year.week), (new_year.week, next_sunday.week));
        assert_eq!((monday.month + 1, monday.year + 1), (new_year.month, new_year.year));
        // Before the epoch, too: 1969-12-29 was a Monday.
        let old = of("1969-12-28T12:00:00[UTC]");
        assert_eq!(old.week + 1, of("1969-12-29T00:00:00[UTC]").week);
        assert_eq!((old.year, old.month), (1969, 1969 * 12 + 12));
    }

    #[test]
    fn the_ends_of_recorded_time_have_periods() {
        assert_eq!(periods(Timestamp::LATEST).year, 2262);
        assert_eq!(periods(Timestamp::EARLIEST).year, 1677);
        assert_eq!(day(Timestamp::LATEST).year(), 2262);
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
