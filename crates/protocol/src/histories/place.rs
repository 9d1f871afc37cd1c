//! One copy of the repository: what a reader and a writer find in it, what a repair takes away, and how its
//! collectors decide and carry out.

use super::generation::{Generation, Sorted, slots_of, sort};
use super::scopes::{Histories, Mistake};
use crate::set::Set;

/// Slots of the arena.
pub const SLOTS: Set = Set::EMPTY.with(0).with(1);
/// Snapshots: two from the beginning, one that each copy makes, and the thief's.
pub const SNAPSHOTS: usize = 5;
pub const OF_THIEF: u8 = 4;
/// Collectors of a copy.
pub const COLLECTORS: usize = 2;
/// Generations are counted up to this.
pub const LEVEL_MAX: u8 = 3;

/// A verdict that a collector carries out, and what it has listed before.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Carrying {
    pub number: u8,
    pub verdict: Verdict,
    pub listed: Vec<Generation>,
    /// What it has created, or found complete: what that covers is to be removed.
    pub top: Option<Generation>,
}

/// A verdict about the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Verdict {
    pub dead: Set,
    /// The arena goes whole.
    pub is_whole: bool,
    /// It came back, and goes again.
    pub is_swept: bool,
}

/// One copy of the repository.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// Sorted by their names.
    pub objects: Vec<Generation>,
    pub vouched: Vec<Generation>,
    pub snapshots: Set,
    pub wished: Set,
    /// Named by verdicts.
    pub gone: Set,
    /// A verdict has removed the arena whole.
    pub is_dead: bool,
    /// The collection that is open.
    pub open: Option<Verdict>,
    pub number: u8,
    pub collectors: [Option<Carrying>; COLLECTORS],
    pub wishes_left: u8,
    pub has_backed_up: bool,
}

impl Place {
    pub fn new(histories: &Histories) -> Self {
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

    pub fn sorted(&self, histories: &Histories) -> Sorted {
        sort(&self.objects, &self.vouched, histories)
    }

    /// What a reader of the machine's snapshots finds, and its writer: in any generation that counts, as a
    /// chunk is compared with its name.
    pub fn readable(&self, histories: &Histories) -> Set {
        let Sorted { genuine, undecided, unmarked, .. } = self.sorted(histories);
        let own = genuine.iter().chain(&undecided).chain(&unmarked).filter(|it| !it.is_thiefs);
        own.fold(Set::EMPTY, |all, it| all.or(it.right))
    }

    /// What a writer relies on.
    pub fn usable(&self, histories: &Histories) -> Set {
        let Sorted { genuine, undecided, .. } = self.sorted(histories);
        let own = genuine.iter().chain(&undecided).filter(|it| !it.is_thiefs);
        own.fold(Set::EMPTY, |all, it| all.or(it.right))
    }

    pub fn listed(&self) -> Set {
        self.snapshots.minus(self.gone)
    }

    /// What a repair takes away: what is planted; and what has no mark, unless a snapshot names what that
    /// alone has.
    pub fn to_take_away(&self, histories: &Histories, roots: &[Set; SNAPSHOTS]) -> Vec<Generation> {
        let Sorted { genuine, unmarked, mut planted, .. } = self.sorted(histories);
        let alone = slots_of(&unmarked).minus(slots_of(&genuine));
        let is_named = self.listed().iter().any(|id| !roots[usize::from(id)].and(alone).is_empty());
        if !is_named || histories.has(Mistake::UnmarkedIsTakenAway) {
            planted.extend(unmarked);
        }
        planted
    }

    /// Creates an object, unless its name is taken.
    pub fn create(&mut self, generation: Generation) -> bool {
        match self.objects.binary_search_by_key(&generation.name(), Generation::name) {
            Ok(place) => self.objects[place] == generation,
            Err(place) => {
                self.objects.insert(place, generation);
                true
            }
        }
    }

    /// C2, C6, C7 of this arena; none if there is nothing to do.
    pub fn decide(
        &self,
        histories: &Histories,
        roots: &[Set; SNAPSHOTS],
    ) -> Option<(Verdict, Set)> {
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
    pub fn carry(&mut self, histories: &Histories, carrying: &mut Carrying) -> bool {
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
        if self.create(next) {
            carrying.top = Some(next);
        } else {
            carrying.listed = self.objects.clone();
        }
        true
    }

    pub fn is_at_work(&self) -> bool {
        self.open.is_some() || self.collectors.iter().any(Option::is_some)
    }
}
