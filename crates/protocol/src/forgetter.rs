//! A person who forgets a snapshot, and may take it back.

use crate::mutant::Mutant;
use crate::scope::Scope;
use crate::store::{Collection, Fate, Op, Plan, Verdict};
use crate::world::World;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum At {
    /// About to choose a snapshot.
    #[default]
    Choose,
    /// About to wish that it be forgotten.
    Wish,
    /// Is the wish there?
    LookForWish,
    /// About to look for a plan that has condemned the snapshot.
    LookForPlan,
    /// About to create an empty verdict of this collection.
    Rescind(u8),
    /// About to look which verdict counts.
    LookForVerdict(u8),
    /// About to end the collection.
    End(u8),
    /// About to take the wish back, or to leave it.
    TakeBack,
    /// Was it taken back?
    LookForEnd,
    /// About to read the plan of a collection, which may have taken the wish.
    First(u8),
    /// About to read its verdict, after this.
    Second(u8, Seen),
    Stopped,
}

/// What it has read of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Seen {
    Plan(Option<Plan>),
    /// Of one that reads in the wrong order.
    Verdict(Option<Verdict>),
}

/// What it does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Chooses a snapshot that exists.
    Choose(u8),
    Read,
    Send(Fate),
}

/// Forgets, and may take it back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Forgetter {
    at: At,
    snapshot: u8,
}

impl Forgetter {
    /// The name of its present step, for the report of a path.
    pub fn place(&self) -> String {
        format!("{:?}", self.at)
    }

    /// All that it may do next.
    pub fn steps(&self, world: &World, offer: &mut dyn FnMut(Step)) {
        match self.at {
            At::Stopped => {}
            At::Choose => world.store.snapshots().iter().map(Step::Choose).for_each(offer),
            At::LookForPlan => {
                if world.store.collection(1).plan.is_some() {
                    offer(Step::Read);
                }
            }
            At::Wish | At::TakeBack | At::Rescind(_) | At::End(_) => {
                world.fates().iter().copied().map(Step::Send).for_each(offer)
            }
            At::LookForWish
            | At::LookForVerdict(_)
            | At::LookForEnd
            | At::First(_)
            | At::Second(..) => offer(Step::Read),
        }
    }

    /// Takes one of the steps.
    pub fn take(&mut self, step: Step, scope: &Scope, world: &mut World) {
        let snapshot = self.snapshot;
        let by_removal = scope.has(Mutant::WishesAreRemoved);
        match (step, self.at) {
            (Step::Choose(snapshot), At::Choose) => {
                self.snapshot = snapshot;
                self.at = At::Wish;
            }
            (Step::Send(fate), At::Wish) if scope.has(Mutant::ForgetsAtOnce) => {
                world.send(Op::RemoveSnapshot(snapshot), fate);
                world.past.forgotten_at_once = world.past.forgotten_at_once.with(snapshot);
                self.at = At::Stopped;
            }
            (Step::Send(fate), At::Wish) => {
                world.send(Op::CreateWish(snapshot, 1), fate);
                self.at = At::LookForWish;
            }
            (Step::Send(fate), At::TakeBack) => {
                let op = match by_removal {
                    true => Op::RemoveWish(snapshot, 1),
                    false => Op::CreateWish(snapshot, 2),
                };
                world.send(op, fate);
                self.at = At::LookForEnd;
            }
            (Step::Read, At::LookForWish) => {
                let is_there = world.store.wishes[usize::from(snapshot)].has(1);
                self.at = match (is_there, scope.undoes) {
                    (false, _) => At::Wish,
                    (true, false) => At::TakeBack,
                    (true, true) => At::LookForPlan,
                };
            }
            (Step::Read, At::LookForPlan) => {
                let collection = world.store.collection(1);
                let (plan, verdict) = (collection.readable_plan(), collection.verdict);
                let has_it = plan.is_some_and(|plan| plan.forgotten.has(snapshot));
                let is_open = verdict.is_none() && has_it;
                self.at = if is_open { At::Rescind(1) } else { At::Stopped };
            }
            (Step::Send(fate), At::Rescind(number)) => {
                let op = match scope.has(Mutant::UndoRemovesThePlan) {
                    true => Op::RemovePlan(number),
                    false => Op::CreateVerdict(number, Verdict::default()),
                };
                world.send(op, fate);
                self.at = At::LookForVerdict(number);
            }
            (Step::Read, At::LookForVerdict(number)) => {
                let Collection { plan, verdict, .. } = world.store.collection(number);
                self.at = match verdict {
                    None if scope.has(Mutant::UndoRemovesThePlan) && plan.is_none() => At::TakeBack,
                    None => At::Rescind(number),
                    Some(verdict) if verdict == Verdict::default() => At::End(number),
                    Some(_) => At::Stopped,
                };
            }
            (Step::Send(fate), At::End(number)) => {
                world.send(Op::CreateDone(number), fate);
                self.at = At::TakeBack;
            }
            (Step::Read, At::LookForEnd) => {
                let wishes = world.store.wishes[usize::from(snapshot)];
                let is_done = if by_removal { !wishes.has(1) } else { wishes.has(2) };
                self.at = if is_done { At::First(1) } else { At::TakeBack };
            }
            (Step::Read, At::First(number)) => {
                let collection = world.store.collection(number);
                let (plan, verdict) = (collection.readable_plan(), collection.verdict);
                let seen = match scope.has(Mutant::ReadsVerdictsBeforePlans) {
                    true => Seen::Verdict(verdict),
                    false => Seen::Plan(plan),
                };
                self.at = At::Second(number, seen);
            }
            (Step::Read, At::Second(number, seen)) => {
                let collection = world.store.collection(number);
                let (plan, verdict) = (collection.readable_plan(), collection.verdict);
                self.at = match seen {
                    Seen::Plan(plan) => self.judge(number, plan, verdict, scope, world),
                    // It knows at least that there was a plan.
                    Seen::Verdict(None) if plan.is_none() && verdict.is_some() => At::First(number),
                    Seen::Verdict(verdict) => self.judge(number, plan, verdict, scope, world),
                };
            }
            (step, at) => unreachable!("{step:?} at {at:?}"),
        }
    }

    /// Whether a collection took the wish; if not, looks at the next, or is done.
    fn judge(
        &self,
        number: u8,
        plan: Option<Plan>,
        verdict: Option<Verdict>,
        scope: &Scope,
        world: &mut World,
    ) -> At {
        let by_plan = plan.map(|plan| plan.forgotten);
        let forgotten = verdict.map(|verdict| verdict.forgotten).or(by_plan);
        if forgotten.is_some_and(|forgotten| forgotten.has(self.snapshot)) {
            return At::Stopped;
        }
        if verdict.is_some() && number < scope.collections {
            return At::First(number + 1);
        }
        world.past.taken_back = world.past.taken_back.with(self.snapshot);
        At::Stopped
    }
}
