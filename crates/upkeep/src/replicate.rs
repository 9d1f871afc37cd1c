//! `replicate`: copies what a repository has, and another place lacks. Needs no key.
//!
//! A replica is the union, by name, of all that was copied to it: objects never change, so an object
//! that is there need not be looked at again, unless something may be planted under its name. It has everything except what belongs to programs at
//! work: sessions, and what collections remove. Nothing is removed from a replica, so what a
//! snapshot in it needs is always there; [`mirror`] also follows collections, which takes a key.
//!
//! The order (`docs/concurrency.md`):
//!
//! 1. key slots, then the configuration; into an empty place, the collections that have ended;
//! 2. the source's snapshots are listed;
//! 3. its arenas are listed and copied, and listed again, until there is none that was not seen and
//!    no collection went through meanwhile: an arena that is rewritten during a listing may be in it
//!    neither under its old name nor under its new one;
//! 4. vouchers, remarks, wishes;
//! 5. the snapshots of 2, if they still exist: those that do not may lack arenas.
//!
//! So a snapshot is in the replica after all that it needs, and a copy that was interrupted at any
//! point goes on where it was.

mod mirror;
mod plan;
mod send;

pub use mirror::{MirrorOutcome, MirrorPlan, mirror, plan_mirror, preview_mirror};
pub use plan::{CopyPlan, FOLDERS_COPIED, forks, list, plan_replica, refuse_another};
pub use send::create;

use std::collections::{BTreeSet, HashSet};

use strongroom_arena::{ARENAS_FOLDER, ArenaName};
use strongroom_backend::{Backend, ObjectInfo, ObjectName, Withheld};
use strongroom_base::{Cancel, Monitor, Problem, Progress, Severity, SizeLimits};
use strongroom_repository::objects::{COLLECTIONS_FOLDER, SNAPSHOTS_FOLDER};
use strongroom_repository::{RepositoryError, arena_bytes_of};

use crate::flight::{Flight, each_in_flight};
use plan::{FIRST_FOLDERS, FolderPlan, MIDDLE_FOLDERS, Present, first_collections, list_given};
use send::{Sent, Way};

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyOutcome {
    /// Objects that were sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Objects that the target had already.
    pub present: u64,
    /// Their bytes.
    pub present_bytes: u64,
    /// Of those that were sent, objects in the place of a damaged one.
    pub replaced: u64,
    /// Of those that were sent, objects that are damaged at the source, and whole in the replica.
    pub mended: u64,
    /// Objects that could not be sent, and why.
    pub lost: Vec<(ObjectName, String)>,
    /// Objects that were not sent, because the source's place withholds them: nothing is known to be
    /// wrong with them.
    pub withheld: Vec<(ObjectName, Withheld)>,
    /// Objects that the target has, whole and with other bytes: it was written to by others.
    pub conflicts: Vec<ObjectName>,
    /// Snapshots and key slots that only the target has.
    pub only_in_target: Vec<ObjectName>,
    /// Further generations of arenas that were sent: the place has confirmed them.
    pub new_generations: HashSet<ObjectName>,
}

/// Copies to a replica what it lacks.
pub fn replicate(
    source: &dyn Backend,
    target: &dyn Backend,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<CopyOutcome, RepositoryError> {
    replicate_within(&SizeLimits::DEFAULT, source, target, monitor, cancel)
}

/// The same with other limits: no keys are needed, so there is no repository that has them.
pub fn replicate_within(
    limits: &SizeLimits,
    source: &dyn Backend,
    target: &dyn Backend,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<CopyOutcome, RepositoryError> {
    let plan = plan_replica(source, target)?;
    let total = (plan.missing.len() + plan.differing.len() + plan.doubtful.len()) as u64;
    let progress = Progress {
        files_total: Some(total),
        bytes_total: Some(plan.bytes()),
        ..Progress::default()
    };
    drop(plan);
    target.sweep()?;
    let way = Way { source, target, arena_bytes: arena_bytes_of(source) };
    let outcome = CopyOutcome::default();
    let flight = Flight::between(source, target, limits);
    let mut copy = Copy { way, flight, monitor, cancel, progress, outcome };
    for folder in FIRST_FOLDERS {
        copy.folder(folder)?;
    }
    for name in forks(source, target)? {
        let message = "the replica has another: both places were used, and each has removed what \
                       the other may need. What both have is brought together; keep both until \
                       `verify` of the replica finds nothing lost. From then on a new replica, in an \
                       empty place, can take its place";
        copy.tell(Severity::Warning, &name, message);
        copy.outcome.conflicts.push(name);
    }
    let collections = first_collections(source, target)?;
    let mut present = Present::list(target, COLLECTIONS_FOLDER)?;
    copy.missing(COLLECTIONS_FOLDER, &collections, &mut present)?;
    let snapshots = list(source, SNAPSHOTS_FOLDER)?;
    copy.arenas()?;
    for folder in MIDDLE_FOLDERS {
        copy.folder(folder)?;
    }
    copy.snapshots(snapshots)?;
    Ok(copy.outcome)
}

struct Copy<'c> {
    way: Way<'c>,
    flight: Flight,
    monitor: &'c dyn Monitor,
    cancel: &'c Cancel,
    progress: Progress,
    outcome: CopyOutcome,
}

impl Copy<'_> {
    fn folder(&mut self, folder: &str) -> Result<(), RepositoryError> {
        let (listed, withheld) = list_given(self.way.source, folder)?;
        if let Some(withheld) = withheld {
            self.tell(Severity::Warning, &withheld.name(), &format!("not sent: {withheld}"));
            self.outcome.withheld.push((withheld.name(), withheld.why()));
        }
        let mut present = Present::list(self.way.target, folder)?;
        self.missing(folder, &listed, &mut present)?;
        Ok(())
    }

    /// Copies what is missing, and returns whether any of it has vanished meanwhile.
    fn missing(
        &mut self,
        folder: &str,
        listed: &[ObjectInfo],
        present: &mut Present,
    ) -> Result<bool, RepositoryError> {
        let plan = FolderPlan::of(folder, listed, present);
        self.outcome.present += plan.present;
        self.outcome.present_bytes += plan.present_bytes;
        self.outcome.only_in_target.extend(plan.only_in_target);
        let mut objects = plan.missing;
        objects.extend(plan.differing);
        let (way, flight, cancel) = (self.way, self.flight, self.cancel);
        let mut gone = Vec::new();
        let mut take = |info: &ObjectInfo, sent| match sent {
            Sent::Vanished => gone.push(info.clone()),
            sent => {
                present.insert(info);
                self.take(info, sent);
            }
        };
        let send = |info: &ObjectInfo| way.send(info);
        let compare = |info: &ObjectInfo| way.compare(info);
        each_in_flight(&objects, flight, cancel, &send, &mut take)?;
        each_in_flight(&plan.doubtful, flight, cancel, &compare, &mut take)?;
        self.send_again(gone, present)
    }

    /// Sends what was not there although it was listed, if it is listed again. Returns whether anything was
    /// removed meanwhile.
    fn send_again(
        &mut self,
        gone: Vec<ObjectInfo>,
        present: &mut Present,
    ) -> Result<bool, RepositoryError> {
        let names = |infos: &[ObjectInfo]| -> Vec<ObjectName> {
            infos.iter().map(|info| info.name.clone()).collect()
        };
        let (mut vanished, mut twice) = (false, Vec::new());
        let listed = listed_of(self.way.source, &names(&gone))?;
        for info in gone {
            self.cancel.check()?;
            let sent = match listed.contains(&info.name) {
                true => self.way.send(&info)?,
                false => Sent::Vanished,
            };
            match sent {
                Sent::Vanished if listed.contains(&info.name) => twice.push(info),
                sent => {
                    vanished |= sent == Sent::Vanished;
                    if sent != Sent::Vanished {
                        present.insert(&info);
                    }
                    self.take(&info, sent);
                }
            }
        }
        let listed = listed_of(self.way.source, &names(&twice))?;
        for info in twice {
            let sent = match listed.contains(&info.name) {
                true => Sent::Lost(LISTED_ALONE.to_owned()),
                false => Sent::Vanished,
            };
            vanished |= sent == Sent::Vanished;
            self.take(&info, sent);
        }
        Ok(vanished)
    }

    fn take(&mut self, info: &ObjectInfo, sent: Sent) {
        self.monitor.working_on(info.name.as_str().as_ref());
        let outcome = &mut self.outcome;
        match sent {
            Sent::Yes { bytes, mended, replaced } => {
                outcome.sent += 1;
                outcome.sent_bytes += bytes;
                outcome.mended += u64::from(mended);
                outcome.replaced += u64::from(replaced);
                if ArenaName::of(&info.name).is_some_and(|name| name.generation > 0) {
                    outcome.new_generations.insert(info.name.clone());
                }
                self.progress.bytes_stored += bytes;
                if mended {
                    let message = "damaged here, and sent as its parity gives it";
                    self.tell(Severity::Warning, &info.name, message);
                }
            }
            Sent::Present => {
                outcome.present += 1;
                outcome.present_bytes += info.bytes;
            }
            Sent::Vanished => {}
            Sent::Lost(why) => {
                outcome.lost.push((info.name.clone(), why.clone()));
                self.tell(Severity::Damage, &info.name, &why);
            }
            Sent::Withheld(why, answer) => {
                self.monitor.detail(&format!("{}: {why}: {answer}", info.name));
                outcome.withheld.push((info.name.clone(), why));
            }
            Sent::Conflict => {
                outcome.conflicts.push(info.name.clone());
                let message = "the replica has another object of this name: left as it is; `verify` \
                               of the replica shows whether it is planted; after its `repair`, or \
                               its `repair --from` this repository, copy again";
                self.tell(Severity::Warning, &info.name, message);
            }
        }
        self.progress.files += 1;
        self.progress.bytes += info.bytes;
        self.monitor.progress(&self.progress);
    }

    fn tell(&self, severity: Severity, name: &ObjectName, message: &str) {
        let path = Some(name.as_str().as_ref());
        self.monitor.problem(Problem { severity, path, message });
    }

    /// Copies arenas until two listings show none that was not seen.
    fn arenas(&mut self) -> Result<(), RepositoryError> {
        let mut present = Present::list(self.way.target, ARENAS_FOLDER)?;
        let mut seen = HashSet::new();
        // The verdicts before this listing, and before the one before it.
        let (mut before, mut before_last) = (verdicts(self.way.source)?, None);
        loop {
            let listed = list(self.way.source, ARENAS_FOLDER)?;
            let new: Vec<_> =
                listed.into_iter().filter(|info| !seen.contains(&info.name)).collect();
            let is_nothing_new = new.is_empty();
            let vanished = self.missing(ARENAS_FOLDER, &new, &mut present)?;
            seen.extend(new.into_iter().map(|info| info.name));
            let since = verdicts(self.way.source)?;
            // An arena that one collection rewrote during each of two listings may be in neither.
            if is_nothing_new && !vanished && before_last.as_ref() == Some(&since) {
                return Ok(());
            }
            before_last = Some(std::mem::replace(&mut before, since));
        }
    }

    /// Copies those of these snapshots that still exist.
    fn snapshots(&mut self, mut listed: Vec<ObjectInfo>) -> Result<(), RepositoryError> {
        let still = Present::list(self.way.source, SNAPSHOTS_FOLDER)?;
        listed.retain(|info| still.bytes(&info.name).is_some());
        let mut present = Present::list(self.way.target, SNAPSHOTS_FOLDER)?;
        self.missing(SNAPSHOTS_FOLDER, &listed, &mut present)?;
        Ok(())
    }
}

/// What is wrong with an object that only a listing has.
pub(crate) const LISTED_ALONE: &str = "its place lists it, and says that there is none";

/// Those of these objects that a place lists now.
pub(crate) fn listed_of(
    place: &dyn Backend,
    names: &[ObjectName],
) -> Result<HashSet<ObjectName>, RepositoryError> {
    let asked: HashSet<&ObjectName> = names.iter().collect();
    let folders: BTreeSet<&str> = names.iter().map(ObjectName::folder).collect();
    let mut found = HashSet::new();
    for folder in folders {
        let listed = list(place, folder)?.into_iter().map(|info| info.name);
        found.extend(listed.filter(|name| asked.contains(name)));
    }
    Ok(found)
}

/// The verdicts of collections: another one may rewrite arenas again.
fn verdicts(backend: &dyn Backend) -> Result<Vec<ObjectName>, RepositoryError> {
    let names = list(backend, COLLECTIONS_FOLDER)?.into_iter().map(|info| info.name);
    Ok(names.filter(|name| name.file().ends_with(".verdict")).collect())
}
