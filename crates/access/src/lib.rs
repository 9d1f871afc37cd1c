//! Floor 6: snapshots where other programs expect files.
//!
//! [`mount`](mount::mount) shows every snapshot of a repository as a read-only file system. The
//! crate reads through the engine; it writes nothing to a repository and knows nothing of arenas.

pub mod mount;

pub use mount::{MountError, MountHandle, MountOptions, Unmounter, mount};
