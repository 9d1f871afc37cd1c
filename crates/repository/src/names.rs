//! The names of what the owner says of snapshots and domains, and of the steps of collections.

use strongroom_arena::envelope::format::ObjectKind;
use strongroom_backend::ObjectName;
use strongroom_base::{DomainId, SnapshotId};

/// The folder of writers at work.
pub const SESSIONS_FOLDER: &str = "sessions";
/// The folder of vouchers.
pub const VOUCHERS_FOLDER: &str = "vouchers";
/// The folder of collections.
pub const COLLECTIONS_FOLDER: &str = "collections";
/// The folder of wishes to forget snapshots.
pub const FORGOTTEN_FOLDER: &str = "forgotten";
/// The folder of remarks about snapshots.
pub const REMARKS_FOLDER: &str = "remarks";

/// The folder of what the owner has seen of other domains.
pub const ARRIVALS_FOLDER: &str = "arrivals";

/// The folder of what the owner says of the ends of domains.
pub const ENDED_FOLDER: &str = "ended";

/// The suffix of the second copy of a small object. Losing a whole file of a kilobyte must not cost
/// a repository.
pub const COPY: &str = ".copy";

/// A step of a collection, by the last part of its object's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Slots are condemned: no writer relies on them any more.
    Plan,
    /// It is decided which of them go.
    Verdict,
    /// All of them are gone.
    Done,
}

impl Step {
    const ALL: [Self; 3] = [Self::Plan, Self::Verdict, Self::Done];

    fn word(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Verdict => "verdict",
            Self::Done => "done",
        }
    }

    /// The kind of its object.
    pub(crate) fn kind(self) -> ObjectKind {
        match self {
            Self::Plan => ObjectKind::Plan,
            Self::Verdict => ObjectKind::Verdict,
            Self::Done => ObjectKind::Done,
        }
    }

    /// The object of this step of a collection.
    pub fn object(self, number: u64) -> ObjectName {
        ObjectName::new(COLLECTIONS_FOLDER, format!("{number}.{}", self.word()))
    }

    /// Whether its object has a copy: without it, it is not known what goes.
    pub(crate) fn has_copy(self) -> bool {
        self != Self::Done
    }

    /// The collection and the step of an object, and whether it is the copy of one; none if its name
    /// is none of ours.
    pub(crate) fn or_copy_of(file: &str) -> Option<(u64, Self, bool)> {
        let (file, is_copy) = match file.strip_suffix(COPY) {
            Some(file) => (file, true),
            None => (file, false),
        };
        let (number, step) = Self::of(file)?;
        (!is_copy || step.has_copy()).then_some((number, step, is_copy))
    }

    /// The collection and the step of an object; none if its name is none of ours.
    fn of(file: &str) -> Option<(u64, Self)> {
        let (number, word) = file.split_once('.')?;
        let step = Self::ALL.into_iter().find(|step| step.word() == word)?;
        Some((arrivals_of(number)?, step))
    }
}

/// The object of a look at what has arrived.
pub(crate) fn arrivals_name(number: u64) -> ObjectName {
    ObjectName::new(ARRIVALS_FOLDER, number)
}

/// The number of a look; none if the name is none of ours.
pub(crate) fn arrivals_of(file: &str) -> Option<u64> {
    let number: u64 = file.parse().ok()?;
    (number > 0 && number.to_string() == file).then_some(number)
}

/// The object of a wish or a remark: the number-th about a snapshot in its folder.
pub(crate) fn numbered_name(folder: &str, snapshot: SnapshotId, number: u32) -> ObjectName {
    ObjectName::new(folder, format!("{snapshot}.{number}"))
}

/// The snapshot and the number of a wish or a remark; none if the name is none of ours.
pub(crate) fn numbered_of(file: &str) -> Option<(SnapshotId, u32)> {
    let (snapshot, number) = file.split_once('.')?;
    let (snapshot, parsed): (SnapshotId, u32) = (snapshot.parse().ok()?, number.parse().ok()?);
    (parsed > 0 && parsed.to_string() == number).then_some((snapshot, parsed))
}

/// The object of what the owner says of the end of a domain, by the number of the ending.
pub fn ending_name(domain: DomainId, number: u32) -> ObjectName {
    numbered_name(ENDED_FOLDER, SnapshotId(domain.0), number)
}

/// The domain and the number of an object of [`ending_name`], or of its copy; none if the name is none
/// of ours.
pub(crate) fn ending_of(file: &str) -> Option<(DomainId, u32)> {
    let (domain, number) = numbered_of(file.strip_suffix(COPY).unwrap_or(file))?;
    Some((DomainId(domain.0), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_no_step_has_two() {
        for number in [1, 9, 10, u64::MAX] {
            for step in Step::ALL {
                let file = step.object(number).file().to_owned();
                assert_eq!(Step::or_copy_of(&file), Some((number, step, false)));
                let of_copy = Step::or_copy_of(&format!("{file}{COPY}"));
                assert_eq!(of_copy, step.has_copy().then_some((number, step, true)));
            }
        }
        for refused in
            ["0.plan", "01.plan", "+1.plan", "1", "1.plans", "1.plan.2", ".plan", "1.copy"]
        {
            assert_eq!(Step::or_copy_of(refused), None, "{refused}");
        }
    }

    #[test]
    fn each_wish_and_remark_has_one_name() {
        let snapshot = SnapshotId([7; 16]);
        for number in [1, 2, u32::MAX] {
            let name = numbered_name(REMARKS_FOLDER, snapshot, number);
            assert_eq!(numbered_of(name.file()), Some((snapshot, number)));
        }
        for refused in ["0", "01", "", "4294967296", "1.2"] {
            assert_eq!(numbered_of(&format!("{snapshot}.{refused}")), None, "{refused}");
        }
    }
}
