//! Which files may have changed after they were read, though their times say otherwise.
//!
//! A file that is written to in the same tick of the file system's clock in which it was read has
//! the ctime that the snapshot recorded. Through a shared mapping, a page may be written to for
//! longer: the kernel notes the time of the first write to it, and of none that follows before the
//! page is written to the disk. So a change shortly before the reading proves nothing.
//! When a file was read is not kept, only when its snapshot was begun: what changed since shortly
//! before is read once more by the next backup, and not by the one after it.

use strongroom_base::Timestamp;
use strongroom_catalog::{Metadata, Snapshot};

/// How long a page that is mapped may be written to without another time of change. The kernel
/// begins to write it to the disk after 30 seconds, and looks every 5; the disk may be busy. The
/// coarsest clock of a file system is far within it: FAT counts in two seconds.
const UNSEEN_NS: i64 = 60_000_000_000;

/// How far the clock of a file server may be ahead of this machine's. A change that is dated later
/// was made while a clock was wrong; it would else be read again every day until that date.
const SKEW_NS: i64 = 24 * 3600 * 1_000_000_000;

/// The times of change for which a snapshot is no proof that a file is still what it was.
#[derive(Debug, Clone, Copy)]
pub struct RacyTimes {
    from: Timestamp,
    to: Timestamp,
}

impl RacyTimes {
    /// Those of a snapshot. The clock may have been set back while it was made.
    pub fn of(parent: &Snapshot) -> Self {
        let (one, other) = (parent.started, parent.ended);
        Self {
            from: Timestamp(one.min(other).0.saturating_sub(UNSEEN_NS)),
            to: Timestamp(one.max(other).0.saturating_add(SKEW_NS)),
        }
    }

    /// True if a file may have changed after it was read, without another time of change.
    pub fn may_hide_a_change(&self, metadata: &Metadata) -> bool {
        let is_racy = |time: Timestamp| (self.from..=self.to).contains(&time);
        is_racy(metadata.ctime) || is_racy(metadata.mtime)
    }
}

#[cfg(test)]
mod tests {
    use strongroom_base::SnapshotId;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn a_change_shortly_before_the_backup_or_during_it_is_no_proof() {
        let file = |mtime, ctime| Metadata {
            mtime: Timestamp(mtime * SECOND),
            ctime: Timestamp(ctime * SECOND),
            ..Metadata::default()
        };
        let racy_of = |started, ended| {
            let (started, ended) = (Timestamp(started * SECOND), Timestamp(ended * SECOND));
            RacyTimes::of(&Snapshot { started, ended, ..Snapshot::empty(SnapshotId::ZERO) })
        };
        let set_back = racy_of(200_000, 100);
        for second in [40, 100, 150_000, 200_000] {
            assert!(
                set_back.may_hide_a_change(&file(0, second)),
                "{second}: the clock was set back"
            );
        }
        let racy = racy_of(100, 200);
        for (second, is_racy) in
            [(39, false), (40, true), (100, true), (150, true), (300, true), (200_000, false)]
        {
            assert_eq!(racy.may_hide_a_change(&file(0, second)), is_racy, "{second}");
            assert_eq!(racy.may_hide_a_change(&file(second, 0)), is_racy, "{second}");
        }
    }
}
