//! The two ways in which QEMU offers a disk at the instant.
//!
//! NBD is the usual one. Beside an iothread, QEMU before version 9 crashes when a client of its NBD
//! server leaves, so there the disk is a file that QEMU mounts by FUSE.
//!
//! QEMU before version 8 gets one thing wrong: a read that begins with what was overwritten, and goes
//! beyond it, is answered from the disk as it is now, and so is the question what is data. So reads
//! end with each cluster there ([`Reach`]), and what was written since the instant counts as data.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno as SystemErrno;
use strongroom_nbd::{Cause, Client, ClientOptions, Errno, NbdError, STATUS_ZERO, Stream};

use super::released::CLUSTER_BYTES;
use crate::runs;

/// The context that says what is data.
const ALLOCATION: &str = "base:allocation";
/// The flag of what a dirty bitmap calls dirty.
const DIRTY: u32 = 1;

/// A disk at the instant, as QEMU offers it.
pub trait Reader: Send + Sync {
    /// Its size in bytes.
    fn size(&self) -> u64;

    /// Fills `buffer`.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Failure>;

    /// Releases a range. If that fails, the store keeps more than it must.
    fn release(&self, range: Range<u64>);
}

/// What is read by one request, if nothing forbids it.
const READ_BYTES_MAX: usize = 256 << 10;

/// How far a read may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// As far as one likes.
    Any,
    /// To the end of the cluster that it begins in.
    Cluster,
}

impl Reach {
    /// The parts of a range, one after another, and where each begins.
    fn parts(self, offset: u64, mut buffer: &mut [u8]) -> impl Iterator<Item = (u64, &mut [u8])> {
        let mut at = offset;
        std::iter::from_fn(move || {
            let room = match self {
                Self::Any => READ_BYTES_MAX,
                Self::Cluster => (CLUSTER_BYTES - at % CLUSTER_BYTES) as usize,
            };
            let part = buffer.split_off_mut(..room.min(buffer.len()))?;
            let start = at;
            at += part.len() as u64;
            (!part.is_empty()).then_some((start, part))
        })
    }
}

/// Why something could not be read.
pub enum Failure {
    /// It was released, or the instant is lost.
    Refused(io::Error),
    /// QEMU is gone.
    Gone,
    /// The disk has an error there.
    Other(io::Error),
}

/// Connections to an export. Threads take one in turn, and each has one request at a time: while
/// QEMU answers several at once, the guest waits.
pub struct Nbd {
    socket: PathBuf,
    export: String,
    bytes: u64,
    // Plain mutexes: held while a part is read, or a status asked.
    clients: Vec<Mutex<Client>>,
    turn: AtomicUsize,
    reach: Reach,
}

impl Nbd {
    /// Connects to an export that has these bitmaps: once, or as often as asked if the server
    /// allows it.
    pub fn connect(
        socket: &Path,
        export: &str,
        bitmaps: &[&str],
        (connections, reach): (usize, Reach),
    ) -> Result<Self, NbdError> {
        let contexts = bitmaps.iter().map(|bitmap| dirty_context(bitmap)).collect();
        let first = connect(socket, export, contexts)?;
        let several = if first.allows_several_connections() { connections } else { 1 };
        let (bytes, mut clients) = (first.size(), vec![Mutex::new(first)]);
        while clients.len() < several {
            clients.push(Mutex::new(connect(socket, export, Vec::new())?));
        }
        let (socket, export) = (socket.to_owned(), export.to_owned());
        Ok(Self { socket, export, bytes, clients, turn: AtomicUsize::new(0), reach })
    }

    fn first(&self) -> MutexGuard<'_, Client> {
        self.clients[0].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), NbdError> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let client = &self.clients[turn % self.clients.len()];
        let mut parts = self.reach.parts(offset, buffer);
        parts.try_for_each(|(start, part)| {
            client.lock().unwrap_or_else(PoisonError::into_inner).read_at(start, part)
        })
    }

    /// What is not known to be zeros. These ranges, which are sorted, are not asked for: they count
    /// as data.
    pub fn data(&self, known: &[Range<u64>]) -> Result<Vec<Range<u64>>, NbdError> {
        // By itself: a server that is asked for one context is asked for all that were agreed on.
        let client = connect(&self.socket, &self.export, vec![ALLOCATION.to_owned()])?;
        let everything = 0..client.size();
        if !client.has_context(ALLOCATION) {
            return Ok(vec![everything]);
        }
        let (mut data, mut at) = (known.to_vec(), 0);
        for range in known.iter().cloned().chain(std::iter::once(everything.end..everything.end)) {
            if at < range.start {
                let status = client.block_status(ALLOCATION, at..range.start)?;
                let is_data = |flags| flags & STATUS_ZERO == 0;
                runs::add(&mut data, runs::gather(status, is_data, runs::RANGES_MAX)?);
            }
            at = range.end;
        }
        Ok(data)
    }

    /// What a bitmap calls dirty. `None` if the server does not have it.
    pub fn dirty(&self, bitmap: &str) -> Result<Option<Vec<Range<u64>>>, NbdError> {
        let (first, context) = (self.first(), dirty_context(bitmap));
        if !first.has_context(&context) {
            return Ok(None);
        }
        let status = first.block_status(&context, 0..first.size())?;
        runs::gather(status, |flags| flags & DIRTY != 0, runs::RANGES_MAX).map(Some)
    }
}

impl Reader for Nbd {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Failure> {
        self.fill(offset, buffer).map_err(|error| match error.cause() {
            Cause::Refused { errno: Errno::EINVAL, .. } => {
                Failure::Refused(io::Error::other(error))
            }
            Cause::Closed | Cause::TimedOut | Cause::Io(_) | Cause::Protocol(_) => Failure::Gone,
            _ => Failure::Other(io::Error::other(error)),
        })
    }

    fn release(&self, range: Range<u64>) {
        let _ = self.first().trim(range);
    }
}

/// A file that QEMU has mounted.
pub struct Fuse {
    file: File,
    bytes: u64,
    reach: Reach,
}

impl Fuse {
    /// Opens it.
    pub fn open(path: &Path, reach: Reach) -> io::Result<Self> {
        // Past the kernel's cache: otherwise what was read once could be read again after the instant
        // is lost.
        let flags = (OFlags::NOFOLLOW | OFlags::DIRECT).bits().cast_signed();
        let file = File::options().read(true).write(true).custom_flags(flags).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes, reach })
    }
}

impl Reader for Fuse {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Failure> {
        let mut parts = self.reach.parts(offset, buffer);
        parts.try_for_each(|(start, part)| self.file.read_exact_at(part, start)).map_err(|error| {
            match SystemErrno::from_io_error(&error) {
                Some(SystemErrno::ACCESS | SystemErrno::INVAL) => Failure::Refused(error),
                Some(SystemErrno::NOTCONN | SystemErrno::CONNABORTED) => Failure::Gone,
                _ => Failure::Other(error),
            }
        })
    }

    fn release(&self, range: Range<u64>) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(&self.file, flags, range.start, range.end - range.start);
    }
}

fn dirty_context(bitmap: &str) -> String {
    format!("qemu:dirty-bitmap:{bitmap}")
}

fn connect(socket: &Path, export: &str, contexts: Vec<String>) -> Result<Client, NbdError> {
    let stream = Stream::connect_unix(socket)
        .map_err(|error| NbdError::Open { export: export.to_owned(), cause: error.into() })?;
    Client::open(stream, export, &ClientOptions { contexts, ..ClientOptions::default() })
}
