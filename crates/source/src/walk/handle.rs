//! The entry of an event, and what can be asked about it later: its content and its extended
//! attributes.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FileType;
use rustix::io::Errno;
use strongroom_base::{Cancel, Stopwatch};
use strongroom_catalog::{Metadata, Xattr};

use crate::error::SourceError;
use crate::file::{self, SourceFile};
use crate::file_system::{FileSystem, ZeroSize};
use crate::inode::{self, InodeFacts};
use crate::listing::Listing;
use crate::xattr::{Attributes, Bearer};

use super::Context;

/// Between two attempts to open a file on which another process holds a lease.
const LEASE_PAUSE: Duration = Duration::from_millis(20);

/// An entry of the walk as it was when the walk reached it. It can be asked later or by another
/// thread.
///
/// It keeps a directory open (its own, or the one that contains it), so keep no more of them than
/// there are descriptors to spare.
#[derive(Debug)]
pub struct EntryHandle {
    place: Arc<Place>,
    /// Which of the names in that place; `None` for the place itself.
    name: Option<usize>,
    facts: InodeFacts,
    file_system: FileSystem,
}

/// The extended attributes of an entry.
#[derive(Debug)]
pub struct EntryXattrs {
    /// Those that could be read, sorted by name.
    pub xattrs: Vec<Xattr>,
    /// Why others, or all, could not be read.
    pub problem: Option<SourceError>,
}

/// A directory that the walk has opened.
#[derive(Debug)]
pub(super) struct Place {
    /// `None` if `/` itself could not be opened.
    pub(super) fd: Option<OwnedFd>,
    /// Its path.
    pub(super) path: Vec<u8>,
    pub(super) listing: Arc<Listing>,
    pub(super) context: Arc<Context>,
    pub(super) file_system: FileSystem,
}

impl Place {
    /// The directory, for calls about its entries.
    pub(super) fn directory(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.fd.as_ref().map(OwnedFd::as_fd).ok_or(Errno::BADF)
    }
}

impl EntryHandle {
    /// The entry under one of the names of a place.
    pub(super) fn below(place: Arc<Place>, name: usize, facts: InodeFacts) -> Self {
        let file_system = place.file_system;
        Self { place, name: Some(name), facts, file_system }.on(file_system)
    }

    /// The same entry, on a file system of its own that is mounted on it.
    pub(super) fn on(mut self, file_system: FileSystem) -> Self {
        if self.facts.kind() == FileType::RegularFile {
            self.facts.size = file_system.zero_size.counted(self.facts.size);
        }
        Self { file_system, ..self }
    }

    /// The place itself.
    pub(super) fn of(place: Arc<Place>, facts: InodeFacts) -> Self {
        let file_system = place.file_system;
        Self { place, name: None, facts, file_system }.on(file_system)
    }

    /// Its name; empty for `/`.
    pub fn name(&self) -> &[u8] {
        match self.name {
            Some(name) => self.place.listing.name(name).to_bytes(),
            None => self.place.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default(),
        }
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        let mut path = PathBuf::new();
        self.write_path(&mut path);
        path
    }

    /// The same, replacing another path: for callers that ask often.
    pub fn write_path(&self, path: &mut PathBuf) {
        let text = path.as_mut_os_string();
        text.clear();
        text.push(OsStr::from_bytes(&self.place.path));
        if self.name.is_some() {
            if self.place.path != b"/" {
                text.push("/");
            }
            text.push(OsStr::from_bytes(self.name()));
        }
    }

    /// What it was when the walk reached it, without extended attributes.
    pub fn metadata(&self) -> Metadata {
        self.place.context.metadata(&self.facts, || self.path())
    }

    /// Its size in bytes, as in [`EntryHandle::metadata`].
    pub fn size(&self) -> u64 {
        self.facts.size
    }

    /// What its metadata proves.
    pub fn file_system(&self) -> FileSystem {
        self.file_system
    }

    /// Whether it is a regular file whose length is known only when it was read to its end.
    pub fn has_unknown_size(&self) -> bool {
        let is_file = self.facts.kind() == FileType::RegularFile;
        is_file && self.facts.size == 0 && self.file_system.zero_size == ZeroSize::Unknown
    }

    /// Opens the regular file that it is.
    ///
    /// # Errors
    /// It vanished, may not be read, is no longer a regular file, or another process holds a lease on
    /// it ([`SourceError::Leased`]). The call never waits.
    pub fn open_file(&self) -> Result<SourceFile, SourceError> {
        let path = self.path();
        if self.facts.kind() != FileType::RegularFile {
            let now = inode::kind_text(self.facts.kind());
            return Err(SourceError::Changed { path, now });
        }
        let (directory, name) = self.directory_and_name()?;
        let (fd, mut stat) = file::open(directory, name, &path)?;
        stat.stx_size = self.file_system.zero_size.counted(stat.stx_size);
        let metadata = self.place.context.metadata(&InodeFacts::of(&stat), || self.path());
        Ok(SourceFile::new(fd, path, stat, metadata, self.file_system))
    }

    /// As [`EntryHandle::open_file`], but waits until a lease on the file is given up, at most as long as
    /// the kernel leaves it to its holder, or until the work is cancelled.
    pub fn open_file_when_free(&self, cancel: &Cancel) -> Result<SourceFile, SourceError> {
        let watch = Stopwatch::start();
        loop {
            match self.open_file() {
                Err(SourceError::Leased { .. })
                    if !cancel.is_cancelled() && watch.elapsed() < file::lease_break_time() =>
                {
                    std::thread::sleep(LEASE_PAUSE);
                }
                opened => return opened,
            }
        }
    }

    /// Its extended attributes, sorted by name; a regular file is not opened for that. They change
    /// only when `ctime` does, so an entry whose `ctime` is known need not be asked.
    pub fn xattrs(&self) -> EntryXattrs {
        match self.directory_and_name() {
            Ok((directory, name)) => self.xattrs_by(&Bearer::name(directory, name)),
            Err(problem) => EntryXattrs { xattrs: Vec::new(), problem: Some(problem) },
        }
    }

    /// As [`EntryHandle::xattrs`], for the file that it opened: faster, because no path is looked
    /// up.
    pub fn xattrs_of(&self, file: &SourceFile) -> EntryXattrs {
        self.xattrs_by(&Bearer::open(file))
    }

    fn directory_and_name(&self) -> Result<(BorrowedFd<'_>, &CStr), SourceError> {
        let directory = self.place.directory();
        let directory = directory.map_err(|error| SourceError::io("open", &self.path(), error))?;
        Ok((directory, self.name.map_or(c".", |name| self.place.listing.name(name))))
    }

    fn xattrs_by(&self, bearer: &Bearer<'_>) -> EntryXattrs {
        let (mut xattrs, problem) = match bearer.read() {
            Ok(Attributes { xattrs, unread: None }) => (xattrs, None),
            Ok(Attributes { xattrs, unread: Some((name, error)) }) => {
                let (path, error) = (self.path(), error.into());
                (xattrs, Some(SourceError::Xattr { name, path, error }))
            }
            // It says so of this entry alone: others of its device may be on another layer or server.
            Err(Errno::OPNOTSUPP) => (Vec::new(), None),
            Err(Errno::NOENT) => (Vec::new(), Some(SourceError::Vanished { path: self.path() })),
            Err(error) => {
                let what = "read the extended attributes of";
                (Vec::new(), Some(SourceError::io(what, &self.path(), error)))
            }
        };
        // A program that mounts a tree may know attributes of some kinds of entries only.
        if let Some(known) = self.place.context.correction(|| self.path()) {
            xattrs.retain(|xattr| known.xattrs.iter().all(|more| more.name != xattr.name));
            xattrs.extend(known.xattrs.iter().cloned());
            xattrs.sort_by(|left, right| left.name.cmp(&right.name));
        }
        EntryXattrs { xattrs, problem }
    }
}
