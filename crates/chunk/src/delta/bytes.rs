//! How all kinds of deltas are written: numbers, and ops separate from literals.

use std::fmt;

/// The kinds of deltas, as the first byte of a delta names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Copies = 0,
    SameOffset = 1,
}

/// Bytes that are not a delta of the given basis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaError {
    /// A later version of the format may know the kind.
    UnknownKind(u8),
    /// No version of the format writes this.
    Damaged(&'static str),
}

impl fmt::Display for DeltaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKind(kind) => write!(f, "unknown kind of delta: {kind}"),
            Self::Damaged(why) => write!(f, "damaged delta: {why}"),
        }
    }
}

impl std::error::Error for DeltaError {}

/// How many bytes two slices begin with alike, at most `most`.
pub(super) fn common_prefix(one: &[u8], other: &[u8], most: usize) -> usize {
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

/// Appends a number, as LEB128.
pub(super) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes a number off the front.
pub(super) fn take_number(bytes: &mut &[u8]) -> Result<u64, DeltaError> {
    let mut number = 0;
    for (place, byte) in bytes.iter().enumerate().take(9) {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            *bytes = &bytes[place + 1..];
            return Ok(number);
        }
    }
    Err(DeltaError::Damaged("a number is cut short"))
}

/// Splits `ops_bytes | op … op | literals` into ops and literals.
pub(super) fn take_ops(mut bytes: &[u8]) -> Result<(&[u8], &[u8]), DeltaError> {
    let ops_bytes = take_number(&mut bytes)?;
    usize::try_from(ops_bytes)
        .ok()
        .and_then(|ops_bytes| bytes.split_at_checked(ops_bytes))
        .ok_or(DeltaError::Damaged("its ops are cut short"))
}
