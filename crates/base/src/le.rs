//! Little-endian fields, one after another: what every `format.rs` is written with.
//!
//! A reader refuses to run past its end and, asked at the end, to leave bytes over; so each unpack
//! checks that it used exactly the bytes it should.

/// Bytes ended too early, or went on too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a structure has the wrong length")]
pub struct LengthError;

/// Takes fields from the front of a slice.
#[derive(Debug, Clone)]
pub struct LeReader<'a> {
    rest: &'a [u8],
}

impl<'a> LeReader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], LengthError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(LengthError)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], LengthError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(LengthError)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8, LengthError> {
        self.array().map(|[byte]| byte)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Result<u16, LengthError> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Result<u32, LengthError> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Result<u64, LengthError> {
        self.array().map(u64::from_le_bytes)
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Fails if bytes are left.
    pub fn finish(self) -> Result<(), LengthError> {
        if self.rest.is_empty() { Ok(()) } else { Err(LengthError) }
    }
}

/// Appends fields to a vector.
pub trait LeWrite {
    /// Appends bytes as they are.
    fn put(&mut self, bytes: &[u8]);

    /// Appends one byte.
    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    /// Appends two bytes.
    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    /// Appends four bytes.
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    /// Appends eight bytes.
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
}

impl LeWrite for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
