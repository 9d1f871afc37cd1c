//! When something recurs, as a person writes it.

use jiff::civil::{Date, Time, Weekday};
use jiff::{ToSpan, Zoned};

/// When something recurs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Calendar {
    /// At each full hour.
    Hourly,
    /// At these times of these days; of all if none is named.
    Days {
        /// The days.
        days: Vec<Weekday>,
        /// Minutes of the day, sorted.
        minutes: Vec<u16>,
    },
    /// At midnight before the first day of each month.
    Monthly,
    /// What only systemd understands.
    Systemd(String),
}

const DAYS: [(&str, Weekday); 7] = [
    ("Mon", Weekday::Monday),
    ("Tue", Weekday::Tuesday),
    ("Wed", Weekday::Wednesday),
    ("Thu", Weekday::Thursday),
    ("Fri", Weekday::Friday),
    ("Sat", Weekday::Saturday),
    ("Sun", Weekday::Sunday),
];

impl Calendar {
    /// `hourly`, `daily`, `weekly`, `monthly`, `02:30`, `Mon,Thu 02:30,14:00`, or anything that
    /// systemd knows as a calendar.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text.contains(['\n', '\r', '\0']) {
            return Err("write daily, 02:30 or Mon,Thu 02:30".to_owned());
        }
        Ok(match text {
            "hourly" => Self::Hourly,
            "daily" => Self::Days { days: Vec::new(), minutes: vec![0] },
            "weekly" => Self::Days { days: vec![Weekday::Monday], minutes: vec![0] },
            "monthly" => Self::Monthly,
            text => match days_and_times(text) {
                Some((days, minutes)) => Self::Days { days, minutes },
                None if has_wrong_time(text) => {
                    return Err(
                        "there is no such time of day: write 02:30 or 2:30,14:00".to_owned()
                    );
                }
                None if text.contains(|c: char| c.is_ascii_digit() || c == '*')
                    || is_word(text) =>
                {
                    Self::Systemd(text.to_owned())
                }
                None => {
                    return Err(format!(
                        "\"{text}\" is no calendar: write daily, 02:30 or Mon,Thu 02:30"
                    ));
                }
            },
        })
    }

    /// As systemd writes it (systemd.time(7)).
    pub fn to_systemd(&self) -> String {
        match self {
            Self::Hourly => "hourly".to_owned(),
            Self::Monthly => "monthly".to_owned(),
            Self::Systemd(text) => text.clone(),
            Self::Days { days, minutes } => {
                let names = days.iter().filter_map(|day| DAYS.iter().find(|(_, one)| one == day));
                let names: Vec<&str> = names.map(|(name, _)| *name).collect();
                let day = if names.is_empty() { String::new() } else { names.join(",") + " " };
                let each =
                    minutes.iter().map(|at| format!("{day}*-*-* {:02}:{:02}:00", at / 60, at % 60));
                each.collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// The last moment up to a time at which it was due, both in nanoseconds since 1970; none if
    /// only systemd can say.
    pub fn last_due(&self, now: i64) -> Option<i64> {
        let now = jiff::Timestamp::from_nanosecond(i128::from(now)).unwrap_or_default();
        let due = self.last_due_at(&now.to_zoned(jiff::tz::TimeZone::system()))?;
        i64::try_from(due.timestamp().as_nanosecond()).ok()
    }

    /// The first moment after a time at which it is due; none if only systemd can say.
    pub fn next_due(&self, now: i64) -> Option<i64> {
        let now = jiff::Timestamp::from_nanosecond(i128::from(now)).unwrap_or_default();
        let due = self.next_due_at(&now.to_zoned(jiff::tz::TimeZone::system()))?;
        i64::try_from(due.timestamp().as_nanosecond()).ok()
    }

    fn next_due_at(&self, now: &Zoned) -> Option<Zoned> {
        match self {
            Self::Hourly => self.last_due_at(now)?.checked_add(1.hour()).ok(),
            Self::Monthly => {
                let first = now.date().first_of_month().checked_add(1.month()).ok()?;
                first.at(0, 0, 0, 0).to_zoned(now.time_zone().clone()).ok()
            }
            Self::Days { days, minutes } => (0..=8).find_map(|ahead| {
                let date = now.date().checked_add(ahead.days()).ok()?;
                let is_one = days.is_empty() || days.contains(&date.weekday());
                let mut times = moments(date, minutes, now.time_zone());
                if is_one { times.find(|at| at > now) } else { None }
            }),
            Self::Systemd(_) => None,
        }
    }

    fn last_due_at(&self, now: &Zoned) -> Option<Zoned> {
        match self {
            Self::Hourly => {
                let rest = now.timestamp().as_nanosecond().rem_euclid(3_600_000_000_000);
                now.checked_sub(i64::try_from(rest).ok()?.nanoseconds()).ok()
            }
            Self::Monthly => {
                let first = Date::new(now.year(), now.month(), 1).ok()?;
                first.at(0, 0, 0, 0).to_zoned(now.time_zone().clone()).ok()
            }
            Self::Days { days, minutes } => (0..=7).find_map(|back| {
                let date = now.date().checked_sub(back.days()).ok()?;
                if !days.is_empty() && !days.contains(&date.weekday()) {
                    return None;
                }
                moments(date, minutes, now.time_zone()).rev().find(|at| at <= now)
            }),
            Self::Systemd(_) => None,
        }
    }
}

/// As a person writes it.
impl std::fmt::Display for Calendar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Hourly => f.write_str("hourly"),
            Self::Monthly => f.write_str("monthly"),
            Self::Systemd(text) => f.write_str(text),
            Self::Days { days, minutes } => {
                let names = days.iter().filter_map(|day| DAYS.iter().find(|(_, one)| one == day));
                let names: Vec<&str> = names.map(|(name, _)| *name).collect();
                let times = minutes.iter().map(|at| format!("{:02}:{:02}", at / 60, at % 60));
                let times = times.collect::<Vec<_>>().join(",");
                match names.is_empty() {
                    true => f.write_str(&times),
                    false => write!(f, "{} {times}", names.join(",")),
                }
            }
        }
    }
}

/// These minutes of a day.
fn moments(
    date: Date,
    minutes: &[u16],
    zone: &jiff::tz::TimeZone,
) -> impl DoubleEndedIterator<Item = Zoned> {
    minutes.iter().filter_map(move |minute| {
        let time = Time::new((minute / 60) as i8, (minute % 60) as i8, 0, 0).ok()?;
        date.to_datetime(time).to_zoned(zone.clone()).ok()
    })
}

/// Names that systemd has for calendars beside ours.
fn is_word(text: &str) -> bool {
    matches!(text, "minutely" | "yearly" | "annually" | "quarterly" | "semiannually")
}

/// Whether its times are of our own form, and one of them is none: systemd would refuse it, too, but
/// a machine may have none.
fn has_wrong_time(text: &str) -> bool {
    let times = text.rsplit(' ').next().unwrap_or_default();
    times.split(',').any(|time| {
        let numbers: Option<Vec<u32>> = time.split(':').map(|part| part.parse().ok()).collect();
        match numbers.as_deref() {
            Some([hour, rest @ ..]) => *hour > 23 || rest.iter().any(|part| *part > 59),
            _ => false,
        }
    })
}

fn days_and_times(text: &str) -> Option<(Vec<Weekday>, Vec<u16>)> {
    let (days, times) =
        text.rsplit_once(' ').map_or((None, text), |(days, times)| (Some(days), times));
    let mut found = Vec::new();
    for part in days.into_iter().flat_map(|days| days.split(',')) {
        let number = |name: &str| DAYS.iter().position(|(one, _)| name.trim().starts_with(one));
        match part.split_once("..") {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                found.extend(
                    (first..=if last < first { last + 7 } else { last }).map(|day| DAYS[day % 7].1),
                );
            }
            None => found.push(DAYS[number(part)?].1),
        }
    }
    let mut minutes = Vec::new();
    for time in times.split(',') {
        let (hour, minute) = time.split_once(':')?;
        let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
        if hour > 23 || minute > 59 || time.len() > 5 {
            return None;
        }
        minutes.push(hour * 60 + minute);
    }
    minutes.sort_unstable();
    Some((found, minutes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendars_are_what_people_write() {
        for (text, systemd) in [
            ("hourly", "hourly"),
            ("daily", "*-*-* 00:00:00"),
            ("weekly", "Mon *-*-* 00:00:00"),
            ("monthly", "monthly"),
            ("02:30", "*-*-* 02:30:00"),
            ("2:30,14:00", "*-*-* 02:30:00\n*-*-* 14:00:00"),
            ("Mon..Wed,Sun 02:30", "Mon,Tue,Wed,Sun *-*-* 02:30:00"),
            ("Sat..Mon 4:00", "Sat,Sun,Mon *-*-* 04:00:00"),
            ("*-*-01 04:00", "*-*-01 04:00"),
            ("quarterly", "quarterly"),
            ("*:0/15", "*:0/15"),
            ("02:30:15", "02:30:15"),
        ] {
            assert_eq!(Calendar::parse(text).unwrap().to_systemd(), systemd, "{text}");
        }
        for wrong in
            ["", "sometimes", "02:30\nExecStart=evil", "25:99", "Mon 2:30,24:00", "02:60", "0230"]
        {
            assert!(Calendar::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_next_moment_that_is_due() {
        // A Wednesday.
        let now: Zoned = "2026-11-25T12:30:05+01:00[Europe/Berlin]".parse().unwrap();
        for (text, due) in [
            ("hourly", "2026-11-25T13:00:00"),
            ("daily", "2026-11-26T00:00:00"),
            ("weekly", "2026-11-30T00:00:00"),
            ("monthly", "2026-12-01T00:00:00"),
            ("12:30", "2026-11-26T12:30:00"),
            ("12:31", "2026-11-25T12:31:00"),
            ("2:00,12:00,23:00", "2026-11-25T23:00:00"),
            ("Wed 12:30", "2026-12-02T12:30:00"),
        ] {
            let next = Calendar::parse(text).unwrap().next_due_at(&now).unwrap();
            assert_eq!(next.datetime().to_string(), due, "{text}");
        }
        assert_eq!(Calendar::parse("*-*-01").unwrap().next_due_at(&now), None);
    }

    #[test]
    fn the_last_moment_that_was_due() {
        // A Wednesday.
        let now: Zoned = "2026-11-25T12:30:05+01:00[Europe/Berlin]".parse().unwrap();
        for (text, due) in [
            ("hourly", "2026-11-25T12:00:00"),
            ("daily", "2026-11-25T00:00:00"),
            ("weekly", "2026-11-23T00:00:00"),
            ("monthly", "2026-11-01T00:00:00"),
            ("12:30", "2026-11-25T12:30:00"),
            ("12:31", "2026-11-24T12:31:00"),
            ("2:00,12:00,23:00", "2026-11-25T12:00:00"),
            ("Wed 12:31", "2026-11-18T12:31:00"),
            ("Thu 00:00", "2026-11-19T00:00:00"),
        ] {
            let last = Calendar::parse(text).unwrap().last_due_at(&now).unwrap();
            assert_eq!(last.datetime().to_string(), due, "{text}");
        }
        assert_eq!(Calendar::parse("*-*-01").unwrap().last_due_at(&now), None);
        // That time did not exist on that day: clocks were put forward. It is due all the same.
        let spring: Zoned = "2026-03-29T12:00:00+02:00[Europe/Berlin]".parse().unwrap();
        let last = Calendar::parse("02:30").unwrap().last_due_at(&spring).unwrap();
        assert_eq!(last.date(), spring.date());
    }
}
