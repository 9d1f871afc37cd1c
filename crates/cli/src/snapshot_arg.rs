//! `SNAPSHOT` and `SNAPSHOT:PATH` on the command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use strongroom_catalog::Snapshot;
use strongroom_engine::{Repository, SnapshotName, find_snapshot, list_snapshots};

use crate::dates;
use crate::exit::CliError;

/// A snapshot, and a path in it, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotArg {
    /// What names the snapshot.
    pub name: String,
    /// The path in it; empty for all.
    pub path: Vec<u8>,
}

impl From<&OsStr> for SnapshotArg {
    /// The path begins at the first `:/`, or behind the colon of a plain name.
    fn from(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        let behind_at = bytes.iter().position(|byte| *byte == b'@').unwrap_or(0);
        let slash = bytes[behind_at..].windows(2).position(|pair| pair == b":/");
        let colon = || {
            let colon = bytes.iter().position(|byte| *byte == b':')?;
            let plain = bytes[..colon].iter().all(|b| b.is_ascii_alphanumeric() || *b == b'~');
            plain.then_some(colon)
        };
        let split = slash.map(|place| behind_at + place).or_else(colon);
        let (name, path) = match split {
            Some(split) => (&bytes[..split], &bytes[split + 1..]),
            None => (bytes, &[][..]),
        };
        Self { name: String::from_utf8_lossy(name).into_owned(), path: path.to_vec() }
    }
}

impl From<OsString> for SnapshotArg {
    fn from(text: OsString) -> Self {
        Self::from(OsStr::from_bytes(&text.into_vec()))
    }
}

impl SnapshotArg {
    /// The snapshot that is meant.
    pub fn find(&self, repository: &Repository) -> Result<Snapshot, CliError> {
        Ok(self.find_in(&list_snapshots(repository)?.snapshots)?.clone())
    }

    /// The snapshot that is meant, among these.
    pub fn find_in<'s>(&self, snapshots: &'s [Snapshot]) -> Result<&'s Snapshot, CliError> {
        let name = SnapshotName::parse(&self.name, dates::last_moment)?;
        Ok(find_snapshot(snapshots, &name, &self.name)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_told_apart() {
        for (text, name, path) in [
            ("latest", "latest", ""),
            ("latest:/home/me", "latest", "/home/me"),
            ("latest~2:home/me", "latest~2", "home/me"),
            ("3fa2:a:b", "3fa2", "a:b"),
            ("2026-11-20", "2026-11-20", ""),
            ("2026-11-20 08:15", "2026-11-20 08:15", ""),
            ("2026-11-20 08:15:/etc", "2026-11-20 08:15", "/etc"),
            ("laptop:/home@latest:/home/me", "laptop:/home@latest", "/home/me"),
            ("laptop:/home@", "laptop:/home@", ""),
        ] {
            let arg = SnapshotArg::from(OsStr::new(text));
            assert_eq!((arg.name.as_str(), arg.path.as_slice()), (name, path.as_bytes()), "{text}");
        }
    }
}
