//! Random waits, so that nodes do not answer, and clients do not ask, all at once. Not for secrets.

/// SplitMix64 (Steele, Lea and Flood, 2014), from a seed that the caller draws.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from 0 to `max`, both included.
    pub(crate) fn up_to(&mut self, max: u32) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ (number >> 31)) % (u64::from(max) + 1)
    }
}
