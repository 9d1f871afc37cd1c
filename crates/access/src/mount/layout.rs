//! The directories above the snapshots, computed from the list of snapshots.
//!
//! ```text
//! ids/0123abcd/                            every snapshot, by the start of its name
//! hosts/HOST/PATHS/2026-07-30T23-59-01/    by host, then by the paths that were backed up
//! hosts/HOST/PATHS/latest                  a link to the newest complete one of them
//! snapshot/2026/07/30/235901/              by day (Foundation §2.1)
//! ```
//!
//! Each of these holds the whole snapshot, from `/` on: a file has the same path in every
//! snapshot. The name of a snapshot whose backup was stopped before its end has `-incomplete`
//! appended, except in `ids`. Snapshots that would get the same name are numbered in their order,
//! from the second on: `235901-2`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::tz::TimeZone;
use strongroom_base::Timestamp;
use strongroom_catalog::Snapshot;

use super::naming::{MomentNames, host_name, paths_name};

/// The link to the newest complete snapshot of the same host and paths.
pub const LATEST: &[u8] = b"latest";

/// All directories above the snapshots, by their paths: `""`, `"ids"`, `"hosts/laptop"`, ….
#[derive(Debug, Clone, Default)]
pub struct Layout {
    directories: HashMap<Vec<u8>, TopDirectory>,
}

/// One directory above the snapshots.
#[derive(Debug, Clone, Default)]
pub struct TopDirectory {
    /// What is in it, by name.
    pub children: BTreeMap<Vec<u8>, TopChild>,
    /// When the newest snapshot below it began.
    pub changed: Timestamp,
}

/// What a name above the snapshots denotes.
#[derive(Debug, Clone)]
pub enum TopChild {
    /// A further directory above snapshots.
    Directory,
    /// A snapshot.
    Snapshot(Arc<Snapshot>),
    /// A link to a snapshot.
    Link {
        /// The path from where the link is.
        target: Vec<u8>,
        /// When the snapshot that it leads to began.
        changed: Timestamp,
    },
}

impl Layout {
    /// The directories for snapshots that come oldest first.
    pub fn new(snapshots: &[Arc<Snapshot>], zone: &TimeZone) -> Self {
        let mut layout = Self::default();
        for top in ["ids", "hosts", "snapshot"] {
            layout.enter(&[top.as_bytes()], Timestamp(0));
        }
        let mut shorts: HashMap<String, usize> = HashMap::new();
        for snapshot in snapshots {
            *shorts.entry(snapshot.id.short()).or_default() += 1;
        }
        for snapshot in snapshots {
            let short = snapshot.id.short();
            let id = if shorts[&short] == 1 { short } else { snapshot.id.to_string() };
            let id = layout.add(&[b"ids"], id.as_bytes(), snapshot);
            let names = MomentNames::new(snapshot.started, zone);
            let series = [b"hosts", &*host_name(&snapshot.host), &*paths_name(&snapshot.paths)];
            layout.add(&series, &labelled(&names.moment, snapshot), snapshot);
            if !snapshot.partial {
                // Not the neighbour: Samba takes what is among the previous versions for one.
                let target = [b"../../../ids/", &id[..]].concat();
                let latest = TopChild::Link { target, changed: snapshot.started };
                layout.enter(&series, snapshot.started).children.insert(LATEST.to_vec(), latest);
            }
            let day = [names.year.as_bytes(), names.month.as_bytes(), names.day.as_bytes()];
            let day = [b"snapshot", day[0], day[1], day[2]];
            layout.add(&day, &labelled(&names.time, snapshot), snapshot);
        }
        layout
    }

    /// True before the first list of snapshots was read.
    pub fn is_empty(&self) -> bool {
        self.directories.is_empty()
    }

    /// The directory at a path.
    pub fn directory(&self, path: &[u8]) -> Option<&TopDirectory> {
        self.directories.get(path)
    }

    /// Puts a snapshot into a directory and returns the name that it got.
    fn add(&mut self, path: &[&[u8]], name: &[u8], snapshot: &Arc<Snapshot>) -> Vec<u8> {
        let children = &mut self.enter(path, snapshot.started).children;
        let mut free = name.to_vec();
        let mut number = 2;
        while children.contains_key(&free) {
            free = [name, format!("-{number}").as_bytes()].concat();
            number += 1;
        }
        children.insert(free.clone(), TopChild::Snapshot(snapshot.clone()));
        free
    }

    /// The directory at a path, made with its ancestors if they do not exist yet.
    fn enter(&mut self, path: &[&[u8]], changed: Timestamp) -> &mut TopDirectory {
        let mut at = Vec::new();
        for name in path {
            let above = self.directories.entry(at.clone()).or_default();
            above.changed = above.changed.max(changed);
            above.children.entry(name.to_vec()).or_insert(TopChild::Directory);
            at = join(&at, name);
        }
        let directory = self.directories.entry(at).or_default();
        directory.changed = directory.changed.max(changed);
        directory
    }
}

/// The name of a moment, which shows whether the snapshot is incomplete.
fn labelled(moment: &str, snapshot: &Snapshot) -> Vec<u8> {
    let label = if snapshot.partial { "-incomplete" } else { "" };
    format!("{moment}{label}").into_bytes()
}

/// The path of a name in a directory above the snapshots.
pub fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use strongroom_base::SnapshotId;

    use super::*;

    fn snapshot(number: u8, second: i64, host: &str, path: &str) -> Arc<Snapshot> {
        let mut id = [number; 16];
        id[15] = 0;
        Arc::new(Snapshot {
            started: Timestamp(second * 1_000_000_000),
            host: host.to_owned(),
            paths: vec![path.as_bytes().to_vec()],
            ..Snapshot::empty(SnapshotId(id))
        })
    }

    fn names(layout: &Layout, path: &str) -> Vec<String> {
        let directory = layout.directory(path.as_bytes()).expect(path);
        directory.children.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    #[test]
    fn every_snapshot_stands_in_three_places() {
        let snapshots = [
            snapshot(1, 0, "laptop", "/home/me"),
            snapshot(2, 0, "laptop", "/home/me"),
            snapshot(3, 86_400, "laptop", "/"),
        ];
        let layout = Layout::new(&snapshots, &TimeZone::UTC);
        for (path, expected) in [
            ("", vec!["hosts", "ids", "snapshot"]),
            ("ids", vec!["01010101", "02020202", "03030303"]),
            ("hosts", vec!["laptop"]),
            ("hosts/laptop", vec!["_", "home_me"]),
            (
                "hosts/laptop/home_me",
                vec!["1970-01-01T00-00-00", "1970-01-01T00-00-00-2", "latest"],
            ),
            ("snapshot/1970/01", vec!["01", "02"]),
            ("snapshot/1970/01/01", vec!["000000", "000000-2"]),
        ] {
            assert_eq!(names(&layout, path), expected, "{path}");
        }
        let series = layout.directory(b"hosts/laptop/home_me").expect("it is there");
        let TopChild::Link { target, .. } = &series.children[LATEST] else {
            panic!("latest is a link")
        };
        assert_eq!(target, b"../../../ids/02020202");
    }

    #[test]
    fn an_incomplete_snapshot_says_so_and_is_never_the_latest() {
        let whole = snapshot(1, 0, "laptop", "/");
        let mut stopped = (*snapshot(2, 60, "laptop", "/")).clone();
        stopped.partial = true;
        let layout = Layout::new(&[whole, Arc::new(stopped)], &TimeZone::UTC);
        let expected = ["1970-01-01T00-00-00", "1970-01-01T00-01-00-incomplete", "latest"];
        assert_eq!(names(&layout, "hosts/laptop/_"), expected);
        let series = layout.directory(b"hosts/laptop/_").expect("it is there");
        let TopChild::Link { target, .. } = &series.children[LATEST] else {
            panic!("latest is a link")
        };
        assert_eq!(target, b"../../../ids/01010101");
        assert_eq!(names(&layout, "ids"), ["01010101", "02020202"]);
    }

    #[test]
    fn an_empty_repository_has_its_three_directories() {
        let layout = Layout::new(&[], &TimeZone::UTC);
        assert_eq!(names(&layout, ""), ["hosts", "ids", "snapshot"]);
        assert!(names(&layout, "hosts").is_empty());
    }

    #[test]
    fn ids_that_begin_alike_are_told_whole() {
        let one = snapshot(7, 0, "a", "/");
        let mut other = (*snapshot(7, 1, "a", "/")).clone();
        other.id.0[15] = 9;
        let layout = Layout::new(&[one, Arc::new(other)], &TimeZone::UTC);
        assert!(names(&layout, "ids").iter().all(|name| name.len() == 32));
    }
}
