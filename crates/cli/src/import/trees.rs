//! What restic says of files beside its mount: the list of `restic find`, and the trees of
//! `restic cat blob`.

use std::collections::{BTreeSet, HashMap};

use serde::Deserialize;
use serde_json::Value;
use strongroom_catalog::DeviceNumber;
use strongroom_source::Correction;

use super::names::Owners;
use super::program::{Kind, Program};
use super::{json, time, unclear};
use crate::exit::CliError;

/// An entry, as `restic find --json` lists it.
#[derive(Debug, Deserialize)]
pub struct Listed {
    path: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    mtime: String,
    uid: Option<u32>,
    gid: Option<u32>,
    user: Option<String>,
    group: Option<String>,
}

/// What the list says that the mount does not show.
#[derive(Debug, Default)]
pub struct Looked {
    /// The names of the owners.
    pub owners: Owners,
    /// What is shown wrongly, by path.
    pub corrections: HashMap<Vec<u8>, Correction>,
    /// Directories with entries of which only their tree says what they were.
    pub folders: BTreeSet<String>,
    /// How many entries are not directories.
    pub files: u64,
}

/// An entry of a tree.
#[derive(Debug, Deserialize)]
struct Node {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    device: u64,
    #[serde(default)]
    mtime: String,
    subtree: Option<String>,
}

/// The trees of a snapshot, each asked for once: restic takes half a second to begin.
pub struct Trees<'p> {
    program: &'p Program,
    snapshot: &'p str,
    /// The snapshot's first tree, once it was asked for.
    top: Option<String>,
    known: HashMap<String, Vec<Node>>,
}

impl Looked {
    /// Takes what an entry says.
    pub fn add(&mut self, entry: Listed) -> Result<(), CliError> {
        let (user, group) = (entry.user.as_deref(), entry.group.as_deref());
        self.owners.add((entry.uid, user), (entry.gid, group));
        self.files += u64::from(entry.kind != "dir");
        let is_odd = is_odd(&entry.mtime);
        // A name that is no UTF-8 is shown in full only by the tree.
        if is_device(&entry.kind) || (is_odd && entry.path.contains(char::REPLACEMENT_CHARACTER)) {
            let folder = entry.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            self.folders.insert(folder.to_owned());
        } else if is_odd {
            let mtime = Some(time(Kind::Restic, &entry.mtime)?);
            let known = Correction { mtime, ..Correction::default() };
            self.corrections.insert(entry.path.into_bytes(), known);
        }
        Ok(())
    }
}

impl<'p> Trees<'p> {
    /// Of this snapshot.
    pub fn new(program: &'p Program, snapshot: &'p str) -> Self {
        Self { program, snapshot, top: None, known: HashMap::new() }
    }

    /// Finds what the mount does not show of the entries of a directory, which is given as the list
    /// writes it.
    pub fn corrections(
        &mut self,
        folder: &str,
        found: &mut HashMap<Vec<u8>, Correction>,
    ) -> Result<(), CliError> {
        let mut trees = vec![(Vec::new(), self.top()?)];
        for name in folder.split('/').filter(|name| !name.is_empty()) {
            let mut below = Vec::new();
            for (above, tree) in trees {
                // Names that are no UTF-8 may look alike.
                for node in self.nodes(&tree)? {
                    let bytes = unquoted(&node.name);
                    if let Some(subtree) = &node.subtree
                        && comparable(&bytes) == comparable(name.as_bytes())
                    {
                        below.push(([&above[..], b"/", &bytes].concat(), subtree.clone()));
                    }
                }
            }
            trees = below;
        }
        for (above, tree) in trees {
            for node in self.nodes(&tree)? {
                if let Some(known) = node.correction()? {
                    found.insert([&above[..], b"/", &unquoted(&node.name)].concat(), known);
                }
            }
        }
        Ok(())
    }

    fn top(&mut self) -> Result<String, CliError> {
        if let Some(top) = &self.top {
            return Ok(top.clone());
        }
        let text = self.program.output(["cat", "snapshot", self.snapshot])?;
        let snapshot: Value = json::read(&text).map_err(misread)?;
        let top = snapshot["tree"].as_str().unwrap_or_default().to_owned();
        Ok(self.top.insert(top).clone())
    }

    fn nodes(&mut self, tree: &str) -> Result<&[Node], CliError> {
        if !self.known.contains_key(tree) {
            let text = self.program.output(["cat", "blob", tree])?;
            let value: Value = json::read(&text).map_err(misread)?;
            let nodes = Option::<Vec<Node>>::deserialize(&value["nodes"]).map_err(misread)?;
            self.known.insert(tree.to_owned(), nodes.unwrap_or_default());
        }
        Ok(self.known.get(tree).map(Vec::as_slice).unwrap_or_default())
    }
}

impl Node {
    /// What the mount does not show of it.
    fn correction(&self) -> Result<Option<Correction>, CliError> {
        let (major, minor) = (rustix::fs::major(self.device), rustix::fs::minor(self.device));
        let device = is_device(&self.kind).then_some(DeviceNumber { major, minor });
        let mtime = match is_odd(&self.mtime) {
            true => Some(time(Kind::Restic, &self.mtime)?),
            false => None,
        };
        let known = Correction { device, mtime, ..Correction::default() };
        Ok((known != Correction::default()).then_some(known))
    }
}

/// An answer of restic that is no JSON of the expected kind.
pub fn misread(error: serde_json::Error) -> CliError {
    unclear(Kind::Restic, &error.to_string())
}

fn is_device(kind: &str) -> bool {
    kind == "chardev" || kind == "dev"
}

/// Whether a time is none that the mount can show: the year is the first four digits.
fn is_odd(time: &str) -> bool {
    time.get(..4).is_some_and(|year| !("1970".."2262").contains(&year))
}

/// A name in which a run of bytes that are no UTF-8 is one character: programs differ in how many
/// they write.
fn comparable(name: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(name).into_owned();
    let twice = [char::REPLACEMENT_CHARACTER; 2].iter().collect::<String>();
    while text.contains(&twice) {
        text = text.replace(&twice, &twice[char::REPLACEMENT_CHARACTER.len_utf8()..]);
    }
    text
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
        let same = comparable(b"a\xff\xfe\xfdb");
        assert_eq!(same, comparable("a\u{fffd}\u{fffd}\u{fffd}b".as_bytes()));
        assert_ne!(same, comparable(b"ab"));
        assert!(is_odd("1969-12-31T23:59:59Z") && is_odd("2262-01-01T00:00:00Z"));
        assert!(!is_odd("1970-01-01T00:00:00Z") && !is_odd(""));
    }
}
