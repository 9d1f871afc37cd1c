//! A collector: steps C1 to C9. Any number of them may carry out any step of any collection.

use crate::mutant::Mutant;
use crate::scope::{Decision, Scope};
use crate::set::Set;
use crate::store::{ARENAS, Answer, Body, Fate, Op, Plan, SNAPSHOTS, Verdict, arena_of};
use crate::world::{World, arenas};

/// Where a collector is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum At {
    /// C1: about to look which collection is not done.
    #[default]
    Begin,
    /// C2: about to list arenas.
    ListArenas,
    /// C2: about to list sessions.
    ListSessions,
    /// C2: about to list snapshots and wishes.
    ListSnapshots,
    /// C3: about to create the plan.
    CreatePlan,
    /// C4: about to list the sessions that are waited for.
    ListWriters,
    /// Behind C4: about to list the snapshots of those that are not waited for.
    ListCommitted,
    /// C5: about to look at a session.
    Wait,
    /// C5: of two names, about to look whether the snapshot was there before the fence.
    LookForSnapshot,
    /// Before C6: about to look which wishes were taken back.
    ListWishes,
    /// C6: about to list the snapshots again.
    ListAgain,
    /// C6: about to list the arenas again.
    ListArenasAgain,
    /// C7: about to reckon a second time.
    Reckon,
    /// C7: about to create the verdict.
    CreateVerdict,
    /// About to read the verdict that exists.
    ReadVerdict,
    /// C8: about to do the next thing for this arena.
    Arena(u8),
    /// C8: an arena was read, and its next generation is about to be created.
    Rewrite(u8, Set),
    /// C8: about to remove this snapshot and its wishes.
    Snapshot(u8),
    /// C9: about to create the end of the collection.
    CreateDone,
    /// C9: about to remove the plan.
    RemovePlan,
    Stopped,
}

/// What a collector does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Reads.
    Read,
    /// Lists, and does not see this session: the store of a mutant.
    Overlook(u8),
    /// Sends what is next.
    Send(Fate),
    /// Loses patience with a session: creates its tombstone, or puts its fence.
    Fence(u8, Fate),
    /// Decides to leave an arena as it is.
    Spare(u8),
}

/// A collector, and what it knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Collector {
    at: At,
    number: u8,
    /// L: the slots that were listed.
    listed: Set,
    /// O, then Q: sessions that were listed.
    sessions: Set,
    /// Those of Q that are not decided yet.
    undecided: Set,
    /// Snapshots that were committed by sessions that are not in Q.
    committed: Set,
    /// Of two names: those whose snapshot was not there when the fence was.
    fenced: Set,
    /// The session that is being fenced.
    fencing: u8,
    plan: Plan,
    /// What the snapshots of the second listing name.
    roots: Set,
    /// What may go, of what was condemned.
    verdict: Option<Verdict>,
    spared: Set,
}

impl Collector {
    /// The name of its present step, for the report of a path.
    pub fn place(&self) -> String {
        format!("{:?}", self.at)
    }

    /// All that it may do next.
    pub fn steps(&self, scope: &Scope, world: &World, offer: &mut dyn FnMut(Step)) {
        let fates = world.fates().iter().copied();
        match self.at {
            At::Stopped => {}
            At::CreatePlan
            | At::CreateVerdict
            | At::Rewrite(..)
            | At::CreateDone
            | At::RemovePlan => fates.map(Step::Send).for_each(&mut *offer),
            At::Arena(arena) if self.removes(world, arena).is_some() => {
                fates.map(Step::Send).for_each(&mut *offer);
            }
            At::Snapshot(snapshot) if removal(world, snapshot).is_some() => {
                fates.map(Step::Send).for_each(&mut *offer);
            }
            At::Wait => {
                offer(Step::Read);
                if let Some(session) = self.undecided.first()
                    && !is_decided(scope, world, session)
                {
                    fates.for_each(|fate| offer(Step::Fence(session, fate)));
                }
            }
            At::ListSessions | At::ListWriters if scope.has(Mutant::ListingsLag) => {
                offer(Step::Read);
                world.store.sessions.iter().for_each(|session| offer(Step::Overlook(session)));
            }
            At::ListArenasAgain => {
                offer(Step::Read);
                arenas().take(2).for_each(|arena| offer(Step::Spare(arena)));
            }
            _ => offer(Step::Read),
        }
    }

    /// Takes one of the steps.
    pub fn take(&mut self, step: Step, scope: &Scope, world: &mut World) {
        match step {
            Step::Read => self.read(scope, world),
            Step::Overlook(session) => {
                let sessions = world.store.sessions;
                world.store.sessions = sessions.without(session);
                self.read(scope, world);
                world.store.sessions = sessions;
            }
            Step::Send(fate) => self.send(fate, scope, world),
            Step::Fence(session, fate) => self.fence(session, fate, scope, world),
            Step::Spare(arena) => {
                self.spared = Set::of(&[arena]);
                self.read(scope, world);
            }
        }
    }

    fn read(&mut self, scope: &Scope, world: &mut World) {
        match self.at {
            At::Begin => self.begin(scope, world),
            At::ListArenas => {
                self.listed = world.store.present();
                self.at = At::ListSessions;
            }
            At::ListSessions => {
                self.sessions = world.store.sessions;
                self.at = At::ListSnapshots;
            }
            At::ListSnapshots => self.condemn(scope, world),
            At::ListWriters => {
                self.sessions = world.store.sessions;
                self.undecided = self.sessions;
                self.at = if scope.has(Mutant::WritersListedBeforeThePlan) {
                    At::CreatePlan
                } else {
                    At::ListCommitted
                };
            }
            At::ListCommitted => {
                self.committed = world.store.snapshots();
                self.at = self.after_listing_writers(scope);
            }
            At::Wait => match self.undecided.first() {
                Some(session) if is_decided(scope, world, session) => {
                    if scope.has(Mutant::RemovesTombstones) {
                        remove_tombstone(world, session);
                    }
                    self.undecided = self.undecided.without(session);
                }
                Some(_) => {}
                None if scope.has(Mutant::ListsAgainBeforeItWaits) => {
                    self.at = At::ListArenasAgain;
                }
                None => self.at = At::ListWishes,
            },
            At::LookForSnapshot => {
                if world.store.snapshots[usize::from(self.fencing)].is_none() {
                    self.fenced = self.fenced.with(self.fencing);
                }
                self.undecided = self.undecided.without(self.fencing);
                self.at = At::Wait;
            }
            At::ListAgain => {
                self.list_again(scope, world);
                self.at = if scope.has(Mutant::ListsAgainBeforeItWaits) {
                    At::Wait
                } else {
                    At::ListArenasAgain
                };
            }
            At::ListWishes => {
                if !scope.has(Mutant::WishesReadOnce) {
                    let wanted = |snapshot: &u8| world.store.is_unwanted(*snapshot);
                    self.plan.forgotten = self.plan.forgotten.iter().filter(wanted).collect();
                }
                self.at = At::ListAgain;
            }
            At::ListArenasAgain => self.judge(scope, world),
            At::Reckon => self.reckon(scope, world),
            At::ReadVerdict => match world.store.collection(self.number).verdict {
                Some(verdict) => self.carry_out(verdict),
                None => *self = Self::default(),
            },
            At::Arena(arena) => self.read_arena(arena, world),
            At::Snapshot(snapshot) => self.next_snapshot(snapshot + 1),
            at => unreachable!("{at:?} reads nothing"),
        }
    }

    /// C1: the first collection that is not done. What it finds of it, it goes on with.
    fn begin(&mut self, scope: &Scope, world: &World) {
        let open = (1..=scope.collections).find(|number| !world.store.collection(*number).done);
        let Some(number) = open else {
            self.at = At::Stopped;
            return;
        };
        self.number = number;
        let collection = world.store.collection(number);
        self.at = match (collection.plan, collection.verdict) {
            (_, Some(verdict)) => return self.carry_out(verdict),
            (Some(_), None) if collection.is_torn && scope.has(Mutant::RemovesATornPlan) => {
                At::RemovePlan
            }
            // Nothing goes: what the plan condemned is not known.
            (Some(_), None) if collection.is_torn => {
                self.verdict = Some(Verdict::default());
                At::CreateVerdict
            }
            (Some(plan), None) => {
                self.plan = plan;
                At::ListWriters
            }
            (None, None) => At::ListArenas,
        };
    }

    /// C2: the slots that no snapshot and no session needs.
    fn condemn(&mut self, scope: &Scope, world: &World) {
        let store = &world.store;
        let snapshots = store.snapshots();
        let unwanted = snapshots.iter().filter(|snapshot| store.is_unwanted(*snapshot));
        let forgotten: Set = unwanted.collect();
        let mut marked = Set::EMPTY;
        for snapshot in snapshots.minus(forgotten).iter() {
            if marks_too_little(scope, snapshot) {
                continue;
            }
            let roots = store.roots(snapshot).unwrap_or_default();
            marked = marked.or(world.reach(roots, self.listed));
        }
        // One that was ended is there again if its create was late. It never commits.
        let is_ended =
            |session: &u8| store.snapshots[usize::from(*session)] == Some(Body::Tombstone);
        let sessions = self.sessions.minus(self.sessions.iter().filter(is_ended).collect());
        let of_sessions = self.listed.iter().filter(|slot| sessions.has(arena_of(*slot)));
        marked = marked.or(world.with_bases(of_sessions.collect()));
        self.plan = Plan { forgotten, condemned: self.listed.minus(marked) };
        self.at = match scope.mutant {
            _ if forgotten.is_empty() && self.plan.condemned.is_empty() => At::Stopped,
            Some(Mutant::WritersListedBeforeThePlan) => At::ListWriters,
            _ => At::CreatePlan,
        };
        // What is not needed any more; states that differ in it alone are one.
        self.sessions = Set::EMPTY;
    }

    fn after_listing_writers(&self, scope: &Scope) -> At {
        match scope.mutant {
            Some(Mutant::ListsAgainBeforeItWaits) => At::ListAgain,
            Some(Mutant::WaitsForNoWriter) => At::ListWishes,
            Some(Mutant::MarksOnce) => At::ListArenasAgain,
            _ => At::Wait,
        }
    }

    fn list_again(&mut self, scope: &Scope, world: &mut World) {
        let store = &world.store;
        let mut roots = Set::EMPTY;
        for snapshot in 0..SNAPSHOTS as u8 {
            let body = store.snapshots[usize::from(snapshot)];
            let Some(Body::Snapshot { roots: named, seen }) = body else { continue };
            let is_none = store.roots(snapshot).is_none() || self.fenced.has(snapshot);
            let is_skipped = marks_too_little(scope, snapshot);
            if is_none || is_skipped || self.plan.forgotten.has(snapshot) {
                continue;
            }
            roots = roots.or(named);
            let is_expected = self.sessions.or(self.committed).has(snapshot);
            if !is_expected && seen < self.number {
                world.past.alarm = true;
            }
        }
        self.roots = roots;
    }

    /// C7: what goes, of what was condemned.
    fn judge(&mut self, scope: &Scope, world: &World) {
        let store = &world.store;
        let present = store.present();
        let needed = world.reach(self.roots, present);
        let free = self.plan.condemned.minus(needed);
        let mut dead: Set = free.iter().filter(|slot| !self.spared.has(arena_of(*slot))).collect();
        if !matches!(
            scope.mutant,
            Some(Mutant::DoesNotClose | Mutant::NeitherLooksAtBasesNorCloses)
        ) {
            dead = closed(world, present, free, dead);
        }
        let mut verdict = Verdict {
            forgotten: self.plan.forgotten,
            dead,
            gone: Set::EMPTY,
            rewritten: [None; ARENAS],
            fenced: self.fenced,
        };
        for arena in arenas() {
            let Some((generation, slots)) = store.newest(arena) else { continue };
            if slots.is_within(dead) {
                verdict.gone = verdict.gone.with(arena);
            } else if !slots.and(dead).is_empty() {
                verdict.rewritten[usize::from(arena)] = Some(generation);
            }
        }
        self.verdict = Some(verdict);
        self.at = At::Reckon;
    }

    /// C7: whether a snapshot that stays needs something that goes. Then nothing does.
    fn reckon(&mut self, scope: &Scope, world: &World) {
        self.at = At::CreateVerdict;
        let Some(verdict) = self.verdict else { unreachable!("it was judged") };
        let store = &world.store;
        let kept = store.snapshots().minus(verdict.forgotten).minus(verdict.fenced);
        // Mutants do their harm without this net, unless they are about it.
        if !matches!(scope.mutant, None | Some(Mutant::MarksTooLittle)) {
            return;
        }
        let left = store.present().minus(verdict.dead);
        let is_whole = kept.iter().all(|snapshot| {
            let roots = store.roots(snapshot).unwrap_or_default();
            world.with_bases(roots).is_within(left)
        });
        if !is_whole {
            self.verdict = Some(Verdict { fenced: verdict.fenced, ..Verdict::default() });
        }
    }

    fn fence(&mut self, session: u8, fate: Fate, scope: &Scope, world: &mut World) {
        let op = match scope.decision {
            Decision::OneName => Op::CreateSnapshot(session, Body::Tombstone),
            Decision::TwoNames => Op::PutFence(session),
        };
        let answer = world.send(op, fate);
        if scope.decision == Decision::TwoNames && answer == Answer::Ok {
            self.fencing = session;
            self.at = At::LookForSnapshot;
        }
    }

    fn send(&mut self, fate: Fate, scope: &Scope, world: &mut World) {
        match self.at {
            At::CreatePlan => {
                let answer = world.send(Op::CreatePlan(self.number, self.plan), fate);
                match answer {
                    Answer::Ok if scope.has(Mutant::WritersListedBeforeThePlan) => {
                        self.at = At::ListCommitted;
                    }
                    Answer::Ok => self.at = At::ListWriters,
                    Answer::Exists | Answer::Lost => *self = Self::default(),
                }
            }
            At::CreateVerdict => {
                let Some(verdict) = self.verdict else { unreachable!("it was judged") };
                match scope.mutant {
                    Some(Mutant::VerdictsReplaceEachOther) => {
                        let gone = &mut world.past.forgotten_at_once;
                        *gone = gone.or(verdict.forgotten);
                        world.send(Op::PutVerdict(self.number, verdict), Fate::Answered);
                        self.carry_out(verdict);
                    }
                    Some(Mutant::CarriesOutItsOwnDecision) => {
                        let gone = &mut world.past.forgotten_at_once;
                        *gone = gone.or(verdict.forgotten);
                        self.carry_out(verdict);
                    }
                    _ => {
                        let op = Op::CreateVerdict(self.number, verdict);
                        match world.send(op, fate) {
                            Answer::Ok => self.carry_out(verdict),
                            Answer::Exists | Answer::Lost => self.at = At::ReadVerdict,
                        }
                    }
                }
            }
            At::Arena(arena) => {
                let generation = self.removes(world, arena).unwrap_or_default();
                world.send(Op::RemoveArena { arena, generation }, fate);
            }
            At::Rewrite(arena, slots) => {
                let from = self.verdict.and_then(|v| v.rewritten[usize::from(arena)]);
                let generation = from.unwrap_or_default() + 1;
                world.send(Op::CreateArena { arena, generation, slots }, fate);
                self.at = At::Arena(arena);
            }
            At::Snapshot(snapshot) => {
                if let Some(op) = removal(world, snapshot) {
                    world.send(op, fate);
                }
            }
            At::CreateDone => {
                if scope.has(Mutant::CarriesOutItsOwnDecision)
                    && let Some(verdict) = self.verdict
                {
                    world.send(Op::CreateVerdict(self.number, verdict), Fate::Answered);
                }
                world.send(Op::CreateDone(self.number), fate);
                self.at = At::RemovePlan;
            }
            At::RemovePlan => {
                world.send(Op::RemovePlan(self.number), fate);
                *self = Self::default();
            }
            at => unreachable!("{at:?} sends nothing"),
        }
    }

    /// C8, from its beginning.
    fn carry_out(&mut self, verdict: Verdict) {
        let number = self.number;
        *self = Self { number, verdict: Some(verdict), ..Self::default() };
        self.next_arena(0);
    }

    /// The next arena, from this one on, that has something to do.
    fn next_arena(&mut self, from: u8) {
        let Some(verdict) = self.verdict else { unreachable!("it is carried out") };
        let next = arenas().skip(usize::from(from)).find(|arena| {
            verdict.gone.has(*arena) || verdict.rewritten[usize::from(*arena)].is_some()
        });
        match next {
            Some(arena) => self.at = At::Arena(arena),
            None => self.next_snapshot(0),
        }
    }

    fn next_snapshot(&mut self, from: u8) {
        let Some(verdict) = self.verdict else { unreachable!("it is carried out") };
        let next = verdict.forgotten.iter().find(|snapshot| *snapshot >= from);
        self.at = match next {
            Some(snapshot) => At::Snapshot(snapshot),
            None => At::CreateDone,
        };
    }

    /// The generation of an arena that is to be removed next, if there is one.
    fn removes(&self, world: &World, arena: u8) -> Option<u8> {
        let verdict = self.verdict?;
        let (newest, _) = world.store.newest(arena)?;
        let generations = (0..=newest).filter(|g| world.store.generation(arena, *g).is_some());
        let old = verdict.rewritten[usize::from(arena)];
        let mut removed = generations.filter(|generation| match old {
            _ if verdict.gone.has(arena) => true,
            // Only below one that is there.
            Some(_) => *generation < newest && *generation <= old.unwrap_or_default(),
            None => false,
        });
        removed.next()
    }

    /// Nothing is to be removed: reads what is to be rewritten, or goes on.
    fn read_arena(&mut self, arena: u8, world: &World) {
        let Some(verdict) = self.verdict else { unreachable!("it is carried out") };
        let from = verdict.rewritten[usize::from(arena)];
        let slots = from.and_then(|from| world.store.generation(arena, from));
        match slots {
            Some(slots) => self.at = At::Rewrite(arena, slots.minus(verdict.dead)),
            None => self.next_arena(arena + 1),
        }
    }
}

/// Whether a snapshot is not marked, by a mutant.
fn marks_too_little(scope: &Scope, snapshot: u8) -> bool {
    let mutants =
        [Mutant::SkipsTheUnreadable, Mutant::MarksTooLittle, Mutant::MarksTooLittleAndReckonsOnce];
    snapshot == 1 && mutants.into_iter().any(|mutant| scope.has(mutant))
}

/// What is to be removed next of a forgotten snapshot: the snapshot, then its wishes.
fn removal(world: &World, snapshot: u8) -> Option<Op> {
    if world.store.snapshots[usize::from(snapshot)].is_some() {
        return Some(Op::RemoveSnapshot(snapshot));
    }
    let wish = world.store.wishes[usize::from(snapshot)].first()?;
    Some(Op::RemoveWish(snapshot, wish))
}

/// Whether a session can change nothing any more: it is gone, or its name is taken.
fn is_decided(scope: &Scope, world: &World, session: u8) -> bool {
    let is_gone = !world.store.sessions.has(session);
    let is_taken = world.store.snapshots[usize::from(session)].is_some();
    match scope.decision {
        Decision::OneName => is_gone || is_taken,
        Decision::TwoNames => is_gone,
    }
}

fn remove_tombstone(world: &mut World, session: u8) {
    if world.store.snapshots[usize::from(session)] == Some(Body::Tombstone) {
        world.send(Op::RemoveSession(session), Fate::Answered);
        world.send(Op::RemoveSnapshot(session), Fate::Answered);
    }
}

/// Dead slots such that nothing that stays is a delta from one. A delta that stays takes its base
/// out, unless it may go as well and its arena is rewritten anyway.
fn closed(world: &World, present: Set, free: Set, mut dead: Set) -> Set {
    loop {
        let mut stays = present.minus(dead).iter();
        let Some(delta) = stays.find(|slot| !world.bases(*slot).and(dead).is_empty()) else {
            return dead;
        };
        let is_rewritten = dead.iter().any(|slot| arena_of(slot) == arena_of(delta));
        if free.has(delta) && is_rewritten {
            dead = dead.with(delta);
        } else {
            dead = dead.minus(world.bases(delta));
        }
    }
}
