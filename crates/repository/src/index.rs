//! Which chunks the repository holds, and where.

mod arenas;
pub mod chunk_index;
