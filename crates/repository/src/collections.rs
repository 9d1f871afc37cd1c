//! Collections: which slots are condemned, and which go. The protocol: `docs/concurrency.md`.
//!
//! ```text
//! collections/N.plan      what may go     exclusively; N begins at 1, and follows what is done
//! collections/N.verdict   what goes       exclusively, and final
//! collections/N.done      an end          once all of it is gone
//! collections/N.X.copy    the second copy of a plan or a verdict, once that is there
//! ```
//!
//! Plans and verdicts have the same form. The document: `docs/format/collection.md`.

mod read;
mod slots;
mod steps;

use std::collections::BTreeSet;

use minicbor::{Decoder, Encoder};
use strongroom_arena::decompress;
use strongroom_base::regimes::{Regime, reached};
use strongroom_base::{ArenaId, SizeLimits, SnapshotId};
use strongroom_catalog::FormatError;
use strongroom_catalog::format::decode_map;

use crate::error::RepositoryError;
use crate::names::Step;
use crate::repository::Repository;
use steps::{Found, read_end, read_step};

pub use read::{Collections, OpenCollection};
pub use slots::{ArenaSlots, SlotSets};
pub use steps::{confirm_verdict, create_plan, create_verdict, finish_collection, verdict_object};

mod key {
    pub const SNAPSHOTS: u64 = 0;
    pub const SLOTS_BYTES: u64 = 1;
    pub const SLOTS: u64 = 2;
    pub const SINCE: u64 = 3;
}

/// A plan or a verdict is read if it has at most this many bytes of slots before compression.
const SLOTS_BYTES_READ: usize = 32 << 20;
/// As many are written at most. With the snapshots and as much parity it is an object that is read.
pub const SLOTS_BYTES_MAX: usize = SizeLimits::DEFAULT.plan_slots_bytes_max;

/// A snapshot that goes, or is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forgotten {
    /// Its name.
    pub id: SnapshotId,
    /// The name of the domain that made it; empty for the owner's.
    pub domain: String,
    /// Its sequence: it is missing for a reason. 0 if that could not be read.
    pub sequence: u64,
}

impl Forgotten {
    /// It takes at most this many bytes in an object: its name, its sequence, and the numbers that
    /// say what follows.
    pub fn packed_bytes_max(&self) -> usize {
        SnapshotId::BYTES + self.domain.len() + 16
    }
}

/// What a plan condemns, or what a verdict removes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Snapshots.
    pub snapshots: Vec<Forgotten>,
    /// Slots of arenas.
    pub slots: SlotSets,
}

impl Selection {
    /// Its bytes.
    pub fn pack(&self) -> Vec<u8> {
        self.pack_since(0)
    }

    /// Its bytes; those of an end, unless `since` is 0.
    fn pack_since(&self, since: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut cbor = Encoder::new(&mut bytes);
        let slots = self.slots.pack();
        let compressed = zstd::bulk::compress(&slots, 3).expect("zstd compresses into its bound");
        let mut encode = || -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
            cbor.map(3 + u64::from(since > 0))?;
            cbor.u64(key::SNAPSHOTS)?.array(self.snapshots.len() as u64)?;
            for snapshot in &self.snapshots {
                cbor.array(3)?.bytes(&snapshot.id.0)?;
                cbor.str(&snapshot.domain)?.u64(snapshot.sequence)?;
            }
            cbor.u64(key::SLOTS_BYTES)?.u64(slots.len() as u64)?;
            cbor.u64(key::SLOTS)?.bytes(&compressed)?;
            if since > 0 {
                cbor.u64(key::SINCE)?.u64(since)?;
            }
            Ok(())
        };
        encode().expect("a vector takes all that is written to it");
        bytes
    }

    /// What is in `bytes`. A key that this program does not know is refused: what a newer one
    /// removes must not be removed in part.
    pub fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        match Self::unpack_since(bytes)? {
            (selection, 0) => Ok(selection),
            _ => Err(FormatError::damaged("collection", "it is an end")),
        }
    }

    fn unpack_since(bytes: &[u8]) -> Result<(Self, u64), FormatError> {
        use minicbor::decode::Error;
        let (mut selection, mut since) = (Self::default(), 0);
        let mut slots_bytes = 0;
        let mut cbor = Decoder::new(bytes);
        decode_map(&mut cbor, |cbor, number| {
            match number {
                key::SNAPSHOTS => {
                    for _ in 0..cbor.array()?.unwrap_or(0) {
                        selection.snapshots.push(decode_forgotten(cbor)?);
                    }
                }
                key::SLOTS_BYTES => slots_bytes = cbor.u64()? as usize,
                key::SLOTS => {
                    if slots_bytes > SLOTS_BYTES_READ {
                        return Err(Error::message("too many slots"));
                    }
                    let slots = decompress(cbor.bytes()?, slots_bytes);
                    let slots = slots.ok().filter(|slots| slots.len() == slots_bytes);
                    let slots = slots.and_then(|slots| SlotSets::unpack(&slots));
                    selection.slots = slots.ok_or_else(|| Error::message("slots out of order"))?;
                }
                key::SINCE => match cbor.u64()? {
                    0 => return Err(Error::message("an end of no collection")),
                    number => since = number,
                },
                _ => return Err(Error::message("a key that only a newer program knows")),
            }
            Ok(())
        })
        .map_err(|error| FormatError::damaged("collection", error))?;
        match cbor.position() == bytes.len() {
            true => Ok((selection, since)),
            false => Err(FormatError::damaged("collection", "bytes are left over")),
        }
    }
}

/// The end of a collection: what it and those before it have removed, so that a reader need not read
/// all verdicts. That of collection N covers as many as the greatest power of two that divides N, so
/// what N collections removed is read from at most log N ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The first collection that it covers.
    pub since: u64,
    /// The snapshots that went, and the arenas that went as a whole.
    pub removed: Selection,
}

impl End {
    /// Its bytes.
    pub fn pack(&self) -> Vec<u8> {
        self.removed.pack_since(self.since)
    }

    /// What is in `bytes`, which are those of the end of a collection.
    pub fn unpack(bytes: &[u8], number: u64) -> Result<Self, FormatError> {
        let (removed, since) = Selection::unpack_since(bytes)?;
        match (1..=number).contains(&since) {
            true => Ok(Self { since, removed }),
            false => Err(FormatError::damaged("collection", "an end of other collections")),
        }
    }

    /// The end of a collection with this verdict, which was not carried out in some arenas: those are
    /// as removed to a writer, and go once nothing needs them.
    fn of(
        repository: &Repository,
        number: u64,
        verdict: &Selection,
        put_off: &BTreeSet<ArenaId>,
    ) -> Result<Self, RepositoryError> {
        let least = number - (1 << number.trailing_zeros()) + 1;
        let mut end = Self { since: number, removed: Selection::default() };
        end.add(verdict);
        let put_off = put_off.iter().map(|arena| (*arena, ArenaSlots::All));
        end.removed.slots.0.extend(put_off);
        while end.since > least {
            let before = end.since - 1;
            let earlier = match read_end(repository, before)? {
                Found::Is(end) if end.since >= least => end,
                _ => match read_step(repository, before, Step::Verdict)? {
                    Found::Is(verdict) => Self { since: before, removed: verdict },
                    // A replica may give it back: no end claims to know what it said.
                    Found::Unreadable(_) => break,
                    Found::Forged | Found::Missing => {
                        Self { since: before, removed: Selection::default() }
                    }
                },
            };
            let so_far = end.removed.clone();
            end.add(&earlier.removed);
            let snapshots_bytes: usize =
                end.removed.snapshots.iter().map(Forgotten::packed_bytes_max).sum();
            let limits = &repository.limits;
            if end.removed.slots.packed_bytes() > limits.plan_slots_bytes_max
                || snapshots_bytes > limits.plan_snapshots_bytes_max
            {
                reached(Regime::EndCut);
                end.removed = so_far;
                break;
            }
            end.since = earlier.since;
        }
        Ok(end)
    }

    fn add(&mut self, verdict: &Selection) {
        self.removed.snapshots.extend(verdict.snapshots.iter().cloned());
        let all = verdict.slots.0.iter().filter(|(_, slots)| **slots == ArenaSlots::All);
        self.removed.slots.0.extend(all.map(|(arena, _)| (*arena, ArenaSlots::All)));
    }
}

fn decode_forgotten(cbor: &mut Decoder<'_>) -> Result<Forgotten, minicbor::decode::Error> {
    if cbor.array()? != Some(3) {
        return Err(minicbor::decode::Error::message("a snapshot is described by three items"));
    }
    let id = cbor.bytes()?.try_into();
    let id = id.map_err(|_| minicbor::decode::Error::message("a snapshot has 16 bytes"))?;
    Ok(Forgotten { id: SnapshotId(id), domain: cbor.str()?.to_owned(), sequence: cbor.u64()? })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn selection() -> Selection {
        let runs = ArenaSlots::Runs(vec![(3, 4), (9, 1)]);
        let slots = BTreeMap::from([(ArenaId([1; 16]), runs), (ArenaId([2; 16]), ArenaSlots::All)]);
        let forgotten = |byte: u8, domain: &str| Forgotten {
            id: SnapshotId([byte; 16]),
            domain: domain.to_owned(),
            sequence: u64::from(byte),
        };
        let snapshots = vec![forgotten(7, ""), forgotten(8, "laptop")];
        Selection { snapshots, slots: SlotSets(slots) }
    }

    #[test]
    fn a_selection_comes_back_whole_or_not_at_all() {
        let selection = selection();
        let bytes = selection.pack();
        assert_eq!(Selection::unpack(&bytes).unwrap(), selection);
        for length in 0..bytes.len() {
            assert!(Selection::unpack(&bytes[..length]).is_err(), "{length}");
        }
    }

    /// Frozen bytes. A new zstd may compress differently; these must be read for ever.
    #[test]
    fn a_plan_that_was_made_is_read() {
        let hex = "a300828350070707070707070707070707070707076007835008080808080808080808080808080808666c\
            6170746f700801183802582c28b52ffd20381d0100d80101020000000300000004000000090000000100\
            00000200000000020041c7648005";
        let bytes: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect();
        assert_eq!(Selection::unpack(&bytes).unwrap(), selection());
        let newer = [&[0xa4][..], &bytes[1..], &[4, 0]].concat();
        assert!(Selection::unpack(&newer).is_err(), "a key of a newer program");
        // The same with one key more is an end, of other arenas.
        let end = [&[0xa4][..], &bytes[1..], &[3, 5]].concat();
        let expected = End { since: 5, removed: selection() };
        assert_eq!(End::unpack(&end, 6).unwrap(), expected);
        assert_eq!(End::unpack(&expected.pack(), 5).unwrap(), expected);
        assert!(End::unpack(&end, 4).is_err(), "it covers later collections");
        assert!(End::unpack(&bytes, 6).is_err() && Selection::unpack(&end).is_err());
    }
}
