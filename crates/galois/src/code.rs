//! A Reed–Solomon code over GF(2^16): k data shards, p parity shards, any p lost ones repaired.
//!
//! Shards are runs of symbols of equal, even length; the code works on each column of symbols
//! alone. With m the power of two at or above p:
//!
//! - Parity shard j has the field point j, data shard i the point m + i. The points from p to m
//!   are those of *virtual* parity, computed and never stored; points beyond have zero shards.
//! - A codeword fulfils Σ c_i · i^t = 0 over all points i, for every t below m (0^0 = 1).
//!   [`reference::solve`](crate::reference::solve) is that definition made to compute.
//! - Data shards are in the codeword unchanged: reading needs no decoding.
//!
//! Encoding uses additive Fourier transforms (`transform`). Repair uses sums of products: of all
//! known shards when few are lost, and of parity only when many are (`repair`).
//! Shards are numbered 0..k for data and k..k + p for parity.
//!
//! Not for finding out which shards are damaged: the caller says which.

mod repair;
mod rows;
mod transform;

#[cfg(test)]
mod tests;

use std::{error::Error, fmt};

use self::{
    repair::{Plan, RepairFromResidual, RepairFromShards, Shards},
    transform::Encode,
};
use crate::{
    signature::Signature,
    simd::{Multiplier, Path},
};

/// The number of elements of the field, each a place for one shard.
const POINTS_MAX: usize = 65536;

/// A code of a certain shape: a number of data shards and a number of parity shards.
///
/// Making one costs about as much as encoding a few hundred bytes per data shard; keep it for all
/// data of the same shape.
#[derive(Clone, Debug)]
pub struct Code {
    data_shards: usize,
    parity_shards: usize,
    /// The constants of the transforms; see [`transform::skews`].
    skews: Vec<Multiplier>,
}

/// Why shards could not be encoded or repaired. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeError {
    /// There are no data shards, or more shards than the field has points for.
    Shape {
        /// The number of data shards asked for.
        data_shards: usize,
        /// The number of parity shards asked for.
        parity_shards: usize,
    },
    /// A shard is not a whole number of two-byte symbols.
    OddShard {
        /// The length of a shard.
        shard_bytes: usize,
    },
    /// The data are longer than all data shards, or for a repair not exactly as long.
    DataLength {
        /// The length of the data given.
        bytes: usize,
        /// The length of all data shards.
        expected: usize,
    },
    /// The parity is not exactly as long as all parity shards.
    ParityLength {
        /// The length of the parity given.
        bytes: usize,
        /// The length of all parity shards.
        expected: usize,
    },
    /// The list of lost shards is not strictly ascending, or has a shard that does not exist.
    LostList {
        /// The first number out of order or out of range.
        shard: usize,
    },
    /// More shards are lost than there is parity.
    TooManyLost {
        /// The number of shards lost.
        lost: usize,
        /// The number of parity shards.
        parity: usize,
    },
}

impl Code {
    /// The code of `data_shards` data shards and `parity_shards` parity shards.
    ///
    /// No parity is allowed: nothing is then encoded and nothing can be repaired.
    ///
    /// # Errors
    ///
    /// [`CodeError::Shape`] if there are no data shards, or if `data_shards` and the power of two
    /// at or above `parity_shards` are together more than 65536.
    pub fn new(data_shards: usize, parity_shards: usize) -> Result<Self, CodeError> {
        let points = parity_shards.checked_next_power_of_two().unwrap_or(usize::MAX);
        if data_shards == 0 || data_shards.saturating_add(points) > POINTS_MAX {
            return Err(CodeError::Shape { data_shards, parity_shards });
        }
        let groups = data_shards.div_ceil(points);
        Ok(Self { data_shards, parity_shards, skews: transform::skews(points, groups) })
    }

    /// The number k of data shards.
    pub fn data_shards(&self) -> usize {
        self.data_shards
    }

    /// The number p of parity shards, which is the number of lost shards that can be repaired.
    pub fn parity_shards(&self) -> usize {
        self.parity_shards
    }

    /// Computes the parity shards of the data shards.
    ///
    /// `data` are the data shards one after another, `shard_bytes` each; shards missing at the
    /// end, and what misses of the last one, count as zeros. `parity` is overwritten with the
    /// parity shards one after another.
    ///
    /// # Errors
    ///
    /// [`CodeError::OddShard`], [`CodeError::DataLength`] if `data` are too long, or
    /// [`CodeError::ParityLength`].
    pub fn encode(
        &self,
        data: &[u8],
        shard_bytes: usize,
        parity: &mut [u8],
    ) -> Result<(), CodeError> {
        self.encode_on(Path::best(), data, shard_bytes, parity)
    }

    /// Computes the `lost` shards, in their places, from the others.
    ///
    /// `data` and `parity` are all data shards and all parity shards one after another,
    /// `shard_bytes` each; what the lost ones hold does not matter. `lost` are shard numbers,
    /// strictly ascending.
    ///
    /// # Errors
    ///
    /// [`CodeError::TooManyLost`] if more shards are lost than there is parity;
    /// [`CodeError::OddShard`], [`CodeError::DataLength`], [`CodeError::ParityLength`] or
    /// [`CodeError::LostList`] if the arguments do not fit the code or each other.
    pub fn repair(
        &self,
        data: &mut [u8],
        parity: &mut [u8],
        shard_bytes: usize,
        lost: &[usize],
    ) -> Result<(), CodeError> {
        self.repair_on(Path::best(), data, parity, shard_bytes, lost)
    }

    /// The signatures of the parity shards, from those of the data shards.
    ///
    /// Signatures of data shards missing at the end count as those of zeros.
    ///
    /// # Panics
    ///
    /// Panics if there are more signatures than data shards.
    pub fn parity_of_signatures<const N: usize>(&self, data: &[Signature<N>]) -> Vec<Signature<N>> {
        assert!(data.len() <= self.data_shards, "each signature is that of a data shard");
        let bytes = Signature::<N>::BYTES;
        if bytes == 0 {
            return vec![Signature::ZERO; self.parity_shards];
        }
        let mut shards = vec![0; data.len() * bytes];
        for (shard, signature) in shards.chunks_exact_mut(bytes).zip(data) {
            signature.write(shard);
        }
        let mut parity = vec![0; self.parity_shards * bytes];
        self.encode(&shards, bytes, &mut parity)
            .expect("signatures are shards of an even length and there are not too many");
        let read = |shard| Signature::read(shard).expect("each shard is as long as a signature");
        parity.chunks_exact(bytes).map(read).collect()
    }

    fn encode_on(
        &self,
        path: Path,
        data: &[u8],
        shard_bytes: usize,
        parity: &mut [u8],
    ) -> Result<(), CodeError> {
        let expected = self.check_lengths(data, shard_bytes, parity)?;
        if data.len() > expected {
            return Err(CodeError::DataLength { bytes: data.len(), expected });
        }
        let all: Vec<_> = (0..self.parity_shards).collect();
        if self.parity_shards > 0 && shard_bytes > 0 {
            path.run(Encode { code: self, data, shard_bytes, parity, wanted: &all });
        }
        Ok(())
    }

    fn repair_on(
        &self,
        path: Path,
        data: &mut [u8],
        parity: &mut [u8],
        shard_bytes: usize,
        lost: &[usize],
    ) -> Result<(), CodeError> {
        let expected = self.check_lengths(data, shard_bytes, parity)?;
        if data.len() != expected {
            return Err(CodeError::DataLength { bytes: data.len(), expected });
        }
        self.check_lost(lost)?;
        let no_data_lost = lost.iter().all(|&shard| shard >= self.data_shards);
        if shard_bytes == 0 || lost.is_empty() {
            return Ok(());
        }
        if self.is_cheap_from_shards(lost.len()) {
            let plan = &Plan::from_shards(self, lost);
            let shards = Shards { data, parity, shard_bytes };
            path.run(RepairFromShards { plan, shards });
        } else if no_data_lost {
            let wanted: Vec<_> = lost.iter().map(|shard| shard - self.data_shards).collect();
            path.run(Encode { code: self, data, shard_bytes, parity, wanted: &wanted });
        } else {
            let plan = &Plan::from_residual(self, lost);
            let shards = Shards { data, parity, shard_bytes };
            path.run(RepairFromResidual { code: self, plan, shards });
        }
        Ok(())
    }

    /// Whether to repair that many lost shards each from all others.
    ///
    /// That takes a product per data shard for each lost one; encoding, which all other ways
    /// begin with, takes one for every two levels of the transform.
    fn is_cheap_from_shards(&self, lost: usize) -> bool {
        2 * lost <= self.parity_points().trailing_zeros() as usize + 1
    }

    /// The number m of points set aside for parity.
    fn parity_points(&self) -> usize {
        self.parity_shards.next_power_of_two()
    }

    /// Checks the lengths of shards and parity; the length that all data shards have.
    fn check_lengths(
        &self,
        data: &[u8],
        shard_bytes: usize,
        parity: &[u8],
    ) -> Result<usize, CodeError> {
        if !shard_bytes.is_multiple_of(2) {
            return Err(CodeError::OddShard { shard_bytes });
        }
        let expected = self.parity_shards.saturating_mul(shard_bytes);
        if parity.len() != expected {
            return Err(CodeError::ParityLength { bytes: parity.len(), expected });
        }
        let expected = self.data_shards.checked_mul(shard_bytes);
        expected.ok_or(CodeError::DataLength { bytes: data.len(), expected: usize::MAX })
    }

    fn check_lost(&self, lost: &[usize]) -> Result<(), CodeError> {
        let shards = self.data_shards + self.parity_shards;
        let mut allowed = 0..shards;
        for &shard in lost {
            if !allowed.contains(&shard) {
                return Err(CodeError::LostList { shard });
            }
            allowed.start = shard + 1;
        }
        if lost.len() > self.parity_shards {
            return Err(CodeError::TooManyLost { lost: lost.len(), parity: self.parity_shards });
        }
        Ok(())
    }
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { data_shards, parity_shards } => {
                write!(f, "no code has {data_shards} data and {parity_shards} parity shards")
            }
            Self::OddShard { shard_bytes } => {
                write!(f, "a shard of {shard_bytes} bytes is not of two-byte symbols")
            }
            Self::DataLength { bytes, expected } => {
                write!(f, "{bytes} bytes of data do not fit data shards of {expected} bytes in all")
            }
            Self::ParityLength { bytes, expected } => {
                write!(
                    f,
                    "{bytes} bytes of parity are not parity shards of {expected} bytes in all"
                )
            }
            Self::LostList { shard } => {
                write!(f, "shard {shard} of the lost ones is out of order or does not exist")
            }
            Self::TooManyLost { lost, parity } => {
                write!(f, "{lost} shards are lost and {parity} parity shards repair no more")
            }
        }
    }
}

impl Error for CodeError {}
