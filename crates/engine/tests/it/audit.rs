//! Audits: every change in a replica is found, for few bytes, and nothing else.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use strongroom_arena::envelope::proof::prove;
use strongroom_backend::{
    Backend, BackendError, MemoryBackend, ObjectInfo, ObjectName, Promises, Room, Stores, read_all,
};
use strongroom_base::{Cancel, SeededEntropy, Silent};
use strongroom_repository::{Hold, list_snapshots};
use strongroom_testkit::damage::{Objects, names_in};
use strongroom_testkit::{Change, Random};
use strongroom_upkeep::{
    AuditOptions, AuditOutcome, VerifyDepth, audit_replica, forget, hold, prune, replicate,
};

use crate::world::{ALL, World};

/// A place that computes proofs, and counts what is read of it otherwise.
struct Proving {
    inner: MemoryBackend,
    read: AtomicU64,
}

impl Proving {
    fn new(objects: Objects) -> Self {
        Self { inner: MemoryBackend::from_snapshot(objects), read: AtomicU64::new(0) }
    }
}

impl Backend for Proving {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        let bytes = self.inner.read(name, offset, length)?;
        self.read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes)
    }
    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        self.inner.size(name)
    }
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner.create(name, bytes)
    }
    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner.replace(name, bytes)
    }
    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        self.inner.remove(name)
    }
    fn room(&self) -> Option<&dyn Room> {
        None
    }

    fn stores(&self) -> Option<&dyn Stores> {
        None
    }

    fn complaint(&self) -> Option<String> {
        None
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, BackendError> {
        self.inner.list(folder)
    }
    fn sweep(&self) -> Result<usize, BackendError> {
        self.inner.sweep()
    }
    fn promises(&self) -> Promises {
        Promises { proves: true, ..self.inner.promises() }
    }
    fn prove(&self, name: &ObjectName, challenge: &[u8]) -> Result<Vec<u8>, BackendError> {
        let object = read_all(&self.inner, name)?;
        prove(&object, challenge).ok_or_else(|| self.unsupported("answer this", name))
    }
    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        self.inner.holds_at_most(folder)
    }
    fn describe(&self) -> String {
        "a place that proves".to_owned()
    }
    fn folders(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

fn audit(here: &dyn Backend, there: &dyn Backend, signatures: bool) -> AuditOutcome {
    let options = AuditOptions { read: VerifyDepth::Data, signatures };
    let entropy = SeededEntropy::new(1);
    audit_replica(here, there, options, &entropy, &Silent, &Cancel::new()).unwrap()
}

fn scene(seed: u64) -> (World, Objects) {
    let world = World::new(seed);
    world.backup();
    world.mutate(seed);
    world.backup();
    let base = world.objects.snapshot();
    (world, base)
}

#[test]
fn a_sound_replica_is_proved_without_its_data() {
    let (world, base) = scene(820);
    let there = Proving::new(Objects::new());
    let sent = replicate(&*world.objects, &there, &Silent, &Cancel::new()).unwrap();
    for signatures in [false, true] {
        there.read.store(0, Ordering::Relaxed);
        let outcome = audit(&*world.objects, &there, signatures);
        assert_eq!((outcome.faults.len(), outcome.missing.len()), (0, 0), "{outcome:?}");
        assert_eq!((outcome.proved, outcome.proved_bytes), (base.len() as u64, sent.sent_bytes));
        // Its configuration is read, to know whose replica it is.
        assert!(there.read.load(Ordering::Relaxed) < 20_000);
        // The arenas are small here.
        assert!(outcome.wire_bytes < outcome.bytes / 5, "{outcome:?}");
    }
}

/// Two copies of which each has its own wish of one number: no damage, in every way to look.
#[test]
fn what_each_of_two_copies_has_made_itself_is_no_damage() {
    let (world, base) = scene(823);
    let here = Arc::new(MemoryBackend::from_snapshot(base.clone()));
    let other = Arc::new(MemoryBackend::from_snapshot(base));
    for (objects, reason) in [(&here, "short"), (&other, "not so short a reason")] {
        let repository = world.open_over(objects.clone()).unwrap();
        let list = list_snapshots(&repository).unwrap();
        forget(&repository, &[list.snapshots[0].id]).unwrap();
        let reason = Hold { reason: reason.to_owned(), until: None };
        hold(&repository, &[list.snapshots[1].id], &reason).unwrap();
        prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    }
    let there = Proving::new(other.snapshot());
    let places: [(&dyn Backend, bool); 3] = [(&there, false), (&there, true), (&*other, false)];
    for (place, signatures) in places {
        let outcome = audit(&*here, place, signatures);
        let of_wishes = outcome.faults.iter().filter(|(name, _)| name.folder() == "forgotten");
        assert!(of_wishes.count() > 0, "{:?}", outcome.faults);
        assert!(outcome.faults.iter().all(|(_, fault)| !fault.is_damage()), "{:?}", outcome.faults);
    }
    // One that is damaged is still damaged.
    let wish = names_in(&there.inner.snapshot(), "forgotten")[0].clone();
    let mut bytes = there.inner.snapshot()[&wish].clone();
    let half = bytes.len() / 2;
    bytes[half] ^= 1;
    there.inner.replace(&wish, &bytes).unwrap();
    let outcome = audit(&*here, &there, false);
    let found = outcome.faults.iter().find(|(name, _)| *name == wish);
    assert!(found.is_some_and(|(_, fault)| fault.is_damage()), "{:?}", outcome.faults);
}

/// Every damage of the matrix, and one bit, in every way to look.
#[test]
fn every_damage_is_found_and_nothing_else() {
    let (world, base) = scene(821);
    let mut random = Random::new(821);
    let names: Vec<ObjectName> = base.keys().cloned().collect();
    for (place, name) in names.iter().enumerate() {
        if name.folder().is_empty() {
            continue;
        }
        let mut objects = base.clone();
        let change = match place % 3 {
            0 => {
                let bytes = objects.get_mut(name).unwrap();
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
                Change::FlipBit(0)
            }
            _ => {
                let change = Change::ALL[place % Change::ALL.len()];
                if change == Change::Swapped || !change.on_object(&mut objects, name) {
                    continue;
                }
                change
            }
        };
        let what = format!("{change:?} of {name}");
        let proving = Proving::new(objects.clone());
        let plain = MemoryBackend::from_snapshot(objects);
        let ways: [(&dyn Backend, bool); 3] =
            [(&proving, false), (&proving, true), (&plain, false)];
        for (way, (there, signatures)) in ways.into_iter().enumerate() {
            let outcome = audit(&*world.objects, there, signatures);
            let found: Vec<&ObjectName> = outcome.faults.iter().map(|(name, _)| name).collect();
            let is_missing = outcome.missing == [name.clone()];
            // Headers, tables and trailers are twice there, and no shards: only the whole hash has
            // all of them.
            if signatures && found.is_empty() && !is_missing {
                continue;
            }
            assert!(found == [name] || is_missing, "{what}, way {way}: {outcome:?}");
        }
    }
}

/// One bit of a shard is found by the algebra alone: with nothing of the object here.
#[test]
fn a_flipped_bit_is_found_without_the_data() {
    let (world, base) = scene(822);
    let arenas = names_in(&base, "arenas");
    let mut objects = base.clone();
    let bytes = objects.get_mut(&arenas[1]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    let there = Proving::new(objects);
    // Here all arenas but one are lost.
    let mut here = base.clone();
    here.retain(|name, _| name.folder() != "arenas" || *name == arenas[0]);
    let here = MemoryBackend::from_snapshot(here);
    let outcome = audit(&here, &there, false);
    assert_eq!(outcome.only_there as usize, arenas.len() - 1);
    assert_eq!(outcome.by_algebra, outcome.only_there);
    let found: Vec<&ObjectName> = outcome.faults.iter().map(|(name, _)| name).collect();
    assert_eq!(found, [&arenas[1]]);
    // And by the table that is here, without reading the data here.
    let outcome = audit(&*world.objects, &there, true);
    let found: Vec<&ObjectName> = outcome.faults.iter().map(|(name, _)| name).collect();
    assert_eq!(found, [&arenas[1]], "{outcome:?}");
}

#[test]
fn damage_here_is_not_taken_for_damage_there() {
    let (_, base) = scene(823);
    let arenas = names_in(&base, "arenas");
    let there = Proving::new(base.clone());
    for change in [Change::Zeros, Change::Half, Change::FlipBit(500), Change::Appended] {
        let mut objects = base.clone();
        change.on_object(&mut objects, &arenas[0]);
        let outcome = audit(&MemoryBackend::from_snapshot(objects), &there, false);
        assert_eq!(outcome.faults, [], "{change:?}");
        assert_eq!(outcome.damaged_here, [arenas[0].clone()], "{change:?}");
    }
}

#[test]
fn a_sample_of_a_plain_place_is_read() {
    let (world, base) = scene(824);
    let there = Arc::new(MemoryBackend::from_snapshot(base));
    let entropy = SeededEntropy::new(1);
    let mut read = 0;
    for turn in 0..4 {
        let options =
            AuditOptions { read: VerifyDepth::Sample { percent: 25, turn }, signatures: false };
        let outcome =
            audit_replica(&*world.objects, &*there, options, &entropy, &Silent, &Cancel::new());
        let outcome = outcome.unwrap();
        assert!(outcome.faults.is_empty() && outcome.proved == 0);
        let small = outcome.objects - names_in(&there.snapshot(), "arenas").len() as u64;
        read += outcome.read - small;
    }
    assert_eq!(read, names_in(&there.snapshot(), "arenas").len() as u64);
}
