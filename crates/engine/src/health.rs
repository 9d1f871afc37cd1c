//! What is wrong in a repository, and what hangs on it.

pub mod audit;
pub mod bad;
pub mod fault;
pub mod look;
