//! Encoding by additive Fourier transforms.
//!
//! Lin, Chung and Han, "Novel Polynomial Basis and Its Application to Reed–Solomon Erasure Codes"
//! (FOCS 2014), give a basis of polynomials in which a polynomial is taken to its values at the
//! points of a subspace, shifted, in n log n steps and back. Taylor's Leopard encodes by it:
//!
//! A codeword of 2^r points is one whose polynomial has no coefficients in its m highest places.
//! Those m coefficients are the sum, over the groups of m neighbouring points, of each group's
//! inverse transform at its own shift. So the sum of the data groups' inverse transforms is the
//! inverse transform of the parity group, and its transform is the parity.
//!
//! Unlike Leopard, the points are the integers in the field's own polynomial basis, not a Cantor
//! basis: the code is then the textbook one, and only the constants differ.

use super::{
    Code,
    rows::{add, add_product, load, rows_per_strip, store, strip_of, strips},
};
use crate::{
    field::Gf,
    simd::{Backend, Kernel, Multiplier, Row},
};

/// What two groups of strips may take of the innermost cache.
const CACHE_BYTES: usize = 32 << 10;

/// Computes parity shards from data shards.
pub(super) struct Encode<'a> {
    pub(super) code: &'a Code,
    /// At most all data shards; what is missing at the end is zero.
    pub(super) data: &'a [u8],
    /// Even.
    pub(super) shard_bytes: usize,
    /// All parity shards.
    pub(super) parity: &'a mut [u8],
    /// The numbers, from 0, of the parity shards to write.
    pub(super) wanted: &'a [usize],
}

impl Kernel for Encode<'_> {
    type Output = ();

    #[inline(always)]
    fn run<B: Backend>(self, proof: B::Proof) {
        let Self { code, data, shard_bytes, parity, wanted } = self;
        let mut encoder = StripEncoder::<B::Row>::new(proof, code, shard_bytes);
        for strip in strips::<B::Row>(shard_bytes, encoder.rows) {
            encoder.encode(proof, |shard| strip_of(data, shard_bytes, shard, &strip));
            for &shard in wanted {
                let start = shard * shard_bytes;
                let target = &mut parity[start + strip.start..start + strip.end];
                store(encoder.parity(shard), target);
            }
        }
    }
}

/// Encodes a strip of all shards at a time.
pub(super) struct StripEncoder<'a, R> {
    code: &'a Code,
    /// The number of rows in a strip.
    pub(super) rows: usize,
    /// The strips of the parity group, `rows` each.
    parity: Vec<R>,
    /// The strips of a data group, `rows` each.
    group: Vec<R>,
}

impl<'a, R: Row> StripEncoder<'a, R> {
    #[inline(always)]
    pub(super) fn new(proof: R::Proof, code: &'a Code, shard_bytes: usize) -> Self {
        let points = code.parity_points();
        let rows = rows_per_strip::<R>(shard_bytes, 2 * points, CACHE_BYTES);
        let zeros = vec![R::zero(proof); points * rows];
        Self { code, rows, parity: zeros.clone(), group: zeros }
    }

    /// Computes the parity of the strips that `data` gives for the numbers of data shards; for
    /// absent ones, and for numbers beyond, it gives an empty strip.
    #[inline(always)]
    pub(super) fn encode<'d>(&mut self, proof: R::Proof, data: impl Fn(usize) -> &'d [u8]) {
        let Self { code, rows, parity, group } = self;
        let points = code.parity_points();
        parity.fill(R::zero(proof));
        for (first, number) in (0..code.data_shards).step_by(points).zip(1..) {
            for (shard, rows) in (first..).zip(group.chunks_exact_mut(*rows)) {
                load(proof, data(shard), rows);
            }
            inverse_transform(proof, group, points, code.skews(number));
            add(parity, group);
        }
        transform(proof, parity, points, code.skews(0));
    }

    /// The strip of parity shard `shard`, computed by `encode`.
    #[inline(always)]
    pub(super) fn parity(&self, shard: usize) -> &[R] {
        &self.parity[shard * self.rows..][..self.rows]
    }
}

impl Code {
    /// The skews of group `group`, of which the first is that of the parity.
    fn skews(&self, group: usize) -> &[Multiplier] {
        let skews = skews_per_group(self.parity_points());
        &self.skews[group * skews..][..skews]
    }
}

/// The number of butterflies of different skew in the transform of `points` points.
fn skews_per_group(points: usize) -> usize {
    points - 1
}

/// The skews of the parity group and of `data_groups` groups after it, group by group, in each
/// level by level, in each by place.
///
/// Let s_i(y) be the product of y + a over all a below 2^i, a linear map over GF(2). At level i,
/// the butterfly of the 2^(i+1) points from w on has the skew s_i(w) / s_i(2^i).
pub(super) fn skews(points: usize, data_groups: usize) -> Vec<Multiplier> {
    let levels = points.trailing_zeros() as usize;
    let maps: Vec<_> = (0..levels).map(subspace_map).collect();
    let mut skews = Vec::with_capacity((data_groups + 1) * skews_per_group(points));
    for shift in (0..=data_groups).map(|group| group * points) {
        for (level, map) in maps.iter().enumerate() {
            for start in (shift..shift + points).step_by(2 << level) {
                let bits = map.iter().enumerate().filter(|(bit, _)| start >> bit & 1 == 1);
                skews.push(Multiplier::new(bits.map(|(_, image)| *image).sum()));
            }
        }
    }
    skews
}

/// The images s_i(2^b) / s_i(2^i) of the bits b, for i = `level`.
fn subspace_map(level: usize) -> [Gf; 16] {
    let mut images = std::array::from_fn(|bit| Gf(1 << bit));
    for below in 0..level {
        // s_(i+1)(y) = s_i(y) * s_i(y + 2^i).
        let next = images[below];
        images = images.map(|image| image * (image + next));
    }
    let unit = images[level];
    images.map(|image| image / unit)
}

/// Takes the values at the points of a group to coefficients.
///
/// Two levels at a time: half the trips to the cache, which cost more than the products.
#[inline(always)]
fn inverse_transform<R: Row>(
    proof: R::Proof,
    group: &mut [R],
    points: usize,
    skews: &[Multiplier],
) {
    let rows = group.len() / points;
    let level = |half: usize| &skews[points - points / half..];
    let mut half = 1;
    if points.trailing_zeros() % 2 == 1 {
        for (block, skew) in group.chunks_exact_mut(2 * rows).zip(level(half)) {
            inverse_butterfly(proof, block, skew);
        }
        half = 2;
    }
    while half < points {
        let inner = level(half).as_chunks().0;
        for ((block, inner), outer) in
            group.chunks_exact_mut(4 * half * rows).zip(inner).zip(level(2 * half))
        {
            inverse_butterfly_of_four(proof, block, inner, outer);
        }
        half *= 4;
    }
}

/// One level on a block of two halves.
#[inline(always)]
fn inverse_butterfly<R: Row>(proof: R::Proof, block: &mut [R], skew: &Multiplier) {
    let skew = R::factor(proof, skew);
    let (low, high) = block.split_at_mut(block.len() / 2);
    for (low, high) in low.iter_mut().zip(high) {
        *high = high.xor(*low);
        *low = low.xor(high.mul(&skew));
    }
}

/// Two levels on a block of four quarters, of which `inner` is the first.
#[inline(always)]
fn inverse_butterfly_of_four<R: Row>(
    proof: R::Proof,
    block: &mut [R],
    inner: &[Multiplier; 2],
    outer: &Multiplier,
) {
    let [left, right] = [R::factor(proof, &inner[0]), R::factor(proof, &inner[1])];
    let outer = R::factor(proof, outer);
    let (low, high) = block.split_at_mut(block.len() / 2);
    let (q0, q1) = low.split_at_mut(low.len() / 2);
    let (q2, q3) = high.split_at_mut(high.len() / 2);
    for ((q0, q1), (q2, q3)) in q0.iter_mut().zip(q1).zip(q2.iter_mut().zip(q3)) {
        let r1 = q1.xor(*q0);
        let r0 = q0.xor(r1.mul(&left));
        let r3 = q3.xor(*q2);
        let r2 = q2.xor(r3.mul(&right));
        *q2 = r2.xor(r0);
        *q3 = r3.xor(r1);
        *q0 = r0.xor(q2.mul(&outer));
        *q1 = r1.xor(q3.mul(&outer));
    }
}

/// Takes coefficients to the values at the points of a group.
#[inline(always)]
fn transform<R: Row>(proof: R::Proof, group: &mut [R], points: usize, skews: &[Multiplier]) {
    let rows = group.len() / points;
    let mut half = points / 2;
    while half > 0 {
        let skews = &skews[points - points / half..];
        for (block, skew) in group.chunks_exact_mut(2 * half * rows).zip(skews) {
            let (low, high) = block.split_at_mut(half * rows);
            if skew.constant() != Gf::ZERO {
                add_product(low, high, &R::factor(proof, skew));
            }
            add(high, low);
        }
        half /= 2;
    }
}
