//! Puts metadata back, in the only order in which no step undoes another.
//!
//! Owner first, because a change of owner removes set-uid bits and capabilities; then the mode;
//! then the extended attributes, with an ACL last among them because it sets mode bits itself, and the
//! mode again if they changed it; the time last, because everything else may change it. What is right already is not touched.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::PoisonError;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid,
};
use rustix::io::Errno;
use strongroom_base::Timestamp;
use strongroom_catalog::{Metadata, Xattr};

use crate::inode;
use crate::xattr::Bearer;

use super::Target;
use super::directories::DirectoryId;
use super::error::TargetError;
use super::file::TargetFile;
use super::path_only;

/// What metadata is applied to.
pub(super) struct Subject<'a> {
    pub(super) fd: BorrowedFd<'a>,
    pub(super) bearer: Bearer<'a>,
    /// The descriptor was opened for its path only.
    pub(super) path_only: bool,
    /// Its path, computed only if something is wrong with it.
    pub(super) path: &'a dyn Fn() -> PathBuf,
}

/// The coarsest time that a file system keeps: FAT counts in two seconds.
const TICK_NS: u64 = 2_000_000_000;

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;

impl Target {
    /// Puts the metadata of a file back, after all of its content was written. Returns what of it
    /// could not be applied.
    pub fn finish_file(&self, file: TargetFile, metadata: &Metadata) -> Vec<TargetError> {
        let short = file.reach_size().err();
        let (fd, path) = file.into_parts();
        let (bearer, path) = (Bearer::open(&fd), || path.clone());
        let subject = Subject { fd: fd.as_fd(), bearer, path_only: false, path: &path };
        short.into_iter().chain(self.apply(&subject, metadata)).collect()
    }

    /// Puts the metadata of a directory back, after everything in it has its own: deepest first.
    /// Returns what of it could not be applied.
    pub fn apply_directory_metadata(
        &self,
        directory: DirectoryId,
        metadata: &Metadata,
    ) -> Result<Vec<TargetError>, TargetError> {
        let fd = self.directory(directory)?;
        self.opened().remove(&directory);
        let path = || self.path_of(directory, b"");
        // One that may only be searched was opened for its path.
        let flags = rustix::fs::fcntl_getfl(&fd);
        let path_only = flags.is_ok_and(|flags| flags.contains(OFlags::PATH));
        let bearer = match path_only {
            true => Bearer::path_only(&fd),
            false => Bearer::open(&fd),
        };
        Ok(self.apply(&Subject { fd: fd.as_fd(), bearer, path_only, path: &path }, metadata))
    }

    /// Leaves a directory as it was before this restore: if it was opened to its owner, it gets back the
    /// mode that it had.
    pub fn leave_directory(&self, directory: DirectoryId) -> Result<(), TargetError> {
        let Some(former) = self.opened().remove(&directory) else { return Ok(()) };
        let fd = self.directory(directory)?;
        path_only::chmod(&fd, former).map_err(|error| {
            TargetError::io("change the mode of", &self.path_of(directory, b""), error)
        })
    }

    /// The owner's numbers on this machine.
    pub(super) fn owner_of(&self, metadata: &Metadata) -> (u32, u32) {
        let by_name = !self.options.numeric_owner;
        let user = metadata.user.as_deref().filter(|_| by_name);
        let group = metadata.group.as_deref().filter(|_| by_name);
        (
            user.and_then(|name| self.accounts.uid(name)).unwrap_or(metadata.uid),
            group.and_then(|name| self.accounts.gid(name)).unwrap_or(metadata.gid),
        )
    }

    /// The mode that may be set for this owner: set-uid and set-gid are for the right owner only.
    pub(super) fn mode_for(&self, metadata: &Metadata, uid: u32, gid: u32) -> u16 {
        let (wanted_uid, wanted_gid) = self.owner_of(metadata);
        let mut mode = metadata.mode;
        if uid != wanted_uid {
            mode &= !SET_UID;
        }
        if gid != wanted_gid {
            mode &= !SET_GID;
        }
        mode
    }

    pub(super) fn apply(&self, subject: &Subject<'_>, metadata: &Metadata) -> Vec<TargetError> {
        let mut problems = Vec::new();
        let stat = match inode::stat_fd(subject.fd) {
            Ok(stat) => stat,
            Err(error) => return vec![subject.failed("read the metadata of", error)],
        };
        let is_symlink = inode::kind_of(&stat) == FileType::Symlink;
        let mut owned = (stat.stx_uid, stat.stx_gid);
        if self.options.owner && owned != self.owner_of(metadata) {
            let wanted = self.owner_of(metadata);
            match subject.chown(wanted) {
                Ok(()) => owned = wanted,
                Err(error) => problems.push(subject.failed("change the owner of", error)),
            }
        }
        let mode = self.mode_for(metadata, owned.0, owned.1);
        // A change of owner may have removed bits, so after one the mode is always set.
        let changed = owned != (stat.stx_uid, stat.stx_gid);
        if !is_symlink && (changed || mode != stat.stx_mode & 0o7777) {
            subject.chmod(mode).unwrap_or_else(|error| {
                problems.push(subject.failed("change the mode of", error));
            });
        }
        let was_opened = self.options.xattrs
            && self.set_xattrs(subject, metadata, (!is_symlink).then_some(mode), &mut problems);
        // A set or removed ACL may have changed mode bits, and all of it may have changed times.
        let now = inode::stat_fd(subject.fd).unwrap_or(stat);
        let is_other = mode != now.stx_mode & 0o7777;
        if !is_symlink && is_other && (was_opened || problems.is_empty()) {
            subject.chmod(mode).unwrap_or_else(|error| {
                problems.push(subject.failed("change the mode of", error));
            });
        }
        let is_other_time = inode::timestamp_of(now.stx_mtime) != metadata.mtime;
        if is_other_time {
            subject.set_time(metadata.mtime).unwrap_or_else(|error| {
                problems.push(subject.failed("set the time of", error));
            });
        }
        let was_set = is_other_time || is_other || changed || mode != stat.stx_mode & 0o7777;
        if was_set && problems.is_empty() {
            problems.extend(self.not_kept(subject, owned, mode, metadata.mtime));
        }
        problems
    }

    /// Puts attributes back, ACLs last, and removes extra ones. Those of users need the permission to
    /// write, even if this user owns what has them: if it has none by its `mode`, it is opened to its
    /// owner. Returns whether that was done.
    fn set_xattrs(
        &self,
        subject: &Subject<'_>,
        metadata: &Metadata,
        mode: Option<u16>,
        problems: &mut Vec<TargetError>,
    ) -> bool {
        let (wanted, mut was_opened) = (&metadata.xattrs, false);
        let mut try_to = |change: &dyn Fn() -> Result<(), Errno>| match (change(), mode) {
            (Err(Errno::ACCESS), Some(mode)) if mode & 0o200 == 0 && !was_opened => {
                was_opened = subject.chmod(mode | 0o200).is_ok();
                change()
            }
            (done, _) => done,
        };
        let existing = match subject.bearer.read() {
            Ok(existing) => existing.xattrs,
            Err(Errno::OPNOTSUPP) if wanted.is_empty() => return false,
            // Setting them reports what is wrong, attribute by attribute.
            Err(_) => Vec::new(),
        };
        for extra in existing.iter().filter(|xattr| self.is_surplus(&xattr.name)) {
            if !wanted.iter().any(|xattr| xattr.name == extra.name)
                && let Err(error) = try_to(&|| subject.bearer.remove(&extra.name))
            {
                problems.push(subject.failed_xattr("remove", &extra.name, error));
            }
        }
        let is_acl = |xattr: &&Xattr| xattr.name.starts_with(b"system.posix_acl");
        let ordered = wanted.iter().filter(|it| !is_acl(it)).chain(wanted.iter().filter(is_acl));
        for xattr in ordered.filter(|xattr| !existing.contains(xattr)) {
            if let Err(error) = try_to(&|| subject.bearer.set(&xattr.name, &xattr.value)) {
                problems.push(subject.failed_xattr("set", &xattr.name, error));
            }
        }
        was_opened
    }

    /// Whether an attribute that an entry lacks is to be removed. Others than those of the tree belong to
    /// the machine or the file system, such as security labels.
    pub(super) fn is_surplus(&self, name: &[u8]) -> bool {
        name.starts_with(b"user.")
            || (name.starts_with(b"trusted.") && !self.keeps_trusted)
            || name.starts_with(b"system.posix_acl_")
            || name == b"security.capability"
    }

    /// What the file system has not kept of what the kernel said was set: FAT has neither owners nor
    /// modes. Each once for a file system.
    fn not_kept(
        &self,
        subject: &Subject<'_>,
        owner: (u32, u32),
        mode: u16,
        mtime: Timestamp,
    ) -> Vec<TargetError> {
        let Ok(stat) = inode::stat_fd(subject.fd) else { return Vec::new() };
        let is_symlink = inode::kind_of(&stat) == FileType::Symlink;
        let apart = inode::timestamp_of(stat.stx_mtime).0.abs_diff(mtime.0);
        let differences = [
            ("owner", (stat.stx_uid, stat.stx_gid) != owner),
            ("mode", !is_symlink && stat.stx_mode & 0o7777 != mode),
            ("time", apart > TICK_NS),
        ];
        let device = inode::device_of(&stat);
        let mut reported = self.not_kept.lock().unwrap_or_else(PoisonError::into_inner);
        let new = differences.into_iter().filter(|(_, differs)| *differs).map(|(what, _)| what);
        let new = new.filter(|what| reported.insert((device, what)));
        new.map(|what| TargetError::NotKept { path: (subject.path)(), what }).collect()
    }
}

impl Subject<'_> {
    fn chown(&self, (uid, gid): (u32, u32)) -> Result<(), Errno> {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        rustix::fs::chownat(self.fd, c"", uid, gid, AtFlags::EMPTY_PATH)
    }

    fn chmod(&self, mode: u16) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode.into());
        match self.path_only {
            true => path_only::chmod(&self.fd, mode),
            false => rustix::fs::fchmod(self.fd, mode),
        }
    }

    /// The time of the last access is not changed.
    fn set_time(&self, mtime: Timestamp) -> Result<(), Errno> {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec {
                tv_sec: mtime.0.div_euclid(1_000_000_000),
                tv_nsec: mtime.0.rem_euclid(1_000_000_000),
            },
        };
        if !self.path_only {
            return rustix::fs::futimens(self.fd, &times);
        }
        match rustix::fs::utimensat(self.fd, c"", &times, AtFlags::EMPTY_PATH) {
            // Linux before 5.8 has no such flag here.
            Err(Errno::INVAL) => {
                rustix::fs::utimensat(CWD, path_only::proc_path(&self.fd), &times, AtFlags::empty())
            }
            done => done,
        }
    }

    fn failed(&self, operation: &'static str, error: Errno) -> TargetError {
        TargetError::io(operation, &(self.path)(), error)
    }

    fn failed_xattr(&self, operation: &'static str, name: &[u8], error: Errno) -> TargetError {
        let (name, path) = (name.to_vec(), (self.path)());
        TargetError::Xattr { operation, name, path, error: error.into() }
    }
}
