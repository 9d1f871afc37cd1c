//! What is wrong in a repository, and what depends on it.

pub mod audit;
pub mod bad;
pub mod census;
pub mod ended;
pub mod fault;
mod known_good;
pub mod look;
pub mod lost;
pub mod presence;
