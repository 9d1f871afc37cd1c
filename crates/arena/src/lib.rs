//! Floor 2: the log of arenas.
//!
//! An arena is an immutable, sealed object made of blocks, a summary, a signature table and
//! parity; this crate makes them, reads them, repairs them and saves what can be saved of broken
//! ones. It knows nothing of the index, of recipes, or of files.
#![warn(
    clippy::iter_over_hash_type,
    reason = "the order of calls is one that the simulation can repeat"
)]

pub mod block;
mod blocks_key;
mod decompress;
pub mod envelope;
mod error;
pub mod format;
mod mark;
pub mod name;
mod opened;
mod recycled;
mod rewrite;
pub mod scan;
mod slots;
pub mod store;
pub mod voucher;
pub mod writer;

pub use block::{BlockDraft, BlockSealer, CompressionLevel, OpenBlock, SealedBlock, StoredChunk};
pub use decompress::decompress;
pub use envelope::Redundancy;
pub use envelope::format::Origin;
pub use error::ArenaError;
pub use name::{ARENAS_FOLDER, ArenaName, ListedArena, ListedArenas};
pub use opened::Arena;
pub use rewrite::{Rewriting, Source, rewrite};
pub use slots::{SlotRef, Slots, SummarySlot};
pub use store::{ArenaStore, CacheLimits, Generations, NearArenas, object_bytes_max};
pub use voucher::Voucher;
pub use writer::{ArenaBuilder, ArenaContent, ArenaSeed, FinishedArena, Finishing};
