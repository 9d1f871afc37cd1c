//! Passphrases for machines: drawn at random, so that they cannot be guessed and opening a slot may
//! cost nothing.
//!
//! `strongroom-key-`, then in hexadecimal digits 32 random bytes and the first 4 of their BLAKE3
//! hash. Everything else treats it as any other passphrase.

use std::fmt::Write;

use strongroom_base::Entropy;
use strongroom_base::entropy::random_array;
use zeroize::Zeroizing;

const PREFIX: &str = "strongroom-key-";
const SECRET_BYTES: usize = 32;
const CHECK_BYTES: usize = 4;

/// Draws a passphrase of 256 bits.
pub fn generate_passphrase(entropy: &dyn Entropy) -> Zeroizing<String> {
    let secret = Zeroizing::new(random_array::<SECRET_BYTES>(entropy));
    let check = blake3::hash(&*secret);
    let bytes = secret.iter().chain(&check.as_bytes()[..CHECK_BYTES]);
    // With enough capacity: a string that grows leaves parts of itself behind, unwiped.
    let length = PREFIX.len() + 2 * (SECRET_BYTES + CHECK_BYTES);
    let mut passphrase = Zeroizing::new(String::with_capacity(length));
    passphrase.push_str(PREFIX);
    for byte in bytes {
        write!(passphrase, "{byte:02x}").expect("a string takes all that is written to it");
    }
    passphrase
}

/// True if [`generate_passphrase`] made it, by its check: such a passphrase is never typed by
/// accident.
pub(super) fn is_generated(passphrase: &[u8]) -> bool {
    let digits = std::str::from_utf8(passphrase).ok().and_then(|text| text.strip_prefix(PREFIX));
    let Some(digits) = digits.filter(|digits| digits.len() == 2 * (SECRET_BYTES + CHECK_BYTES))
    else {
        return false;
    };
    let pairs = digits.as_bytes().chunks_exact(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let Some(bytes) = pairs.map(byte).collect::<Option<Vec<u8>>>().map(Zeroizing::new) else {
        return false;
    };
    let (secret, check) = bytes.split_at(SECRET_BYTES);
    blake3::hash(secret).as_bytes().starts_with(check)
}

#[cfg(test)]
mod tests {
    use strongroom_base::SeededEntropy;

    use super::*;
    use crate::keys::KdfCost;

    #[test]
    fn what_was_generated_is_known_and_nothing_else() {
        let passphrase = generate_passphrase(&SeededEntropy::new(1));
        assert_ne!(passphrase, generate_passphrase(&SeededEntropy::new(2)));
        assert_eq!(passphrase.len(), PREFIX.len() + 72);
        assert_eq!(KdfCost::suited_to(passphrase.as_bytes()), KdfCost::CHEAPEST);
        let digit = PREFIX.len() + 3;
        let mut other = passphrase.as_bytes().to_vec();
        other[digit] = if other[digit] == b'0' { b'1' } else { b'0' };
        let long = format!("{}0", *passphrase);
        let signs = format!("{PREFIX}{}", "+1".repeat(36));
        let words = "strongroom-key-correct horse battery staple";
        let texts = [words, PREFIX, "", &passphrase[1..], &long, &signs];
        for wrong in texts.iter().map(|text| text.as_bytes()).chain([&other[..], &[0xff; 87]]) {
            assert_eq!(KdfCost::suited_to(wrong), KdfCost::DEFAULT, "{wrong:?}");
        }
    }
}
