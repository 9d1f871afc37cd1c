//! Floor 4: the file trees of this machine: walked, read, and put back; and its memory.
//!
//! [`TreeSource`] walks the trees below some paths and reads their files; [`Target`] puts entries
//! back. Both go from directory to directory by file descriptors, one name at a time, and follow
//! no symbolic link they were not explicitly given. Nothing here stores anything, prints, or
//! decides what a changed file is: that is for the floors above. A region of memory is a
//! [`Memory`](memory::Memory), and a changed page has another [`Mark`](memory::mark::Mark). Linux only.

mod accounts;
mod device;
mod error;
mod exclude;
mod file;
mod file_system;
mod filter;
mod foreign;
mod inode;
mod listing;
pub mod memory;
mod options;
mod plan;
mod scratch;
mod sink;
mod walk;
mod xattr;

pub use accounts::Accounts;
pub use device::seeks;
pub use error::SourceError;
pub use exclude::Patterns;
pub use file::{Extent, Extents, FileChange, SourceFile};
pub use file_system::{FileSystem, ZeroSize, is_automount};
pub use filter::{FilterOptions, PathFilter, Verdict};
pub use foreign::{Correction, Corrections, ForeignRoot};
pub use inode::InodeId;
pub use options::SourceOptions;
pub use scratch::{Scratch, ScratchOwner, sweep_scratch};
pub use sink::{
    BegunFile, Differences, DirectoryId, Existing, ExistingFile, Target, TargetError, TargetFile,
    TargetOptions,
};
pub use walk::{
    EntryHandle, EntryXattrs, ExcludeReason, LeafKind, TreeSource, WalkCounts, WalkEvent,
};
