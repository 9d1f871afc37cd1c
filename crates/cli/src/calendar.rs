//! A calendar of what rules do: on which days snapshots stay, and on which they go.
//!
//! It says everything by characters, so it can be read without colours, and on paper.

use std::collections::BTreeMap;

use jiff::civil::Date;

/// What becomes of the snapshots of one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// All stay.
    Stays,
    /// All go.
    Goes,
    /// Some stay, some go.
    Both,
    /// At least one is held.
    Held,
    /// At least one is suspicious.
    Suspicious,
}

/// The marks, and what they mean.
const MARKS: [(Mark, char, &str); 5] = [
    (Mark::Stays, '+', "stays"),
    (Mark::Goes, '-', "goes"),
    (Mark::Both, '*', "some stay, some go"),
    (Mark::Held, '#', "held"),
    (Mark::Suspicious, '!', "suspicious"),
];

impl Mark {
    /// The mark of a day with both: what is held or suspicious is shown first.
    pub fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Suspicious, _) | (_, Self::Suspicious) => Self::Suspicious,
            (Self::Held, _) | (_, Self::Held) => Self::Held,
            (one, other) if one == other => one,
            _ => Self::Both,
        }
    }

    fn character(self) -> char {
        MARKS.iter().find(|(mark, ..)| *mark == self).map_or('?', |(_, character, _)| *character)
    }

    /// The number of a colour that every terminal has.
    fn colour(self) -> u8 {
        match self {
            Self::Stays => 32,
            Self::Goes => 31,
            Self::Both => 33,
            Self::Held => 36,
            Self::Suspicious => 35,
        }
    }
}

/// What the marks mean.
pub fn legend() -> String {
    let marks: Vec<String> =
        MARKS.iter().map(|(_, mark, meaning)| format!("{mark} {meaning}")).collect();
    marks.join("   ")
}

/// The months that have a day, a week in a line.
pub fn calendar(days: &BTreeMap<Date, Mark>, colours: bool) -> Vec<String> {
    let mut months: Vec<Date> = days.keys().map(|day| day.first_of_month()).collect();
    months.dedup();
    months.into_iter().flat_map(|month| month_lines(month, days, colours)).collect()
}

fn month_lines(first: Date, days: &BTreeMap<Date, Mark>, colours: bool) -> Vec<String> {
    let title = first.strftime("%B %Y").to_string();
    let head = ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"].join("   ");
    let mut lines = vec![title, head];
    let mut line = "     ".repeat(first.weekday().to_monday_zero_offset() as usize);
    for number in 1..=first.days_in_month() {
        let day = first.with().day(number).build().unwrap_or(first);
        let mark = days.get(&day);
        let cell = format!("{number:>2}{}", mark.map_or(' ', |mark| mark.character()));
        match mark.filter(|_| colours) {
            Some(mark) => line.push_str(&format!("\u{1b}[{}m{cell}\u{1b}[0m  ", mark.colour())),
            None => line.push_str(&format!("{cell}  ")),
        }
        if day.weekday() == jiff::civil::Weekday::Sunday || number == first.days_in_month() {
            lines.push(line.trim_end().to_owned());
            line.clear();
        }
    }
    lines.push(String::new());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days() -> BTreeMap<Date, Mark> {
        let day = |text: &str| text.parse::<Date>().unwrap();
        BTreeMap::from([
            (day("2026-02-28"), Mark::Held),
            (day("2026-11-01"), Mark::Stays),
            (day("2026-11-02"), Mark::Goes),
            (day("2026-11-09"), Mark::Both),
            (day("2026-11-30"), Mark::Suspicious),
        ])
    }

    #[test]
    fn months_are_weeks_of_days() {
        let expected = "\
February 2026
Mo   Tu   We   Th   Fr   Sa   Su
                               1
 2    3    4    5    6    7    8
 9   10   11   12   13   14   15
16   17   18   19   20   21   22
23   24   25   26   27   28#

November 2026
Mo   Tu   We   Th   Fr   Sa   Su
                               1+
 2-   3    4    5    6    7    8
 9*  10   11   12   13   14   15
16   17   18   19   20   21   22
23   24   25   26   27   28   29
30!
";
        assert_eq!(calendar(&days(), false).join("\n"), expected);
        assert_eq!(calendar(&BTreeMap::new(), false), Vec::<String>::new());
        assert!(legend().contains("# held"));
    }

    #[test]
    fn colours_change_nothing_else() {
        let coloured = calendar(&days(), true).join("\n");
        assert!(coloured.contains("\u{1b}[31m 2-\u{1b}[0m"));
        let mut plain = coloured;
        for code in ["31", "32", "33", "35", "36", "0"] {
            plain = plain.replace(&format!("\u{1b}[{code}m"), "");
        }
        assert_eq!(plain, calendar(&days(), false).join("\n"));
    }

    #[test]
    fn what_the_owner_must_see_is_seen() {
        assert_eq!(Mark::Stays.with(Mark::Stays), Mark::Stays);
        assert_eq!(Mark::Stays.with(Mark::Goes), Mark::Both);
        assert_eq!(Mark::Goes.with(Mark::Held), Mark::Held);
        assert_eq!(Mark::Held.with(Mark::Suspicious), Mark::Suspicious);
    }
}
