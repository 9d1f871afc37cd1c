//! Repositories of restic, which shows all snapshots in one mount.
//!
//! Its mount shows owners by number alone, no device numbers, and times before 1970 or after 2262
//! wrongly: `restic find` and `restic cat blob` have them (`trees.rs`).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use strongroom_engine::ChangedFiles;
use strongroom_source::Corrections;

use super::objects::each_object;
use super::program::{Kind, Program, read_lines};
use super::shown::Mount;
use super::trees::{Looked, Trees, misread};
use super::{Failure, Foreign, Listing, Shown, json, time, unclear};
use crate::exit::{CliError, Exit};
use crate::terminal::printable_bytes;

/// The oldest version that is known to show all that its repository holds.
const OLDEST: (u32, u32) = (0, 18);
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

impl Restic {
    /// Of this program; nothing is mounted yet.
    pub fn new(program: Program) -> Self {
        Self { program, mount: None }
    }

    /// Lists the snapshots.
    pub fn list(&self) -> Result<Listing, CliError> {
        let text = self.program.output(["version"])?;
        let text = String::from_utf8_lossy(&text);
        if let Some(version) = too_old(&text) {
            let message = format!(
                "restic {version} is too old: the mount of 0.14 shows no hard links, and no set-uid, \
                 set-gid and sticky bits"
            );
            let hint = "put a restic of 0.18 or newer first in PATH: it reads the same repository";
            return Err(CliError::new(Exit::Failed, message, hint));
        }
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
    pub fn show(&mut self, snapshot: &Foreign, before: Option<&Foreign>) -> Result<Shown, Failure> {
        let (mut notes, mut warnings) = (Vec::new(), Vec::new());
        // Each begins with a second in which restic opens the repository.
        let (changed, looked) = std::thread::scope(|scope| {
            let this = &*self;
            let changed = scope.spawn(|| before.map(|before| this.changed(before, snapshot)));
            let looked = this.look(snapshot, &mut warnings);
            (changed.join().expect("it does not panic"), looked)
        });
        self.program.check_cancel()?;
        // What is damaged in the snapshot before is no concern of this one: all files are read.
        let changed = changed.transpose().unwrap_or_default();
        let looked = looked.map_err(Failure::OfSnapshot)?;
        if self.mount.as_mut().is_none_or(|mount| !mount.is_alive()) {
            self.mount = None;
            let arguments = ["mount", "--path-template", "ids/%I"].map(Into::into);
            self.mount = Some(Mount::start(&self.program, &arguments)?);
        }
        let mount = self.mount.as_ref().map(Mount::folder).unwrap_or(Path::new("/"));
        let root = mount.join("ids").join(&snapshot.id);
        let mut snapshot = snapshot.clone();
        if let Some(paths) = paths_in_tree(&root, &snapshot.paths) {
            let list = |paths: &[Vec<u8>]| {
                paths.iter().map(|path| printable_bytes(path)).collect::<Vec<_>>().join(", ")
            };
            notes.push(format!(
                "restic was given {} as a relative path, and keeps it as {}: that is where it is here, \
                 too",
                list(&snapshot.paths),
                list(&paths)
            ));
            snapshot.paths = paths;
        }
        Ok(Shown {
            root,
            snapshot,
            accounts: looked.owners.into_accounts(),
            corrections: Corrections::new(looked.corrections),
            changed,
            files: looked.files,
            notes,
            warnings,
        })
    }

    /// What differs between two snapshots, by their chunks. Of a directory that restic cannot read it lists
    /// nothing, says so on its errors, and ends as if all were well.
    fn changed(&self, before: &Foreign, after: &Foreign) -> Result<ChangedFiles, CliError> {
        let (mut changed, mut has_ended) = (ChangedFiles::default(), false);
        let mut each = |line: &[u8]| {
            let change: Value = json::read(line).map_err(misread)?;
            has_ended = change["message_type"] == "statistics";
            let is_change = change["message_type"] == "change";
            if let (true, Some(path), Some(how)) =
                (is_change, change["path"].as_str(), change["modifier"].as_str())
                && how != "-"
                && how != "U"
            {
                changed.insert(path.as_bytes());
            }
            Ok(())
        };
        let arguments = ["diff", "--json", &before.id, &after.id];
        let read = |output| read_lines(output, &mut each);
        let ((), words) = self.program.read_with_words(arguments, read)?;
        match has_ended && words.trim().is_empty() {
            true => Ok(changed),
            false => Err(unclear(Kind::Restic, &format!("what changed is not known: {words}"))),
        }
    }

    /// What the mount does not show. It is one look at the list of files, and one more for each
    /// directory above a device or an odd time.
    fn look(&self, snapshot: &Foreign, warnings: &mut Vec<String>) -> Result<Looked, CliError> {
        let mut looked = Looked::default();
        let arguments = ["find", "--json", "--snapshot", &snapshot.id, "*"];
        let is_whole = self.program.read_all(arguments, |output| {
            each_object(output, &mut |entry| looked.add(json::read(entry).map_err(misread)?))
        })?;
        if !is_whole {
            return Err(unclear(Kind::Restic, "the list of files has no end"));
        }
        let folders = std::mem::take(&mut looked.folders);
        let mut trees = Trees::new(&self.program, &snapshot.id);
        for folder in folders {
            match trees.corrections(&folder, &mut looked.corrections) {
                Ok(()) => self.program.check_cancel()?,
                Err(error) => {
                    self.program.check_cancel()?;
                    warnings.push(format!(
                        "devices in {folder} may lack their numbers, and files their times: {error}"
                    ));
                }
            }
        }
        Ok(looked)
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

/// Where a snapshot's paths are in its tree, if one of them is not where it was on the disk: of a
/// path that was given as a relative one, restic keeps what was given. Of one that led through `..`
/// less is kept, and of `.` nothing: then all that the tree begins with is meant.
fn paths_in_tree(root: &Path, paths: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let is_there = |path: &[u8]| {
        let path = Path::new(OsStr::from_bytes(path));
        root.join(path.strip_prefix("/").unwrap_or(path)).symlink_metadata().is_ok()
    };
    if paths.iter().all(|path| is_there(path)) {
        return None;
    }
    let mut found = BTreeSet::new();
    for path in paths {
        let tails =
            (0..path.len()).filter(|place| path[*place] == b'/').map(|place| &path[place..]);
        match tails.into_iter().find(|tail| tail.len() > 1 && is_there(tail)) {
            Some(tail) => drop(found.insert(tail.to_vec())),
            None => {
                let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
                found.extend(entries.map(|entry| [b"/", entry.file_name().as_bytes()].concat()));
            }
        }
    }
    Some(found.into_iter().collect())
}

/// The version, if it is below the oldest that is known to show all.
fn too_old(text: &str) -> Option<&str> {
    let version = text.strip_prefix("restic ")?.split_whitespace().next()?;
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    let (major, minor) = (numbers.next()??, numbers.next()??);
    ((major, minor) < OLDEST).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_version_is_recognised() {
        for (text, version) in [
            ("restic 0.14.0 compiled with go1.19.8 on linux/amd64", Some("0.14.0")),
            ("restic 0.17.3 compiled", Some("0.17.3")),
            ("restic 0.18.1-dev (compiled manually)", None),
            ("restic 1.0.0", None),
            ("restic of another kind", None),
            ("", None),
        ] {
            assert_eq!(too_old(text), version, "{text}");
        }
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
