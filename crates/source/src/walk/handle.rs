//! What can be asked about the entry of the last event: its content and its extended attributes.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;
use strongroom_catalog::Xattr;

use crate::error::SourceError;
use crate::file::{self, SourceFile};
use crate::inode::{self, InodeId};
use crate::xattr::Bearer;

use super::{Context, Subject, TreeSource};

/// An entry of the walk, to be asked later or by another thread.
///
/// It keeps the directory of the entry open, so no more of them should be held than there are
/// descriptors to spare.
#[derive(Debug, Clone)]
pub struct EntryHandle {
    directory: Arc<OwnedFd>,
    name: CString,
    id: InodeId,
    kind: FileType,
    path: PathBuf,
    context: Arc<Context>,
}

impl TreeSource {
    /// The entry of the last event, where that was a leaf or the beginning of a directory.
    pub fn handle(&self) -> Option<EntryHandle> {
        let top = self.frames.last()?;
        let above = || self.frames.iter().rev().nth(1);
        let (directory, name, id, kind) = match &self.subject {
            Subject::Nothing => return None,
            Subject::Leaf { name, id, kind } => (top.fd.clone()?, name.clone(), *id, *kind),
            Subject::Directory(id) => match (&top.fd, above()) {
                (Some(fd), _) => (fd.clone(), c".".to_owned(), *id, FileType::Directory),
                // A directory that was not opened is known by its name.
                (None, Some(parent)) => {
                    let name = &self.path[parent.path_bytes..];
                    let name = CString::new(name.strip_prefix(b"/").unwrap_or(name)).ok()?;
                    (parent.fd.clone()?, name, *id, FileType::Directory)
                }
                (None, None) => return None,
            },
        };
        let (path, context) = (self.path().to_owned(), self.context.clone());
        Some(EntryHandle { directory, name, id, kind, path, context })
    }

    /// Opens the regular file of the last event.
    ///
    /// # Errors
    /// It vanished, may not be read, or is no regular file any more. Nothing is waited for.
    pub fn open_file(&self) -> Result<SourceFile, SourceError> {
        self.handle().ok_or_else(|| self.nothing_told())?.open_file()
    }

    /// The extended attributes of the entry of the last event, sorted by name; a regular file is
    /// not opened for that. They change no more than `ctime` does, so an entry whose `ctime` is
    /// known need not be asked.
    pub fn xattrs(&self) -> Result<Vec<Xattr>, SourceError> {
        self.handle().ok_or_else(|| self.nothing_told())?.xattrs()
    }

    fn nothing_told(&self) -> SourceError {
        SourceError::io("open", self.path(), Errno::BADF)
    }
}

impl EntryHandle {
    /// Where the entry stands, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// As [`TreeSource::open_file`].
    pub fn open_file(&self) -> Result<SourceFile, SourceError> {
        if self.kind != FileType::RegularFile {
            let now = inode::kind_text(self.kind);
            return Err(SourceError::Changed { path: self.path.clone(), now });
        }
        let (fd, stat) = file::open(self.directory.as_fd(), &self.name, &self.path)?;
        let metadata = inode::metadata_of(&stat, &self.context.accounts);
        Ok(SourceFile::new(fd, self.path.clone(), stat, metadata))
    }

    /// As [`TreeSource::xattrs`].
    pub fn xattrs(&self) -> Result<Vec<Xattr>, SourceError> {
        self.xattrs_by(&Bearer::name(self.directory.as_fd(), &self.name))
    }

    /// As [`EntryHandle::xattrs`], of the file that it gave: quicker, for no path is looked up.
    pub fn xattrs_of(&self, file: &SourceFile) -> Result<Vec<Xattr>, SourceError> {
        self.xattrs_by(&Bearer::open(file))
    }

    fn xattrs_by(&self, bearer: &Bearer<'_>) -> Result<Vec<Xattr>, SourceError> {
        let support = &self.context.xattr_support;
        if support.lacks(self.id.device) {
            return Ok(Vec::new());
        }
        match bearer.read() {
            Err(Errno::OPNOTSUPP) => {
                support.note_lack(self.id.device);
                Ok(Vec::new())
            }
            Err(Errno::NOENT) => Err(SourceError::Vanished { path: self.path.clone() }),
            other => other.map_err(|error| {
                SourceError::io("read the extended attributes of", &self.path, error)
            }),
        }
    }
}
