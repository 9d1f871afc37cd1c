//! Moving a strip of a shard between bytes and rows.

use std::ops::Range;

use crate::simd::{ROW_BYTES_MAX, Row};

/// The part of shard `shard` that lies in the column range `strip`; empty or short where the
/// buffer ends early.
pub(super) fn strip_of<'a>(
    shards: &'a [u8],
    shard_bytes: usize,
    shard: usize,
    strip: &Range<usize>,
) -> &'a [u8] {
    let start = shard * shard_bytes;
    let clip = |column| shards.len().min(start + column);
    &shards[clip(strip.start)..clip(strip.end)]
}

/// The column ranges of at most `rows` rows each that make up a shard.
pub(super) fn strips<R: Row>(
    shard_bytes: usize,
    rows: usize,
) -> impl Iterator<Item = Range<usize>> {
    let strip_bytes = rows * R::BYTES;
    (0..shard_bytes)
        .step_by(strip_bytes)
        .map(move |start| start..shard_bytes.min(start.saturating_add(strip_bytes)))
}

/// Shorter strips than this, in bytes, cost more in tables and memory latency than they save.
const STRIP_BYTES_MIN: usize = 2048;

/// How many rows a strip should have, of a shard of `shard_bytes`, when if possible as many as
/// `strips` strips are to fit into `budget_bytes` of cache.
pub(super) fn rows_per_strip<R: Row>(
    shard_bytes: usize,
    strips: usize,
    budget_bytes: usize,
) -> usize {
    let strip_bytes = (budget_bytes / strips).max(STRIP_BYTES_MIN);
    let shard_rows = shard_bytes.div_ceil(R::BYTES).max(1);
    shard_rows.min(strip_bytes / R::BYTES)
}

const _: () = assert!(ROW_BYTES_MAX <= STRIP_BYTES_MIN);

/// Fills `rows` with `bytes`, padded with zeros.
#[inline(always)]
pub(super) fn load<R: Row>(proof: R::Proof, bytes: &[u8], rows: &mut [R]) {
    let mut chunks = bytes.chunks_exact(R::BYTES);
    let mut rows = rows.iter_mut();
    for (bytes, row) in chunks.by_ref().zip(rows.by_ref()) {
        *row = R::load(proof, bytes);
    }
    let tail = chunks.remainder();
    if !tail.is_empty() {
        let mut padded = [0; ROW_BYTES_MAX];
        padded[..tail.len()].copy_from_slice(tail);
        let row = rows.next().expect("a strip has a row for its tail");
        *row = R::load(proof, &padded[..R::BYTES]);
    }
    rows.for_each(|row| *row = R::zero(proof));
}

/// Fills `bytes` from `rows`; the inverse of `load`.
#[inline(always)]
pub(super) fn store<R: Row>(rows: &[R], bytes: &mut [u8]) {
    let mut chunks = bytes.chunks_exact_mut(R::BYTES);
    let mut rows = rows.iter();
    for (bytes, row) in chunks.by_ref().zip(rows.by_ref()) {
        row.store(bytes);
    }
    let tail = chunks.into_remainder();
    if !tail.is_empty() {
        let mut padded = [0; ROW_BYTES_MAX];
        let row = rows.next().expect("a strip has a row for its tail");
        row.store(&mut padded[..R::BYTES]);
        tail.copy_from_slice(&padded[..tail.len()]);
    }
}

/// Adds `source` to `target`, row by row.
#[inline(always)]
pub(super) fn add<R: Row>(target: &mut [R], source: &[R]) {
    for (target, source) in target.iter_mut().zip(source) {
        *target = target.xor(*source);
    }
}

/// Adds `source` times a constant to `target`, row by row.
#[inline(always)]
pub(super) fn add_product<R: Row>(target: &mut [R], source: &[R], factor: &R::Factor) {
    for (target, source) in target.iter_mut().zip(source) {
        *target = target.xor(source.mul(factor));
    }
}
