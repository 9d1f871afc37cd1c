//! Decompression by zstd, with contexts that are used again: making one takes longer than opening a
//! small summary or block.

use std::io;
use std::sync::{Mutex, PoisonError};

use zstd::bulk::Decompressor;

use crate::recycled::Recycled;

/// At most this many are kept, for as many threads: each takes some 100 KiB.
const KEPT_MAX: usize = 8;

static KEPT: Mutex<Vec<Decompressor<'static>>> = Mutex::new(Vec::new());

/// What one frame holds.
///
/// # Errors
///
/// If the frame is damaged, or holds more than `bytes_max`.
pub fn decompress(frame: &[u8], bytes_max: usize) -> io::Result<Recycled> {
    let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let idle = kept().pop();
    let mut decompressor = idle.map_or_else(Decompressor::new, Ok)?;
    let mut plain = Recycled::with_room(bytes_max);
    let outcome = decompressor.decompress_to_buffer(frame, plain.bytes_mut());
    let mut kept = kept();
    if kept.len() < KEPT_MAX {
        kept.push(decompressor);
    }
    drop(kept);
    // There may be room for more than was asked for.
    match outcome? {
        bytes if bytes <= bytes_max => Ok(plain),
        _ => Err(io::Error::other("the frame holds more than it may")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_that_met_damage_is_as_good_as_new() {
        let plain = [7; 4096];
        let frame = zstd::bulk::compress(&plain, 3).unwrap();
        for _ in 0..2 {
            assert_eq!(*decompress(&frame, 4096).unwrap(), plain);
            assert!(decompress(&frame, 4095).is_err());
            assert!(decompress(&frame[..frame.len() - 1], 4096).is_err());
            assert!(decompress(b"no frame", 4096).is_err());
        }
    }
}
