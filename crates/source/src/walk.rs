//! The walk: a tree told depth first, names sorted bytewise, one event at a time.
//!
//! Invariants:
//! - each directory is opened from its parent by one name, and known by device and inode since;
//! - the descriptors held belong to the deepest directories on the way, at most [`FDS_MAX`];
//!   one that was given up is opened again through `..` of its child, or from `/` name by name,
//!   and taken only if it is the same inode;
//! - `path` ends with the subject of the event told last.

mod cut;
mod handle;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, OFlags, Statx};
use rustix::io::Errno;
use strongroom_catalog::{DeviceNumber, Metadata};

use crate::accounts::Accounts;
use crate::error::SourceError;
use crate::inode::{self, InodeId};
use crate::listing::Listing;
use crate::options::SourceOptions;
use crate::plan::Plan;
use crate::xattr::XattrSupport;

use cut::Cuts;
pub use handle::EntryHandle;

/// How many directories the walk holds open; others may keep some more open by a handle.
const FDS_MAX: usize = 64;

/// The trees below some paths, as one tree rooted at `/`.
#[derive(Debug)]
pub struct TreeSource {
    plan: Plan,
    cuts: Cuts,
    context: Arc<Context>,
    /// From `/` to the directory the walk is in.
    frames: Vec<Frame>,
    /// Frames below this one have given up their descriptor.
    open_from: usize,
    path: Vec<u8>,
    subject: Subject,
    counts: WalkCounts,
    started: bool,
    buffer: Vec<u8>,
}

/// What the walk tells next.
#[derive(Debug)]
pub enum WalkEvent {
    /// A directory begins; what it holds follows, up to its [`LeaveDirectory`](Self::LeaveDirectory).
    EnterDirectory {
        /// Its name; empty for `/`.
        name: Vec<u8>,
        /// What it is, without extended attributes.
        metadata: Metadata,
    },
    /// The directory entered last, and not yet left, ends.
    LeaveDirectory,
    /// Anything but a directory.
    Leaf {
        /// Its name.
        name: Vec<u8>,
        /// Of which kind it is.
        kind: LeafKind,
        /// What it is, without extended attributes.
        metadata: Metadata,
    },
    /// Left out because it was asked for.
    Excluded {
        /// What is left out, or the directory whose content is.
        path: PathBuf,
        /// Why.
        why: ExcludeReason,
    },
    /// Something could not be read; the walk goes on.
    Problem {
        /// With what.
        path: PathBuf,
        /// Why.
        error: SourceError,
    },
}

/// What a leaf is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeafKind {
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink {
        /// Where it points: any bytes.
        target: Vec<u8>,
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
}

/// Why something is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExcludeReason {
    /// A pattern matches it.
    Pattern,
    /// The directory holds a file of this name; its content is left out.
    Marker {
        /// The name.
        name: Vec<u8>,
    },
    /// The directory is a cache, by its `CACHEDIR.TAG`; its content but the tag is left out.
    CacheDirectory,
    /// Another file system is mounted here; its content is left out.
    MountPoint,
    /// The file is longer than wanted.
    TooBig {
        /// Its length.
        bytes: u64,
    },
    /// The caller asked to skip this directory by its inode; its content is left out.
    SkippedInode,
}

/// What the walk has told so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WalkCounts {
    /// Directories entered.
    pub directories: u64,
    /// Leaves told.
    pub leaves: u64,
    /// Things left out because it was asked for; what stands below them is not counted.
    pub excluded: u64,
    /// Things that could not be read.
    pub problems: u64,
}

/// What entries need after the walk has gone on.
#[derive(Debug)]
struct Context {
    accounts: Accounts,
    xattr_support: XattrSupport,
}

/// A directory the walk is in.
#[derive(Debug)]
struct Frame {
    /// None where it was given up, or could not be opened.
    fd: Option<Arc<OwnedFd>>,
    id: InodeId,
    listing: Listing,
    /// The next name of the listing.
    next: usize,
    /// Its path's part of the walk's path.
    path_bytes: usize,
    /// All that stands here is wanted; else only what the plan names.
    whole: bool,
    /// Where the plan has something below it.
    node: Option<usize>,
    /// It was reached through a symbolic link, if there is one.
    follow: bool,
    /// Told before its next name.
    pending: VecDeque<WalkEvent>,
}

/// What the last event was about.
#[derive(Debug, Clone)]
enum Subject {
    Nothing,
    Directory(InodeId),
    Leaf { name: CString, id: InodeId, kind: FileType },
}

impl TreeSource {
    /// Prepares to walk the trees below `paths`.
    ///
    /// Each path is made absolute: a relative one by the working directory, `..` by asking where
    /// what precedes it leads. It is shown as it was spelt, also where a symbolic link is on the
    /// way, unless it lies below another given path. A symbolic link at its end is stored as the
    /// link it is; with a slash behind it, as the directory it leads to. A path given twice, or
    /// below another, is walked once.
    ///
    /// # Errors
    /// A path that does not exist, no path at all, or a pattern that makes no sense.
    pub fn open(paths: &[PathBuf], options: &SourceOptions) -> Result<Self, SourceError> {
        Ok(Self {
            plan: Plan::new(paths)?,
            cuts: Cuts::new(options)?,
            context: Arc::new(Context {
                accounts: Accounts::of_this_machine(),
                xattr_support: XattrSupport::default(),
            }),
            frames: Vec::new(),
            open_from: 0,
            path: b"/".to_vec(),
            subject: Subject::Nothing,
            counts: WalkCounts::default(),
            started: false,
            buffer: Vec::new(),
        })
    }

    /// The given paths, absolute, sorted; those below another left out.
    pub fn roots(&self) -> Vec<PathBuf> {
        self.plan.roots()
    }

    /// The full path the last event was about. For [`WalkEvent::Problem`] and
    /// [`WalkEvent::Excluded`], use the path they carry.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// What the walk has told so far.
    pub fn counts(&self) -> WalkCounts {
        self.counts
    }

    /// The next event, or none when the walk is over.
    #[expect(clippy::should_implement_trait, reason = "the walk is asked about its last event")]
    pub fn next(&mut self) -> Option<WalkEvent> {
        self.subject = Subject::Nothing;
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

    fn enter_root(&mut self) -> WalkEvent {
        let whole = self.plan.node(0).given;
        let found = inode::stat_at(rustix::fs::CWD, c"/");
        match found {
            Ok(stat) => self.enter(c"/", &stat, whole, Some(0)),
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
        let name = frame.listing.name(frame.next).to_owned();
        frame.next += 1;
        if self.path.len() > 1 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.as_bytes());
        Some(self.visit(name))
    }

    /// Tells the entry of a name in the directory the walk is in.
    fn visit(&mut self, name: CString) -> WalkEvent {
        let Some((directory, parent)) =
            self.frames.last().and_then(|frame| frame.fd.clone().map(|fd| (fd, frame)))
        else {
            return self.problem("open the directory of", Errno::BADF);
        };
        let node = self.plan.child(parent.node, &name);
        let (given, follow) = match node.map(|node| self.plan.node(node)) {
            Some(node) => (node.given, node.follow),
            None => (false, false),
        };
        let (parent_whole, parent_id) = (parent.whole, parent.id);
        let found = match follow {
            true => inode::stat_at_following(directory.as_fd(), &name),
            false => inode::stat_at(directory.as_fd(), &name),
        };
        let stat = match found {
            Ok(stat) => stat,
            Err(error) => return self.problem("read the metadata of", error),
        };
        let is_directory = inode::kind_of(&stat) == FileType::Directory;
        let on_the_way =
            is_directory && node.is_some_and(|node| !self.plan.node(node).children.is_empty());
        let mut whole = given || parent_whole;
        if parent_whole
            && !given
            && let Some(why) = self.cuts.of_name(self.path(), &stat)
        {
            if !on_the_way {
                return self.excluded(why);
            }
            whole = false;
        }
        if !is_directory {
            // A path that was given through this has lost its way.
            if node.is_some() && !given && !parent_whole {
                return self.problem_of(SourceError::Changed {
                    path: self.path().to_owned(),
                    now: inode::kind_text(inode::kind_of(&stat)),
                });
            }
            return self.leaf(&directory, name, &stat);
        }
        let boundary = if whole && !given { Some(parent_id.device) } else { None };
        match self.cuts.of_directory(&stat, boundary) {
            Some(cut) if cut.keeps_wanted && on_the_way => self.enter(&name, &stat, false, node),
            Some(cut) => self.enter_cut(&name, &stat, cut.why),
            None => self.enter(&name, &stat, whole, node),
        }
    }

    fn leaf(&mut self, directory: &Arc<OwnedFd>, name: CString, stat: &Statx) -> WalkEvent {
        let kind = match inode::kind_of(stat) {
            FileType::RegularFile => LeafKind::File,
            FileType::Symlink => match rustix::fs::readlinkat(directory, &name, Vec::new()) {
                Ok(target) => LeafKind::Symlink { target: target.into_bytes() },
                Err(error) => return self.problem("read the symbolic link", error),
            },
            FileType::Fifo => LeafKind::Fifo,
            FileType::Socket => LeafKind::Socket,
            FileType::CharacterDevice => LeafKind::CharDevice(inode::device_number(stat)),
            FileType::BlockDevice => LeafKind::BlockDevice(inode::device_number(stat)),
            _ => {
                let kind = stat.stx_mode & 0o170_000;
                return self
                    .problem_of(SourceError::UnknownKind { path: self.path().to_owned(), kind });
            }
        };
        let metadata = inode::metadata_of(stat, &self.context.accounts);
        let event = WalkEvent::Leaf { name: name.to_bytes().to_vec(), kind, metadata };
        self.subject = Subject::Leaf { name, id: InodeId::of(stat), kind: inode::kind_of(stat) };
        event
    }

    /// Opens a directory and lists it. One that may not be read is entered empty.
    fn enter(&mut self, name: &CStr, seen: &Statx, whole: bool, node: Option<usize>) -> WalkEvent {
        let follow = node.is_some_and(|node| self.plan.node(node).follow);
        let parent = self.frames.last().and_then(|frame| frame.fd.clone());
        let opened = match &parent {
            Some(parent) => open_directory(parent, name, follow),
            None => open_directory(rustix::fs::CWD, name, follow),
        };
        let fd = match opened {
            Ok(fd) => Arc::new(fd),
            Err(error) => return self.enter_unreadable(name, seen, error),
        };
        // What was opened counts, whatever was there before.
        let stat = match inode::stat_fd(&fd) {
            Ok(stat) => stat,
            Err(error) => return self.problem("read the metadata of", error),
        };
        if InodeId::of(&stat) != InodeId::of(seen) {
            let device = self.frames.last().map(|frame| frame.id.device).filter(|_| whole);
            if let Some(cut) = self.cuts.of_directory(&stat, device) {
                return self.enter_cut(name, &stat, cut.why);
            }
        }
        let children = node.map(|node| &self.plan.node(node).children);
        let wanted = children.into_iter().flatten().map(|(name, _)| name.as_c_str());
        let mut pending = VecDeque::new();
        let (mut listing, failed) = match whole {
            true => Listing::read(fd.as_fd(), &mut self.buffer),
            false => (Listing::of_names(wanted.clone()), None),
        };
        let cut = if whole { self.cuts.of_content(&fd, &listing) } else { None };
        let whole = whole && cut.is_none();
        if let Some(why) = cut {
            listing = Listing::of_names(wanted.chain(cut::kept_by(&why)));
            pending.push_back(WalkEvent::Excluded { path: self.path().to_owned(), why });
        }
        if let Some(error) = failed {
            let error = SourceError::io("list", self.path(), error);
            pending.push_back(WalkEvent::Problem { path: self.path().to_owned(), error });
        }
        self.push(Some(fd), &stat, listing, whole, node, pending);
        self.enter_event(name, &stat)
    }

    /// Enters a directory whose content is left out; it is not opened.
    fn enter_cut(&mut self, name: &CStr, stat: &Statx, why: ExcludeReason) -> WalkEvent {
        let pending = [WalkEvent::Excluded { path: self.path().to_owned(), why }].into();
        self.push(None, stat, Listing::default(), false, None, pending);
        self.enter_event(name, stat)
    }

    fn enter_unreadable(&mut self, name: &CStr, stat: &Statx, error: Errno) -> WalkEvent {
        match error {
            Errno::NOENT => return self.problem("open", error),
            Errno::NOTDIR | Errno::LOOP => {
                let path = self.path().to_owned();
                return self.problem_of(SourceError::Changed { path, now: "something else" });
            }
            _ => {}
        }
        let path = self.path().to_owned();
        let error = SourceError::io("open the directory", &path, error);
        let pending = [WalkEvent::Problem { path, error }].into();
        self.push(None, stat, Listing::default(), false, None, pending);
        self.enter_event(name, stat)
    }

    fn enter_event(&mut self, name: &CStr, stat: &Statx) -> WalkEvent {
        self.subject = Subject::Directory(InodeId::of(stat));
        let metadata = inode::metadata_of(stat, &self.context.accounts);
        let name = if self.frames.len() == 1 { Vec::new() } else { name.to_bytes().to_vec() };
        WalkEvent::EnterDirectory { name, metadata }
    }

    fn push(
        &mut self,
        fd: Option<Arc<OwnedFd>>,
        stat: &Statx,
        listing: Listing,
        whole: bool,
        node: Option<usize>,
        pending: VecDeque<WalkEvent>,
    ) {
        let follow = node.is_some_and(|node| self.plan.node(node).follow);
        let (id, path_bytes) = (InodeId::of(stat), self.path.len());
        self.frames.push(Frame {
            fd,
            id,
            listing,
            next: 0,
            path_bytes,
            whole,
            node,
            follow,
            pending,
        });
        if self.frames.len() - self.open_from > FDS_MAX {
            self.frames[self.open_from].fd = None;
            self.open_from += 1;
        }
    }

    /// Leaves the directory the walk is in, and sees to it that its parent is open.
    fn leave(&mut self) {
        let Some(child) = self.frames.pop() else { return };
        if self.frames.is_empty() || self.frames.len() > self.open_from {
            return;
        }
        let place = self.frames.len() - 1;
        self.open_from = place;
        let parent = &self.frames[place];
        let through_child = child.fd.as_ref().and_then(|fd| open_same(fd, c"..", false, parent.id));
        match through_child.or_else(|| self.open_from_root(place)) {
            Some(fd) => self.frames[place].fd = Some(Arc::new(fd)),
            None => {
                let frame = &mut self.frames[place];
                frame.listing = Listing::default();
                frame.next = 0;
                let path = PathBuf::from(OsStr::from_bytes(&self.path[..frame.path_bytes]));
                let error = SourceError::Moved { path: path.clone() };
                frame.pending.push_back(WalkEvent::Problem { path, error });
            }
        }
    }

    /// Opens the directory of a frame again, name by name.
    fn open_from_root(&self, place: usize) -> Option<OwnedFd> {
        let mut fd = open_same(rustix::fs::CWD, c"/", false, self.frames[0].id)?;
        for pair in self.frames[..=place].windows(2) {
            let name = &self.path[pair[0].path_bytes..pair[1].path_bytes];
            let name = CString::new(name.strip_prefix(b"/").unwrap_or(name)).ok()?;
            fd = open_same(&fd, &name, pair[1].follow, pair[1].id)?;
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

fn open_directory(parent: impl AsFd, name: &CStr, follow: bool) -> Result<OwnedFd, Errno> {
    let link = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    inode::open_to_read(parent.as_fd(), name, OFlags::DIRECTORY | link)
}

fn open_same(parent: impl AsFd, name: &CStr, follow: bool, id: InodeId) -> Option<OwnedFd> {
    let fd = open_directory(parent, name, follow).ok()?;
    let stat = inode::stat_fd(&fd).ok()?;
    (InodeId::of(&stat) == id).then_some(fd)
}
