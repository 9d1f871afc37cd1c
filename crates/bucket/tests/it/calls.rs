//! What a program calls at its safe points.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::Manners;
use strongroom_bucket::{AreaFault, BucketError, KeyRange};

use crate::world::{FILE, Record, Recorder, Shared, World, eventually, register_private};

#[test]
fn shared_and_private_areas_are_stored_and_come_back() {
    let world = World::new();
    let mut heap = vec![1; 50_000];
    let shared = Shared::new(&[2; 20_000]);
    let bucket = world.open(3);
    register_private(&bucket, "heap", &mut heap);
    shared.register(&bucket, "data", 20_000);
    assert_eq!(bucket.test("nightly").unwrap(), None);
    bucket.store("nightly", 7).unwrap();
    bucket.wait("nightly", 7).unwrap();

    heap[40_000] = 9;
    shared.write(&[3; 20_000]);
    bucket.store("nightly", 8).unwrap();
    bucket.wait("nightly", 8).unwrap();
    assert_eq!(bucket.test("nightly").unwrap(), Some(8));
    assert_eq!(bucket.find("nightly", Some(7)).unwrap().unwrap().version, 7);
    assert_eq!(bucket.find("nightly", Some(6)).unwrap(), None);

    heap.fill(0);
    bucket.load("nightly", 7).unwrap();
    assert_eq!((heap[40_000], shared.read(20_000)), (1, vec![2; 20_000]));
    bucket.load("nightly", 8).unwrap();
    assert_eq!((heap[39_999], heap[40_000]), (1, 9));
    assert_eq!(shared.read(20_000), vec![3; 20_000]);
}

#[test]
fn a_store_of_private_memory_returns_before_it_is_captured() {
    let world = World::new();
    let slow = Manners { capture_time: Duration::from_millis(300), ..Manners::default() };
    world.agent().behave(slow);
    let mut heap = vec![1; 100_000];
    let bucket = world.open(0);
    register_private(&bucket, "heap", &mut heap);
    bucket.store("n", 1).unwrap();
    assert_eq!(world.archive.versions(FILE, 0, "n"), [0; 0]);
    // The shadow is what the agent reads.
    heap.fill(2);
    bucket.store("n", 2).unwrap();
    heap.fill(3);
    bucket.wait("n", 1).unwrap();
    bucket.wait("n", 2).unwrap();
    assert_eq!(world.archive.areas(FILE, 0, "n", 1).unwrap()["heap"], vec![1; 100_000]);
    assert_eq!(world.archive.areas(FILE, 0, "n", 2).unwrap()["heap"], vec![2; 100_000]);
}

#[test]
fn a_store_of_shared_memory_returns_when_it_is_captured() {
    let world = World::new();
    let slow = Manners { capture_time: Duration::from_millis(200), ..Manners::default() };
    world.agent().behave(slow);
    let shared = Shared::new(&[1; 5000]);
    let bucket = world.open(0);
    shared.register(&bucket, "data", 5000);
    bucket.store("n", 1).unwrap();
    shared.write(&[2; 5000]);
    bucket.wait("n", 1).unwrap();
    assert_eq!(world.archive.areas(FILE, 0, "n", 1).unwrap()["data"], vec![1; 5000]);
}

#[test]
fn an_area_is_not_stored_before_it_is_registered_on_both_sides() {
    let world = World::new();
    let (mut heap, mut more) = (vec![1; 50_000], vec![7; 50_000]);
    let bucket = world.open(0);
    register_private(&bucket, "heap", &mut heap);
    // The agent has the area long before its answer is here.
    let slow = Manners { region_time: Duration::from_millis(500), ..Manners::default() };
    world.agent().behave(slow);
    std::thread::scope(|scope| {
        scope.spawn(|| register_private(&bucket, "more", &mut more));
        std::thread::sleep(Duration::from_millis(150));
        bucket.store("n", 1).unwrap();
    });
    bucket.wait("n", 1).unwrap();
    assert!(world.archive.areas(FILE, 0, "n", 1).unwrap()["more"] == more);
}

#[test]
fn some_areas_are_stored_and_loaded_alone() {
    let world = World::new();
    let (mut one, mut two) = (vec![1; 10], vec![2; 10]);
    let bucket = world.open(0);
    register_private(&bucket, "one", &mut one);
    register_private(&bucket, "two", &mut two);
    bucket.store_areas("n", 1, &["two".to_owned()]).unwrap();
    bucket.store("n", 2).unwrap();
    bucket.wait("n", 2).unwrap();
    (one[0], two[0]) = (9, 9);
    bucket.load("n", 1).unwrap();
    assert_eq!((one[0], two[0]), (9, 2));
    bucket.load_areas("n", 2, &["one".to_owned()]).unwrap();
    assert_eq!(one[0], 1);

    let error = bucket.load_areas("n", 1, &["one".to_owned()]).unwrap_err();
    assert!(matches!(error, BucketError::Area { fault: AreaFault::NotStored, .. }), "{error}");
    let error = bucket.store_areas("n", 3, &["three".to_owned()]).unwrap_err();
    assert!(matches!(error, BucketError::Area { fault: AreaFault::Unknown, .. }), "{error}");
    bucket.store("n", 4).unwrap();
}

#[test]
fn areas_of_another_length_are_not_loaded() {
    let world = World::new();
    let mut heap = vec![1; 1000];
    let bucket = world.open(0);
    register_private(&bucket, "heap", &mut heap);
    bucket.store("n", 1).unwrap();
    bucket.wait("n", 1).unwrap();
    register_private(&bucket, "heap", &mut heap[..500]);
    let error = bucket.load("n", 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "area heap: it is registered with 500 bytes, but 1000 bytes were stored: register it with \
         1000 bytes, then load"
    );
    bucket.forget("heap").unwrap();
    let error = bucket.load("n", 1).unwrap_err();
    assert_eq!(error.to_string(), "area heap: it is not registered: register it first");
    assert!(bucket.forget("heap").is_err());
    let error = bucket.load("n", 2).unwrap_err();
    assert_eq!(error.to_string(), "there is no version 2 of n");
    register_private(&bucket, "heap", &mut heap);
    heap.fill(0);
    bucket.load("n", 1).unwrap();
    assert_eq!(heap, vec![1; 1000]);
}

#[test]
fn a_commit_that_fails_is_reported_by_wait() {
    let world = World::new();
    let fault = Some("the repository is full".to_owned());
    world.agent().behave(Manners { commit_fault: fault, ..Manners::default() });
    let mut heap = vec![1; 1000];
    let bucket = world.open(0);
    register_private(&bucket, "heap", &mut heap);
    bucket.store("n", 1).unwrap();
    let error = bucket.wait("n", 1).unwrap_err();
    assert_eq!(error.to_string(), "version 1 of n is not stored: the repository is full");
    world.agent().behave(Manners::default());
    bucket.store("n", 1).unwrap();
    bucket.wait("n", 1).unwrap();
    assert!(bucket.wait("n", 2).is_err());
}

#[test]
fn names_and_ranges_are_checked_before_anything_is_sent() {
    let world = World::new();
    let bucket = world.open(0);
    let shared = Shared::new(&[1]);
    for area in ["", "a/b", "..", "bucket.json", &"x".repeat(65)] {
        let error = bucket.region(area, shared.0.as_fd(), None, 1).unwrap_err();
        assert!(matches!(error, BucketError::Name { .. }), "{error}");
    }
    let error = bucket.region("a", shared.0.as_fd(), None, 0).unwrap_err();
    assert!(matches!(error, BucketError::Area { fault: AreaFault::Length, .. }), "{error}");
    let error = bucket.region("a", shared.0.as_fd(), None, 2).unwrap_err();
    assert!(
        matches!(error, BucketError::Area { fault: AreaFault::FileShort { .. }, .. }),
        "{error}"
    );
    assert!(bucket.store("", 1).is_err());
    let empty = KeyRange { low: b"b".to_vec(), high: Some(b"a".to_vec()) };
    assert!(matches!(bucket.range(&empty, 1), Err(BucketError::Range)));

    let range = KeyRange { low: b"a".to_vec(), high: None };
    bucket.range(&range, 4).unwrap();
    let expected = Some((range, 4));
    assert!(eventually(|| world.agent().range(FILE, 0) == expected));
}

#[test]
fn an_evicted_bucket_is_stored_and_freed_and_can_be_loaded() {
    let world = World::new();
    let mut heap = vec![5; 30_000];
    let shared = Shared::new(&[6; 30_000]);
    let bucket = world.open(0);
    let record = Arc::new(Record::default());
    register_private(&bucket, "heap", &mut heap);
    shared.register(&bucket, "data", 30_000);
    bucket.on_quiesce(Box::new(Recorder(record.clone()))).unwrap();
    bucket.evict().unwrap();
    assert_eq!(Record::count(&record.evicted), 1);
    assert_eq!(Record::count(&record.quiesced), 0);

    let version = bucket.test("evicted").unwrap().unwrap();
    let mut heap = vec![0; 30_000];
    assert!(bucket.load("evicted", version).is_err());
    register_private(&bucket, "heap", &mut heap);
    shared.register(&bucket, "data", 30_000);
    bucket.load("evicted", version).unwrap();
    assert_eq!(heap, vec![5; 30_000]);
    // Without a commit nothing is freed.
    let fault = Some("the repository is full".to_owned());
    world.agent().behave(Manners { commit_fault: fault, ..Manners::default() });
    assert!(bucket.evict().is_err());
    assert_eq!(Record::count(&record.evicted), 1);
}

#[test]
fn without_callbacks_the_caller_frees_what_is_evicted() {
    let world = World::new();
    let mut heap = vec![5; 30_000];
    let bucket = world.open(0);
    register_private(&bucket, "heap", &mut heap);
    bucket.evict().unwrap();
    drop(heap);
    let areas = world.archive.areas(FILE, 0, "evicted", 1).unwrap();
    assert_eq!(areas["heap"], vec![5; 30_000]);
    // No area is registered any more, so nothing of the freed memory is read.
    assert!(matches!(bucket.store("n", 1), Err(BucketError::NoAreas)));
}
