//! Which file system a file is on, by the numbers of `statfs`.

use std::fs::File;

/// Files that the kernel makes up when they are read. What is in them may depend on the rights of who
/// reads, and their length says nothing.
const MADE_UP: [u32; 18] = [
    0x0000_9fa0, // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0xde5e_81e4, // efivarfs
    0x6165_676c, // pstore
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0x6265_6570, // configfs
    0x6e73_6673, // nsfs
    0x4249_4e4d, // binfmt_misc
    0x6573_5543, // fusectl
    0x0765_5821, // resctrl
    0x1980_0202, // mqueue
];

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
    is_on(file, &MADE_UP)
}

/// Whether a file has the same bytes for each descriptor that is opened of it.
pub fn has_one_content(file: &File) -> bool {
    is_on(file, &ONE_CONTENT)
}

fn is_on(file: &File, systems: &[u32]) -> bool {
    // The numbers have 32 bits, in a field that may have a sign.
    rustix::fs::fstatfs(file).is_ok_and(|found| systems.contains(&(found.f_type as u32)))
}
