//! What was found, in words.

use std::fmt;

use crate::file_system::{Kind, State, Unclean};
use crate::finding::Finding;

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Xfs => "XFS",
            Self::Btrfs => "Btrfs",
            Self::Ntfs => "NTFS",
            Self::ExFat => "exFAT",
            Self::Fat12 => "FAT12",
            Self::Fat16 => "FAT16",
            Self::Fat32 => "FAT32",
        })
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => formatter.write_str("clean"),
            Self::Replayed { transactions: 1, .. } => {
                formatter.write_str("1 transaction of its journal replayed")
            }
            Self::Replayed { transactions, .. } => {
                write!(formatter, "{transactions} transactions of its journal replayed")
            }
            Self::Dirty(why) => write!(formatter, "not unmounted cleanly: {why}"),
            Self::NotUnderstood(why) => write!(formatter, "not understood: {why}"),
        }
    }
}

impl fmt::Display for Unclean {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoJournal => "it has no journal",
            Self::Errors => "errors are noted in it",
            Self::JournalElsewhere => "its journal is on another device",
            Self::JournalDamaged => "its journal is damaged",
            Self::JournalUnknown => "its journal has features that we do not know",
            Self::JournalUnfinished => "its journal ends within a change",
            Self::JournalTooLarge => "its journal has more changes than are kept in memory",
            Self::JournalInUse => "its journal has changes that we cannot replay",
            Self::LogTree => "it has a log that is not replayed",
            Self::Hibernated => "its machine is hibernated",
            Self::FastCommits => "its journal has fast commits, which are not replayed",
        })
    }
}

impl Finding {
    /// In words. `disks` are the names of the disks.
    pub fn describe(&self, disks: &[&str]) -> String {
        let name = |disk: &usize| disks.get(*disk).copied().unwrap_or("a disk");
        match self {
            Self::Unreadable { disk, offset } => {
                format!("{}: a table at byte {offset} cannot be read", name(disk))
            }
            Self::GptFirstCopyDamaged { disk } => format!(
                "{}: the first copy of its GPT is damaged or missing; the second was used",
                name(disk)
            ),
            Self::GptSecondCopyDamaged { disk } => format!(
                "{}: the second copy of its GPT is damaged or missing; the first was used",
                name(disk)
            ),
            Self::GptCopiesDisagree { disk } => format!(
                "{}: the copies of its GPT say different things; the first was used",
                name(disk)
            ),
            Self::GptDamaged { disk } => {
                format!("{}: both copies of its GPT are damaged", name(disk))
            }
            Self::GptUnprotected { disk } => {
                format!("{}: there is a GPT, but no MBR that says so", name(disk))
            }
            Self::OutsideOfDisk { disk, name: partition } => {
                format!("{}: {partition} ends behind the end of the disk", name(disk))
            }
            Self::OtherManager { disk, name: partition, manager } => format!(
                "{}: {partition} belongs to {manager}, whose volumes are not read",
                name(disk)
            ),
            Self::ChainDamaged { disk, offset } => format!(
                "{}: the chain of its logical partitions is damaged at byte {offset}",
                name(disk)
            ),
            Self::Overlap { first, second } => format!("{first} and {second} share bytes"),
            Self::LvmDamaged { disk, offset } => {
                format!("{}: the physical volume at byte {offset} has damaged metadata", name(disk))
            }
            Self::LvmCopy { id } => {
                format!("two physical volumes have the UUID {id}; the first was used")
            }
            Self::LvmNameClash { group } => format!(
                "two volume groups are called {group}; their volumes are named with a part of the \
                 group's UUID"
            ),
            Self::LvmInvalidName { name } => {
                format!("{name} is the logical volume of a name that LVM would not give")
            }
            Self::LvmIncomplete { name } => {
                format!("{name} is not read: a physical volume is missing or too small")
            }
            Self::LvmUnsupported { name, segment } => {
                format!("{name} is not read: it is a logical volume of the kind {segment}")
            }
        }
    }
}
