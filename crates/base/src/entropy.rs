//! Randomness as a parameter, so that a test or a simulation can replay every byte.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

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

/// The operating system's randomness, mixed with what distinguishes this draw from any other.
///
/// A machine that is resumed twice from one image of its memory may be given the same bytes by its
/// kernel both times. Two keys are different all the same, because the clock has gone on; and those
/// of two machines that were made from one image, because their names differ.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the machine")]
    fn fill(&self, bytes: &mut [u8]) {
        static MACHINE: OnceLock<Vec<u8>> = OnceLock::new();
        static DRAWS: AtomicU64 = AtomicU64::new(0);
        let mut random = [0; 32];
        getrandom::fill(&mut random).expect("the kernel gives random bytes once it has booted");
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let draw = Draw {
            random,
            machine: MACHINE.get_or_init(machine),
            process: std::process::id(),
            number: DRAWS.fetch_add(1, Ordering::Relaxed),
            clock: since.as_nanos(),
            // A clock that a person sets back goes on all the same.
            uptime: &format!("{:?}", Instant::now()),
        };
        draw.mixed().fill(bytes);
    }
}

/// The machine and its boot. What cannot be read adds nothing.
fn machine() -> Vec<u8> {
    let files = ["/proc/sys/kernel/hostname", "/proc/sys/kernel/random/boot_id", "/etc/machine-id"];
    files.iter().flat_map(|file| std::fs::read(file).unwrap_or_default()).collect()
}

/// What the bytes of one draw are derived from.
#[derive(Debug, Clone, Copy)]
struct Draw<'d> {
    random: [u8; 32],
    machine: &'d [u8],
    process: u32,
    number: u64,
    clock: u128,
    uptime: &'d str,
}

impl Draw<'_> {
    fn mixed(&self) -> blake3::OutputReader {
        let mut hasher = blake3::Hasher::new_derive_key("strongroom entropy");
        hasher.update(&self.random);
        hasher.update(&self.process.to_le_bytes());
        hasher.update(&self.number.to_le_bytes());
        hasher.update(&self.clock.to_le_bytes());
        hasher.update(&(self.machine.len() as u64).to_le_bytes());
        hasher.update(self.machine);
        hasher.update(self.uptime.as_bytes());
        hasher.finalize_xof()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two draws that got the same from the kernel give different bytes if anything else differs.
    #[test]
    fn kept_h4_a_machine_resumed_twice_draws_different_keys() {
        let one = Draw {
            random: [7; 32],
            machine: b"host",
            process: 1,
            number: 2,
            clock: 3,
            uptime: "4",
        };
        let others = [
            one,
            Draw { random: [8; 32], ..one },
            Draw { machine: b"host4", uptime: "", ..one },
            Draw { process: 2, ..one },
            Draw { number: 3, ..one },
            Draw { clock: 4, ..one },
            Draw { uptime: "5", ..one },
        ];
        let mut drawn = others.map(|draw| {
            let mut bytes = [0; 32];
            draw.mixed().fill(&mut bytes);
            bytes
        });
        drawn.sort_unstable();
        assert!(drawn.windows(2).all(|pair| pair[0] != pair[1]));
        let (mut first, mut second) = ([0; 48], [0; 48]);
        OsEntropy.fill(&mut first);
        OsEntropy.fill(&mut second);
        assert_ne!(first, second);
    }
}
