//! Generations of the arena, and which of them count: as `crates/arena/src/store/generations.rs` says, but for
//! the owner's own arenas.

use super::scopes::{Histories, Mistake};
use crate::set::Set;

/// A generation of the arena. Its name is its level and what it was made by leaving out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation {
    pub level: u8,
    pub without: Set,
    pub is_thiefs: bool,
    pub is_marked: bool,
    /// Slots that it says it has.
    pub slots: Set,
    /// Slots of these that it calls something else.
    pub other: Set,
    /// Slots of these that have the chunks that belong there. What a thief makes has none.
    pub right: Set,
}

/// Of which domain the generations of an arena are.
#[derive(Debug, Default)]
pub struct Sorted {
    pub genuine: Vec<Generation>,
    pub unmarked: Vec<Generation>,
    pub planted: Vec<Generation>,
    pub undecided: Vec<Generation>,
    pub is_contested: bool,
}

impl Generation {
    pub fn name(&self) -> (u8, Set) {
        (self.level, self.without)
    }

    /// Whether no slot is called one thing here and another there.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let shared = self.slots.and(other.slots);
        self.other.and(shared) == other.other.and(shared)
    }

    pub fn covers(&self, other: &Self, dead: Set, histories: &Histories) -> bool {
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
pub fn sort(objects: &[Generation], vouched: &[Generation], histories: &Histories) -> Sorted {
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

pub fn slots_of<'g>(generations: impl IntoIterator<Item = &'g Generation>) -> Set {
    generations.into_iter().fold(Set::EMPTY, |all, it| all.or(it.slots))
}
