//! Repositories of Borg, which mounts one archive at a time: what it mounted it keeps in memory.
//!
//! Its mount shows no access control lists, and owners by number alone. `borg debug dump-archive`
//! writes all that an archive says of its files, also which chunks they have.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};

use serde::Deserialize;
use serde_json::Value;
use strongroom_base::Timestamp;
use strongroom_catalog::Xattr;
use strongroom_engine::ChangedFiles;
use strongroom_source::{Correction, Corrections};

use super::acl::{self, List};
use super::names::Owners;
use super::program::{Kind, Program};
use super::shown::Mount;
use super::{Failure, Foreign, Listing, Shown, json, time, unclear};
use crate::exit::{CliError, Exit};

/// If an archive has more separate trees than this, it counts as one of `/`.
const ROOTS_MAX: usize = 64;
/// What begins a text that is the hexadecimal form of bytes that are no UTF-8.
const HEX_MARK: char = '\u{7f}';

/// A repository of Borg.
#[derive(Debug)]
pub struct Borg {
    /// The program.
    pub program: Program,
    /// The mount of the archive that was shown last.
    pub mount: Option<Mount>,
    hashers: [RandomState; 2],
    /// The content of the files of the archive of this id.
    last: Option<(String, Contents)>,
}

/// Which content the files of an archive have, by path: a hash of the names of their chunks; none if that is
/// not known.
type Contents = HashMap<Vec<u8>, Option<[u64; 2]>>;

/// An archive, as `borg list --json` lists it.
#[derive(Debug, Deserialize)]
struct Listed {
    id: String,
    name: String,
    start: String,
    #[serde(default)]
    end: Option<String>,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    comment: String,
}

/// An item of an archive, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Item {
    path: String,
    mode: u32,
    uid: Option<u32>,
    gid: Option<u32>,
    user: Option<String>,
    group: Option<String>,
    acl_access: Option<String>,
    acl_default: Option<String>,
    chunks: Option<Vec<(String, u64, u64)>>,
    /// Chunks were lost, and replaced by zeros.
    chunks_healthy: Option<Value>,
    /// Of a further name of a file: its first.
    source: Option<String>,
    /// Which part of a file it is, of one that was stored in parts: the whole is an item, too.
    part: Option<u64>,
}

/// What an archive says.
#[derive(Debug, Default)]
struct Dumped {
    times: Option<(String, Option<String>)>,
    contents: Contents,
    roots: BTreeSet<Vec<u8>>,
    has_many_roots: bool,
    owners: Owners,
    corrections: HashMap<Vec<u8>, Correction>,
    /// How many items are not directories.
    files: u64,
    warnings: Vec<String>,
}

impl Borg {
    /// Of this program; nothing is mounted yet.
    pub fn new(program: Program) -> Self {
        Self { program, mount: None, hashers: Default::default(), last: None }
    }

    /// Lists the archives.
    pub fn list(&self) -> Result<Listing, CliError> {
        let format = "{hostname}{username}{start}{end}{comment}{id}";
        let text = self.program.output(["list", "--json", "--format", format])?;
        let unclear = |error: serde_json::Error| unclear(Kind::Borg, &error.to_string());
        let list: Value = json::read(&text).map_err(unclear)?;
        let archives = Vec::<Listed>::deserialize(&list["archives"]).map_err(unclear)?;
        let repository = list["repository"]["id"].as_str().unwrap_or_default().to_owned();
        let snapshots = archives.into_iter().map(Listed::foreign).collect::<Result<_, _>>()?;
        Ok(Listing { repository, snapshots })
    }

    /// Shows an archive.
    pub fn show(&mut self, snapshot: &Foreign, before: Option<&Foreign>) -> Result<Shown, Failure> {
        // Each mount holds a lock.
        self.mount = None;
        if let Some(before) = before
            && self.last.as_ref().is_none_or(|(id, _)| *id != before.id)
        {
            self.last = None;
            // What is damaged in it is no concern of this one: all files are read.
            self.last = self.dump(before).ok().map(|dumped| (before.id.clone(), dumped.contents));
            self.program.check_cancel()?;
        }
        let dumped = self.dump(snapshot).map_err(Failure::OfSnapshot)?;
        let changed = before.and(self.last.as_ref()).map(|(_, last)| dumped.changed_since(last));
        let mut snapshot = snapshot.clone();
        if let Some((start, end)) = &dumped.times {
            snapshot.started = time(Kind::Borg, start)?;
            snapshot.ended =
                end.as_ref().map_or(Ok(snapshot.started), |end| time(Kind::Borg, end))?;
        }
        snapshot.paths = dumped.paths();
        let mut corrections = dumped.corrections;
        add_times_above(&snapshot.paths, snapshot.started, &mut corrections);
        self.last = Some((snapshot.id.clone(), dumped.contents));
        let arguments = ["mount", "--foreground", "--numeric-ids", "-o", "ignore_permissions"];
        let mut arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
        arguments.push(place(&snapshot)?.into());
        let mount = self.mount.insert(Mount::start(&self.program, &arguments)?);
        Ok(Shown {
            root: mount.folder().to_owned(),
            snapshot,
            accounts: dumped.owners.into_accounts(),
            corrections: Corrections::new(corrections),
            changed,
            files: dumped.files,
            notes: Vec::new(),
            warnings: dumped.warnings,
        })
    }

    fn dump(&self, snapshot: &Foreign) -> Result<Dumped, CliError> {
        let mut dumped = Dumped::default();
        let mut parts = Parts::default();
        let place = place(snapshot)?;
        self.program.each_line(["debug", "dump-archive", &place, "-"], &mut |line| {
            let unclear = |error: serde_json::Error| unclear(Kind::Borg, &error.to_string());
            match parts.take(line) {
                Some(Part::Head(text)) => {
                    let head: Value = json::read(&text).map_err(unclear)?;
                    let text = |key: &str| head["_meta"][key].as_str().map(str::to_owned);
                    dumped.times = text("time").map(|start| (start, text("time_end")));
                }
                Some(Part::Item(text)) => {
                    dumped.add(json::read(&text).map_err(unclear)?, &self.hashers);
                }
                None => {}
            }
            Ok(())
        })?;
        match parts.is_whole() {
            true => Ok(dumped),
            false => Err(unclear(Kind::Borg, "the list of files has no end")),
        }
    }
}

/// How the program names an archive of the repository in its variable.
fn place(snapshot: &Foreign) -> Result<String, CliError> {
    if snapshot.name.contains(char::REPLACEMENT_CHARACTER) {
        let message = format!("the name of the archive \"{}\" is no UTF-8", snapshot.name);
        let hint = "give it another name with `borg rename`, and run the import again";
        return Err(CliError::new(Exit::Failed, message, hint));
    }
    Ok(format!("::{}", snapshot.name))
}

impl Listed {
    fn foreign(self) -> Result<Foreign, CliError> {
        let started = time(Kind::Borg, &self.start)?;
        let ended = self.end.map_or(Ok(started), |end| time(Kind::Borg, &end))?;
        let labels = [self.name.clone(), self.comment];
        Ok(Foreign {
            origin: self.id.clone(),
            id: self.id,
            name: self.name,
            started,
            ended,
            host: self.hostname,
            user: self.username,
            paths: Vec::new(),
            labels: labels.into_iter().filter(|label| !label.is_empty()).collect(),
        })
    }
}

impl Dumped {
    fn add(&mut self, item: Item, hashers: &[RandomState; 2]) {
        if item.part.is_some() {
            // Its mount does not show it.
            return;
        }
        let path = absolute(&item.path);
        let kind = item.mode & 0o170_000;
        let is_file = kind == 0o100_000;
        if is_file {
            let of_source = item.source.as_ref().map(|source| absolute(source));
            let content = match &of_source {
                // What was lost of a file may have been found again, so its chunks say nothing.
                _ if item.chunks_healthy.is_some() => None,
                Some(source) => self.contents.get(source).copied().flatten(),
                None => Some(hashers.each_ref().map(|hasher| hasher.hash_one(&item.chunks))),
            };
            // A path that is listed twice is shown once.
            self.files += u64::from(self.contents.insert(path.clone(), content).is_none());
        } else {
            self.files += u64::from(kind != 0o040_000);
        }
        let (user, group) = (item.user.as_deref(), item.group.as_deref());
        self.owners.add((item.uid, user), (item.gid, group));
        let lists = [(List::Access, item.acl_access), (List::Default, item.acl_default)];
        for (list, text) in lists {
            let Some(text) = text else { continue };
            match acl::attribute(list, &text) {
                Ok(Some(value)) => {
                    let name = list.name().as_bytes().to_vec();
                    let known = self.corrections.entry(path.clone()).or_default();
                    known.xattrs.push(Xattr { name, value });
                }
                Ok(None) => {}
                Err(why) => {
                    let path = String::from_utf8_lossy(&path).into_owned();
                    self.warnings.push(format!("an access control list is missing: {path}: {why}"));
                }
            }
        }
        self.add_root(path);
    }

    /// The files of which it is not certain that they have the same content as before.
    fn changed_since(&self, before: &Contents) -> ChangedFiles {
        let mut changed = ChangedFiles::default();
        for (path, content) in &self.contents {
            let is_same = content.is_some() && before.get(path) == Some(content);
            if !is_same {
                changed.insert(path);
            }
        }
        changed
    }

    /// An item that is below no other begins a tree of its own.
    fn add_root(&mut self, path: Vec<u8>) {
        if self.has_many_roots || above(&path).any(|above| self.roots.contains(above)) {
            return;
        }
        self.has_many_roots = self.roots.len() == ROOTS_MAX;
        self.roots.insert(path);
    }

    fn paths(&self) -> Vec<Vec<u8>> {
        match self.has_many_roots || self.roots.is_empty() {
            true => vec![b"/".to_vec()],
            false => self.roots.iter().cloned().collect(),
        }
    }
}

/// The path, and those of the directories above it.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = (0..path.len()).rev().filter(|place| path[*place] == b'/');
    std::iter::once(path).chain(slashes.map(|slash| &path[..slash.max(1)]))
}

/// Borg keeps nothing of the directories above what was backed up; its mount dates them now.
fn add_times_above(
    paths: &[Vec<u8>],
    started: Timestamp,
    corrections: &mut HashMap<Vec<u8>, Correction>,
) {
    let above = paths.iter().flat_map(|path| above(path).filter(|above| above.len() < path.len()));
    let all: HashSet<&[u8]> = above.collect();
    for directory in all {
        let known = corrections.entry(directory.to_vec()).or_default();
        (known.mtime, known.ctime) = (Some(started), Some(started));
    }
}

/// The path of an item, from `/`.
fn absolute(text: &str) -> Vec<u8> {
    let hex = text.strip_prefix(HEX_MARK).filter(|hex| hex.len().is_multiple_of(2));
    let digits = hex.map(|hex| {
        (0..hex.len())
            .step_by(2)
            .map(|at| hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
    });
    let bytes = digits.and_then(Iterator::collect::<Option<Vec<u8>>>);
    let bytes = bytes.unwrap_or_else(|| text.as_bytes().to_vec());
    let names = bytes.split(|byte| *byte == b'/');
    let names = names.filter(|name| !name.is_empty() && *name != b".");
    let path: Vec<u8> = names.flat_map(|name| [b"/", name].concat()).collect();
    if path.is_empty() { b"/".to_vec() } else { path }
}

/// The parts of a dump, which is one JSON document of any length, indented by four.
#[derive(Debug, Default)]
struct Parts {
    text: Vec<u8>,
    state: PartState,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum PartState {
    #[default]
    Head,
    Between,
    Item,
    End,
}

enum Part {
    Head(Vec<u8>),
    Item(Vec<u8>),
}

impl Parts {
    fn take(&mut self, line: &[u8]) -> Option<Part> {
        match (&self.state, line) {
            (PartState::Head, b"    \"_items\": [") => {
                self.state = PartState::Between;
                self.text.extend_from_slice(b"\"_items\":[]}");
                return Some(Part::Head(std::mem::take(&mut self.text)));
            }
            (PartState::Between, b"    {") => {
                self.state = PartState::Item;
                self.text = b"{".to_vec();
            }
            (PartState::Item, b"    }" | b"    },") => {
                self.state = PartState::Between;
                self.text.push(b'}');
                return Some(Part::Item(std::mem::take(&mut self.text)));
            }
            (PartState::Head | PartState::Item, line) => self.text.extend_from_slice(line),
            (PartState::Between, b"}") => self.state = PartState::End,
            (PartState::Between | PartState::End, _) => {}
        }
        None
    }

    fn is_whole(&self) -> bool {
        self.state == PartState::End
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// As `borg debug dump-archive` writes it.
    const DUMP: &str = r#"{
    "_name": "one",
    "_meta":
    {
        "time": "2026-11-25T13:42:08.862260"
    },
    "_items": [
    {
        "chunks": [["a", 3, 46]], "mode": 33261, "path": "t/src/a", "uid": 1, "user": "me",
        "xattrs": {
            "user.k": "v"
        }
    },
    {
        "mode": 33261, "path": "t/src/hl", "source": "t/src/a", "uid": 1, "user": "other"
    },
    {
        "chunks": [["b", 3, 46]], "mode": 33188, "path": "\u007f742fff", "uid": 2, "user": "two"
    }
    ]
}"#;

    /// Borg replaces lost chunks by zeros, and notes which there were.
    #[test]
    fn a_file_that_lost_chunks_is_never_taken_from_the_archive_before() {
        let hashers: [RandomState; 2] = Default::default();
        let dumped = |healthy: &str| {
            let items = [
                format!(r#"{{"path":"a","mode":33188,"chunks":[["x",3,46]]{healthy}}}"#),
                r#"{"path":"b","mode":33188,"source":"a"}"#.to_owned(),
                r#"{"path":"c","mode":33188,"chunks":[["y",3,46]]}"#.to_owned(),
                r#"{"path":"d","mode":33188,"source":"not listed"}"#.to_owned(),
            ];
            let mut dumped = Dumped::default();
            items
                .iter()
                .for_each(|item| dumped.add(json::read(item.as_bytes()).unwrap(), &hashers));
            dumped
        };
        let (whole, lost) = (dumped(""), dumped(r#","chunks_healthy":[["z",3,46]]"#));
        for (before, after, changed) in [
            (&whole, &whole, "d"),
            (&whole, &lost, "abd"),
            (&lost, &whole, "abd"),
            (&lost, &lost, "abd"),
        ] {
            let found = after.changed_since(&before.contents);
            let is_changed = |name: &char| found.contains(Path::new(&format!("/{name}")));
            assert_eq!("abcd".chars().filter(is_changed).collect::<String>(), changed);
        }
    }

    /// A first backup that takes hours leaves parts of its files in the archive, which its mount does
    /// not show.
    #[test]
    fn parts_of_files_and_second_mentions_count_for_nothing() {
        let mut dumped = Dumped::default();
        for (path, more) in [
            ("t/big.borg_part_1", r#","part":1"#),
            ("t/big.borg_part_2", r#","part":2"#),
            ("t/big", ""),
            ("t/big", ""),
            ("u/big.borg_part_1", r#","part":1"#),
        ] {
            let text = format!(r#"{{"path":"{path}","mode":33188,"chunks":[["x",3,46]]{more}}}"#);
            dumped.add(json::read(text.as_bytes()).unwrap(), &Default::default());
        }
        assert_eq!(dumped.files, 1);
        assert_eq!(dumped.contents.keys().collect::<Vec<_>>(), [b"/t/big"]);
        assert_eq!(dumped.paths(), [b"/t/big".to_vec()]);
    }

    #[test]
    fn a_dump_is_read_item_by_item() {
        let (mut parts, mut dumped) = (Parts::default(), Dumped::default());
        let hashers: [RandomState; 2] = Default::default();
        for line in DUMP.lines() {
            match parts.take(line.as_bytes()) {
                Some(Part::Head(text)) => {
                    let head: Value = json::read(&text).unwrap();
                    assert_eq!(head["_meta"]["time"], "2026-11-25T13:42:08.862260");
                }
                Some(Part::Item(text)) => dumped.add(json::read(&text).unwrap(), &hashers),
                None => {}
            }
        }
        assert!(parts.is_whole());
        let content = |path: &[u8]| dumped.contents[path];
        assert_eq!(content(b"/t/src/a"), content(b"/t/src/hl"));
        assert_ne!(content(b"/t/src/a"), content(b"/t/\xff"));
        // The number 1 has two names.
        let accounts = dumped.owners.into_accounts();
        assert_eq!((accounts.user_name(1), accounts.uid("two")), (None, Some(2)));
    }

    #[test]
    fn the_trees_of_an_archive_are_found_in_its_paths() {
        for (items, paths) in [
            (
                &["home/me", "home/me/a", "home/me/a/b", "etc/fstab"][..],
                &["/etc/fstab", "/home/me"],
            ),
            (&["./x", "y"], &["/x", "/y"]),
        ] {
            let mut dumped = Dumped::default();
            items.iter().for_each(|item| dumped.add_root(absolute(item)));
            let found: Vec<String> =
                dumped.paths().iter().map(|path| String::from_utf8_lossy(path).into()).collect();
            assert_eq!(found, paths);
        }
        let mut whole = Dumped::default();
        [".", "a", "a/b"].iter().for_each(|item| whole.add_root(absolute(item)));
        assert_eq!(whole.paths(), [b"/".to_vec()]);
        let mut many = Dumped::default();
        (0..100).for_each(|number| many.add_root(format!("/{number}").into_bytes()));
        assert_eq!(many.paths(), [b"/".to_vec()]);
    }

    #[test]
    fn only_directories_above_the_trees_get_a_time() {
        let mut corrections = HashMap::new();
        let paths = [b"/home/me".to_vec(), b"/".to_vec()];
        add_times_above(&paths, Timestamp(5), &mut corrections);
        let mut found: Vec<_> = corrections.into_keys().collect();
        found.sort();
        assert_eq!(found, [b"/".to_vec(), b"/home".to_vec()]);
    }
}
