//! Prints the speed of the boundary search, in GB (10^9 bytes) of stream a second, best of several.
#![expect(clippy::disallowed_methods, reason = "an example is a program")]
#![expect(clippy::print_stdout, reason = "an example that prints its measurements")]

use std::hint::black_box;
use std::time::Instant;

use strongroom_chunk::{AlignedChunker, Key, Limits, LimitsError};

/// Data in the second-level cache measures the search itself, not the memory.
const CACHED_BYTES: usize = 400 << 10;
const LARGE_BYTES: usize = 256 << 20;
const ROUNDS: usize = 7;

fn main() -> Result<(), LimitsError> {
    let random = random_bytes(LARGE_BYTES);
    let zeros = vec![0u8; LARGE_BYTES];
    let limits = Limits::DEFAULT;
    let chunker = strongroom_chunk::Chunker::new(limits, Key::PUBLIC);
    let aligned = AlignedChunker::new(limits, Key::PUBLIC)?;
    println!("{chunker:?}");
    for (name, data) in [("random", &random), ("zeros", &zeros)] {
        report(name, "anywhere, memory", 1, || chunker.split(data).count(), data.len());
        report(name, "aligned, memory", 1, || aligned.split(data).count(), data.len());
        let part = &data[..CACHED_BYTES];
        let repeat = LARGE_BYTES / CACHED_BYTES;
        report(name, "anywhere, cached", repeat, || chunker.split(part).count(), part.len());
        report(name, "aligned, cached", repeat, || aligned.split(part).count(), part.len());
    }
    Ok(())
}

fn report(data: &str, what: &str, repeat: usize, split: impl Fn() -> usize, bytes: usize) {
    let mut chunks = 0;
    let best = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..repeat {
                chunks = black_box(split());
            }
            begin.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    let mean_kib = bytes as f64 / chunks as f64 / 1024.0;
    println!(
        "{data:8} {what:18} {:6.2} GB/s, mean chunk {mean_kib:5.1} KiB",
        (bytes * repeat) as f64 / best / 1e9
    );
}

fn random_bytes(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .collect()
}
