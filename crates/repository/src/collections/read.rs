//! What the collections condemn and have removed, as a writer has to know it (W2).
//!
//! No object under these names stops a verb. What is found is one of these:
//!
//! - *what the owner made*: it counts, from its copy if need be;
//! - *planted*: whole, and not signed by the owner; or where no object of the owner's can be: a
//!   verdict or an end of which there is no plan, a plan after a number that is free. It does not
//!   count;
//! - *unreadable*, and the owner may have made it. An end is the same as none, if its verdict can be
//!   read. A verdict that cannot be read removes a part of what its plan condemns, so its plan is
//!   what a writer knows. A plan that cannot be read, and has no verdict, may condemn anything: its
//!   collection is *doubtful*, no writer relies on anything, and a verdict of the owner's that
//!   removes nothing answers it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use strongroom_backend::{ObjectName, both};
use strongroom_base::{ArenaId, Location, SnapshotId};

use super::steps::{Found, create_verdict, read_end, read_step};
use super::{ArenaSlots, End, Forgotten, Selection};
use crate::error::RepositoryError;
use crate::folders::{WithheldFolder, show};
use crate::names::{COLLECTIONS_FOLDER, Step};
use crate::repository::Repository;

/// A collection that is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCollection {
    /// Its number.
    pub number: u64,
    /// What it may remove, or, once decided, what it removes.
    pub selection: Selection,
    /// Whether there is a verdict.
    pub decided: bool,
}

/// All collections, as a writer has to know them (W2).
#[derive(Debug, Default)]
pub struct Collections {
    /// The greatest number of one that was planned; 0 if there was none.
    pub last: u64,
    /// The number of the next.
    pub next: u64,
    /// The last, if it is not done.
    pub open: Option<OpenCollection>,
    /// Those that may be open, and of which nothing can be read: their numbers, ascending, and why.
    doubtful: Vec<(u64, RepositoryError)>,
    /// All of them may be withheld: then any may be open.
    unlisted: Option<(WithheldFolder, RepositoryError)>,
    /// The verdict of the open collection, if there is one that cannot be read.
    undecidable: Option<RepositoryError>,
    gone: HashMap<SnapshotId, Forgotten>,
    /// In an order, so that what a collector does can be replayed.
    dead: BTreeSet<ArenaId>,
}

/// What a listing shows of one collection.
#[derive(Debug, Default)]
struct Listed {
    objects: BTreeSet<Step>,
    copies: BTreeSet<Step>,
}

impl Listed {
    /// Whether there is an object of a step, or its copy.
    fn has(&self, step: Step) -> bool {
        self.objects.contains(&step) || self.copies.contains(&step)
    }
}

impl Collections {
    /// How far they have come: it differs if a plan, a verdict or an end was created in between.
    pub fn step(&self) -> (u64, Option<bool>) {
        (self.last, self.open.as_ref().map(|open| open.decided))
    }

    /// Reads them. What the owner did not make does not count.
    pub fn read(repository: &Repository) -> Result<Self, RepositoryError> {
        Ok(Self::read_and(repository, || ())?.0)
    }

    /// Reads them; answers those of which nothing can be read with a verdict that removes nothing,
    /// which only the owner can: any collector obeys it, and plans again.
    ///
    /// # Errors
    ///
    /// Those of reading. What cannot be answered stays doubtful.
    pub fn read_settled(repository: &Repository) -> Result<Self, RepositoryError> {
        let all = Self::read(repository)?;
        match all.settle(repository) {
            true => Self::read(repository),
            false => Ok(all),
        }
    }

    /// Answers the doubtful ones; returns whether there was one that could be answered. In their
    /// order: a later one of the owner's has begun only after the one before had ended.
    pub(crate) fn settle(&self, repository: &Repository) -> bool {
        if repository.keys.owner.is_none() {
            return false;
        }
        let answer = |(number, _): &&(u64, RepositoryError)| {
            create_verdict(repository, *number, &Selection::default()).is_ok()
        };
        self.doubtful.iter().take_while(answer).count() > 0
    }

    /// Reads them, and does what may be done once they are listed and read: far away at the time at
    /// which it is asked whether one went through meanwhile. If one did, it is done again.
    ///
    /// # Errors
    ///
    /// As for [`Collections::read`].
    pub fn read_and<T: Send>(
        repository: &Repository,
        then: impl Fn() -> T + Sync,
    ) -> Result<(Self, T), RepositoryError> {
        let in_flight = repository.backend().promises().in_flight;
        loop {
            let Some((all, verdicts)) = Self::read_listed(repository)? else { continue };
            // Nothing is relied on, so it does not matter what went through meanwhile.
            if all.unlisted.is_some() {
                return Ok((all, then()));
            }
            let (done, are_missing) = both(in_flight, &then, || are_missing(repository, &verdicts));
            if are_missing? {
                return Ok((all, done));
            }
        }
    }

    /// The collections that a listing shows, and verdicts that must not exist: if one does, one went
    /// through while they were listed and read. None if that is known already: a plan vanished.
    fn read_listed(
        repository: &Repository,
    ) -> Result<Option<(Self, Vec<ObjectName>)>, RepositoryError> {
        let mut listed: BTreeMap<u64, Listed> = BTreeMap::new();
        let shown = show(repository.backend(), COLLECTIONS_FOLDER)?;
        for info in shown.objects {
            if let Some((number, step, is_copy)) = Step::or_copy_of(info.name.file()) {
                let listed = listed.entry(number).or_default();
                let names = if is_copy { &mut listed.copies } else { &mut listed.objects };
                names.insert(step);
            }
        }
        let unlisted = shown.withheld.map(|folder| (folder.clone(), folder.error()));
        let mut all = Self { unlisted, ..Self::default() };
        let mut doubtful = BTreeMap::new();
        let (mut covered, mut ends) = (u64::MAX, BTreeMap::new());
        for (number, listed) in listed.iter().rev() {
            if *number >= covered {
                continue;
            }
            if listed.has(Step::Done)
                && let Found::Is(End { since, removed }) = read_end(repository, *number)?
            {
                all.remove(&removed);
                all.last = all.last.max(*number);
                covered = since;
                ends.insert(*number, since);
                continue;
            }
            let verdict = match listed.has(Step::Verdict) {
                true => read_step(repository, *number, Step::Verdict)?,
                false => Found::Missing,
            };
            let undecidable = match verdict {
                Found::Is(verdict) => {
                    all.remove(&verdict);
                    all.begin(OpenCollection {
                        number: *number,
                        selection: verdict,
                        decided: true,
                    });
                    continue;
                }
                Found::Unreadable(error) => Some(error),
                Found::Forged | Found::Missing => None,
            };
            // Until a collection has ended there is its plan; after that nothing goes any more.
            if !listed.has(Step::Plan) {
                let is_seen_to_end = listed.has(Step::Done) || undecidable.is_none();
                if !is_seen_to_end && !is_missing(repository, &Step::Done.object(*number))? {
                    return Ok(None);
                }
                continue;
            }
            match read_step(repository, *number, Step::Plan)? {
                Found::Is(selection) => {
                    let open = OpenCollection { number: *number, selection, decided: false };
                    if all.begin(open) {
                        all.undecidable = undecidable;
                    }
                }
                Found::Unreadable(error) if all.last == 0 => {
                    doubtful.insert(*number, undecidable.unwrap_or(error));
                }
                Found::Missing
                    if listed.objects.contains(&Step::Plan)
                        && is_missing(repository, &Step::Plan.object(*number))? =>
                {
                    return Ok(None);
                }
                Found::Unreadable(_) | Found::Forged | Found::Missing => {}
            }
        }
        // Names that others have planted are passed over.
        all.next = (all.last + 1..).find(|number| !listed.contains_key(number)).unwrap_or(u64::MAX);
        // The owner takes the next number that is free: a plan after one is planted.
        let next = all.next;
        all.doubtful = doubtful.into_iter().filter(|(number, _)| *number < next).collect();
        // A plan may vanish before the listing comes to it; it may also be created again, by a
        // collector that has slept, before it is read here. A verdict never vanishes.
        let undecided = all.open.as_ref().filter(|open| !open.decided).map(|open| open.number);
        let shows_none = |number: &u64| {
            listed.get(number).is_none_or(|listed| !listed.objects.contains(&Step::Verdict))
        };
        let mut verdicts = match undecided.filter(shows_none) {
            Some(number) => vec![number],
            // What was passed over as planted may be what was left of one when it was listed.
            None => (all.last + 1..=next).filter(shows_none).collect(),
        };
        // One that went through may be hidden by the next, which began before the listing ended.
        let mut number = all.last;
        while number > 1 {
            number = ends.get(&number).map_or(number, |since| *since) - 1;
            verdicts.extend(
                Some(number).filter(|it| *it > 0 && !ends.contains_key(it) && shows_none(it)),
            );
        }
        Ok(Some((all, verdicts.into_iter().map(|number| Step::Verdict.object(number)).collect())))
    }

    /// Takes a collection for the last, and for open, unless there is a later one.
    fn begin(&mut self, open: OpenCollection) -> bool {
        let is_last = self.last == 0;
        if is_last {
            self.last = open.number;
            self.open = Some(open);
        }
        is_last
    }

    fn remove(&mut self, verdict: &Selection) {
        self.gone.extend(verdict.snapshots.iter().map(|gone| (gone.id, gone.clone())));
        let arenas = verdict.slots.0.iter();
        let whole = arenas.filter(|(_, slots)| **slots == ArenaSlots::All);
        self.dead.extend(whole.map(|(arena, _)| *arena));
    }

    /// What keeps a collector from deciding, and why it cannot be read. Nothing may be removed.
    pub fn blocked(&self) -> Option<(ObjectName, &RepositoryError)> {
        let open = self.open.as_ref().zip(self.undecidable.as_ref());
        let open = open.map(|(open, why)| (Step::Verdict.object(open.number), why));
        open.or_else(|| self.doubtful())
    }

    /// A plan that may be the owner's and cannot be read, nor its verdict; or the folder, if it is
    /// withheld: it may condemn anything, so no writer relies on what was stored.
    pub fn doubtful(&self) -> Option<(ObjectName, &RepositoryError)> {
        let unlisted = self.unlisted.as_ref().map(|(folder, why)| (folder.name(), why));
        let first = self.doubtful.first().map(|(number, why)| (Step::Plan.object(*number), why));
        unlisted.or(first)
    }

    /// Whether nothing of them is known: any snapshot may be gone.
    pub fn are_withheld(&self) -> bool {
        self.unlisted.is_some()
    }

    /// Whether a verdict took a snapshot. Then it does not exist, even if there is an object, unless the
    /// owner has said since that it stays ([`Wishes::let_go`](crate::Wishes::let_go)).
    pub fn took(&self, snapshot: SnapshotId) -> bool {
        self.gone.contains_key(&snapshot)
    }

    /// The snapshots that verdicts took.
    pub fn taken(&self) -> impl Iterator<Item = &Forgotten> {
        self.gone.values()
    }

    /// The arenas that verdicts removed.
    pub fn dead(&self) -> impl Iterator<Item = ArenaId> {
        self.dead.iter().copied()
    }

    /// Whether a snapshot is gone, or may go: it is no parent (W4).
    pub fn may_go(&self, snapshot: SnapshotId) -> bool {
        let open = self.open.as_ref();
        self.doubtful().is_some()
            || self.took(snapshot)
            || open.is_some_and(|open| open.selection.snapshots.iter().any(|f| f.id == snapshot))
    }

    /// Whether a verdict removed an arena. Then it does not exist, even if there is an object.
    pub fn is_dead(&self, arena: ArenaId) -> bool {
        self.dead.contains(&arena)
    }

    /// Whether a collection that has ended took a snapshot. One that has not may be carried out in
    /// part: only the place that decided it accounts for what it removes.
    pub fn has_taken(&self, snapshot: SnapshotId) -> bool {
        let open = self.open.as_ref();
        self.took(snapshot)
            && !open.is_some_and(|open| open.selection.snapshots.iter().any(|f| f.id == snapshot))
    }

    /// Whether a collection that has not ended may remove something of an arena.
    pub fn is_at_work_on(&self, arena: ArenaId) -> bool {
        let open = self.open.as_ref();
        self.doubtful().is_some()
            || open.is_some_and(|open| open.selection.slots.0.contains_key(&arena))
    }

    /// Whether a plan, a verdict or an end belongs to a collection of the owner's that has ended.
    pub fn has_ended(&self, step: &ObjectName) -> bool {
        let last = self.open.as_ref().map_or(self.last, |open| open.number - 1);
        Step::or_copy_of(step.file()).is_some_and(|(number, ..)| number <= last)
    }

    /// Whether a writer may not rely on a slot, unless its parent does (W5).
    pub fn excludes(&self, location: Location) -> bool {
        let open = self.open.as_ref();
        self.doubtful().is_some()
            || self.is_dead(location.arena)
            || open.is_some_and(|open| open.selection.slots.contains(location))
    }
}

/// Whether none of these exists.
fn are_missing(repository: &Repository, names: &[ObjectName]) -> Result<bool, RepositoryError> {
    for name in names {
        if !is_missing(repository, name)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_missing(repository: &Repository, name: &ObjectName) -> Result<bool, RepositoryError> {
    match repository.backend().size(name) {
        Ok(_) => Ok(false),
        Err(error) if error.is_not_found() => Ok(true),
        // Something is there.
        Err(error) if error.is_damage() => Ok(false),
        Err(error) => Err(error.into()),
    }
}
