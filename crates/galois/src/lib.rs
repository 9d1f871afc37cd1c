//! GF(2^16): the field, algebraic signatures over it and a Reed–Solomon code over it.
//!
//! Both halves share one field and one symbol, the little-endian `u16`, and both are linear. So the
//! signatures of parity shards are the parity of the data shards' signatures
//! ([`Code::parity_of_signatures`]): a program that has only signatures can check that distant
//! shards still fit together.
//!
//! - [`signature()`] sums a page up in a few symbols. Any change of up to N symbols of a page of
//!   at most [`signature::SYMBOLS_MAX`] symbols changes an N-symbol signature *for certain*.
//! - [`Code`] adds p parity shards to k data shards and repairs any p lost ones.
//! - [`mod@reference`] defines both again, slowly and plainly; the fast paths are tested against it.
//!
//! What is computed here is stored on disk, so every definition is frozen by golden vectors.
//!
//! Not for: identity or tampering (signatures are linear and forged in a line of algebra; name
//! and authenticate with a keyed hash), finding *which* shard is damaged (the caller knows, from
//! signatures or hashes), or I/O of any kind.

mod code;
mod field;
pub mod reference;
pub mod signature;
mod simd;
#[cfg(test)]
mod testdata;

pub use code::{Code, CodeError};
pub use field::Gf;
pub use signature::{Signature, concat, signature, update};
