//! The inner loops: the first minimum of the hash over many windows or pages.
//!
//! Each loop is written once, in safe Rust and in the shape of vectors (consecutive words, no
//! branches, no positions), and compiled several times: for the baseline of the target, for AVX2
//! and for AVX-512. The paths are the same source, so they cannot differ but by a fault of the
//! compiler. Positions are not carried through the vectors: a block of windows yields its smallest
//! hash only, and the block that wins is searched again for the place.

use crate::{Key, PAGE_BYTES};

/// The hashed window, in bytes.
pub(crate) const WINDOW_BYTES: usize = 8;

/// Windows in a block: enough to amortise folding a vector, few enough to be searched twice.
const BLOCK_WINDOWS: usize = 1024;

/// Words in a row of a page: one AVX-512 register, two of AVX2, four of SSE or NEON.
const ROW_WORDS: usize = 16;

/// How the loops are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// For the baseline of the target.
    Portable,
    /// With AVX2. Made only by `detect`, so the processor has it.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// With AVX-512F. Made only by `detect`, so the processor has it.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Path {
    /// The fastest path of this processor.
    pub(crate) fn detect() -> Path {
        Path::available().last().unwrap_or(Path::Portable)
    }

    /// Every path that this processor can run, slowest first.
    pub(crate) fn available() -> impl Iterator<Item = Path> {
        [
            Some(Path::Portable),
            #[cfg(target_arch = "x86_64")]
            std::arch::is_x86_feature_detected!("avx2").then_some(Path::Avx2),
            #[cfg(target_arch = "x86_64")]
            std::arch::is_x86_feature_detected!("avx512f").then_some(Path::Avx512),
        ]
        .into_iter()
        .flatten()
    }

    /// Where in `region` the first window of the smallest hash begins.
    ///
    /// `region` holds at least one window; every byte but the last seven begins one.
    pub(crate) fn first_minimum(self, key: Key, region: &[u8]) -> usize {
        match self {
            Path::Portable => first_minimum(key, region),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this variant is made only by `available`, after the feature was detected.
            Path::Avx2 => unsafe { first_minimum_avx2(key, region) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this variant is made only by `available`, after the feature was detected.
            Path::Avx512 => unsafe { first_minimum_avx512(key, region) },
        }
    }

    /// Which of the whole pages of `region` is the first of the smallest hash.
    pub(crate) fn first_minimum_page(self, key: Key, region: &[u8]) -> usize {
        match self {
            Path::Portable => first_minimum_page(key, region),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this variant is made only by `available`, after the feature was detected.
            Path::Avx2 => unsafe { first_minimum_page_avx2(key, region) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this variant is made only by `available`, after the feature was detected.
            Path::Avx512 => unsafe { first_minimum_page_avx512(key, region) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn first_minimum_avx2(key: Key, region: &[u8]) -> usize {
    first_minimum(key, region)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn first_minimum_avx512(key: Key, region: &[u8]) -> usize {
    first_minimum(key, region)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn first_minimum_page_avx2(key: Key, region: &[u8]) -> usize {
    first_minimum_page(key, region)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn first_minimum_page_avx512(key: Key, region: &[u8]) -> usize {
    first_minimum_page(key, region)
}

#[inline(always)]
fn first_minimum(key: Key, region: &[u8]) -> usize {
    let windows = region.len() - (WINDOW_BYTES - 1);
    let mut best = None;
    for start in (0..windows).step_by(BLOCK_WINDOWS) {
        let count = BLOCK_WINDOWS.min(windows - start);
        let smallest = block_minimum(key, &region[start..start + count + WINDOW_BYTES - 1]);
        if best.is_none_or(|(hash, _)| smallest < hash) {
            best = Some((smallest, start));
        }
    }
    let (smallest, start) = best.unwrap_or((0, 0));
    let mut place = start;
    for window in region[start..].windows(WINDOW_BYTES) {
        if window_hash(key, window) == smallest {
            break;
        }
        place += 1;
    }
    place
}

/// The smallest hash of the windows in `block`.
#[inline(always)]
fn block_minimum(key: Key, block: &[u8]) -> u32 {
    let windows = block.len() - (WINDOW_BYTES - 1);
    // Windows that begin at the same remainder modulo 4 are made of the same row of words.
    let bytes = windows & !3;
    let words = |at: usize| block[at..at + bytes].as_chunks::<4>().0;
    let mut smallest = u32::MAX;
    if bytes > 0 {
        for phase in 0..4 {
            for (earlier, later) in words(phase).iter().zip(words(phase + 4)) {
                let hash = key.hash(u32::from_le_bytes(*earlier), u32::from_le_bytes(*later));
                smallest = smallest.min(hash);
            }
        }
    }
    for window in block[bytes..].windows(WINDOW_BYTES) {
        smallest = smallest.min(window_hash(key, window));
    }
    smallest
}

/// The hash of one window of eight bytes.
#[inline(always)]
fn window_hash(key: Key, window: &[u8]) -> u32 {
    match window.as_chunks::<4>().0 {
        [earlier, later, ..] => key.hash(u32::from_le_bytes(*earlier), u32::from_le_bytes(*later)),
        _ => u32::MAX,
    }
}

#[inline(always)]
fn first_minimum_page(key: Key, region: &[u8]) -> usize {
    let mut best = (u32::MAX, 0);
    for (place, page) in region.as_chunks::<PAGE_BYTES>().0.iter().enumerate() {
        let hash = page_hash(key, page);
        if hash < best.0 {
            best = (hash, place);
        }
    }
    best.1
}

/// The hash of a page: Horner's rule down the columns, then across them.
#[inline(always)]
fn page_hash(key: Key, page: &[u8; PAGE_BYTES]) -> u32 {
    let mut columns = [0u32; ROW_WORDS];
    for row in page.as_chunks::<{ ROW_WORDS * 4 }>().0 {
        for (column, word) in columns.iter_mut().zip(row.as_chunks::<4>().0) {
            *column = column.wrapping_mul(key.mul_a).wrapping_add(u32::from_le_bytes(*word));
        }
    }
    let sum = columns
        .iter()
        .rev()
        .fold(0u32, |sum, column| sum.wrapping_add(*column).wrapping_mul(key.mul_b));
    sum.wrapping_sub(1)
}

#[cfg(test)]
mod tests;
