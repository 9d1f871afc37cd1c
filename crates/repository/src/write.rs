//! Writing: streams into chunks, chunks into blocks and arenas.

pub mod basis;
pub mod chunk_writer;
pub mod copy;
pub mod crew;
mod kept;
pub mod packer;
pub mod stream;
pub mod times;
