//! Collections: which slots are condemned, and which go. The protocol: `docs/concurrency.md`.
//!
//! ```text
//! collections/N.plan      what may go     exclusively; N begins at 1, and follows what is done
//! collections/N.verdict   what goes       exclusively, and final
//! collections/N.done      an end          once all of it is gone
//! ```
//!
//! Plans and verdicts have the same form. The document: `docs/format/collection.md`.

mod slots;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use minicbor::{Decoder, Encoder};
use strongroom_arena::decompress;
use strongroom_backend::{ObjectName, both};
use strongroom_base::regimes::{Regime, reached};
use strongroom_base::{ArenaId, Location, SizeLimits, SnapshotId};
use strongroom_catalog::FormatError;
use strongroom_catalog::format::decode_map;

use crate::error::RepositoryError;
use crate::names::{COLLECTIONS_FOLDER, Step};
use crate::repository::Repository;
use crate::signed;

pub use slots::{ArenaSlots, SlotSets};

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

    /// The end of a collection with this verdict.
    fn of(
        repository: &Repository,
        number: u64,
        verdict: &Selection,
    ) -> Result<Self, RepositoryError> {
        let least = number - (1 << number.trailing_zeros()) + 1;
        let mut end = Self { since: number, removed: Selection::default() };
        end.add(verdict);
        while end.since > least {
            let before = end.since - 1;
            let earlier = match read_end(repository, before)?.filter(|end| end.since >= least) {
                Some(end) => end,
                None => {
                    let verdict = read_step(repository, before, Step::Verdict)?.unwrap_or_default();
                    Self { since: before, removed: verdict }
                }
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

/// A collection that is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCollection {
    /// Its number.
    pub number: u64,
    /// What it may remove, or, once decided, what it removes.
    pub selection: Selection,
    /// Whether there is a verdict.
    pub decided: bool,
}

/// All collections, as a writer has to know them (W2).
#[derive(Debug, Default)]
pub struct Collections {
    /// The greatest number of one that was planned; 0 if there was none.
    pub last: u64,
    /// The number of the next.
    pub next: u64,
    /// The last, if it is not done.
    pub open: Option<OpenCollection>,
    gone: HashMap<SnapshotId, Forgotten>,
    /// In an order, so that what a collector does can be replayed.
    dead: BTreeSet<ArenaId>,
}

impl Collections {
    /// How far they have come: it differs if a plan, a verdict or an end was created in between.
    pub fn step(&self) -> (u64, Option<bool>) {
        (self.last, self.open.as_ref().map(|open| open.decided))
    }

    /// Reads them.
    ///
    /// # Errors
    ///
    /// Fails if a plan or a verdict cannot be read: what goes is not known then. One that the owner
    /// did not make does not count.
    pub fn read(repository: &Repository) -> Result<Self, RepositoryError> {
        Ok(Self::read_and(repository, || ())?.0)
    }

    /// Reads them, and does what may be done once they are listed and read: far away at the time at
    /// which it is asked whether one went through meanwhile. If one did, it is done again.
    ///
    /// # Errors
    ///
    /// As for [`Collections::read`].
    pub fn read_and<T: Send>(
        repository: &Repository,
        then: impl Fn() -> T + Sync,
    ) -> Result<(Self, T), RepositoryError> {
        let in_flight = repository.backend().promises().in_flight;
        loop {
            let Some((all, verdict)) = Self::read_listed(repository)? else { continue };
            let (done, went_through) = both(in_flight, &then, || {
                Ok::<_, RepositoryError>(!is_missing(repository, &verdict)?)
            });
            if !went_through? {
                return Ok((all, done));
            }
        }
    }

    /// Those that a listing shows, and the verdict that must not exist: if it does, a collection went
    /// through while they were listed and read. None if that is known already: a plan vanished.
    fn read_listed(repository: &Repository) -> Result<Option<(Self, ObjectName)>, RepositoryError> {
        let mut steps: BTreeMap<u64, Vec<Step>> = BTreeMap::new();
        for info in repository.backend().list(COLLECTIONS_FOLDER)? {
            if let Some((number, step)) = Step::of(info.name.file()) {
                steps.entry(number).or_default().push(step);
            }
        }
        let mut all = Self::default();
        let mut covered = u64::MAX;
        for (number, steps) in steps.iter().rev() {
            if *number >= covered {
                continue;
            }
            let end = match steps.contains(&Step::Done) {
                true => read_end(repository, *number)?,
                false => None,
            };
            if let Some(End { since, removed }) = end {
                all.remove(&removed);
                all.last = all.last.max(*number);
                covered = since;
                continue;
            }
            let verdict = match steps.contains(&Step::Verdict) {
                true => read_step(repository, *number, Step::Verdict)?,
                false => None,
            };
            let decided = verdict.is_some();
            if let Some(verdict) = &verdict {
                all.remove(verdict);
            }
            let selection = match verdict {
                None if steps.contains(&Step::Plan) => {
                    let plan = read_step(repository, *number, Step::Plan)?;
                    let name = Step::Plan.object(*number);
                    if plan.is_none() && is_missing(repository, &name)? {
                        return Ok(None);
                    }
                    plan
                }
                verdict => verdict,
            };
            if let Some(selection) = selection.filter(|_| all.last == 0) {
                all.last = *number;
                all.open = Some(OpenCollection { number: *number, selection, decided });
            }
        }
        // Names that others have planted are passed over.
        all.next = (all.last + 1..).find(|number| !steps.contains_key(number)).unwrap_or(u64::MAX);
        // A plan may vanish before the listing comes to it; it may also be created again, by a
        // collector that has slept, before it is read here. A verdict never vanishes.
        let undecided = all.open.as_ref().filter(|open| !open.decided).map(|open| open.number);
        let undecided = undecided.filter(|number| !steps[number].contains(&Step::Verdict));
        let verdict = Step::Verdict.object(undecided.unwrap_or(all.next));
        Ok(Some((all, verdict)))
    }

    fn remove(&mut self, verdict: &Selection) {
        self.gone.extend(verdict.snapshots.iter().map(|gone| (gone.id, gone.clone())));
        let arenas = verdict.slots.0.iter();
        let whole = arenas.filter(|(_, slots)| **slots == ArenaSlots::All);
        self.dead.extend(whole.map(|(arena, _)| *arena));
    }

    /// Whether a verdict removed a snapshot. Then it does not exist, even if there is an object.
    pub fn is_gone(&self, snapshot: SnapshotId) -> bool {
        self.gone.contains_key(&snapshot)
    }

    /// The snapshots that verdicts removed.
    pub fn gone(&self) -> impl Iterator<Item = &Forgotten> {
        self.gone.values()
    }

    /// The arenas that verdicts removed.
    pub fn dead(&self) -> impl Iterator<Item = ArenaId> {
        self.dead.iter().copied()
    }

    /// Whether a snapshot is gone, or may go: it is no parent (W4).
    pub fn may_go(&self, snapshot: SnapshotId) -> bool {
        let open = self.open.as_ref();
        self.is_gone(snapshot)
            || open.is_some_and(|open| open.selection.snapshots.iter().any(|f| f.id == snapshot))
    }

    /// Whether a verdict removed an arena. Then it does not exist, even if there is an object.
    pub fn is_dead(&self, arena: ArenaId) -> bool {
        self.dead.contains(&arena)
    }

    /// Whether a writer may not rely on a slot, unless its parent does (W5).
    pub fn excludes(&self, location: Location) -> bool {
        let open = self.open.as_ref();
        self.is_dead(location.arena)
            || open.is_some_and(|open| open.selection.slots.contains(location))
    }
}

fn is_missing(repository: &Repository, name: &ObjectName) -> Result<bool, RepositoryError> {
    match repository.backend().size(name) {
        Ok(_) => Ok(false),
        Err(error) if error.is_not_found() => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The content of a step's object; none if it is gone, or if the owner did not make it.
fn read_step(
    repository: &Repository,
    number: u64,
    step: Step,
) -> Result<Option<Selection>, RepositoryError> {
    let name = step.object(number);
    let Some(content) = read_content(repository, &name)? else { return Ok(None) };
    let wrong = |source| RepositoryError::Format { name: name.clone(), source };
    Selection::unpack(&content).map(Some).map_err(wrong)
}

/// The end of a collection; none if it is gone, or if the owner did not make it.
fn read_end(repository: &Repository, number: u64) -> Result<Option<End>, RepositoryError> {
    let name = Step::Done.object(number);
    let Some(content) = read_content(repository, &name)? else { return Ok(None) };
    let wrong = |source| RepositoryError::Format { name: name.clone(), source };
    End::unpack(&content, number).map(Some).map_err(wrong)
}

fn read_content(
    repository: &Repository,
    name: &ObjectName,
) -> Result<Option<Vec<u8>>, RepositoryError> {
    match signed::read(repository, name) {
        Ok(content) => Ok(Some(content)),
        Err(RepositoryError::Forged { .. }) => Ok(None),
        Err(RepositoryError::Backend(error)) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates a plan (C3). Returns false if another collector was faster.
pub fn create_plan(
    repository: &Repository,
    number: u64,
    plan: &Selection,
) -> Result<bool, RepositoryError> {
    signed::create(repository, &Step::Plan.object(number), &plan.pack())
}

/// Creates a verdict (C7), and returns the one that counts; false beside it if it is another
/// collector's.
pub fn create_verdict(
    repository: &Repository,
    number: u64,
    verdict: &Selection,
) -> Result<(Selection, bool), RepositoryError> {
    let name = Step::Verdict.object(number);
    // The answer to an earlier call may have been lost: what is there decides.
    let created = signed::create(repository, &name, &verdict.pack());
    match read_step(repository, number, Step::Verdict)? {
        Some(found) => {
            let is_own = found == *verdict && !matches!(created, Ok(false));
            Ok((found, is_own))
        }
        None => match created {
            Err(error) => Err(error),
            Ok(_) => Err(RepositoryError::Forged { name }),
        },
    }
}

/// Ends a collection all of whose verdict is carried out (C9).
pub fn finish_collection(
    repository: &Repository,
    number: u64,
    verdict: &Selection,
) -> Result<(), RepositoryError> {
    let name = Step::Done.object(number);
    if !signed::create(repository, &name, &End::of(repository, number, verdict)?.pack())? {
        // Another collector's, unless it is forged.
        signed::read(repository, &name)?;
    }
    match repository.backend().remove(&Step::Plan.object(number)) {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
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
