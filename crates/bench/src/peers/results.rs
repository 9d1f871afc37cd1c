//! What was measured: one file per data set, one JSON object per line, written after each
//! measurement. A run that is cut short loses nothing, and a report can be made again.

use std::borrow::Cow;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::measure::Usage;
use crate::shell::{Doing, Done, Failure, write};

/// A line of the file; its field `is` says which.
#[derive(Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
enum Line<'r> {
    /// The set, without its lists: the first line.
    Set(Cow<'r, SetResults>),
    Contender(Cow<'r, ContenderInfo>),
    Sample(Cow<'r, Sample>),
    Profile(Cow<'r, Profile>),
    Trouble(Cow<'r, Trouble>),
}

/// Everything that is known of one data set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SetResults {
    /// The data set.
    pub name: String,
    /// What it is.
    pub about: String,
    /// Files of each version.
    pub files: Vec<u64>,
    /// Bytes of each version.
    pub bytes: Vec<u64>,
    /// How often all was done.
    pub rounds: u32,
    /// Which commit of this repository measured.
    pub revision: String,
    /// Whether contenders went one after the other.
    pub apart: bool,
    /// Who was measured.
    #[serde(skip)]
    pub contenders: Vec<ContenderInfo>,
    /// Programs that were not there.
    pub absent: Vec<String>,
    /// Measurements, in the order in which they were made.
    #[serde(skip)]
    pub samples: Vec<Sample>,
    /// What was said of where time went, the last round's.
    #[serde(skip)]
    pub profiles: Vec<Profile>,
    /// Who failed, and how.
    #[serde(skip)]
    pub troubles: Vec<Trouble>,
}

/// Where a backup's time went, in its program's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Whose.
    pub contender: String,
    /// In which act.
    pub act: String,
    /// The words.
    pub line: String,
}

/// A program at one level of compression.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContenderInfo {
    /// Its name in samples.
    pub id: String,
    /// The program.
    pub tool: String,
    /// Its version, in its words.
    pub version: String,
    /// How it compresses, in its words.
    pub level: String,
    /// Whether that is its default.
    pub is_default: bool,
    /// Whether that is the level at which all are compared.
    pub is_equal: bool,
    /// What readers should know.
    pub note: String,
    /// Commands, as typed.
    pub commands: Vec<String>,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// From 1.
    pub round: u32,
    /// A contender's id, or `floor`.
    pub subject: String,
    /// The act's or the floor's name.
    pub act: String,
    /// What it took.
    pub usage: Usage,
    /// Bytes in the repository afterwards; of a compressed stream, its length.
    pub stored: Option<u64>,
    /// By how much that is more than before.
    pub added: Option<i64>,
}

/// Something that should not have happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// Who.
    pub contender: String,
    /// In which act.
    pub act: String,
    /// What, in one line.
    pub what: String,
    /// Whether a restored tree was not what was stored.
    pub is_unequal: bool,
}

/// The contender that is Strongroom at its defaults.
pub const OURS: &str = "strongroom";

/// The subject of samples that are floors.
pub const FLOOR: &str = "floor";

impl SetResults {
    /// All measurements of an act.
    pub fn of<'r>(&'r self, subject: &'r str, act: &'r str) -> impl Iterator<Item = &'r Sample> {
        self.samples.iter().filter(move |sample| sample.subject == subject && sample.act == act)
    }

    /// The median of something over all rounds.
    pub fn median(&self, subject: &str, act: &str, of: impl Fn(&Sample) -> f64) -> Option<f64> {
        median(self.of(subject, act).map(of).collect())
    }

    /// Names of acts that were measured and begin so, in the order in which they first came.
    pub fn acts(&self, prefix: &str) -> Vec<String> {
        let mut acts: Vec<String> = Vec::new();
        for sample in self.samples.iter().filter(|sample| sample.subject != FLOOR) {
            if sample.act.starts_with(prefix) && !acts.contains(&sample.act) {
                acts.push(sample.act.clone());
            }
        }
        acts
    }

    /// Who sat out all rounds but the first, where there were more.
    pub fn measured_once(&self) -> Vec<&str> {
        let came_back = |info: &&ContenderInfo| {
            self.samples.iter().any(|sample| sample.subject == info.id && sample.round > 1)
        };
        let later = self.samples.iter().any(|sample| sample.round > 1);
        let ids = self.contenders.iter().filter(|info| later && !came_back(info));
        ids.map(|info| &*info.id).collect()
    }

    /// The most memory that a contender took in any act.
    pub fn peak_kib(&self, subject: &str) -> Option<u64> {
        let of = self.samples.iter().filter(|sample| sample.subject == subject);
        of.map(|sample| sample.usage.peak_kib).max()
    }

    /// Writes everything.
    pub fn save(&self, path: &Path) -> Done {
        write(path, self.to_text())
    }

    /// Reads what [`SetResults::save`] wrote.
    pub fn load(path: &Path) -> Done<Self> {
        let text = std::fs::read_to_string(path).doing(format!("read {}", path.display()))?;
        let wrong = || format!("{} holds no results: measure that set again", path.display());
        Self::parse(&text).ok_or_else(|| Failure::Other(wrong()))
    }

    fn to_text(&self) -> String {
        let set = std::iter::once(Line::Set(Cow::Borrowed(self)));
        let contenders = self.contenders.iter().map(|info| Line::Contender(Cow::Borrowed(info)));
        let samples = self.samples.iter().map(|sample| Line::Sample(Cow::Borrowed(sample)));
        let profiles = self.profiles.iter().map(|profile| Line::Profile(Cow::Borrowed(profile)));
        let troubles = self.troubles.iter().map(|trouble| Line::Trouble(Cow::Borrowed(trouble)));
        let lines = set.chain(contenders).chain(samples).chain(profiles).chain(troubles);
        let text = |line| serde_json::to_string(&line).expect("its keys are strings");
        lines.map(text).map(|line| line + "\n").collect()
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(serde_json::from_str::<Line>);
        let Line::Set(set) = lines.next()?.ok()? else { return None };
        let mut results = set.into_owned();
        for line in lines {
            match line.ok()? {
                Line::Set(_) => return None,
                Line::Contender(info) => results.contenders.push(info.into_owned()),
                Line::Sample(sample) => results.samples.push(sample.into_owned()),
                Line::Profile(profile) => results.profiles.push(profile.into_owned()),
                Line::Trouble(trouble) => results.troubles.push(trouble.into_owned()),
            }
        }
        Some(results)
    }
}

/// The middle one of the numbers, or the mean of the two in the middle.
pub fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.len() {
        0 => None,
        count if count % 2 == 1 => Some(numbers[middle]),
        _ => Some((numbers[middle - 1] + numbers[middle]) / 2.0),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A sample that took this many seconds.
    pub fn sample(round: u32, subject: &str, act: &str, wall: f64, stored: Option<u64>) -> Sample {
        let usage = Usage {
            wall,
            cpu: wall * 1.5,
            peak_kib: (wall * 1024.0) as u64,
            read_bytes: 10,
            written_bytes: 20,
        };
        let added = stored.map(|bytes| bytes.cast_signed() / 2);
        Sample { round, subject: subject.to_owned(), act: act.to_owned(), usage, stored, added }
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![4.0]), Some(4.0));
        assert_eq!(median(vec![9.0, 1.0]), Some(5.0));
        assert_eq!(median(vec![7.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(vec![8.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn results_come_back_as_they_were_kept() {
        let results = SetResults {
            name: "sources".to_owned(),
            about: "three releases".to_owned(),
            files: vec![5, 6],
            bytes: vec![50, 60],
            rounds: 2,
            apart: true,
            revision: "0a1b2c3".to_owned(),
            contenders: vec![ContenderInfo {
                id: "borg".to_owned(),
                commands: vec!["borg create ::v1 SOURCE".to_owned()],
                is_equal: true,
                ..ContenderInfo::default()
            }],
            absent: vec!["kopia".to_owned()],
            samples: vec![
                sample(1, "borg", "first", 3.0, Some(9)),
                sample(1, FLOOR, "cat", 1.0, None),
                sample(2, "borg", "first", 5.0, Some(9)),
            ],
            profiles: vec![Profile {
                contender: "borg".to_owned(),
                act: "first".to_owned(),
                line: "it compressed".to_owned(),
            }],
            troubles: vec![Trouble {
                contender: "borg".to_owned(),
                act: "restore-2".to_owned(),
                what: "two files differ".to_owned(),
                is_unequal: true,
            }],
        };
        assert_eq!(SetResults::parse(&results.to_text()), Some(results.clone()));
        assert_eq!(results.median("borg", "first", |sample| sample.usage.wall), Some(4.0));
        assert_eq!(results.acts(""), ["first"]);
        assert_eq!(results.peak_kib("borg"), Some(5 * 1024));
        assert!(results.measured_once().is_empty());
        let mut more = results.clone();
        more.samples.pop();
        more.samples.push(sample(2, FLOOR, "cat", 1.0, None));
        assert_eq!(more.measured_once(), ["borg"]);
        assert_eq!(SetResults::parse(""), None);
        let cut = results.to_text();
        assert_eq!(SetResults::parse(&cut[..cut.len() - 3]), None);
        assert_eq!(SetResults::parse(cut.split_once('\n').unwrap().1), None);
    }
}
