//! `prune`: removes what no snapshot needs, beside any number of writers and other collectors.
//!
//! A collection has three objects: a plan condemns slots, a verdict decides which of them go, and an
//! end says that they are gone. Between plan and verdict every session that began before the plan
//! is waited for, or ended; what it committed is marked again. Any process can go on with what
//! another has begun. The protocol, and why it holds: `docs/concurrency.md`; a checker walks through
//! its model (`crates/protocol`).

mod carry;
mod choose;
mod inventory;
mod later;
mod listed;
mod lost;
mod reach;

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use strongroom_arena::{CacheLimits, ListedArenas};
use strongroom_backend::{BackendError, remove_object};
use strongroom_base::{ArenaId, Cancel, Monitor, Problem, Severity, Silent, SnapshotId, Timestamp};
use strongroom_repository::objects::SNAPSHOTS_FOLDER;
use strongroom_repository::{
    ArenaSlots, ChunkReader, Collections, Forgotten, ListedSession, Repository, RepositoryError,
    Selection, SlotSets, SnapshotList, Wishes, create_plan, create_verdict, end_session,
    list_sessions, list_snapshots, read_snapshot, read_vouchers, session_object, snapshot_object,
    verdict_object,
};

use crate::forget::look;
use crate::reader::reader_of_everything;
use crate::reckoning::{Condemned, Unread, reckon};
use crate::room::with_kept_room;
pub use carry::Carried;
use carry::{Way, carry_out, put_off, sweep};
use choose::Doomed;
pub use choose::Worth;
pub use later::{Later, Undone, prune_later, undo_prune};
use listed::{going, not_listed, refuse_emptied, staying, unlisted};
use lost::{Removed, find_lost};
use reach::Reach;

/// How a repository is pruned.
#[derive(Debug, Clone, Copy)]
pub struct PruneOptions {
    /// Of what stays, at most this share may be bytes that no snapshot needs.
    pub unused_percent_max: u8,
    /// At most this many bytes are written, if there is a limit.
    pub rewritten_max: Option<u64>,
    /// No arena is begun after this time, if there is a limit. The next `prune` goes on.
    pub time_max: Option<Duration>,
    /// Sessions that began longer ago are ended: their writers begin new ones, and find what they
    /// have stored.
    pub patience: Duration,
    /// Show what would be done.
    pub dry_run: bool,
}

impl Default for PruneOptions {
    fn default() -> Self {
        Self {
            unused_percent_max: 5,
            rewritten_max: None,
            time_max: None,
            patience: Duration::from_secs(7 * 86400),
            dry_run: false,
        }
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub struct PruneOutcome {
    /// The collection; none if there was nothing to collect, or for a dry run.
    pub collection: Option<u64>,
    /// What is, or would be, worth removing; none if another process had begun the collection.
    pub worth: Option<Worth>,
    /// Snapshots that go.
    pub snapshots: Vec<Forgotten>,
    /// For a dry run: stored bytes of what each of them needs, and neither those that stay nor those
    /// earlier in this list.
    pub own_bytes: Vec<(SnapshotId, u64)>,
    /// Snapshots that were removed without having been forgotten: what they need stays.
    pub lost: Vec<SnapshotId>,
    /// Sessions that began before the plan and have not ended: the collection waits for them.
    pub waiting: Vec<ListedSession>,
    /// Sessions that were ended.
    pub ended: Vec<SnapshotId>,
    /// What was carried out.
    pub carried: Carried,
    /// Whether the collection waits for the next prune, which removes what it condemns.
    pub condemned: bool,
    /// Whether the plan had no room for all snapshots that are to be forgotten.
    is_cut: bool,
    /// Whether nothing was removed, because something that is to be forgotten since the plan cannot be
    /// read: the next plan names it.
    is_called_off: bool,
}

/// Ends the collection that another process has begun, if there is one, and collects.
///
/// # Errors
///
/// [`RepositoryError::NotCollectable`] if something that a snapshot needs cannot be read: nothing is
/// removed then.
pub fn prune(
    repository: &Repository,
    options: &PruneOptions,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<PruneOutcome, RepositoryError> {
    prune_until(repository, options, Stage::Removed, monitor, cancel)
}

/// How far a prune takes what it condemns itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The next prune goes on with it.
    Condemned,
    /// To the end.
    Removed,
}

fn prune_until(
    repository: &Repository,
    options: &PruneOptions,
    stage: Stage,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<PruneOutcome, RepositoryError> {
    with_kept_room(repository, || prune_in_rounds(repository, options, stage, monitor, cancel))
}

fn prune_in_rounds(
    repository: &Repository,
    options: &PruneOptions,
    stage: Stage,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<PruneOutcome, RepositoryError> {
    if !options.dry_run {
        repository.check_mode()?;
        repository.check_place()?;
    }
    let mut earlier = PruneOutcome::default();
    let mut rounds = 1..ROUNDS;
    loop {
        let collections = match options.dry_run {
            true => Collections::read(repository)?,
            false => Collections::read_settled(repository)?,
        };
        if let Some((name, why)) = collections.blocked() {
            return Err(RepositoryError::undecided(name, why));
        }
        Wishes::read(repository)?.refuse_withheld().map_err(|folder| folder.not_collectable())?;
        let mut called_off = false;
        let collected =
            collect(repository, &collections, options, stage, &mut called_off, monitor, cancel);
        let outcome = match collected {
            // What it has read was removed by another collector meanwhile, or that one was first.
            Err(error)
                if is_of_the_past(&error)
                    && !called_off
                    && rounds.next().is_some()
                    && Collections::read(repository)?.step() != collections.step() =>
            {
                continue;
            }
            other => other?.after(earlier),
        };
        let was_begun = collections.open.is_some() && !options.dry_run;
        let is_more = was_begun || outcome.is_cut && !outcome.condemned || outcome.is_called_off;
        let is_over = !outcome.waiting.is_empty() || outcome.carried.arenas_left > 0;
        if !is_more || is_over || rounds.next().is_none() {
            return Ok(outcome);
        }
        earlier = outcome;
    }
}

/// How often a prune looks again because other collectors are at work.
const ROUNDS: u32 = 10;

/// Whether an error can come from the work of another collector. A true fault is found again.
fn is_of_the_past(error: &RepositoryError) -> bool {
    let is_of_another = matches!(
        error,
        RepositoryError::OtherCollector { .. } | RepositoryError::Miscounted { .. }
    );
    error.is_damage() || is_of_another
}

impl PruneOutcome {
    /// With what an earlier collection came to.
    fn after(mut self, earlier: Self) -> Self {
        self.collection = self.collection.or(earlier.collection);
        self.snapshots.extend(earlier.snapshots);
        self.lost.extend(earlier.lost);
        self.ended.extend(earlier.ended);
        self.carried.add(earlier.carried);
        self
    }
}

/// One collection: the open one, or else the next.
fn collect(
    repository: &Repository,
    collections: &Collections,
    options: &PruneOptions,
    stage: Stage,
    called_off: &mut bool,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<PruneOutcome, RepositoryError> {
    let reader = reader_of_everything(repository, CacheLimits::default())?;
    reader.store().trust(read_vouchers(repository)?);
    let began = repository.surroundings.clock.now();
    let collector = Collector { repository, reader, options, began, monitor, cancel };
    let mut reach = Reach::new(&collector.reader, monitor, cancel);
    let mut outcome = PruneOutcome::default();
    let (number, mut selection, decided) = match &collections.open {
        Some(open) => (open.number, open.selection.clone(), open.decided),
        None => {
            let (plan, worth) = collector.plan(&mut reach, collections, &mut outcome)?;
            outcome.worth = Some(worth);
            outcome.snapshots = plan.snapshots.clone();
            let is_empty = plan.slots.is_empty() && plan.snapshots.is_empty();
            if is_empty || options.dry_run {
                return Ok(outcome);
            }
            if !create_plan(repository, collections.next, &plan)? {
                return Err(RepositoryError::OtherCollector { collection: collections.next });
            }
            if stage == Stage::Condemned {
                outcome.collection = Some(collections.next);
                outcome.condemned = true;
                return Ok(outcome);
            }
            (collections.next, plan, false)
        }
    };
    outcome.collection = Some(number);
    outcome.snapshots = selection.snapshots.clone();
    if options.dry_run {
        return Ok(outcome);
    }
    let mut kept = HashSet::new();
    let mut sweeps = false;
    if !decided {
        let writers = collector.writers(&mut outcome)?;
        if !outcome.waiting.is_empty() {
            return Ok(outcome);
        }
        let decided = collector.decide_twice(number, &selection, &writers, &mut reach, collections);
        let Decided { verdict, is_marked } = match decided {
            Err(
                error @ (RepositoryError::NotCollectable { .. }
                | RepositoryError::Miscounted { .. }),
            ) => {
                *called_off = collector.call_off(number)?;
                let is_damage = matches!(error, RepositoryError::NotCollectable { .. });
                if is_damage && collector.more_is_wished(&selection)? {
                    // It may be of these. The next plan names them.
                    outcome.snapshots.clear();
                    outcome.is_called_off = true;
                    return Ok(outcome);
                }
                return Err(error);
            }
            other => other?,
        };
        sweeps = is_marked;
        let is_own;
        (selection, is_own) = create_verdict(repository, number, &verdict)?;
        if !is_own && let Some(carried) = collector.reckon_found(number, &selection, &mut kept)? {
            outcome.carried = carried;
            return Ok(outcome);
        }
        outcome.snapshots = selection.snapshots.clone();
    } else if let Some(carried) = collector.reckon_found(number, &selection, &mut kept)? {
        outcome.carried = carried;
        return Ok(outcome);
    }
    outcome.snapshots.retain(|going| !kept.contains(&going.id));
    let store = collector.reader.store();
    let is_late = || options.time_max.is_some_and(|most| collector.time_since_begin() > most);
    let how = Way { kept: &kept, is_late: &is_late, monitor, cancel };
    outcome.carried = carry_out(repository, store, number, &selection, &how)?;
    if sweeps {
        // What is marked now says what of the arenas that came back is needed.
        let is_swept = |arena| is_swept(collections, &reach, arena);
        sweep(repository, collections, &is_swept, &mut outcome.carried)?;
    }
    Ok(outcome)
}

/// What the second reckoning found, unless it is of a snapshot that an earlier verdict removed and that is
/// there again: that one counts only if the owner's last wish says so, or cannot be read. If it counts for
/// the second reckoning alone, nothing was miscounted; the wish was another one then, or could not be read.
fn of_unsure_wish(error: RepositoryError, collections: &Collections) -> RepositoryError {
    match error {
        RepositoryError::Miscounted { snapshot, .. } if collections.took(snapshot) => {
            let what = format!("the wish about snapshot {}", snapshot.short());
            let why = "it was changed, or could not be read, when it was read again".to_owned();
            RepositoryError::NotCollectable { what, why }
        }
        other => other,
    }
}

/// Whether an arena goes that a verdict removed and that is there again: unless a snapshot needs it,
/// which came with it from another copy of the repository.
fn is_swept(collections: &Collections, reach: &Reach<'_>, arena: ArenaId) -> bool {
    collections.is_dead(arena) && !reach.needs_any_of(arena)
}

/// What was listed after the plan was made (C4).
struct Writers {
    /// Sessions that were there.
    sessions: HashSet<SnapshotId>,
    /// Snapshots that were there after that.
    snapshots: HashSet<SnapshotId>,
}

/// What was decided about a plan.
struct Decided {
    /// What of it goes.
    verdict: Selection,
    /// Whether it is known of everything else that exists whether a snapshot needs it.
    is_marked: bool,
}

struct Collector<'r> {
    repository: &'r Repository,
    reader: ChunkReader,
    options: &'r PruneOptions,
    began: Timestamp,
    monitor: &'r dyn Monitor,
    cancel: &'r Cancel,
}

impl Collector<'_> {
    fn time_since_begin(&self) -> Duration {
        let now = self.repository.surroundings.clock.now();
        Duration::from_nanos(now.0.saturating_sub(self.began.0).max(0).unsigned_abs())
    }

    /// C2: lists arenas, *then* sessions, *then* wishes and snapshots; what no remaining snapshot
    /// reaches, and no listed session wrote that can still commit, may go.
    fn plan(
        &self,
        reach: &mut Reach<'_>,
        collections: &Collections,
        outcome: &mut PruneOutcome,
    ) -> Result<(Selection, Worth), RepositoryError> {
        let (repository, store) = (self.repository, self.reader.store());
        reach.list_arenas(repository.backend(), collections)?;
        let found =
            find_lost(repository, &self.reader, &reach.inventory, self.monitor, self.cancel)?;
        let Removed { lost, let_go } = found;
        let sessions = list_sessions(self.repository)?.into_iter().map(|session| session.id);
        let mut sessions: HashSet<SnapshotId> = sessions.collect();
        let wishes = Wishes::read(self.repository)?;
        let list = list_snapshots(self.repository)?;
        let known = list.ids().chain(sessions.iter().copied()).collect();
        if let Some(id) = unlisted(repository, &known, &reach.inventory, collections)?.first() {
            return Err(not_listed(*id));
        }
        // A create that came late has brought them back. What they wrote may lack what has gone since.
        list.fenced.iter().for_each(|fenced| _ = sessions.remove(fenced));
        refuse_emptied(&list, &reach.inventory, collections)?;
        look(self.repository, &list, self.options.dry_run)?;
        let goes = |snapshot| wishes.forget(snapshot);
        reach.mark(staying(&list, &goes)?)?;
        reach.finish(&sessions)?;
        if reach.lacks_something() {
            let listed = ListedArenas::list(repository.backend())?;
            let exists = |arena| !listed.generations(arena).is_empty();
            reach.refuse_hidden(|arena| exists(arena) && !collections.is_dead(arena))?;
        }
        for lost in &lost {
            reach.mark_left(&lost.trees)?;
        }
        outcome.lost = lost.iter().map(|lost| lost.id).collect();
        let inventory = &mut reach.inventory;
        let (doomed, worth) = Doomed::choose(inventory, store, self.options, self.cancel)?;
        let bytes_max = repository.limits.plan_slots_bytes_max;
        let mut slots = doomed.into_closed_sets(inventory, store, bytes_max, self.cancel)?;
        if self.options.dry_run {
            // From here on the marks count for nothing else.
            for snapshot in list.forgotten.iter().filter(|snapshot| goes(snapshot.id)) {
                match reach.own_bytes(snapshot) {
                    Ok(bytes) => outcome.own_bytes.push((snapshot.id, bytes)),
                    Err(RepositoryError::NotCollectable { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        // So their numbers are missed no longer, and their wishes are carried out.
        let removed = let_go.into_iter().filter(|lost| !lost.is_spoilt).map(|lost| Forgotten {
            id: lost.id,
            domain: lost.domain,
            sequence: lost.sequence,
        });
        // So does what an earlier verdict took and is there again, unless the owner keeps it.
        let listed = self.snapshot_names()?;
        let is_there = |id| repository.backend().size(&snapshot_object(id)).is_ok();
        let mut again: Vec<&Forgotten> = collections.taken().collect();
        again.retain(|taken| {
            listed.contains(&taken.id) && list.wishes.let_go(collections, taken.id)
        });
        // They are asked for in an order that does not depend on a table, so that a schedule replays.
        again.sort_unstable_by_key(|taken| taken.id);
        let removed = removed.chain(again.into_iter().filter(|taken| is_there(taken.id)).cloned());
        let bytes_max = repository.limits.plan_snapshots_bytes_max;
        let (snapshots, have_room) = going(&list, removed, &goes, bytes_max);
        if !have_room && !self.options.dry_run {
            // The wishes about the others can still be taken back, so what they need stays; and one of them
            // that cannot be read must not keep the others from going.
            slots = SlotSets::default();
        }
        outcome.is_cut = !have_room;
        Ok((Selection { snapshots, slots }, worth))
    }

    /// C4 and C5: the sessions that were there after the plan, each of them ended or decided,
    /// unless it is in `waiting`.
    fn writers(&self, outcome: &mut PruneOutcome) -> Result<Writers, RepositoryError> {
        let listed = list_sessions(self.repository)?;
        let sessions = listed.iter().map(|session| session.id).collect();
        let snapshots = self.snapshot_names()?;
        for session in listed {
            if self.is_decided(session.id)? {
                continue;
            }
            if !self.is_too_old(&session) {
                outcome.waiting.push(session);
                continue;
            }
            end_session(self.repository, session.id)?;
            outcome.ended.push(session.id);
            remove_object(self.repository.backend(), &session_object(session.id))?;
        }
        Ok(Writers { sessions, snapshots })
    }

    fn snapshot_names(&self) -> Result<HashSet<SnapshotId>, BackendError> {
        let listed = self.repository.backend().list(SNAPSHOTS_FOLDER)?.into_iter();
        Ok(listed.filter_map(|info| info.name.file().parse().ok()).collect())
    }

    /// Whether a session has committed, or can no longer commit.
    fn is_decided(&self, session: SnapshotId) -> Result<bool, BackendError> {
        for (name, expected) in [(snapshot_object(session), true), (session_object(session), false)]
        {
            match self.repository.backend().size(&name) {
                Ok(_) if expected => return Ok(true),
                Err(error) if error.is_not_found() && !expected => return Ok(true),
                Err(error) if error.is_not_found() => {}
                // A session that is no file can be ended. Where the snapshot would be, nothing can
                // be decided as long as the name is taken.
                Err(error) if error.is_no_file() && !expected => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        Ok(false)
    }

    /// Whether patience with a session is over. A clock may decide that: a wrong guess costs its
    /// writer a new session. One that says nothing of itself, or lies in the future, is too old.
    fn is_too_old(&self, session: &ListedSession) -> bool {
        let now = self.repository.surroundings.clock.now();
        let patience = i64::try_from(self.options.patience.as_nanos()).unwrap_or(i64::MAX);
        let started = session.head.as_ref().map(|head| head.started);
        started.map_or(true, |Timestamp(started)| {
            now.0.saturating_sub(started).unsigned_abs() > patience.unsigned_abs()
        })
    }

    /// Decides, and reckons a second time, before the verdict, which is final.
    fn decide_twice(
        &self,
        number: u64,
        plan: &Selection,
        writers: &Writers,
        reach: &mut Reach<'_>,
        collections: &Collections,
    ) -> Result<Decided, RepositoryError> {
        let decided = self.decide(number, plan, writers, reach, collections)?;
        // Otherwise no arena is touched.
        if decided.is_marked {
            let is_swept = |arena| is_swept(collections, reach, arena);
            let reckoned = self.reckon(&decided.verdict, &is_swept);
            let unread = reckoned.map_err(|error| of_unsure_wish(error, collections))?;
            unread.map_or(Ok(()), |unread| Err(RepositoryError::from(unread)))?;
        }
        Ok(decided)
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
    ) -> Result<Decided, RepositoryError> {
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
        for id in unlisted(self.repository, &known, &reach.inventory, collections)? {
            match read_snapshot(self.repository, id) {
                // Committed since, by a writer that knows this plan.
                Ok(snapshot) if snapshot.seen >= number => {}
                Err(RepositoryError::Fenced { .. }) => {}
                Err(RepositoryError::Backend(error)) if error.is_not_found() => {}
                Err(error) if !error.is_damage() => return Err(error),
                _ => return Err(not_listed(id)),
            }
        }
        let snapshots = plan.snapshots.iter().filter(|going| goes(going.id)).cloned().collect();
        let slots = plan.slots.clone();
        let marked = self.mark_what_stays(reach, &list, &goes, collections);
        let is_same = match marked {
            // Nothing is condemned, so nothing has to be known for it.
            Err(error) if slots.is_empty() && error.is_damage() => {
                return Ok(Decided { verdict: Selection { snapshots, slots }, is_marked: false });
            }
            other => !other? && is_same,
        };
        if is_same {
            return Ok(Decided { verdict: Selection { snapshots, slots }, is_marked: true });
        }
        let doomed = Doomed::of_plan(&slots, &reach.inventory);
        let store = self.reader.store();
        let bytes_max = self.repository.limits.plan_slots_bytes_max;
        let slots = doomed.into_closed_sets(&mut reach.inventory, store, bytes_max, self.cancel)?;
        Ok(Decided { verdict: Selection { snapshots, slots }, is_marked: true })
    }

    /// Marks what came since the plan; all that stays, if another process made it. Returns whether anything
    /// was marked.
    fn mark_what_stays(
        &self,
        reach: &mut Reach<'_>,
        list: &SnapshotList,
        goes: &dyn Fn(SnapshotId) -> bool,
        collections: &Collections,
    ) -> Result<bool, RepositoryError> {
        let mut is_new = reach.mark(staying(list, goes)?)?;
        reach.finish(&HashSet::new())?;
        reach.refuse_hidden(|_| false)?;
        let is_found = collections.open.is_some();
        if is_found && reach.inventory.ids().any(|arena| collections.is_dead(arena)) {
            // What came back may be what a repair commits a snapshot again with. Of all else, the plan has
            // not condemned it.
            let (repository, inventory) = (self.repository, &reach.inventory);
            let found = find_lost(repository, &self.reader, inventory, &Silent, self.cancel)?;
            for lost in &found.lost {
                reach.mark_left(&lost.trees)?;
                is_new = true;
            }
        }
        Ok(is_new)
    }

    /// Whether snapshots are to be forgotten that a plan does not name.
    fn more_is_wished(&self, plan: &Selection) -> Result<bool, RepositoryError> {
        let named: HashSet<SnapshotId> = plan.snapshots.iter().map(|going| going.id).collect();
        let list = list_snapshots(self.repository)?;
        let is_more = |id: SnapshotId| list.wishes.forget(id) && !named.contains(&id);
        Ok(list.ids().any(is_more))
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
    fn reckon_found(
        &self,
        number: u64,
        verdict: &Selection,
        kept: &mut HashSet<SnapshotId>,
    ) -> Result<Option<Carried>, RepositoryError> {
        let wishes = Wishes::read(self.repository)?;
        let (stay, go): (Vec<Forgotten>, Vec<Forgotten>) =
            verdict.snapshots.iter().cloned().partition(|going| wishes.keep_after_all(going.id));
        kept.extend(stay.iter().map(|stays| stays.id));
        let gone = Selection { snapshots: go, slots: verdict.slots.clone() };
        let why = match self.reckon(&gone, &|_| false) {
            Err(RepositoryError::Miscounted { snapshot, .. }) => format!(
                "it would remove what snapshot {} needs: it was decided in another copy of this \
                 repository, before the snapshot was taken back, or by a faulty program",
                snapshot.short()
            ),
            // Only a later plan can name it, and there is none before this collection has ended.
            Ok(Some(Unread { snapshot, why })) => format!(
                "it may remove what snapshot {} needs, which is to be forgotten and cannot be read: {why}",
                snapshot.short()
            ),
            Ok(None) => return Ok(None),
            Err(error) => return Err(error),
        };
        let message = format!("{why}. What it would remove of arenas stays");
        let name = verdict_object(number);
        let path = Some(Path::new(name.as_str()));
        self.monitor.problem(Problem { severity: Severity::Warning, path, message: &message });
        put_off(self.repository, number, verdict, kept, self.cancel).map(Some)
    }

    /// Ends a collection that must not remove anything: while a plan is open, no later wish can be
    /// carried out. Returns false if another collector has decided.
    fn call_off(&self, number: u64) -> Result<bool, RepositoryError> {
        let (repository, store) = (self.repository, self.reader.store());
        let (verdict, is_own) = create_verdict(repository, number, &Selection::default())?;
        carry_out(repository, store, number, &verdict, &Way::whole(self.monitor, self.cancel))?;
        Ok(is_own)
    }
}
