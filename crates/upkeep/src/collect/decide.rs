//! What of a plan goes (C6 and C7): what no snapshot needs by now, reckoned twice; and what becomes of a
//! verdict that another process has made.

use std::collections::HashSet;
use std::path::Path;

use strongroom_arena::ListedArenas;
use strongroom_base::{ArenaId, Problem, Severity, Silent, SnapshotId};
use strongroom_catalog::Snapshot;
use strongroom_repository::{
    ArenaSlots, Collections, Forgotten, RepositoryError, Selection, SnapshotList, Wishes,
    create_verdict, list_snapshots, verdict_object,
};

use super::carry::{Carried, Way, carry_out, put_off};
use super::choose::Doomed;
use super::listed::{refuse_unlisted, staying};
use super::lost::find_lost;
use super::reach::Reach;
use super::{Collector, Writers};
use crate::reckoning::{Condemned, Unread, if_all_was_read, reckon};

/// What was decided about a plan.
pub(super) struct Decided {
    /// What of it goes.
    pub verdict: Selection,
    /// Whether it is known of everything else that exists whether a snapshot needs it.
    pub is_marked: bool,
}

impl Collector<'_> {
    /// Decides, and reckons a second time, before the verdict, which is final.
    pub(super) fn decide_twice(
        &self,
        number: u64,
        plan: &Selection,
        writers: &Writers,
        reach: &mut Reach<'_>,
        collections: &Collections,
    ) -> Result<Result<Decided, Unread>, RepositoryError> {
        let mut decided = match self.decide(number, plan, writers, reach, collections)? {
            Ok(decided) if decided.is_marked => decided,
            // Without marks no arena is touched.
            other => return Ok(other),
        };
        let is_swept = |arena| is_swept(collections, reach, arena);
        let is_nothing = decided.verdict.slots.is_empty();
        match self.reckon(&decided.verdict, &is_swept) {
            Ok(None) => {}
            Ok(Some(_)) | Err(RepositoryError::NotCollectable { .. }) if is_nothing => {
                decided.is_marked = false;
            }
            Ok(Some(unread)) => return Ok(Err(unread)),
            Err(error) => return Err(if_certain(error, collections)),
        }
        Ok(Ok(decided))
    }

    /// C6 and C7: reads the wishes again, *then* lists the snapshots, *then* the arenas. What of
    /// the plan no snapshot reaches goes.
    fn decide(
        &self,
        number: u64,
        plan: &Selection,
        writers: &Writers,
        reach: &mut Reach<'_>,
        collections: &Collections,
    ) -> Result<Result<Decided, Unread>, RepositoryError> {
        let wishes = Wishes::read(self.repository)?;
        let going: HashSet<SnapshotId> = plan.snapshots.iter().map(|going| going.id).collect();
        let goes = |snapshot| going.contains(&snapshot) && wishes.forget(snapshot);
        let list = list_snapshots(self.repository)?;
        let late = list.all().find(|snapshot| {
            let was_seen =
                writers.sessions.contains(&snapshot.id) || writers.snapshots.contains(&snapshot.id);
            snapshot.seen < number && !was_seen
        });
        if let Some(late) = late {
            let what = format!("snapshot {}", late.id.short());
            let why = "the place that keeps the repository did not show its session".to_owned();
            return Err(RepositoryError::NotCollectable { what, why });
        }
        let is_same = !reach.list_arenas(self.repository.backend(), collections)?;
        let known = writers.sessions.iter().chain(&writers.snapshots).copied();
        let known = known.chain(list.ids()).collect();
        refuse_unlisted(self.repository, &known, &reach.inventory, collections, number)?;
        let snapshots = plan.snapshots.iter().filter(|going| goes(going.id)).cloned().collect();
        let slots = plan.slots.clone();
        // If another process has made the plan, this one knew no arena before.
        let came_since = !is_same;
        let is_same = match self.mark_what_stays(reach, &list, &goes, collections, came_since) {
            // Nothing is condemned, so nothing has to be known for it.
            Ok(Err(_)) | Err(RepositoryError::NotCollectable { .. }) if slots.is_empty() => {
                let verdict = Selection { snapshots, slots };
                return Ok(Ok(Decided { verdict, is_marked: false }));
            }
            Ok(Err(unread)) => return Ok(Err(unread)),
            Ok(Ok(is_new)) => is_same && !is_new,
            Err(error) => return Err(error),
        };
        if is_same {
            return Ok(Ok(Decided { verdict: Selection { snapshots, slots }, is_marked: true }));
        }
        let doomed = Doomed::of_plan(&slots, &reach.inventory);
        let store = self.reader.store();
        let bytes_max = self.repository.limits.plan_slots_bytes_max;
        let slots = doomed.into_closed_sets(&mut reach.inventory, store, bytes_max, self.cancel)?;
        Ok(Ok(Decided { verdict: Selection { snapshots, slots }, is_marked: true }))
    }

    /// Marks what came since the plan; all that stays, if another process made it. Returns whether anything
    /// was marked; or what cannot be read of a snapshot that is to be forgotten since.
    fn mark_what_stays(
        &self,
        reach: &mut Reach<'_>,
        list: &SnapshotList,
        goes: &dyn Fn(SnapshotId) -> bool,
        collections: &Collections,
        came_since: bool,
    ) -> Result<Result<bool, Unread>, RepositoryError> {
        // A plan can name it, and there is none before this collection has ended.
        let is_later = |id| list.wishes.forget(id);
        let kept = staying(list, &|id| goes(id) || is_later(id))?;
        let mut is_new = mark(reach, kept)?;
        let later: Vec<SnapshotId> = list.ids().filter(|id| is_later(*id) && !goes(*id)).collect();
        for snapshot in &later {
            let only = staying(list, &|id| id != *snapshot);
            match only.and_then(|only| reach.mark(only)) {
                Err(RepositoryError::NotCollectable { why, .. }) => {
                    return Ok(Err(Unread { snapshot: *snapshot, why }));
                }
                other => is_new |= other?,
            }
        }
        // Once for all of them: it goes through the summaries.
        match (mark(reach, Vec::new()), later.first()) {
            (Err(RepositoryError::NotCollectable { why, .. }), Some(snapshot)) => {
                return Ok(Err(Unread { snapshot: *snapshot, why }));
            }
            (marked, _) => drop(marked?),
        }
        if came_since && reach.inventory.ids().any(|arena| collections.is_dead(arena)) {
            // What came back may be what a repair commits a snapshot again with. Of all else, the plan has
            // not condemned it.
            let (repository, inventory) = (self.repository, &reach.inventory);
            let (reader, patience) = (&self.reader, self.options.patience);
            let found = find_lost(repository, reader, inventory, patience, &Silent, self.cancel)?;
            for lost in found.lost.iter().chain(&found.in_doubt) {
                reach.mark_left(&lost.trees)?;
                is_new = true;
            }
        }
        Ok(Ok(is_new))
    }

    /// Reckons a second time that no snapshot needs what a verdict removes, nor what earlier ones
    /// removed, a late operation brought back, and a sweep takes.
    fn reckon(
        &self,
        verdict: &Selection,
        is_swept: &dyn Fn(ArenaId) -> bool,
    ) -> Result<Option<Unread>, RepositoryError> {
        let condemned = Condemned {
            snapshots: verdict.snapshots.iter().map(|going| going.id).collect(),
            slots: &verdict.slots,
            objects: &|name| {
                let goes = verdict.slots.0.get(&name.id) == Some(&ArenaSlots::All);
                goes || is_swept(name.id)
            },
        };
        reckon(self.repository, &condemned, self.monitor, self.cancel)
    }

    /// Reckons with a verdict that this process has not made; `kept` becomes those of its snapshots
    /// that the owner keeps after all. If a snapshot needs something of what it removes, the
    /// collection ends without removing that.
    pub(super) fn reckon_found(
        &self,
        number: u64,
        verdict: &Selection,
        kept: &mut HashSet<SnapshotId>,
    ) -> Result<Option<Carried>, RepositoryError> {
        let wishes = Wishes::read(self.repository)?;
        let (stay, go): (Vec<Forgotten>, Vec<Forgotten>) =
            verdict.snapshots.iter().cloned().partition(|going| wishes.keep_after_all(going.id));
        kept.extend(stay.iter().map(|stays| stays.id));
        if verdict.slots.is_empty() {
            return Ok(None);
        }
        let gone = Selection { snapshots: go, slots: verdict.slots.clone() };
        let before = ListedArenas::list(self.repository.backend())?;
        let reckoned = self.reckon(&gone, &|_| false);
        let has_lost = |listed: &ListedArenas| !listed.has_all_of(&before);
        let why = match self.unless_overtaken(number, reckoned, has_lost) {
            Err(RepositoryError::Miscounted { snapshot, .. }) => format!(
                "it would remove what snapshot {} needs: it was decided in another copy of this \
                 repository, before the snapshot was taken back, or by a faulty program",
                snapshot.short()
            ),
            // Only a later plan can name it, or a repair commit it again, once this collection has ended.
            Ok(Some(Unread { snapshot, why })) => format!(
                "it may remove what snapshot {} needs, which cannot be read: {why}",
                snapshot.short()
            ),
            Ok(None) => return Ok(None),
            Err(error) => return Err(error),
        };
        let message = format!("{why}. What it would remove of arenas stays");
        let name = verdict_object(number);
        let path = Some(Path::new(name.as_str()));
        self.monitor.problem(Problem { severity: Severity::Warning, path, message: &message });
        let (repository, store) = (self.repository, self.reader.store());
        put_off(repository, store, number, verdict, kept, self.cancel).map(Some)
    }

    /// Ends a collection that must not remove anything: while a plan is open, no later wish can be
    /// carried out. Returns false if another collector has decided; then its verdict, and what was carried
    /// out of it.
    pub(super) fn call_off(
        &self,
        number: u64,
    ) -> Result<(bool, Selection, Carried), RepositoryError> {
        let (repository, store) = (self.repository, self.reader.store());
        let (verdict, is_own) = create_verdict(repository, number, &Selection::default())?;
        let mut kept = HashSet::new();
        if let Some(carried) = self.reckon_found(number, &verdict, &mut kept)? {
            return Ok((is_own, verdict, carried));
        }
        let way = Way { kept: &kept, ..Way::whole(self.monitor, self.cancel) };
        let carried = carry_out(repository, store, number, &verdict, &way)?;
        Ok((is_own, verdict, carried))
    }
}

/// The error of the second reckoning, unless something cannot be read, or it is of a snapshot that an earlier
/// verdict removed and that is there again: that one counts only if the owner's last wish says so, or cannot
/// be read. If it counts for the second reckoning alone, nothing was miscounted; the wish was another one
/// then, or could not be read.
fn if_certain(error: RepositoryError, collections: &Collections) -> RepositoryError {
    match error {
        RepositoryError::Miscounted { snapshot, .. } if collections.took(snapshot) => {
            let what = format!("the wish about snapshot {}", snapshot.short());
            let why = "it was changed, or could not be read, when it was read again".to_owned();
            RepositoryError::NotCollectable { what, why }
        }
        other => if_all_was_read(other),
    }
}

/// Marks what these snapshots need, and all that follows from it. Returns whether one of them is new.
fn mark(reach: &mut Reach<'_>, snapshots: Vec<&Snapshot>) -> Result<bool, RepositoryError> {
    let is_new = reach.mark(snapshots)?;
    reach.finish()?;
    reach.refuse_hidden(|_| false)?;
    Ok(is_new)
}

/// Whether an arena goes that a verdict removed and that is there again: unless a snapshot needs it,
/// which came with it from another copy of the repository.
pub(super) fn is_swept(collections: &Collections, reach: &Reach<'_>, arena: ArenaId) -> bool {
    collections.is_dead(arena) && !reach.needs_any_of(arena)
}
