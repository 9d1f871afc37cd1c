//! Copies: complete whenever a snapshot is in them, with any fault, beside any other verb.

pub mod mirrored;
mod nights;
mod places;
mod sent;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use strongroom_arena::ArenaName;
use strongroom_backend::{Backend, BackendError, MemoryBackend, ObjectName, Promises};
use strongroom_base::{Cancel, SeededEntropy, Silent, SnapshotId};
use strongroom_repository::{Repository, RepositoryError};
use strongroom_testkit::damage::{Objects, names_in};
use strongroom_testkit::{
    CallKind, Calls, Change, FaultKind, FaultPlan, FaultyBackend, Gives, Image, Listener,
    RecordingBackend, WithholdingBackend, noise,
};
use strongroom_upkeep::{
    AuditOptions, CopyOutcome, MirrorOutcome, NewAccess, VerifyDepth, add_key, audit_replica,
    forget, mirror, plan_mirror, plan_replica, prune, remove_key, replicate,
};

use crate::verify::check_all;
use crate::world::{ALL, LAPTOP, World, init_options, snapshot_ids};

/// All that can be removed is.
fn copy(source: &dyn Backend, target: &dyn Backend) -> Result<CopyOutcome, RepositoryError> {
    replicate(source, target, &Silent, &Cancel::new())
}

fn mirror_all(
    repository: &Repository,
    target: &Arc<dyn Backend>,
) -> Result<MirrorOutcome, RepositoryError> {
    copy(repository.backend(), &**target)?;
    let plan = plan_mirror(repository, target)?;
    mirror(repository, target, &plan, &Silent, &Cancel::new())
}

/// Two versions and what they hold.
fn history(seed: u64) -> (World, Vec<(SnapshotId, Image)>) {
    let world = World::new(seed);
    let mut kept = vec![(world.backup().snapshot.id, world.image())];
    world.mutate(seed + 1);
    kept.push((world.backup().snapshot.id, world.image()));
    (world, kept)
}

/// Every snapshot that a place shows can be read.
#[track_caller]
fn check_complete(
    world: &World,
    target: Arc<dyn Backend>,
    kept: &[(SnapshotId, Image)],
    what: &str,
) {
    let repository = world.open_over(target).unwrap();
    for id in snapshot_ids(&repository) {
        let (_, image) = kept.iter().find(|(known, _)| *known == id).expect(what);
        world.assert_holds(&repository, id, image, what);
    }
}

#[test]
fn a_replica_has_all_of_it_and_is_sound() {
    let (world, kept) = history(600);
    let target = Arc::new(MemoryBackend::new());
    let plan = plan_replica(&*world.objects, &*target).unwrap();
    let outcome = copy(&*world.objects, &*target).unwrap();
    assert_eq!(outcome.sent as usize, plan.missing.len());
    assert_eq!(outcome.sent_bytes, plan.bytes());
    assert_eq!(target.snapshot(), world.objects.snapshot());
    check_complete(&world, target.clone(), &kept, "a replica");
    assert!(check_all(&world.open_over(target.clone()).unwrap()).is_sound());

    // Only what is new is sent.
    let again = copy(&*world.objects, &*target).unwrap();
    assert_eq!((again.sent, again.present), (0, outcome.sent));
    world.mutate(602);
    world.backup();
    let third = copy(&*world.objects, &*target).unwrap();
    assert!(third.sent > 0 && third.sent < outcome.sent, "{third:?}");
    assert_eq!(target.snapshot(), world.objects.snapshot());

    // The other way: a repository that is lost comes back.
    let empty = MemoryBackend::new();
    copy(&*target, &empty).unwrap();
    assert_eq!(empty.snapshot(), world.objects.snapshot());
}

/// Objects that are sent, and those that were there, are counted to the byte, and planned so.
#[test]
fn what_a_copy_sends_and_what_was_there_is_counted() {
    let (world, made) = history(59);
    forget(&world.open(), &[made[0].0]).unwrap();
    prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
    let target = MemoryBackend::new();
    let bytes = |objects: &Objects| objects.values().map(Vec::len).sum::<usize>() as u64;
    let is_later = |name: &ObjectName| ArenaName::of(name).is_some_and(|it| it.generation > 0);
    let first = copy(&*world.objects, &target).unwrap();
    let all = target.snapshot();
    assert_eq!((first.sent, first.sent_bytes), (all.len() as u64, bytes(&all)));
    assert_eq!((first.present, first.present_bytes), (0, 0));
    let later: BTreeSet<_> = all.keys().filter(|name| is_later(name)).cloned().collect();
    assert!(!later.is_empty());
    assert_eq!(first.new_generations.into_iter().collect::<BTreeSet<_>>(), later);
    // Every third is not there.
    let mut left = all.clone();
    let mut place = 0;
    left.retain(|name, _| {
        place += 1;
        place % 3 != 0 || ["", "collections"].contains(&name.folder())
    });
    let target = MemoryBackend::from_snapshot(left.clone());
    let missing = (all.len() - left.len()) as u64;
    let missing_bytes = bytes(&all) - bytes(&left);
    // Where something is, no collections are sent.
    left.retain(|name, _| name.folder() != "collections");
    let (count, there) = (left.len() as u64, bytes(&left));
    let plan = plan_replica(&*world.objects, &target).unwrap();
    assert_eq!((plan.present, plan.present_bytes), (count, there));
    assert_eq!(plan.bytes(), missing_bytes);
    let again = copy(&*world.objects, &target).unwrap();
    assert_eq!((again.present, again.present_bytes), (count, there));
    assert_eq!((again.sent, again.sent_bytes), (missing, missing_bytes));
    assert!(target.snapshot() == all);
}

#[test]
fn only_replicas_of_this_repository_and_empty_places_are_taken() {
    let (world, _) = history(610);
    let other = World::bare(611);
    let error = copy(&*world.objects, &*other.objects).unwrap_err();
    assert!(matches!(error, RepositoryError::OtherRepository { .. }), "{error}");
    let stranger = MemoryBackend::new();
    stranger.create(&ObjectName::top("letter"), b"dear").unwrap();
    let error = copy(&*world.objects, &stranger).unwrap_err();
    assert!(matches!(error, RepositoryError::PlaceNotEmpty { .. }), "{error}");
    let nothing = copy(&MemoryBackend::new(), &stranger).unwrap_err();
    assert!(matches!(nothing, RepositoryError::NotARepository { .. }), "{nothing}");
    // A replica whose configuration is lost is one all the same.
    let target = MemoryBackend::new();
    copy(&*world.objects, &target).unwrap();
    for name in ["config", "config.copy"] {
        target.remove(&ObjectName::top(name)).unwrap();
    }
    assert_eq!(copy(&*world.objects, &target).unwrap().sent, 2);
}

/// At each call to either place in turn it is killed, and started again.
#[test]
fn a_copy_that_is_killed_at_any_call_goes_on() {
    let (world, mut kept) = history(620);
    // With a collection.
    world.mutate(622);
    kept.push((world.backup().snapshot.id, world.image()));
    forget(&world.open(), &[kept.remove(0).0]).unwrap();
    prune(&world.open(), &ALL, &Silent, &Cancel::new()).unwrap();
    for is_source in [true, false] {
        let mut at = 0;
        loop {
            let target = Arc::new(MemoryBackend::new());
            let plan = match at % 2 {
                0 => FaultPlan::crash(at),
                _ => FaultPlan::crash_after(at),
            };
            let failed = if is_source {
                let source = FaultyBackend::new(world.objects.clone(), plan);
                copy(&source, &*target).is_err()
            } else {
                let faulty = FaultyBackend::new(target.clone(), plan);
                copy(&*world.objects, &faulty).is_err()
            };
            if !failed {
                break;
            }
            if target.list("").unwrap().len() == 2 {
                check_complete(&world, target.clone(), &kept, &format!("killed at {at}"));
            }
            copy(&*world.objects, &*target).unwrap();
            assert_eq!(target.snapshot(), world.objects.snapshot(), "killed at {at}");
            // Each call of the beginning and of the end, and some of those between.
            at += if at < 30 { 1 } else { 7 };
        }
        assert!(at > 50, "{at} calls");
    }
}

#[test]
fn a_full_or_read_only_target_is_an_error_and_loses_nothing() {
    let (world, _) = history(630);
    for (kind, is_no_space) in [(FaultKind::NoSpace, true), (FaultKind::Io, false)] {
        let target = Arc::new(MemoryBackend::new());
        let writes = Calls::of(&[CallKind::Create, CallKind::Replace]);
        let faulty = FaultyBackend::new(target.clone(), FaultPlan::lasting(writes, 7, kind));
        let error = copy(&*world.objects, &faulty).unwrap_err();
        let found = matches!(error, RepositoryError::Backend(BackendError::NoSpace { .. }));
        assert_eq!(found, is_no_space, "{error}");
        assert!(target.list("snapshots").unwrap().is_empty());
        copy(&*world.objects, &*target).unwrap();
        assert_eq!(target.snapshot(), world.objects.snapshot());
    }
}

/// Damage at the source is not copied, and damage of the replica is replaced.
#[test]
fn damage_is_not_copied() {
    let (world, _) = history(640);
    let base = world.objects.snapshot();
    let all: Vec<ObjectName> = base.keys().cloned().collect();
    for (place, name) in all.iter().enumerate() {
        let change = Change::ALL[place % Change::ALL.len()];
        if change == Change::Swapped || name.folder().is_empty() {
            continue;
        }
        let mut damaged = base.clone();
        change.on_object(&mut damaged, name);
        let what = format!("{change:?} of {name}");

        let target = MemoryBackend::new();
        let source = MemoryBackend::from_snapshot(damaged.clone());
        let outcome = copy(&source, &target).unwrap();
        let sent = target.snapshot();
        // What is there is right.
        assert!(sent.iter().all(|(name, bytes)| base[name] == *bytes), "{what}");
        let is_there = sent.contains_key(name);
        let is_lost = outcome.lost.iter().any(|(lost, _)| lost == name);
        assert!(is_there || is_lost || change == Change::Removed, "{what}");
        assert_eq!(sent.len(), base.len() - usize::from(!is_there), "{what}");

        // A replica with another length is looked at.
        let target = MemoryBackend::from_snapshot(damaged.clone());
        copy(&*world.objects, &target).unwrap();
        let is_seen = damaged.get(name).is_none_or(|bytes| bytes.len() != base[name].len());
        assert_eq!(target.snapshot() == base, is_seen, "{what}");
    }
}

#[test]
fn sessions_and_collections_are_not_copied_and_nothing_is_removed() {
    let (world, kept) = history(660);
    let repository = world.open();
    let target: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    copy(&*world.objects, &*target).unwrap();
    forget(&repository, &[kept[0].0]).unwrap();
    prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    let session = ObjectName::new("sessions", SnapshotId([9; 16]));
    world.objects.create(&session, b"at work").unwrap();
    copy(&*world.objects, &*target).unwrap();
    assert!(target.list("collections").unwrap().is_empty());
    assert!(target.list("sessions").unwrap().is_empty());
    world.objects.remove(&session).unwrap();
    check_complete(&world, target.clone(), &kept, "a replica of all");
    assert!(target.size(&ObjectName::new("snapshots", kept[0].0)).is_ok());

    // With the key it follows.
    let outcome = mirror_all(&repository, &target).unwrap();
    assert!(outcome.removed > 0);
    let names = |backend: &dyn Backend, folder| -> BTreeSet<ObjectName> {
        backend.list(folder).unwrap().into_iter().map(|info| info.name).collect()
    };
    for folder in ["arenas", "snapshots", "forgotten", "collections", "keys"] {
        assert_eq!(names(&*target, folder), names(&*world.objects, folder), "{folder}");
    }
    check_complete(&world, target.clone(), &kept, "a mirror");
    assert!(check_all(&world.open_over(target.clone()).unwrap()).is_sound());
    assert_eq!(mirror_all(&repository, &target).unwrap(), MirrorOutcome::default());
}

#[test]
fn absence_removes_nothing() {
    let (world, kept) = history(670);
    let repository = world.open();
    let target: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    copy(&*world.objects, &*target).unwrap();
    let before: Vec<_> = target.list("arenas").unwrap();
    for name in names_in(&world.objects.snapshot(), "arenas") {
        world.objects.remove(&name).unwrap();
    }
    assert_eq!(mirror_all(&repository, &target).unwrap(), MirrorOutcome::default());
    assert_eq!(target.list("arenas").unwrap(), before);
    // Nor does it if the snapshot itself is lost.
    world.objects.remove(&ObjectName::new("snapshots", kept[0].0)).unwrap();
    let error = mirror_all(&repository, &target).unwrap_err();
    assert!(matches!(error, RepositoryError::NotMirrored { .. }), "{error}");
    check_complete(&world, target, &kept, "after all");
}

/// While backups and collections go on, every look at the replica finds whole snapshots.
#[test]
fn a_replica_beside_writers_and_a_collector() {
    let world = World::new(700);
    let kept = Mutex::new(vec![(world.backup().snapshot.id, world.image())]);
    let target = Arc::new(MemoryBackend::new());
    let (is_over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 0..6 {
                world.mutate(701 + version);
                let image = world.image();
                kept.lock().unwrap().push((world.backup().snapshot.id, image));
                let repository = world.open();
                let old = kept.lock().unwrap()[version as usize].0;
                forget(&repository, &[old]).unwrap();
                prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            let outcome = copy(&*world.objects, &*target).unwrap();
            assert!(outcome.lost.is_empty(), "{:?}", outcome.lost);
            let there = world.open_over(target.clone()).unwrap();
            let known = kept.lock().unwrap().clone();
            for id in snapshot_ids(&there) {
                // The newest may not have been noted yet.
                let Some((_, image)) = known.iter().find(|(known, _)| *known == id) else {
                    continue;
                };
                world.assert_holds(&there, id, image, "beside a collector");
                looks.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert!(looks.into_inner() > 0);
    copy(&*world.objects, &*target).unwrap();
    let kept = kept.into_inner().unwrap();
    check_complete(&world, target.clone(), &kept, "in the end");
    let target: Arc<dyn Backend> = target;
    mirror_all(&world.open(), &target).unwrap();
    check_complete(&world, target.clone(), &kept, "mirrored");
    let there = world.open_over(target).unwrap();
    assert_eq!(snapshot_ids(&there), snapshot_ids(&world.open()));
}

/// A collection at each call of a copy: the listings of arenas are where it could miss one.
#[test]
fn a_prune_at_any_call_of_a_copy() {
    let (world, kept) = history(720);
    forget(&world.open(), &[kept[0].0]).unwrap();
    let base: Objects = world.objects.snapshot();
    let pruned = {
        let objects = Arc::new(MemoryBackend::from_snapshot(base.clone()));
        let repository = world.open_over(objects.clone()).unwrap();
        prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
        objects.snapshot()
    };
    let rewritten = names_in(&pruned, "arenas")
        .into_iter()
        .filter(|name| ArenaName::of(name).is_some_and(|name| name.generation > 0))
        .count();
    assert!(rewritten > 0, "a collection that rewrites an arena");
    let calls = {
        let source = RecordingBackend::new(Arc::new(MemoryBackend::from_snapshot(base.clone())));
        copy(&source, &MemoryBackend::new()).unwrap();
        source.take().len()
    };
    for at in 0..calls {
        let source = Swap::new(base.clone(), pruned.clone(), at as u64);
        let target = Arc::new(MemoryBackend::new());
        copy(&source, &*target).unwrap();
        assert!(source.calls.load(Ordering::Relaxed) > at as u64);
        check_complete(&world, target, &kept, &format!("pruned at call {at}"));
    }
}

/// A place in which all of a collection happens at one call.
struct Swap {
    before: MemoryBackend,
    after: MemoryBackend,
    at: u64,
    calls: AtomicU64,
}

impl Swap {
    fn new(before: Objects, after: Objects, at: u64) -> Self {
        let [before, after] = [before, after].map(MemoryBackend::from_snapshot);
        Self { before, after, at, calls: AtomicU64::new(0) }
    }

    fn now(&self) -> &MemoryBackend {
        let is_before = self.calls.fetch_add(1, Ordering::Relaxed) < self.at;
        if is_before { &self.before } else { &self.after }
    }
}

impl Backend for Swap {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        self.now().read(name, offset, length)
    }
    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        self.now().size(name)
    }
    fn create(&self, name: &ObjectName, _: &[u8]) -> Result<(), BackendError> {
        Err(self.unsupported("be written to", name))
    }
    fn replace(&self, name: &ObjectName, _: &[u8]) -> Result<(), BackendError> {
        Err(self.unsupported("be written to", name))
    }
    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        Err(self.unsupported("be written to", name))
    }
    /// What is created during a listing is not in it, and what is removed before the listing comes
    /// to it is not either.
    fn room(&self) -> Option<&dyn strongroom_backend::Room> {
        None
    }

    fn stores(&self) -> Option<&dyn strongroom_backend::Stores> {
        None
    }

    fn complaint(&self) -> Option<String> {
        None
    }

    fn list(&self, folder: &str) -> Result<Vec<strongroom_backend::ObjectInfo>, BackendError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if call == self.at {
            let mut both = self.before.list(folder)?;
            both.retain(|info| self.after.size(&info.name).is_ok());
            return Ok(both);
        }
        if call < self.at { self.before.list(folder) } else { self.after.list(folder) }
    }
    fn sweep(&self) -> Result<usize, BackendError> {
        Ok(0)
    }
    fn promises(&self) -> Promises {
        self.before.promises()
    }
    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        self.now().holds_at_most(folder)
    }
    fn describe(&self) -> String {
        "a place with a collector".to_owned()
    }
    fn folders(&self) -> Vec<std::path::PathBuf> {
        Vec::new()
    }
}

#[test]
fn withdrawn_keys_are_named_and_stay() {
    let (world, _) = history(740);
    let repository = world.open();
    let slot =
        add_key(&repository, LAPTOP, "second", NewAccess::Full, init_options().cost).unwrap();
    let target = MemoryBackend::new();
    copy(&*world.objects, &target).unwrap();
    remove_key(&repository, slot).unwrap();
    let outcome = copy(&*world.objects, &target).unwrap();
    assert_eq!(outcome.only_in_target.len(), 2, "{:?}", outcome.only_in_target);
    assert_eq!(target.list("keys").unwrap().len(), 4);
}

#[test]
fn a_replica_of_a_repository_with_collections_is_sound() {
    let (world, kept) = history(750);
    let repository = world.open();
    world.mutate(752);
    world.backup();
    forget(&repository, &[kept[0].0, kept[1].0]).unwrap();
    prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    assert!(check_all(&repository).is_sound());
    let target = Arc::new(MemoryBackend::new());
    copy(&*world.objects, &*target).unwrap();
    let found = check_all(&world.open_over(target).unwrap());
    assert!(found.is_sound(), "{:?} {:?}", found.lost_snapshots, found.rolled_back);
    assert!(found.missing_sequences.is_empty(), "{:?}", found.missing_sequences);
}

/// Reads that lie: what arrives is what was stored, or an error, or named.
#[test]
fn a_source_that_lies() {
    let (world, _) = history(760);
    let base = world.objects.snapshot();
    for (at, kind) in (0..90)
        .step_by(3)
        .flat_map(|at| [FaultKind::FlipBit, FaultKind::Short, FaultKind::Zeros].map(|k| (at, k)))
    {
        let reads = Calls::of(&[CallKind::Read]);
        let source = FaultyBackend::new(world.objects.clone(), FaultPlan::hiccup(reads, at, kind));
        let target = MemoryBackend::new();
        let done = copy(&source, &target);
        let arrived = target.snapshot();
        assert!(arrived.iter().all(|(name, bytes)| base[name] == *bytes), "{kind:?} at {at}");
        if let Ok(outcome) = done {
            assert_eq!(arrived.len() + outcome.lost.len(), base.len(), "{kind:?} at {at}");
        }
    }
}

/// A place that has lost objects and lists them still, as a bucket whose index was put back: no copy of them
/// is complete, and no audit passes.
#[test]
fn what_is_listed_and_not_given_is_lost() {
    for folder in ["arenas", "snapshots", "keys"] {
        let (world, _) = history(2210);
        let whole = Arc::new(MemoryBackend::from_snapshot(world.objects.snapshot()));
        let lost = names_in(&whole.snapshot(), folder)[0].clone();
        let asked = lost.clone();
        let rule = move |name: &ObjectName| match *name == asked {
            true => Gives::NotFound,
            false => Gives::All,
        };
        let place = WithholdingBackend::new(whole.clone(), rule);
        let copied = copy(&place, &MemoryBackend::new()).unwrap();
        let names: Vec<&ObjectName> = copied.lost.iter().map(|(name, _)| name).collect();
        assert_eq!(names, [&lost], "{folder}");
        let options = AuditOptions { read: VerifyDepth::Structure, signatures: false };
        let (entropy, cancel) = (SeededEntropy::new(1), Cancel::new());
        let audited = audit_replica(&*whole, &place, options, &entropy, &Silent, &cancel).unwrap();
        let is_known = audited.faults.iter().any(|(name, _)| *name == lost);
        assert!(is_known || folder == "arenas" && audited.unread > 0, "{folder}: {audited:?}");
        let all = AuditOptions { read: VerifyDepth::Data, signatures: false };
        let audited = audit_replica(&*whole, &place, all, &entropy, &Silent, &cancel).unwrap();
        assert_eq!(audited.faults.len(), 1, "{folder}: {audited:?}");
    }
}
