//! The rule of both chunkers, written plainly and slowly. The fast paths are tested against it, and
//! the author of another implementation should read it.

use crate::{Key, Limits, PAGE_BYTES};

/// The length of the next chunk of a stream whose whole rest is `rest`, cut anywhere.
/// `None` when `rest` is empty.
#[must_use]
pub fn cut(limits: Limits, key: Key, rest: &[u8]) -> Option<usize> {
    cut_where(limits, rest, 1, |before| window_hash(key, before))
}

/// The length of the next chunk of a stream whose whole rest is `rest`, cut at multiples of the
/// page. `None` when `rest` is empty.
#[must_use]
pub fn cut_aligned(limits: Limits, key: Key, rest: &[u8]) -> Option<usize> {
    cut_where(limits, rest, PAGE_BYTES, |before| page_hash(key, before))
}

/// The rule itself: `hash` is given the bytes before a candidate.
fn cut_where(
    limits: Limits,
    rest: &[u8],
    step: usize,
    hash: impl Fn(&[u8]) -> u32,
) -> Option<usize> {
    if rest.is_empty() {
        return None;
    }
    if rest.len() <= limits.target() {
        return Some(rest.len());
    }
    (limits.min()..=limits.max().min(rest.len()))
        .filter(|position| position.is_multiple_of(step))
        .min_by_key(|&position| (hash(&rest[..position]), position))
}

/// The keyed hash of the last eight bytes of `before`.
fn window_hash(key: Key, before: &[u8]) -> u32 {
    let window = &before[before.len() - 8..];
    word(window, 0)
        .wrapping_mul(key.mul_a)
        .wrapping_add(word(window, 1).wrapping_mul(key.mul_b))
        .wrapping_sub(1)
}

/// The keyed hash of the last page of `before`.
///
/// The page is 64 rows of 16 little-endian words. Each of the 16 columns is a polynomial in `a`
/// (first row: highest power, 63), and the columns are summed with weights `b^1` to `b^16`; then
/// minus one, so that a page of zeros has the greatest hash. All modulo 2^32.
fn page_hash(key: Key, before: &[u8]) -> u32 {
    let page = &before[before.len() - PAGE_BYTES..];
    let mut sum = 0u32;
    for row in 0..64 {
        for column in 0..16 {
            let weight =
                key.mul_a.wrapping_pow(63 - row).wrapping_mul(key.mul_b.wrapping_pow(column + 1));
            let word = word(page, (row * 16 + column) as usize);
            sum = sum.wrapping_add(word.wrapping_mul(weight));
        }
    }
    sum.wrapping_sub(1)
}

/// The `index`-th little-endian word of `bytes`.
fn word(bytes: &[u8], index: usize) -> u32 {
    let at = index * 4;
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
