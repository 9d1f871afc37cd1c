//! The file systems that a target spans: that of its own directory, and those mounted inside.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::Statx;
use rustix::io::Errno;

use crate::inode;

/// Each device, and a directory on it that is open for reading, as a flush needs it. None if there
/// is no such directory yet.
#[derive(Debug, Default)]
pub(super) struct Mounts(Mutex<BTreeMap<u64, Option<Arc<OwnedFd>>>>);

impl Mounts {
    /// Records a directory that exists in the target; `open` opens it for reading.
    pub(super) fn note(
        &self,
        stat: &Statx,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<(), Errno> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = known.entry(inode::device_of(stat)).or_default();
        if directory.is_none() {
            *directory = match open() {
                Ok(opened) => Some(Arc::new(opened)),
                // It may only be searched: perhaps another one of the device may be read.
                Err(Errno::ACCESS) => None,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// Flushes all of them to their disks; returns the first failure.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        // A flush takes long, and a thread that records a directory need not wait for it.
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known.values().any(Option::is_none) {
            // No directory says which disk it is.
            rustix::fs::sync();
        }
        let open = known.values().flatten();
        open.map(|directory| rustix::fs::syncfs(directory.as_fd())).fold(Ok(()), Result::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_is_known_once() {
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &std::path::Path| OwnedFd::from(std::fs::File::open(path).unwrap());
        let mounts = Mounts::default();
        let here = inode::stat_fd(open(folder.path())).unwrap();
        // One that may only be searched is no help.
        mounts.note(&here, || Err(Errno::ACCESS)).unwrap();
        mounts.sync().unwrap();
        mounts.note(&here, || Ok(open(folder.path()))).unwrap();
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
