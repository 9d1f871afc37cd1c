//! What is on a disk: partition tables, volume groups, file systems.
//!
//! A backup of a disk image cuts the image's stream at the extents of files, keeps the files of each
//! partition as an ordinary tree, and treats free space and swap as zeros. This crate answers what
//! that takes, over any [`ReadAt`]:
//!
//! - [`open_image`] gives the bytes of the disk that an image holds: raw, qcow2 with its chain of
//!   backing files, VHD, and with the features of these names VMDK and VHDX. An [`Image`] also says
//!   which ranges can be other than zeros. [`Qcow2`] reads the bitmaps of changes, too.
//! - [`volumes`] finds what a person could mount: partitions, logical volumes, or the whole disk.
//!   A [`Volume`] says where on the disks its bytes are, and a [`VolumeReader`] reads them.
//! - [`open`] recognises the file system of a volume. A [`FileSystem`] lists directories, describes
//!   inodes, and says where in the volume a file's content is. If the volume was not unmounted
//!   cleanly, its journal is replayed in memory, so that the files are those that the kernel would
//!   show after a mount.
//! - [`FileSystem::free`] says which bytes nothing needs.
//! - [`open_swap`] says the same of swap areas, and [`swap_files`] of files that a machine swaps to.
//!
//! # What is free
//!
//! A byte that is called free is read as zero from the backup, so a map that is wrong must cost
//! space only, never data. Free is only what the allocation map *and* the mappings of all inodes
//! call free, on a volume that is clean or was replayed; and a part of the map that fails its
//! checksum, or contradicts its own count, calls nothing free. A caller that walks the tree also
//! subtracts each extent that it was given ([`FreeMap::keep`]). See [`FreeMap`].
//!
//! What is not understood is not free: each flag of each superblock and journal is in a list of
//! those that are carried out ([`flag_words`]), or the volume has nothing that is free
//! ([`State::NotUnderstood`]). The same holds for a volume with the marks of two owners.
//!
//! # Bad input
//!
//! Any bytes are a disk. Nothing here panics or hangs; memory is bounded by constants, except for
//! the map of a journal, which is bounded by the journal that is really there (about 50 bytes for
//! each of its blocks). Directories may form circles: a caller that descends visits each directory
//! once.
//!
//! # Floor
//!
//! Floor 4. It stores nothing. Only [`Qcow2Writer`] writes: an image, into a new file.

mod read;

mod volume;

mod finding;

mod tables;

mod lvm;

mod image;
mod layout;

mod file_system;

mod free;

mod content;

mod ext;

mod claims;
mod clusters;

mod fat;
mod xfs;

mod exfat;

mod btrfs;
mod ntfs;

mod marks;
mod recognize;

mod swap;
mod swap_files;
mod words;

mod checksum;
mod dos_time;
mod fields;
mod wide;

mod understood;

mod error;

pub use btrfs::Btrfs;
pub use content::FileContent;
pub use error::{DiskError, Result};
pub use exfat::ExFat;
pub use ext::Ext;
pub use fat::Fat;
pub use file_system::{
    Entry, Facts, FileSystem, Kind, Node, NodeKind, Piece, Source, State, Unclean,
};
pub use finding::Finding;
pub use free::FreeMap;
pub use image::{
    AtRest, Bitmap, DirtyRanges, Format, Image, ImageError, ImageOptions, OpenedImage, Qcow2,
    Qcow2Writer, RawImage, UnknownFormat, container_of, image_over, is_in_use, open_image,
};
pub use layout::{Layout, volumes};
pub use ntfs::Ntfs;
pub use read::{ReadAt, gives_nothing};
pub use recognize::{open, open_swap};
pub use swap::Swap;
pub use swap_files::{SwapFile, is_suspended, swap_files};
pub use understood::{FlagWord, NotUnderstood, flag_words};
pub use volume::{Place, Run, Volume, VolumeKind, VolumeReader};
pub use xfs::Xfs;
