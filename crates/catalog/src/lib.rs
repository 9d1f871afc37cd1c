//! Floor 3: snapshots, trees and recipes, on top of a trait that keeps chunks.
//!
//! It knows how a file tree is represented in chunks and how to read it back. It does not know
//! where chunks are kept, how they are sealed, or how to walk a disk.

pub mod entry;
pub mod format;
mod links;
pub mod recipe;
mod reference;
pub mod snapshot;
mod store;
#[cfg(test)]
mod testing;
pub mod tree;

pub use entry::{DeviceNumber, Entry, EntryKind, Metadata, Xattr};
pub use format::FormatError;
pub use links::{InodeState, LinkKey, LinkTable};
pub use recipe::{RecipeBuilder, RecipeCursor, RecipeReader};
pub use reference::{ChunkRef, Recipe};
pub use snapshot::{Guarantee, Origin, Snapshot, SnapshotHead, SnapshotStats, sort_oldest_first};
pub use store::{CatalogError, Part, ReadChunk, WriteChunk};
pub use tree::{StoredEntry, TreeReader, TreeWriteError, TreeWriter};
