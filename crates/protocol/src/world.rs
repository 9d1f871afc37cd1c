//! What actors share: the store, and what every slot holds. And what is remembered of the past, by
//! which the properties judge the present.

use crate::scope::Scope;
use crate::set::Set;
use crate::store::{ARENAS, Answer, Body, Fate, Op, SLOTS, Store, slots_of};

/// A chunk in its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// What it holds: its fingerprint.
    pub content: u8,
    /// The slot of its base, if it is a delta. A base is never a delta.
    pub base: Option<u8>,
}

/// What happened, for the properties.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Past {
    /// Snapshots that were reported to a user as stored.
    pub acknowledged: Set,
    /// Sessions of which there was a tombstone.
    pub tombstones: Set,
    /// Snapshots of which a wish was reported to be taken back.
    pub taken_back: Set,
    /// Removed at once by a mutant's forgetter.
    pub forgotten_at_once: Set,
    /// Sessions whose writers took them for fenced.
    pub denied: Set,
    /// The store broke its promise, says a collector.
    pub alarm: bool,
}

/// What actors share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub store: Store,
    /// What each slot holds, once its writer has chosen it.
    pub chunks: [Option<Chunk>; SLOTS],
    pub past: Past,
    /// Answers that may still be lost.
    pub lost_answers: u8,
    /// A plan may still become unreadable.
    pub tears: bool,
}

impl World {
    pub fn new(scope: &Scope) -> Self {
        let mut store = Store::default();
        for arena in 0..2 {
            store.arenas[arena][0] = Some(slots_of(arena as u8));
        }
        // They share slot 1, and slot 2 is a delta from slot 0.
        for (snapshot, roots) in [(0, [1, 2]), (1, [1, 3])] {
            let body = Body::Snapshot { roots: Set::of(&roots), seen: 0 };
            store.snapshots[snapshot] = Some(body);
        }
        for snapshot in scope.unwanted.iter() {
            store.wishes[usize::from(snapshot)] = Set::of(&[1]);
        }
        let mut chunks = [None; SLOTS];
        for slot in 0..4 {
            let base = (slot == 2).then_some(0);
            chunks[usize::from(slot)] = Some(Chunk { content: slot, base });
        }
        Self {
            store,
            chunks,
            past: Past { acknowledged: Set::of(&[0, 1]), ..Past::default() },
            lost_answers: scope.lost_answers,
            tears: scope.tears,
        }
    }

    /// What may happen to what is sent now.
    pub fn fates(&self) -> &'static [Fate] {
        match self.lost_answers {
            0 => &[Fate::Answered],
            _ => &[Fate::Answered, Fate::Unanswered, Fate::Late],
        }
    }

    /// Sends something to the store.
    pub fn send(&mut self, op: Op, fate: Fate) -> Answer {
        if fate != Fate::Answered {
            self.lost_answers -= 1;
        }
        let answer = self.store.send(op, fate);
        self.note_tombstones();
        answer
    }

    pub fn note_tombstones(&mut self) {
        for (session, body) in self.store.snapshots.iter().enumerate() {
            if *body == Some(Body::Tombstone) {
                self.past.tombstones = self.past.tombstones.with(session as u8);
            }
        }
    }

    /// The bases of a slot.
    pub fn bases(&self, slot: u8) -> Set {
        self.chunks[usize::from(slot)].and_then(|chunk| chunk.base).into_iter().collect()
    }

    /// These slots and their bases.
    pub fn with_bases(&self, slots: Set) -> Set {
        slots.iter().fold(slots, |all, slot| all.or(self.bases(slot)))
    }

    /// What has to be kept for these references: the slots that they name, or, if one of those is
    /// not there, every slot of the same content; and all bases.
    pub fn reach(&self, roots: Set, present: Set) -> Set {
        let found = roots.iter().fold(roots, |all, slot| {
            let is_there = self.with_bases(Set::of(&[slot])).is_within(present);
            if is_there { all } else { all.or(self.same_content(slot).and(present)) }
        });
        self.with_bases(found)
    }

    fn same_content(&self, slot: u8) -> Set {
        let content = |slot: u8| self.chunks[usize::from(slot)].map(|chunk| chunk.content);
        (0..SLOTS as u8).filter(|other| content(*other) == content(slot)).collect()
    }
}

/// Every arena that has a place in the store.
pub fn arenas() -> impl Iterator<Item = u8> {
    0..ARENAS as u8
}
