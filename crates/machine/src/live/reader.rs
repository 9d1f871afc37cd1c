//! The two ways in which QEMU offers a disk at the instant.
//!
//! NBD is the usual one. Beside an iothread, QEMU before version 9 crashes when a client of its NBD
//! server leaves, so there the disk is a file that QEMU mounts by FUSE.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno as SystemErrno;
use strongroom_nbd::{Cause, Client, ClientOptions, Errno, NbdError, STATUS_ZERO, Stream};

use crate::runs;

/// The context that says what is data.
const ALLOCATION: &str = "base:allocation";
/// The flag of what a dirty bitmap calls dirty.
const DIRTY: u32 = 1;

/// A disk at the instant, as QEMU offers it.
pub enum Reader {
    /// Connections to an export. Threads take one in turn.
    Nbd { clients: Vec<Client>, turn: AtomicUsize },
    /// A file.
    Fuse(File),
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

impl Reader {
    /// Connects to an export, and asks what is data and, with the name of a bitmap, what is dirty in
    /// it.
    pub fn connect(
        socket: &Path,
        export: &str,
        bitmap: Option<&str>,
        connections: usize,
    ) -> Result<Offered, NbdError> {
        let dirty = bitmap.map(dirty_context);
        let contexts = [ALLOCATION.to_owned()].into_iter().chain(dirty.clone()).collect();
        let first = connect(socket, export, contexts)?;
        let everything = 0..first.size();
        let changed = match &dirty {
            Some(context) => dirty_ranges(&first, context)?,
            None => None,
        };
        let data = if first.has_context(ALLOCATION) {
            let status = first.block_status(ALLOCATION, everything)?;
            runs::gather(status, |flags| flags & STATUS_ZERO == 0, runs::RANGES_MAX)?
        } else {
            vec![everything]
        };
        let bytes = first.size();
        let several = if first.allows_several_connections() { connections } else { 1 };
        let mut clients = vec![first];
        while clients.len() < several {
            clients.push(connect(socket, export, Vec::new())?);
        }
        let reader = Self::Nbd { clients, turn: AtomicUsize::new(0) };
        Ok(Offered { reader, bytes, data, changed })
    }

    /// Opens a file that QEMU has mounted.
    pub fn open(path: &Path) -> io::Result<Offered> {
        // Past the kernel's cache: otherwise what was read once could be read again after the instant
        // is lost.
        let flags = (OFlags::NOFOLLOW | OFlags::DIRECT).bits().cast_signed();
        let file = File::options().read(true).write(true).custom_flags(flags).open(path)?;
        let bytes = file.metadata()?.len();
        let data = file_data(&file, bytes)?;
        Ok(Offered { reader: Self::Fuse(file), bytes, data, changed: None })
    }

    /// Fills `buffer`.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Failure> {
        match self {
            Self::Nbd { clients, turn } => {
                let client = &clients[turn.fetch_add(1, Ordering::Relaxed) % clients.len()];
                client.read_at(offset, buffer).map_err(|error| match error.cause() {
                    Cause::Refused { errno: Errno::EINVAL, .. } => {
                        Failure::Refused(io::Error::other(error))
                    }
                    Cause::Closed | Cause::TimedOut | Cause::Io(_) | Cause::Protocol(_) => {
                        Failure::Gone
                    }
                    _ => Failure::Other(io::Error::other(error)),
                })
            }
            Self::Fuse(file) => {
                file.read_exact_at(buffer, offset).map_err(
                    |error| match SystemErrno::from_io_error(&error) {
                        Some(SystemErrno::ACCESS | SystemErrno::INVAL) => Failure::Refused(error),
                        Some(SystemErrno::NOTCONN | SystemErrno::CONNABORTED) => Failure::Gone,
                        _ => Failure::Other(error),
                    },
                )
            }
        }
    }

    /// Releases a range. If that fails, the store keeps more than it must.
    pub fn release(&self, range: Range<u64>) {
        let _ = match self {
            Self::Nbd { clients, .. } => clients[0].trim(range).map_err(drop),
            Self::Fuse(file) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let bytes = range.end - range.start;
                rustix::fs::fallocate(file, flags, range.start, bytes).map_err(drop)
            }
        };
    }
}

/// A disk at the instant, and what is known of it.
pub struct Offered {
    pub reader: Reader,
    /// Its size.
    pub bytes: u64,
    /// What is not known to be zeros.
    pub data: Vec<Range<u64>>,
    /// What the bitmap calls dirty, if the server has it.
    pub changed: Option<Vec<Range<u64>>>,
}

/// What a bitmap that is exported alone calls dirty.
pub fn dirty_of(
    socket: &Path,
    export: &str,
    bitmap: &str,
) -> Result<Option<Vec<Range<u64>>>, NbdError> {
    let context = dirty_context(bitmap);
    let client = connect(socket, export, vec![context.clone()])?;
    dirty_ranges(&client, &context)
}

fn dirty_context(bitmap: &str) -> String {
    format!("qemu:dirty-bitmap:{bitmap}")
}

/// `None` if the server does not have the context.
fn dirty_ranges(client: &Client, context: &str) -> Result<Option<Vec<Range<u64>>>, NbdError> {
    if !client.has_context(context) {
        return Ok(None);
    }
    let status = client.block_status(context, 0..client.size())?;
    runs::gather(status, |flags| flags & DIRTY != 0, runs::RANGES_MAX).map(Some)
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
