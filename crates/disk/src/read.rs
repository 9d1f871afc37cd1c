//! Bytes at positions: the only thing that this crate asks of a disk.

use std::io;

use crate::error::{DiskError, Result};

/// This many places of a disk are read to see whether it is still there, its beginning among them.
const PROBES: u64 = 16;
/// Places that are read are multiples of this.
const PROBE_STEP: u64 = 4096;

/// An image, a block device, an export of a running machine.
///
/// What it gives for a position must not change as long as it is used.
pub trait ReadAt: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Fills the buffer with the bytes from `offset` on. Fails with `UnexpectedEof` behind the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.get(offset..));
        let bytes = from.and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl<R: ReadAt + ?Sized> ReadAt for &R {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, buffer)
    }
}

/// Reads places all over a disk of this many bytes until one of them can be read. Returns the last error
/// if none can.
pub fn gives_nothing(
    bytes: u64,
    read: &dyn Fn(u64, &mut [u8]) -> io::Result<()>,
) -> Option<io::Error> {
    let mut failed = None;
    for number in 0..PROBES {
        let place = bytes / PROBES * number / PROBE_STEP * PROBE_STEP;
        match read(place, &mut [0; 512][..bytes.min(512) as usize]) {
            Ok(()) => return None,
            Err(error) => failed = Some(error),
        }
    }
    failed
}

/// Reads bytes of which the disk may have fewer; then it is damaged, or was cut off. The caller has
/// bounded `bytes`.
pub(crate) fn read_vec(reader: &dyn ReadAt, offset: u64, bytes: usize) -> Result<Vec<u8>> {
    let end = offset.checked_add(bytes as u64);
    if end.is_none_or(|end| end > reader.size()) {
        return Err(DiskError::damaged("the disk ends early", offset));
    }
    let mut buffer = vec![0; bytes];
    reader.read_at(offset, &mut buffer)?;
    Ok(buffer)
}
