//! When the owner first saw the snapshots of other domains: their own clocks prove nothing.
//!
//! ```text
//! arrivals/N      what was new when the owner looked for the N-th time, and what the owner accepts
//! ```
//!
//! Objects are only added. The document: `docs/format/arrivals.md`.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use minicbor::{Decoder, Encoder};
use strongroom_base::keys::derive_object_key;
use strongroom_base::{DomainId, SnapshotId, Timestamp};
use strongroom_catalog::format::{decode_array, decode_map, expect_array};
use strongroom_catalog::{FormatError, Snapshot};

use crate::error::RepositoryError;
use crate::folders::{WithheldFolder, show};
use crate::names::{ARRIVALS_FOLDER, arrivals_name, arrivals_of};
use crate::repository::Repository;
use crate::signed;

mod key {
    pub const TIME: u64 = 0;
    pub const ARRIVALS: u64 = 1;
    pub const ACCEPTED: u64 = 2;
    pub const ENDED: u64 = 3;
}

/// What a series is derived as.
const SERIES: &str = "strongroom v0 series";

/// The snapshots of one domain, host and set of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(pub [u8; 16]);

impl SeriesId {
    /// The series of a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut parts = vec![snapshot.domain.as_bytes(), snapshot.host.as_bytes()];
        parts.extend(snapshot.paths.iter().map(Vec::as_slice));
        let mut message = Vec::new();
        for part in parts {
            message.extend_from_slice(&(part.len() as u64).to_le_bytes());
            message.extend_from_slice(part);
        }
        let hash = derive_object_key(SERIES, &[0; 32], &message);
        Self(*hash.first_chunk().expect("a hash is longer than a series' id"))
    }
}

/// What is odd about a snapshot, as the owner saw it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// It says that it was made before the owner had looked the last time, or after it was seen.
    Dated,
    /// It has far fewer files or bytes than those before it.
    Shrunken,
    /// Something that only a newer program finds odd.
    Other(u8),
}

impl Doubt {
    fn number(self) -> u8 {
        match self {
            Self::Dated => 1,
            Self::Shrunken => 2,
            Self::Other(number) => number,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => None,
            1 => Some(Self::Dated),
            2 => Some(Self::Shrunken),
            number => Some(Self::Other(number)),
        }
    }
}

/// A snapshot that the owner saw for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// Its series.
    pub series: SeriesId,
    /// When it was made, as far as its domain is believed: after the look before, and before this
    /// one.
    pub time: Timestamp,
    /// What is odd about it.
    pub doubt: Option<Doubt>,
}

/// What the owner saw at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// When.
    pub time: Timestamp,
    /// What was new.
    pub arrivals: Vec<Arrival>,
    /// Snapshots that are right, though there was a doubt.
    pub accepted: Vec<SnapshotId>,
    /// What the owner had said by then of the ends of domains, by domain and number: so that none
    /// gets lost unnoticed.
    pub ended: Vec<(DomainId, u32)>,
}

impl Look {
    /// Its bytes.
    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut cbor = Encoder::new(&mut bytes);
        let mut encode = || -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
            let keys = if self.ended.is_empty() { 3 } else { 4 };
            cbor.map(keys)?.u64(key::TIME)?.i64(self.time.0)?;
            cbor.u64(key::ARRIVALS)?.array(self.arrivals.len() as u64)?;
            for arrival in &self.arrivals {
                cbor.array(4)?.bytes(&arrival.snapshot.0)?.bytes(&arrival.series.0)?;
                cbor.i64(arrival.time.0)?.u8(arrival.doubt.map_or(0, Doubt::number))?;
            }
            cbor.u64(key::ACCEPTED)?.array(self.accepted.len() as u64)?;
            for accepted in &self.accepted {
                cbor.bytes(&accepted.0)?;
            }
            if !self.ended.is_empty() {
                cbor.u64(key::ENDED)?.array(self.ended.len() as u64)?;
                for (domain, number) in &self.ended {
                    cbor.array(2)?.bytes(&domain.0)?.u32(*number)?;
                }
            }
            Ok(())
        };
        encode().expect("a vector takes all that is written to it");
        bytes
    }

    /// What is in `bytes`.
    pub fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut look = Self::default();
        let mut cbor = Decoder::new(bytes);
        decode_map(&mut cbor, |cbor, number| {
            match number {
                key::TIME => look.time = Timestamp(cbor.i64()?),
                key::ARRIVALS => {
                    look.arrivals = decode_array(cbor, decode_arrival)?;
                }
                key::ACCEPTED => {
                    let accepted = |cbor: &mut Decoder<'_>| Ok(SnapshotId(decode_id(cbor)?));
                    look.accepted = decode_array(cbor, accepted)?;
                }
                key::ENDED => {
                    look.ended = decode_array(cbor, decode_ended)?;
                }
                _ => cbor.skip()?,
            }
            Ok(())
        })
        .map_err(|error| FormatError::damaged("look", error))?;
        match cbor.position() == bytes.len() {
            true => Ok(look),
            false => Err(FormatError::damaged("look", "bytes are left over")),
        }
    }
}

fn decode_arrival(cbor: &mut Decoder<'_>) -> Result<Arrival, minicbor::decode::Error> {
    expect_array(cbor, 4)?;
    Ok(Arrival {
        snapshot: SnapshotId(decode_id(cbor)?),
        series: SeriesId(decode_id(cbor)?),
        time: Timestamp(cbor.i64()?),
        doubt: Doubt::from_number(cbor.u8()?),
    })
}

fn decode_ended(cbor: &mut Decoder<'_>) -> Result<(DomainId, u32), minicbor::decode::Error> {
    expect_array(cbor, 2)?;
    Ok((DomainId(decode_id(cbor)?), cbor.u32()?))
}

fn decode_id(cbor: &mut Decoder<'_>) -> Result<[u8; 16], minicbor::decode::Error> {
    let id = cbor.bytes()?.try_into();
    id.map_err(|_| minicbor::decode::Error::message("a name has 16 bytes"))
}

/// An arrival, and the time of the look that saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The arrival.
    pub arrival: Arrival,
    /// When it was seen.
    pub at: Timestamp,
}

/// All that the owner has seen of other domains.
#[derive(Debug, Clone, Default)]
pub struct Arrivals {
    /// By snapshot; the earliest look counts.
    seen: HashMap<SnapshotId, Seen>,
    /// By series, in the order of the looks: also what was removed since.
    series: BTreeMap<SeriesId, Vec<SnapshotId>>,
    accepted: HashSet<SnapshotId>,
    ended: BTreeSet<(DomainId, u32)>,
    /// The time of the last look.
    last: Option<Timestamp>,
    /// The number of the next.
    next: u64,
    /// All looks may be withheld: then nothing was seen, and none can be recorded.
    withheld: Option<WithheldFolder>,
}

impl Arrivals {
    /// Reads them. A look that the owner did not make does not count; what one saw that cannot be
    /// read, or that the place withholds, is seen again by the next, and doubted.
    pub fn read(repository: &Repository) -> Result<Self, RepositoryError> {
        let shown = show(repository.backend(), ARRIVALS_FOLDER)?;
        let listed = shown.objects.into_iter();
        let numbers: BTreeSet<u64> = listed.filter_map(|i| arrivals_of(i.name.file())).collect();
        let mut arrivals = Self { withheld: shown.withheld, ..Self::default() };
        let mut last = 0;
        for number in &numbers {
            let name = arrivals_name(*number);
            let content = match signed::read_private(repository, &name) {
                Ok(content) => content,
                Err(error) if error.is_unreadable() => continue,
                Err(error) => return Err(error),
            };
            if let Ok(look) = Look::unpack(&content) {
                arrivals.push(&look);
                last = *number;
            }
        }
        arrivals.next = (last + 1..).find(|number| !numbers.contains(number)).unwrap_or(u64::MAX);
        Ok(arrivals)
    }

    /// Adds what a later look saw.
    pub fn push(&mut self, look: &Look) {
        for arrival in &look.arrivals {
            let seen = Seen { arrival: *arrival, at: look.time };
            if let Entry::Vacant(unseen) = self.seen.entry(arrival.snapshot) {
                unseen.insert(seen);
                self.series.entry(arrival.series).or_default().push(arrival.snapshot);
            }
        }
        self.accepted.extend(&look.accepted);
        self.ended.extend(&look.ended);
        self.last = Some(look.time);
    }

    /// Records a look, and adds it.
    pub fn record(&mut self, repository: &Repository, look: &Look) -> Result<(), RepositoryError> {
        if let Some(withheld) = &self.withheld {
            return Err(withheld.error());
        }
        // Not the next, but the time: two copies of a repository do not give one name to two looks.
        let mut number = self.next.max(u64::try_from(look.time.0).unwrap_or(0)).max(1);
        // Names that others have taken are passed over.
        while !signed::create_private(repository, &arrivals_name(number), &look.pack())? {
            let name = arrivals_name(number);
            number = number.checked_add(1).ok_or(RepositoryError::Forged { name })?;
        }
        self.next = number.saturating_add(1);
        self.push(look);
        Ok(())
    }

    /// That nothing of the looks is known.
    pub fn withheld(&self) -> Option<&WithheldFolder> {
        self.withheld.as_ref()
    }

    /// When and how a snapshot was first seen.
    pub fn seen(&self, snapshot: SnapshotId) -> Option<Seen> {
        self.seen.get(&snapshot).copied()
    }

    /// All that was seen of a series, in the order of the looks: also what was removed since.
    pub fn of_series(&self, series: SeriesId) -> impl Iterator<Item = Seen> {
        self.series.get(&series).into_iter().flatten().map(|snapshot| self.seen[snapshot])
    }

    /// Whether the owner accepted a snapshot in spite of a doubt.
    pub fn is_accepted(&self, snapshot: SnapshotId) -> bool {
        self.accepted.contains(&snapshot)
    }

    /// What is odd about a snapshot, unless it was accepted.
    pub fn doubt(&self, snapshot: SnapshotId) -> Option<Doubt> {
        let doubt = self.seen(snapshot).and_then(|seen| seen.arrival.doubt);
        doubt.filter(|_| !self.is_accepted(snapshot))
    }

    /// What any look knew of the ends of domains, by domain and number.
    pub fn ended(&self) -> &BTreeSet<(DomainId, u32)> {
        &self.ended
    }

    /// The time of the last look.
    pub fn last_look(&self) -> Option<Timestamp> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look() -> Look {
        let arrival = |byte: u8, doubt| Arrival {
            snapshot: SnapshotId([byte; 16]),
            series: SeriesId([9; 16]),
            time: Timestamp(-7),
            doubt,
        };
        Look {
            time: Timestamp(1 << 40),
            arrivals: vec![
                arrival(1, None),
                arrival(2, Some(Doubt::Dated)),
                arrival(3, Some(Doubt::Shrunken)),
                arrival(4, Some(Doubt::Other(77))),
            ],
            accepted: vec![SnapshotId([2; 16])],
            ended: Vec::new(),
        }
    }

    #[test]
    fn a_look_comes_back_whole_or_not_at_all() {
        let ended =
            Look { ended: vec![(DomainId([7; 16]), 1), (DomainId([8; 16]), u32::MAX)], ..look() };
        for look in [look(), ended, Look::default()] {
            let bytes = look.pack();
            assert_eq!(Look::unpack(&bytes).unwrap(), look);
            for length in 0..bytes.len() {
                assert!(Look::unpack(&bytes[..length]).is_err(), "{length}");
            }
            assert!(Look::unpack(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    /// Frozen bytes, and a frozen series.
    #[test]
    fn a_look_that_was_made_is_read() {
        let mut small = look();
        small.arrivals.truncate(2);
        let packed: String = small.pack().iter().map(|byte| format!("{byte:02x}")).collect();
        let one = "84500101010101010101010101010101010150090909090909090909090909090909092600";
        let two = "84500202020202020202020202020202020250090909090909090909090909090909092601";
        let accepted = "028150020202020202020202020202020202 02".replace(' ', "");
        assert_eq!(packed, format!("a3001b00000100000000000182{one}{two}{accepted}"));
        let snapshot = Snapshot {
            domain: "laptop".to_owned(),
            host: "laptop".to_owned(),
            paths: vec![b"/home".to_vec()],
            ..Snapshot::empty(SnapshotId([1; 16]))
        };
        small.arrivals.clear();
        small.accepted.clear();
        small.ended = vec![(DomainId([7; 16]), 300)];
        let packed: String = small.pack().iter().map(|byte| format!("{byte:02x}")).collect();
        let ended = format!("03818250{}19012c", "07".repeat(16));
        assert_eq!(packed, format!("a4001b000001000000000001800280{ended}"));
        let series: String = SeriesId::of(&snapshot).0.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(series, "0a517f5a40bf337581a68281b3cc647f");
    }

    #[test]
    fn the_earliest_look_counts() {
        let mut arrivals = Arrivals::default();
        arrivals.push(&look());
        let mut later = look();
        later.time = Timestamp(1 << 41);
        later.arrivals[0].time = Timestamp(5);
        later.accepted.clear();
        arrivals.push(&later);
        let first = arrivals.seen(SnapshotId([1; 16])).unwrap();
        assert_eq!((first.at, first.arrival.time), (Timestamp(1 << 40), Timestamp(-7)));
        assert_eq!(arrivals.of_series(SeriesId([9; 16])).count(), 4);
        assert_eq!(arrivals.doubt(SnapshotId([2; 16])), None, "it was accepted");
        assert_eq!(arrivals.doubt(SnapshotId([3; 16])), Some(Doubt::Shrunken));
        assert_eq!(arrivals.last_look(), Some(Timestamp(1 << 41)));
    }
}
