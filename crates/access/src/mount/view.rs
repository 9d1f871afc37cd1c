//! What the mount shows: names, attributes and lists, by inode number.
//!
//! It deals with nodes and errors; [`filesystem`](super::filesystem) turns requests of the kernel
//! into calls of it.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Errno, FileAttr, FileType};
use strongroom_base::units::counted;
use strongroom_base::{ByteCache, Monitor, Problem, Severity};
use strongroom_catalog::{Entry, EntryKind};

use super::attributes::{self, Owner};
use super::contents::{Extent, ReadFailure};
use super::directories::{Directories, Directory, Unopened};
use super::forgetting::Forgetting;
use super::lanes::{Lane, Lanes};
use super::layout::{LATEST, Layout, TopChild, join};
use super::listing::EntryRef;
use super::nodes::{Node, Nodes, Origin, Place};
use super::tops::{TopKey, Tops};
use crate::chunks::Failure;

/// How long the kernel may cache stored things: they never change.
const STORED_LIFETIME: Duration = Duration::from_secs(365 * 86_400);
/// How long it may cache what changes as snapshots are added and removed.
const TOP_LIFETIME: Duration = Duration::from_secs(1);

/// What was reported is remembered for some thousand files, so that each is named once.
const REPORTED_BYTES_MAX: usize = 256 << 10;

/// Attributes of a node, and how long they hold.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// The attributes; the number among them.
    pub attributes: FileAttr,
    /// How long they hold.
    pub lifetime: Duration,
}

/// One line of a directory above the snapshots.
pub struct TopLine {
    /// The name.
    pub name: Vec<u8>,
    child: TopChild,
}

/// The lines of a directory above the snapshots, as they were when it was opened.
pub struct TopList {
    path: Vec<u8>,
    number: u64,
    lines: Vec<TopLine>,
}

/// Whether the kernel gets to know the nodes of a list, and so has to forget them later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquaintance {
    /// It does.
    Made,
    /// It sees only their names and numbers.
    None,
}

/// Takes the lines of a list, each with the place at which the next would begin; true ends the list
/// before this line.
pub type TakeLine<'t> = dyn FnMut(&[u8], u64, &Seen) -> bool + 't;

/// Everything that is mounted.
pub struct View {
    tops: Tops,
    nodes: Arc<Nodes>,
    forgetting: Forgetting,
    directories: Directories,
    lanes: Lanes,
    owner: Owner,
    monitor: Arc<dyn Monitor>,
    /// What was reported as unreadable, by inode number.
    reported: ByteCache<u64, ()>,
}

/// Something stored: where it is, and what it is.
struct Stored {
    directory: Arc<Directory>,
    entry: EntryRef,
}

/// The two lines `.` and `..` come before all others.
const DOTS: u64 = 2;

impl View {
    /// Shows everything below `tops`.
    pub fn new(
        tops: Tops,
        nodes: Arc<Nodes>,
        forgetting: Forgetting,
        lanes: Lanes,
        directory_bytes: usize,
        owner: Owner,
        monitor: Arc<dyn Monitor>,
    ) -> Self {
        Self {
            tops,
            nodes,
            forgetting,
            directories: Directories::new(directory_bytes / 4),
            lanes,
            owner,
            monitor,
            reported: ByteCache::new(REPORTED_BYTES_MAX),
        }
    }

    /// The attributes of a node that the kernel knows.
    pub fn attributes(&self, node: Node) -> Result<Seen, Errno> {
        if let Node::Top(number) = node {
            return self.top_attributes(number);
        }
        if let Node::Directory(number) = node
            && let Origin::Top { snapshot, .. } = self.origin(number)?
        {
            return Ok(top(attributes::of_root(node.inode(), &snapshot, self.owner)));
        }
        let stored = self.stored(node)?;
        Ok(kept(attributes::of_entry(node.inode(), &stored.entry)))
    }

    /// A name in a directory; the kernel gets to know its node. `None` if there is no such name and
    /// never will be.
    pub fn lookup(&self, parent: Node, name: &[u8]) -> Result<Option<Seen>, Errno> {
        let number = match parent {
            Node::Top(number) => return self.top_lookup(number, name).map(Some),
            Node::Directory(number) => number,
            Node::Leaf { .. } | Node::Linked(_) => return Err(Errno::ENOTDIR),
        };
        let directory = self.directory(number)?;
        let lane = self.lane(&directory)?;
        let found = lane.listings.find(&directory.tree, name);
        let found = found.map_err(|failure| self.unreadable(&directory, &failure))?;
        let seen = found.map(|(place, entry)| {
            let node = self.nodes.acquire(directory.at, place, &entry);
            kept(attributes::of_entry(node.inode(), &entry))
        });
        self.forgetting.look();
        Ok(seen)
    }

    /// The kernel drops this many of its references to a node.
    pub fn forget(&self, node: Node, lookups: u64) {
        self.nodes.forget(node, lookups);
    }

    /// The target of a link.
    pub fn link_target(&self, node: Node) -> Result<Vec<u8>, Errno> {
        if let Node::Top(number) = node {
            return match self.tops.key(number) {
                Some(TopKey::Link { target, .. }) => Ok(target),
                Some(TopKey::Directory(_)) => Err(Errno::EINVAL),
                None => Err(Errno::ESTALE),
            };
        }
        match &self.stored(node)?.entry.kind {
            EntryKind::Symlink { target } => Ok(target.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Calls `take` with the extended attributes of a node, sorted by name.
    pub fn with_xattrs<T>(
        &self,
        node: Node,
        take: impl FnOnce(&[strongroom_catalog::Xattr]) -> T,
    ) -> Result<T, Errno> {
        if self.is_made_up(node)? {
            return Ok(take(&[]));
        }
        Ok(take(&self.stored(node)?.entry.metadata.xattrs))
    }

    /// Bytes of a file.
    pub fn read(&self, node: Node, offset: u64, size: usize) -> Result<Vec<u8>, Errno> {
        let stored = self.stored(node)?;
        let content = stored.entry.content().ok_or(Errno::EINVAL)?;
        let lane = self.lane(&stored.directory)?;
        let bytes = lane.contents.read(node.inode(), content, offset, size);
        let bytes = bytes.map_err(|error| self.unreadable_at(node, &stored, &error));
        self.tell_heals();
        bytes
    }

    /// Where the next hole or data of a file begins.
    pub fn seek(&self, node: Node, offset: u64, wanted: Extent) -> Result<u64, Errno> {
        let stored = self.stored(node)?;
        let content = stored.entry.content().ok_or(Errno::EINVAL)?;
        let lane = self.lane(&stored.directory)?;
        let found = lane.contents.seek(node.inode(), content, offset, wanted);
        let found = found.map_err(|error| self.unreadable_at(node, &stored, &error));
        found?.ok_or(Errno::ENXIO)
    }

    /// The list of a directory above the snapshots, to be kept while it is open. `None` for a
    /// directory of a snapshot, whose list never changes.
    pub fn open_list(&self, node: Node) -> Result<Option<TopList>, Errno> {
        let Node::Top(number) = node else { return Ok(None) };
        let path = self.top_path(number)?;
        let layout = self.tops.fresh_layout();
        let directory = layout.directory(&path).ok_or(Errno::ENOENT)?;
        let line = |(name, child): (&Vec<u8>, &TopChild)| TopLine {
            name: name.clone(),
            child: child.clone(),
        };
        let lines = directory.children.iter().map(line).collect();
        Ok(Some(TopList { path, number, lines }))
    }

    /// Yields the lines of a list from a place on.
    pub fn list_top(&self, list: &TopList, from: u64, with: Acquaintance, take: &mut TakeLine<'_>) {
        let own = Node::Top(list.number).inode();
        // The kernel itself knows the directory above.
        if self.put_dots(own, own, from, take) {
            return;
        }
        let layout = self.tops.layout();
        let start = usize::try_from(from.saturating_sub(DOTS)).unwrap_or(usize::MAX);
        for (place, line) in list.lines.iter().enumerate().skip(start) {
            let seen = self.see_top_child(list.number, &list.path, line, &layout, with);
            if take(&line.name, place as u64 + DOTS + 1, &seen) {
                self.undo(&seen, with);
                return;
            }
        }
    }

    /// Yields the lines of a directory of a snapshot from a place on.
    pub fn list(
        &self,
        node: Node,
        from: u64,
        with: Acquaintance,
        take: &mut TakeLine<'_>,
    ) -> Result<(), Errno> {
        let Node::Directory(number) = node else { return Err(Errno::ENOTDIR) };
        let directory = self.directory(number)?;
        let above = match self.origin(number)? {
            Origin::Top { above, .. } => Node::Top(above),
            Origin::Child(place) => Node::Directory(place.directory),
        };
        if self.put_dots(node.inode(), above.inode(), from, take) {
            return Ok(());
        }
        let unreadable = |failure| self.unreadable(&directory, &failure);
        let lane = self.lane(&directory)?;
        let count = u64::from(lane.listings.count(&directory.tree).map_err(unreadable)?);
        for place in from.saturating_sub(DOTS)..count {
            // Below the count, which is a u32.
            let at = place as u32;
            let entry = lane.listings.entry(&directory.tree, at).map_err(unreadable)?;
            let Some(entry) = entry else { return Ok(()) };
            let child = match with {
                Acquaintance::Made => self.nodes.acquire(directory.at, at, &entry),
                Acquaintance::None => self.nodes.peek(directory.at, at, &entry),
            };
            let seen = kept(attributes::of_entry(child.inode(), &entry));
            if take(&entry.name, place + DOTS + 1, &seen) {
                self.undo(&seen, with);
                break;
            }
        }
        self.forgetting.look();
        Ok(())
    }

    /// `.` and `..`; true if the list ends with them.
    fn put_dots(&self, own: u64, above: u64, from: u64, take: &mut TakeLine<'_>) -> bool {
        let dots: [(&[u8], u64); 2] = [(b".", own), (b"..", above)];
        dots.iter().zip(1..=DOTS).skip(usize::try_from(from).unwrap_or(2)).any(
            |((name, inode), next)| {
                // The kernel uses only the name and the number of these two.
                let moment = strongroom_base::Timestamp(0);
                let seen = top(attributes::of_top_directory(*inode, moment, self.owner));
                take(name, next, &seen)
            },
        )
    }

    /// Undoes a line that was made and then not taken.
    fn undo(&self, seen: &Seen, with: Acquaintance) {
        if with == Acquaintance::Made {
            self.nodes.forget(Node::of(seen.attributes.ino.0), 1);
        }
    }

    fn top_path(&self, number: u64) -> Result<Vec<u8>, Errno> {
        match self.tops.key(number) {
            Some(TopKey::Directory(path)) => Ok(path),
            Some(TopKey::Link { .. }) => Err(Errno::ENOTDIR),
            None => Err(Errno::ESTALE),
        }
    }

    fn top_attributes(&self, number: u64) -> Result<Seen, Errno> {
        let layout = self.tops.layout();
        match self.tops.key(number).ok_or(Errno::ESTALE)? {
            TopKey::Directory(path) => {
                let directory = layout.directory(&path).ok_or(Errno::ESTALE)?;
                let changed = directory.changed;
                Ok(top(attributes::of_top_directory(number, changed, self.owner)))
            }
            TopKey::Link { directory, name, target } => {
                let directory = layout.directory(&directory).ok_or(Errno::ESTALE)?;
                match directory.children.get(&name) {
                    Some(TopChild::Link { changed, .. }) => {
                        Ok(top(attributes::of_top_link(number, &target, *changed, self.owner)))
                    }
                    _ => Err(Errno::ESTALE),
                }
            }
        }
    }

    fn top_lookup(&self, number: u64, name: &[u8]) -> Result<Seen, Errno> {
        let path = self.top_path(number)?;
        let find = |layout: &Layout| layout.directory(&path)?.children.get(name).cloned();
        let mut layout = self.tops.layout();
        let mut child = find(&layout);
        // A name that exists is used without a check, so that walking through these directories to
        // a file asks the repository for nothing.
        if child.is_none() || name == LATEST {
            layout = self.tops.fresh_layout();
            child = find(&layout);
        }
        let line = TopLine { name: name.to_vec(), child: child.ok_or(Errno::ENOENT)? };
        Ok(self.see_top_child(number, &path, &line, &layout, Acquaintance::Made))
    }

    fn see_top_child(
        &self,
        number: u64,
        path: &[u8],
        line: &TopLine,
        layout: &Layout,
        with: Acquaintance,
    ) -> Seen {
        top(match &line.child {
            TopChild::Directory => {
                let path = join(path, &line.name);
                let changed = layout.directory(&path).map_or_else(Default::default, |d| d.changed);
                let number = self.tops.number(TopKey::Directory(path));
                attributes::of_top_directory(number, changed, self.owner)
            }
            TopChild::Link { target, changed } => {
                let (directory, name) = (path.to_vec(), line.name.clone());
                let key = TopKey::Link { directory, name, target: target.clone() };
                attributes::of_top_link(self.tops.number(key), target, *changed, self.owner)
            }
            TopChild::Snapshot(snapshot) => {
                let node = match with {
                    Acquaintance::Made => {
                        self.nodes.acquire_root(path, number, &line.name, snapshot)
                    }
                    Acquaintance::None => self.nodes.peek_root(path, snapshot.id),
                };
                attributes::of_root(node.inode(), snapshot, self.owner)
            }
        })
    }

    fn directory(&self, number: u64) -> Result<Arc<Directory>, Errno> {
        let opened = self.directories.get(number, &self.nodes, &self.lanes);
        opened.map_err(|error| match error {
            Unopened::Forgotten => Errno::ESTALE,
            Unopened::Above(above, failure) => self.unreadable(&above, &failure),
        })
    }

    fn origin(&self, number: u64) -> Result<Origin, Errno> {
        self.nodes.origin(number).ok_or(Errno::ESTALE)
    }

    /// True for a node that is not an entry of a snapshot.
    fn is_made_up(&self, node: Node) -> Result<bool, Errno> {
        Ok(match node {
            Node::Top(_) => true,
            Node::Directory(number) => matches!(self.origin(number)?, Origin::Top { .. }),
            Node::Leaf { .. } | Node::Linked(_) => false,
        })
    }

    /// The entry of a node.
    fn stored(&self, node: Node) -> Result<Stored, Errno> {
        let at = match node {
            Node::Top(_) => return Err(Errno::EINVAL),
            Node::Leaf { directory, place } => Place { directory, place },
            Node::Linked(number) => self.nodes.linked(number).ok_or(Errno::ESTALE)?,
            Node::Directory(number) => match self.origin(number)? {
                Origin::Child(place) => place,
                Origin::Top { .. } => return Err(Errno::EINVAL),
            },
        };
        let directory = self.directory(at.directory)?;
        let entry = self.lane(&directory)?.listings.entry(&directory.tree, at.place);
        let entry = entry.map_err(|failure| self.unreadable(&directory, &failure))?;
        Ok(Stored { entry: entry.ok_or(Errno::ESTALE)?, directory })
    }

    /// What reads the snapshot that a directory is in.
    fn lane(&self, directory: &Arc<Directory>) -> Result<Arc<Lane>, Errno> {
        let lane = self.lanes.of(&directory.snapshot.domain);
        lane.map_err(|failure| self.unreadable(directory, &failure))
    }

    fn unreadable(&self, directory: &Arc<Directory>, failure: &Failure) -> Errno {
        if self.is_news(Node::Directory(directory.at.number)) {
            let what = format!("the directory cannot be read: {failure}");
            self.report(directory, None, failure, &what);
        }
        Errno::EIO
    }

    fn unreadable_at(&self, node: Node, stored: &Stored, error: &ReadFailure) -> Errno {
        if self.is_news(node) {
            let what = format!("cannot be read at byte {}: {}", error.offset, error.failure);
            self.report(&stored.directory, Some(&stored.entry), &error.failure, &what);
        }
        Errno::EIO
    }

    /// True if it was not yet reported that this cannot be read: the kernel asks for each page of a
    /// file again.
    fn is_news(&self, node: Node) -> bool {
        self.reported.put(node.inode(), (), 0).is_none()
    }

    fn report(
        &self,
        directory: &Arc<Directory>,
        entry: Option<&Entry>,
        failure: &Failure,
        what: &str,
    ) {
        let mut path = self.path(directory);
        if let Some(entry) = entry {
            path.push(std::ffi::OsString::from_vec(entry.name.clone()));
        }
        let severity = if failure.is_damage { Severity::Damage } else { Severity::Warning };
        let message = format!("in snapshot {}: {what}", directory.snapshot.id.short());
        self.monitor.problem(Problem { severity, path: Some(&path), message: &message });
    }

    fn tell_heals(&self) {
        let heals = self.lanes.take_heals();
        if heals > 0 {
            let arenas = counted(heals, "damaged arena was", "damaged arenas were");
            let message = format!(
                "{arenas} repaired in memory, from parity: what was read is right; run \
                 `strongroom repair` to repair the repository"
            );
            let severity = Severity::Warning;
            self.monitor.problem(Problem { severity, path: None, message: &message });
        }
    }

    /// The path of a directory in its snapshot.
    fn path(&self, directory: &Arc<Directory>) -> PathBuf {
        let mut names = Vec::new();
        let mut number = directory.at.number;
        while let Some(Origin::Child(place)) = self.nodes.origin(number) {
            let parent = self.directories.get(place.directory, &self.nodes, &self.lanes).ok();
            let entry = parent.and_then(|parent| {
                let lane = self.lanes.of(&parent.snapshot.domain).ok()?;
                lane.listings.entry(&parent.tree, place.place).ok().flatten()
            });
            names.push(entry.map_or_else(|| b"?".to_vec(), |entry| entry.name.clone()));
            number = place.directory;
        }
        let root = std::iter::once(PathBuf::from("/"));
        let names = names.into_iter().rev().map(|name| std::ffi::OsString::from_vec(name).into());
        root.chain(names).collect()
    }
}

fn kept(attributes: FileAttr) -> Seen {
    Seen { attributes, lifetime: STORED_LIFETIME }
}

fn top(attributes: FileAttr) -> Seen {
    Seen { attributes, lifetime: TOP_LIFETIME }
}

/// The answer for a name that will never exist: the kernel remembers it like any other.
pub fn never() -> Seen {
    let owner = Owner { uid: 0, gid: 0 };
    let attributes = attributes::of_top_directory(0, strongroom_base::Timestamp(0), owner);
    Seen { attributes: FileAttr { kind: FileType::RegularFile, ..attributes }, ..kept(attributes) }
}
