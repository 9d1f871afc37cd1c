//! Floor 4: what a repository is. Its objects, keys, sessions and snapshots, and how chunks are
//! written to it and read from it.
//!
//! Nothing here knows a verb, or a file tree of this machine. It never prints, never reads the
//! environment, and takes clock and randomness as parameters.

mod authorship;
mod claim;
pub mod config;
mod error;
mod index;
pub mod keys;
mod kind;
pub mod objects;
pub mod own;
mod read;
mod repository;
mod session;
mod snapshots;
mod vouchers;
mod write;

pub use error::{RepositoryError, SlotError};
pub use index::chunk_index::{ChunkIndex, Refreshed};
pub use kind::ErrorKind;
pub use own::{KeptSession, KeptSnapshot, Needs, OwnRecord};
pub use read::chunk_reader::ChunkReader;
pub use read::lookup::{Found, find_path};
pub use read::memo::{TreeKey, TreeMemo};
pub use read::walk::{EnteredDirectory, SnapshotEvent, SnapshotWalk};
pub use repository::{
    InitOptions, Repository, Surroundings, arena_bytes_of, check_vacant, exists, forged_configs,
    read_config, refuse_newer,
};
pub use session::{
    ListedSession, SealedSnapshot, Session, SessionHead, list_sealed, list_sessions, open_snapshot,
    read_snapshot, session_object, snapshot_object,
};
pub use snapshots::{SnapshotList, SnapshotName, find_snapshot, list_snapshots};
pub use vouchers::{read_vouchers, write_vouchers};
pub use write::basis::StreamBasis;
pub use write::chunk_writer::{ChunkWriter, MetadataLane, WriteStats};
pub use write::crew::Crew;
pub use write::packer::options::{Compression, PackOptions};
pub use write::stream::{PIECE_BYTES, Piece, StreamCutter};
pub use write::times::{Stage, StageTimes, send};
