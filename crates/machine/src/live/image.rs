//! A disk as it was at one instant, while the guest goes on.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use strongroom_base::Cancel;
use strongroom_disk::{Image, ReadAt};

use super::pace::Pace;
use super::reader::{Failure, Reader};
use super::recent::Recent;
use super::released::Released;
use crate::error::Broken;
use crate::runs;

/// What is read to find out whether the instant still exists.
const PROBE_BYTES: u64 = 512;

/// Whether the instant still exists; one for all disks.
#[derive(Debug, Default)]
pub struct Instant {
    pace: Option<Pace>,
    // A plain mutex: held to look and to set.
    broken: Mutex<Option<Broken>>,
    cancel: Cancel,
}

impl Instant {
    /// `cancel` is set when the instant is lost. `share` is how much of the processors this process
    /// may use.
    pub fn new(cancel: Cancel, share: Option<f64>) -> Self {
        Self { pace: share.map(Pace::new), broken: Mutex::new(None), cancel }
    }

    /// Why it is lost, if it is.
    pub fn broken(&self) -> Option<Broken> {
        *self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is lost. The first reason counts.
    pub fn set_broken(&self, why: Broken) -> Broken {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *broken.get_or_insert(why);
        self.cancel.cancel();
        first
    }
}

/// A disk at the instant. Clones read the same disk.
#[derive(Clone)]
pub struct LiveImage {
    shared: Arc<Shared>,
}

struct Shared {
    bytes: u64,
    instant: Arc<Instant>,
    /// Absent after [`LiveImage::close`].
    reader: RwLock<Option<Arc<dyn Reader>>>,
    recent: Recent,
    /// Bytes that were read so far.
    read: AtomicU64,
    /// What is not known to be zeros.
    data: Vec<Range<u64>>,
    // A plain mutex: held while a range is added.
    released: Mutex<Released>,
}

impl LiveImage {
    /// `data`: what of it is not known to be zeros.
    pub(super) fn new(
        reader: Arc<dyn Reader>,
        data: Vec<Range<u64>>,
        recent: Recent,
        instant: Arc<Instant>,
    ) -> Self {
        let bytes = reader.size();
        let shared = Shared {
            bytes,
            instant,
            reader: RwLock::new(Some(reader)),
            read: AtomicU64::new(recent.bytes()),
            recent,
            data,
            released: Mutex::new(Released::new(bytes)),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Bytes that were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.shared.read.load(Ordering::Relaxed)
    }

    /// Lets go of what QEMU offers. Nothing can be read after that.
    pub(super) fn close(&self) {
        self.shared.reader.write().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn reader(&self) -> io::Result<Arc<dyn Reader>> {
        let shared = &self.shared;
        if let Some(broken) = shared.instant.broken() {
            return Err(io::Error::other(broken));
        }
        let reader = shared.reader.read().unwrap_or_else(PoisonError::into_inner);
        reader.clone().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotConnected, "the disks of the machine were given back")
        })
    }

    /// What a failure means for the instant.
    fn judge(&self, reader: &dyn Reader, failure: Failure) -> io::Error {
        let why = match failure {
            Failure::Gone => Broken::Gone,
            Failure::Refused(_) if is_lost(reader) => Broken::Store,
            Failure::Refused(error) | Failure::Other(error) => return error,
        };
        io::Error::other(self.shared.instant.set_broken(why))
    }
}

/// True if nothing can be read. QEMU refuses to read what was released, and everything when the
/// instant is lost, with the same error. The first bytes are never released.
pub fn is_lost(reader: &dyn Reader) -> bool {
    let mut first = vec![0; PROBE_BYTES.min(reader.size()) as usize];
    reader.read_at(0, &mut first).is_err()
}

impl ReadAt for LiveImage {
    fn size(&self) -> u64 {
        self.shared.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.shared.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let reader = self.reader()?;
        if let Some(pace) = &self.shared.instant.pace {
            pace.rest();
        }
        let ask = |offset, part: &mut [u8]| {
            self.shared.read.fetch_add(part.len() as u64, Ordering::Relaxed);
            reader.read_at(offset, part)
        };
        let filled = self.shared.recent.read_at(offset, buffer, ask);
        filled.map_err(|failure| self.judge(&*reader, failure))
    }
}

impl Image for LiveImage {
    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        Ok(runs::next(&self.shared.data, offset))
    }

    fn broken(&self) -> Option<String> {
        self.shared.instant.broken().map(|why| why.to_string())
    }

    fn release(&self, range: Range<u64>) {
        let whole = {
            let mut released = self.shared.released.lock().unwrap_or_else(PoisonError::into_inner);
            released.add(range)
        };
        if let (Some(whole), Ok(reader)) = (whole, self.reader()) {
            reader.release(whole);
        }
    }
}
