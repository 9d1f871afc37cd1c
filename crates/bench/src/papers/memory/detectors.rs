//! How fast pages are looked at, by each of what could notice a change.

use std::hint::black_box;
use std::time::Instant;

use aws_lc_rs::digest;
use strongroom_source::memory::mark::{Detector, Marker, PAGE_BYTES};
use strongroom_testkit::Random;
use twox_hash::XxHash3_64;

use crate::table::row;

/// Runs of each; the median counts.
const RUNS: usize = 5;

/// The paper's part of a mark.
pub struct Signature;

impl Detector for Signature {
    type Mark = strongroom_galois::Signature<2>;
    fn mark(&self, page: &[u8]) -> Self::Mark {
        strongroom_galois::signature(page)
    }
}

/// The other part.
struct Xxh3;

impl Detector for Xxh3 {
    type Mark = u64;
    fn mark(&self, page: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(1, page)
    }
}

struct Crc32c;

impl Detector for Crc32c {
    type Mark = u32;
    fn mark(&self, page: &[u8]) -> u32 {
        crc32c::crc32c(page)
    }
}

struct Blake3;

impl Detector for Blake3 {
    type Mark = [u8; 32];
    fn mark(&self, page: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&[1; 32], page).as_bytes()
    }
}

/// What the paper compares with.
pub struct Sha1;

impl Detector for Sha1 {
    type Mark = [u8; 20];
    fn mark(&self, page: &[u8]) -> [u8; 20] {
        let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, page);
        digest.as_ref().try_into().expect("SHA-1 has twenty bytes")
    }
}

/// Nothing but reading.
struct Reading;

impl Detector for Reading {
    type Mark = u64;
    fn mark(&self, page: &[u8]) -> u64 {
        let words = page.as_chunks().0.iter();
        words.fold(0, |sum, word| sum ^ u64::from_le_bytes(*word))
    }
}

/// The rows of the table.
pub fn measure(bytes: usize) -> Vec<Vec<String>> {
    let memory = Random::new(2002).noise(bytes);
    let reading = speed(&Reading, &memory);
    let line = |name: &str, size: &str, speed: f64| {
        row([name, size, &format!("{speed:.1}"), &format!("{:.0} %", 100.0 * speed / reading)])
    };
    let mut rows = vec![row(["", "bytes a page", "GB/s", "of reading"])];
    rows.push(line("reading", "–", reading));
    rows.push(line("signature (1, −1)", "4", speed(&Signature, &memory)));
    rows.push(line("XXH3-64", "8", speed(&Xxh3, &memory)));
    rows.push(line("**marks: both**", "12", speed(&Marker { seed: 1 }, &memory)));
    rows.push(line("CRC32C", "4", speed(&Crc32c, &memory)));
    rows.push(line("BLAKE3, keyed", "32", speed(&Blake3, &memory)));
    rows.push(line("SHA-1", "20", speed(&Sha1, &memory)));
    let copy = memory.clone();
    let compared = median(|| black_box(&memory) == black_box(&copy));
    rows.push(line("memcmp with a copy", "16,384", bytes as f64 / compared / 1e9));
    rows
}

fn speed<D: Detector>(detector: &D, memory: &[u8]) -> f64 {
    memory.len() as f64 / seconds(detector, memory) / 1e9
}

/// How long a detector takes for all pages of some memory.
pub fn seconds<D: Detector>(detector: &D, memory: &[u8]) -> f64 {
    median(|| {
        for page in memory.chunks(PAGE_BYTES) {
            black_box(detector.mark(page));
        }
        true
    })
}

fn median(mut run: impl FnMut() -> bool) -> f64 {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let begun = Instant::now();
            black_box(run());
            begun.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}
