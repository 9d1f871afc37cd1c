//! The model that the checker walks through: the world, and actors that take one step at a time.

use stateright::{Model, Property};

use crate::collector::{self, Collector};
use crate::forgetter::{self, Forgetter};
use crate::properties;
use crate::repairer::{self, Repairer};
use crate::scope::{Decision, Scope};
use crate::store::Op;
use crate::world::World;
use crate::writer::{self, Writer};

/// The world and all actors.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub world: World,
    writers: Vec<Writer>,
    collectors: Vec<Collector>,
    forgetter: Option<Forgetter>,
    repairer: Option<Repairer>,
}

/// One step of an actor, or something sent that lands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Writer(u8, writer::Step),
    Collector(u8, collector::Step),
    Forgetter(forgetter::Step),
    Repairer(repairer::Step),
    Land(Op),
    /// The plan of this collection can no longer be read, nor its copy.
    Tear(u8),
}

impl State {
    /// An action in this state, for the report of a path: who, where, what.
    pub fn describe(&self, action: Action) -> String {
        let (who, place, step): (String, Option<String>, String) = match action {
            Action::Writer(number, step) => {
                let place = self.writers.get(usize::from(number)).map(Writer::place);
                (format!("writer {number}"), place, format!("{step:?}"))
            }
            Action::Collector(number, step) => {
                let place = self.collectors.get(usize::from(number)).map(Collector::place);
                (format!("collector {number}"), place, format!("{step:?}"))
            }
            Action::Forgetter(step) => {
                let place = self.forgetter.as_ref().map(Forgetter::place);
                ("forgetter".to_owned(), place, format!("{step:?}"))
            }
            Action::Repairer(step) => {
                let place = self.repairer.as_ref().map(Repairer::place);
                ("repairer".to_owned(), place, format!("{step:?}"))
            }
            Action::Land(op) => ("store".to_owned(), None, format!("lands {op:?}")),
            Action::Tear(number) => ("store".to_owned(), None, format!("tears plan {number}")),
        };
        format!("{who:12} {:24} {step}", place.unwrap_or_default())
    }
}

impl Model for Scope {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            world: World::new(self),
            writers: (0..self.writers).map(|number| Writer::new(self, number)).collect(),
            collectors: (0..self.collectors).map(|_| Collector::default()).collect(),
            forgetter: self.forgetter.then(Forgetter::default),
            repairer: self.repairer.then(Repairer::default),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, writer) in (0..).zip(&state.writers) {
            writer
                .steps(self, &state.world, &mut |step| actions.push(Action::Writer(number, step)));
        }
        for (number, collector) in (0..).zip(&state.collectors) {
            collector.steps(self, &state.world, &mut |step| {
                actions.push(Action::Collector(number, step))
            });
        }
        if let Some(forgetter) = &state.forgetter {
            forgetter.steps(&state.world, &mut |step| actions.push(Action::Forgetter(step)));
        }
        if let Some(repairer) = &state.repairer {
            repairer.steps(&state.world, &mut |step| actions.push(Action::Repairer(step)));
        }
        actions.extend(state.world.store.pending.iter().copied().map(Action::Land));
        if state.world.tears {
            let has_plan = |number: &u8| state.world.store.collection(*number).plan.is_some();
            actions.extend((1..=self.collections).filter(has_plan).map(Action::Tear));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Writer(number, step) => {
                let writer = state.writers.get_mut(usize::from(number))?;
                writer.take(step, self, &mut state.world);
            }
            Action::Collector(number, step) => {
                let collector = state.collectors.get_mut(usize::from(number))?;
                collector.take(step, self, &mut state.world);
            }
            Action::Forgetter(step) => {
                state.forgetter.as_mut()?.take(step, self, &mut state.world);
            }
            Action::Repairer(step) => {
                state.repairer.as_mut()?.take(step, self, &mut state.world);
            }
            Action::Land(op) => {
                state.world.store.land(op);
                state.world.note_tombstones();
            }
            Action::Tear(number) => {
                state.world.tears = false;
                state.world.store.collection_mut(number).is_torn = true;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always("what a snapshot needs exists", |_, state: &State| {
                properties::is_readable(&state.world)
            }),
            Property::always("what was acknowledged exists", |_, state: &State| {
                properties::is_kept(&state.world)
            }),
            Property::always("a session is decided once", |_, state: &State| {
                properties::is_decided_once(&state.world)
            }),
            Property::always("what was taken back stays", |_, state: &State| {
                properties::is_taken_back(&state.world)
            }),
            Property::sometimes("a slot goes", |_, state: &State| {
                properties::a_slot_goes(&state.world)
            }),
        ];
        // Of two names, a fenced snapshot may count: its writer does not know, and begins again.
        if self.decision == Decision::OneName {
            all.push(Property::always(
                "no writer reports a failure that is none",
                |_, state: &State| properties::is_denial_true(&state.world),
            ));
        }
        // An alarm is a second net below the others, so a mutant is not caught by it.
        if self.mutant.is_none() {
            all.push(Property::always("no alarm", |_, state: &State| !state.world.past.alarm));
        }
        if self.writers > 0 {
            all.push(Property::sometimes("a writer commits beside a plan", |_, state: &State| {
                properties::a_writer_commits_beside_a_plan(&state.world)
            }));
        }
        let is_certain = self.lost_answers == 0 && !self.forgetter;
        if is_certain && !self.unwanted.is_empty() && self.collectors > 0 {
            all.push(Property::eventually("the first collection ends", |_, state: &State| {
                state.world.store.collections[0].done
            }));
        }
        all
    }
}
