//! The agreement of creators in a store without exclusive create, as a model: what
//! `crates/backend/src/agreed.rs` does, call by call.
//!
//! Every note is put once, under a name of its own. A put may land late, after its creator has died.
//! A listing shows what was there when it began, and of what landed meanwhile any part. The object may
//! be removed at any time, as by a collector; its notes stay.

use stateright::{Model, Property};

/// Creators of one name, each with bytes of its own.
pub const CREATORS: usize = 3;
/// Rounds that there are at most.
const ROUNDS: usize = 3;
const BALLOTS: usize = ROUNDS * CREATORS;

/// How far the checker goes, and what is done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreement {
    pub creators: usize,
    pub rounds: usize,
    pub mutant: Option<Mistake>,
}

/// What a creator can do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// It does not take over what an earlier round wanted.
    KeepsItsOwn,
    /// It does not look a second time.
    LooksOnce,
    /// It looks which rounds there are, and puts note 2 without note 1 before.
    WantsAtOnce,
    /// Who removes the object removes its notes too.
    RemovesNotes,
}

/// A set of rounds, each with its creator.
type Ballots = u16;

/// What is listed of the notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seen {
    ones: Ballots,
    twos: Ballots,
}

/// Where a creator is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// It will look which rounds there are.
    Begin,
    /// It puts note 1 of this round.
    PutOne(u8),
    /// It lists, since then.
    ListOne(u8, Seen),
    /// It puts note 2.
    PutTwo(u8, u8),
    /// It lists, since then.
    ListTwo(u8, u8, Seen),
    /// It puts the decided bytes under the name.
    PutObject(u8),
    /// It reported: whether its own bytes were decided.
    Reported(bool),
    /// It died, or gave up.
    Gone,
}

/// The store and the creators.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    landed: Seen,
    /// Sent by creators that died.
    late: Seen,
    late_objects: u8,
    /// What each note 2 says; its creator decides it once.
    wishes: [u8; BALLOTS],
    object: Option<u8>,
    removed: bool,
    /// All bytes that were ever under the name.
    ever: u8,
    /// All bytes that were decided.
    decided: u8,
    places: [Place; CREATORS],
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    Begin(u8),
    /// A put that is done and answered.
    Put(u8),
    /// A put that may land later; its creator dies.
    PutLate(u8),
    /// The listing ends, and shows this too.
    EndList(u8, Seen),
    LandOne(u8),
    LandTwo(u8),
    LandObject(u8),
    Remove,
}

impl Seen {
    fn greatest(self) -> Option<u8> {
        (self.ones | self.twos).checked_ilog2().map(|bit| bit as u8)
    }
}

fn bit(ballot: u8) -> Ballots {
    1 << ballot
}

/// The subsets of what landed during a listing.
fn parts_of(set: Ballots) -> impl Iterator<Item = Ballots> {
    let mut part = Some(set);
    std::iter::from_fn(move || {
        let now = part?;
        part = (now != 0).then(|| (now - 1) & set);
        Some(now)
    })
}

impl Agreement {
    fn ballot(self, round: usize, creator: u8) -> u8 {
        ((round - 1) * CREATORS) as u8 + creator
    }

    /// What follows a listing after note 1.
    fn after_one(self, state: &mut State, creator: u8, ballot: u8, seen: Seen) -> Place {
        if seen.greatest().is_some_and(|greatest| greatest > ballot) {
            return Place::Begin;
        }
        let wanted = seen.twos.checked_ilog2().map(|bit| state.wishes[bit as usize]);
        let wish = match wanted {
            Some(other) if self.mutant != Some(Mistake::KeepsItsOwn) => other,
            _ => creator,
        };
        state.wishes[usize::from(ballot)] = wish;
        Place::PutTwo(ballot, wish)
    }
}

impl State {
    /// What a creator's put does, if it lands.
    fn put(&mut self, place: Place) {
        match place {
            Place::PutOne(ballot) => self.landed.ones |= bit(ballot),
            Place::PutTwo(ballot, _) => self.landed.twos |= bit(ballot),
            Place::PutObject(bytes) => self.land_object(bytes),
            _ => unreachable!("it puts nothing"),
        }
    }

    fn land_object(&mut self, bytes: u8) {
        self.object = Some(bytes);
        self.ever |= 1 << bytes;
    }
}

impl Model for Agreement {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let mut places = [Place::Gone; CREATORS];
        places[..self.creators].fill(Place::Begin);
        vec![State {
            landed: Seen::default(),
            late: Seen::default(),
            late_objects: 0,
            wishes: [0; BALLOTS],
            object: None,
            removed: false,
            ever: 0,
            decided: 0,
            places,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        for (number, place) in (0..).zip(&state.places) {
            match *place {
                Place::Begin => actions.push(Step::Begin(number)),
                Place::PutOne(_) | Place::PutTwo(..) | Place::PutObject(_) => {
                    actions.extend([Step::Put(number), Step::PutLate(number)]);
                }
                Place::ListOne(_, since) | Place::ListTwo(_, _, since) => {
                    let (ones, twos) =
                        (state.landed.ones & !since.ones, state.landed.twos & !since.twos);
                    for ones in parts_of(ones) {
                        actions.extend(
                            parts_of(twos).map(|twos| Step::EndList(number, Seen { ones, twos })),
                        );
                    }
                }
                Place::Reported(_) | Place::Gone => {}
            }
        }
        for ballot in 0..BALLOTS as u8 {
            if state.late.ones & bit(ballot) != 0 {
                actions.push(Step::LandOne(ballot));
            }
            if state.late.twos & bit(ballot) != 0 {
                actions.push(Step::LandTwo(ballot));
            }
        }
        let late = |bytes: &u8| state.late_objects & (1 << bytes) != 0;
        actions.extend((0..CREATORS as u8).filter(late).map(Step::LandObject));
        if state.object.is_some() && !state.removed {
            actions.push(Step::Remove);
        }
    }

    fn next_state(&self, last: &State, action: Step) -> Option<State> {
        let mut state = last.clone();
        match action {
            Step::Begin(number) => {
                let round = state.landed.greatest().map_or(0, usize::from) / CREATORS;
                let round = if state.landed.greatest().is_some() { round + 2 } else { 1 };
                state.places[usize::from(number)] = match self.mutant {
                    _ if round > self.rounds => Place::Gone,
                    Some(Mistake::WantsAtOnce) => {
                        let ballot = self.ballot(round, number);
                        let seen = state.landed;
                        self.after_one(&mut state, number, ballot, seen)
                    }
                    _ => Place::PutOne(self.ballot(round, number)),
                };
            }
            Step::Put(number) => {
                let place = state.places[usize::from(number)];
                state.put(place);
                let seen = state.landed;
                state.places[usize::from(number)] = match place {
                    Place::PutOne(ballot) => Place::ListOne(ballot, seen),
                    Place::PutTwo(_, wish) if self.mutant == Some(Mistake::LooksOnce) => {
                        state.decided |= 1 << wish;
                        Place::PutObject(wish)
                    }
                    Place::PutTwo(ballot, wish) => Place::ListTwo(ballot, wish, seen),
                    Place::PutObject(bytes) => Place::Reported(bytes == number),
                    _ => unreachable!("it puts nothing"),
                };
            }
            Step::PutLate(number) => {
                match state.places[usize::from(number)] {
                    Place::PutOne(ballot) => state.late.ones |= bit(ballot),
                    Place::PutTwo(ballot, _) => state.late.twos |= bit(ballot),
                    Place::PutObject(bytes) => state.late_objects |= 1 << bytes,
                    _ => unreachable!("it puts nothing"),
                }
                state.places[usize::from(number)] = Place::Gone;
            }
            Step::EndList(number, more) => {
                let place = state.places[usize::from(number)];
                let next = match place {
                    Place::ListOne(ballot, since) => {
                        let seen =
                            Seen { ones: since.ones | more.ones, twos: since.twos | more.twos };
                        self.after_one(&mut state, number, ballot, seen)
                    }
                    Place::ListTwo(ballot, wish, since) => {
                        let seen =
                            Seen { ones: since.ones | more.ones, twos: since.twos | more.twos };
                        if seen.greatest().is_some_and(|greatest| greatest > ballot) {
                            Place::Begin
                        } else {
                            state.decided |= 1 << wish;
                            Place::PutObject(wish)
                        }
                    }
                    _ => unreachable!("it does not list"),
                };
                state.places[usize::from(number)] = next;
            }
            Step::LandOne(ballot) => {
                state.late.ones &= !bit(ballot);
                state.landed.ones |= bit(ballot);
            }
            Step::LandTwo(ballot) => {
                state.late.twos &= !bit(ballot);
                state.landed.twos |= bit(ballot);
            }
            Step::LandObject(bytes) => {
                state.late_objects &= !(1 << bytes);
                state.land_object(bytes);
            }
            Step::Remove => {
                state.object = None;
                state.removed = true;
                if self.mutant == Some(Mistake::RemovesNotes) {
                    state.landed = Seen::default();
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one value is decided", |_, state: &State| {
                state.decided.count_ones() <= 1
            }),
            Property::always("a name never has two contents", |_, state: &State| {
                state.ever.count_ones() <= 1
            }),
            Property::always("a creator knows who created it", |_, state: &State| {
                (0..).zip(&state.places).all(|(number, place)| match place {
                    // The object may be gone by now.
                    Place::Reported(true) => state.ever == 1 << number,
                    Place::Reported(false) => state.ever != 0 && state.ever & (1 << number) == 0,
                    _ => true,
                })
            }),
            Property::sometimes("two creators learn one result", |_, state: &State| {
                let reported = |place: &&Place| matches!(place, Place::Reported(_));
                state.places.iter().filter(reported).count() >= 2
            }),
        ]
    }
}

/// What takes seconds, and what takes longer.
pub fn scopes(is_whole: bool) -> Vec<Agreement> {
    let scope = |creators, rounds| Agreement { creators, rounds, mutant: None };
    let mut scopes = vec![scope(2, 2), scope(2, 3), scope(3, 2)];
    if is_whole {
        scopes.push(scope(3, 3));
    }
    scopes
}

/// Each does harm.
pub fn mutants() -> Vec<Agreement> {
    let mistakes =
        [Mistake::KeepsItsOwn, Mistake::LooksOnce, Mistake::WantsAtOnce, Mistake::RemovesNotes];
    let scope = |mistake| Agreement { creators: 2, rounds: 3, mutant: Some(mistake) };
    mistakes.map(scope).to_vec()
}
