//! The store: objects by name, and operations that were sent and may land at any time later.
//!
//! What is in an object is immutable. A name is created exclusively, except by a repair, which
//! writes the bytes of before back. An answer may be lost; then the sender does not know whether
//! the operation was done, and it may still be done later, or never.

use crate::set::Set;

/// Snapshots and sessions have numbers in common. The first two exist at the beginning.
pub const SNAPSHOTS: usize = 8;
/// The arenas 0 and 1 exist at the beginning and have two slots each. Session S writes arena S,
/// which has one slot.
pub const ARENAS: usize = 8;
/// Slots of all arenas.
pub const SLOTS: usize = 10;
/// An arena is rewritten by each collection, and once by a rescue.
pub const GENERATIONS: usize = 4;
/// Collections that a run has at most.
pub const COLLECTIONS: usize = 2;
/// The first session of a writer.
pub const FIRST_SESSION: u8 = 2;

/// The arena of a slot.
pub fn arena_of(slot: u8) -> u8 {
    if slot < 4 { slot / 2 } else { slot - 2 }
}

/// The slot that a session writes.
pub fn slot_of(session: u8) -> u8 {
    session + 2
}

/// The slots that an arena has in its first generation.
pub fn slots_of(arena: u8) -> Set {
    if arena < 2 { Set::of(&[2 * arena, 2 * arena + 1]) } else { Set::of(&[slot_of(arena)]) }
}

/// What has the name `snapshots/S`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Body {
    /// The session will never commit.
    Tombstone,
    /// A snapshot, which needs these slots and their bases.
    Snapshot {
        /// What it names.
        roots: Set,
        /// The newest collection that its writer had read of.
        seen: u8,
    },
}

/// `collections/N.plan`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Plan {
    /// The snapshots that go.
    pub forgotten: Set,
    /// The slots that no snapshot may come to need any more.
    pub condemned: Set,
}

impl Plan {
    /// What is known of a plan that cannot be read: it may name anything.
    pub const TORN: Self = Self { forgotten: Set::ALL, condemned: Set::ALL };
}

/// `collections/N.verdict`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Verdict {
    /// The snapshots that go.
    pub forgotten: Set,
    /// The slots that go.
    pub dead: Set,
    /// The arenas that go whole.
    pub gone: Set,
    /// The generation of each arena that is rewritten without its dead slots.
    pub rewritten: [Option<u8>; ARENAS],
    /// Of two names: the sessions whose snapshots were not there when their fences were.
    pub fenced: Set,
}

/// The objects of one collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Collection {
    pub plan: Option<Plan>,
    /// The plan exists and cannot be read.
    pub is_torn: bool,
    pub verdict: Option<Verdict>,
    pub done: bool,
}

impl Collection {
    /// The plan, as who reads it finds it.
    pub fn readable_plan(&self) -> Option<Plan> {
        if self.is_torn { self.plan.map(|_| Plan::TORN) } else { self.plan }
    }
}

/// What is sent to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    CreateSession(u8),
    RemoveSession(u8),
    CreateSnapshot(u8, Body),
    RemoveSnapshot(u8),
    PutFence(u8),
    /// Number K of the wishes about a snapshot. An odd number asks to forget it, an even one takes
    /// the wish back; the greatest counts.
    CreateWish(u8, u8),
    RemoveWish(u8, u8),
    CreatePlan(u8, Plan),
    RemovePlan(u8),
    CreateVerdict(u8, Verdict),
    /// Not exclusive: for a mutant.
    PutVerdict(u8, Verdict),
    CreateDone(u8),
    CreateArena {
        arena: u8,
        generation: u8,
        slots: Set,
    },
    /// What a repair does to a damaged arena.
    PutArena {
        arena: u8,
        generation: u8,
        slots: Set,
    },
    RemoveArena {
        arena: u8,
        generation: u8,
    },
}

/// The store's answer to a create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Ok,
    /// Something has that name.
    Exists,
    /// None came.
    Lost,
}

/// What happens to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It is done and answered.
    Answered,
    /// It is done; the answer is lost.
    Unanswered,
    /// The answer is lost, and it is done at some later time, or never.
    Late,
}

/// All objects, and what may land.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Store {
    pub sessions: Set,
    pub snapshots: [Option<Body>; SNAPSHOTS],
    /// Where a fence has a name of its own.
    pub fences: Set,
    pub wishes: [Set; SNAPSHOTS],
    pub collections: [Collection; COLLECTIONS],
    pub arenas: [[Option<Set>; GENERATIONS]; ARENAS],
    /// Sorted; each at most once.
    pub pending: Vec<Op>,
}

impl Store {
    /// Sends an operation.
    pub fn send(&mut self, op: Op, fate: Fate) -> Answer {
        match fate {
            Fate::Answered => self.apply(op),
            Fate::Unanswered => {
                self.apply(op);
                Answer::Lost
            }
            Fate::Late => {
                if let Err(place) = self.pending.binary_search(&op) {
                    self.pending.insert(place, op);
                }
                Answer::Lost
            }
        }
    }

    /// Lets a pending operation land.
    pub fn land(&mut self, op: Op) {
        if let Ok(place) = self.pending.binary_search(&op) {
            self.pending.remove(place);
        }
        self.apply(op);
    }

    fn apply(&mut self, op: Op) -> Answer {
        match op {
            Op::CreateSession(session) => {
                if self.sessions.has(session) {
                    return Answer::Exists;
                }
                self.sessions = self.sessions.with(session);
            }
            Op::RemoveSession(session) => self.sessions = self.sessions.without(session),
            Op::CreateSnapshot(session, body) => {
                return create(&mut self.snapshots[usize::from(session)], body);
            }
            Op::RemoveSnapshot(session) => self.snapshots[usize::from(session)] = None,
            Op::PutFence(session) => self.fences = self.fences.with(session),
            Op::CreateWish(snapshot, number) => {
                let wishes = &mut self.wishes[usize::from(snapshot)];
                if wishes.has(number) {
                    return Answer::Exists;
                }
                *wishes = wishes.with(number);
            }
            Op::RemoveWish(snapshot, number) => {
                let wishes = &mut self.wishes[usize::from(snapshot)];
                *wishes = wishes.without(number);
            }
            Op::CreatePlan(number, plan) => {
                return create(&mut self.collection_mut(number).plan, plan);
            }
            Op::RemovePlan(number) => {
                let collection = self.collection_mut(number);
                (collection.plan, collection.is_torn) = (None, false);
            }
            Op::CreateVerdict(number, verdict) => {
                return create(&mut self.collection_mut(number).verdict, verdict);
            }
            Op::PutVerdict(number, verdict) => {
                self.collection_mut(number).verdict = Some(verdict);
            }
            Op::CreateDone(number) => self.collection_mut(number).done = true,
            Op::CreateArena { arena, generation, slots } => {
                let object = &mut self.arenas[usize::from(arena)][usize::from(generation)];
                return create(object, slots);
            }
            Op::PutArena { arena, generation, slots } => {
                self.arenas[usize::from(arena)][usize::from(generation)] = Some(slots);
            }
            Op::RemoveArena { arena, generation } => {
                self.arenas[usize::from(arena)][usize::from(generation)] = None;
            }
        }
        Answer::Ok
    }

    /// The collection of this number, which begins with 1.
    pub fn collection(&self, number: u8) -> Collection {
        self.collections.get(usize::from(number) - 1).copied().unwrap_or_default()
    }

    pub fn collection_mut(&mut self, number: u8) -> &mut Collection {
        &mut self.collections[usize::from(number) - 1]
    }

    /// The newest generation of an arena, which is the one that is read, and its slots.
    pub fn newest(&self, arena: u8) -> Option<(u8, Set)> {
        let generations = self.arenas[usize::from(arena)].iter().enumerate();
        generations.rev().find_map(|(number, slots)| slots.map(|slots| (number as u8, slots)))
    }

    pub fn generation(&self, arena: u8, generation: u8) -> Option<Set> {
        self.arenas[usize::from(arena)].get(usize::from(generation)).copied().flatten()
    }

    /// A listing of the arenas, and their summaries: every slot that can be read.
    pub fn present(&self) -> Set {
        let arenas = (0..ARENAS as u8).filter_map(|arena| self.newest(arena));
        arenas.fold(Set::EMPTY, |all, (_, slots)| all.or(slots))
    }

    /// A listing of the snapshots. Tombstones are none.
    pub fn snapshots(&self) -> Set {
        (0..SNAPSHOTS as u8).filter(|snapshot| self.roots(*snapshot).is_some()).collect()
    }

    /// What a snapshot names. Of two names, it is none if a verdict says that its fence was first; a
    /// fence without a verdict means nothing, because it may have landed late.
    pub fn roots(&self, snapshot: u8) -> Option<Set> {
        match self.snapshots[usize::from(snapshot)]? {
            Body::Tombstone => None,
            Body::Snapshot { .. }
                if self.verdicts().any(|verdict| verdict.fenced.has(snapshot)) =>
            {
                None
            }
            Body::Snapshot { roots, .. } => Some(roots),
        }
    }

    pub fn verdicts(&self) -> impl Iterator<Item = Verdict> {
        self.collections.iter().filter_map(|collection| collection.verdict)
    }

    /// Whether the last that was wished is that a snapshot be forgotten.
    pub fn is_unwanted(&self, snapshot: u8) -> bool {
        self.wishes[usize::from(snapshot)].last().is_some_and(|number| number % 2 == 1)
    }
}

fn create<T>(object: &mut Option<T>, value: T) -> Answer {
    if object.is_some() {
        return Answer::Exists;
    }
    *object = Some(value);
    Answer::Ok
}
