//! Generations of one arena, as a model: copies of a repository that are both used and then brought
//! together, and a thief who may create objects. `docs/format/repository.md`, *Generations*, has the
//! rules in words.
//!
//! The arena is that of a machine which can only store. The owner's collectors rewrite it, with a mark
//! that no other can make; an auditor vouches for it; a repairer takes away what is planted. The thief
//! has a key of another domain, or has taken the machine over and has its own. How a collector stays clear
//! of writers is in the other model: here a verdict is one step, a backup is one, and what is between them is
//! the carrying out.

use stateright::{Model, Property};

use crate::set::Set;

/// Slots of the arena.
const SLOTS: Set = Set::EMPTY.with(0).with(1);
/// The name's part of a generation that was saved without a summary.
const SAVED: Set = Set::EMPTY.with(7);
/// Snapshots: two from the beginning, one that each copy makes, and the thief's.
const SNAPSHOTS: usize = 5;
const OF_THIEF: u8 = 4;
/// Collectors of a copy.
const COLLECTORS: usize = 2;
/// Generations are counted up to this.
const LEVEL_MAX: u8 = 3;

/// Who takes part, and what is done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histories {
    pub name: &'static str,
    /// Copies of the repository; the first is copied into the second, once.
    pub copies: u8,
    /// Collectors of each copy.
    pub collectors: u8,
    /// Verdicts of each copy, and wishes.
    pub verdicts: u8,
    /// A thief plants a generation, and commits a snapshot that names what is not his.
    pub has_thief: bool,
    /// A thief has the machine's key, and makes a generation of its domain.
    pub is_taken_over: bool,
    /// The owner vouches for what a verification found right.
    pub has_auditor: bool,
    /// The owner takes away what is planted.
    pub has_repairer: bool,
    /// The summary of the only generation of a copy is lost, once, and the owner saves all else.
    pub is_damaged: bool,
    pub mistake: Option<Mistake>,
}

/// What can be done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// The greatest generation is taken for all of the arena.
    GreatestIsAll,
    /// A generation is removed below one that does not have all its slots. Harmless alone, because a
    /// rewriting has what is left of all that were listed.
    RemovesUncovered,
    /// Rewritings that take out different slots have the same name.
    NamesAreCounted,
    /// An arena that was removed, and came back with a copy, goes unmarked.
    SweepsUnmarked,
    /// A sample vouches for an arena that two domains claim.
    VouchesForOne,
    /// The owner's generations have no mark.
    HasNoMark,
    /// Something is removed of an arena although it is not proved whose it is. Harmless alone: the
    /// owner's mark proves it of all that were rewritten, and of the others the first generation is.
    RemovesContested,
    /// A collection ends although an arena of it came to be contested, and was left as it was.
    EndsWithContested,
    /// A snapshot may name what other domains have stored.
    ReadsForAnybody,
    /// Copies are brought together while a collector is at work.
    CopiesBesideACollector,
    /// A copy takes what is under a name for what it would bring.
    TakesNamesForObjects,
    /// All generations of the machine's domain count, with a mark or without.
    CountsWithoutMark,
    /// A rewriting takes a chunk from the greatest generation that says that it has it. Harmless alone: of
    /// those that count, a marked one is greater than one that is not.
    BelievesTheGreatest,
    /// A generation covers another that has other chunks in the same slots. Harmless alone: those that
    /// count never do.
    CoversByNumbers,
    /// A generation that was saved without a summary is planted as soon as there is one with a mark.
    UnmarkedIsPlanted,
    /// Such a generation is read, and does not keep the arena from being removed.
    UnmarkedFreezesNothing,
    /// A repair takes such a generation away although something names what it alone has.
    UnmarkedIsTakenAway,
}

/// A generation of the arena. Its name is its level and what it was made by leaving out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation {
    level: u8,
    without: Set,
    is_thiefs: bool,
    is_marked: bool,
    /// What it says that it has.
    slots: Set,
    /// Slots of these that it calls something else.
    other: Set,
    /// Slots of these that have the chunks that belong there. What a thief makes has none.
    right: Set,
}

/// What a collector carries out, and what it has listed before.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Carrying {
    number: u8,
    verdict: Verdict,
    listed: Vec<Generation>,
    /// What it has created, or found complete: what that covers is to be removed.
    top: Option<Generation>,
}

/// A verdict about the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Verdict {
    dead: Set,
    /// The arena goes whole.
    is_whole: bool,
    /// It came back, and goes again.
    is_swept: bool,
}

/// One copy of the repository.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    /// Sorted by their names.
    objects: Vec<Generation>,
    vouched: Vec<Generation>,
    snapshots: Set,
    wished: Set,
    /// Named by verdicts.
    gone: Set,
    /// A verdict has removed the arena whole.
    is_dead: bool,
    /// The collection that is open.
    open: Option<Verdict>,
    number: u8,
    collectors: [Option<Carrying>; COLLECTORS],
    wishes_left: u8,
    has_backed_up: bool,
}

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

/// Of which domain the generations of an arena are.
#[derive(Debug, Default)]
struct Sorted {
    genuine: Vec<Generation>,
    unmarked: Vec<Generation>,
    planted: Vec<Generation>,
    undecided: Vec<Generation>,
    is_contested: bool,
}

impl Generation {
    fn name(&self) -> (u8, Set) {
        (self.level, self.without)
    }

    /// Whether no slot is called one thing here and another there.
    fn agrees_with(&self, other: &Self) -> bool {
        let shared = self.slots.and(other.slots);
        self.other.and(shared) == other.other.and(shared)
    }

    fn covers(&self, other: &Self, dead: Set, histories: &Histories) -> bool {
        let rest = other.slots.minus(dead);
        let is_same = self.other.and(rest) == other.other.and(rest);
        rest.is_within(self.slots) && (is_same || histories.has(Mistake::CoversByNumbers))
    }
}

/// The machine's generations that count, those without a mark that contradict none of them, and the others.
fn divide_own(own: Vec<Generation>, histories: &Histories) -> [Vec<Generation>; 3] {
    if histories.has(Mistake::CountsWithoutMark) {
        return [own, Vec::new(), Vec::new()];
    }
    let marked: Vec<Generation> = own.iter().filter(|it| it.is_marked).copied().collect();
    let is_first =
        |it: &Generation| it.level == 0 && marked.iter().all(|other| other.agrees_with(it));
    let counts = |it: &Generation| it.is_marked || is_first(it);
    let (counting, further): (Vec<_>, Vec<_>) = own.iter().partition(|it| counts(it));
    if counting.is_empty() {
        return [own, Vec::new(), Vec::new()];
    }
    let (unmarked, planted) = further.into_iter().partition(|it: &Generation| {
        let agrees = counting.iter().all(|other| other.agrees_with(it));
        agrees && !histories.has(Mistake::UnmarkedIsPlanted)
    });
    [counting, unmarked, planted]
}

/// Whose an arena is: as `crates/arena/src/store/generations.rs` says, but for the owner's own arenas.
fn sort(objects: &[Generation], vouched: &[Generation], histories: &Histories) -> Sorted {
    let only = |which: &dyn Fn(&Generation) -> bool| {
        let mut found = objects.iter().filter(|it| which(it)).map(|it| it.is_thiefs);
        let first = found.next()?;
        Some(found.all(|other| other == first).then_some(first))
    };
    let proof = only(&|it| it.is_marked).or_else(|| only(&|it| vouched.contains(it)));
    let first = objects.iter().find(|it| it.level == 0).map(|it| it.is_thiefs);
    let (is_proved, is_thiefs) = match (proof, only(&|_| true)) {
        (Some(proved), _) => (proved.is_some(), proved),
        (None, Some(Some(all))) => (true, Some(all)),
        (None, _) => (false, first),
    };
    let (own, others): (Vec<_>, Vec<_>) =
        objects.iter().partition(|it| is_thiefs == Some(it.is_thiefs));
    let is_contested = !is_proved && !others.is_empty();
    let [genuine, unmarked, further] = divide_own(own, histories);
    let (planted, undecided) = match is_thiefs {
        Some(_) => ([further, others].concat(), Vec::new()),
        None => (further, others),
    };
    Sorted { genuine, unmarked, planted, undecided, is_contested }
}

fn slots_of<'g>(generations: impl IntoIterator<Item = &'g Generation>) -> Set {
    generations.into_iter().fold(Set::EMPTY, |all, it| all.or(it.slots))
}

impl Place {
    fn new(histories: &Histories) -> Self {
        let first = Generation {
            level: 0,
            without: Set::EMPTY,
            is_thiefs: false,
            is_marked: false,
            slots: SLOTS,
            other: Set::EMPTY,
            right: SLOTS,
        };
        Self {
            objects: vec![first],
            vouched: Vec::new(),
            snapshots: Set::of(&[0, 1]),
            wished: Set::EMPTY,
            gone: Set::EMPTY,
            is_dead: false,
            open: None,
            number: 0,
            collectors: [None, None],
            wishes_left: histories.verdicts,
            has_backed_up: false,
        }
    }

    fn sorted(&self, histories: &Histories) -> Sorted {
        sort(&self.objects, &self.vouched, histories)
    }

    /// What a reader of the machine's snapshots finds, and its writer: in any generation that counts, as a
    /// chunk is compared with its name.
    fn readable(&self, histories: &Histories) -> Set {
        let Sorted { genuine, undecided, unmarked, .. } = self.sorted(histories);
        let own = genuine.iter().chain(&undecided).chain(&unmarked).filter(|it| !it.is_thiefs);
        own.fold(Set::EMPTY, |all, it| all.or(it.right))
    }

    /// What a writer relies on.
    fn usable(&self, histories: &Histories) -> Set {
        let Sorted { genuine, undecided, .. } = self.sorted(histories);
        let own = genuine.iter().chain(&undecided).filter(|it| !it.is_thiefs);
        own.fold(Set::EMPTY, |all, it| all.or(it.right))
    }

    fn listed(&self) -> Set {
        self.snapshots.minus(self.gone)
    }

    /// What a repair takes away: what is planted; and what has no mark, unless a snapshot names what that
    /// alone has.
    fn to_take_away(&self, histories: &Histories, roots: &[Set; SNAPSHOTS]) -> Vec<Generation> {
        let Sorted { genuine, unmarked, mut planted, .. } = self.sorted(histories);
        let alone = slots_of(&unmarked).minus(slots_of(&genuine));
        let is_named = self.listed().iter().any(|id| !roots[usize::from(id)].and(alone).is_empty());
        if !is_named || histories.has(Mistake::UnmarkedIsTakenAway) {
            planted.extend(unmarked);
        }
        planted
    }

    /// Creates an object, unless its name is taken.
    fn create(&mut self, generation: Generation) -> bool {
        match self.objects.binary_search_by_key(&generation.name(), Generation::name) {
            Ok(place) => self.objects[place] == generation,
            Err(place) => {
                self.objects.insert(place, generation);
                true
            }
        }
    }

    /// C2, C6, C7 of this arena; none if there is nothing to do.
    fn decide(&self, histories: &Histories, roots: &[Set; SNAPSHOTS]) -> Option<(Verdict, Set)> {
        let sorted = self.sorted(histories);
        let removes_contested = histories.has(Mistake::RemovesContested);
        let is_contested = sorted.is_contested && !removes_contested;
        let freezes = !histories.has(Mistake::UnmarkedFreezesNothing);
        let mut kept = sorted.genuine;
        if freezes {
            kept.extend(&sorted.unmarked);
        }
        let has_unmarked = freezes && !sorted.unmarked.is_empty();
        if sorted.is_contested && !removes_contested {
            kept.extend(sorted.planted.iter().chain(&sorted.undecided));
        }
        if histories.has(Mistake::GreatestIsAll) {
            kept.drain(..kept.len().saturating_sub(1));
        }
        let goes = self.wished.and(self.listed());
        let stays = self.listed().minus(goes);
        let needed = stays.iter().fold(Set::EMPTY, |all, id| all.or(roots[usize::from(id)]));
        let present = slots_of(&kept);
        let is_frozen = is_contested || has_unmarked || self.is_dead;
        let dead = if is_frozen { Set::EMPTY } else { present.minus(needed) };
        let is_needed = !present.and(needed).is_empty();
        let is_swept = self.is_dead
            && !self.objects.is_empty()
            && (!is_needed || histories.has(Mistake::SweepsUnmarked));
        let is_whole = !dead.is_empty() && dead == present;
        let is_something = !goes.is_empty() || !dead.is_empty() || is_swept;
        is_something.then_some((Verdict { dead, is_whole, is_swept }, goes))
    }

    /// C8: the next thing of what a collector carries out; false if it has come to its end.
    fn carry(&mut self, histories: &Histories, carrying: &mut Carrying) -> bool {
        let Verdict { dead, is_whole, is_swept } = carrying.verdict;
        if is_whole || is_swept {
            self.objects.retain(|it| !carrying.listed.contains(it));
            self.is_dead = true;
            return false;
        }
        if dead.is_empty() {
            return false;
        }
        if let Some(top) = carrying.top {
            let below = |it: &Generation| {
                let is_covered = top.covers(it, dead, histories);
                let goes = is_covered || histories.has(Mistake::RemovesUncovered);
                it.level < top.level && goes
            };
            let genuine = sort(&carrying.listed, &self.vouched, histories).genuine;
            self.objects.retain(|it| !(genuine.contains(it) && below(it)));
            return false;
        }
        let sorted = sort(&carrying.listed, &self.vouched, histories);
        if sorted.is_contested && !histories.has(Mistake::RemovesContested) {
            // It is left as it is. Until it is known whose it is, the collection stays open, and so what
            // it condemns is used by no writer.
            if !histories.has(Mistake::EndsWithContested) {
                carrying.listed = self.objects.clone();
                return true;
            }
            return false;
        }
        // What is gone since it was listed cannot be read: it lists again.
        if sorted.genuine.iter().any(|it| !self.objects.contains(it)) {
            carrying.listed = self.objects.clone();
            return true;
        }
        let mut sources = sorted.genuine.clone();
        if histories.has(Mistake::GreatestIsAll) {
            sources.drain(..sources.len().saturating_sub(1));
        }
        let Some(newest) = sources.last().copied() else { return false };
        let all_agree = sources.iter().all(|it| sources.iter().all(|other| it.agrees_with(other)));
        if !all_agree && !histories.has(Mistake::CountsWithoutMark) {
            return false;
        }
        let all = slots_of(&sources);
        let is_made_by_owner = newest.is_marked || sources.len() == 1;
        let may_be_top = is_made_by_owner || histories.has(Mistake::HasNoMark);
        let covers_all = sources.iter().all(|it| newest.covers(it, dead, histories));
        if may_be_top && newest.slots.and(dead).is_empty() && covers_all {
            carrying.top = Some(newest);
            return true;
        }
        // The greatest first, and before all those that have the mark.
        sources.reverse();
        if !histories.has(Mistake::BelievesTheGreatest) {
            sources.sort_by_key(|it| !it.is_marked);
        }
        let believed = |which: &dyn Fn(&Generation) -> Set| {
            let has = |slot: &u8| {
                let first = sources.iter().find(|it| it.slots.has(*slot));
                first.is_some_and(|it| which(it).has(*slot))
            };
            all.minus(dead).iter().filter(has).fold(Set::EMPTY, Set::with)
        };
        let level = carrying.listed.last().map_or(0, |greatest| greatest.level) + 1;
        if level > LEVEL_MAX {
            return false;
        }
        let next = Generation {
            level,
            without: if histories.has(Mistake::NamesAreCounted) { Set::EMPTY } else { dead },
            is_thiefs: newest.is_thiefs,
            is_marked: !histories.has(Mistake::HasNoMark),
            slots: all.minus(dead),
            other: believed(&|it| it.other),
            right: believed(&|it| it.right),
        };
        match self.create(next) {
            true => carrying.top = Some(next),
            false => carrying.listed = self.objects.clone(),
        }
        true
    }

    fn is_at_work(&self) -> bool {
        self.open.is_some() || self.collectors.iter().any(Option::is_some)
    }
}

impl Histories {
    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Where the thief is: the copy in which all ends.
    fn last(&self) -> u8 {
        self.copies - 1
    }
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

const THIEF: Histories = Histories {
    name: "a thief, an auditor, a repairer",
    copies: 1,
    collectors: 2,
    verdicts: 2,
    has_thief: true,
    is_taken_over: false,
    has_auditor: true,
    has_repairer: true,
    is_damaged: false,
    mistake: None,
};

const TAKEN_OVER: Histories = Histories {
    name: "a machine that was taken over, an auditor, a repairer",
    has_thief: false,
    is_taken_over: true,
    ..THIEF
};

const COPIED: Histories = Histories {
    name: "two copies, brought together",
    copies: 2,
    collectors: 1,
    verdicts: 2,
    has_thief: false,
    is_taken_over: false,
    has_auditor: false,
    has_repairer: false,
    is_damaged: false,
    mistake: None,
};

const SAVED_AND_COPIED: Histories = Histories {
    name: "two copies, of which one is damaged, brought together",
    has_repairer: true,
    is_damaged: true,
    ..COPIED
};

const COPIED_AND_PLANTED: Histories = Histories {
    name: "two copies, brought together, and a thief",
    has_thief: true,
    has_repairer: true,
    ..COPIED
};

/// What takes seconds, and what takes longer.
pub fn scopes(is_whole: bool) -> Vec<Histories> {
    let mut scopes = vec![THIEF, TAKEN_OVER, COPIED, SAVED_AND_COPIED];
    if is_whole {
        scopes.push(COPIED_AND_PLANTED);
    }
    scopes
}

/// Each does harm.
pub fn mutants() -> Vec<Histories> {
    let with = |mistake, scope: Histories| Histories { mistake: Some(mistake), ..scope };
    vec![
        with(Mistake::GreatestIsAll, COPIED),
        with(Mistake::NamesAreCounted, COPIED),
        with(Mistake::SweepsUnmarked, COPIED),
        with(Mistake::CopiesBesideACollector, COPIED),
        with(Mistake::VouchesForOne, THIEF),
        with(Mistake::HasNoMark, THIEF),
        with(Mistake::EndsWithContested, THIEF),
        with(Mistake::ReadsForAnybody, THIEF),
        with(Mistake::TakesNamesForObjects, COPIED_AND_PLANTED),
        with(Mistake::CountsWithoutMark, TAKEN_OVER),
        with(Mistake::UnmarkedIsPlanted, SAVED_AND_COPIED),
        with(Mistake::UnmarkedFreezesNothing, SAVED_AND_COPIED),
        with(Mistake::UnmarkedIsTakenAway, SAVED_AND_COPIED),
    ]
}

/// Mistakes that something else makes up for.
pub fn harmless() -> Vec<Histories> {
    let with = |mistake, scope: Histories| Histories { mistake: Some(mistake), ..scope };
    vec![
        with(Mistake::RemovesUncovered, COPIED),
        with(Mistake::RemovesContested, THIEF),
        with(Mistake::CoversByNumbers, TAKEN_OVER),
        with(Mistake::BelievesTheGreatest, TAKEN_OVER),
    ]
}
