//! Repositories of restic, which shows all snapshots in one mount.
//!
//! Its mount shows no device numbers; `restic cat tree` has them. It shows owners by number alone.

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
        let changed = match before {
            Some(before) => Some(self.changed(before, snapshot)?),
            None => None,
        };
        let corrections = self.devices(snapshot, &mut warnings)?;
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
            let change: Value =
                json::read(line).map_err(|e| unclear(Kind::Restic, &e.to_string()))?;
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

    /// The numbers of devices. Most snapshots have none, and then this is one look at the names.
    fn devices(
        &self,
        snapshot: &Foreign,
        warnings: &mut Vec<String>,
    ) -> Result<Corrections, CliError> {
        let mut folders = BTreeSet::new();
        self.program.each_line(["ls", "--json", &snapshot.id], &mut |line| {
            if contains(line, b"\"type\":\"chardev\"") || contains(line, b"\"type\":\"dev\"") {
                let node: Value =
                    json::read(line).map_err(|e| unclear(Kind::Restic, &e.to_string()))?;
                let folder = node["path"].as_str().and_then(|path| Path::new(path).parent());
                folders.extend(folder.map(Path::to_owned));
            }
            Ok(())
        })?;
        let mut found = HashMap::new();
        for folder in folders {
            let place = format!("{}:{}", snapshot.id, folder.display());
            let tree = self.program.output(["cat", "tree", &place]).and_then(|text| {
                let tree: Value =
                    json::read(&text).map_err(|e| unclear(Kind::Restic, &e.to_string()))?;
                Ok(Vec::<Node>::deserialize(&tree["nodes"]).unwrap_or_default())
            });
            self.program.check_cancel()?;
            let nodes = match tree {
                Ok(nodes) => nodes,
                Err(error) => {
                    warnings.push(format!(
                        "the devices in {} have no numbers: {error}",
                        folder.display()
                    ));
                    continue;
                }
            };
            for node in nodes.iter().filter(|node| node.kind == "chardev" || node.kind == "dev") {
                let (major, minor) =
                    (rustix::fs::major(node.device), rustix::fs::minor(node.device));
                let device = Some(DeviceNumber { major, minor });
                let path = folder.join(&node.name).as_os_str().as_bytes().to_vec();
                found.insert(path, Correction { device, ..Correction::default() });
            }
        }
        Ok(Corrections::new(found))
    }

    fn read<T: serde::de::DeserializeOwned>(&self, arguments: &[&str]) -> Result<T, CliError> {
        let text = self.program.output(arguments)?;
        json::read(&text).map_err(|error| unclear(Kind::Restic, &error.to_string()))
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
