//! Which chunks the repository holds, and where.

pub mod arenas;
pub mod chunk_index;
mod location;
