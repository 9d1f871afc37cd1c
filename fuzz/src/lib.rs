//! What all targets share: taking fields from the fuzzer's bytes, writing seeds, counting memory.
//!
//! Each target is a file of the module's name beside this crate's manifest. It asserts what the
//! module promises, so a finding is a panic, an address error, more memory than is promised, or ten
//! seconds without an answer.

mod input;
mod memory;
mod seeds;

pub use input::Input;
pub use memory::{Measured, measure};
pub use seeds::write_seeds_if_asked;
