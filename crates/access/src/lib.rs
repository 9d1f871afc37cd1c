//! Floor 6: snapshots where other programs expect files and disks.
//!
//! [`mount`](mount::mount) shows every snapshot of a repository as a read-only file system.
//! [`Nights`] offers the disks of machines, as they were in any night, by the NBD protocol. The
//! crate reads chunks through `ChunkReader` and writes nothing to a repository. Of arenas it knows
//! that neighbouring chunks share a block, and how much of them may be cached.

mod chunks;
pub mod disks;
pub mod mount;

pub use disks::{Night, NightDisk, Nights, NightsOptions, kept_overlays};
pub use mount::{MountError, MountHandle, MountOptions, Unmounter, mount};
