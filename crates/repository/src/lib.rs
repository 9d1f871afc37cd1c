//! Floor 4: what a repository is. Its objects, keys, sessions and snapshots, and how chunks are
//! written to it and read from it.
//!
//! Nothing here knows a verb, or a file tree of this machine. It never prints, never reads the
//! environment, and takes clock and randomness as parameters.
#![warn(
    clippy::iter_over_hash_type,
    reason = "the order of calls is one that the simulation can repeat"
)]

mod arrivals;
mod authorship;
mod cache;
mod claim;
mod collections;
pub mod config;
mod drills;
mod endings;
mod error;
mod folders;
mod index;
pub mod keys;
mod kind;
mod layout;
mod names;
mod near;
pub mod objects;
pub mod opened;
pub mod own;
mod places;
mod proofs;
mod read;
mod remarks;
mod replicas;
mod repository;
mod session;
mod signed;
mod snapshots;
mod spool;
mod trial;
mod useless;
mod usual;
mod vouchers;
mod wishes;
mod write;

pub use arrivals::{Arrival, Arrivals, Doubt, Look, Seen, SeriesId};
pub use collections::{
    ArenaSlots, Collections, End, Forgotten, OpenCollection, SLOTS_BYTES_MAX, Selection, SlotSets,
    confirm_verdict, create_plan, create_verdict, finish_collection, verdict_object,
};
pub use drills::{BootDrill, Drill, DrillVerdict};
pub use endings::{Ending, Endings, end_domain};
pub use error::{RepositoryError, SlotError};
pub use folders::{Shown, WithheldFolder, show, withheld_folders};
pub use index::chunk_index::{ChunkIndex, LostPlaces, Refreshed, whole_arena};
pub use kind::ErrorKind;
pub use layout::{Fragmentation, Layout, RUN_BYTES_MAX, Run};
pub use own::{KeptSession, KeptSnapshot, Needs, OwnRecord};
pub use places::{Places, SlotBits, SlotWords};
pub use read::chunk_reader::{ChunkReader, false_if_unreadable};
pub use read::disks::{DISK_SUFFIX, StoredDisk, find_disks};
pub use read::lookup::{Found, find_path};
pub use read::memo::{NodeKey, NodeMemo, PartKey, PartMemo, TreeKey, TreeMemo};
pub use read::walk::{EnteredDirectory, SnapshotEvent, SnapshotWalk};
pub use remarks::{Hold, Remark, Remarks, change_remark, release_hold};
pub use replicas::WithReplicas;
pub use repository::{
    ClosedRepository, InitOptions, Repository, Surroundings, arena_bytes_of, check_vacant, exists,
    forged_configs, in_mode, in_mode_of, read_config, refuse_newer,
};
pub use session::{
    ListedSession, SealedSnapshot, Session, SessionHead, end_session, give_up, list_sealed,
    list_sessions, open_snapshot, read_snapshot, session_object, snapshot_object,
};
pub use snapshots::{
    ListedSnapshots, Narrowing, SnapshotList, SnapshotName, find_snapshot, find_snapshot_among,
    list_known_snapshots, list_snapshots,
};
pub use useless::{Useless, find_useless, remove_useless};
pub use usual::{OwnSeries, Usual};
pub use vouchers::{read_vouchers, write_vouchers};
pub use wishes::{Wishes, list_wishes_and_remarks};
pub use write::basis::StreamBasis;
pub use write::chunk_writer::{ChunkWriter, MetadataLane, WriteStats};
pub use write::copy::CopiedChunk;
pub use write::crew::Crew;
pub use write::packer::options::{Compression, PackOptions};
pub use write::stream::{PIECE_BYTES, Piece, StreamCutter};
pub use write::times::{Stage, StageTimes, send};
