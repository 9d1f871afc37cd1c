//! Repositories of restic, which shows all snapshots in one mount.
//!
//! Its mount shows no device numbers, and times before 1970 or after 2262 wrongly: `restic ls` and
//! `restic cat tree` have them. It shows owners by number alone.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use strongroom_catalog::DeviceNumber;
use strongroom_engine::ChangedFiles;
use strongroom_source::{Accounts, Correction, Corrections};

use super::program::{Kind, Program};
use super::shown::Mount;
use super::{Foreign, Listing, Shown, json, time, unclear};
use crate::exit::CliError;

/// As many digits of an id as restic shows itself.
const SHORT_ID: usize = 8;

/// A repository of restic.
#[derive(Debug)]
pub struct Restic {
    /// The program.
    pub program: Program,
    /// The mount of all snapshots, once one was shown.
    pub mount: Option<Mount>,
}

/// A snapshot, as `restic snapshots --json` lists it.
#[derive(Debug, Deserialize)]
struct Listed {
    id: String,
    /// What it was before it was given other tags.
    original: Option<String>,
    time: String,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    paths: Vec<String>,
    tags: Option<Vec<String>>,
    summary: Option<Summary>,
}

#[derive(Debug, Deserialize)]
struct Summary {
    backup_end: Option<String>,
}

/// An entry of a directory, as `restic cat tree` shows it.
#[derive(Debug, Deserialize)]
struct Node {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    device: u64,
    #[serde(default)]
    mtime: String,
}

impl Node {
    /// What the mount does not show of it.
    fn correction(&self) -> Result<Option<Correction>, CliError> {
        let is_device = self.kind == "chardev" || self.kind == "dev";
        let (major, minor) = (rustix::fs::major(self.device), rustix::fs::minor(self.device));
        let device = is_device.then_some(DeviceNumber { major, minor });
        let mtime = match is_odd(Some(self.mtime.as_bytes())) {
            true => Some(time(Kind::Restic, &self.mtime)?),
            false => None,
        };
        let known = Correction { device, mtime, ..Correction::default() };
        Ok((known != Correction::default()).then_some(known))
    }
}

/// The time in a line about a file.
fn time_in(line: &[u8]) -> Option<&[u8]> {
    let key = b"\"mtime\":\"";
    let place = line.windows(key.len()).position(|window| window == key)?;
    line.get(place + key.len()..)
}

/// Whether a time is none that the mount can show: the year is the first four digits.
fn is_odd(time: Option<&[u8]>) -> bool {
    let year = time.and_then(|time| time.get(..4));
    year.is_some_and(|year| !(&b"1970"[..]..&b"2262"[..]).contains(&year))
}

/// A name as restic keeps it: with the escapes of a string of Go.
fn unquoted(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = name;
    while let Some((plain, escape)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        let digits = match escape.as_bytes().first() {
            Some(b'x') => 2,
            Some(b'u') => 4,
            Some(b'U') => 8,
            _ => 0,
        };
        let number = escape.get(1..=digits).and_then(|text| u32::from_str_radix(text, 16).ok());
        match (digits, number, escape.chars().next()) {
            (2, Some(number), _) => bytes.extend(u8::try_from(number).ok()),
            (4 | 8, Some(number), _) => {
                let text = char::from_u32(number).map(String::from);
                bytes.extend_from_slice(text.unwrap_or_default().as_bytes());
            }
            (_, _, Some(letter)) => {
                let letters = "abfnrtv".chars().zip([7, 8, 12, 10, 13, 9, 11]);
                let control = letters.filter(|(name, _)| *name == letter).map(|(_, byte)| byte);
                match control.last() {
                    Some(byte) => bytes.push(byte),
                    None => bytes.extend_from_slice(String::from(letter).as_bytes()),
                }
            }
            (_, _, None) => {}
        }
        let first = escape.chars().next().map_or(0, char::len_utf8);
        let taken = number.map_or(0, |_| digits);
        rest = escape.get(first + taken..).unwrap_or_default();
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

fn misread(error: serde_json::Error) -> CliError {
    unclear(Kind::Restic, &error.to_string())
}

impl Restic {
    /// Of this program; nothing is mounted yet.
    pub fn new(program: Program) -> Self {
        Self { program, mount: None }
    }

    /// Lists the snapshots.
    pub fn list(&self) -> Result<Listing, CliError> {
        let config: Value = self.read(&["cat", "config"])?;
        let repository = config["id"].as_str();
        let repository = repository.ok_or_else(|| unclear(Kind::Restic, "there is no id"))?;
        // Without snapshots, some versions write `null`.
        let listed: Option<Vec<Listed>> = self.read(&["snapshots", "--json"])?;
        let listed = listed.unwrap_or_default();
        let snapshots = listed.iter().map(|one| one.foreign(&listed));
        let snapshots = snapshots.collect::<Result<_, _>>()?;
        Ok(Listing { repository: repository.to_owned(), snapshots })
    }

    /// Shows a snapshot.
    pub fn show(
        &mut self,
        snapshot: &Foreign,
        before: Option<&Foreign>,
    ) -> Result<Shown, CliError> {
        let mut warnings = Vec::new();
        // Each begins with a second in which restic opens the repository.
        let (changed, corrections) = std::thread::scope(|scope| {
            let this = &*self;
            let changed = scope.spawn(|| before.map(|before| this.changed(before, snapshot)));
            let corrections = this.corrections(snapshot, &mut warnings);
            (changed.join().expect("it does not panic"), corrections)
        });
        let (changed, corrections) = (changed.transpose()?, corrections?);
        if self.mount.as_mut().is_none_or(|mount| !mount.is_alive()) {
            self.mount = None;
            let arguments = ["mount", "--path-template", "ids/%I"].map(Into::into);
            self.mount = Some(Mount::start(&self.program, &arguments)?);
        }
        let mount = self.mount.as_ref().map(Mount::folder).unwrap_or(Path::new("/"));
        Ok(Shown {
            root: mount.join("ids").join(&snapshot.id),
            snapshot: snapshot.clone(),
            accounts: Accounts::default(),
            corrections,
            changed,
            warnings,
        })
    }

    /// What differs between two snapshots, by their chunks.
    fn changed(&self, before: &Foreign, after: &Foreign) -> Result<ChangedFiles, CliError> {
        let mut changed = ChangedFiles::default();
        self.program.each_line(["diff", "--json", &before.id, &after.id], &mut |line| {
            let change: Value = json::read(line).map_err(misread)?;
            let is_change = change["message_type"] == "change";
            if let (true, Some(path), Some(how)) =
                (is_change, change["path"].as_str(), change["modifier"].as_str())
                && how != "-"
                && how != "U"
            {
                changed.insert(path.as_bytes());
            }
            Ok(())
        })?;
        Ok(changed)
    }

    /// What the mount does not show: numbers of devices, and times before 1970 or after 2262. Most
    /// snapshots have none, and then this is one look at the list of files.
    fn corrections(
        &self,
        snapshot: &Foreign,
        warnings: &mut Vec<String>,
    ) -> Result<Corrections, CliError> {
        let mut folders = BTreeSet::new();
        let mut found = HashMap::new();
        self.program.each_line(["ls", "--json", &snapshot.id], &mut |line| {
            let is_device =
                contains(line, b"\"type\":\"chardev\"") || contains(line, b"\"type\":\"dev\"");
            if !is_device && !is_odd(time_in(line)) {
                return Ok(());
            }
            let node: Value = json::read(line).map_err(misread)?;
            let Some(path) = node["path"].as_str() else { return Ok(()) };
            // A name that is no UTF-8 is shown in full only by the tree.
            if is_device || path.contains(char::REPLACEMENT_CHARACTER) {
                folders.extend(Path::new(path).parent().map(Path::to_owned));
            } else if let Some(text) = node["mtime"].as_str() {
                let mtime = Some(time(Kind::Restic, text)?);
                let known = Correction { mtime, ..Correction::default() };
                found.insert(path.as_bytes().to_vec(), known);
            }
            Ok(())
        })?;
        for folder in folders {
            let place = format!("{}:{}", snapshot.id, folder.display());
            let tree = self.program.output(["cat", "tree", &place]).and_then(|text| {
                let tree: Value = json::read(&text).map_err(misread)?;
                Vec::<Node>::deserialize(&tree["nodes"]).map_err(misread)
            });
            self.program.check_cancel()?;
            match tree {
                Ok(nodes) => {
                    for node in nodes {
                        let path = [folder.as_os_str().as_bytes(), b"/", &unquoted(&node.name)];
                        node.correction()?.map(|known| found.insert(path.concat(), known));
                    }
                }
                Err(error) => warnings.push(format!(
                    "devices in {} may lack their numbers, and files their times: {error}",
                    folder.display()
                )),
            }
        }
        Ok(Corrections::new(found))
    }

    fn read<T: serde::de::DeserializeOwned>(&self, arguments: &[&str]) -> Result<T, CliError> {
        let text = self.program.output(arguments)?;
        json::read(&text).map_err(misread)
    }
}

impl Listed {
    fn foreign(&self, all: &[Self]) -> Result<Foreign, CliError> {
        let started = time(Kind::Restic, &self.time)?;
        let ended = self.summary.as_ref().and_then(|summary| summary.backup_end.as_deref());
        let ended = ended.map_or(Ok(started), |ended| time(Kind::Restic, ended))?;
        let name = self.id.get(..SHORT_ID).unwrap_or(&self.id).to_owned();
        Ok(Foreign {
            id: self.id.clone(),
            origin: self.origin(all).to_owned(),
            name,
            started,
            ended,
            host: self.hostname.clone(),
            user: self.username.clone(),
            paths: self.paths.iter().map(|path| path.clone().into_bytes()).collect(),
            labels: self.tags.clone().unwrap_or_default(),
        })
    }

    /// A snapshot that is given other tags gets another id, and remembers its first one. So does one
    /// that was rewritten, and then the first may still exist.
    fn origin(&self, all: &[Self]) -> &str {
        let Some(original) = &self.original else { return &self.id };
        let is_same =
            |other: &&Self| other.id == *original || other.original.as_ref() == Some(original);
        if all.iter().filter(is_same).count() == 1 { original } else { &self.id }
    }
}

fn contains(line: &[u8], text: &[u8]) -> bool {
    line.windows(text.len()).any(|window| window == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_disk() {
        for (quoted, name) in [
            ("plain", &b"plain"[..]),
            (r"a\xff\xfeb", b"a\xff\xfeb"),
            (r#"\\\"\n\t"#, b"\\\"\n\t"),
            (r"\u00e9\U0001f480", "\u{e9}\u{1f480}".as_bytes()),
            (r"end\", b"end"),
            (r"\xf", b"xf"),
        ] {
            assert_eq!(unquoted(quoted), name, "{quoted}");
        }
        assert!(is_odd(time_in(br#"{"mtime":"1969-12-31T23:59:59Z"}"#)));
        assert!(is_odd(time_in(br#"{"mtime":"2262-01-01T00:00:00Z"}"#)));
        assert!(
            !is_odd(time_in(br#"{"mtime":"1970-01-01T00:00:00Z"}"#)) && !is_odd(time_in(b"{}"))
        );
    }

    #[test]
    fn other_tags_do_not_make_another_snapshot() {
        let listed = |id: &str, original: Option<&str>| Listed {
            id: id.to_owned(),
            original: original.map(str::to_owned),
            time: "2020-01-02T03:04:05.123456789+01:00".to_owned(),
            hostname: String::new(),
            username: String::new(),
            paths: Vec::new(),
            tags: None,
            summary: None,
        };
        let tagged = [listed("b", Some("a")), listed("c", None)];
        assert_eq!(tagged[0].origin(&tagged), "a");
        assert_eq!(tagged[1].origin(&tagged), "c");
        let rewritten = [listed("a", None), listed("b", Some("a"))];
        assert_eq!(rewritten[1].origin(&rewritten), "b");
        let twice = [listed("b", Some("a")), listed("c", Some("a"))];
        assert_eq!(twice[1].origin(&twice), "c");
        let foreign = tagged[0].foreign(&tagged).unwrap();
        assert_eq!(foreign.started.0, 1_577_930_645_123_456_789);
    }
}
