//! Floor 3: snapshots, trees and recipes, over a chunk-store trait only.
//!
//! It knows how a file tree is told in chunks and how to read it back; it does not know where
//! chunks are kept, how they are sealed, or how to walk a disk.

pub mod entry;
pub mod recipe;

pub use entry::{DeviceNumber, Entry, EntryKind, Metadata, Xattr};
pub use recipe::{ChunkRef, Location, Recipe};
