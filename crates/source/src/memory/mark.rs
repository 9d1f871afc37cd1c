//! How a change of a page is noticed without a copy of it: by a few bytes computed from the page
//! (SDDS-2002, §2.2: the *signature map*).
//!
//! A mark is an algebraic signature and a hash, both of the same bytes, in one pass through the
//! processor's cache. The signature notices every change of up to two symbols for certain, wherever
//! they are. Of larger changes each of the two misses one by chance: the signature one in 2^32, the
//! hash one in 2^64. Who writes to memory can look for pages of equal signatures, so the hash
//! begins with a number that is kept secret.

use strongroom_galois::Signature;
use twox_hash::XxHash3_64;

/// Bytes of a page: those of the paper, of FTI, and of what signatures are computed fastest for.
pub const PAGE_BYTES: usize = 16 << 10;

/// Says of a page what is compared later.
pub trait Detector: Sync {
    /// What is kept of a page.
    type Mark: Copy + Eq + Send;

    /// The mark of a page of any length.
    fn mark(&self, page: &[u8]) -> Self::Mark;
}

/// The mark of a page: its signature, then its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark(pub [u8; Mark::BYTES]);

impl Mark {
    /// The length of a mark.
    pub const BYTES: usize = Signature::<2>::BYTES + 8;

    /// The mark of every page of zeros. No other page has it but by chance.
    pub const ZEROS: Self = Self([0; Self::BYTES]);
}

/// Makes marks.
#[derive(Debug, Clone, Copy)]
pub struct Marker {
    /// What the hash begins with: not known to those who write the pages.
    pub seed: u64,
}

impl Detector for Marker {
    type Mark = Mark;

    fn mark(&self, page: &[u8]) -> Mark {
        // The hash first: it reads forwards, as memory is read fastest, and leaves the page in the cache
        // for the signature, which reads it backwards.
        let hash = XxHash3_64::oneshot_with_seed(self.seed, page);
        let signature = strongroom_galois::signature::<2>(page);
        if signature == Signature::ZERO && page.iter().all(|byte| *byte == 0) {
            return Mark::ZEROS;
        }
        let mut mark = [0; Mark::BYTES];
        mark[..4].copy_from_slice(&signature.to_le_bytes());
        mark[4..].copy_from_slice(&hash.to_le_bytes());
        Mark(mark)
    }
}

#[cfg(test)]
mod tests {
    use strongroom_testkit::Random;

    use super::*;

    const MARKER: Marker = Marker { seed: 0x0123_4567_89ab_cdef };

    #[test]
    fn a_mark_is_signature_and_hash() {
        let page = Random::new(1).noise(PAGE_BYTES);
        let Mark(mark) = MARKER.mark(&page);
        let signature = strongroom_galois::reference::signature::<2>(&page);
        assert_eq!(mark[..4], signature.to_le_bytes());
        // XXH3 in its streaming form, a byte at a time.
        let mut hasher = XxHash3_64::with_seed(MARKER.seed);
        page.iter().for_each(|byte| std::hash::Hasher::write(&mut hasher, &[*byte]));
        assert_eq!(mark[4..], std::hash::Hasher::finish(&hasher).to_le_bytes());
        // By the reference implementation of xxHash 0.8: `printf abc | xxhsum -H3`.
        assert_eq!(XxHash3_64::oneshot_with_seed(0, b"abc"), 0x78af_5f94_892f_3950);
    }

    #[test]
    fn zeros_of_any_length_have_one_mark_and_nothing_else_has_it() {
        for bytes in [1, 2, 4095, 4096, PAGE_BYTES] {
            let mut page = vec![0; bytes];
            assert_eq!(MARKER.mark(&page), Mark::ZEROS);
            page[bytes - 1] = 1;
            assert_ne!(MARKER.mark(&page), Mark::ZEROS);
        }
        // A page that is not zeros, and has the signature of one: the sum of a page with what makes
        // its signature vanish is found by linear algebra; here by search over three symbols.
        let page = page_of_signature_zero();
        assert_eq!(strongroom_galois::signature::<2>(&page), Signature::ZERO);
        assert_ne!(MARKER.mark(&page), Mark::ZEROS);
    }

    /// Symbols a, b, c at places 0, 1, 2 of which the signature is zero: b and c follow from a.
    fn page_of_signature_zero() -> Vec<u8> {
        let of = |place: usize, symbol: u16| {
            let mut page = vec![0; 6];
            page[2 * place..][..2].copy_from_slice(&symbol.to_le_bytes());
            page
        };
        let first = strongroom_galois::signature::<2>(&of(0, 1));
        for b in 1..=u16::MAX {
            let sum = first + strongroom_galois::signature::<2>(&of(1, b));
            // The first symbol of the sum names c; its second has to agree.
            let one = strongroom_galois::signature::<2>(&of(2, 1));
            let c = strongroom_galois::Gf(sum.0[0]) / strongroom_galois::Gf(one.0[0]);
            if one.scale(c.0) == sum {
                let mut page = of(0, 1);
                page[2..4].copy_from_slice(&b.to_le_bytes());
                page[4..6].copy_from_slice(&c.0.to_le_bytes());
                return page;
            }
        }
        unreachable!("three unknown symbols and two equations");
    }

    #[test]
    fn what_the_paper_misses_is_noticed() {
        // The same difference everywhere: a flag that is set in many records.
        let mut random = Random::new(2);
        let page = random.noise(PAGE_BYTES);
        for _ in 0..2000 {
            let mut other = page.clone();
            for record in other.chunks_mut(96).filter(|_| random.once_in(2)) {
                record[40 % record.len()] ^= 8;
            }
            assert!(other == page || MARKER.mark(&other) != MARKER.mark(&page));
        }
    }
}
