//! Files that killed restores have left in the target.
//!
//! A file that replaces another is written under a temporary name, which says which process made it,
//! and its maker holds a lock on it. What no process holds any more is removed by the next restore into
//! that directory: it may be as large as the file. Nothing is removed that is not a regular file with
//! such a name, or that a process of that number may still write: a leftover may stay, a file in use may
//! not go.

use std::fs::{File, TryLockError};
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::process::Pid;

use super::file::TargetFile;

/// What temporary names begin with; the process and a number follow. A name that is left over was
/// made by a restore that was killed; the next one in its directory removes it.
pub(super) const TEMPORARY: &str = ".strongroom-restore-";

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
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(fd) = rustix::fs::openat(directory, name, flags, Mode::empty()) else { continue };
        let is_file = rustix::fs::fstat(&fd)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        let file = File::from(fd);
        if is_file && !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        }
    }
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
        assert!(link.is_symlink() && held.exists());
        drop(holder);
        sweep(File::open(folder.path()).unwrap().as_fd());
        assert!(!held.exists(), "its holder has gone");
    }
}
