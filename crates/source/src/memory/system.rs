//! Which file system a file is on, by the numbers of `statfs`.

use std::fs::File;

use crate::file_system::made_up;

/// An inode of these has one content, however often and by whom it is opened. Of an overlay it has two:
/// that of the file below, and that of the copy above.
const ONE_CONTENT: [u32; 5] = [
    0x0102_1994, // tmpfs, and memory files
    0x9584_58f6, // hugetlbfs
    0x0000_ef53, // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
];

/// Whether a file is made up by the kernel.
pub fn is_made_up(file: &File) -> bool {
    number_of(file).is_some_and(|number| made_up(number).is_some())
}

/// Whether a file has the same bytes for each descriptor that is opened of it.
pub fn has_one_content(file: &File) -> bool {
    number_of(file).is_some_and(|number| ONE_CONTENT.contains(&number))
}

fn number_of(file: &File) -> Option<u32> {
    // The numbers have 32 bits, in a field that may have a sign.
    rustix::fs::fstatfs(file).ok().map(|found| found.f_type as u32)
}
