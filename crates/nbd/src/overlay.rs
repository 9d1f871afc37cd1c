//! A writable disk over one that is only read: what is written is kept in a file.
//!
//! The disk is divided into clusters of 64 KiB. A cluster is in the overlay's file if its bit in the
//! map is set, and otherwise in the base. The file is sparse and has the size of the disk; a cluster
//! has the same place in both. The map is a file beside it ([`format`]), so an overlay can be opened
//! again.
//!
//! Invariants:
//! - a bit is set only after the whole cluster is in the file, and bits are never cleared;
//! - a bit reaches the map's file only after the cluster is on the medium ([`Overlay::flush`]), so
//!   after a crash each set bit has its cluster. A map of which only some bytes were written is
//!   valid too, since each of its bytes is an old or a new one;
//! - one process has an overlay at a time: it holds a lock on the map.

mod error;
mod format;
mod map;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, fallocate};

use crate::export::{Export, Extent, Zeroing};
use crate::sparse::{append_of, extents_of};
pub use error::OverlayError;
use format::Head;
use map::{Map, open_private};

/// The size of a cluster.
pub(crate) const CLUSTER_BYTES: u64 = 64 << 10;
/// A cluster of zeros.
static ZEROS: [u8; CLUSTER_BYTES as usize] = [0; CLUSTER_BYTES as usize];
/// Locks for clusters that are being moved from the base. Cluster N has lock N modulo this.
const LOCKS: usize = 64;
/// The most runs of clusters that one answer about extents looks at.
const RUNS_MAX: usize = 1024;

/// A writable disk over a base.
pub struct Overlay {
    base: Arc<dyn Export>,
    size: u64,
    file: File,
    map: Map,
    // Plain mutexes: held while one cluster is copied.
    moving: [Mutex<()>; LOCKS],
}

impl Overlay {
    /// Makes an overlay, or opens one that was made before. Its files are `path`, and the same name
    /// with `.map` behind it. `base_id` names the base; the overlay opens only over the same one.
    ///
    /// # Errors
    ///
    /// If the files belong to another base or to no overlay, if another process uses them, or if
    /// the system refuses.
    pub fn open(
        path: &Path,
        base: Arc<dyn Export>,
        base_id: [u8; 32],
    ) -> Result<Self, OverlayError> {
        let size = base.size();
        let map = Map::open(path, Head { size, base_id })?;
        let io = |error| OverlayError::io(path, error);
        let file = open_private(path).map_err(io)?;
        let is_whole = file.metadata().map_err(io)?.len() == size;
        if !is_whole && map.count() > 0 {
            return Err(OverlayError::NoData { path: path.to_owned() });
        }
        file.set_len(size).map_err(io)?;
        let moving = std::array::from_fn(|_| Mutex::new(()));
        Ok(Self { base, size, file, map, moving })
    }

    /// How many bytes of the disk are in the overlay, in whole clusters.
    pub fn bytes_written(&self) -> u64 {
        self.map.count() * CLUSTER_BYTES
    }

    /// Cuts a range where it changes between the base and the overlay.
    fn runs(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, bool)> + '_ {
        let mut position = range.start;
        std::iter::from_fn(move || {
            if position >= range.end {
                return None;
            }
            let begin = position;
            let is_here = self.map.has(begin / CLUSTER_BYTES);
            while position < range.end && self.map.has(position / CLUSTER_BYTES) == is_here {
                position = (position / CLUSTER_BYTES + 1) * CLUSTER_BYTES;
            }
            position = position.min(range.end);
            Some((begin..position, is_here))
        })
    }

    /// The bytes of a cluster; the last one may be short.
    fn cluster(&self, number: u64) -> Range<u64> {
        let begin = number * CLUSTER_BYTES;
        begin..(begin + CLUSTER_BYTES).min(self.size)
    }

    /// Holds a cluster that is about to be written. If it is still in the base, it is copied from
    /// there, but not if all of it `is_replaced`. The caller writes, and then sets the bit.
    fn hold(&self, number: u64, is_replaced: bool) -> io::Result<MutexGuard<'_, ()>> {
        let lock = &self.moving[(number % LOCKS as u64) as usize];
        let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_replaced && !self.map.has(number) {
            let cluster = self.cluster(number);
            let mut bytes = Vec::with_capacity((cluster.end - cluster.start) as usize);
            self.base.append(cluster.clone(), &mut bytes)?;
            self.file.write_all_at(&bytes, cluster.start)?;
        }
        Ok(held)
    }

    /// Writes a part of one cluster.
    fn write_in_cluster(&self, number: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let cluster = self.cluster(number);
        let _held = self.hold(number, bytes.len() as u64 == cluster.end - cluster.start)?;
        self.file.write_all_at(bytes, offset)?;
        self.map.set(number);
        Ok(())
    }

    /// Makes a whole cluster a hole.
    fn punch(&self, number: u64) -> io::Result<()> {
        let cluster = self.cluster(number);
        let bytes = cluster.end - cluster.start;
        let _held = self.hold(number, true)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, cluster.start, bytes) {
            Ok(()) => {}
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                self.file.write_all_at(&ZEROS[..bytes as usize], cluster.start)?;
            }
            Err(error) => return Err(error.into()),
        }
        self.map.set(number);
        Ok(())
    }

    /// The clusters that a range covers completely.
    fn whole_clusters(&self, range: &Range<u64>) -> Range<u64> {
        let first = range.start.div_ceil(CLUSTER_BYTES);
        // The disk may end within its last cluster.
        let end = if range.end == self.size {
            range.end.div_ceil(CLUSTER_BYTES)
        } else {
            range.end / CLUSTER_BYTES
        };
        first..end.max(first)
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        let mut position = range.start;
        while position < range.end {
            let end = self.cluster(position / CLUSTER_BYTES).end.min(range.end);
            self.write_at(position, &ZEROS[..(end - position) as usize])?;
            position = end;
        }
        Ok(())
    }
}

impl Export for Overlay {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn allows_several_connections(&self) -> bool {
        true
    }

    fn append(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
        for (run, is_here) in self.runs(range) {
            if is_here {
                append_of(&self.file, run, bytes)?;
            } else {
                self.base.append(run, bytes)?;
            }
        }
        Ok(())
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Vec<Extent>> {
        let mut extents = Vec::new();
        for (run, is_here) in self.runs(range).take(RUNS_MAX) {
            let mut left = run.end - run.start;
            let known = if is_here { extents_of(&self.file, run) } else { self.base.extents(run) }?;
            for extent in known {
                let bytes = extent.bytes.min(left);
                left -= bytes;
                extents.push(Extent { bytes, ..extent });
            }
            // The rest is asked for again.
            if left > 0 {
                break;
            }
        }
        Ok(extents)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for (run, is_here) in self.runs(offset..offset + bytes.len() as u64) {
            let part = &bytes[(run.start - offset) as usize..(run.end - offset) as usize];
            if is_here {
                self.file.write_all_at(part, run.start)?;
                continue;
            }
            let mut position = run.start;
            while position < run.end {
                let number = position / CLUSTER_BYTES;
                let end = self.cluster(number).end.min(run.end);
                let begin = (position - run.start) as usize;
                let bytes = &part[begin..(end - run.start) as usize];
                self.write_in_cluster(number, position, bytes)?;
                position = end;
            }
        }
        Ok(())
    }

    fn write_zeroes(&self, range: Range<u64>, zeroing: Zeroing) -> io::Result<()> {
        if zeroing.keeps_space {
            if zeroing.only_if_fast {
                return Err(io::ErrorKind::Unsupported.into());
            }
            return self.write_zeros(range);
        }
        let whole = self.whole_clusters(&range);
        if whole.is_empty() {
            return self.write_zeros(range);
        }
        self.write_zeros(range.start..whole.start * CLUSTER_BYTES)?;
        for number in whole.clone() {
            self.punch(number)?;
        }
        self.write_zeros(whole.end * CLUSTER_BYTES..range.end)
    }

    fn trim(&self, range: Range<u64>) -> io::Result<()> {
        for number in self.whole_clusters(&range) {
            self.punch(number)?;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.map.flush(|| self.file.sync_data())
    }

    fn cache(&self, range: Range<u64>) -> io::Result<()> {
        for (run, is_here) in self.runs(range).take(RUNS_MAX) {
            if !is_here {
                self.base.cache(run)?;
            }
        }
        Ok(())
    }
}

impl Drop for Overlay {
    /// A server that ends flushes what clients did not.
    fn drop(&mut self) {
        let _ = self.flush();
    }
}
