//! Compressed extents, decompressed.

use std::io::Read;

use crate::error::{DiskError, Result};
use crate::fields::{le32, part};

use super::lzo;

/// The most that a compressed extent has, compressed or not.
pub(super) const BYTES_MAX: u64 = 128 << 10;
/// As a power of two, what of its content a stream of zstd can refer to.
const WINDOW_LOG_MAX: u32 = 17;

/// Decompresses an extent of a file to exactly `bytes`; what a stream lacks at its end is zeros.
pub(super) fn decompress(
    kind: u8,
    stored: &[u8],
    bytes: usize,
    sector_bytes: usize,
) -> Result<Vec<u8>> {
    let damaged = || DiskError::damaged("a compressed extent, by its length", bytes as u64);
    let mut content = Vec::new();
    match kind {
        1 => {
            let stream = flate2::bufread::ZlibDecoder::new(stored);
            let read = stream.take(bytes as u64).read_to_end(&mut content);
            read.map_err(|_| damaged())?;
        }
        2 => content = segments(stored, bytes, sector_bytes).ok_or_else(damaged)?,
        3 => {
            let mut stream = zstd::stream::read::Decoder::with_buffer(stored)?.single_frame();
            stream.window_log_max(WINDOW_LOG_MAX)?;
            let read = stream.take(bytes as u64).read_to_end(&mut content);
            read.map_err(|_| damaged())?;
        }
        _ => return Err(DiskError::unsupported("an extent of Btrfs of an unknown compression")),
    }
    content.resize(bytes, 0);
    Ok(content)
}

/// LZO: a length of all, then segments of one sector each, with a length before each. No such
/// length crosses the end of a sector.
fn segments(stored: &[u8], bytes: usize, sector_bytes: usize) -> Option<Vec<u8>> {
    const LENGTH: usize = 4;
    let whole = part(stored, 0, le32(stored, 0) as usize);
    let mut content = Vec::new();
    let mut at = LENGTH;
    while content.len() < bytes && at < whole.len() {
        let left = sector_bytes - at % sector_bytes;
        if left < LENGTH {
            at += left;
        }
        let length = le32(whole, at) as usize;
        let segment = whole.get(at + LENGTH..(at + LENGTH).checked_add(length)?)?;
        content.extend(lzo::decompress(segment, sector_bytes)?);
        at += LENGTH + length;
    }
    content.truncate(bytes);
    Some(content)
}
