//! Writing: streams into chunks, chunks into blocks and arenas.

pub mod basis;
pub mod chunk_writer;
pub mod packer;
pub mod profile;
pub mod stream;
