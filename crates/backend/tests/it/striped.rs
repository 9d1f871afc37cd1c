//! A place over several stores: any of them may vanish, at any time.

use std::collections::BTreeMap;
use std::sync::Arc;

use strongroom_backend::{
    AgreedBackend, Backend, BackendError, LocalBackend, MemoryBackend, ObjectName, Room, Soundness,
    Stores, StripedBackend, read_all,
};
use strongroom_base::SeededEntropy;
use strongroom_testkit::conformance::check;
use strongroom_testkit::{
    Calls, FaultKind, FaultPlan, FaultyBackend, Gives, Random, WithholdingBackend,
};

type Objects = BTreeMap<ObjectName, Vec<u8>>;

const SET: [u8; 16] = [5; 16];

fn stores(count: usize) -> Vec<Arc<MemoryBackend>> {
    (0..count).map(|_| Arc::new(MemoryBackend::new())).collect()
}

fn erased(stores: &[Arc<MemoryBackend>], gone: &[usize]) -> Vec<Arc<MemoryBackend>> {
    let copy = |(number, store): (usize, &Arc<MemoryBackend>)| {
        let objects = if gone.contains(&number) { Objects::new() } else { store.snapshot() };
        Arc::new(MemoryBackend::from_snapshot(objects))
    };
    stores.iter().enumerate().map(copy).collect()
}

fn as_stores(stores: &[Arc<MemoryBackend>]) -> Vec<Arc<dyn Backend>> {
    stores.iter().map(|store| Arc::clone(store) as Arc<dyn Backend>).collect()
}

fn make(stores: &[Arc<MemoryBackend>], parity: usize) -> StripedBackend {
    let made = StripedBackend::create(as_stores(stores), parity, SET, "stripes").unwrap();
    made.with_small_bytes(100)
}

fn open(stores: &[Arc<MemoryBackend>]) -> Result<StripedBackend, BackendError> {
    let stores = as_stores(stores).into_iter().map(Some).collect();
    Ok(StripedBackend::open(stores, "stripes")?.unwrap().with_small_bytes(100))
}

fn name(file: &str) -> ObjectName {
    ObjectName::new("arenas", file)
}

/// Objects of all lengths that are treated apart.
fn samples() -> Objects {
    let mut random = Random::new(5);
    let mut objects = Objects::new();
    for length in [0, 1, 99, 100, 101, 102, 103, 108, 109, 1000, 10_001] {
        objects.insert(name(&format!("of-{length}")), random.noise(length));
    }
    objects.insert(ObjectName::top("config"), b"small".to_vec());
    let lookalike = [&b"STRONGROOM-INDEX"[..], &[0; 20]].concat();
    objects.insert(ObjectName::new("snapshots", "lookalike"), lookalike);
    objects
}

fn fill(backend: &dyn Backend, objects: &Objects) {
    objects.iter().for_each(|(name, bytes)| backend.create(name, bytes).unwrap());
}

#[track_caller]
fn assert_holds(backend: &dyn Backend, objects: &Objects, what: &str) {
    let mut listed = Vec::new();
    for folder in ["", "arenas", "snapshots"] {
        listed.extend(backend.list(folder).unwrap_or_else(|error| panic!("{what}: {error}")));
    }
    let expected: Vec<_> = objects.iter().map(|(name, bytes)| (name, bytes.len() as u64)).collect();
    let mut found: Vec<_> = listed.iter().map(|info| (&info.name, info.bytes)).collect();
    found.sort();
    assert_eq!(found, expected, "{what}");
    for (name, bytes) in objects {
        assert_eq!(backend.size(name).unwrap(), bytes.len() as u64, "{what}: {name}");
        assert!(read_all(backend, name).unwrap() == *bytes, "{what}: {name}");
        for (offset, length) in [(0, 10), (1, 50), (7, 93), (50, 9000), (334, 1), (333, 3)] {
            let start = offset.min(bytes.len());
            let end = (offset + length).min(bytes.len());
            let part = backend.read(name, offset as u64, length).unwrap();
            assert!(part == bytes[start..end], "{what}: {name} {offset} {length}");
        }
    }
}

#[test]
fn stripes_conform() {
    for (count, parity) in [(2, 1), (3, 1), (5, 2)] {
        check(&make(&stores(count), parity));
        let small = stores(count);
        check(&StripedBackend::create(as_stores(&small), parity, SET, "stripes").unwrap());
    }
}

#[test]
fn any_store_may_be_erased_and_is_made_again() {
    for (count, parity) in [(2, 1), (3, 1), (5, 2)] {
        let stores = stores(count);
        let objects = samples();
        fill(&make(&stores, parity), &objects);
        assert_holds(&open(&stores).unwrap(), &objects, "whole");
        for gone in 0..count {
            let what = format!("{count} stores, {gone} is erased");
            let left = erased(&stores, &[gone]);
            let backend = open(&left).unwrap();
            assert_eq!(backend.missing(), 1);
            assert_holds(&backend, &objects, &what);
            // Nothing is written that the store would not know.
            assert!(backend.create(&name("new"), b"new").is_err(), "{what}");
            assert!(backend.remove(&name("of-1")).is_err(), "{what}");
            assert!(backend.mend().unwrap() > 0);
            let mended = open(&left).unwrap();
            assert_eq!(mended.missing(), 0, "{what}");
            assert_holds(&mended, &objects, &what);
            assert_eq!(left[gone].snapshot(), stores[gone].snapshot(), "{what}");
            assert_eq!(mended.mend().unwrap(), 0, "{what}");
        }
        let gone: Vec<usize> = (0..parity).collect();
        assert_holds(&open(&erased(&stores, &gone)).unwrap(), &objects, "as many as parity");
        let gone: Vec<usize> = (0..=parity).collect();
        let left = as_stores(&erased(&stores, &gone)).into_iter().map(Some).collect();
        let opened = StripedBackend::open(left, "stripes");
        assert!(!matches!(opened, Ok(Some(_))), "{count} stores, more than parity");
    }
}

#[test]
fn stores_are_known_in_any_order_and_strangers_are_refused() {
    let stores = stores(3);
    fill(&make(&stores, 1), &samples());
    let mut turned = stores.clone();
    turned.reverse();
    assert_holds(&open(&turned).unwrap(), &samples(), "another order");
    let silent: Vec<Option<Arc<dyn Backend>>> =
        vec![Some(stores[2].clone()), None, Some(stores[0].clone())];
    let backend = StripedBackend::open(silent, "stripes").unwrap().unwrap();
    assert_holds(&backend, &samples(), "one does not answer");
    assert_eq!(backend.mend().unwrap(), 0, "there is no store to mend");
    let others = self::stores(3);
    StripedBackend::create(as_stores(&others), 1, [6; 16], "others").unwrap();
    let mixed = [stores[0].clone(), others[1].clone(), stores[2].clone()];
    assert!(open(&mixed).is_err());
    assert!(open(&[stores[0].clone(), stores[0].clone(), stores[2].clone()]).is_err());
    assert!(open(&stores[..2]).is_err());
    let full = Arc::new(MemoryBackend::new());
    full.create(&name("letter"), b"dear").unwrap();
    let stores = [full, Arc::new(MemoryBackend::new())];
    assert!(StripedBackend::create(as_stores(&stores), 1, SET, "stripes").is_err());
}

/// Pieces that rotted are computed from the others, whichever they are.
#[test]
fn rotten_pieces_are_found_in_a_whole_read() {
    let stores = stores(4);
    let objects = samples();
    fill(&make(&stores, 2), &objects);
    for gone in 0..4 {
        let left = erased(&stores, &[]);
        for (name, mut bytes) in left[gone].snapshot() {
            if name.folder() == "pieces" {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                left[gone].replace(&name, &bytes).unwrap();
            }
        }
        let backend = open(&left).unwrap();
        for (name, bytes) in &objects {
            assert!(read_all(&backend, name).unwrap() == *bytes, "store {gone}: {name}");
        }
    }
}

/// A program dies at any call to any store, and then any store is erased: each object is there
/// whole, or not there, and what was acknowledged is there. The next program goes on.
#[test]
fn killed_at_any_call_and_a_store_is_erased() {
    let objects: Vec<(ObjectName, Vec<u8>)> = [(3, "a"), (500, "b"), (90, "c"), (1001, "d")]
        .map(|(length, file)| (name(file), vec![length as u8; length]))
        .to_vec();
    let mut states = 0;
    for failing in 0..3 {
        for at in 0.. {
            let stores = stores(3);
            drop(make(&stores, 1));
            let mut over = as_stores(&stores);
            let plan =
                if at % 2 == 0 { FaultPlan::crash(at / 2) } else { FaultPlan::crash_after(at / 2) };
            let faulty = Arc::new(FaultyBackend::new(stores[failing].clone(), plan));
            over[failing] = faulty.clone();
            let opened = StripedBackend::open(over.into_iter().map(Some).collect(), "stripes");
            let mut known = Vec::new();
            let mut removed = None;
            if let Ok(Some(backend)) = opened {
                let backend = backend.with_small_bytes(100);
                for (name, bytes) in &objects {
                    if backend.create(name, bytes).is_err() {
                        break;
                    }
                    known.push(name.clone());
                }
                if known.len() == objects.len() {
                    known.remove(1);
                    removed = backend.remove(&objects[1].0).is_ok().then(|| objects[1].0.clone());
                }
            }
            for gone in 0..3 {
                let what = format!("store {failing} fails at {at}, store {gone} is erased");
                let left = erased(&stores, &[gone]);
                let backend = open(&left).unwrap();
                for round in ["erased", "mended"] {
                    for (name, bytes) in &objects {
                        match read_all(&backend, name) {
                            Ok(found) => assert!(found == *bytes, "{what}, {round}: {name}"),
                            Err(error) => {
                                assert!(error.is_not_found(), "{what}, {round}: {name}: {error}");
                                assert!(!known.contains(name), "{what}, {round}: {name}");
                            }
                        }
                    }
                    if let Some(removed) = &removed {
                        assert!(backend.size(removed).is_err(), "{what}, {round}");
                    }
                    if round == "erased" {
                        backend.mend().unwrap();
                    }
                }
                let backend = open(&left).unwrap();
                for (name, bytes) in &objects {
                    backend.create(name, bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
                }
                assert_holds(&backend, &objects.iter().cloned().collect(), &what);
                states += 1;
            }
            if faulty.fired() == 0 {
                break;
            }
        }
    }
    assert!(states > 100, "{states}");
}

/// Of two that create one name with different bytes, one wins, whichever died where.
#[test]
fn the_first_store_decides_also_after_a_crash() {
    for at in 0..12 {
        let stores = stores(3);
        drop(make(&stores, 1));
        let mut over = as_stores(&stores);
        let creates = Calls::of(&[strongroom_testkit::CallKind::Create]);
        let plan = FaultPlan::lasting(creates, at % 2, FaultKind::Io);
        let failing = (at / 2) as usize % 3;
        over[failing] = Arc::new(FaultyBackend::new(stores[failing].clone(), plan));
        let first = StripedBackend::open(over.into_iter().map(Some).collect(), "stripes");
        let first = first.unwrap().unwrap().with_small_bytes(100);
        let one = first.create(&name("x"), &[1; 300]);
        let two = open(&stores).unwrap().create(&name("x"), &[2; 400]);
        let what = format!("{at}: {one:?} {two:?}");
        let found = read_all(&open(&stores).unwrap(), &name("x")).unwrap();
        assert_eq!(found[0] == 2, two.is_ok(), "{what}");
        assert!(one.is_err() || two.is_err(), "{what}");
        // It stays so if any store is erased.
        for gone in 0..3 {
            let left = erased(&stores, &[gone]);
            assert!(read_all(&open(&left).unwrap(), &name("x")).unwrap() == found, "{what}");
        }
        let pieces: usize = stores.iter().map(|store| store.list("pieces").unwrap().len()).sum();
        assert!(two.is_ok() || pieces <= 6, "{what}");
    }
}

/// Once the first store has an object it is decided, also if the next one is full.
#[test]
fn an_object_may_exist_if_not_the_first_store_is_full() {
    for full in 0..3 {
        let stores = stores(3);
        drop(make(&stores, 1));
        let mut over = as_stores(&stores);
        let calls = Calls::of(&[strongroom_testkit::CallKind::Create]);
        let plan = FaultPlan::lasting(calls, 0, FaultKind::NoSpace);
        over[full] = Arc::new(FaultyBackend::new(stores[full].clone(), plan));
        let backend = StripedBackend::open(over.into_iter().map(Some).collect(), "stripes");
        let error = backend.unwrap().unwrap().create(&name("x"), &[1; 30]).unwrap_err();
        let found = open(&stores).unwrap().size(&name("x")).is_ok();
        let BackendError::NoSpace { may_exist, .. } = error else { panic!("{error}") };
        assert_eq!((may_exist, found), (full > 0, full > 0), "store {full}");
    }
}

/// A store that is made a member again is one only when it has everything.
#[test]
fn mending_is_killed_at_any_call() {
    let stores = stores(3);
    let objects = samples();
    fill(&make(&stores, 1), &objects);
    for gone in 0..3 {
        for at in 0.. {
            let left = erased(&stores, &[gone]);
            let mut over = as_stores(&left);
            let faulty =
                Arc::new(FaultyBackend::new(left[gone].clone(), FaultPlan::crash_after(at)));
            over[gone] = faulty.clone();
            let opened = StripedBackend::open(over.into_iter().map(Some).collect(), "stripes");
            let done = opened.ok().flatten().map(|backend| backend.mend());
            let what = format!("store {gone}, killed at {at}");
            let backend = open(&left).unwrap();
            assert_holds(&backend, &objects, &what);
            backend.mend().unwrap();
            let mended = open(&left).unwrap();
            assert_eq!(mended.missing(), 0, "{what}");
            for other in (0..3).filter(|other| *other != gone) {
                let without = erased(&left, &[other]);
                assert_holds(&open(&without).unwrap(), &objects, &what);
            }
            if matches!(done, Some(Ok(_))) && faulty.fired() == 0 {
                break;
            }
        }
    }
}

#[test]
fn making_a_set_is_killed_at_any_call() {
    for at in 0..40 {
        let stores = stores(3);
        let mut over = as_stores(&stores);
        over[1] = Arc::new(FaultyBackend::new(stores[1].clone(), FaultPlan::crash_after(at)));
        let _ = StripedBackend::create(over, 1, [7; 16], "stripes");
        let backend = StripedBackend::create(as_stores(&stores), 1, SET, "stripes").unwrap();
        assert_eq!(backend.missing(), 0, "killed at {at}");
        fill(&backend, &samples());
        assert_holds(&open(&stores).unwrap(), &samples(), &format!("killed at {at}"));
    }
}

/// A store comes back as it was before objects were removed and others created: what it alone knows of
/// the removed ones neither ends a repair nor stays, and it gets the others.
#[test]
fn kept_o12_a_store_that_comes_back_old_is_made_whole() {
    for old in 0..3 {
        let stores = stores(3);
        let set = make(&stores, 1);
        let all = samples();
        fill(&set, &all);
        let before = stores[old].snapshot();
        // Small ones are whole in each store, and absence removes nothing.
        let (gone, stay): (Vec<_>, Vec<_>) =
            all.clone().into_iter().partition(|(_, bytes)| bytes.len() > 105);
        gone.iter().for_each(|(name, _)| set.remove(name).unwrap());
        let new: Objects = (0..3_u8)
            .map(|number| (name(&format!("new{number}")), vec![number; 300_000]))
            .collect();
        fill(&set, &new);
        let mut returned = stores.clone();
        returned[old] = Arc::new(MemoryBackend::from_snapshot(before));
        let set = open(&returned).unwrap();
        set.mend().unwrap();
        let stay: Objects = stay.into_iter().chain(new).collect();
        for lost in 0..3 {
            let left = open(&erased(&returned, &[lost])).unwrap();
            assert_holds(&left, &stay, &format!("{old} came back, {lost} is erased"));
        }
        assert_eq!(set.mend().unwrap(), 0, "there is nothing left to do");
    }
}

/// An object whose first byte is the sum of the others.
fn summed(length: usize, byte: u8) -> Vec<u8> {
    let mut bytes = vec![byte; length];
    bytes[0] = (1..length).fold(0_u8, |sum, _| sum.wrapping_add(byte)).wrapping_add(1);
    bytes
}

fn judge(_: &ObjectName, bytes: &[u8]) -> Soundness {
    let sum = |rest: &[u8]| rest.iter().fold(1_u8, |sum, byte| sum.wrapping_add(*byte));
    match bytes.split_first() {
        Some((first, rest)) if *first == sum(rest) => Soundness::Whole,
        Some(_) if bytes.ends_with(b"parity") => Soundness::Repairable,
        _ => Soundness::Damaged,
    }
}

fn open_judged(stores: &[Arc<MemoryBackend>]) -> StripedBackend {
    let stores = as_stores(stores).into_iter().map(Some).collect();
    StripedBackend::open(stores, "stripes").unwrap().unwrap().with_judge(judge)
}

/// A power cut has left an early store with a shorter object, or with zeros: the others count, and no
/// repair gives them what the first one has.
#[test]
fn a_damaged_small_copy_hides_no_whole_one() {
    let bytes = summed(300, 7);
    for damaged in 0..3 {
        for rubbish in [vec![], vec![0; 300], vec![7; 120], vec![9; 100_000], bytes[..299].to_vec()]
        {
            let stores = stores(3);
            StripedBackend::create(as_stores(&stores), 1, SET, "stripes").unwrap();
            open_judged(&stores).create(&name("x"), &bytes).unwrap();
            stores[damaged].replace(&name("x"), &rubbish).unwrap();
            let what = format!("store {damaged}, {} bytes", rubbish.len());
            let backend = open_judged(&stores);
            assert!(read_all(&backend, &name("x")).unwrap() == bytes, "{what}");
            assert_eq!(backend.size(&name("x")).unwrap(), 300, "{what}");
            assert_eq!(backend.lacking(true).unwrap(), 1, "{what}");
            assert_eq!(backend.mend().unwrap(), 1, "{what}");
            for store in &stores {
                assert!(read_all(&**store, &name("x")).unwrap() == bytes, "{what}");
            }
            assert_eq!(backend.lacking(true).unwrap(), 0, "{what}");
        }
    }
}

/// If none is whole, the best one is read and none is lost.
#[test]
fn damaged_copies_are_all_kept() {
    let stores = stores(3);
    StripedBackend::create(as_stores(&stores), 1, SET, "stripes").unwrap();
    let copies: [&[u8]; 3] = [b"rubbish", b"some parity", b"more rubbish"];
    for (store, copy) in stores.iter().zip(copies) {
        store.create(&name("x"), copy).unwrap();
    }
    let backend = open_judged(&stores);
    assert_eq!(read_all(&backend, &name("x")).unwrap(), b"some parity");
    assert_eq!(backend.mend().unwrap(), 0);
    assert_eq!(backend.lacking(true).unwrap(), 2);
    for (store, copy) in stores.iter().zip(copies) {
        assert_eq!(read_all(&**store, &name("x")).unwrap(), copy);
    }
}

/// Without a judge it is unknown which of two is right: what differs is counted and kept.
#[test]
fn without_a_judge_only_what_is_absent_is_filled() {
    for rubbish in [vec![], vec![0; 300]] {
        let stores = stores(3);
        StripedBackend::create(as_stores(&stores), 1, SET, "stripes").unwrap();
        let open = || {
            let stores = as_stores(&stores).into_iter().map(Some).collect();
            StripedBackend::open(stores, "stripes").unwrap().unwrap()
        };
        open().create(&name("x"), &[7; 300]).unwrap();
        stores[0].replace(&name("x"), &rubbish).unwrap();
        stores[2].remove(&name("x")).unwrap();
        assert_eq!(open().lacking(true).unwrap(), 2);
        assert_eq!(open().mend().unwrap(), 1);
        assert_eq!(stores[1].size(&name("x")).unwrap(), 300);
        assert_eq!(read_all(&*stores[1], &name("x")).unwrap(), [7; 300]);
    }
}

/// A killed replacement leaves the new bytes in the first store: they count in all.
#[test]
fn the_first_of_two_whole_copies_counts() {
    let stores = stores(3);
    StripedBackend::create(as_stores(&stores), 1, SET, "stripes").unwrap();
    open_judged(&stores).create(&name("x"), &summed(300, 7)).unwrap();
    stores[0].replace(&name("x"), &summed(300, 8)).unwrap();
    let backend = open_judged(&stores);
    assert!(read_all(&backend, &name("x")).unwrap() == summed(300, 8));
    assert_eq!(backend.mend().unwrap(), 2);
    for gone in 0..3 {
        let left = erased(&stores, &[gone]);
        assert!(read_all(&open_judged(&left), &name("x")).unwrap() == summed(300, 8));
    }
}

/// An index has no checksum of its own: one that leads to no pieces does not hide the others.
#[test]
fn a_damaged_index_hides_no_whole_one() {
    let objects: Objects = [(name("x"), vec![5; 500]), (name("y"), vec![6; 900])].into();
    for damaged in 0..3 {
        for at in 0..108 {
            let stores = stores(3);
            fill(&make(&stores, 1), &objects);
            let mut index = read_all(&*stores[damaged], &name("x")).unwrap();
            index[at] ^= 1;
            stores[damaged].replace(&name("x"), &index).unwrap();
            let what = format!("store {damaged}, byte {at}");
            let backend = open(&stores).unwrap();
            let found = backend.read(&name("x"), 0, 500).unwrap();
            assert!(found == objects[&name("x")], "{what}");
            assert!(backend.read(&name("x"), 77, 300).unwrap() == [5; 300], "{what}");
            assert!(backend.mend().unwrap() > 0, "{what}");
            for gone in 0..3 {
                let left = erased(&stores, &[gone]);
                assert_holds(&open(&left).unwrap(), &objects, &what);
            }
            assert_eq!(open(&stores).unwrap().mend().unwrap(), 0, "{what}");
        }
    }
}

/// An object is created again with the same bytes, and one of the stores has a damaged copy.
#[test]
fn creating_again_destroys_nothing() {
    for length in [50, 500] {
        for damaged in 0..3 {
            let stores = stores(3);
            let backend = make(&stores, 1);
            let bytes = vec![7; length];
            backend.create(&name("x"), &bytes).unwrap();
            stores[damaged].replace(&name("x"), b"x").unwrap();
            let what = format!("{length} bytes, store {damaged}");
            // Without a judge, a small object is what the first store has.
            let again = open(&stores).unwrap().create(&name("x"), &bytes);
            assert_eq!(again.is_ok(), length == 500 || damaged > 0, "{what}: {again:?}");
            if again.is_ok() {
                for gone in 0..3 {
                    let left = erased(&stores, &[gone]);
                    let found = read_all(&open(&left).unwrap(), &name("x")).unwrap();
                    assert!(found == bytes, "{what}, {gone} is erased");
                }
            }
            let other = open(&stores).unwrap().create(&name("x"), &[8; 600]);
            assert!(matches!(other, Err(BackendError::AlreadyExists { .. })), "{what}: {other:?}");
            let whole = stores.iter().filter(|store| store.size(&name("x")).unwrap() > 1).count();
            assert!(whole >= 2, "{what}");
        }
    }
}

/// Of an object that all but one store have lost, that one knows the bytes.
#[test]
fn others_bytes_do_not_take_the_name_of_what_one_store_has() {
    for (length, left) in [(50, 0), (50, 1), (50, 2), (500, 0), (500, 1), (500, 2)] {
        let stores = stores(3);
        let bytes = vec![7; length];
        make(&stores, 1).create(&name("x"), &bytes).unwrap();
        for (number, store) in stores.iter().enumerate() {
            if number != left {
                store.remove(&name("x")).unwrap();
            }
        }
        let other = open(&stores).unwrap().create(&name("x"), &[8; 600]);
        assert!(matches!(other, Err(BackendError::AlreadyExists { .. })), "{length} {left}");
        for gone in 0..3 {
            let left = erased(&stores, &[gone]);
            assert!(read_all(&open(&left).unwrap(), &name("x")).unwrap() == bytes);
        }
    }
}

#[test]
fn room_is_kept_in_every_store() {
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let local = |folder: &tempfile::TempDir| LocalBackend::open(folder.path()).unwrap();
    let stores = folders.iter().map(|folder| Arc::new(local(folder)) as Arc<dyn Backend>);
    let backend = StripedBackend::create(stores.collect(), 1, SET, "stripes").unwrap();
    let kept = || folders.iter().filter(|folder| folder.path().join(".room").exists()).count();
    backend.save();
    assert_eq!(kept(), 3);
    assert!(backend.release_half());
    assert_eq!(kept(), 3);
    assert!(backend.release());
    assert_eq!(kept(), 0);
    assert!(!backend.release());
}

/// Creators that agree find the object in the first store alone: it is not said to exist before all
/// have it.
#[test]
fn agreed_objects_are_in_all_stores_once_they_are_created() {
    let stores = stores(3);
    drop(make(&stores, 1));
    let calls = Calls::of(&[strongroom_testkit::CallKind::Replace]).within("snapshots");
    let plan = FaultPlan::lasting(calls, 0, FaultKind::Io);
    let mut over = as_stores(&stores);
    over[1] = Arc::new(FaultyBackend::new(stores[1].clone(), plan));
    let agreed = |over: Vec<Arc<dyn Backend>>| {
        let opened = StripedBackend::open(over.into_iter().map(Some).collect(), "stripes");
        let place = Arc::new(opened.unwrap().unwrap());
        AgreedBackend::new(place, |_| false, Arc::new(SeededEntropy::new(1)))
    };
    let name = ObjectName::new("snapshots", "x");
    for _ in 0..2 {
        assert!(agreed(over.clone()).create(&name, b"bytes").is_err());
    }
    assert!(stores[2].size(&name).is_err());
    agreed(as_stores(&stores)).create(&name, b"bytes").unwrap();
    assert!(stores.iter().all(|store| store.size(&name).is_ok()));
}

/// A store that is full says so also of what it has.
#[test]
fn creating_again_needs_no_room() {
    let stores = stores(3);
    make(&stores, 1).create(&name("x"), &[1; 30]).unwrap();
    let calls = Calls::of(&[strongroom_testkit::CallKind::Create]);
    let plan = FaultPlan::lasting(calls, 0, FaultKind::NoSpace);
    let mut over = as_stores(&stores);
    over[1] = Arc::new(FaultyBackend::new(stores[1].clone(), plan));
    let backend = StripedBackend::open(over.into_iter().map(Some).collect(), "stripes");
    let backend = backend.unwrap().unwrap();
    backend.create(&name("x"), &[1; 30]).unwrap();
    stores[1].remove(&name("x")).unwrap();
    assert!(backend.create(&name("x"), &[1; 30]).is_err());
}

/// A collector and a repair at once: what is removed everywhere meanwhile does not come back.
#[test]
fn what_is_removed_during_a_mend_stays_removed() {
    let stores = stores(3);
    StripedBackend::create(as_stores(&stores), 1, SET, "stripes").unwrap();
    let backend = open(&stores).unwrap();
    let removed = [name("a"), name("b")];
    backend.create(&removed[0], &summed(90, 7)).unwrap();
    backend.create(&removed[1], &[8; 5000]).unwrap();
    backend.create(&name("z"), &summed(90, 9)).unwrap();
    // The collector has removed them from the last store, and goes on once the mending of that store, which
    // alone reads another object there, has missed them.
    let remove = |store: &MemoryBackend| {
        for info in [store.list("arenas").unwrap(), store.list("pieces").unwrap()].concat() {
            if info.name != name("z") {
                store.remove(&info.name).unwrap();
            }
        }
    };
    remove(&stores[2]);
    let others = [stores[0].clone(), stores[1].clone()];
    let mut seen = as_stores(&stores);
    seen[2] = Arc::new(WithholdingBackend::new(stores[2].clone(), move |asked| {
        if *asked == name("z") {
            others.iter().for_each(|store| remove(store));
        }
        Gives::All
    }));
    let seen = seen.into_iter().map(Some).collect();
    let backend = StripedBackend::open(seen, "stripes").unwrap().unwrap().with_judge(judge);
    assert_eq!(backend.with_small_bytes(100).mend().unwrap(), 0);
    for store in &stores {
        removed.iter().for_each(|name| assert!(store.size(name).is_err(), "{name}"));
    }
}

/// One store does not give what it has: another one that was erased is made again all the same.
#[test]
fn what_one_store_withholds_ends_no_mend() {
    for gives in [Gives::Forbidden, Gives::Archived] {
        let stores = stores(4);
        let objects = samples();
        let made = StripedBackend::create(as_stores(&stores), 2, SET, "stripes").unwrap();
        fill(&made.with_small_bytes(100), &objects);
        let left = erased(&stores, &[2]);
        let mut seen = as_stores(&left);
        let of_objects = move |asked: &ObjectName| match asked.folder() {
            "" => Gives::All,
            _ => gives,
        };
        seen[1] = Arc::new(WithholdingBackend::new(left[1].clone(), of_objects));
        let seen = || StripedBackend::open(seen.iter().cloned().map(Some).collect(), "stripes");
        let backend = seen().unwrap().unwrap().with_small_bytes(100);
        assert_eq!(backend.missing(), 1);
        assert!(backend.mend().unwrap() > 0);
        assert_eq!(left[2].snapshot(), stores[2].snapshot(), "{gives:?}");
        let mended = seen().unwrap().unwrap().with_small_bytes(100);
        assert_eq!((mended.missing(), mended.lacking(true).unwrap()), (0, 0));
    }
}
