//! The programs that are measured: how each is asked for what all of them do.
//!
//! One file per program. Encryption is on with all of them; flags are otherwise those that a user
//! who gives none gets, but for what keeps a program from talking to a terminal.

mod borg;
mod bupstash;
mod kopia;
mod restic;
mod rustic;
mod strongroom;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::shell::{Done, Failure, Invocation};

/// The passphrase of every repository.
const PASSPHRASE: &str = "benchmark";

/// Where one contender keeps what is its own.
#[derive(Debug, Clone)]
pub struct Place {
    /// The program.
    pub program: PathBuf,
    /// A folder of its own: repository, caches, keys.
    pub home: PathBuf,
    /// How it compresses.
    pub level: Level,
}

impl Place {
    /// The repository: what counts as stored.
    pub fn repository(&self) -> PathBuf {
        self.home.join("repository")
    }

    /// A folder for caches; not counted.
    pub fn cache(&self) -> PathBuf {
        self.home.join("cache")
    }
}

/// How a program compresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// In the program's words.
    pub says: &'static str,
    /// The flags that set it; none for its default.
    pub flags: Vec<&'static str>,
    /// Whether it is the program's default.
    pub is_default: bool,
    /// Whether it is the level at which all are compared: zstd 3, or what its library calls so.
    pub is_equal: bool,
}

/// What a restored tree can be compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// Everything that `rsync -aXAH` looks at.
    All,
    /// Content, modes and times; no owners, extended attributes, hard links.
    ContentAndTimes,
}

impl Keeps {
    /// Flags for `rsync`, which then says what differs.
    pub fn comparison(self) -> &'static [&'static str] {
        match self {
            Self::All => &["-naXAHc"],
            Self::ContentAndTimes => &["-nac", "--no-owner", "--no-group"],
        }
    }
}

/// One of the snapshots that a contender made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotLabel {
    /// The label that it was given.
    pub label: String,
    /// How many are newer.
    pub newer: usize,
}

/// A program that makes backups.
pub trait Tool {
    /// What it is called, on the command line too.
    fn name(&self) -> &'static str;

    /// Makes it print its version.
    fn version(&self) -> &'static [&'static str] {
        &["--version"]
    }

    /// Levels of compression to be measured, the default first.
    fn levels(&self, program: &Path) -> Vec<Level>;

    /// What its restores keep.
    fn keeps(&self) -> Keeps {
        Keeps::All
    }

    /// What readers should know.
    fn note(&self) -> Option<&'static str> {
        None
    }

    /// What it said of where its time went, among what it said.
    fn profile(&self, said: &str) -> Option<String> {
        let _ = said;
        None
    }

    /// Makes an empty repository.
    fn init(&self, place: &Place) -> Vec<Invocation>;

    /// Stores a folder as a snapshot of this label.
    fn backup(&self, place: &Place, source: &Path, label: &str) -> Invocation;

    /// Puts a snapshot of `source` below an empty folder.
    fn restore(
        &self,
        place: &Place,
        source: &Path,
        snapshot: &SnapshotLabel,
        target: &Path,
    ) -> Invocation;

    /// Where below that folder the content of `source` then is.
    fn restored_at(&self, source: &Path, target: &Path) -> PathBuf {
        let _ = source;
        target.to_owned()
    }

    /// Reads and checks all that is stored.
    fn verify(&self, place: &Place, newest: &SnapshotLabel) -> Invocation;

    /// Forgets all but the newest and gives room back; nothing where the program cannot.
    fn prune(&self, place: &Place, labels: &[String]) -> Vec<Invocation>;

    /// What the program calls the snapshots of these labels, in order.
    ///
    /// # Errors
    ///
    /// Fails if the program has no such snapshot.
    fn names(&self, place: &Place, labels: &[String]) -> Done<Vec<String>> {
        let _ = place;
        Ok(labels.to_vec())
    }

    /// Forgets the snapshots of these names; nothing if the program is not asked to.
    fn forget(&self, place: &Place, names: &[String]) -> Option<Invocation> {
        let _ = (place, names);
        None
    }

    /// Gives the room back that only forgotten snapshots need.
    fn free(&self, place: &Place) -> Option<Invocation> {
        let _ = place;
        None
    }

    /// Gives all of it back, if `free` leaves some because it is not worth its cost.
    fn free_all(&self, place: &Place) -> Option<Invocation> {
        let _ = place;
        None
    }

    /// Says how each snapshot lies, the oldest first.
    fn fragmentation(&self, place: &Place) -> Option<Invocation> {
        let _ = place;
        None
    }

    /// Brings together what the newest snapshot needs.
    fn gather(&self, place: &Place) -> Option<Invocation> {
        let _ = place;
        None
    }
}

/// All of them, Strongroom first.
pub fn all() -> Vec<Box<dyn Tool>> {
    vec![
        Box::new(strongroom::Strongroom),
        Box::new(restic::Restic),
        Box::new(borg::Borg),
        Box::new(rustic::Rustic),
        Box::new(bupstash::Bupstash),
        Box::new(kopia::Kopia),
    ]
}

/// The first line that a program says of itself.
pub fn version_of(tool: &dyn Tool, program: &Path) -> Done<String> {
    let said = Invocation::new(program).args(tool.version()).run()?;
    let line = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Ok(format!("{} {}", tool.name(), number_in(line)))
}

/// The first number of a line with a dot in it, or the line: what follows is about the compiler.
fn number_in(line: &str) -> &str {
    let numbers =
        line.split(' ').map(|word| word.trim_start_matches(|c: char| !c.is_ascii_digit()));
    numbers.into_iter().find(|number| number.contains('.')).unwrap_or(line)
}

/// Names that JSON gives to labels: each object of `listed` has its labels in a list, and its name.
fn names_in(
    listed: &[serde_json::Value],
    [labels_are, name_is]: [&str; 2],
    wanted: &[String],
) -> Done<Vec<String>> {
    let has = |snapshot: &&serde_json::Value, label: &String| {
        let labels = snapshot[labels_are].as_array();
        labels.is_some_and(|labels| labels.iter().any(|known| known == label))
    };
    let name = |label: &String| {
        let snapshot = listed.iter().find(|snapshot| has(snapshot, label));
        let name = snapshot.and_then(|snapshot| snapshot[name_is].as_str());
        let failure = || Failure::Other(format!("no snapshot is labelled {label}"));
        name.map(str::to_owned).ok_or_else(failure)
    };
    wanted.iter().map(name).collect()
}

/// Where an absolute path is put by programs that keep it whole.
fn below(target: &Path, source: &Path) -> PathBuf {
    target.join(source.strip_prefix("/").unwrap_or(source))
}

/// Pairs of a variable and its value.
fn variables<const N: usize>(
    pairs: [(&'static str, OsString); N],
) -> Vec<(&'static str, OsString)> {
    pairs.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command of every tool, as it would be typed.
    fn lines(tool: &dyn Tool, level: &Level) -> Vec<String> {
        let place = Place {
            program: PathBuf::from("/opt").join(tool.name()),
            home: PathBuf::from("HOME"),
            level: level.clone(),
        };
        let snapshot = SnapshotLabel { label: "v1".to_owned(), newer: 2 };
        let (source, target) = (Path::new("/SOURCE"), Path::new("TARGET"));
        let mut commands = tool.init(&place);
        commands.push(tool.backup(&place, source, "v1"));
        commands.push(tool.restore(&place, source, &snapshot, target));
        commands.push(tool.verify(&place, &snapshot));
        commands.extend(tool.prune(&place, &["v1".to_owned(), "v2".to_owned()]));
        assert!(tool.restored_at(source, target).starts_with(target));
        commands.iter().map(Invocation::to_string).collect()
    }

    #[test]
    fn each_does_all_and_names_source_and_target() {
        for tool in all() {
            let levels = tool.levels(Path::new("/no/such/program"));
            assert!(levels[0].is_default, "{}", tool.name());
            assert_eq!(levels.iter().filter(|level| level.is_equal).count(), 1, "{}", tool.name());
            for level in &levels {
                let lines = lines(&*tool, level);
                assert!(lines.len() >= 4, "{lines:?}");
                assert!(lines.iter().any(|line| line.contains("/SOURCE")), "{lines:?}");
            }
        }
    }

    #[test]
    fn names_by_label() {
        let listed = [
            serde_json::json!({ "tags": ["v1"], "id": "aa" }),
            serde_json::json!({ "tags": ["v2", "x"], "id": "bb" }),
        ];
        let names = |labels: &[&str]| {
            let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
            names_in(&listed, ["tags", "id"], &labels)
        };
        assert_eq!(names(&["v2", "v1"]).unwrap(), ["bb", "aa"]);
        assert!(names(&["v3"]).unwrap_err().to_string().contains("v3"));
    }

    #[test]
    fn versions_are_numbers() {
        let lines =
            ["restic 0.14.0 compiled with go1.19.8 on linux", "bupstash-0.12.0", "borg 1.4.5"];
        assert_eq!(lines.map(number_in), ["0.14.0", "0.12.0", "1.4.5"]);
        assert_eq!(number_in("unknown"), "unknown");
    }

    #[test]
    fn paths_kept_whole() {
        assert_eq!(below(Path::new("/t"), Path::new("/a/b")), Path::new("/t/a/b"));
    }
}
