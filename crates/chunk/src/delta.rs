//! Deltas: a chunk as copies out of a basis, and literals (Arrow §6).
//!
//! As in Arrow, and rsync before it, every offset of the new chunk is looked up among short seeds
//! of the basis, and a match is extended byte by byte to both sides. Unlike them, seeds stand every
//! few bytes, so that what is found is what a patch would leave alone, and not whole blocks.
//!
//! ```text
//! delta      = ops_bytes | op … op | literals
//! op         = literal_bytes | copy_bytes | distance        (distance: where copy_bytes > 0)
//! ```
//!
//! Numbers are LEB128, `distance` zigzag. An op first appends `literal_bytes` of the literals, then
//! `copy_bytes` of the basis from `expected + distance` on, where `expected` is the end of the copy
//! before plus `literal_bytes`: what was overwritten in place has distance 0. Ops and literals
//! stand apart, for they are compressed by whoever packs the delta, and each compresses best beside
//! its like.
//!
//! The document: `docs/format/delta.md`. The rule for decoding is frozen, how a delta is searched
//! is not.

use std::fmt;

/// Bytes that are looked up at once: a match shorter than this is found only in place.
const SEED_BYTES: usize = 16;
/// A match in place, right behind a literal, is worth an op from this length on.
const IN_PLACE_BYTES_MIN: usize = 8;
/// Seeds of the basis stand at multiples of this, and farther apart in a long basis.
const SEED_STEP_MIN: usize = 4;
/// At most so many seeds of a basis are indexed: the table stays in the processor's cache.
const SEEDS_MAX: usize = 1 << 16;
/// After so many literals in a row, the search takes longer steps.
const PATIENCE_BYTES: usize = 256;
/// Marks an empty place in the table.
const NOWHERE: u32 = u32::MAX;

/// What a chunk is encoded against, indexed for the search.
pub struct Basis {
    bytes: Vec<u8>,
    /// Hash of a seed to where it stands.
    table: Vec<u32>,
    shift: u32,
}

/// Bytes that are no delta of the basis at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaError(&'static str);

impl fmt::Display for DeltaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damaged delta: {}", self.0)
    }
}

impl std::error::Error for DeltaError {}

impl Basis {
    /// Indexes a basis. Takes about a microsecond a KiB.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        assert!(bytes.len() < NOWHERE as usize, "a basis is a few chunks");
        let step = bytes.len().div_ceil(SEEDS_MAX).next_power_of_two().max(SEED_STEP_MIN);
        let seeds = bytes.len() / step + 1;
        let bits = seeds.next_power_of_two().trailing_zeros() + 1;
        let mut basis = Self { table: vec![NOWHERE; 1 << bits], shift: u64::BITS - bits, bytes };
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

    /// The shortest delta found for a chunk; none where it would take more than `bytes_max`.
    #[must_use]
    pub fn encode(&self, chunk: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        let mut delta = Draft { chunk, bytes_max, ..Draft::default() };
        // The end of the last copy in the basis, and in the chunk.
        let (mut basis_end, mut done) = (0, 0);
        let mut at = 0;
        while at < chunk.len() {
            let Some(found) = self.find(chunk, at, done, basis_end) else {
                at += 1 + (at - done) / PATIENCE_BYTES;
                if at.min(chunk.len()) - done > bytes_max {
                    return None;
                }
                continue;
            };
            delta.op(done, found, basis_end)?;
            basis_end = found.in_basis + found.bytes;
            done = found.in_chunk + found.bytes;
            at = done;
        }
        delta.finish(done)
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

/// Bytes that stand in both.
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

/// How many bytes two slices begin with alike, at most `most`.
fn common_prefix(one: &[u8], other: &[u8], most: usize) -> usize {
    let length = one.len().min(other.len()).min(most);
    let (one, other) = (&one[..length], &other[..length]);
    let mut at = 0;
    for (left, right) in one.chunks_exact(8).zip(other.chunks_exact(8)) {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let differing = word(left) ^ word(right);
        if differing != 0 {
            return at + differing.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + one[at..].iter().zip(&other[at..]).take_while(|(left, right)| left == right).count()
}

/// A delta being written.
#[derive(Default)]
struct Draft<'c> {
    chunk: &'c [u8],
    ops: Vec<u8>,
    literals: Vec<u8>,
    bytes_max: usize,
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
        (self.ops.len() + self.literals.len() <= self.bytes_max).then_some(())
    }

    fn finish(mut self, done: usize) -> Option<Vec<u8>> {
        let rest = &self.chunk[done..];
        if !rest.is_empty() {
            put_number(&mut self.ops, rest.len() as u64);
            put_number(&mut self.ops, 0);
            self.literals.extend_from_slice(rest);
        }
        let mut delta = Vec::with_capacity(self.ops.len() + self.literals.len() + 5);
        put_number(&mut delta, self.ops.len() as u64);
        delta.append(&mut self.ops);
        delta.append(&mut self.literals);
        (delta.len() <= self.bytes_max).then_some(delta)
    }
}

/// The chunk of `chunk_bytes` that a delta makes of its basis. Takes no more memory than that,
/// whatever the bytes are.
///
/// # Errors
///
/// The bytes are no delta, or not of this basis, or make a chunk of another length.
pub fn apply(delta: &[u8], basis: &[u8], chunk_bytes: usize) -> Result<Vec<u8>, DeltaError> {
    let mut rest = delta;
    let ops_bytes = take_number(&mut rest)?;
    let (mut ops, mut literals) = usize::try_from(ops_bytes)
        .ok()
        .and_then(|bytes| rest.split_at_checked(bytes))
        .ok_or(DeltaError("its ops are cut short"))?;
    let mut chunk = Vec::with_capacity(chunk_bytes.min(delta.len() + basis.len() * 2));
    let mut basis_end: u64 = 0;
    while !ops.is_empty() {
        let literal_bytes = take_number(&mut ops)?;
        let copy_bytes = take_number(&mut ops)?;
        let room = (chunk_bytes - chunk.len()) as u64;
        if literal_bytes.checked_add(copy_bytes).is_none_or(|bytes| bytes > room) {
            return Err(DeltaError("it makes too long a chunk"));
        }
        // Both are at most `room` now, which is a length in memory.
        let (literal, further) = literals
            .split_at_checked(literal_bytes as usize)
            .ok_or(DeltaError("its literals are cut short"))?;
        literals = further;
        chunk.extend_from_slice(literal);
        if copy_bytes == 0 {
            continue;
        }
        let zigzag = take_number(&mut ops)?;
        let distance = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        let start = (basis_end + literal_bytes).checked_add_signed(distance);
        let end = start.and_then(|start| start.checked_add(copy_bytes));
        let copied = start.zip(end).filter(|(_, end)| *end <= basis.len() as u64);
        let (start, end) = copied.ok_or(DeltaError("it copies from outside its basis"))?;
        chunk.extend_from_slice(&basis[start as usize..end as usize]);
        basis_end = end;
    }
    if !literals.is_empty() || chunk.len() != chunk_bytes {
        return Err(DeltaError("it makes a chunk of another length"));
    }
    Ok(chunk)
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Result<u64, DeltaError> {
    let mut number = 0;
    for (place, byte) in bytes.iter().enumerate().take(9) {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            *bytes = &bytes[place + 1..];
            return Ok(number);
        }
    }
    Err(DeltaError("a number is cut short"))
}

#[cfg(test)]
mod tests;
