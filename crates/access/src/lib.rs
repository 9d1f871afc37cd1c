//! Floor 6: snapshots where other programs expect files.
//!
//! [`mount`](mount::mount) shows every snapshot of a repository as a read-only file system. The
//! crate reads chunks through `ChunkReader` and writes nothing to a repository. Of arenas it knows
//! that neighbouring chunks share a block, and how much of them may be cached.

pub mod mount;

pub use mount::{MountError, MountHandle, MountOptions, Unmounter, mount};
