//! The store: files that keep what the guest overwrites while it is still to be read.
//!
//! A file is sparse and has no name once QEMU has opened it, so its room is free again when QEMU and
//! this process have closed it, however they end. A thread looks at its size each second; before
//! the store holds more than it may, or leaves its file system less room than it must, the instant is
//! given up. The guest goes on in any case.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use crate::error::{Broken, MachineError, file_error};
use crate::intent::give_file_to;

/// How long a store may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How much a store may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// It may have this many bytes. Without a limit, the reserve is one.
    pub bytes_max: Option<u64>,
    /// Bytes that must stay free on its file system.
    pub reserve: u64,
}

/// The files of a store.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    limits: StoreLimits,
    files: Vec<File>,
}

impl Store {
    /// Begins a store without files.
    ///
    /// # Errors
    ///
    /// The folder does not exist, or has less room than the reserve.
    pub fn open(folder: &Path, limits: StoreLimits) -> Result<Self, MachineError> {
        let folder = folder.canonicalize().map_err(file_error(folder))?;
        let store = Self { folder, limits, files: Vec::new() };
        let available = store.available().map_err(file_error(&store.folder))?;
        if available < limits.reserve {
            let (folder, reserve) = (store.folder, limits.reserve);
            return Err(MachineError::Room { folder, available, reserve });
        }
        Ok(store)
    }

    /// Where a file for a disk will be.
    pub fn path(&self, snapshot: &str, disk: &str) -> PathBuf {
        self.folder.join(format!("strongroom-{snapshot}-{disk}.store"))
    }

    /// Creates the file for a disk of this size.
    pub fn create(
        &mut self,
        path: &Path,
        bytes: u64,
        owner: Option<(u32, u32)>,
    ) -> Result<(), MachineError> {
        let create = || {
            let mut options = File::options();
            let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
            file.set_len(bytes)?;
            give_file_to(&file, owner)?;
            Ok(file)
        };
        self.files.push(create().map_err(file_error(path))?);
        Ok(())
    }

    /// Counts a file that another program has made for it.
    pub fn adopt(&mut self, path: &Path) -> Result<(), MachineError> {
        self.files.push(File::open(path).map_err(file_error(path))?);
        Ok(())
    }

    /// Where the files are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How many bytes the files take now.
    pub fn bytes(&self) -> io::Result<u64> {
        let blocks = self.files.iter().map(|file| file.metadata().map(|found| found.blocks()));
        Ok(blocks.sum::<io::Result<u64>>()?.saturating_mul(512))
    }

    /// Why the instant must be given up, if it must.
    pub fn trouble(&self) -> Option<Broken> {
        if let Some(limit) = self.limits.bytes_max
            && self.bytes().is_ok_and(|bytes| bytes >= limit)
        {
            return Some(Broken::Limit { limit });
        }
        let reserve = self.limits.reserve;
        let is_full = self.available().is_ok_and(|available| available < reserve);
        is_full.then_some(Broken::Reserve { reserve })
    }

    fn available(&self) -> io::Result<u64> {
        let found = rustix::fs::statvfs(&self.folder)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

/// Fails if the file system of a store hangs. To take out a filter whose copy is under way, QEMU waits
/// for the store, and nothing else in QEMU goes on meanwhile.
///
/// # Errors
///
/// [`MachineError::StoreHangs`].
pub fn check_answers(folder: &Path) -> Result<(), MachineError> {
    let (done, awaited) = sync_channel(1);
    let path = folder.join(format!("strongroom-{}.probe", std::process::id()));
    let probe = move || {
        // A file system that is full or read-only answers, too.
        let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let _ = made.and_then(|file| file.sync_all());
        let _ = std::fs::remove_file(&path);
        let _ = done.send(());
    };
    let spawned = std::thread::Builder::new().name("probe".to_owned()).spawn(probe);
    if spawned.is_ok() && awaited.recv_timeout(ANSWER_LIMIT).is_err() {
        return Err(MachineError::StoreHangs { folder: folder.to_owned() });
    }
    Ok(())
}

/// Removes a file of a store that may be gone already.
pub fn remove(path: &Path) -> Result<(), MachineError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_store_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let limits = StoreLimits { bytes_max: Some(1 << 20), reserve: 4096 };
        let mut store = Store::open(folder.path(), limits).unwrap();
        let path = store.path("S", "vda");
        store.create(&path, 64 << 20, Some((0, 0))).unwrap();
        assert!(store.create(&path, 1, None).is_err(), "no file of another is taken");
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert_eq!((store.bytes().unwrap(), store.trouble()), (0, None));
        store.files[0].write_all_at(&vec![7; 2 << 20], 0).unwrap();
        assert_eq!(store.trouble(), Some(Broken::Limit { limit: 1 << 20 }));
        let limits = StoreLimits { bytes_max: None, reserve: u64::MAX };
        assert!(matches!(Store::open(folder.path(), limits), Err(MachineError::Room { .. })));
        store.limits = limits;
        assert_eq!(store.trouble(), Some(Broken::Reserve { reserve: u64::MAX }));
        assert!(Store::open(&folder.path().join("none"), limits).is_err());
    }

    #[test]
    fn a_probe_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let probe = folder.path().join(format!("strongroom-{}.probe", std::process::id()));
        std::os::unix::fs::symlink(&victim, &probe).unwrap();
        check_answers(folder.path()).unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    }
}
