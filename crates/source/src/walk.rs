//! The walk: a tree as a sequence of events, depth first, names sorted bytewise.
//!
//! Invariants:
//! - each directory is opened from its parent by one name, and identified by device and inode from
//!   then on; one that is only on the way to what is wanted need not be readable, only searchable;
//! - the descriptors held belong to the deepest directories on the way, at most [`FDS_MAX`]; a
//!   descriptor that was given up is opened again through `..` of its child, or from `/` name by
//!   name, and used only if it is the same inode;
//! - `path` ends with the subject of the last event;
//! - an event holds all that can be asked about it, so another thread may handle it.

mod cut;
mod event;
mod handle;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Statx, StatxAttributes};
use rustix::io::Errno;
use strongroom_catalog::{DeviceNumber, Metadata};

use crate::accounts::Accounts;
use crate::error::SourceError;
use crate::exclude::Patterns;
use crate::file_system::FileSystem;
use crate::foreign::{Correction, Corrections};
use crate::inode::{self, InodeFacts, InodeId};
use crate::listing::Listing;
use crate::options::SourceOptions;
use crate::plan::Plan;

use cut::Cuts;
pub use event::{ExcludeReason, LeafKind, WalkCounts, WalkEvent};
use handle::Place;
pub use handle::{EntryHandle, EntryXattrs};

/// How many directories the walk holds open; a handle may keep further ones open.
const FDS_MAX: usize = 64;
/// What failed if a directory may not be read.
const OPEN_DIRECTORY: &str = "open the directory";

/// The trees below some paths, as one tree rooted at `/`.
#[derive(Debug)]
pub struct TreeSource {
    plan: Plan,
    /// The directory that is `/` of the tree.
    root: CString,
    cuts: Cuts,
    context: Arc<Context>,
    /// From `/` to the directory the walk is in.
    frames: Vec<Frame>,
    /// Frames below this one have given up their descriptor.
    open_from: usize,
    path: Vec<u8>,
    counts: WalkCounts,
    started: bool,
    buffer: Vec<u8>,
}

/// What entries need after the walk has moved on.
#[derive(Debug)]
struct Context {
    accounts: Accounts,
    /// What is known of the tree, if it is of another machine.
    foreign: Option<Corrections>,
    /// What is taken of all file systems.
    file_system: Option<FileSystem>,
}

/// A name in an open directory.
struct Name {
    place: Arc<Place>,
    /// Which of the names in that place.
    at: usize,
}

/// A directory that is about to be entered.
struct Found {
    /// `None` for `/`.
    name: Option<Name>,
    /// As in its [`Frame`].
    whole: bool,
    /// As in its [`Frame`].
    node: Option<usize>,
    /// Why it was not opened to be listed.
    denied: Option<Errno>,
}

/// A directory the walk is in.
#[derive(Debug)]
struct Frame {
    /// `None` if it was given up, or could not be opened.
    place: Option<Arc<Place>>,
    id: InodeId,
    file_system: FileSystem,
    is_overlay: bool,
    listing: Arc<Listing>,
    /// The next name of the listing.
    next: usize,
    /// Its path's part of the walk's path.
    path_bytes: usize,
    /// All that is in it is wanted; otherwise only what the plan names.
    whole: bool,
    /// The node of the plan, if the plan has something below it.
    node: Option<usize>,
    /// It was reached through a symbolic link, if there is one.
    follow: bool,
    /// Events to yield before its next name.
    pending: VecDeque<WalkEvent>,
}

impl TreeSource {
    /// Prepares to walk the trees below `paths`.
    ///
    /// Each path is made absolute: a relative one by the working directory, `..` by asking where
    /// the path before it leads. It is shown as it was spelt, even if a symbolic link is on the
    /// way, unless it is below another given path. A symbolic link at its end is stored as the link
    /// it is; with a slash after it, as the directory it leads to. A path given twice, or below
    /// another, is walked once.
    ///
    /// # Errors
    /// A path that does not exist, no path at all, or an invalid pattern.
    pub fn open(paths: &[PathBuf], options: &SourceOptions) -> Result<Self, SourceError> {
        let (plan, root, accounts) = match &options.root {
            Some(root) => {
                let path = CString::new(root.path.as_os_str().as_bytes());
                let path = path.map_err(|_| SourceError::Missing { path: root.path.clone() })?;
                (Plan::whole(), path, root.accounts.clone())
            }
            None => (Plan::new(paths)?, c"/".to_owned(), Accounts::of_this_machine()),
        };
        Ok(Self {
            plan,
            root,
            cuts: Cuts::new(options)?,
            context: Arc::new(Context {
                accounts,
                foreign: options.root.as_ref().map(|root| root.corrections.clone()),
                file_system: options.file_system,
            }),
            frames: Vec::new(),
            open_from: 0,
            path: b"/".to_vec(),
            counts: WalkCounts::default(),
            started: false,
            buffer: Vec::new(),
        })
    }

    /// Finds the paths, without walking them. Each must exist.
    pub fn find(paths: &[PathBuf]) -> Result<(), SourceError> {
        Plan::new(paths).map(drop)
    }

    /// The given paths, absolute, sorted; those below another left out.
    pub fn roots(&self) -> Vec<PathBuf> {
        self.plan.roots()
    }

    /// The patterns of what is left out, as they were read.
    pub fn patterns(&self) -> &Patterns {
        &self.cuts.patterns
    }

    /// The full path the last event was about. For [`WalkEvent::Problem`] and
    /// [`WalkEvent::Excluded`], use the path they carry.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// What the walk has yielded so far.
    pub fn counts(&self) -> WalkCounts {
        self.counts
    }

    fn enter_root(&mut self) -> WalkEvent {
        let whole = self.plan.node(0).given;
        let found = inode::stat_at(rustix::fs::CWD, &self.root);
        match found {
            Ok(stat) => {
                let directory = Found { name: None, whole, node: Some(0), denied: None };
                self.enter(directory, &stat)
            }
            Err(error) => self.problem("read the metadata of", error),
        }
    }

    fn step(&mut self) -> Option<WalkEvent> {
        let frame = self.frames.last_mut()?;
        self.path.truncate(frame.path_bytes);
        if let Some(event) = frame.pending.pop_front() {
            return Some(event);
        }
        if frame.next == frame.listing.len() {
            self.leave();
            return Some(WalkEvent::LeaveDirectory);
        }
        let at = frame.next;
        frame.next += 1;
        if self.path.len() > 1 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(frame.listing.name(at).to_bytes());
        let listed_as_directory = frame.listing.is_directory(at);
        Some(match frame.place.clone() {
            Some(place) => self.visit(Name { place, at }, listed_as_directory),
            None => self.problem("open the directory of", Errno::BADF),
        })
    }

    /// The event of a name in the directory the walk is in. Its listing may have said already that
    /// it is a directory.
    fn visit(&mut self, name: Name, listed_as_directory: bool) -> WalkEvent {
        let parent = self.frames.last().expect("a name is in a directory");
        let node = self.plan.child(parent.node, name.text());
        let (given, follow) = match node.map(|node| self.plan.node(node)) {
            Some(node) => (node.given, node.follow),
            None => (false, false),
        };
        let (parent_whole, parent_id) = (parent.whole, parent.id);
        let unseen = listed_as_directory && !follow && self.cuts.may_open_unseen();
        let stat = match unseen {
            true => None,
            false => match name.stat(follow) {
                Ok(stat) => Some(stat),
                Err(error) => return self.problem("read the metadata of", error),
            },
        };
        let is_directory =
            stat.as_ref().is_none_or(|stat| inode::kind_of(stat) == FileType::Directory);
        let on_the_way =
            is_directory && node.is_some_and(|node| !self.plan.node(node).children.is_empty());
        let mut whole = given || parent_whole;
        if parent_whole
            && !given
            && let Some(why) = self.cut(stat.as_ref(), is_directory)
        {
            if !on_the_way {
                return self.excluded(why);
            }
            whole = false;
        }
        let Some(stat) = stat else {
            return self.enter_unseen(name, whole, node);
        };
        if !is_directory {
            // The way to a given path led through this name, and is lost.
            if node.is_some() && !given && !parent_whole {
                return self.problem_of(SourceError::Changed {
                    path: self.path().to_owned(),
                    now: inode::kind_text(inode::kind_of(&stat)),
                });
            }
            return self.leaf(name, &stat);
        }
        let boundary = if whole && !given { Some(parent_id.device) } else { None };
        match self.cuts.of_directory(&stat, boundary) {
            Some(cut) if cut.keeps_wanted && on_the_way => {
                self.enter(Found { name: Some(name), whole: false, node, denied: None }, &stat)
            }
            Some(cut) => self.enter_cut(Some(name), &stat, cut.why),
            None => self.enter(Found { name: Some(name), whole, node, denied: None }, &stat),
        }
    }

    /// Why the entry at the path is left out; for a directory, by its name alone.
    fn cut(&self, stat: Option<&Statx>, is_directory: bool) -> Option<ExcludeReason> {
        let by_name = self.cuts.of_name(self.path(), is_directory);
        by_name.or_else(|| self.cuts.of_leaf(stat?))
    }

    fn leaf(&mut self, name: Name, stat: &Statx) -> WalkEvent {
        let kind = match inode::kind_of(stat) {
            FileType::RegularFile => LeafKind::File,
            FileType::Symlink => match name.target() {
                Ok(target) => LeafKind::Symlink { target },
                Err(error) => return self.problem("read the symbolic link", error),
            },
            FileType::Fifo => LeafKind::Fifo,
            FileType::Socket => LeafKind::Socket,
            FileType::CharacterDevice => LeafKind::CharDevice(self.device_number(stat)),
            FileType::BlockDevice => LeafKind::BlockDevice(self.device_number(stat)),
            _ => {
                let kind = stat.stx_mode & 0o170_000;
                return self
                    .problem_of(SourceError::UnknownKind { path: self.path().to_owned(), kind });
            }
        };
        let own = self.own_file_system(&name, stat);
        let entry = EntryHandle::below(name.place, name.at, InodeFacts::of(stat));
        let entry = match own {
            Some(file_system) => entry.on(file_system),
            None => entry,
        };
        WalkEvent::Leaf { entry, kind }
    }

    /// What the metadata of a leaf proves, if that is not what its directory's does: something is
    /// mounted on it, or it is of a layer of an overlay.
    fn own_file_system(&self, name: &Name, stat: &Statx) -> Option<FileSystem> {
        let directory = self.frames.last()?;
        let is_of_it = inode::device_of(stat) == directory.id.device;
        if is_of_it || self.context.file_system.is_some() {
            return None;
        }
        let is_said = stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
        let is_mounted = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        if directory.is_overlay && !is_mounted {
            // The layers are on several file systems. Those below may be images, as in systems that
            // run from squashfs; an overlay does not say. Layers of containers are on one.
            return Some(FileSystem { times_prove: false, ..directory.file_system });
        }
        if is_said && !is_mounted {
            return None;
        }
        let file = inode::open_path(name.place.directory().ok()?, name.text()).ok()?;
        Some(self.context.file_system_of(&file))
    }

    fn device_number(&self, stat: &Statx) -> DeviceNumber {
        let correction = self.context.correction(|| self.path().to_owned());
        correction.and_then(|known| known.device).unwrap_or_else(|| inode::device_number(stat))
    }

    /// Opens a directory at once, of which only its listing is known: one call less for each
    /// directory. If that fails, its metadata is read first, as for others.
    fn enter_unseen(&mut self, name: Name, whole: bool, node: Option<usize>) -> WalkEvent {
        let Ok(fd) = name.open_directory(false) else { return self.visit(name, false) };
        match inode::stat_fd(&fd) {
            Ok(stat) => {
                let directory = Found { name: Some(name), whole, node, denied: None };
                self.enter_opened(fd, &stat, None, directory)
            }
            Err(error) => self.problem("read the metadata of", error),
        }
    }

    /// Opens a directory, and lists it if all of it is wanted. One that may not be read is entered
    /// with what is wanted below it by name, if it may be searched.
    fn enter(&mut self, directory: Found, seen: &Statx) -> WalkEvent {
        let node = directory.node.map(|node| self.plan.node(node));
        let follow = node.is_some_and(|node| node.follow);
        let is_on_the_way = node.is_some_and(|node| !node.children.is_empty());
        let mut denied = None;
        let opened = match directory.whole {
            false => self.open_way(&directory, follow),
            true => match self.open_to_list(&directory, follow) {
                Err(error @ Errno::ACCESS) if is_on_the_way => {
                    denied = Some(error);
                    self.open_way(&directory, follow)
                }
                opened => opened,
            },
        };
        let fd = match opened {
            Ok(fd) => fd,
            Err(error) => return self.enter_unreadable(directory.name, seen, error),
        };
        // The directory that was opened counts, even if its name was another before.
        match inode::stat_fd(&fd) {
            Ok(stat) => {
                self.enter_opened(fd, &stat, Some(InodeId::of(seen)), Found { denied, ..directory })
            }
            Err(error) => self.problem("read the metadata of", error),
        }
    }

    fn open_to_list(&self, directory: &Found, follow: bool) -> Result<OwnedFd, Errno> {
        match &directory.name {
            Some(name) => name.open_directory(follow),
            None => inode::open_directory(rustix::fs::CWD, &self.root, follow),
        }
    }

    fn open_way(&self, directory: &Found, follow: bool) -> Result<OwnedFd, Errno> {
        match &directory.name {
            Some(name) => inode::open_way(name.place.directory()?, name.text(), follow),
            None => inode::open_way(rustix::fs::CWD, &self.root, follow),
        }
    }

    /// Lists a directory that was opened. If it was `seen`, the rules were asked before.
    fn enter_opened(
        &mut self,
        fd: OwnedFd,
        stat: &Statx,
        seen: Option<InodeId>,
        directory: Found,
    ) -> WalkEvent {
        let Found { name, whole, node, denied } = directory;
        if seen != Some(InodeId::of(stat)) {
            // A given path is no boundary, also if opening it mounted something there.
            let is_given = node.is_some_and(|node| self.plan.node(node).given);
            let above = self.frames.last().map(|frame| frame.id.device);
            let device = above.filter(|_| whole && !is_given);
            if let Some(cut) = self.cuts.of_directory(stat, device) {
                return self.enter_cut(name, stat, cut.why);
            }
        }
        // What may not be listed has nothing but what was asked for by name.
        let whole = whole && denied.is_none();
        let children = node.map(|node| &self.plan.node(node).children);
        let wanted = children.into_iter().flatten().map(|(name, _)| name.as_c_str());
        let mut pending = VecDeque::new();
        let (mut listing, failed) = match whole {
            true => Listing::read(fd.as_fd(), &mut self.buffer),
            false => (Listing::of_names(wanted.clone()), None),
        };
        let cut = if whole { self.cuts.of_content(fd.as_fd(), &listing) } else { None };
        let whole = whole && cut.is_none();
        if let Some(why) = cut {
            listing = Listing::of_names(wanted.chain(cut::kept_by(&why)));
            pending.push_back(WalkEvent::Excluded { path: self.path().to_owned(), why });
        }
        let failed = failed.map(|error| ("list", error));
        if let Some((operation, error)) = failed.or(denied.map(|error| (OPEN_DIRECTORY, error))) {
            let error = SourceError::io(operation, self.path(), error);
            pending.push_back(WalkEvent::Problem { path: self.path().to_owned(), error });
        }
        let id = InodeId::of(stat);
        // Each file system is asked once for each place at which it begins.
        let above = self.frames.last().filter(|above| above.id.device == id.device);
        let (file_system, is_overlay) = match above {
            Some(above) => (above.file_system, above.is_overlay),
            None => (self.context.file_system_of(&fd), FileSystem::is_overlay(&fd)),
        };
        let place = self.place(Some(fd), self.path.len(), Arc::new(listing), file_system);
        self.push(Frame {
            place: Some(place.clone()),
            id,
            file_system,
            is_overlay,
            listing: place.listing.clone(),
            next: 0,
            path_bytes: self.path.len(),
            whole,
            node,
            follow: node.is_some_and(|node| self.plan.node(node).follow),
            pending,
        });
        let entry = EntryHandle::of(place, InodeFacts::of(stat));
        WalkEvent::EnterDirectory { entry, is_listed: whole }
    }

    /// Enters a directory whose content is left out; it is not kept open.
    fn enter_cut(&mut self, name: Option<Name>, stat: &Statx, why: ExcludeReason) -> WalkEvent {
        let path = self.path().to_owned();
        self.enter_empty(name, stat, WalkEvent::Excluded { path, why })
    }

    fn enter_unreadable(&mut self, name: Option<Name>, stat: &Statx, error: Errno) -> WalkEvent {
        let path = self.path().to_owned();
        match error {
            // It is there and cannot be opened if, for one, an automount daemon finds no server.
            Errno::NOENT if name.as_ref().is_none_or(|name| name.stat(false).is_err()) => {
                return self.problem("open", error);
            }
            Errno::NOTDIR | Errno::LOOP => {
                return self.problem_of(SourceError::Changed { path, now: "something else" });
            }
            _ => {}
        }
        let error = SourceError::io(OPEN_DIRECTORY, &path, error);
        self.enter_empty(name, stat, WalkEvent::Problem { path, error })
    }

    /// Enters a directory that is not open, and of which only one event follows.
    fn enter_empty(&mut self, name: Option<Name>, stat: &Statx, event: WalkEvent) -> WalkEvent {
        let facts = InodeFacts::of(stat);
        // It has no entry that is read.
        let file_system = FileSystem::UNKNOWN;
        // It is identified by its name in its parent.
        let entry = match name {
            Some(name) => EntryHandle::below(name.place, name.at, facts),
            None => {
                let place = self.place(None, self.path.len(), Arc::default(), file_system);
                EntryHandle::of(place, facts)
            }
        };
        self.push(Frame {
            place: None,
            id: facts.id,
            file_system,
            is_overlay: false,
            listing: Arc::default(),
            next: 0,
            path_bytes: self.path.len(),
            whole: false,
            node: None,
            follow: false,
            pending: [event].into(),
        });
        WalkEvent::EnterDirectory { entry, is_listed: false }
    }

    /// The directory whose path is the first `path_bytes` bytes of the walk's path.
    fn place(
        &self,
        fd: Option<OwnedFd>,
        path_bytes: usize,
        listing: Arc<Listing>,
        file_system: FileSystem,
    ) -> Arc<Place> {
        let (path, context) = (self.path[..path_bytes].to_vec(), self.context.clone());
        Arc::new(Place { fd, path, listing, context, file_system })
    }

    fn push(&mut self, frame: Frame) {
        self.frames.push(frame);
        if self.frames.len() - self.open_from > FDS_MAX {
            self.frames[self.open_from].place = None;
            self.open_from += 1;
        }
    }

    /// Leaves the directory the walk is in, and opens its parent if needed.
    fn leave(&mut self) {
        let Some(child) = self.frames.pop() else { return };
        if self.frames.is_empty() || self.frames.len() > self.open_from {
            return;
        }
        let last = self.frames.len() - 1;
        self.open_from = last;
        let parent = &self.frames[last];
        let child = child.place.as_ref().and_then(|place| place.fd.as_ref());
        let through_child = child.and_then(|fd| inode::open_same(fd, c"..", false, parent.id));
        match through_child.or_else(|| self.open_from_root(last)) {
            Some(fd) => {
                let Frame { path_bytes, listing, file_system, .. } = &self.frames[last];
                let place = self.place(Some(fd), *path_bytes, listing.clone(), *file_system);
                self.frames[last].place = Some(place);
            }
            None => {
                let frame = &mut self.frames[last];
                frame.listing = Arc::default();
                frame.next = 0;
                let path = PathBuf::from(OsStr::from_bytes(&self.path[..frame.path_bytes]));
                let error = SourceError::Moved { path: path.clone() };
                frame.pending.push_back(WalkEvent::Problem { path, error });
            }
        }
    }

    /// Opens the directory of a frame again, name by name.
    fn open_from_root(&self, place: usize) -> Option<OwnedFd> {
        let mut fd = inode::open_same(rustix::fs::CWD, &self.root, false, self.frames[0].id)?;
        for pair in self.frames[..=place].windows(2) {
            let name = &self.path[pair[0].path_bytes..pair[1].path_bytes];
            let name = CString::new(name.strip_prefix(b"/").unwrap_or(name)).ok()?;
            fd = inode::open_same(&fd, &name, pair[1].follow, pair[1].id)?;
        }
        Some(fd)
    }

    fn problem(&mut self, operation: &'static str, error: Errno) -> WalkEvent {
        let path = self.path().to_owned();
        self.problem_of(match error {
            Errno::NOENT => SourceError::Vanished { path },
            _ => SourceError::Io { operation, path, error: error.into() },
        })
    }

    fn problem_of(&mut self, error: SourceError) -> WalkEvent {
        WalkEvent::Problem { path: self.path().to_owned(), error }
    }

    fn excluded(&mut self, why: ExcludeReason) -> WalkEvent {
        WalkEvent::Excluded { path: self.path().to_owned(), why }
    }
}

impl Iterator for TreeSource {
    type Item = WalkEvent;

    /// The next event; `None` when the walk is over.
    fn next(&mut self) -> Option<WalkEvent> {
        let event = match self.started {
            true => self.step()?,
            false => {
                self.started = true;
                self.enter_root()
            }
        };
        match &event {
            WalkEvent::EnterDirectory { .. } => self.counts.directories += 1,
            WalkEvent::Leaf { .. } => self.counts.leaves += 1,
            WalkEvent::Excluded { .. } => self.counts.excluded += 1,
            WalkEvent::Problem { .. } => self.counts.problems += 1,
            WalkEvent::LeaveDirectory => {}
        }
        Some(event)
    }
}

impl Context {
    /// What is kept of an inode; `path` is asked for only if the answer may depend on it.
    fn metadata(&self, facts: &InodeFacts, path: impl Fn() -> PathBuf) -> Metadata {
        let mut metadata = facts.metadata(&self.accounts);
        if self.foreign.is_some() {
            facts.leave_out_machine(&mut metadata);
        }
        if let Some(known) = self.correction(path) {
            metadata.mtime = known.mtime.unwrap_or(metadata.mtime);
            metadata.ctime = known.ctime.unwrap_or(metadata.ctime);
        }
        metadata
    }

    /// What the metadata of an open file proves.
    fn file_system_of(&self, file: &OwnedFd) -> FileSystem {
        self.file_system.unwrap_or_else(|| FileSystem::of(file))
    }

    /// What an entry was, if it is not shown so.
    fn correction(&self, path: impl Fn() -> PathBuf) -> Option<&Correction> {
        let corrections = self.foreign.as_ref().filter(|known| !known.is_empty())?;
        corrections.of(&path())
    }
}

impl Name {
    fn text(&self) -> &CStr {
        self.place.listing.name(self.at)
    }

    fn stat(&self, follow: bool) -> Result<Statx, Errno> {
        let directory = self.place.directory()?;
        match follow {
            true => inode::stat_at_following(directory, self.text()),
            false => inode::stat_at(directory, self.text()),
        }
    }

    fn open_directory(&self, follow: bool) -> Result<OwnedFd, Errno> {
        inode::open_directory(self.place.directory()?, self.text(), follow)
    }

    /// Where the symbolic link points.
    fn target(&self) -> Result<Vec<u8>, Errno> {
        let directory = self.place.directory()?;
        Ok(rustix::fs::readlinkat(directory, self.text(), Vec::new())?.into_bytes())
    }
}
