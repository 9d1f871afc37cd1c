//! What is odd about the tables of the disks. None of it keeps other volumes from being found.

/// What is odd about the tables of the disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// A part of a table could not be read.
    Unreadable {
        /// The disk.
        disk: usize,
        /// The byte at which it failed.
        offset: u64,
    },
    /// The first copy of a GPT is damaged or missing; the second was used.
    GptFirstCopyDamaged {
        /// The disk.
        disk: usize,
    },
    /// The second copy of a GPT is damaged or missing; the first was used.
    GptSecondCopyDamaged {
        /// The disk.
        disk: usize,
    },
    /// Both copies of a GPT are intact and say different things; the first was used.
    GptCopiesDisagree {
        /// The disk.
        disk: usize,
    },
    /// The MBR says that there is a GPT, and neither copy is intact.
    GptDamaged {
        /// The disk.
        disk: usize,
    },
    /// There is a GPT, but no MBR that says so.
    GptUnprotected {
        /// The disk.
        disk: usize,
    },
    /// A partition is not on the disk, or only its beginning is. Only that part is used.
    OutsideOfDisk {
        /// The disk.
        disk: usize,
        /// The partition.
        name: String,
    },
    /// A partition that belongs to a volume manager that is not read here. Nothing of it is free.
    OtherManager {
        /// The disk.
        disk: usize,
        /// The partition.
        name: String,
        /// The manager that it belongs to.
        manager: &'static str,
    },
    /// The chain of logical partitions is damaged, circular or too long. Those before are used.
    ChainDamaged {
        /// The disk.
        disk: usize,
        /// The byte of the link that is wrong.
        offset: u64,
    },
    /// Two volumes share bytes.
    Overlap {
        /// One volume.
        first: String,
        /// The other.
        second: String,
    },
    /// A physical volume of LVM whose metadata is damaged. It is used if another physical volume
    /// describes the group.
    LvmDamaged {
        /// The disk.
        disk: usize,
        /// The byte at which the physical volume begins.
        offset: u64,
    },
    /// Two physical volumes have the same UUID: one is a copy. The first was used.
    LvmCopy {
        /// The UUID.
        id: String,
    },
    /// Two volume groups have the same name. Their volumes' names contain a part of the group's UUID.
    LvmNameClash {
        /// The name.
        group: String,
    },
    /// A logical volume whose group or itself has a name that LVM gives to none. It is shown by
    /// another.
    LvmInvalidName {
        /// The name by which it is shown.
        name: String,
    },
    /// A logical volume that is not read, as a physical volume is missing or too small.
    LvmIncomplete {
        /// The volume.
        name: String,
    },
    /// A logical volume that is not read, as it is of a kind that we cannot map (thin, RAID,
    /// snapshot, cache).
    LvmUnsupported {
        /// The volume.
        name: String,
        /// LVM's name of the kind.
        segment: String,
    },
}
