//! Which flags of each structure are carried out here, word by word.
//!
//! A bit that is not in these lists can mean that data is where this crate does not look for it, or
//! that what a map calls free is needed. So it means *not understood*: nothing of the volume counts
//! as free, and the caller says so. That holds for compatible features as well: for a kernel they
//! are safe to ignore, as it only has to keep the file system sound, not to know what is free.

/// A word of flags, and which of its bits are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlagWord {
    /// What it is, for messages: "compatible features of ext4".
    pub name: &'static str,
    /// The bits that are carried out here.
    pub known: u64,
}

/// What this crate does not know of a file system that it can otherwise read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotUnderstood {
    /// Flags that are not in the list of those that are carried out.
    #[error("{word} with {}", bits_text(*bits))]
    Flags {
        /// The name of the word.
        word: &'static str,
        /// The unknown bits that are set.
        bits: u64,
    },
    /// Something else has left its mark on the volume, too.
    #[error("the mark of {0} on the same volume")]
    Mark(&'static str),
    /// A version, or a combination of what is known.
    #[error("{0}")]
    Form(&'static str),
}

impl FlagWord {
    pub(crate) const fn new(name: &'static str, known: u64) -> Self {
        Self { name, known }
    }

    /// `Err` if a bit is set that is not known.
    pub(crate) fn check(&self, value: impl Into<u64>) -> Result<(), NotUnderstood> {
        match value.into() & !self.known {
            0 => Ok(()),
            bits => Err(NotUnderstood::Flags { word: self.name, bits }),
        }
    }
}

/// "bit 12", "bits 3 and 40": a set bit is named by its number.
fn bits_text(bits: u64) -> String {
    let numbers: Vec<String> =
        (0..64).filter(|bit| bits >> bit & 1 != 0).map(|bit| bit.to_string()).collect();
    match &numbers[..] {
        [one] => format!("the unknown bit {one}"),
        many => format!("the unknown bits {}", many.join(", ")),
    }
}

/// ext2, ext3 and ext4. The sources are `fs/ext4/ext4.h` of Linux 6.18 and `ext2_fs.h` of e2fsprogs.
pub(crate) mod ext {
    use super::FlagWord;

    /// `dir_prealloc`, `has_journal`, `ext_attr`, `resize_inode`, `dir_index`, `sparse_super2`,
    /// `fast_commit` (the volume is not trusted while its journal has some), `stable_inodes`,
    /// `orphan_file`.
    pub const COMPAT: FlagWord = FlagWord::new(
        "compatible features of ext4",
        0x1 | 0x4 | 0x8 | 0x10 | 0x20 | 0x200 | 0x400 | 0x800 | 0x1000,
    );
    /// `filetype`, `needs_recovery`, `meta_bg`, `extent`, `64bit`, `mmp`, `flex_bg`, `ea_inode`,
    /// `metadata_csum_seed`, `large_dir`, `inline_data`, `encrypt`, `casefold`.
    pub const INCOMPAT: FlagWord = FlagWord::new(
        "incompatible features of ext4",
        0x2 | 0x4
            | 0x10
            | 0x40
            | 0x80
            | 0x100
            | 0x200
            | 0x400
            | 0x2000
            | 0x4000
            | 0x8000
            | 0x1_0000
            | 0x2_0000,
    );
    /// `sparse_super`, `large_file`, `btree_dir`, `huge_file`, `uninit_bg`, `dir_nlink`,
    /// `extra_isize`, `quota`, `bigalloc`, `metadata_csum`, `read-only`, `project`,
    /// `shared_blocks`, `verity`, `orphan_present`.
    pub const RO_COMPAT: FlagWord = FlagWord::new(
        "read-only compatible features of ext4",
        0x1 | 0x2
            | 0x4
            | 0x8
            | 0x10
            | 0x20
            | 0x40
            | 0x100
            | 0x200
            | 0x400
            | 0x1000
            | 0x2000
            | 0x4000
            | 0x8000
            | 0x1_0000,
    );
    /// Unmounted cleanly, has errors, orphans are being removed.
    pub const STATE: FlagWord = FlagWord::new("the state of ext4", 0x7);
    /// Hashes of signed or unsigned bytes, a file system for tests.
    pub const FLAGS: FlagWord = FlagWord::new("flags of ext4", 0x7);
    /// Inodes never used, block map never used, table of inodes written.
    pub const GROUP: FlagWord = FlagWord::new("flags of a group of ext4", 0x7);
    /// All but those of kinds of compression and snapshots that no kernel of today has.
    pub const INODE: FlagWord = FlagWord::new("flags of an inode of ext4", 0x727f_dcff);
    /// Checksums of whole transactions.
    pub const JOURNAL_COMPAT: FlagWord =
        FlagWord::new("compatible features of the journal of ext4", 0x1);
    /// Revocations, 64 bits, asynchronous commits, checksums of versions 2 and 3, fast commits (the
    /// volume is not trusted while there are some).
    pub const JOURNAL_INCOMPAT: FlagWord =
        FlagWord::new("incompatible features of the journal of ext4", 0x3f);
    /// None is defined.
    pub const JOURNAL_RO_COMPAT: FlagWord =
        FlagWord::new("read-only compatible features of the journal of ext4", 0);
}

/// XFS. The source is `fs/xfs/libxfs/xfs_format.h` of Linux 6.18.
pub(crate) mod xfs {
    use super::FlagWord;

    /// The version number and all of version 4 but the shared one.
    pub const VERSION: FlagWord = FlagWord::new("the version of XFS", 0xfdff);
    /// Lazy counters, attributes of version 2, projects of 32 bits, file types.
    pub const MORE_V4: FlagWord = FlagWord::new("more features of XFS 4", 0x28a);
    /// The same, and checksums.
    pub const MORE_V5: FlagWord = FlagWord::new("more features of XFS 5", 0x38a);
    /// None is defined.
    pub const COMPAT: FlagWord = FlagWord::new("compatible features of XFS", 0);
    /// Free inodes, owners, references and counts of inodes in trees.
    pub const RO_COMPAT: FlagWord = FlagWord::new("read-only compatible features of XFS", 0xf);
    /// File types, sparse inodes, a second UUID, times up to 2486, a mark of repair, large counts of
    /// extents, exchanged ranges, parent pointers.
    pub const INCOMPAT: FlagWord = FlagWord::new("incompatible features of XFS", 0xff);
    /// Extended attributes whose changes are in the log.
    pub const LOG_INCOMPAT: FlagWord =
        FlagWord::new("incompatible features of the log of XFS", 0x1);
    /// Read-only.
    pub const FLAGS: FlagWord = FlagWord::new("flags of XFS", 0x1);
}

/// Btrfs. The source is `include/uapi/linux/btrfs_tree.h` of Linux 6.18.
pub(crate) mod btrfs {
    use super::FlagWord;

    /// Written, relocated, has errors (not trusted), a seed, a dump of metadata (refused), a UUID
    /// that is being changed (not trusted).
    pub const FLAGS: FlagWord =
        FlagWord::new("flags of Btrfs", 0x1 | 0x2 | 0x4 | 1 << 32 | 3 << 33 | 3 << 35);
    /// None is defined.
    pub const COMPAT: FlagWord = FlagWord::new("compatible features of Btrfs", 0);
    /// Free space tree and whether it is valid, hash trees of files, block groups in a tree of their
    /// own.
    pub const RO_COMPAT: FlagWord = FlagWord::new("read-only compatible features of Btrfs", 0xf);
    /// All up to copies on three and four devices, and simple quotas.
    pub const INCOMPAT: FlagWord = FlagWord::new("incompatible features of Btrfs", 0x1_0fff);
    /// Data, system, metadata, and all profiles up to four copies.
    pub const CHUNK: FlagWord = FlagWord::new("the kind of a chunk of Btrfs", 0x7ff);
}

/// NTFS. The sources are `fs/ntfs3/ntfs.h` of Linux, and `layout.h` of ntfs-3g.
pub(crate) mod ntfs {
    use super::FlagWord;

    /// Dirty (not trusted), journal to be resized, to be upgraded, mounted by NT 4, journal of
    /// changes being deleted, object ids to be repaired, no short names, and two marks of `chkdsk`.
    pub const VOLUME: FlagWord = FlagWord::new("flags of a volume of NTFS", 0xc0bf);
    /// Pages that are written one at a time, closed.
    pub const LOG: FlagWord = FlagWord::new("flags of the journal of NTFS", 0x3);
}

/// FAT and exFAT. The sources are Microsoft's specifications.
pub(crate) mod fat {
    use super::FlagWord;

    /// Which copy of the table is in use, and whether only that one is.
    pub const FLAGS: FlagWord = FlagWord::new("flags of FAT32", 0x8f);
    /// Dirty and errors: not trusted.
    pub const STATE: FlagWord = FlagWord::new("the state of FAT", 0x3);
    /// Which table is in use, dirty (not trusted), errors (not trusted), to be cleared.
    pub const EXFAT: FlagWord = FlagWord::new("flags of exFAT", 0xf);
}

/// qcow2 and VMDK. The sources are QEMU's documentation and VMware's specification.
pub(crate) mod image {
    use super::FlagWord;

    /// Dirty, corrupt (refused), data file, compression, extended entries. Compatible and autoclear
    /// features change nothing for a reader, by definition.
    pub const QCOW2: FlagWord = FlagWord::new("incompatible features of qcow2", 0x1f);
    /// Test for newlines, second directory, grains of zeros, compressed grains, markers.
    pub const VMDK: FlagWord = FlagWord::new("flags of VMDK", 0x3_0007);
}

/// All words of flags that are looked at.
pub fn flag_words() -> &'static [FlagWord] {
    &[
        ext::COMPAT,
        ext::INCOMPAT,
        ext::RO_COMPAT,
        ext::STATE,
        ext::FLAGS,
        ext::GROUP,
        ext::INODE,
        ext::JOURNAL_COMPAT,
        ext::JOURNAL_INCOMPAT,
        ext::JOURNAL_RO_COMPAT,
        xfs::VERSION,
        xfs::MORE_V4,
        xfs::MORE_V5,
        xfs::COMPAT,
        xfs::RO_COMPAT,
        xfs::INCOMPAT,
        xfs::LOG_INCOMPAT,
        xfs::FLAGS,
        btrfs::FLAGS,
        btrfs::COMPAT,
        btrfs::RO_COMPAT,
        btrfs::INCOMPAT,
        btrfs::CHUNK,
        ntfs::VOLUME,
        ntfs::LOG,
        fat::FLAGS,
        fat::STATE,
        fat::EXFAT,
        image::QCOW2,
        image::VMDK,
    ]
}
