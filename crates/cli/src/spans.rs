//! Spans of time as people write them. In other backup programs `6m` is six months, to a reader it
//! may be six minutes: it is neither here, and is refused with both words.

/// Units from the longest to the shortest, with the names of each, and seconds.
///
/// A month and a year are as long as the longest of them: rules keep rather more than less.
const UNITS: [(&[&str], i64); 7] = [
    (&["y"], 366 * DAY),
    (&["mo"], 31 * DAY),
    (&["w"], 7 * DAY),
    (&["d"], DAY),
    (&["h", "H"], 3600),
    (&["min"], 60),
    (&["s"], 1),
];
const DAY: i64 = 86_400;

/// Where months and minutes are among the units.
const MONTH: usize = 1;
const YEAR: usize = 0;
const HOUR: usize = 4;

/// A span such as `90s`, `36h`, `14d`, `6mo`, `5h30min` or `1y5mo7d2h`, in nanoseconds. The units
/// come from the longest to the shortest.
///
/// As restic writes them, months may be `m` where only months can be meant: behind years, or in
/// front of weeks, days or hours, as in `1y5m7d2h`.
pub fn parse(text: &str) -> Result<i64, String> {
    let wrong =
        || "write numbers with y, mo, w, d, h, min or s, such as 36h, 14d, 6mo or 1y6mo".to_owned();
    let parts = parts(text).ok_or_else(wrong)?;
    let units: Vec<Option<usize>> = parts.iter().map(|(_, name)| unit(name)).collect();
    let (mut seconds, mut longest) = (0_i64, None);
    for (place, (number, name)) in parts.iter().enumerate() {
        let before = place.checked_sub(1).and_then(|before| units[before]);
        let after = units.get(place + 1).copied().flatten();
        let is_month = before == Some(YEAR)
            || before.is_none() && after.is_some_and(|after| (MONTH + 1..=HOUR).contains(&after));
        let unit = match (units[place], *name) {
            (Some(unit), _) => unit,
            (None, "m") if is_month => MONTH,
            (None, "m" | "M") => {
                return Err(format!(
                    "\"{number}{name}\" may be minutes or months: write {number}min or {number}mo"
                ));
            }
            _ => return Err(wrong()),
        };
        if longest.is_some_and(|longest| unit <= longest) {
            return Err("write the longest unit first, and each once, such as 1y5mo7d2h".to_owned());
        }
        longest = Some(unit);
        let number: u32 = number.parse().map_err(|_| wrong())?;
        seconds = seconds.saturating_add(i64::from(number).saturating_mul(UNITS[unit].1));
    }
    seconds.checked_mul(1_000_000_000).ok_or_else(|| "longer than 292 years".to_owned())
}

/// The span of a line that `schedule` wrote before `m` was refused: minutes, as nothing else is a
/// jitter.
pub fn parse_jitter(text: &str) -> Result<i64, String> {
    match text.strip_suffix('m').filter(|number| number.bytes().all(|byte| byte.is_ascii_digit())) {
        Some(number) => parse(&format!("{number}min")),
        None => parse(text),
    }
}

/// Whether a text that is no span was probably meant as one.
pub fn is_meant(text: &str) -> bool {
    let is_word = |name: &str| name.chars().all(char::is_alphabetic);
    parts(text).is_some_and(|parts| parts.iter().all(|(_, name)| is_word(name)))
}

/// Numbers, each with the letters behind it.
fn parts(text: &str) -> Option<Vec<(&str, &str)>> {
    let (mut rest, mut parts) = (text, Vec::new());
    while !rest.is_empty() {
        let letters = rest.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0)?;
        let (number, behind) = rest.split_at(letters);
        let end = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (name, next) = behind.split_at(end);
        parts.push((number, name));
        rest = next;
    }
    (!parts.is_empty()).then_some(parts)
}

fn unit(name: &str) -> Option<usize> {
    UNITS.iter().position(|(names, _)| names.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60;
    const HOURS: i64 = 3600;

    #[test]
    fn spans_are_what_they_say() {
        for (text, seconds) in [
            ("0d", 0),
            ("90s", 90),
            ("90min", 90 * MINUTE),
            ("36h", 36 * HOURS),
            ("24H", 24 * HOURS),
            ("8w", 56 * DAY),
            ("6mo", 186 * DAY),
            ("2y", 732 * DAY),
            ("5h30min", 5 * HOURS + 30 * MINUTE),
            ("1y5mo7d2h", 366 * DAY + 155 * DAY + 7 * DAY + 2 * HOURS),
            ("1mo1min", 31 * DAY + MINUTE),
        ] {
            assert_eq!(parse(text), Ok(seconds * 1_000_000_000), "{text}");
        }
        for (text, part) in [
            ("292y", "292 years"),
            ("4294967295w", "292 years"),
            ("99999999999d", "write numbers"),
            ("-1d", "write numbers"),
            ("7", "write numbers"),
            ("7ä", "write numbers"),
            ("7 d", "write numbers"),
            ("1.5h", "write numbers"),
            ("d", "write numbers"),
            ("", "write numbers"),
            ("1h2d", "longest unit first"),
            ("1d1d", "longest unit first"),
        ] {
            assert!(parse(text).unwrap_err().contains(part), "{text}");
        }
    }

    /// In restic and Borg six months, and here it was six minutes: a year of snapshots went.
    #[test]
    fn kept_1_5_m_alone_is_neither_minutes_nor_months() {
        for text in ["6m", "3M", "5h30m", "2d30m", "1w5m", "6m30s", "6m30min", "1y3M", "1mo6m"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("min") && error.contains("mo"), "{text}: {error}");
        }
        assert_eq!(parse("6m").unwrap_err(), "\"6m\" may be minutes or months: write 6min or 6mo");
        for (restic, ours) in [
            ("1y5m7d2h", "1y5mo7d2h"),
            ("1y6m", "1y6mo"),
            ("5m7d", "5mo7d"),
            ("2m1w", "2mo1w"),
            ("3m12h", "3mo12h"),
        ] {
            assert_eq!(parse(restic), parse(ours), "{restic}");
        }
        assert!(parse("1y5m5m7d").is_err());
    }

    #[test]
    fn a_line_of_cron_that_was_written_before_still_runs() {
        assert_eq!(parse_jitter("60m"), parse("60min"));
        assert_eq!(parse_jitter("0m"), Ok(0));
        assert_eq!(parse_jitter("30s"), parse("30s"));
        assert!(parse_jitter("1h5m").is_err() && parse_jitter("m").is_err());
    }
}
