//! Randomness as a parameter, so that a test or a simulation can replay every byte.

use std::sync::Mutex;

/// A source of random bytes fit for keys.
pub trait Entropy: Send + Sync {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);

    /// An array of random bytes.
    fn array<const N: usize>(&self) -> [u8; N]
    where
        Self: Sized,
    {
        random_array(self)
    }
}

/// An array of random bytes from a source behind a pointer.
pub fn random_array<const N: usize>(entropy: &(impl Entropy + ?Sized)) -> [u8; N] {
    let mut bytes = [0; N];
    entropy.fill(&mut bytes);
    bytes
}

/// The operating system's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the machine")]
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the kernel gives random bytes once it has booted");
    }
}

/// A reproducible stream of bytes (BLAKE3 in its extendable mode). For tests only.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<blake3::OutputReader>);

impl SeededEntropy {
    /// The stream that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("strongroom seeded entropy");
        hasher.update(&seed.to_le_bytes());
        Self(Mutex::new(hasher.finalize_xof()))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        // A plain mutex: draws are rare (one per arena) and never held across anything.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).fill(bytes);
    }
}
