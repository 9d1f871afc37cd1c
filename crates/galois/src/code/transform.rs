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
    /// At most all data shards; what misses at the end is zero.
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
        let points = code.parity_points();
        let rows = rows_per_strip::<B::Row>(shard_bytes, 2 * points, CACHE_BYTES);
        let mut sum = vec![B::Row::zero(proof); points * rows];
        let mut group = sum.clone();
        for strip in strips::<B::Row>(shard_bytes, rows) {
            sum.fill(B::Row::zero(proof));
            for first in (0..code.data_shards).step_by(points) {
                for (place, rows) in group.chunks_exact_mut(rows).enumerate() {
                    load(proof, strip_of(data, shard_bytes, first + place, &strip), rows);
                }
                inverse_transform(proof, &mut group, points, code.skews(first / points + 1));
                add(&mut sum, &group);
            }
            transform(proof, &mut sum, points, code.skews(0));
            for &shard in wanted {
                let start = shard * shard_bytes;
                let target = &mut parity[start + strip.start..start + strip.end];
                store(&sum[shard * rows..][..rows], target);
            }
        }
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
    let levels = points.trailing_zeros();
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
fn subspace_map(level: u32) -> [Gf; 16] {
    let mut images = [0; 16].map(Gf);
    for (bit, image) in images.iter_mut().enumerate() {
        *image = Gf(1 << bit);
    }
    let mut dividing = 0;
    while dividing < level as usize {
        // s_(i+1)(y) = s_i(y) * s_i(y + 2^i).
        let next = images[dividing];
        images = images.map(|image| image * (image + next));
        dividing += 1;
    }
    let unit = images[dividing];
    images.map(|image| image / unit)
}

/// Takes the values at the points of a group to coefficients.
#[inline(always)]
fn inverse_transform<R: Row>(
    proof: R::Proof,
    group: &mut [R],
    points: usize,
    skews: &[Multiplier],
) {
    let rows = group.len() / points;
    let mut skews = skews.iter();
    let mut half = 1;
    while half < points {
        for (block, skew) in group.chunks_exact_mut(2 * half * rows).zip(skews.by_ref()) {
            let (low, high) = block.split_at_mut(half * rows);
            add(high, low);
            add_skewed(proof, low, high, skew);
        }
        half *= 2;
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
            add_skewed(proof, low, high, skew);
            add(high, low);
        }
        half /= 2;
    }
}

/// Adds `high` times the skew to `low`.
#[inline(always)]
fn add_skewed<R: Row>(proof: R::Proof, low: &mut [R], high: &[R], skew: &Multiplier) {
    if skew.constant() != Gf::ZERO {
        add_product(low, high, &R::factor(proof, skew));
    }
}
