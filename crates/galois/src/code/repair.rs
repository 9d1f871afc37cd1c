//! Repair: each lost shard is a sum of others, each times a coefficient.
//!
//! The formula is that of [`reference::solve`](crate::reference::solve):
//!
//! > c_u = Σ_(i not in U) c_i · q_u(i),  q_u(i) = Π_(l in U, l ≠ u) (i − l) / (u − l)
//!
//! where U are the points of lost shards and of virtual parity.
//!
//! - [`RepairFromShards`] is just that: a product for each lost shard and each known one.
//! - [`RepairFromResidual`] is for many lost shards. Encode the data, with zeros for lost ones.
//!   That is a codeword too, and so is the difference d of the two. At known data points d is zero,
//!   at lost ones d is the lost shard itself, at parity points the *residual*: the true parity
//!   minus the one just encoded. The formula for d sums over known parity only.
//!
//! Coefficients are quotients of products, computed as sums of logarithms.

use std::ops::Range;

use super::{
    Code,
    rows::{add, add_product, load, rows_per_strip, store, strip_of, strips},
    transform::StripEncoder,
};
use crate::{
    field::{Gf, Logarithms, ORDER},
    simd::{Backend, Kernel, Multiplier, Row},
};

/// What the sums and one source may take of the cache.
const CACHE_BYTES: usize = 32 << 10;

/// Which shards are computed from which, and how.
pub(super) struct Plan {
    /// Those that are there: data, then parity.
    known: Vec<Member>,
    /// Those that are not: data, then parity.
    lost: Vec<Member>,
}

/// A shard in a plan.
struct Member {
    place: Place,
    point: u16,
    /// The logarithm of the product of its point's differences from all other unknown points.
    log: usize,
}

/// Where a shard lies.
#[derive(Clone, Copy)]
enum Place {
    Data(usize),
    Parity(usize),
}

impl Plan {
    /// The plan for repairing `lost`, ascending and at most as many as there is parity, from all
    /// other shards.
    pub(super) fn from_shards(code: &Code, lost: &[usize]) -> Self {
        Self::new(code, 0, lost)
    }

    /// The plan for repairing `lost`, ascending and at most as many as there is parity, from the
    /// residuals of the parity that is known.
    pub(super) fn from_residual(code: &Code, lost: &[usize]) -> Self {
        Self::new(code, code.data_shards, lost)
    }

    /// The plan for repairing `lost` from the others of the shards from `first_known` on.
    fn new(code: &Code, first_known: usize, lost: &[usize]) -> Self {
        let points = code.parity_points();
        let to_point = |i| u16::try_from(i).expect("a code's points are elements of the field");
        let place = |shard: usize| match shard.checked_sub(code.data_shards) {
            None => (Place::Data(shard), to_point(points + shard)),
            Some(shard) => (Place::Parity(shard), to_point(shard)),
        };
        let virtual_parity = (code.parity_shards..points).map(to_point);
        let unknown: Vec<u16> =
            lost.iter().map(|&shard| place(shard).1).chain(virtual_parity).collect();

        let logarithms = Logarithms::get();
        let member = |shard| {
            let (place, point) = place(shard);
            let others = unknown.iter().filter(|&&other| other != point);
            let log = others.map(|other| logarithms.log(point ^ other)).sum::<usize>() % ORDER;
            Member { place, point, log }
        };
        let shards = first_known..code.data_shards + code.parity_shards;
        let is_known = |shard: &usize| lost.binary_search(shard).is_err();
        Self {
            known: shards.filter(is_known).map(member).collect(),
            lost: lost.iter().copied().map(member).collect(),
        }
    }

    /// q_u(i), for u = `lost` and i = `known`.
    fn coefficient(known: &Member, lost: &Member) -> Gf {
        let logarithms = Logarithms::get();
        let divisor = logarithms.log(known.point ^ lost.point) + lost.log;
        logarithms.exp(known.log + 2 * ORDER - divisor)
    }
}

/// All shards of a code.
pub(super) struct Shards<'a> {
    pub(super) data: &'a mut [u8],
    pub(super) parity: &'a mut [u8],
    /// Even.
    pub(super) shard_bytes: usize,
}

impl Shards<'_> {
    fn strip(&self, place: Place, strip: &Range<usize>) -> &[u8] {
        match place {
            Place::Data(shard) => strip_of(self.data, self.shard_bytes, shard, strip),
            Place::Parity(shard) => strip_of(self.parity, self.shard_bytes, shard, strip),
        }
    }

    fn strip_mut(&mut self, place: Place, strip: &Range<usize>) -> &mut [u8] {
        let (shards, shard) = match place {
            Place::Data(shard) => (&mut *self.data, shard),
            Place::Parity(shard) => (&mut *self.parity, shard),
        };
        let start = shard * self.shard_bytes;
        &mut shards[start + strip.start..start + strip.end]
    }
}

/// Computes the lost shards of a plan from all others.
pub(super) struct RepairFromShards<'a> {
    pub(super) plan: &'a Plan,
    pub(super) shards: Shards<'a>,
}

impl Kernel for RepairFromShards<'_> {
    type Output = ();

    #[inline(always)]
    fn run<B: Backend>(self, proof: B::Proof) {
        let Self { plan, mut shards } = self;
        let shard_bytes = shards.shard_bytes;
        let rows = rows_per_strip::<B::Row>(shard_bytes, plan.lost.len() + 1, CACHE_BYTES);
        let mut sums = vec![B::Row::zero(proof); plan.lost.len() * rows];
        let mut source = vec![B::Row::zero(proof); rows];
        for strip in strips::<B::Row>(shard_bytes, rows) {
            sums.fill(B::Row::zero(proof));
            for known in &plan.known {
                load(proof, shards.strip(known.place, &strip), &mut source);
                add_to_sums(proof, &mut sums, &plan.lost, known, &source);
            }
            for (sum, lost) in sums.chunks_exact(rows).zip(&plan.lost) {
                store(sum, shards.strip_mut(lost.place, &strip));
            }
        }
    }
}

/// Computes the lost shards of a plan from the residuals of the known parity.
pub(super) struct RepairFromResidual<'a> {
    pub(super) code: &'a Code,
    pub(super) plan: &'a Plan,
    pub(super) shards: Shards<'a>,
}

impl Kernel for RepairFromResidual<'_> {
    type Output = ();

    #[inline(always)]
    fn run<B: Backend>(self, proof: B::Proof) {
        let Self { code, plan, mut shards } = self;
        let mut is_known = vec![true; code.data_shards];
        for lost in &plan.lost {
            if let Place::Data(shard) = lost.place {
                is_known[shard] = false;
            }
        }
        let mut encoder = StripEncoder::<B::Row>::new(proof, code, shards.shard_bytes);
        let rows = encoder.rows;
        let mut sums = vec![B::Row::zero(proof); plan.lost.len() * rows];
        let mut residual = vec![B::Row::zero(proof); rows];
        for strip in strips::<B::Row>(shards.shard_bytes, rows) {
            encoder.encode(proof, |shard| match is_known.get(shard) {
                Some(true) => shards.strip(Place::Data(shard), &strip),
                Some(false) | None => &[],
            });
            for (sum, lost) in sums.chunks_exact_mut(rows).zip(&plan.lost) {
                match lost.place {
                    Place::Data(_) => sum.fill(B::Row::zero(proof)),
                    Place::Parity(shard) => sum.copy_from_slice(encoder.parity(shard)),
                }
            }
            for known in &plan.known {
                let Place::Parity(shard) = known.place else {
                    unreachable!("a plan from residuals knows only parity");
                };
                load(proof, shards.strip(known.place, &strip), &mut residual);
                add(&mut residual, encoder.parity(shard));
                add_to_sums(proof, &mut sums, &plan.lost, known, &residual);
            }
            for (sum, lost) in sums.chunks_exact(rows).zip(&plan.lost) {
                store(sum, shards.strip_mut(lost.place, &strip));
            }
        }
    }
}

/// Adds what `source`, the strip of `known`, contributes to the sums of all lost shards.
#[inline(always)]
fn add_to_sums<R: Row>(
    proof: R::Proof,
    sums: &mut [R],
    lost: &[Member],
    known: &Member,
    source: &[R],
) {
    for (sum, lost) in sums.chunks_exact_mut(source.len()).zip(lost) {
        let multiplier = Multiplier::new(Plan::coefficient(known, lost));
        add_product(sum, source, &R::factor(proof, &multiplier));
    }
}
