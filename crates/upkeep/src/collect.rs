//! `prune`: removes what no snapshot needs, beside any number of writers and other collectors.
//!
//! A collection has three objects: a plan condemns slots, a verdict decides which of them go, and an
//! end says that they are gone. Between plan and verdict every session that began before the plan
//! is waited for, or ended; what it committed is marked again. Any process can go on with what
//! another has begun. The protocol, and why it holds: `docs/concurrency.md`; a checker walks through
//! its model (`crates/protocol`).

mod carry;
mod choose;
mod committed;
mod decide;
mod inventory;
mod later;
mod listed;
mod lost;
mod reach;

use std::collections::HashSet;
use std::time::Duration;

use strongroom_arena::{CacheLimits, ListedArenas};
use strongroom_backend::{BackendError, remove_object};
use strongroom_base::{Cancel, Monitor, SnapshotId, Timestamp};
use strongroom_repository::objects::SNAPSHOTS_FOLDER;
use strongroom_repository::{
    ChunkReader, Collections, Forgotten, ListedSession, OpenCollection, Repository,
    RepositoryError, Selection, SlotSets, Wishes, create_plan, create_verdict, end_session,
    list_sessions, list_snapshots, read_vouchers, session_object, snapshot_object,
};

use crate::forget::look;
use crate::health::ended::{PATIENCE, is_too_old};
use crate::reader::reader_of_everything;
use crate::reckoning::Unread;
use crate::room::with_kept_room;
pub use carry::Carried;
use carry::{Way, carry_out, sweep};
use choose::Doomed;
pub use choose::Worth;
use committed::{find_committed, say_committed};
use decide::{Decided, is_swept};
pub use later::{Later, Undone, prune_later, undo_prune};
use listed::{going, refuse_emptied, refuse_unlisted, staying};
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
            patience: PATIENCE,
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
    /// Why nothing was removed, if that is because something that is to be forgotten since the plan cannot
    /// be read: the next plan names it.
    called_off: Option<Unread>,
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
enum Stage<'v> {
    /// The next prune goes on with it.
    Condemned {
        /// What an earlier prune condemned, which is carried out since a verification has found nothing. What
        /// else is open was condemned by another prune meanwhile, and waits as long.
        verified: Option<&'v OpenCollection>,
    },
    /// To the end.
    Removed,
}

impl Stage<'_> {
    /// Whether a plan that is open waits for the next prune.
    fn lets_wait(self, open: &OpenCollection) -> bool {
        let Self::Condemned { verified } = self else { return false };
        let is_it = |known: &OpenCollection| {
            (known.number, &known.selection) == (open.number, &open.selection)
        };
        !open.decided && !verified.is_some_and(is_it)
    }
}

fn prune_until(
    repository: &Repository,
    options: &PruneOptions,
    stage: Stage<'_>,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<PruneOutcome, RepositoryError> {
    with_kept_room(repository, || prune_in_rounds(repository, options, stage, monitor, cancel))
}

fn prune_in_rounds(
    repository: &Repository,
    options: &PruneOptions,
    stage: Stage<'_>,
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
        let mut outcome = match collected {
            Err(error)
                if !called_off
                    && is_of_another(repository, &collections, &error)?
                    && rounds.next().is_some() =>
            {
                continue;
            }
            other => other?.after(earlier),
        };
        let was_begun = collections.open.is_some() && !options.dry_run;
        let is_more =
            (was_begun || outcome.is_cut) && !outcome.condemned || outcome.called_off.is_some();
        let is_over = !outcome.waiting.is_empty() || outcome.carried.arenas_left > 0;
        let is_last = !is_more || is_over || rounds.next().is_none();
        match outcome.called_off.take() {
            Some(unread) if is_last => return Err(unread.into()),
            _ if is_last => return Ok(outcome),
            _ => earlier = outcome,
        }
    }
}

/// How often a prune looks again because other collectors are at work.
const ROUNDS: u32 = 10;

/// Whether an error comes from the work of another collector: that one was first, or has come further since.
fn is_of_another(
    repository: &Repository,
    collections: &Collections,
    error: &RepositoryError,
) -> Result<bool, RepositoryError> {
    if let RepositoryError::OtherCollector { .. } = error {
        return Ok(true);
    }
    Ok(can_be_of_another(error) && Collections::read(repository)?.step() != collections.step())
}

/// Whether an error can come from the work of another collector. A true fault is found again.
fn can_be_of_another(error: &RepositoryError) -> bool {
    error.is_damage() || matches!(error, RepositoryError::Miscounted { .. })
}

impl PruneOutcome {
    /// With what an earlier collection came to.
    fn after(mut self, earlier: Self) -> Self {
        self.collection = self.collection.or(earlier.collection);
        self.snapshots.extend(earlier.snapshots);
        let further = earlier.lost.into_iter().filter(|lost| !self.lost.contains(lost));
        let further: Vec<_> = further.collect();
        self.lost.extend(further);
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
    stage: Stage<'_>,
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
        Some(open) if stage.lets_wait(open) && !options.dry_run => {
            outcome.collection = Some(open.number);
            outcome.snapshots = open.selection.snapshots.clone();
            outcome.condemned = true;
            return Ok(outcome);
        }
        Some(open) => (open.number, open.selection.clone(), open.decided),
        None => {
            let planned = collector.plan(&mut reach, collections, &mut outcome);
            let has_lost = |listed: &_| reach.inventory.has_lost(listed);
            let (plan, worth) = collector.unless_overtaken(collections.next, planned, has_lost)?;
            outcome.worth = Some(worth);
            outcome.snapshots = plan.snapshots.clone();
            let is_empty = plan.slots.is_empty() && plan.snapshots.is_empty();
            if is_empty || options.dry_run {
                return Ok(outcome);
            }
            if !create_plan(repository, collections.next, &plan)? {
                return Err(RepositoryError::OtherCollector { collection: collections.next });
            }
            if stage != Stage::Removed {
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
        let has_lost = |listed: &_| reach.inventory.has_lost(listed);
        let decided = collector.unless_overtaken(number, decided, has_lost);
        let Decided { verdict, is_marked } = match decided {
            Err(
                error @ (RepositoryError::NotCollectable { .. }
                | RepositoryError::Miscounted { .. }),
            ) => {
                *called_off = collector.call_off(number)?.0;
                return Err(error);
            }
            Ok(Err(unread)) => {
                let (_, verdict, carried) = collector.call_off(number)?;
                (outcome.snapshots, outcome.carried) = (verdict.snapshots, carried);
                outcome.called_off = Some(unread);
                return Ok(outcome);
            }
            Ok(Ok(decided)) => decided,
            Err(error) => return Err(error),
        };
        let is_own;
        (selection, is_own) = create_verdict(repository, number, &verdict)?;
        // What is marked is what stays by this verdict; by another's, more may stay.
        sweeps = is_marked && is_own;
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

/// What was listed after the plan was made (C4).
struct Writers {
    /// Sessions that were there.
    sessions: HashSet<SnapshotId>,
    /// Snapshots that were there after that.
    snapshots: HashSet<SnapshotId>,
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

    /// The result of a look at what there is. If it is an error, and something is gone that was listed before,
    /// another collector is at work, perhaps one that carries out a verdict whose collection has ended
    /// meanwhile: then nothing is damaged.
    fn unless_overtaken<T>(
        &self,
        collection: u64,
        looked: Result<T, RepositoryError>,
        has_lost: impl Fn(&ListedArenas) -> bool,
    ) -> Result<T, RepositoryError> {
        looked.map_err(|error| {
            let is_overtaken = can_be_of_another(&error)
                && ListedArenas::list(self.repository.backend())
                    .is_ok_and(|listed| has_lost(&listed));
            if is_overtaken { RepositoryError::OtherCollector { collection } } else { error }
        })
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
        let (inventory, patience) = (&reach.inventory, self.options.patience);
        let found =
            find_lost(repository, &self.reader, inventory, patience, self.monitor, self.cancel)?;
        let Removed { lost, in_doubt, let_go } = found;
        let sessions = list_sessions(self.repository)?.into_iter().map(|session| session.id);
        let mut sessions: HashSet<SnapshotId> = sessions.collect();
        let wishes = Wishes::read(self.repository)?;
        let list = list_snapshots(self.repository)?;
        let known = list.ids().chain(sessions.iter().copied()).collect();
        refuse_unlisted(repository, &known, &reach.inventory, collections, collections.next)?;
        // A create that came late has brought them back. What they wrote may lack what has gone since.
        list.fenced.iter().for_each(|fenced| _ = sessions.remove(fenced));
        refuse_emptied(&list, &reach.inventory, collections)?;
        look(self.repository, &list, self.options.dry_run)?;
        let goes = |snapshot| wishes.forget(snapshot);
        reach.mark(staying(&list, &goes)?)?;
        reach.finish()?;
        if reach.lacks_something() {
            let listed = ListedArenas::list(repository.backend())?;
            let exists = |arena| !listed.generations(arena).is_empty();
            reach.refuse_hidden(|arena| exists(arena) && !collections.is_dead(arena))?;
        }
        reach.mark_written(&sessions)?;
        for lost in lost.iter().chain(&in_doubt) {
            reach.mark_left(&lost.trees)?;
        }
        outcome.lost = lost.iter().map(|lost| lost.id).collect();
        let inventory = &mut reach.inventory;
        let (doomed, mut worth) = Doomed::choose(inventory, store, self.options, self.cancel)?;
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
        // A prune makes as many plans as it needs.
        let bytes_max = match self.options.dry_run {
            true => usize::MAX,
            false => repository.limits.plan_snapshots_bytes_max,
        };
        let (snapshots, have_room) = going(&list, removed, &goes, bytes_max);
        if !have_room {
            // The wishes about the others can still be taken back, so what they need stays; and one of them
            // that cannot be read must not keep the others from going.
            (slots, worth) = (SlotSets::default(), Worth::default());
        }
        outcome.is_cut = !have_room;
        Ok((Selection { snapshots, slots }, worth))
    }

    /// C4 and C5: the sessions that were there after the plan, each of them ended or decided,
    /// unless it is in `waiting`. One that has committed is not ended: a repair ends it when it commits its
    /// snapshot again, and lets it go if a collection is open.
    fn writers(&self, outcome: &mut PruneOutcome) -> Result<Writers, RepositoryError> {
        let mut too_old = Vec::new();
        let listed = list_sessions(self.repository)?;
        let sessions = listed.iter().map(|session| session.id).collect();
        let snapshots = self.snapshot_names()?;
        for session in listed {
            if self.is_decided(session.id)? {
                continue;
            }
            match is_too_old(self.repository, &session, self.options.patience) {
                true => too_old.push(session),
                false => outcome.waiting.push(session),
            }
        }
        let committed = find_committed(self, &too_old)?;
        for session in too_old {
            if committed.contains(&session.id) {
                say_committed(session.id, self.monitor);
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
}
