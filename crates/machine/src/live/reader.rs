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
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
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
const READ_BYTES_MAX: usize = 1 << 20;

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

/// Connections to an export. Threads take one in turn.
pub struct Nbd {
    clients: Vec<Client>,
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
        let dirty = bitmaps.iter().map(|bitmap| dirty_context(bitmap));
        let contexts = [ALLOCATION.to_owned()].into_iter().chain(dirty).collect();
        let first = connect(socket, export, contexts)?;
        let several = if first.allows_several_connections() { connections } else { 1 };
        let mut clients = vec![first];
        while clients.len() < several {
            clients.push(connect(socket, export, Vec::new())?);
        }
        Ok(Self { clients, turn: AtomicUsize::new(0), reach })
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), NbdError> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let client = &self.clients[turn % self.clients.len()];
        let mut begun = Vec::new();
        for (start, part) in self.reach.parts(offset, buffer) {
            begun.push((client.begin_read(start, part.len() as u32)?, part));
        }
        for (read, part) in begun {
            part.copy_from_slice(&read.wait()?);
        }
        Ok(())
    }

    /// What is not known to be zeros.
    pub fn data(&self) -> Result<Vec<Range<u64>>, NbdError> {
        let first = &self.clients[0];
        let everything = 0..first.size();
        if !first.has_context(ALLOCATION) {
            return Ok(vec![everything]);
        }
        let status = first.block_status(ALLOCATION, everything)?;
        runs::gather(status, |flags| flags & STATUS_ZERO == 0, runs::RANGES_MAX)
    }

    /// What a bitmap calls dirty. `None` if the server does not have it.
    pub fn dirty(&self, bitmap: &str) -> Result<Option<Vec<Range<u64>>>, NbdError> {
        let (first, context) = (&self.clients[0], dirty_context(bitmap));
        if !first.has_context(&context) {
            return Ok(None);
        }
        let status = first.block_status(&context, 0..first.size())?;
        runs::gather(status, |flags| flags & DIRTY != 0, runs::RANGES_MAX).map(Some)
    }
}

impl Reader for Nbd {
    fn size(&self) -> u64 {
        self.clients[0].size()
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
        let _ = self.clients[0].trim(range);
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

    /// What is not known to be zeros.
    pub fn data(&self) -> io::Result<Vec<Range<u64>>> {
        let everything = 0..self.bytes;
        match self.reach {
            Reach::Any => file_data(&self.file, self.bytes),
            // What was written since the instant is not known here.
            Reach::Cluster => Ok(vec![everything]),
        }
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

/// What of a file is no hole.
fn file_data(file: &File, bytes: u64) -> io::Result<Vec<Range<u64>>> {
    let mut data: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while at < bytes {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(SystemErrno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(bytes);
        // A file that says nothing, or too much, is data to its end.
        if end <= at || data.len() >= runs::RANGES_MAX {
            data.push(at..bytes);
            break;
        }
        if start < end {
            data.push(start..end);
        }
        at = end;
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_of_a_file_are_no_data() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10 << 20).unwrap();
        assert_eq!(file_data(&file, 10 << 20).unwrap(), []);
        file.write_all_at(&[1; 4096], 1 << 20).unwrap();
        file.write_all_at(&[1; 4096], 9 << 20).unwrap();
        let data = file_data(&file, 10 << 20).unwrap();
        assert_eq!(data, [1 << 20..(1 << 20) + 4096, 9 << 20..(9 << 20) + 4096]);
    }
}
