//! A delta of the kind *same offset*: how a chunk differs, byte by byte, from the part of its basis
//! that is in the same place.
//!
//! ```text
//! same offset = start | ops_bytes | op … op | differences
//! op          = equal_bytes | differing_bytes
//! ```
//!
//! The chunk's first byte is in the place of byte `start` of the basis; after its end the basis is
//! zeros. An op skips `equal_bytes`, then takes as many differences as `differing_bytes` says: the
//! exclusive or of chunk and basis. What follows the last op is equal.
//!
//! For memory and tables, where values change and stay where they are: old and new pointers,
//! counters and times share their high bytes, so most bytes of a difference are zero, or the same
//! as in the next record, and the block compresses them better than the new values.

use std::borrow::Cow;

use super::bytes::{DeltaError, Kind, common_prefix, put_number, take_number, take_ops};

/// This many equal bytes end the differences: an op costs about two.
const EQUAL_BYTES_MIN: usize = 3;

/// Places of a chunk that are compared before all of it is.
const SAMPLES: usize = 32;
/// Bytes that are compared at each.
const SAMPLE_BYTES: usize = 8;

/// The delta of a chunk against the bytes of the basis from `start` on; `None` if it would take
/// more than `bytes_max`.
pub(super) fn encode(
    chunk: &[u8],
    basis: &[u8],
    start: usize,
    bytes_max: usize,
) -> Option<Vec<u8>> {
    let old = in_place_of(chunk.len(), basis, start);
    if sampled_differences(chunk, &old) > bytes_max + chunk.len() / 8 {
        return None;
    }
    let (mut ops, mut differences) = (Vec::new(), Vec::new());
    let mut done = 0;
    while let Some((from, to)) = next_difference(chunk, &old, done) {
        put_number(&mut ops, (from - done) as u64);
        put_number(&mut ops, (to - from) as u64);
        differences.extend(chunk[from..to].iter().zip(&old[from..to]).map(|(new, old)| new ^ old));
        if ops.len() + differences.len() > bytes_max {
            return None;
        }
        done = to;
    }
    let mut delta = Vec::with_capacity(ops.len() + differences.len() + 12);
    delta.push(Kind::SameOffset as u8);
    put_number(&mut delta, start as u64);
    put_number(&mut delta, ops.len() as u64);
    delta.append(&mut ops);
    delta.append(&mut differences);
    (delta.len() <= bytes_max).then_some(delta)
}

/// An estimate of how many bytes differ, from a few places. It finds most chunks that moved or are
/// new altogether, so for them the attempt takes a microsecond.
fn sampled_differences(chunk: &[u8], old: &[u8]) -> usize {
    let step = (chunk.len() / SAMPLES).max(SAMPLE_BYTES);
    let samples = chunk.chunks_exact(SAMPLE_BYTES).zip(old.chunks_exact(SAMPLE_BYTES));
    let samples = samples.step_by(step / SAMPLE_BYTES);
    let differing: usize =
        samples.map(|(new, old)| new.iter().zip(old).filter(|(new, old)| new != old).count()).sum();
    differing * step / SAMPLE_BYTES
}

/// The part of the basis that is compared with a chunk of this length, zeros added at its end.
fn in_place_of(chunk_bytes: usize, basis: &[u8], start: usize) -> Cow<'_, [u8]> {
    let there = basis.get(start..).unwrap_or_default();
    if let Some(there) = there.get(..chunk_bytes) {
        return Cow::Borrowed(there);
    }
    let mut padded = there.to_vec();
    padded.resize(chunk_bytes, 0);
    Cow::Owned(padded)
}

/// The next run of differing bytes; up to two equal ones in a row belong to it.
fn next_difference(chunk: &[u8], old: &[u8], done: usize) -> Option<(usize, usize)> {
    let from = done + common_prefix(&chunk[done..], &old[done..], usize::MAX);
    if from == chunk.len() {
        return None;
    }
    let mut to = from + 1;
    for (at, (new, old)) in chunk.iter().zip(old).enumerate().skip(to) {
        if new != old {
            to = at + 1;
        } else if at + 1 - to == EQUAL_BYTES_MIN {
            break;
        }
    }
    Some((from, to))
}

/// The chunk that differences make of a basis.
pub(super) fn apply(
    mut delta: &[u8],
    basis: &[u8],
    chunk_bytes: usize,
) -> Result<Vec<u8>, DeltaError> {
    let start = take_number(&mut delta)?;
    let start = usize::try_from(start).ok().filter(|start| *start <= basis.len());
    let start = start.ok_or(DeltaError::Damaged("it begins behind its basis"))?;
    let (mut ops, mut differences) = take_ops(delta)?;
    let mut chunk = in_place_of(chunk_bytes, basis, start).into_owned();
    let mut rest = &mut chunk[..];
    while !ops.is_empty() {
        let (equal_bytes, differing_bytes) = (take_number(&mut ops)?, take_number(&mut ops)?);
        let too_long = DeltaError::Damaged("it makes too long a chunk");
        let behind = split_off(std::mem::take(&mut rest), equal_bytes).ok_or(too_long)?.1;
        let (differing, behind) = split_off(behind, differing_bytes).ok_or(too_long)?;
        let (taken, further) = differences
            .split_at_checked(differing.len())
            .ok_or(DeltaError::Damaged("its differences are cut short"))?;
        for (byte, difference) in differing.iter_mut().zip(taken) {
            *byte ^= difference;
        }
        (rest, differences) = (behind, further);
    }
    if !differences.is_empty() {
        return Err(DeltaError::Damaged("it has more differences than places for them"));
    }
    Ok(chunk)
}

fn split_off(bytes: &mut [u8], at: u64) -> Option<(&mut [u8], &mut [u8])> {
    usize::try_from(at).ok().and_then(|at| bytes.split_at_mut_checked(at))
}
