//! Repair of data shards: each lost one is a sum of the others, each times a coefficient.
//!
//! The formula is that of [`reference::solve`](crate::reference::solve). Its coefficients are
//! quotients of products, computed as sums of logarithms. With few shards lost this is faster than
//! any transform, which would go over the whole codeword however little is lost.

use super::{
    Code,
    rows::{add_product, load, rows_per_strip, store, strip_of, strips},
};
use crate::{
    field::{Gf, Logarithms, ORDER},
    simd::{Backend, Kernel, Multiplier, Row},
};

/// What the sums and one source may take of the second cache.
const CACHE_BYTES: usize = 128 << 10;

/// Which shards are computed from which, and how.
pub(super) struct Plan {
    /// The data shards and then the parity shards that are there.
    known: Vec<Known>,
    /// The lost data shards.
    lost: Vec<Lost>,
}

/// A shard that is there.
struct Known {
    place: Place,
    point: u16,
    /// The logarithm of the product of its point's differences from all unknown points.
    log: usize,
}

/// Where a shard lies.
#[derive(Clone, Copy)]
enum Place {
    Data(usize),
    Parity(usize),
}

/// A data shard that is not there.
struct Lost {
    shard: usize,
    point: u16,
    /// The logarithm of the product of its point's differences from the other unknown points.
    log: usize,
}

impl Plan {
    /// The plan for repairing `lost_data`, while `lost_parity` is not to be read either.
    ///
    /// Both ascend, and together they are at most as many as the code has parity shards.
    pub(super) fn new(code: &Code, lost_data: &[usize], lost_parity: &[usize]) -> Self {
        let points = code.parity_points();
        let to_point = |i| u16::try_from(i).expect("a code's points are elements of the field");
        let data_point = |shard: usize| to_point(points + shard);
        let virtual_parity = code.parity_shards..points;
        let unknown: Vec<u16> = (lost_parity.iter().copied().chain(virtual_parity).map(to_point))
            .chain(lost_data.iter().copied().map(data_point))
            .collect();

        let logarithms = Logarithms::get();
        let log_of_product = |point: u16| {
            let others = unknown.iter().filter(|&&other| other != point);
            others.map(|other| logarithms.log(point ^ other)).sum::<usize>() % ORDER
        };
        let known = |place, point| Known { place, point, log: log_of_product(point) };
        let kept = |shards, lost: &[usize]| {
            let mut lost = lost.iter().copied().peekable();
            (0..shards).filter(move |&shard| lost.next_if_eq(&shard).is_none()).collect::<Vec<_>>()
        };
        let data = kept(code.data_shards, lost_data).into_iter();
        let parity = kept(code.parity_shards, lost_parity).into_iter();
        Self {
            known: data
                .map(|i| known(Place::Data(i), data_point(i)))
                .chain(parity.map(|j| known(Place::Parity(j), to_point(j))))
                .collect(),
            lost: lost_data
                .iter()
                .map(|&shard| (shard, data_point(shard)))
                .map(|(shard, point)| Lost { shard, point, log: log_of_product(point) })
                .collect(),
        }
    }

    /// What the known shard is multiplied by in the sum that is the lost one.
    fn coefficient(known: &Known, lost: &Lost) -> Gf {
        let logarithms = Logarithms::get();
        let divisor = logarithms.log(known.point ^ lost.point) + lost.log;
        logarithms.exp(known.log + 2 * ORDER - divisor)
    }
}

/// Computes the lost data shards of a plan.
pub(super) struct Repair<'a> {
    pub(super) plan: &'a Plan,
    /// All data shards.
    pub(super) data: &'a mut [u8],
    /// All parity shards.
    pub(super) parity: &'a [u8],
    /// Even.
    pub(super) shard_bytes: usize,
}

impl Kernel for Repair<'_> {
    type Output = ();

    #[inline(always)]
    fn run<B: Backend>(self, proof: B::Proof) {
        let Self { plan, data, parity, shard_bytes } = self;
        let rows = rows_per_strip::<B::Row>(shard_bytes, plan.lost.len() + 1, CACHE_BYTES);
        let mut sums = vec![B::Row::zero(proof); plan.lost.len() * rows];
        let mut source = vec![B::Row::zero(proof); rows];
        for strip in strips::<B::Row>(shard_bytes, rows) {
            sums.fill(B::Row::zero(proof));
            for known in &plan.known {
                let bytes = match known.place {
                    Place::Data(shard) => strip_of(data, shard_bytes, shard, &strip),
                    Place::Parity(shard) => strip_of(parity, shard_bytes, shard, &strip),
                };
                load(proof, bytes, &mut source);
                for (sum, lost) in sums.chunks_exact_mut(rows).zip(&plan.lost) {
                    let multiplier = Multiplier::new(Plan::coefficient(known, lost));
                    add_product(sum, &source, &B::Row::factor(proof, &multiplier));
                }
            }
            for (sum, lost) in sums.chunks_exact(rows).zip(&plan.lost) {
                let start = lost.shard * shard_bytes;
                store(sum, &mut data[start + strip.start..start + strip.end]);
            }
        }
    }
}
