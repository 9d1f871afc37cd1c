//! The file systems that a target spans: that of its own directory, and those mounted inside.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::Statx;
use rustix::io::Errno;

use crate::inode;

/// Each device, and a directory on it.
#[derive(Debug)]
pub(super) struct Mounts(Mutex<Vec<(u64, Arc<OwnedFd>)>>);

impl Mounts {
    /// The one file system that is known at the beginning.
    pub(super) fn new(root: Arc<OwnedFd>) -> Result<Self, Errno> {
        let stat = inode::stat_fd(&root)?;
        Ok(Self(Mutex::new(vec![(inode::device_of(&stat), root)])))
    }

    /// Records a directory that exists in the target; `open` opens it.
    pub(super) fn note(
        &self,
        stat: &Statx,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<(), Errno> {
        let device = inode::device_of(stat);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.iter().any(|(other, _)| *other == device) {
            known.push((device, Arc::new(open()?)));
        }
        Ok(())
    }

    /// Flushes all of them to their disks; returns the first failure.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        // A flush takes long, and a thread that records a directory need not wait for it.
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let synced = known.iter().map(|(_, directory)| rustix::fs::syncfs(directory.as_fd()));
        synced.fold(Ok(()), Result::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_is_known_once() {
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &std::path::Path| OwnedFd::from(std::fs::File::open(path).unwrap());
        let mounts = Mounts::new(Arc::new(open(folder.path()))).unwrap();
        let here = inode::stat_fd(open(folder.path())).unwrap();
        let never = || -> Result<OwnedFd, Errno> { panic!("its device is known") };
        mounts.note(&here, never).unwrap();
        let proc = std::path::Path::new("/proc");
        let there = inode::stat_fd(open(proc)).unwrap();
        mounts.note(&there, || Ok(open(proc))).unwrap();
        mounts.note(&there, never).unwrap();
        assert_eq!(mounts.0.lock().unwrap().len(), 2);
        mounts.sync().unwrap();
    }
}
