//! What an event tells of an entry, and what can be asked about it later: its content and its
//! extended attributes.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;
use strongroom_catalog::{Metadata, Xattr};

use crate::error::SourceError;
use crate::file::{self, SourceFile};
use crate::inode::{self, InodeFacts};
use crate::listing::Listing;
use crate::xattr::Bearer;

use super::Context;

/// An entry of the walk, as it was told, to be asked later or by another thread.
///
/// It keeps a directory open, its own or the one it stands in, so no more of them should be held
/// than there are descriptors to spare.
#[derive(Debug)]
pub struct EntryHandle {
    place: Arc<Place>,
    /// Which of the names in that place; none for the place itself.
    name: Option<usize>,
    facts: InodeFacts,
}

/// A directory that the walk has opened.
#[derive(Debug)]
pub(super) struct Place {
    /// None where `/` itself could not be opened.
    pub(super) fd: Option<OwnedFd>,
    /// Where it stands.
    pub(super) path: Vec<u8>,
    pub(super) listing: Arc<Listing>,
    pub(super) context: Arc<Context>,
}

impl Place {
    /// The directory, to be asked about what stands in it.
    pub(super) fn directory(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.fd.as_ref().map(OwnedFd::as_fd).ok_or(Errno::BADF)
    }
}

impl EntryHandle {
    /// What stands in a place under one of its names.
    pub(super) fn below(place: Arc<Place>, name: usize, facts: InodeFacts) -> Self {
        Self { place, name: Some(name), facts }
    }

    /// The place itself.
    pub(super) fn of(place: Arc<Place>, facts: InodeFacts) -> Self {
        Self { place, name: None, facts }
    }

    /// Its name; empty for `/`.
    pub fn name(&self) -> &[u8] {
        match self.name {
            Some(name) => self.place.listing.name(name).to_bytes(),
            None => self.place.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default(),
        }
    }

    /// Where it stands.
    pub fn path(&self) -> PathBuf {
        let mut path = PathBuf::new();
        self.write_path(&mut path);
        path
    }

    /// The same, in the place of another path: for whoever asks often.
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

    /// What it was when the walk came to it, without extended attributes.
    pub fn metadata(&self) -> Metadata {
        self.facts.metadata(&self.place.context.accounts)
    }

    /// Its size in bytes, as [`EntryHandle::metadata`] tells it.
    pub fn size(&self) -> u64 {
        self.facts.size
    }

    /// Opens the regular file that it is.
    ///
    /// # Errors
    /// It vanished, may not be read, or is no regular file any more. Nothing is waited for.
    pub fn open_file(&self) -> Result<SourceFile, SourceError> {
        let path = self.path();
        if self.facts.kind() != FileType::RegularFile {
            let now = inode::kind_text(self.facts.kind());
            return Err(SourceError::Changed { path, now });
        }
        let (directory, name) = self.directory_and_name()?;
        let (fd, stat) = file::open(directory, name, &path)?;
        let metadata = InodeFacts::of(&stat).metadata(&self.place.context.accounts);
        Ok(SourceFile::new(fd, path, stat, metadata))
    }

    /// Its extended attributes, sorted by name; a regular file is not opened for that. They change
    /// no more than `ctime` does, so an entry whose `ctime` is known need not be asked.
    pub fn xattrs(&self) -> Result<Vec<Xattr>, SourceError> {
        let (directory, name) = self.directory_and_name()?;
        self.xattrs_by(&Bearer::name(directory, name))
    }

    /// As [`EntryHandle::xattrs`], of the file that it gave: quicker, for no path is looked up.
    pub fn xattrs_of(&self, file: &SourceFile) -> Result<Vec<Xattr>, SourceError> {
        self.xattrs_by(&Bearer::open(file))
    }

    fn directory_and_name(&self) -> Result<(BorrowedFd<'_>, &CStr), SourceError> {
        let directory = self.place.directory();
        let directory = directory.map_err(|error| SourceError::io("open", &self.path(), error))?;
        Ok((directory, self.name.map_or(c".", |name| self.place.listing.name(name))))
    }

    fn xattrs_by(&self, bearer: &Bearer<'_>) -> Result<Vec<Xattr>, SourceError> {
        let (support, device) = (&self.place.context.xattr_support, self.facts.id.device);
        if support.lacks(device) {
            return Ok(Vec::new());
        }
        match bearer.read() {
            Err(Errno::OPNOTSUPP) => {
                support.note_lack(device);
                Ok(Vec::new())
            }
            Err(Errno::NOENT) => Err(SourceError::Vanished { path: self.path() }),
            other => other.map_err(|error| {
                SourceError::io("read the extended attributes of", &self.path(), error)
            }),
        }
    }
}
