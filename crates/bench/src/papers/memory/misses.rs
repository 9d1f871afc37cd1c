//! How often a change is missed: differences of some symbols at random places of a page, whose
//! signature is zero. Signatures are linear, so the page itself does not matter to them; where one
//! misses a change, the marks of two pages with this difference are compared.

use strongroom_galois::Gf;
use strongroom_galois::signature::ALPHA;
use strongroom_source::memory::mark::{Detector, Marker, PAGE_BYTES};
use strongroom_testkit::Random;

use crate::table::{grouped, row};

/// What the table shows.
pub const WORDS: &str = "\
Differences of three to ten symbols at random places of a page: random ones, and the same one at all places, \
as a flag makes it that is set in many records. How many of them each would miss: the paper's signature, ours, \
and marks, which miss what both parts miss.
";
/// Symbols of a page.
const SYMBOLS: u64 = PAGE_BYTES as u64 / 2;
/// The order of the field's multiplicative group.
const ORDER: usize = 65_535;
/// How many threads try.
const THREADS: u64 = 2;

/// Powers and logarithms of alpha.
struct Field {
    powers: Vec<u16>,
    logarithms: Vec<u16>,
}

#[derive(Default, Clone, Copy)]
struct Missed {
    paper: u64,
    ours: u64,
    marks: u64,
}

/// Counts them in this many trials of each kind.
pub fn count(trials: u64) -> Vec<Vec<String>> {
    let field = Field::new();
    let mut rows = vec![row(["", "trials", "(1, 2), the paper's", "(1, −1), ours", "**marks**"])];
    for (name, is_equal) in [("random differences", false), ("equal differences", true)] {
        let parts: Vec<Missed> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|seed| {
                    let field = &field;
                    scope.spawn(move || field.try_many(seed, trials / THREADS, is_equal))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("it counts")).collect()
        });
        let sum = |of: fn(&Missed) -> u64| grouped(parts.iter().map(of).sum());
        let counted = [sum(|missed| missed.paper), sum(|missed| missed.ours), sum(|m| m.marks)];
        rows.push(row([vec![name.to_owned(), grouped(trials)], counted.to_vec()].concat()));
    }
    rows
}

impl Field {
    fn new() -> Self {
        let mut field = Self { powers: vec![0; ORDER], logarithms: vec![0; ORDER + 1] };
        let mut power = Gf::ONE;
        for exponent in 0..ORDER {
            field.powers[exponent] = power.0;
            field.logarithms[usize::from(power.0)] = exponent as u16;
            power *= ALPHA;
        }
        field
    }

    /// A difference times alpha to this power.
    fn times(&self, difference: u16, power: usize) -> u16 {
        self.powers[(usize::from(self.logarithms[usize::from(difference)]) + power) % ORDER]
    }

    fn try_many(&self, seed: u64, trials: u64, is_equal: bool) -> Missed {
        let mut random = Random::new(seed);
        let mut missed = Missed::default();
        let mut places: Vec<(usize, u16)> = Vec::new();
        for _ in 0..trials {
            let words = random.number();
            let count = 3 + words as usize % 8;
            let one = ((words >> 16) as u16).max(1);
            places.clear();
            while places.len() < count {
                let bits = random.number();
                let place = (bits % SYMBOLS) as usize;
                if places.iter().all(|(other, _)| *other != place) {
                    let difference = if is_equal { one } else { ((bits >> 32) as u16).max(1) };
                    places.push((place, difference));
                }
            }
            let sum = |power: &dyn Fn(usize) -> usize| {
                let terms = places.iter().map(|(place, by)| self.times(*by, power(*place)));
                terms.fold(0, |sum, term| sum ^ term)
            };
            if sum(&|place| place) != 0 {
                continue;
            }
            missed.paper += u64::from(sum(&|place| 2 * place % ORDER) == 0);
            if sum(&|place| ORDER - place) == 0 {
                missed.ours += 1;
                missed.marks += u64::from(marks_miss(&mut random, &places));
            }
        }
        missed
    }
}

/// Whether two pages with these differences have the same mark.
fn marks_miss(random: &mut Random, places: &[(usize, u16)]) -> bool {
    let page = random.noise(PAGE_BYTES);
    let mut other = page.clone();
    for (place, difference) in places {
        for (byte, by) in other[2 * place..].iter_mut().zip(difference.to_le_bytes()) {
            *byte ^= by;
        }
    }
    let marker = Marker { seed: random.number() };
    let signature = |page: &[u8]| strongroom_galois::signature::<2>(page);
    assert_eq!(signature(&page), signature(&other), "the tables are those of the field");
    marker.mark(&page) == marker.mark(&other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_signature_misses_equal_differences_and_ours_does_not() {
        let rows = count(2_000_000);
        assert_eq!(rows[1][1..], row(["2,000,000", "0", "0", "0"]));
        let paper: u64 = rows[2][2].parse().unwrap();
        assert!((10..60).contains(&paper), "2^-16 of two million: {paper}");
        assert_eq!(rows[2][3..], row(["0", "0"]));
    }
}
