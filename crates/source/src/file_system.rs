//! What the metadata of a file proves about its content. That depends on its file system.
//!
//! Where the kernel sets the time of change of an inode, a file with the same size, times and inode has
//! the same content. Where a program writes these times into an image that the kernel only reads, two
//! images may agree in all of them: makers of images set all times to one value, so that the same input
//! gives the same image, and number inodes from the start.
//!
//! In a file system that is kept in memory alone, a file that is mapped may be written to for as long as
//! the mapping exists, and its times show the first write alone: no page is ever written to a disk, after
//! which the next write would be noticed.
//!
//! Programs that answer through FUSE give what times they like. Most give those of the files behind
//! them, and to read all files of a network each night is more than most can afford. So their times
//! prove as much as a kernel's, here as in other backup programs.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::StatVfsMountFlags;

/// File systems that Linux only reads, or nearly so, by the numbers of `statfs`: the program that made
/// the image chose the times.
const IMAGES: [u32; 11] = [
    0x7371_7368, // squashfs
    0xe0f5_e1e2, // erofs
    0x0000_9660, // ISO 9660
    0x28cd_3d45, // cramfs
    0x453d_cd28, // cramfs, of the other byte order
    0x0000_7275, // romfs
    0x0041_4a53, // EFS
    0x4246_5331, // BeFS
    0xa501_fcf5, // VxFS
    0x0000_002f, // QNX 4
    0x6819_1122, // QNX 6
];

/// These are images if they are mounted read-only. An overlay without an upper layer is always so, as
/// those of composefs and of system extensions, and shows the times of images below it.
const IMAGES_IF_READ_ONLY: [u32; 2] = [
    0x1501_3346, // UDF
    OVERLAY,
];

const OVERLAY: u32 = 0x794c_7630;

/// File systems that keep files in memory alone.
const IN_MEMORY: [u32; 3] = [
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x9584_58f6, // hugetlbfs
];

/// A program or another machine answers, and may not know how long a file is before it was read to its
/// end. It says 0 then. Other network file systems are not here: there the kernel reads no byte behind
/// the size that it was given.
const SIZES_UNKNOWN: [u32; 2] = [
    0x6573_5546, // FUSE
    0x0102_1997, // 9P
];

const AUTOFS: u32 = 0x0187;

const ZFS: u32 = 0x2fc1_2fc1;
/// ZFS writes what has changed within five seconds, and within a few times as many under load.
const ZFS_SETTLES: Duration = Duration::from_secs(60);

/// A file may get another inode number once the kernel has forgotten it: the driver counts, or the
/// program that answers does.
const RENUMBERED: [u32; 6] = [
    0x0000_4d44, // FAT
    0x2011_bab0, // exFAT
    0x6573_5546, // FUSE
    0x786f_4256, // shared folders of VirtualBox
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2
];

/// Files that the kernel makes up when they are read. What is in them may depend on the rights of who
/// reads, and their length says nothing.
const MADE_UP: [(u32, &str); 18] = [
    (0x0000_9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0xcafe_4a11, "bpf"),
    (0xde5e_81e4, "efivarfs"),
    (0x6165_676c, "pstore"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x4341_5d53, "smackfs"),
    (0x6265_6570, "configfs"),
    (0x6e73_6673, "nsfs"),
    (0x4249_4e4d, "binfmt_misc"),
    (0x6573_5543, "fusectl"),
    (0x0765_5821, "resctrl"),
    (0x1980_0202, "mqueue"),
];

/// Those of them that keep what was written, with its length.
const KEEPERS: [&str; 2] = ["efivarfs", "pstore"];

/// What the metadata of the files of a file system proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    /// A file whose size, times and inode are what they were has the content that it had.
    pub times_prove: bool,
    /// What it means that a file has 0 bytes.
    pub zero_size: ZeroSize,
}

/// What it means that the metadata of a regular file says 0 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroSize {
    /// It is empty.
    Empty,
    /// It may have content. It is read to its end.
    Unknown,
    /// It may have content that the kernel makes up, and is not read: some such files have no end,
    /// some wait for an event, and some lose what was read. All would be read by a backup of `/`.
    MadeUp {
        /// The type of the file system.
        name: &'static str,
        /// Whether a length that is not 0 is right; else it says nothing either, such as that of
        /// `/proc/kcore`, which is all that a machine can address.
        has_lengths: bool,
    },
}

impl FileSystem {
    /// One that does not say what it is. Its times prove nothing.
    pub(crate) const UNKNOWN: Self = Self { times_prove: false, zero_size: ZeroSize::Empty };

    /// That of an open file or directory.
    pub fn of(file: impl AsFd) -> Self {
        let flags = rustix::fs::fstatvfs(&file).map(|found| found.f_flag);
        match (rustix::fs::fstatfs(&file), flags) {
            // The numbers have 32 bits, in a field that may have a sign.
            (Ok(found), Ok(flags)) => {
                Self::of_type(found.f_type as u32, flags.contains(StatVfsMountFlags::RDONLY))
            }
            _ => Self::UNKNOWN,
        }
    }

    /// Whether an open directory is of an overlay, whose number does not say what is below it.
    pub(crate) fn is_overlay(file: impl AsFd) -> bool {
        rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type as u32 == OVERLAY)
    }

    fn of_type(number: u32, is_read_only: bool) -> Self {
        let is_image =
            IMAGES.contains(&number) || (is_read_only && IMAGES_IF_READ_ONLY.contains(&number));
        let zero_size = match made_up(number) {
            Some(name) => ZeroSize::MadeUp { name, has_lengths: KEEPERS.contains(&name) },
            None if SIZES_UNKNOWN.contains(&number) => ZeroSize::Unknown,
            None => ZeroSize::Empty,
        };
        Self { times_prove: !is_image && !IN_MEMORY.contains(&number), zero_size }
    }
}

impl ZeroSize {
    /// The length of a file of which its metadata says this one: nothing is read if it is 0.
    pub fn counted(self, bytes: u64) -> u64 {
        match self {
            Self::MadeUp { has_lengths: false, .. } => 0,
            _ => bytes,
        }
    }
}

/// Whether a file on the file system of an open file may get another inode number.
pub(crate) fn renumbers(file: impl AsFd) -> bool {
    // The numbers have 32 bits, in a field that may have a sign.
    rustix::fs::fstatfs(file).is_ok_and(|found| RENUMBERED.contains(&(found.f_type as u32)))
}

/// Whether an automount daemon mounts what is wanted in a directory, and takes it away when it is not.
pub fn is_automount(directory: &Path) -> bool {
    rustix::fs::statfs(directory).is_ok_and(|found| found.f_type as u32 == AUTOFS)
}

/// Whether the holes of an open file are where its file system says, if it changed this long ago. ZFS
/// before 2.1.14 and 2.2.2 may report one where data was written that is not on disk yet (issue 15526 of
/// OpenZFS).
pub(crate) fn holes_are_true(file: impl AsFd, age: Duration) -> bool {
    let is_zfs = || rustix::fs::fstatfs(file).map_or(true, |found| found.f_type as u32 == ZFS);
    let version = || std::fs::read_to_string("/sys/module/zfs/version").unwrap_or_default();
    age > ZFS_SETTLES || !is_zfs() || knows_holes(&version())
}

/// Whether a version of OpenZFS knows of data that is not on disk yet.
fn knows_holes(version: &str) -> bool {
    let mut numbers = version.split(|byte: char| !byte.is_ascii_digit()).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    let version = [next(), next(), next()];
    version >= [2, 2, 2] || (version[..2] == [2, 1] && version[2] >= 14)
}

/// The name of a file system whose files are made up by the kernel.
pub(crate) fn made_up(number: u32) -> Option<&'static str> {
    MADE_UP.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_says_what_metadata_proves() {
        let proves = |times_prove, zero_size| FileSystem { times_prove, zero_size };
        for (number, is_read_only, expected) in [
            (0xef53, false, proves(true, ZeroSize::Empty)),
            // A read-only ext4 may be one that is written to at other times.
            (0xef53, true, proves(true, ZeroSize::Empty)),
            (0x7371_7368, true, proves(false, ZeroSize::Empty)),
            (0xe0f5_e1e2, true, proves(false, ZeroSize::Empty)),
            (0x1501_3346, false, proves(true, ZeroSize::Empty)),
            (0x1501_3346, true, proves(false, ZeroSize::Empty)),
            (0x794c_7630, false, proves(true, ZeroSize::Empty)),
            (0x794c_7630, true, proves(false, ZeroSize::Empty)),
            (0x0102_1994, false, proves(false, ZeroSize::Empty)),
            (0x8584_58f6, false, proves(false, ZeroSize::Empty)),
            (0x6573_5546, false, proves(true, ZeroSize::Unknown)),
            (0x9fa0, false, proves(true, ZeroSize::MadeUp { name: "proc", has_lengths: false })),
            (
                0xde5e_81e4,
                false,
                proves(true, ZeroSize::MadeUp { name: "efivarfs", has_lengths: true }),
            ),
        ] {
            assert_eq!(FileSystem::of_type(number, is_read_only), expected, "{number:x}");
        }
    }

    #[test]
    fn versions_of_zfs_know_holes_from_a_mend_on() {
        for known in ["2.1.14-1", "2.2.2", "2.2.10-rc1", "2.3.0", "3.0"] {
            assert!(knows_holes(known), "{known}");
        }
        for unknown in ["2.1.11-1+deb12u1", "2.0.7", "2.2.1", "2.2.0-rc4", "0.8.6", "", "x"] {
            assert!(!knows_holes(unknown), "{unknown}");
        }
    }

    #[test]
    fn a_file_system_is_asked() {
        let of = |path: &str| FileSystem::of(std::fs::File::open(path).unwrap());
        assert_eq!(of("/proc").zero_size, ZeroSize::MadeUp { name: "proc", has_lengths: false });
        assert_eq!(
            of("/proc/self/status").zero_size,
            ZeroSize::MadeUp { name: "proc", has_lengths: false }
        );
        assert!(!of("/dev/shm").times_prove);
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        assert!(of(folder.path().to_str().unwrap()).times_prove);
    }
}
