//! Generations of one arena, as a model: copies of a repository that are both used and then brought
//! together, and a thief who may create objects. `docs/format/repository.md`, *Generations*, has the
//! rules in words.
//!
//! The arena is that of a machine which can only store. The owner's collectors rewrite it, with a mark
//! that no other can make; an auditor vouches for it; a repairer takes away what is planted. The thief
//! has a key of another domain, or has taken the machine over and has its own. How a collector stays clear
//! of writers is in the other model: here a verdict is one step, a backup is one, and what is between them is
//! the carrying out.

mod generation;
mod place;
mod scopes;

use stateright::{Model, Property};

use crate::set::Set;
use generation::Generation;
use place::{Carrying, LEVEL_MAX, OF_THIEF, Place, SLOTS, SNAPSHOTS};
pub use scopes::{Histories, Mistake, harmless, mutants, scopes};

/// The name's part of a generation that was saved without a summary.
const SAVED: Set = Set::EMPTY.with(7);

/// All copies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    places: Vec<Place>,
    /// What each snapshot names.
    roots: [Set; SNAPSHOTS],
    is_copied: bool,
    was_damaged: bool,
    /// Snapshots that came with a copy which said that a name is taken there by something else: it is to
    /// be made again, and they may lack something until then.
    is_owed: Set,
    was_owed: bool,
    has_planted: bool,
    /// The thief was given something that is not his.
    is_leaked: bool,
    /// Something planted was there when something of the arena was removed.
    removed_beside_planted: bool,
}

/// One step. Numbers are those of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    BackUp(u8, Set),
    Forget(u8, u8),
    /// A collector marks, and creates its verdict.
    Decide(u8),
    /// A collector lists the generations, and begins to carry out the open verdict.
    Begin(u8, u8),
    /// It does the next thing.
    Carry(u8, u8),
    /// All that the first copy has and the second lacks is copied.
    Copy,
    Vouch(u8, Generation),
    Repair(u8),
    /// A repair saves what is left of the only generation without its summary.
    Save(u8),
    Plant(u8, Generation),
    /// The thief commits a snapshot that names a slot, and has it restored.
    Steal(u8, Set),
}

impl State {
    fn copy(&mut self, histories: &Histories) {
        let [from, to] = &mut self.places[..] else { unreachable!("two copies") };
        self.is_copied = true;
        for object in &from.objects {
            // Of its own arenas no name has two contents: what takes one is planted.
            let is_planted = |it: &Generation| it.name() == object.name() && it.is_thiefs;
            let takes_it = histories.has(Mistake::TakesNamesForObjects);
            self.is_copied &= to.create(*object) || takes_it || !to.objects.iter().any(is_planted);
        }
        // What was forgotten since then does not come any more.
        self.is_owed = match self.is_copied {
            true => self.is_owed.and(from.gone),
            false => self.is_owed.or(from.listed()),
        };
        self.was_owed |= !self.is_copied;
        to.snapshots = to.snapshots.or(from.listed());
    }

    /// Every snapshot of the machine that no verdict of this copy has forgotten can be read there. What a
    /// copy did not bring, and said so, is where it was, until it is forgotten there.
    fn is_readable(&self, histories: &Histories) -> bool {
        let first = &self.places[0];
        self.places.iter().all(|place| {
            place.listed().without(OF_THIEF).iter().all(|id| {
                let roots = self.roots[usize::from(id)];
                let is_owed = self.is_owed.has(id)
                    && (first.gone.has(id)
                        || roots
                            .is_within(first.readable(histories).or(place.readable(histories))));
                is_owed || roots.is_within(place.readable(histories))
            })
        })
    }
}

impl Model for Histories {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let mut roots = [Set::EMPTY; SNAPSHOTS];
        (roots[0], roots[1]) = (Set::of(&[0]), Set::of(&[1]));
        vec![State {
            places: (0..self.copies).map(|_| Place::new(self)).collect(),
            roots,
            is_copied: false,
            was_damaged: false,
            is_owed: Set::EMPTY,
            was_owed: false,
            has_planted: false,
            is_leaked: false,
            removed_beside_planted: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        for (number, place) in (0..).zip(&state.places) {
            let held = place.open.map_or(Set::EMPTY, |open| open.dead);
            let usable = place.usable(self);
            let usable = if place.is_dead { Set::EMPTY } else { usable.minus(held) };
            if !place.has_backed_up {
                actions.extend(usable.iter().map(|slot| Step::BackUp(number, Set::of(&[slot]))));
            }
            if place.wishes_left > 0 {
                let wanted = place.listed().minus(place.wished).without(OF_THIEF);
                actions.extend(wanted.iter().map(|id| Step::Forget(number, id)));
            }
            let may_decide = place.open.is_none() && place.number < self.verdicts;
            if may_decide && place.decide(self, &state.roots).is_some() {
                actions.push(Step::Decide(number));
            }
            for collector in 0..self.collectors {
                match &place.collectors[usize::from(collector)] {
                    Some(_) => actions.push(Step::Carry(number, collector)),
                    None if place.open.is_some() => actions.push(Step::Begin(number, collector)),
                    None => {}
                }
            }
            if self.has_auditor {
                let sorted = place.sorted(self);
                let all = sorted.genuine.len() == place.objects.len();
                let may = all || self.has(Mistake::VouchesForOne);
                let new = place.objects.iter().filter(|it| may && !place.vouched.contains(it));
                actions.extend(new.map(|it| Step::Vouch(number, *it)));
            }
            if self.has_repairer && !place.to_take_away(self, &state.roots).is_empty() {
                actions.push(Step::Repair(number));
            }
            if self.is_damaged && !state.was_damaged && place.objects.len() == 1 {
                actions.push(Step::Save(number));
            }
        }
        let is_free =
            |place: &Place| !place.is_at_work() || self.has(Mistake::CopiesBesideACollector);
        if self.copies == 2 && !state.is_copied && state.places.iter().all(is_free) {
            actions.push(Step::Copy);
        }
        if self.has_thief && !state.has_planted {
            for level in 0..LEVEL_MAX {
                for slots in [Set::EMPTY, Set::of(&[0]), SLOTS] {
                    let planted = Generation {
                        level,
                        without: Set::EMPTY,
                        is_thiefs: true,
                        is_marked: false,
                        slots,
                        other: slots,
                        right: Set::EMPTY,
                    };
                    actions.push(Step::Plant(self.last(), planted));
                }
            }
        }
        if self.is_taken_over && !state.has_planted {
            for level in 0..LEVEL_MAX {
                for slots in [Set::of(&[0]), Set::of(&[1]), SLOTS] {
                    for other in [Set::EMPTY, slots] {
                        let planted = Generation {
                            level,
                            without: Set::EMPTY,
                            is_thiefs: false,
                            is_marked: false,
                            slots,
                            other,
                            right: Set::EMPTY,
                        };
                        actions.push(Step::Plant(self.last(), planted));
                    }
                }
            }
        }
        let thief = &state.places[usize::from(self.last())];
        if self.has_thief && !thief.snapshots.has(OF_THIEF) {
            actions.push(Step::Steal(self.last(), Set::of(&[0])));
        }
    }

    fn next_state(&self, last: &State, action: Step) -> Option<State> {
        let mut state = last.clone();
        match action {
            Step::BackUp(place, roots) => {
                let id = 2 + place;
                state.roots[usize::from(id)] = roots;
                let place = &mut state.places[usize::from(place)];
                place.snapshots = place.snapshots.with(id);
                place.has_backed_up = true;
            }
            Step::Forget(place, id) => {
                let place = &mut state.places[usize::from(place)];
                place.wished = place.wished.with(id);
                place.wishes_left -= 1;
            }
            Step::Decide(place) => {
                let roots = state.roots;
                let place = &mut state.places[usize::from(place)];
                let (verdict, goes) = place.decide(self, &roots)?;
                place.number += 1;
                place.open = Some(verdict);
                place.gone = place.gone.or(goes);
            }
            Step::Begin(place, collector) => {
                let place = &mut state.places[usize::from(place)];
                let (number, listed) = (place.number, place.objects.clone());
                let carrying = Carrying { number, verdict: place.open?, listed, top: None };
                place.collectors[usize::from(collector)] = Some(carrying);
            }
            Step::Carry(place, collector) => {
                let place = &mut state.places[usize::from(place)];
                let mut carrying = place.collectors[usize::from(collector)].take()?;
                let before = place.objects.len();
                let goes_on = place.carry(self, &mut carrying);
                let has_planted = place.objects.iter().any(|it| it.right.is_empty());
                state.removed_beside_planted |= has_planted && place.objects.len() < before;
                if goes_on {
                    place.collectors[usize::from(collector)] = Some(carrying);
                } else if place.number == carrying.number {
                    place.open = None;
                }
            }
            Step::Copy => state.copy(self),
            Step::Vouch(place, generation) => {
                let vouched = &mut state.places[usize::from(place)].vouched;
                vouched.push(generation);
                vouched.sort_unstable();
            }
            Step::Repair(place) => {
                let roots = state.roots;
                let place = &mut state.places[usize::from(place)];
                let planted = place.to_take_away(self, &roots);
                place.objects.retain(|it| !planted.contains(it));
            }
            Step::Save(place) => {
                state.was_damaged = true;
                let place = &mut state.places[usize::from(place)];
                let before = place.objects.pop()?;
                let level = before.level + 1;
                let saved = Generation { level, without: SAVED, is_marked: false, ..before };
                if level > LEVEL_MAX || !place.create(saved) {
                    return None;
                }
            }
            Step::Plant(place, generation) => {
                state.has_planted = true;
                if !state.places[usize::from(place)].create(generation) {
                    return None;
                }
            }
            Step::Steal(place, roots) => {
                state.roots[usize::from(OF_THIEF)] = roots;
                let place = &mut state.places[usize::from(place)];
                place.snapshots = place.snapshots.with(OF_THIEF);
                // To the reader of his snapshot the arenas of others are not there.
                let is_read = self.has(Mistake::ReadsForAnybody);
                state.is_leaked |= is_read && roots.is_within(place.readable(self));
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(
                "what a snapshot of any copy needs is read",
                |histories, state: &State| state.is_readable(histories),
            ),
            Property::always("a thief is given nothing", |_, state: &State| !state.is_leaked),
            Property::sometimes("a generation is removed", |_, state: &State| {
                let names = state.places.iter().flat_map(|place| &place.objects);
                names.clone().all(|it| it.level > 0) && names.count() > 0
            }),
        ];
        if self.copies > 1 {
            all.push(Property::sometimes("two rewritings are in one place", |_, state: &State| {
                let rewritings = |place: &Place| {
                    place.objects.iter().filter(|it| it.level > 0 && !it.is_thiefs).count()
                };
                state.places.iter().any(|place| rewritings(place) > 1)
            }));
        }
        if self.has_thief || self.is_taken_over {
            all.push(Property::sometimes("something goes beside what is planted", |_, state| {
                let state: &State = state;
                state.removed_beside_planted
            }));
        }
        if self.has_thief && self.copies > 1 {
            all.push(Property::sometimes("a copy is made again, and whole", |_, state| {
                let state: &State = state;
                state.is_copied && state.was_owed
            }));
        }
        all
    }
}
