//! The arenas that the index was made from, in the bytes of its note: 41 for each, and for any
//! number of them some eight for finding it by its name.
//!
//! Invariants:
//!
//! * An arena's place in the list, its *ordinal*, is never given to another.
//! * At most one arena of a name exists.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

use strongroom_arena::{ArenaName, ListedArena};
use strongroom_base::le::{LeReader, LengthError};
use strongroom_base::{ArenaId, SnapshotId};

/// An arena that the index was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Covered {
    /// Its name.
    pub id: ArenaId,
    /// The generation in which it was read.
    pub generation: u32,
    /// Bytes of its object. One that was cut short since has lost chunks.
    pub object_bytes: u64,
    /// How many chunks of it were put into the index.
    pub chunks: u32,
    /// True if chunks in it are deltas, of chunks in other arenas.
    pub has_deltas: bool,
    /// True if a base of them may be gone: each is looked for before one of them is relied on.
    pub is_unchecked: bool,
    /// False once it vanished or was rewritten; its ordinal is not used again.
    pub exists: bool,
    /// False for an arena of another domain that the owner has not vouched for: nothing of it is
    /// in the index. It is in the list so that its summary is not read again each time.
    pub trusted: bool,
    /// The session that wrote it.
    pub session: SessionTag,
}

/// The first eight bytes of a session's name: enough to distinguish the sessions of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionTag(u64);

impl SessionTag {
    /// That of a session.
    pub fn of(session: SnapshotId) -> Self {
        let first = session.0.first_chunk().expect("a session's name is longer than eight bytes");
        Self(u64::from_le_bytes(*first))
    }
}

impl Covered {
    /// An arena that exists, of which nothing else is known yet.
    fn new(ListedArena { name, object_bytes }: ListedArena, trusted: bool) -> Self {
        let ArenaName { id, generation } = name;
        Self {
            id,
            generation,
            object_bytes,
            chunks: 0,
            has_deltas: false,
            is_unchecked: false,
            exists: true,
            trusted,
            session: SessionTag::default(),
        }
    }

    /// The arena in the form of a listing.
    pub fn listed(&self) -> ListedArena {
        let name = ArenaName { id: self.id, generation: self.generation };
        ListedArena { name, object_bytes: self.object_bytes }
    }
}

/// Deltas whose bases are gone, and slots that do not hold what they should, by ordinal and slot.
pub type Orphans = BTreeSet<(u32, u32)>;

/// The list of arenas.
#[derive(Debug)]
pub struct Arenas {
    /// `version | arenas | respected (8) | per arena: id (16), generation (4), bytes (8), session (8),
    /// chunks (4), flags (1)`, and while it is written down `orphans: ordinal (4), slot (4)`. The
    /// number of arenas is right only then.
    note: Vec<u8>,
    /// Ordinals of arenas that exist or existed. Each is at the place that the name's hash gives
    /// or, if that was taken, at the next free one. The number of places is a power of two, and at
    /// least half of them are [`VACANT`].
    places: Vec<u32>,
    hasher: RandomState,
}

const VERSION: u8 = 7;
const HEAD_BYTES: usize = 13;
const COUNT: std::ops::Range<usize> = 1..5;
const RESPECTED: std::ops::Range<usize> = 5..HEAD_BYTES;
const ARENA_BYTES: usize = 41;
const ORPHAN_BYTES: usize = 8;

const VACANT: u32 = u32::MAX;
const PLACES_MIN: usize = 16;

impl Default for Arenas {
    fn default() -> Self {
        let places = vec![VACANT; PLACES_MIN];
        let mut note = vec![0; HEAD_BYTES];
        note[0] = VERSION;
        Self { note, places, hasher: random_state() }
    }
}

impl Arenas {
    /// The list in a note, and the deltas whose bases are gone; `None` if this program does not
    /// know the note.
    pub fn from_note(mut note: Vec<u8>) -> Option<(Self, Orphans)> {
        if note.is_empty() {
            return Some((Self::default(), Orphans::new()));
        }
        let (head, rest) = note.split_first_chunk::<HEAD_BYTES>()?;
        (head[0] == VERSION).then_some(())?;
        let count = LeReader::new(&head[COUNT]).u32().ok()?;
        let (arenas, orphans) = rest.split_at_checked(count as usize * ARENA_BYTES)?;
        let (orphans, []) = orphans.as_chunks::<ORPHAN_BYTES>() else { return None };
        let orphans = orphans.iter().map(|bytes| {
            let mut fields = LeReader::new(bytes);
            let (ordinal, slot) = (fields.u32().ok()?, fields.u32().ok()?);
            (ordinal < count).then_some((ordinal, slot))
        });
        let orphans = orphans.collect::<Option<Orphans>>()?;
        let arenas_end = HEAD_BYTES + arenas.len();
        note.truncate(arenas_end);
        let mut list = Self { note, ..Self::default() };
        list.find_places();
        Some((list, orphans))
    }

    /// Calls `act` with the note of this list and these deltas, without a second copy of it.
    pub fn with_note<T>(&mut self, orphans: &Orphans, act: impl FnOnce(&[u8]) -> T) -> T {
        let arenas_end = self.note.len();
        let count = self.len();
        self.note[COUNT].copy_from_slice(&count.to_le_bytes());
        for (ordinal, slot) in orphans {
            self.note.extend(ordinal.to_le_bytes());
            self.note.extend(slot.to_le_bytes());
        }
        let outcome = act(&self.note);
        self.note.truncate(arenas_end);
        outcome
    }

    /// The greatest collection because of which the bases of deltas are looked for again.
    pub fn respected(&self) -> u64 {
        let number = LeReader::new(&self.note[RESPECTED]).u64();
        number.expect("the head of the note has it")
    }

    /// Notes that the bases of every delta are looked for again because of a collection.
    pub fn respect(&mut self, collection: u64) {
        let number = self.respected().max(collection);
        self.note[RESPECTED].copy_from_slice(&number.to_le_bytes());
    }

    /// How many there are, with those that no longer exist.
    pub fn len(&self) -> u32 {
        ordinal_of((self.note.len() - HEAD_BYTES) / ARENA_BYTES)
    }

    /// The arena of an ordinal, even if it no longer exists.
    pub fn get(&self, ordinal: u32) -> Option<Covered> {
        let (arenas, _) = self.note[HEAD_BYTES..].as_chunks::<ARENA_BYTES>();
        unpack(arenas.get(ordinal as usize)?).ok()
    }

    /// The arena of an ordinal, if it exists.
    pub fn existing(&self, ordinal: u32) -> Option<Covered> {
        self.get(ordinal).filter(|covered| covered.exists)
    }

    /// Changes what is known of an arena, but not its name. The ordinal is of this list.
    pub fn update(&mut self, ordinal: u32, change: impl FnOnce(&mut Covered)) {
        let mut covered = self.get(ordinal).expect("ordinals are of this list");
        let id = covered.id;
        change(&mut covered);
        assert_eq!(covered.id, id, "an ordinal is never given to another arena");
        let begin = HEAD_BYTES + ordinal as usize * ARENA_BYTES;
        self.note[begin..begin + ARENA_BYTES].copy_from_slice(&pack(&covered));
    }

    /// The ordinal of the existing arena of this name.
    pub fn find(&self, id: ArenaId) -> Option<u32> {
        let ordinal = self.places[self.place_of(id)];
        self.existing(ordinal).map(|_| ordinal)
    }

    /// Appends an arena that exists, and returns its ordinal. No existing arena in the list may
    /// have its name.
    pub fn push(&mut self, listed: ListedArena) -> u32 {
        self.push_covered(listed, true)
    }

    /// The same for an arena that is not trusted.
    pub fn push_untrusted(&mut self, listed: ListedArena) -> u32 {
        self.push_covered(listed, false)
    }

    fn push_covered(&mut self, listed: ListedArena, trusted: bool) -> u32 {
        let covered = Covered::new(listed, trusted);
        assert_eq!(self.find(covered.id), None, "an arena is taken up once");
        let ordinal = self.len();
        self.note.extend(pack(&covered));
        if self.places.len() < 2 * (ordinal as usize + 1) {
            self.find_places();
        } else {
            let place = self.place_of(covered.id);
            self.places[place] = ordinal;
        }
        ordinal
    }

    /// Finds new places for all that exist.
    fn find_places(&mut self) {
        let places = (2 * self.len() as usize).next_power_of_two().max(PLACES_MIN);
        self.places.clear();
        // Twice as many each time, and never more.
        self.places.reserve_exact(places);
        self.places.resize(places, VACANT);
        for ordinal in 0..self.len() {
            if let Some(covered) = self.existing(ordinal) {
                let place = self.place_of(covered.id);
                self.places[place] = ordinal;
            }
        }
    }

    /// Where the ordinal of this name is among the places, or where it would be.
    fn place_of(&self, id: ArenaId) -> usize {
        let last = self.places.len() - 1;
        let mut place = self.hasher.hash_one(id) as usize & last;
        // Ends at a vacant place, of which there are as many as others.
        while let Some(covered) = self.get(self.places[place])
            && covered.id != id
        {
            place = (place + 1) & last;
        }
        place
    }
}

fn ordinal_of(place: usize) -> u32 {
    // The list is as long as arenas were ever made.
    u32::try_from(place).expect("far fewer than 2^32 arenas")
}

fn pack(covered: &Covered) -> [u8; ARENA_BYTES] {
    let mut bytes = [0; ARENA_BYTES];
    let flags = [covered.exists, covered.has_deltas, covered.trusted, covered.is_unchecked];
    bytes[..16].copy_from_slice(&covered.id.0);
    bytes[16..20].copy_from_slice(&covered.generation.to_le_bytes());
    bytes[20..28].copy_from_slice(&covered.object_bytes.to_le_bytes());
    bytes[28..36].copy_from_slice(&covered.session.0.to_le_bytes());
    bytes[36..40].copy_from_slice(&covered.chunks.to_le_bytes());
    bytes[40] = (0..).zip(flags).map(|(bit, flag)| u8::from(flag) << bit).sum();
    bytes
}

fn unpack(bytes: &[u8; ARENA_BYTES]) -> Result<Covered, LengthError> {
    let mut fields = LeReader::new(bytes);
    let id = ArenaId(fields.array()?);
    let generation = fields.u32()?;
    let object_bytes = fields.u64()?;
    let session = SessionTag(fields.u64()?);
    let chunks = fields.u32()?;
    let flags = fields.u8()?;
    let [exists, has_deltas, trusted, is_unchecked] = [0, 1, 2, 3].map(|bit| flags >> bit & 1 != 0);
    fields.finish()?;
    Ok(Covered {
        id,
        generation,
        object_bytes,
        chunks,
        has_deltas,
        is_unchecked,
        exists,
        trusted,
        session,
    })
}

/// Keys of a hash table: random, so that names of arenas cannot be chosen to collide.
#[expect(clippy::disallowed_methods, reason = "nothing that is stored or reported depends on it")]
fn random_state() -> RandomState {
    RandomState::new()
}

#[cfg(test)]
mod tests;
