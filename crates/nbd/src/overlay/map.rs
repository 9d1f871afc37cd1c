//! Which clusters are in the overlay: bits in memory, and in a file that follows them.
//!
//! A disk of 16 TiB has 32 MiB of bits.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use super::CLUSTER_BYTES;
use super::error::OverlayError;
use super::format::{Head, PAGE_BYTES};

const CLUSTERS_PER_PAGE: u64 = 8 * PAGE_BYTES as u64;

/// The bits of all clusters. They are set, and never cleared.
pub struct Map {
    file: File,
    bits: Vec<AtomicU8>,
    /// The pages of which bits were set that are not in the file yet.
    is_changed: Vec<AtomicBool>,
    // A plain mutex: one flush at a time. Whether one has failed: the kernel forgets what it could not write, so
    // a later success would mean nothing.
    has_failed: Mutex<bool>,
}

impl Map {
    /// Opens the map beside an overlay's file, or makes an empty one.
    pub fn open(overlay: &Path, head: Head) -> Result<Self, OverlayError> {
        let mut path = overlay.as_os_str().to_owned();
        path.push(".map");
        let path = Path::new(&path);
        let io = |error| OverlayError::io(path, error);
        let file = open_private(path).map_err(io)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => OverlayError::InUse { path: path.to_owned() },
            TryLockError::Error(error) => OverlayError::io(path, error),
        })?;
        let pages = head.size.div_ceil(CLUSTER_BYTES).div_ceil(CLUSTERS_PER_PAGE);
        let bytes = (pages + 1) * PAGE_BYTES as u64;
        // One that a crash kept from being finished has no bits yet.
        let is_new = file.metadata().map_err(io)?.len() <= PAGE_BYTES as u64;
        if is_new && has_data(overlay).map_err(|error| OverlayError::io(overlay, error))? {
            return Err(OverlayError::NoMap { path: path.to_owned() });
        }
        if is_new {
            make(&file, bytes, head, overlay).map_err(io)?;
        }
        let is_whole = file.metadata().map_err(io)?.len() == bytes;
        let mut found = [0; PAGE_BYTES];
        let read = file.read_exact_at(&mut found, 0);
        let found = read.ok().and_then(|()| Head::unpack(&found).ok().flatten());
        match found {
            Some(found) if found == head && is_whole => {}
            Some(found) if found != head => {
                return Err(OverlayError::OtherBase { path: path.to_owned() });
            }
            _ => return Err(OverlayError::NoMap { path: path.to_owned() }),
        }
        let mut bits = vec![0; (bytes as usize) - PAGE_BYTES];
        file.read_exact_at(&mut bits, PAGE_BYTES as u64).map_err(io)?;
        Ok(Self {
            file,
            bits: bits.into_iter().map(AtomicU8::new).collect(),
            is_changed: (0..pages).map(|_| AtomicBool::new(false)).collect(),
            has_failed: Mutex::new(false),
        })
    }

    /// True if a cluster is in the overlay.
    pub fn has(&self, cluster: u64) -> bool {
        // Acquire: who sees the bit sees what was written before it.
        self.bits[(cluster / 8) as usize].load(Ordering::Acquire) & (1 << (cluster % 8)) != 0
    }

    /// Notes that a cluster is in the overlay.
    pub fn set(&self, cluster: u64) {
        let bit = 1 << (cluster % 8);
        let old = self.bits[(cluster / 8) as usize].fetch_or(bit, Ordering::AcqRel);
        if old & bit == 0 {
            // After the bit: a flush that clears the mark sees the bit.
            self.is_changed[(cluster / CLUSTERS_PER_PAGE) as usize].store(true, Ordering::Release);
        }
    }

    /// How many clusters are in the overlay.
    pub fn count(&self) -> u64 {
        self.bits.iter().map(|byte| u64::from(byte.load(Ordering::Relaxed).count_ones())).sum()
    }

    /// Brings the bits to the medium that are set now. In between, `sync_clusters` brings the
    /// clusters there: after the bits were copied, and before the copies are written. Fails for ever once it
    /// has failed.
    pub fn flush(&self, sync_clusters: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut has_failed = self.has_failed.lock().unwrap_or_else(PoisonError::into_inner);
        if *has_failed {
            return Err(io::Error::other("the overlay failed to reach the medium before"));
        }
        let flushed = self.flush_alone(sync_clusters);
        *has_failed = flushed.is_err();
        flushed
    }

    fn flush_alone(&self, sync_clusters: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let pages: Vec<(usize, Vec<u8>)> = (0..self.is_changed.len())
            .filter(|&page| self.is_changed[page].swap(false, Ordering::AcqRel))
            .map(|page| {
                let bits = &self.bits[page * PAGE_BYTES..][..PAGE_BYTES];
                (page, bits.iter().map(|byte| byte.load(Ordering::Acquire)).collect())
            })
            .collect();
        sync_clusters()?;
        if pages.is_empty() {
            return Ok(());
        }
        for (page, bits) in pages {
            self.file.write_all_at(&bits, ((page + 1) * PAGE_BYTES) as u64)?;
        }
        self.file.sync_data()
    }
}

/// Opens or makes a file of an overlay. What a machine writes is its own, and around that lies what others may not
/// read.
pub fn open_private(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Whether the overlay's file has anything in it. It is made after the map, so a map that is missing or has no
/// bits was lost then, and with it which clusters are there.
fn has_data(overlay: &Path) -> io::Result<bool> {
    match File::open(overlay) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Ok(file) => match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)) {
            Err(rustix::io::Errno::NXIO) => Ok(false),
            found => found.map(|_| true).map_err(io::Error::from),
        },
        Err(error) => Err(error),
    }
}

/// Makes an empty map. It gets its length last, so that one that was not finished is too short.
fn make(file: &File, bytes: u64, head: Head, overlay: &Path) -> io::Result<()> {
    file.write_all_at(&head.pack(), 0)?;
    file.sync_all()?;
    file.set_len(bytes)?;
    file.sync_all()?;
    let folder = overlay.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flush that waits while another fails has failed too: the kernel reports once what it could not write.
    #[test]
    fn a_flush_that_fails_fails_those_that_wait_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("overlay");
        let map = Map::open(&path, Head { size: 1 << 20, base_id: [7; 32] }).unwrap();
        let (begun, waits) = std::sync::mpsc::channel();
        let (waited, ends) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let map = &map;
            let first = scope.spawn(move || {
                map.flush(|| {
                    begun.send(()).unwrap();
                    ends.recv().unwrap();
                    Err(io::Error::other("the medium is gone"))
                })
            });
            waits.recv().unwrap();
            let second = scope.spawn(|| map.flush(|| Ok(())));
            std::thread::sleep(std::time::Duration::from_millis(50));
            waited.send(()).unwrap();
            assert!(first.join().unwrap().is_err());
            assert!(second.join().unwrap().is_err());
        });
        assert!(map.flush(|| Ok(())).is_err());
    }
}
