//! Where a walk does not continue: the rules of the options, asked entry by entry.

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{FileType, OFlags, Statx, StatxAttributes};

use crate::error::SourceError;
use crate::exclude::Patterns;
use crate::inode::{self, InodeId};
use crate::listing::Listing;
use crate::options::SourceOptions;

use super::ExcludeReason;

/// The rules, ready to be asked.
#[derive(Debug)]
pub(super) struct Cuts {
    pub(super) patterns: Patterns,
    markers: Vec<CString>,
    cachedir_tag: bool,
    one_file_system: bool,
    file_bytes_max: u64,
    /// Sorted.
    skip_inodes: Vec<InodeId>,
}

/// A directory whose content is left out.
pub(super) struct DirectoryCut {
    pub(super) why: ExcludeReason,
    /// Paths given below it are still wanted.
    pub(super) keeps_wanted: bool,
}

const TAG_NAME: &CStr = c"CACHEDIR.TAG";
const TAG_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

impl Cuts {
    pub(super) fn new(options: &SourceOptions) -> Result<Self, SourceError> {
        let mut skip_inodes = options.skip_inodes.clone();
        skip_inodes.sort_unstable();
        // No file has a name with a NUL inside.
        let markers = options.exclude_if_present.iter().cloned();
        Ok(Self {
            patterns: Patterns::new(options)?,
            markers: markers.filter_map(|name| CString::new(name).ok()).collect(),
            cachedir_tag: options.cachedir_tag,
            one_file_system: options.one_file_system,
            file_bytes_max: options.file_bytes_max.unwrap_or(u64::MAX),
            skip_inodes,
        })
    }

    /// Why an entry is left out altogether, if its name decides that.
    pub(super) fn of_name(&self, path: &Path, is_directory: bool) -> Option<ExcludeReason> {
        self.patterns.exclude(path, is_directory).then_some(ExcludeReason::Pattern)
    }

    /// Why a leaf is left out, if its inode decides that.
    pub(super) fn of_leaf(&self, stat: &Statx) -> Option<ExcludeReason> {
        let is_file = inode::kind_of(stat) == FileType::RegularFile;
        let bytes = stat.stx_size;
        (is_file && bytes > self.file_bytes_max).then_some(ExcludeReason::TooBig { bytes })
    }

    /// True if a directory may be opened before its inode is read.
    pub(super) fn may_open_unseen(&self) -> bool {
        !self.one_file_system
    }

    /// Why the content of a directory is left out, if its inode decides that.
    ///
    /// `parent_device` is the device of the parent directory, if crossing over matters.
    pub(super) fn of_directory(
        &self,
        stat: &Statx,
        parent_device: Option<u64>,
    ) -> Option<DirectoryCut> {
        if self.skip_inodes.binary_search(&InodeId::of(stat)).is_ok() {
            return Some(DirectoryCut { why: ExcludeReason::SkippedInode, keeps_wanted: false });
        }
        // A bind mount may show another place of the same device.
        let mounted = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        let crosses =
            parent_device.is_some_and(|device| mounted || device != inode::device_of(stat));
        (self.one_file_system && crosses)
            .then_some(DirectoryCut { why: ExcludeReason::MountPoint, keeps_wanted: true })
    }

    /// Why the content of a directory is left out, if the names in it decide that.
    pub(super) fn of_content(
        &self,
        fd: BorrowedFd<'_>,
        listing: &Listing,
    ) -> Option<ExcludeReason> {
        if let Some(name) = self.markers.iter().find(|name| listing.contains(name)) {
            return Some(ExcludeReason::Marker { name: name.as_bytes().to_vec() });
        }
        (self.cachedir_tag && listing.contains(TAG_NAME) && is_cache(fd))
            .then_some(ExcludeReason::CacheDirectory)
    }
}

/// What stays in a directory whose content is left out.
pub(super) fn kept_by(why: &ExcludeReason) -> Option<&'static CStr> {
    matches!(why, ExcludeReason::CacheDirectory).then_some(TAG_NAME)
}

/// True if the tag is a regular file that begins with the signature.
fn is_cache(directory: BorrowedFd<'_>) -> bool {
    let Ok(fd) = inode::open_to_read(directory, TAG_NAME, OFlags::NOFOLLOW) else {
        return false;
    };
    let regular =
        inode::stat_fd(&fd).is_ok_and(|stat| inode::kind_of(&stat) == FileType::RegularFile);
    let mut head = [0; TAG_SIGNATURE.len()];
    regular
        && rustix::io::pread(&fd, &mut head, 0) == Ok(head.len())
        && head.as_slice() == TAG_SIGNATURE
}
