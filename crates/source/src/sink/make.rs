//! Making entries: directories, links and special files, and the names of files.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxAttributes};
use rustix::io::Errno;
use strongroom_catalog::{EntryKind, Metadata};

use crate::inode;
use crate::xattr::Bearer;

use super::directories::DirectoryId;
use super::error::{LINK, TargetError};
use super::file::TargetFile;
use super::{Target, apply, path_only, remove};

/// For the owner alone, until the file is finished.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

impl Target {
    /// Gives a number to a directory that exists, or will exist when it is first used.
    pub fn add_directory(
        &self,
        parent: DirectoryId,
        name: &[u8],
    ) -> Result<DirectoryId, TargetError> {
        Ok(self.directories.add(parent, &self.checked_name(parent, name)?))
    }

    /// Makes a directory, or takes the one that exists; anything else of that name is removed. Its
    /// metadata is set by [`apply_directory_metadata`](Self::apply_directory_metadata) when its
    /// content is complete.
    pub fn create_directory(
        &self,
        parent: DirectoryId,
        name: &[u8],
    ) -> Result<DirectoryId, TargetError> {
        let (fd, c_name) = self.place(parent, name)?;
        let failed =
            |error| TargetError::io("create the directory", &self.path_of(parent, name), error);
        match self.stat(&fd, &c_name).map_err(failed)? {
            Some(stat) if self.kept.contains(&inode::InodeId::of(&stat)) => {
                return Err(TargetError::Kept { path: self.path_of(parent, name) });
            }
            Some(stat) if inode::kind_of(&stat) == FileType::Directory => {
                let former = match self.is_root_user {
                    true => None,
                    // If this is not allowed, the calls that need it report it.
                    false => path_only::let_owner_in(fd.as_fd(), &c_name, &stat).unwrap_or(None),
                };
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
                let open = || inode::open_to_read(fd.as_fd(), &c_name, flags);
                self.mounts.note(&stat, open).map_err(failed)?;
                let directory = self.directories.add(parent, &c_name);
                if let Some(former) = former {
                    self.opened().insert(directory, former);
                }
                self.sweep(directory);
                return Ok(directory);
            }
            existing => {
                let make = |name: &CStr| rustix::fs::mkdirat(&fd, name, Mode::RWXU);
                self.make_in_place((parent, &fd), &c_name, existing.is_some(), &failed, make)?;
            }
        }
        Ok(self.directories.add(parent, &c_name))
    }

    /// Fails if a symbolic link has the name of a directory that is only on the way to what is restored:
    /// it must not be replaced.
    pub fn refuse_link(&self, parent: DirectoryId, name: &[u8]) -> Result<(), TargetError> {
        let (fd, c_name) = self.place(parent, name)?;
        let failed = |error| TargetError::io("open", &self.path_of(parent, name), error);
        match self.stat(&fd, &c_name).map_err(failed)? {
            Some(stat) if inode::kind_of(&stat) == FileType::Symlink => {
                Err(TargetError::LinkInTheWay { path: self.path_of(parent, name) })
            }
            _ => Ok(()),
        }
    }

    /// Fails if anything has a name that must be free.
    pub fn refuse_taken(&self, directory: DirectoryId, name: &[u8]) -> Result<(), TargetError> {
        let (fd, c_name) = self.place(directory, name)?;
        let path = || self.path_of(directory, name);
        match self.stat(&fd, &c_name) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(TargetError::Taken { path: path() }),
            Err(error) => Err(TargetError::io("create", &path(), error)),
        }
    }

    /// Whether a directory of the target is the root of a mounted file system.
    pub fn is_mounted(&self, directory: DirectoryId) -> Result<bool, TargetError> {
        let fd = self.directory(directory)?;
        let failed = |error| TargetError::io("open", &self.path_of(directory, b""), error);
        let stat = inode::stat_fd(&fd).map_err(failed)?;
        let above = inode::stat_at(fd.as_fd(), c"..").map_err(failed)?;
        Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
            || inode::device_of(&stat) != inode::device_of(&above))
    }

    /// Makes a symbolic link with its metadata; one that points there already stays.
    /// Returns what of the metadata could not be applied.
    pub fn create_symlink(
        &self,
        directory: DirectoryId,
        name: &[u8],
        target: &[u8],
        metadata: &Metadata,
    ) -> Result<Vec<TargetError>, TargetError> {
        let (fd, c_name) = self.place(directory, name)?;
        let failed = |error| {
            TargetError::io("create the symbolic link", &self.path_of(directory, name), error)
        };
        let existing = self.make_way(&fd, &c_name, directory, FileType::Symlink)?;
        let is_link = |stat: &Statx| inode::kind_of(stat) == FileType::Symlink;
        let right = existing.as_ref().is_some_and(is_link)
            && rustix::fs::readlinkat(&fd, &c_name, Vec::new())
                .is_ok_and(|pointed| pointed.as_bytes() == target);
        if !right {
            let make = |name: &CStr| rustix::fs::symlinkat(target, &fd, name);
            self.make_in_place((directory, &fd), &c_name, existing.is_some(), &failed, make)?;
        }
        self.apply_to_name(&fd, &c_name, directory, metadata)
    }

    /// Makes a named pipe, socket or device with its metadata; one that is right already stays.
    /// Returns what of the metadata could not be applied.
    /// Only root may make devices. A file, directory or symbolic link is an error.
    /// Devices are for root alone. A file, directory or symbolic link is none of these.
    pub fn create_special(
        &self,
        directory: DirectoryId,
        name: &[u8],
        kind: &EntryKind,
        metadata: &Metadata,
    ) -> Result<Vec<TargetError>, TargetError> {
        let (fd, c_name) = self.place(directory, name)?;
        let path = || self.path_of(directory, name);
        let (kind, device) = match kind {
            EntryKind::Fifo => (FileType::Fifo, None),
            EntryKind::Socket => (FileType::Socket, None),
            EntryKind::CharDevice(device) => (FileType::CharacterDevice, Some(*device)),
            EntryKind::BlockDevice(device) => (FileType::BlockDevice, Some(*device)),
            _ => return Err(TargetError::NotSpecial { path: path() }),
        };
        let existing = self.make_way(&fd, &c_name, directory, kind)?;
        let right = existing.as_ref().is_some_and(|stat| {
            inode::kind_of(stat) == kind
                && device.is_none_or(|device| device == inode::device_number(stat))
        });
        if !right {
            let number = device.map_or(0, |it| rustix::fs::makedev(it.major, it.minor));
            let failed = |error| TargetError::io("create the special file", &path(), error);
            let make = |name: &CStr| rustix::fs::mknodat(&fd, name, kind, FILE_MODE, number);
            self.make_in_place((directory, &fd), &c_name, existing.is_some(), &failed, make)?;
        }
        self.apply_to_name(&fd, &c_name, directory, metadata)
    }

    /// Gives another name to something of the target that is not a directory. What has that name goes
    /// only when the link is made.
    pub fn hard_link(
        &self,
        existing: (DirectoryId, &[u8]),
        new: (DirectoryId, &[u8]),
    ) -> Result<(), TargetError> {
        let (from, from_name) = self.place(existing.0, existing.1)?;
        let (to, to_name) = self.place(new.0, new.1)?;
        let failed = |error| TargetError::io(LINK, &self.path_of(new.0, new.1), error);
        let stat = inode::stat_at(from.as_fd(), &from_name).map_err(failed)?;
        let kind = inode::kind_of(&stat);
        // No kernel links it: what has the name must not go for it.
        if kind == FileType::Directory {
            return Err(failed(Errno::ISDIR));
        }
        let existing = self.make_way(&to, &to_name, new.0, kind)?;
        let is_same = |other: &Statx| inode::InodeId::of(other) == inode::InodeId::of(&stat);
        if existing.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        let make = |name: &CStr| rustix::fs::linkat(&from, &from_name, &to, name, AtFlags::empty());
        self.make_in_place((new.0, &to), &to_name, existing.is_some(), &failed, make)
    }

    /// Opens a regular file that exists, for reading only: nothing of it changes.
    pub fn open_file_for_reading(
        &self,
        directory: DirectoryId,
        name: &[u8],
    ) -> Result<std::fs::File, TargetError> {
        let (fd, c_name) = self.place(directory, name)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&fd, &c_name, flags, Mode::empty())
            .map_err(|error| TargetError::io("open", &self.path_of(directory, name), error))?;
        Ok(file.into())
    }

    /// Opens a regular file to be written, which is to become `size` bytes long.
    ///
    /// A file that exists is kept with its content, so that what is right in it need not be
    /// written. It is replaced by a fresh one if it has other names, as these must not change, and
    /// if it is being executed or may not be written. A fresh file is one hole.
    pub fn open_file_for_write(
        &self,
        directory: DirectoryId,
        name: &[u8],
        size: u64,
    ) -> Result<TargetFile, TargetError> {
        // Usually the name is free, and need not be looked up first.
        if let Ok(file) = self.create_file(directory, name, size) {
            return Ok(file);
        }
        let (fd, c_name) = self.place(directory, name)?;
        let path = self.path_of(directory, name);
        let existing = self.make_way(&fd, &c_name, directory, FileType::RegularFile)?;
        if let Some(stat) = existing {
            // To open a device can do something already.
            let is_file = inode::kind_of(&stat) == FileType::RegularFile;
            if let Some(file) = is_file.then(|| self.open_in_place(&fd, &c_name)).flatten() {
                let (file, stat) =
                    file.map_err(|error| TargetError::io("open for writing", &path, error))?;
                return TargetFile::of_existing(file, path, stat, size);
            }
            match inode::kind_of(&stat) {
                FileType::Directory => {
                    remove::remove(fd.as_fd(), &c_name, &self.kept, &|| path.clone()).map(drop)?;
                }
                _ => unlink(&fd, &c_name)
                    .map_err(|error| TargetError::io("replace", &path, error))?,
            }
        }
        self.create_file(directory, name, size)
    }

    /// Makes a regular file that is to become `size` bytes long, under a name that is free.
    pub fn create_file(
        &self,
        directory: DirectoryId,
        name: &[u8],
        size: u64,
    ) -> Result<TargetFile, TargetError> {
        let (fd, c_name) = self.place(directory, name)?;
        let path = self.path_of(directory, name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::openat(&fd, &c_name, flags | OFlags::NOFOLLOW, FILE_MODE) {
            Ok(file) => Ok(TargetFile::fresh(file, path, size)),
            Err(Errno::EXIST) => Err(TargetError::Taken { path }),
            Err(error) => Err(TargetError::io("create", &path, error)),
        }
    }

    /// Opens a file to be changed in place; `None` if it must be replaced.
    fn open_in_place(&self, fd: &OwnedFd, name: &CStr) -> Option<Result<(OwnedFd, Statx), Errno>> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(fd, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::TXTBSY | Errno::ACCESS | Errno::LOOP | Errno::NXIO | Errno::NOENT) => {
                return None;
            }
            Err(error) => return Some(Err(error)),
        };
        match inode::stat_fd(&file) {
            Ok(stat) if inode::kind_of(&stat) != FileType::RegularFile || stat.stx_nlink != 1 => {
                None
            }
            Ok(stat) if !self.owns(&stat) => None,
            Ok(stat) => Some(Ok((file, stat))),
            Err(error) => Some(Err(error)),
        }
    }

    /// True if mode and times can be set: those of another user's file cannot.
    pub(super) fn owns(&self, stat: &Statx) -> bool {
        self.is_root_user || stat.stx_uid == rustix::process::geteuid().as_raw()
    }

    /// What has a name: what is wanted, or what it may replace. It stays until what is wanted is made:
    /// that may fail. A directory may be replaced if deleting is allowed.
    pub(super) fn make_way(
        &self,
        fd: &Arc<OwnedFd>,
        name: &CStr,
        directory: DirectoryId,
        wanted: FileType,
    ) -> Result<Option<Statx>, TargetError> {
        let path = || self.path_of(directory, name.to_bytes());
        let failed = |error| TargetError::io("replace", &path(), error);
        let Some(stat) = self.stat(fd, name).map_err(failed)? else { return Ok(None) };
        match inode::kind_of(&stat) {
            FileType::Directory if !self.options.delete => {
                let wanted = inode::kind_text(wanted);
                Err(TargetError::DirectoryInTheWay { path: path(), wanted })
            }
            _ => Ok(Some(stat)),
        }
    }

    pub(super) fn stat(&self, fd: &OwnedFd, name: &CStr) -> Result<Option<Statx>, Errno> {
        match inode::stat_at(fd.as_fd(), name) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies metadata to something that is opened for its path only.
    pub(super) fn apply_to_name(
        &self,
        fd: &OwnedFd,
        name: &CStr,
        directory: DirectoryId,
        metadata: &Metadata,
    ) -> Result<Vec<TargetError>, TargetError> {
        let path = || self.path_of(directory, name.to_bytes());
        let failed = |error| TargetError::io("open", &path(), error);
        let entry = path_only::open(fd.as_fd(), name).map_err(failed)?;
        let subject = apply::Subject {
            fd: entry.as_fd(),
            bearer: Bearer::path_only(&entry),
            path_only: true,
            path: &path,
        };
        Ok(self.apply(&subject, metadata))
    }
}

pub(super) fn unlink(fd: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    match rustix::fs::unlinkat(fd, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
