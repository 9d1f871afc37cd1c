//! Which chunks the repository holds, and where.

mod ahead;
pub mod arenas;
pub mod chunk_index;
mod location;
