//! Numbers from a seed (SplitMix64, by Steele, Lea and Flood, 2014), so that a test can be run
//! again as it was.

/// A reproducible stream of numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of several.
    pub fn pick<'s, T>(&mut self, some: &'s [T]) -> &'s T {
        &some[self.below(some.len() as u64) as usize]
    }

    /// Bytes of some kind that files hold: noise, text that compresses, or a run of one byte.
    pub fn content(&mut self, length: usize) -> Vec<u8> {
        match self.below(4) {
            0 | 1 => self.noise(length),
            2 => {
                let mut text = Vec::with_capacity(length + 32);
                while text.len() < length {
                    let word = self.below(500);
                    text.extend_from_slice(format!("word{word} in a line\n").as_bytes());
                }
                text.truncate(length);
                text
            }
            _ => vec![self.number() as u8; length],
        }
    }

    /// Bytes that do not compress.
    pub fn noise(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fill(&mut bytes);
        bytes
    }

    /// Overwrites a buffer with bytes that do not compress.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.number().to_le_bytes()[..part.len()]);
        }
    }
}

/// Bytes that do not compress, the same for the same seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    Random::new(seed).noise(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        // The published first outputs for seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.number(), 6_457_827_717_110_365_317);
        assert_eq!(random.number(), 3_203_168_211_198_807_973);
    }
}
