//! A delta of the kind *copies*: a chunk as copies out of its basis, and literals (Arrow §6).
//!
//! As in Arrow, and rsync before it, every offset of the new chunk is looked up among short seeds
//! of the basis, and a match is extended byte by byte to both sides. Unlike there, the seeds are a
//! few bytes apart, so that the matches are what a patch would leave alone, and not whole blocks.
//!
//! ```text
//! copies     = ops_bytes | op … op | literals
//! op         = literal_bytes | copy_bytes | distance        (distance: if copy_bytes > 0)
//! ```
//!
//! An op first appends `literal_bytes` of the literals, then `copy_bytes` of the basis from
//! `expected + distance` on. `expected` is the end of the copy before plus `literal_bytes`: what
//! was overwritten in place has distance 0.

use super::bytes::{DeltaError, Kind, common_prefix, put_number, take_number, take_ops};

/// Bytes that are looked up at once: a match shorter than this is found only in place.
const SEED_BYTES: usize = 16;
/// A match in place, right behind a literal, is worth an op from this length on.
const IN_PLACE_BYTES_MIN: usize = 8;
/// Seeds of the basis begin at multiples of this, and farther apart in a long basis.
const SEED_STEP_MIN: usize = 4;
/// At most this many seeds of a basis are indexed: the table stays in the processor's cache.
const SEEDS_MAX: usize = 1 << 16;
/// After this many literals in a row, the search takes longer steps.
const PATIENCE_BYTES: usize = 256;
/// Marks an empty place in the table.
const NOWHERE: u32 = u32::MAX;

/// What a chunk is encoded against: other chunks, one after another, indexed for the search.
pub struct Basis {
    bytes: Vec<u8>,
    /// Where each of the chunks ends.
    ends: Vec<usize>,
    /// Hash of a seed to where it is.
    table: Vec<u32>,
    shift: u32,
}

impl Basis {
    /// Indexes the bytes of chunks that end at `ends`. Takes about a microsecond a KiB.
    #[must_use]
    pub fn new(bytes: Vec<u8>, ends: Vec<usize>) -> Self {
        assert_eq!(ends.last().copied().unwrap_or(0), bytes.len(), "the last chunk ends the basis");
        assert!(bytes.len() < NOWHERE as usize, "a basis is a few chunks");
        let step = bytes.len().div_ceil(SEEDS_MAX).next_power_of_two().max(SEED_STEP_MIN);
        let seeds = bytes.len() / step + 1;
        let bits = seeds.next_power_of_two().trailing_zeros() + 1;
        let mut basis =
            Self { table: vec![NOWHERE; 1 << bits], shift: u64::BITS - bits, bytes, ends };
        let last = basis.bytes.len().checked_sub(SEED_BYTES);
        // Backwards, so that the first of equal seeds is kept.
        for at in (0..=last.map_or(0, |last| last / step)).rev().map(|seed| seed * step) {
            if last.is_some() {
                let place = basis.place(seed_at(&basis.bytes, at));
                basis.table[place] = at as u32;
            }
        }
        basis
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where each of its chunks ends.
    pub(super) fn ends(&self) -> &[usize] {
        &self.ends
    }

    /// The shortest copies and literals found for a chunk.
    pub(super) fn copies(&self, chunk: &[u8], bytes_max: usize) -> Copies {
        let mut draft = Draft { chunk, bytes_max, ..Draft::default() };
        let done = self.search(chunk, &mut draft);
        Copies { start: draft.majority.start(), bytes: draft.finish(done) }
    }

    /// Adds all ops but the literals at the end. Returns where these begin; `None` if the draft
    /// gets too long.
    fn search(&self, chunk: &[u8], draft: &mut Draft<'_>) -> Option<usize> {
        // The end of the last copy in the basis, and in the chunk.
        let (mut basis_end, mut done) = (0, 0);
        let mut at = 0;
        while at < chunk.len() {
            let Some(found) = self.find(chunk, at, done, basis_end) else {
                at += 1 + (at - done) / PATIENCE_BYTES;
                if at.min(chunk.len()) - done > draft.bytes_max {
                    return None;
                }
                continue;
            };
            draft.op(done, found, basis_end)?;
            basis_end = found.in_basis + found.bytes;
            done = found.in_chunk + found.bytes;
            at = done;
        }
        Some(done)
    }

    /// A match that covers or follows `at`, where the bytes from `done` on wait to be literals.
    fn find(&self, chunk: &[u8], at: usize, done: usize, basis_end: usize) -> Option<Match> {
        let in_place = basis_end + (at - done);
        let there = self.bytes.get(in_place..).unwrap_or_default();
        if common_prefix(&chunk[at..], there, IN_PLACE_BYTES_MIN) == IN_PLACE_BYTES_MIN {
            return Some(self.extend(chunk, at, done, in_place));
        }
        self.find_seed(chunk, at, done)
    }

    fn find_seed(&self, chunk: &[u8], at: usize, done: usize) -> Option<Match> {
        if chunk.len() - at < SEED_BYTES {
            return None;
        }
        let seed = seed_at(chunk, at);
        let there = self.table[self.place(seed)];
        if there == NOWHERE || seed_at(&self.bytes, there as usize) != seed {
            return None;
        }
        Some(self.extend(chunk, at, done, there as usize))
    }

    /// The whole match around a seed, byte by byte.
    fn extend(&self, chunk: &[u8], at: usize, done: usize, there: usize) -> Match {
        let ahead = common_prefix(&chunk[at..], &self.bytes[there..], usize::MAX);
        let before = chunk[done..at].iter().rev().zip(self.bytes[..there].iter().rev());
        let behind = before.take_while(|(new, old)| new == old).count();
        Match { in_chunk: at - behind, in_basis: there - behind, bytes: ahead + behind }
    }

    fn place(&self, seed: (u64, u64)) -> usize {
        let mixed = (seed.0 ^ seed.1.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> self.shift) as usize
    }
}

/// What the search found.
pub(super) struct Copies {
    /// The delta; `None` if it would take more than was asked for.
    pub(super) bytes: Option<Vec<u8>>,
    /// Where most of the chunk is in the basis, if it is in one place.
    pub(super) start: Option<usize>,
}

/// Bytes that are in both.
#[derive(Debug, Clone, Copy)]
struct Match {
    in_chunk: usize,
    in_basis: usize,
    bytes: usize,
}

fn seed_at(bytes: &[u8], at: usize) -> (u64, u64) {
    let (low, high) = bytes[at..at + SEED_BYTES].split_at(8);
    let word = |half: &[u8]| u64::from_le_bytes(half.try_into().expect("eight bytes"));
    (word(low), word(high))
}

/// A delta being written.
#[derive(Default)]
struct Draft<'c> {
    chunk: &'c [u8],
    ops: Vec<u8>,
    literals: Vec<u8>,
    bytes_max: usize,
    majority: Majority,
}

/// The diagonal (place in the basis less place in the chunk) of more than half of the copied
/// bytes, if there is one (Boyer and Moore's vote).
#[derive(Default)]
struct Majority {
    diagonal: i64,
    weight: usize,
}

impl Majority {
    fn vote(&mut self, copy: Match) {
        let diagonal = (copy.in_basis as i64).wrapping_sub(copy.in_chunk as i64);
        if diagonal == self.diagonal {
            self.weight = self.weight.saturating_add(copy.bytes);
        } else if self.weight >= copy.bytes {
            self.weight -= copy.bytes;
        } else {
            *self = Self { diagonal, weight: copy.bytes - self.weight };
        }
    }

    /// Where in the basis the chunk would begin by this diagonal.
    fn start(&self) -> Option<usize> {
        usize::try_from(self.diagonal).ok().filter(|_| self.weight > 0)
    }
}

impl Draft<'_> {
    fn op(&mut self, done: usize, found: Match, basis_end: usize) -> Option<()> {
        let literal = &self.chunk[done..found.in_chunk];
        put_number(&mut self.ops, literal.len() as u64);
        put_number(&mut self.ops, found.bytes as u64);
        let expected = (basis_end + literal.len()) as i64;
        let distance = found.in_basis as i64 - expected;
        put_number(&mut self.ops, (distance << 1 ^ distance >> 63) as u64);
        self.literals.extend_from_slice(literal);
        self.majority.vote(found);
        (self.ops.len() + self.literals.len() <= self.bytes_max).then_some(())
    }

    fn finish(mut self, done: Option<usize>) -> Option<Vec<u8>> {
        let rest = &self.chunk[done?..];
        if !rest.is_empty() {
            put_number(&mut self.ops, rest.len() as u64);
            put_number(&mut self.ops, 0);
            self.literals.extend_from_slice(rest);
        }
        let mut delta = Vec::with_capacity(self.ops.len() + self.literals.len() + 6);
        delta.push(Kind::Copies as u8);
        put_number(&mut delta, self.ops.len() as u64);
        delta.append(&mut self.ops);
        delta.append(&mut self.literals);
        (delta.len() <= self.bytes_max).then_some(delta)
    }
}

/// The chunk that copies and literals make of a basis.
pub(super) fn apply(delta: &[u8], basis: &[u8], chunk_bytes: usize) -> Result<Vec<u8>, DeltaError> {
    let (mut ops, mut literals) = take_ops(delta)?;
    let mut chunk = Vec::with_capacity(chunk_bytes.min(delta.len() + basis.len() * 2));
    let mut basis_end: u64 = 0;
    while !ops.is_empty() {
        let literal_bytes = take_number(&mut ops)?;
        let copy_bytes = take_number(&mut ops)?;
        let room = (chunk_bytes - chunk.len()) as u64;
        if literal_bytes.checked_add(copy_bytes).is_none_or(|bytes| bytes > room) {
            return Err(DeltaError::Damaged("it makes too long a chunk"));
        }
        // Both are at most `room` now, which is a length in memory.
        let (literal, further) = literals
            .split_at_checked(literal_bytes as usize)
            .ok_or(DeltaError::Damaged("its literals are cut short"))?;
        literals = further;
        chunk.extend_from_slice(literal);
        if copy_bytes == 0 {
            continue;
        }
        let distance = take_distance(&mut ops)?;
        let start = (basis_end + literal_bytes).checked_add_signed(distance);
        let end = start.and_then(|start| start.checked_add(copy_bytes));
        let copied = start.zip(end).filter(|(_, end)| *end <= basis.len() as u64);
        let (start, end) = copied.ok_or(DeltaError::Damaged("it copies from outside its basis"))?;
        chunk.extend_from_slice(&basis[start as usize..end as usize]);
        basis_end = end;
    }
    if !literals.is_empty() || chunk.len() != chunk_bytes {
        return Err(DeltaError::Damaged("it makes a chunk of another length"));
    }
    Ok(chunk)
}

/// Where in its basis most of the chunk is. Of bytes that are not a delta this is any number.
pub(super) fn start(delta: &[u8]) -> Result<Option<usize>, DeltaError> {
    let (mut ops, _) = take_ops(delta)?;
    let mut majority = Majority::default();
    let (mut in_chunk, mut in_basis) = (0_usize, 0_usize);
    while !ops.is_empty() {
        let literal_bytes = take_number(&mut ops)? as usize;
        let copy_bytes = take_number(&mut ops)? as usize;
        in_chunk = in_chunk.wrapping_add(literal_bytes);
        in_basis = in_basis.wrapping_add(literal_bytes);
        if copy_bytes > 0 {
            in_basis = in_basis.wrapping_add_signed(take_distance(&mut ops)? as isize);
            majority.vote(Match { in_chunk, in_basis, bytes: copy_bytes });
            in_chunk = in_chunk.wrapping_add(copy_bytes);
            in_basis = in_basis.wrapping_add(copy_bytes);
        }
    }
    Ok(majority.start())
}

fn take_distance(ops: &mut &[u8]) -> Result<i64, DeltaError> {
    let zigzag = take_number(ops)?;
    Ok((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
}
