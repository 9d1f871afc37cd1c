//! Fields from the front of the fuzzer's bytes; zeros once they have run out.
//!
//! Unlike `arbitrary` it takes everything from the front, so a seed is written by hand and a
//! mutation of one byte changes one field.

/// Takes fields from the front of a slice of any length.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// Takes from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// True if only zeros would follow.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next bytes, at most `count`.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let taken = self.bytes(N);
        let mut array = [0; N];
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number below `end`, which is at least one, of two bytes.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.u16()) % end
    }

    /// `length` bytes made of a few: a pattern of up to 31 bytes, repeated, or a run of
    /// pseudo-random ones.
    pub fn expanded(&mut self, length: usize) -> Vec<u8> {
        let shape = self.u8();
        if shape & 0x80 != 0 {
            let mut random = vec![0; length];
            blake3::Hasher::new().update(&[shape, self.u8()]).finalize_xof().fill(&mut random);
            return random;
        }
        let pattern = self.bytes(usize::from(shape & 31));
        let pattern = if pattern.is_empty() { &[0] } else { pattern };
        let mut expanded = Vec::with_capacity(2 * length + pattern.len());
        expanded.extend_from_slice(pattern);
        while expanded.len() < length {
            // Doubling keeps the length a multiple of the pattern's.
            expanded.extend_from_within(..expanded.len().min(length));
        }
        expanded.truncate(length);
        expanded
    }
}
