//! Files that killed restores have left in the target.
//!
//! A file that replaces another is written under a temporary name, which says which process made it,
//! and its maker holds a lock on it. What no process holds any more is removed by the next restore into
//! that directory: it may be as large as the file. Links, special files
//! and empty directories have such a name for a moment, and no lock: they are removed if they are this
//! user's and have had it for an hour. Nothing
//! else is removed, and nothing that a process of that number may still write: a leftover may stay, a
//! file in use may not go.

use std::ffi::CStr;
use std::fs::{File, TryLockError};
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Statx, flock};
use rustix::io::Errno;
use rustix::process::Pid;
use strongroom_base::{Clock, SystemClock};

use super::file::TargetFile;
use crate::inode;

/// What temporary names begin with; the process and a number follow. A name that is left over was
/// made by a restore that was killed; the next one in its directory removes it.
pub(super) const TEMPORARY: &str = ".strongroom-restore-";

/// What has no lock is left alone for as long: its maker may be in another container, where its
/// number is another one, and have been stopped for a while.
const UNLOCKED_NANOS: i64 = 3600 * 1_000_000_000;

/// Locks a file that was just made. Returns false if a sweep has taken it for a leftover.
pub(super) fn claim(file: &TargetFile) -> bool {
    let fd = file.fd();
    // If the file system has no locks, the number of the process alone protects it.
    let locked = flock(fd, FlockOperation::NonBlockingLockExclusive);
    let is_being_swept = locked == Err(Errno::WOULDBLOCK);
    !is_being_swept && rustix::fs::fstat(fd).is_ok_and(|stat| stat.st_nlink > 0)
}

/// Removes the leftovers in a directory. What cannot be removed stays, and harms nothing.
pub(super) fn sweep(directory: BorrowedFd<'_>) {
    let Ok(entries) = Dir::read_from(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !maker_of(name.to_bytes()).is_some_and(is_dead) {
            continue;
        }
        let Ok(stat) = inode::stat_at(directory, name) else { continue };
        let is_left = match inode::kind_of(&stat) {
            FileType::RegularFile => is_unlocked_file(directory, name),
            _ => is_own_and_old(&stat),
        };
        if is_left {
            // A directory is removed only if it is empty.
            let flags = match inode::kind_of(&stat) {
                FileType::Directory => AtFlags::REMOVEDIR,
                _ => AtFlags::empty(),
            };
            let _ = rustix::fs::unlinkat(directory, name, flags);
        }
    }
}

/// Whether a name is a regular file that no process has locked.
fn is_unlocked_file(directory: BorrowedFd<'_>, name: &CStr) -> bool {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |access| rustix::fs::openat(directory, name, flags | access, Mode::empty());
    // The mode that a file is to have is set before it is renamed: its owner may have to read alone, or
    // write alone. Network file systems have no locks for these.
    let (opened, needs_lock) = match open(OFlags::RDWR) {
        Err(Errno::ACCESS) => (open(OFlags::RDONLY).or_else(|_| open(OFlags::WRONLY)), true),
        opened => (opened, false),
    };
    let Ok(fd) = opened else { return false };
    let is_file =
        inode::stat_fd(&fd).is_ok_and(|stat| inode::kind_of(&stat) == FileType::RegularFile);
    is_file
        && match File::from(fd).try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(_)) => !needs_lock,
        }
}

fn is_own_and_old(stat: &Statx) -> bool {
    // Nothing has set its times yet: they are when it was made.
    let age = SystemClock.now().0.saturating_sub(inode::timestamp_of(stat.stx_mtime).0);
    stat.stx_uid == rustix::process::geteuid().as_raw() && age > UNLOCKED_NANOS
}

/// The process that made a temporary name; none if the name is none.
fn maker_of(name: &[u8]) -> Option<Pid> {
    let name = std::str::from_utf8(name).ok()?.strip_prefix(TEMPORARY)?;
    let (process, number) = name.split_once('-')?;
    number.parse::<u64>().ok()?;
    Pid::from_raw(process.parse().ok()?)
}

fn is_dead(process: Pid) -> bool {
    rustix::process::test_kill_process(process) == Err(Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{CWD, Timespec, Timestamps, mknodat, utimensat};

    use super::*;

    /// Above the greatest number that Linux gives to a process.
    const NO_PROCESS: u32 = 1 << 22 | 1;

    #[test]
    fn kept_h9_only_what_no_process_may_still_write_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::process::id();
        let cases = [
            (format!("{TEMPORARY}{NO_PROCESS}-0"), false),
            (format!("{TEMPORARY}{NO_PROCESS}-17"), false),
            (format!("{TEMPORARY}{own}-0"), true),
            (format!("{TEMPORARY}{NO_PROCESS}"), true),
            (format!("{TEMPORARY}{NO_PROCESS}-a"), true),
            (format!("x{TEMPORARY}{NO_PROCESS}-1"), true),
            ("file".to_owned(), true),
        ];
        for (name, _) in &cases {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        // One that is a link, a directory, or held by another process.
        let link = folder.path().join(format!("{TEMPORARY}{NO_PROCESS}-2"));
        std::os::unix::fs::symlink("file", &link).unwrap();
        std::fs::create_dir(folder.path().join(format!("{TEMPORARY}{NO_PROCESS}-3"))).unwrap();
        let held = folder.path().join(format!("{TEMPORARY}{NO_PROCESS}-4"));
        let holder = File::create(&held).unwrap();
        holder.lock().unwrap();
        sweep(File::open(folder.path()).unwrap().as_fd());
        for (name, stays) in cases {
            assert_eq!(folder.path().join(&name).exists(), stays, "{name}");
        }
        assert!(link.is_symlink() && held.exists(), "a link of this moment may be in use");
        drop(holder);
        sweep(File::open(folder.path()).unwrap().as_fd());
        assert!(!held.exists(), "its holder has gone");
        assert!(link.is_symlink());
    }

    #[test]
    fn links_and_special_files_that_were_left_go_after_an_hour() {
        let folder = tempfile::tempdir().unwrap();
        let path = |number: u32| folder.path().join(format!("{TEMPORARY}{NO_PROCESS}-{number}"));
        std::os::unix::fs::symlink("nowhere", path(1)).unwrap();
        mknodat(CWD, path(2), FileType::Fifo, Mode::RUSR, 0).unwrap();
        std::os::unix::fs::symlink("nowhere", path(3)).unwrap();
        mknodat(CWD, path(4), FileType::Fifo, Mode::RUSR, 0).unwrap();
        std::fs::create_dir(path(5)).unwrap();
        std::fs::create_dir_all(path(6).join("below")).unwrap();
        for number in [1, 2, 5, 6] {
            let old = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
            let times = Timestamps { last_access: old, last_modification: old };
            utimensat(CWD, path(number), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
        sweep(File::open(folder.path()).unwrap().as_fd());
        let left = (1..=6).filter(|number| path(*number).symlink_metadata().is_ok());
        assert_eq!(left.collect::<Vec<_>>(), [3, 4, 6], "a directory only if it is empty");
    }
}
