//! A writer: steps W1 to W10. It begins sessions until one commits.

use crate::mutant::Mutant;
use crate::scope::{Decision, Scope};
use crate::set::Set;
use crate::store::{Answer, Body, FIRST_SESSION, Fate, Op, Plan, arena_of, slot_of};
use crate::world::{Chunk, World};

/// Where a writer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    /// W1: about to create the session.
    Begin,
    /// The answer was lost: is the session there?
    Confirm,
    /// W4: about to look which snapshots there are. This comes first, because it may: an engine may
    /// do it at any time up to the choice.
    Look,
    /// W2: about to read plan N.
    Plan(u8),
    /// W3: about to list what exists. Plan N is read, and its verdict is not, because an engine may
    /// do these two at the same time.
    List(u8, Option<Plan>),
    /// W2: about to read verdict N. What plan N was is known.
    Verdict(u8, Option<Plan>),
    /// W4, W5: about to choose what the snapshot names.
    Choose,
    /// W6: about to create the arena.
    Store,
    /// The answer was lost: is the arena there?
    LookForArena,
    /// W8: about to create the snapshot.
    Commit,
    /// What has the name of the snapshot?
    LookForDecision,
    /// Two names: the snapshot is put. Is there a fence?
    LookForFence,
    /// W9: about to create a tombstone.
    Withdraw,
    /// About to remove the session.
    End,
    Stopped,
}

/// What a snapshot is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content {
    /// The parent, and what is taken over from it without a look at any list (W4).
    pub parent: Option<(u8, Set)>,
    /// A slot that is named because its content is wanted (W5).
    pub reused: Option<u8>,
    /// What is stored, whether or not it exists elsewhere.
    pub stored: Option<Chunk>,
}

/// What a writer does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Reads.
    Read,
    /// Finds a snapshot that may become the parent, and what it may take over from that, or none.
    Find(Option<(u8, Set)>),
    /// Decides what is in the snapshot.
    Choose(Content),
    /// Sends what is next.
    Send(Fate),
    /// Gives up. Nothing was sent yet, so the session is removed.
    GiveUp(Fate),
    /// Gives up, after a commit was sent: asks for a tombstone.
    Withdraw,
}

/// A writer, and what it knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Writer {
    at: At,
    session: u8,
    /// Sessions that it may begin after this one.
    left: u8,
    /// Slots that verdicts removed.
    dead: Set,
    /// Slots that a plan without a verdict condemns.
    held: Set,
    /// Snapshots that go, or are gone.
    gone: Set,
    /// The newest collection that it read of.
    seen: u8,
    /// The slots that existed when it listed.
    present: Set,
    /// What it found of a snapshot that may become the parent.
    parent: Option<(u8, Set)>,
    roots: Set,
    stored: Option<Chunk>,
    is_commit_sent: bool,
}

impl Writer {
    /// Writer number N.
    pub fn new(scope: &Scope, number: u8) -> Self {
        let mut writer = Self {
            at: At::Begin,
            session: FIRST_SESSION + number * scope.attempts,
            left: scope.attempts - 1,
            dead: Set::EMPTY,
            held: Set::EMPTY,
            gone: Set::EMPTY,
            seen: 0,
            present: Set::EMPTY,
            parent: None,
            roots: Set::EMPTY,
            stored: None,
            is_commit_sent: false,
        };
        if scope.has(Mutant::ReadsPlansBeforeItsSession) {
            writer.at = At::Plan(1);
        }
        writer
    }

    /// A session is never used again after a lost answer or a tombstone.
    fn begin_again(&mut self, scope: &Scope, world: &mut World) {
        world.past.denied = world.past.denied.with(self.session);
        if self.left == 0 {
            self.at = At::Stopped;
            return;
        }
        let next = Self { session: self.session + 1, left: self.left - 1, ..Self::new(scope, 0) };
        *self = next;
    }

    /// The name of its present step, for the report of a path.
    pub fn place(&self) -> String {
        format!("{:?}", self.at)
    }

    /// All that it may do next.
    pub fn steps(&self, scope: &Scope, world: &World, offer: &mut dyn FnMut(Step)) {
        let fates = world.fates().iter().copied();
        match self.at {
            At::Stopped => {}
            At::Confirm
            | At::Plan(_)
            | At::List(..)
            | At::Verdict(..)
            | At::LookForArena
            | At::LookForDecision
            | At::LookForFence => offer(Step::Read),
            At::Look => {
                offer(Step::Find(None));
                for parent in world.store.snapshots().iter() {
                    let roots = world.store.roots(parent).unwrap_or_default();
                    roots.iter().for_each(|root| {
                        offer(Step::Find(Some((parent, Set::of(&[root])))));
                    });
                }
            }
            At::Choose => self.choices(scope, world, &mut |content| offer(Step::Choose(content))),
            At::Commit if self.is_commit_sent => {
                fates.map(Step::Send).for_each(&mut *offer);
                if scope.decision == Decision::OneName {
                    offer(Step::Withdraw);
                }
            }
            At::Store | At::Commit => {
                fates.clone().map(Step::Send).for_each(&mut *offer);
                fates.map(Step::GiveUp).for_each(offer);
            }
            At::Begin | At::Withdraw | At::End => fates.map(Step::Send).for_each(offer),
        }
    }

    /// Every snapshot that the protocol lets it make now.
    fn choices(&self, scope: &Scope, world: &World, offer: &mut dyn FnMut(Content)) {
        let gone = if scope.has(Mutant::ParentMayBeForgotten) { Set::EMPTY } else { self.gone };
        let parent = self.parent.filter(|(parent, _)| !gone.has(*parent));
        for parent in parent.map(Some).into_iter().chain([None]) {
            let reach = parent.map_or(Set::EMPTY, |(_, roots)| world.with_bases(roots));
            if parent.is_some() {
                offer(Content { parent, reused: None, stored: None });
            }
            if parent.is_some() && !scope.stores {
                continue;
            }
            for content in scope.contents.iter() {
                // An index or a service may name any slot; W5 decides.
                for slot in
                    (0..world.chunks.len() as u8).filter(|slot| self.may_use(scope, world, *slot))
                {
                    let chunk = world.chunks[usize::from(slot)];
                    if chunk.is_some_and(|chunk| chunk.content == content) {
                        offer(Content { parent, reused: Some(slot), stored: None });
                    }
                }
                if !scope.stores {
                    continue;
                }
                let bases = (0..world.chunks.len() as u8).filter(|slot| {
                    let is_whole = world.chunks[usize::from(*slot)]
                        .is_some_and(|chunk| chunk.base.is_none() && chunk.content != content);
                    is_whole && (reach.has(*slot) || self.may_be_base(scope, world, *slot))
                });
                for base in bases.map(Some).chain([None]) {
                    offer(Content { parent, reused: None, stored: Some(Chunk { content, base }) });
                }
            }
        }
    }

    /// W5: whether a slot may be named.
    fn may_use(&self, scope: &Scope, world: &World, slot: u8) -> bool {
        let excluded = match scope.mutant {
            Some(Mutant::UsesWhatIsHeld) => self.dead,
            Some(Mutant::UsesWhatWasWrittenBack) => self.held,
            _ => self.dead.or(self.held),
        };
        let slots = match scope.mutant {
            Some(Mutant::UsesDeltasWithoutTheirBases | Mutant::NeitherLooksAtBasesNorCloses) => {
                Set::of(&[slot])
            }
            _ => world.with_bases(Set::of(&[slot])),
        };
        slots.is_within(self.present.minus(excluded))
    }

    fn may_be_base(&self, scope: &Scope, world: &World, slot: u8) -> bool {
        scope.has(Mutant::AnyBase) && self.present.has(slot) || self.may_use(scope, world, slot)
    }

    /// Takes one of the steps.
    pub fn take(&mut self, step: Step, scope: &Scope, world: &mut World) {
        match step {
            Step::Read => self.read(scope, world),
            Step::Find(parent) => {
                self.parent = parent;
                let has_read = scope.has(Mutant::ReadsPlansBeforeItsSession);
                self.at = if has_read { At::Choose } else { At::Plan(1) };
            }
            Step::Choose(content) => self.chose(content, world),
            Step::Send(fate) => self.send(fate, scope, world),
            Step::GiveUp(fate) => {
                world.send(Op::RemoveSession(self.session), fate);
                self.at = At::Stopped;
            }
            Step::Withdraw => self.at = At::Withdraw,
        }
    }

    fn read(&mut self, scope: &Scope, world: &mut World) {
        match self.at {
            At::Confirm if world.store.sessions.has(self.session) => {
                self.at = At::Look;
            }
            At::Confirm => self.begin_again(scope, world),
            At::Plan(number) => {
                let collection = world.store.collection(number);
                let is_passed_over = collection.is_torn && scope.has(Mutant::PassesOverATornPlan);
                let plan = collection.readable_plan().filter(|_| !is_passed_over);
                self.at = At::List(number, plan);
            }
            At::List(number, plan) => {
                self.present = world.store.present();
                self.at = At::Verdict(number, plan);
            }
            At::Verdict(number, plan) => {
                let verdict = world.store.collection(number).verdict;
                let reads_on = verdict.is_some() && number < scope.collections;
                if let Some(verdict) = verdict {
                    self.dead = self.dead.or(verdict.dead);
                    self.gone = self.gone.or(verdict.forgotten);
                    self.seen = number;
                } else if let Some(plan) = plan {
                    self.held = plan.condemned;
                    self.gone = self.gone.or(plan.forgotten);
                    self.seen = number;
                }
                self.at = match scope.mutant {
                    _ if reads_on => At::Plan(number + 1),
                    Some(Mutant::ReadsPlansBeforeItsSession) => At::Begin,
                    _ => At::Choose,
                };
            }
            At::LookForArena => {
                let is_there = world.store.newest(arena_of(slot_of(self.session))).is_some();
                self.at = if is_there { At::Commit } else { At::Store };
            }
            At::LookForFence => {
                if world.store.fences.has(self.session) {
                    self.begin_again(scope, world);
                } else {
                    self.acknowledge(world);
                }
            }
            At::LookForDecision => match world.store.snapshots[usize::from(self.session)] {
                Some(Body::Snapshot { .. }) => self.committed(scope, world),
                Some(Body::Tombstone) => self.begin_again(scope, world),
                None => self.at = At::Commit,
            },
            at => unreachable!("{at:?} reads nothing"),
        }
    }

    fn chose(&mut self, content: Content, world: &mut World) {
        self.stored = content.stored;
        let taken = content.parent.map_or(Set::EMPTY, |(_, roots)| roots);
        self.roots = taken.or(content.reused.into_iter().collect());
        self.at = At::Commit;
        // What decided is not needed any more; states that differ in it alone are one.
        (self.dead, self.held, self.gone, self.present) = Default::default();
        self.parent = None;
        if content.stored.is_some() {
            let slot = slot_of(self.session);
            self.roots = self.roots.with(slot);
            world.chunks[usize::from(slot)] = content.stored;
            self.at = At::Store;
        }
    }

    fn send(&mut self, fate: Fate, scope: &Scope, world: &mut World) {
        match self.at {
            At::Begin => {
                let answer = world.send(Op::CreateSession(self.session), fate);
                self.at = match answer {
                    Answer::Ok => At::Look,
                    Answer::Exists | Answer::Lost => At::Confirm,
                };
            }
            At::Store => {
                let slots = Set::of(&[slot_of(self.session)]);
                let op = Op::CreateArena { arena: self.session, generation: 0, slots };
                self.at = match world.send(op, fate) {
                    Answer::Ok => At::Commit,
                    Answer::Exists | Answer::Lost => At::LookForArena,
                };
            }
            At::Commit => {
                self.is_commit_sent = true;
                let body = Body::Snapshot { roots: self.roots, seen: self.seen };
                match world.send(Op::CreateSnapshot(self.session, body), fate) {
                    Answer::Ok => self.committed(scope, world),
                    Answer::Lost if scope.has(Mutant::GivesUpUndecided) => self.at = At::End,
                    Answer::Exists if scope.has(Mutant::TakesItsOwnCommitForAFence) => {
                        self.begin_again(scope, world);
                    }
                    Answer::Exists | Answer::Lost => self.at = At::LookForDecision,
                }
            }
            At::Withdraw => {
                world.send(Op::CreateSnapshot(self.session, Body::Tombstone), fate);
                self.at = At::LookForDecision;
            }
            At::End => {
                world.send(Op::RemoveSession(self.session), fate);
                self.at = At::Stopped;
            }
            at => unreachable!("{at:?} sends nothing"),
        }
    }

    /// Its snapshot exists.
    fn committed(&mut self, scope: &Scope, world: &mut World) {
        match scope.decision {
            Decision::OneName => self.acknowledge(world),
            Decision::TwoNames if scope.has(Mutant::WriterLooksForNoFence) => {
                self.acknowledge(world);
            }
            Decision::TwoNames => self.at = At::LookForFence,
        }
    }

    fn acknowledge(&mut self, world: &mut World) {
        world.past.acknowledged = world.past.acknowledged.with(self.session);
        self.at = At::End;
    }
}
