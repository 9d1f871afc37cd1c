//! Numbers, bytes and text from a seed: the same everywhere.

/// A source of numbers (SplitMix64, by Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// Equal seeds give equal numbers.
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

    /// A number below a bound; nearly even, for bounds far below 2⁶⁴.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    /// Bytes that do not compress.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.number().to_le_bytes()[..part.len()]);
        }
    }

    /// So many bytes of text: words in lines.
    pub fn text(&mut self, words: &Words, bytes: usize) -> Vec<u8> {
        let mut text = Vec::with_capacity(bytes + 16);
        let mut line_bytes = 0;
        while text.len() < bytes {
            // The product makes some words far more frequent than others, as in a language.
            let count = words.0.len() as u64;
            let word = &words.0[(self.below(count) * self.below(count) / count) as usize];
            text.extend_from_slice(word);
            line_bytes += word.len() + 1;
            text.push(if line_bytes > 70 { b'\n' } else { b' ' });
            line_bytes = if line_bytes > 70 { 0 } else { line_bytes };
        }
        text.truncate(bytes);
        text
    }
}

/// A vocabulary.
#[derive(Debug)]
pub struct Words(Vec<Vec<u8>>);

impl Words {
    /// Always the same 4096 words.
    pub fn new() -> Self {
        let mut draw = Draw::new(4096);
        let letter = |draw: &mut Draw| b"etaoinshrdlucmfwypvbgkjqxz"[draw.below(26) as usize];
        let word = |draw: &mut Draw| (0..2 + draw.below(9)).map(|_| letter(draw)).collect();
        Self((0..4096).map(|_| word(&mut draw)).collect())
    }
}

/// A number for a name (FNV-1a, mixed).
pub fn number_of(name: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    Draw::new(name.iter().fold(0xcbf2_9ce4_8422_2325, fold)).number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_decide() {
        // The published first outputs for seed 1234567.
        let mut draw = Draw::new(1_234_567);
        assert_eq!(draw.number(), 6_457_827_717_110_365_317);
        assert_eq!(draw.number(), 3_203_168_211_198_807_973);
        let words = Words::new();
        let text = Draw::new(7).text(&words, 500);
        assert_eq!((text.len(), &text), (500, &Draw::new(7).text(&words, 500)));
        assert_ne!(text, Draw::new(8).text(&words, 500));
        assert!(text.contains(&b'\n') && text.is_ascii());
        assert_ne!(number_of(b"a"), number_of(b"b"));
    }
}
