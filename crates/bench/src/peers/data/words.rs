//! Text from a seed, and numbers from names: the same everywhere.

use strongroom_testkit::Random;

/// A vocabulary.
#[derive(Debug)]
pub struct Words(Vec<Vec<u8>>);

impl Words {
    /// Always the same 4096 words.
    pub fn new() -> Self {
        let mut random = Random::new(4096);
        let letter = |random: &mut Random| *random.pick(b"etaoinshrdlucmfwypvbgkjqxz");
        let word = |random: &mut Random| (0..2 + random.below(9)).map(|_| letter(random)).collect();
        Self((0..4096).map(|_| word(&mut random)).collect())
    }

    /// Text of this length: words in lines.
    pub fn text(&self, random: &mut Random, bytes: usize) -> Vec<u8> {
        let mut text = Vec::with_capacity(bytes + 16);
        let mut line_bytes = 0;
        while text.len() < bytes {
            // The product makes some words far more frequent than others, as in a language.
            let count = self.0.len() as u64;
            let word = &self.0[(random.below(count) * random.below(count) / count) as usize];
            text.extend_from_slice(word);
            line_bytes += word.len() + 1;
            text.push(if line_bytes > 70 { b'\n' } else { b' ' });
            line_bytes = if line_bytes > 70 { 0 } else { line_bytes };
        }
        text.truncate(bytes);
        text
    }
}

/// A number for a name (FNV-1a, mixed).
pub fn number_of(name: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    Random::new(name.iter().fold(0xcbf2_9ce4_8422_2325, fold)).number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_decide() {
        let words = Words::new();
        let text = |seed| words.text(&mut Random::new(seed), 500);
        assert_eq!((text(7).len(), text(7)), (500, text(7)));
        assert_ne!(text(7), text(8));
        assert!(text(7).contains(&b'\n') && text(7).is_ascii());
        assert_ne!(number_of(b"a"), number_of(b"b"));
    }

    /// The data sets of published measurements can be made again.
    #[test]
    fn text_is_what_it_was() {
        let text = Words::new().text(&mut Random::new(7), 40);
        assert_eq!(String::from_utf8(text).unwrap(), "qstig oqcciqe bgjsggws ihiizeakv ovfdee ");
    }
}
