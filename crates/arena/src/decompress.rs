//! Decompression by zstd, with contexts that are used again: making one takes longer than opening a
//! small summary or block.

use std::io;
use std::sync::{Mutex, PoisonError};

use zstd::bulk::Decompressor;

/// At most this many are kept, for as many threads: each takes some 100 KiB.
const KEPT_MAX: usize = 8;

static KEPT: Mutex<Vec<Decompressor<'static>>> = Mutex::new(Vec::new());

/// What one frame holds.
///
/// # Errors
///
/// If the frame is damaged, or holds more than `bytes_max`.
pub fn decompress(frame: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
    let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let idle = kept().pop();
    let mut decompressor = idle.map_or_else(Decompressor::new, Ok)?;
    let plain = decompressor.decompress(frame, bytes_max);
    let mut kept = kept();
    if kept.len() < KEPT_MAX {
        kept.push(decompressor);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_that_met_damage_is_as_good_as_new() {
        let plain = [7; 4096];
        let frame = zstd::bulk::compress(&plain, 3).unwrap();
        for _ in 0..2 {
            assert_eq!(decompress(&frame, 4096).unwrap(), plain);
            assert!(decompress(&frame, 4095).is_err());
            assert!(decompress(&frame[..frame.len() - 1], 4096).is_err());
            assert!(decompress(b"no frame", 4096).is_err());
        }
    }
}
