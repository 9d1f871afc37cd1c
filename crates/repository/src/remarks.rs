//! What the owner says of snapshots after they were made: labels, a description, a hold, a drill.
//!
//! ```text
//! remarks/S.K      a remark about S: all that the owner says of it
//! ```
//!
//! Each names those that it replaces. The greatest K counts, and of others that none replaces what it
//! does not say itself: two copies of a repository may be brought together, in one of which a snapshot
//! was held and in the other labelled. Objects are only added, for the same reason as wishes: a late
//! creation brings no old remark back. The document: `docs/format/remark.md`.

use std::collections::{BTreeMap, BTreeSet};

use minicbor::{Decoder, Encoder};
use strongroom_base::{SnapshotId, Timestamp};
use strongroom_catalog::format::{decode_array, decode_map};
use strongroom_catalog::{FormatError, Snapshot};

use crate::drills::{BootDrill, Drill};
use crate::error::RepositoryError;
use crate::folders::{WithheldFolder, show};
use crate::names::{REMARKS_FOLDER, numbered_name, numbered_of};
use crate::repository::Repository;
use crate::signed;

mod key {
    pub const LABELS: u64 = 0;
    pub const DESCRIPTION: u64 = 1;
    pub const HELD_FOR: u64 = 2;
    pub const HELD_UNTIL: u64 = 3;
    pub const DRILL: u64 = 4;
    pub const BOOT: u64 = 5;
    pub const REPLACES: u64 = 6;
}

/// The greatest step from a number that was there before to that of a new remark.
const STEP_MAX: u32 = 1 << 12;

/// A snapshot that no rule and no wish removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Why.
    pub reason: String,
    /// When it ends; never if there is none.
    pub until: Option<Timestamp>,
}

/// All that the owner says of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remark {
    /// The labels that it has instead of those that its backup gave it.
    pub labels: Option<Vec<String>>,
    /// Any text; empty if there is none.
    pub description: String,
    /// Whether it is held.
    pub hold: Option<Hold>,
    /// What its last drill found.
    pub drill: Option<Drill>,
    /// What the last start of its machine found.
    pub boot: Option<BootDrill>,
    /// The numbers of the remarks that it replaces; if it does not say, of all that are less.
    replaces: Option<BTreeSet<u32>>,
    /// What a newer program added: keys and their values, kept as they are.
    newer: Vec<(u64, Vec<u8>)>,
}

impl Remark {
    /// Its bytes.
    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let until = self.hold.as_ref().and_then(|hold| hold.until);
        let present = [
            self.labels.is_some(),
            !self.description.is_empty(),
            self.hold.is_some(),
            until.is_some(),
            self.drill.is_some(),
            self.boot.is_some(),
            self.replaces.is_some(),
        ];
        let count = present.into_iter().filter(|is| *is).count() + self.newer.len();
        let mut cbor = Encoder::new(&mut bytes);
        let mut encode = || -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
            cbor.map(count as u64)?;
            if let Some(labels) = &self.labels {
                cbor.u64(key::LABELS)?.array(labels.len() as u64)?;
                for label in labels {
                    cbor.str(label)?;
                }
            }
            if !self.description.is_empty() {
                cbor.u64(key::DESCRIPTION)?.str(&self.description)?;
            }
            if let Some(hold) = &self.hold {
                cbor.u64(key::HELD_FOR)?.str(&hold.reason)?;
            }
            if let Some(until) = until {
                cbor.u64(key::HELD_UNTIL)?.i64(until.0)?;
            }
            Ok(())
        };
        encode().expect("a vector takes all that is written to it");
        let drill = self.drill.as_ref().map(|drill| (key::DRILL, drill.pack()));
        let boot = self.boot.as_ref().map(|boot| (key::BOOT, boot.pack()));
        let replaces = self.replaces.as_ref().map(|known| (key::REPLACES, packed_numbers(known)));
        for (key, value) in drill.iter().chain(&boot).chain(&replaces).chain(&self.newer) {
            Encoder::new(&mut bytes).u64(*key).expect("a vector takes all that is written to it");
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// What is in `bytes`.
    pub fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut remark = Self::default();
        let mut until = None;
        let mut cbor = Decoder::new(bytes);
        let damaged = |detail: &dyn ToString| FormatError::damaged("remark", detail.to_string());
        decode_map(&mut cbor, |cbor, number| {
            match number {
                key::LABELS => {
                    let label = |cbor: &mut Decoder<'_>| Ok(cbor.str()?.to_owned());
                    remark.labels = Some(decode_array(cbor, label)?);
                }
                key::DESCRIPTION => remark.description = cbor.str()?.to_owned(),
                key::HELD_FOR => {
                    remark.hold = Some(Hold { reason: cbor.str()?.to_owned(), until: None });
                }
                key::HELD_UNTIL => until = Some(Timestamp(cbor.i64()?)),
                key::DRILL => remark.drill = Some(Drill::decode(cbor, bytes)?),
                key::BOOT => remark.boot = Some(BootDrill::decode(cbor, bytes)?),
                key::REPLACES => {
                    let known = decode_array(cbor, |cbor| cbor.u32())?;
                    remark.replaces = Some(known.into_iter().collect());
                }
                newer => {
                    let start = cbor.position();
                    cbor.skip()?;
                    remark.newer.push((newer, bytes[start..cbor.position()].to_vec()));
                }
            }
            Ok(())
        })
        .map_err(|error| damaged(&error))?;
        match (&mut remark.hold, until) {
            (Some(hold), until) => hold.until = until,
            (None, Some(_)) => return Err(damaged(&"the end of a hold without the hold")),
            (None, None) => {}
        }
        match cbor.position() == bytes.len() {
            true => Ok(remark),
            false => Err(damaged(&"bytes are left over")),
        }
    }
}

impl Remark {
    /// Takes over what another says of a snapshot that this one does not, because it did not know it: of
    /// two holds the longer one, of two drills the later one.
    fn unite(&mut self, unknown: Self) {
        let end = |hold: &Hold| hold.until.unwrap_or(Timestamp(i64::MAX));
        let holds = [self.hold.take(), unknown.hold].into_iter().flatten();
        self.hold = holds.rev().max_by_key(end);
        self.labels = self.labels.take().or(unknown.labels);
        let drills = [self.drill.take(), unknown.drill].into_iter().flatten();
        self.drill = drills.max_by_key(|drill| drill.time);
        let boots = [self.boot.take(), unknown.boot].into_iter().flatten();
        self.boot = boots.max_by_key(|boot| boot.time);
        if self.description.is_empty() {
            self.description = unknown.description;
        }
    }
}

fn packed_numbers(numbers: &BTreeSet<u32>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut cbor = Encoder::new(&mut bytes);
    let mut encode = || -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
        cbor.array(numbers.len() as u64)?;
        for number in numbers {
            cbor.u32(*number)?;
        }
        Ok(())
    };
    encode().expect("a vector takes all that is written to it");
    bytes
}

/// The remarks about one snapshot.
#[derive(Debug, Clone, Default)]
struct Said {
    /// The greatest that can be read, and what it and those that it does not replace say; 0 if there is
    /// none.
    last: u32,
    remark: Remark,
    /// Those that were read, and those that they replace.
    known: BTreeSet<u32>,
    /// The greatest that may be the owner's, readable or not.
    end: u32,
    /// The numbers after that which are taken.
    taken: BTreeSet<u32>,
    /// Those that may be the owner's and cannot be read: each may be a hold.
    unreadable: BTreeSet<u32>,
}

/// What the owner says of all snapshots.
#[derive(Debug, Clone, Default)]
pub struct Remarks {
    of: BTreeMap<SnapshotId, Said>,
    /// All of them may be withheld: then every snapshot may be held.
    withheld: Option<WithheldFolder>,
}

/// A remark that is damaged, or that the place withholds, may be a hold, so it counts as one.
const UNREADABLE: &str = "a remark about it cannot be read";

impl Remarks {
    /// Reads them. What the owner did not make is no remark.
    pub fn read(repository: &Repository) -> Result<Self, RepositoryError> {
        let mut numbers: BTreeMap<SnapshotId, BTreeSet<u32>> = BTreeMap::new();
        let shown = show(repository.backend(), REMARKS_FOLDER)?;
        for info in shown.objects {
            if let Some((snapshot, number)) = numbered_of(info.name.file()) {
                numbers.entry(snapshot).or_default().insert(number);
            }
        }
        let mut remarks = Self { withheld: shown.withheld, ..Self::default() };
        for (snapshot, numbers) in &numbers {
            remarks.of.insert(*snapshot, Said::read(repository, *snapshot, numbers)?);
        }
        Ok(remarks)
    }

    /// That nothing of them is known.
    pub fn withheld(&self) -> Option<&WithheldFolder> {
        self.withheld.as_ref()
    }

    /// What the owner says of a snapshot.
    pub fn about(&self, snapshot: SnapshotId) -> Remark {
        self.of.get(&snapshot).map(|said| said.remark.clone()).unwrap_or_default()
    }

    /// Why a snapshot is held at this time, and until when; none if it is not.
    pub fn hold(&self, snapshot: SnapshotId, now: Timestamp) -> Option<Hold> {
        let unreadable = || Some(Hold { reason: UNREADABLE.to_owned(), until: None });
        if self.withheld.is_some() {
            return unreadable();
        }
        let said = self.of.get(&snapshot)?;
        if !said.unreadable.is_empty() {
            return unreadable();
        }
        self.certain_hold(snapshot, now)
    }

    /// The same, as far as the owner certainly says so: what cannot be read says nothing.
    pub fn certain_hold(&self, snapshot: SnapshotId, now: Timestamp) -> Option<Hold> {
        let hold = self.of.get(&snapshot)?.remark.hold.clone();
        hold.filter(|hold| hold.until.is_none_or(|until| until >= now))
    }

    /// Whether a remark cannot be read, and may be a hold.
    pub(crate) fn may_hold(&self, snapshot: SnapshotId, number: u32) -> bool {
        self.of.get(&snapshot).is_some_and(|said| said.unreadable.contains(&number))
    }

    /// The last drill of any snapshot, and of which.
    pub fn last_drill(&self) -> Option<(SnapshotId, &Drill)> {
        let drills =
            self.of.iter().filter_map(|(id, said)| Some((*id, said.remark.drill.as_ref()?)));
        drills.max_by_key(|(_, drill)| drill.time)
    }

    /// When a drill last proved a snapshot, and which one.
    pub fn last_proved(&self) -> Option<(SnapshotId, Timestamp)> {
        let drills =
            self.of.iter().filter_map(|(id, said)| Some((*id, said.remark.drill.as_ref()?)));
        let proved = drills.filter_map(|(id, drill)| Some((id, drill.proved?)));
        proved.max_by_key(|(_, time)| *time)
    }

    /// Gives a snapshot the labels that the owner gave it later.
    pub fn apply(&self, snapshot: &mut Snapshot) {
        let said = self.of.get(&snapshot.id);
        if let Some(labels) = said.and_then(|said| said.remark.labels.clone()) {
            snapshot.labels = labels;
        }
    }
}

impl Said {
    fn read(
        repository: &Repository,
        snapshot: SnapshotId,
        numbers: &BTreeSet<u32>,
    ) -> Result<Self, RepositoryError> {
        let mut said = Self::default();
        // Those that one which was read replaces.
        let mut replaced: BTreeSet<u32> = BTreeSet::new();
        let mut after_last = BTreeSet::new();
        for number in numbers.iter().rev() {
            if replaced.contains(number) {
                continue;
            }
            match read_one(repository, snapshot, *number) {
                Ok(remark) => {
                    match &remark.replaces {
                        Some(known) => replaced.extend(known),
                        None => replaced.extend(numbers.range(..number)),
                    }
                    said.known.insert(*number);
                    match said.last {
                        0 => (said.last, said.remark) = (*number, remark),
                        _ => said.remark.unite(remark),
                    }
                }
                // Its snapshot was removed in the meantime.
                Err(RepositoryError::Backend(error)) if error.is_not_found() => {}
                Err(RepositoryError::Forged { .. }) => {}
                Err(error) if error.is_unreadable() && said.last == 0 => {
                    after_last.insert(*number);
                }
                Err(error) if error.is_unreadable() => drop(said.unreadable.insert(*number)),
                Err(error) => return Err(error),
            }
        }
        said.known.extend(replaced);
        // The owner takes a number soon after those that there are, so what is planted far beyond them
        // does not count.
        said.end = said.last;
        for number in numbers.range(said.last.saturating_add(1)..) {
            if number - said.end > STEP_MAX {
                break;
            }
            said.end = *number;
            if after_last.contains(number) {
                said.unreadable.insert(*number);
            }
        }
        said.taken = numbers.range(said.end.saturating_add(1)..).copied().collect();
        Ok(said)
    }

    /// The number of the next remark with this content: two copies of a repository, in each of which
    /// something is said, do not give one name to both, so both survive when they are brought together.
    fn next(&self, content: &[u8]) -> Option<u32> {
        let hash = blake3::hash(content);
        let (first, _) = hash.as_bytes().split_first_chunk().expect("a hash is longer");
        let step = 1 + u32::from_le_bytes(*first) % STEP_MAX;
        (self.end.checked_add(step)?..=u32::MAX).find(|number| !self.taken.contains(number))
    }
}

fn read_one(
    repository: &Repository,
    snapshot: SnapshotId,
    number: u32,
) -> Result<Remark, RepositoryError> {
    let name = numbered_name(REMARKS_FOLDER, snapshot, number);
    let content = signed::read_private(repository, &name)?;
    Remark::unpack(&content).map_err(|source| RepositoryError::Format { name, source })
}

/// Changes what the owner says of a snapshot. Of two changes at the same time, the later one begins
/// with what the earlier one left. Gives whether there was something to change.
pub fn change_remark(
    repository: &Repository,
    snapshot: SnapshotId,
    change: impl Fn(&mut Remark),
) -> Result<bool, RepositoryError> {
    write_remark(repository, snapshot, false, change)
}

/// Ends the hold of a snapshot, also one that cannot be read.
pub fn release_hold(repository: &Repository, snapshot: SnapshotId) -> Result<(), RepositoryError> {
    write_remark(repository, snapshot, true, |remark| remark.hold = None).map(drop)
}

fn write_remark(
    repository: &Repository,
    snapshot: SnapshotId,
    replaces_unreadable: bool,
    change: impl Fn(&mut Remark),
) -> Result<bool, RepositoryError> {
    let mut taken = 0;
    loop {
        let mut remarks = Remarks::read(repository)?;
        // Which numbers are taken is not known.
        if let Some(withheld) = remarks.withheld {
            return Err(withheld.error());
        }
        let said = remarks.of.remove(&snapshot).unwrap_or_default();
        let mut remark = said.remark.clone();
        change(&mut remark);
        let is_silent = said.unreadable.is_empty() || !replaces_unreadable;
        if remark == said.remark && is_silent {
            return Ok(false);
        }
        // What cannot be read may be a hold, and stays one until it is released.
        let mut replaces = said.known.clone();
        replaces.extend(said.unreadable.iter().filter(|_| replaces_unreadable));
        remark.replaces = Some(replaces);
        let content = remark.pack();
        let last = || numbered_name(REMARKS_FOLDER, snapshot, u32::MAX);
        let number = said.next(&content).ok_or_else(|| RepositoryError::Forged { name: last() })?;
        let name = numbered_name(REMARKS_FOLDER, snapshot, number);
        if signed::create_private(repository, &name, &content)? {
            return Ok(true);
        }
        // Another process took the name, and its remark is read now; or no number is free.
        if number == taken {
            return Err(RepositoryError::Forged { name });
        }
        taken = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drills::DrillVerdict;

    fn remark() -> Remark {
        Remark {
            labels: Some(vec!["gold".to_owned(), String::new()]),
            description: "before the move".to_owned(),
            hold: Some(Hold { reason: "audit".to_owned(), until: Some(Timestamp(-5)) }),
            drill: None,
            boot: None,
            replaces: None,
            newer: vec![(7, vec![0x01]), (300, vec![0x82, 0x01, 0x02])],
        }
    }

    fn drilled() -> Remark {
        let drill = Drill {
            files: 3,
            bytes: 1 << 33,
            milliseconds: 1500,
            start: u64::MAX,
            end: 5,
            digest: [7; 32],
            proved: Some(Timestamp(-2)),
            newer: vec![(9, vec![0x81, 0x02])],
            ..Drill::new(Timestamp(-1), DrillVerdict::Failed)
        };
        let boot = BootDrill {
            newer: vec![(4, vec![0x01])],
            ..BootDrill::new(Timestamp(9), DrillVerdict::Proved, 1 << 40, None)
        };
        Remark { drill: Some(drill), boot: Some(boot), ..Remark::default() }
    }

    #[test]
    fn a_remark_comes_back_whole_or_not_at_all() {
        let both = Remark { drill: drilled().drill, ..remark() };
        let later = Remark { replaces: Some([1, 70_000].into()), ..remark() };
        for remark in [remark(), drilled(), both, later, Remark::default()] {
            let bytes = remark.pack();
            assert_eq!(Remark::unpack(&bytes).unwrap(), remark);
            for length in 0..bytes.len() {
                assert!(Remark::unpack(&bytes[..length]).is_err(), "{length}");
            }
            assert!(Remark::unpack(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    /// Frozen bytes.
    #[test]
    fn a_remark_that_was_made_is_read() {
        let hex = "a6008264676f6c6460016f6265666f726520746865206d6f766502656175646974032407011901\
            2c820102";
        let packed: String = remark().pack().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(packed, hex);
        let packed: String = drilled().pack().iter().map(|byte| format!("{byte:02x}")).collect();
        let hex = "a204aa0020010202030\
            31b0000000200000000041905dc051bffffffffffffffff0605075820";
        let boot = "05a500090100021b000001000000000003090401";
        assert_eq!(packed, format!("{hex}{}0821098102{boot}", "07".repeat(32)));
        let end_alone = [0xa1, 0x03, 0x00];
        assert!(Remark::unpack(&end_alone).is_err());
        let drill_without_its_keys = [0xa1, 0x04, 0xa1, 0x00, 0x00];
        assert!(Remark::unpack(&drill_without_its_keys).is_err());
    }
}
