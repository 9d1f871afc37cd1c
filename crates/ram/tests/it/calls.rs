//! What a program has done by the calls of the library.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use strongroom_bucket::{AREAS_MAX, BucketError, ToProgram};
use strongroom_testkit::noise;

use crate::raw::Raw;
use crate::world::{Memory, World, in_time, whole};

#[test]
fn versions_are_stored_found_and_loaded() {
    let world = World::new();
    let _agent = world.agent();
    let bucket = world.open(1);
    let (one, two) = (Memory::new(&noise(1, 100_000)), Memory::new(&noise(2, 50_000)));
    one.register(&bucket, "one");
    two.register(&bucket, "two");
    assert_eq!(bucket.test("v").unwrap(), None);
    assert!(matches!(bucket.wait("v", 1), Err(BucketError::Failed { .. })));
    for version in 1..=2 {
        one.write(&noise(10 + version, 100_000));
        two.write(&noise(20 + version, 50_000));
        bucket.store("v", version).unwrap();
        bucket.wait("v", version).unwrap();
    }
    assert_eq!(bucket.test("v").unwrap(), Some(2));
    assert_eq!(bucket.find("v", Some(1)).unwrap().unwrap().version, 1);
    bucket.load_areas("v", 1, &["two".to_owned()]).unwrap();
    assert!(one.read() == noise(12, 100_000) && two.read() == noise(21, 50_000));
    bucket.load("v", 1).unwrap();
    assert!(one.read() == noise(11, 100_000));
    // Some of the areas are a version of their own.
    bucket.store_areas("part", 1, &["one".to_owned()]).unwrap();
    bucket.wait("part", 1).unwrap();
    let stored = bucket.find("part", None).unwrap().unwrap().areas;
    assert_eq!(stored.iter().map(|it| it.area.as_str()).collect::<Vec<_>>(), ["one"]);
    assert!(bucket.load("v", 3).is_err());
}

#[test]
fn a_bucket_has_as_many_areas_as_the_document_says() {
    let world = World::new();
    let _agent = world.agent();
    let bucket = world.open(1);
    let areas: Vec<Memory> =
        (0..AREAS_MAX).map(|at| Memory::new(&noise(at as u64, 3_000))).collect();
    for (at, area) in areas.iter().enumerate() {
        area.register(&bucket, &format!("{at:064}"));
    }
    bucket.store("v", 1).unwrap();
    bucket.wait("v", 1).unwrap();
    for area in &areas {
        area.write(&[0; 3_000]);
    }
    bucket.load("v", 1).unwrap();
    let names: BTreeSet<usize> = (0..AREAS_MAX).collect();
    let right = |at: &usize| areas[*at].read() == noise(*at as u64, 3_000);
    assert!(names.iter().all(right));
    // A program that does not count is refused one more.
    let raw = Raw::greet(&world, 2);
    for (at, area) in areas.iter().enumerate() {
        let file = area.0.as_fd();
        assert_eq!(raw.register(&format!("{at}"), file, 3_000), Ok(()));
    }
    let file = areas[0].0.as_fd();
    let refused = raw.register("more", file, 3_000).unwrap_err();
    assert!(refused.contains("512 areas at most"), "{refused}");
    assert_eq!(raw.register("0", file, 3_000), Ok(()), "one that it has is replaced");
}

#[test]
fn what_was_evicted_and_stored_survives_agent_and_program() {
    let world = World::new();
    let agent = world.agent();
    let memory = Memory::new(&noise(1, 200_000));
    let (kept, evicted) = (whole(&world, 1, &memory), whole(&world, 2, &memory));
    kept.store("v", 1).unwrap();
    kept.wait("v", 1).unwrap();
    evicted.evict().unwrap();
    assert!(matches!(evicted.store("v", 1), Err(BucketError::NoAreas)));
    drop(agent);
    let _agent = world.agent();
    kept.wait("v", 1).unwrap();
    memory.write(&[0; 200_000]);
    memory.register(&evicted, "data");
    let newest = evicted.test("evicted").unwrap().unwrap();
    evicted.load("evicted", newest).unwrap();
    assert!(memory.read() == noise(1, 200_000));
    // Evicted again, it has a higher number, and only its own.
    evicted.evict().unwrap();
    assert!(evicted.test("evicted").unwrap().unwrap() > newest);
    assert_eq!(kept.test("evicted").unwrap(), None);
    memory.write(&[0; 200_000]);
    kept.load("v", 1).unwrap();
    assert!(memory.read() == noise(1, 200_000));
}

#[test]
fn a_program_without_callbacks_evicts_by_itself() {
    let world = World::new();
    let _agent = world.agent();
    let memory = Memory::new(&noise(1, 200_000));
    let bucket = world.open(1);
    memory.register(&bucket, "data");
    bucket.evict().unwrap();
    memory.write(&[0; 200_000]);
    memory.register(&bucket, "data");
    let newest = bucket.test("evicted").unwrap().unwrap();
    bucket.load("evicted", newest).unwrap();
    assert!(memory.read() == noise(1, 200_000));
}

#[test]
fn each_wait_for_a_version_is_answered_even_if_it_is_stored_twice() {
    let world = World::new();
    let _agent = world.agent();
    let memory = Memory::new(&noise(1, 4 << 20));
    let raw = Raw::with_memory(&world, 1, &memory);
    raw.store(1, 1, true);
    raw.wait(2, 1);
    raw.store(3, 1, true);
    raw.wait(4, 1);
    let mut open = BTreeSet::from([2, 4]);
    while !open.is_empty() {
        let done = raw.hear_until("done", |it| matches!(it, ToProgram::Done { .. }));
        let ToProgram::Done { request } = done else { return };
        open.remove(&request);
    }
}

#[test]
fn a_program_that_closes_a_bucket_opens_it_again_at_once() {
    let world = World::new();
    let _agent = world.agent();
    let memory = Memory::new(&noise(1, 10_000));
    for version in 1..200 {
        let bucket = world.open(1);
        if version % 50 == 0 {
            memory.register(&bucket, "data");
            bucket.store("v", version).unwrap();
        }
    }
    // Meanwhile another program does not get it.
    let bucket = world.open(1);
    let other = strongroom_bucket::Bucket::open(Some(&world.socket()), "file", 1);
    let refused = other.err().unwrap().to_string();
    assert!(refused.contains(&format!("the process {} has it", std::process::id())), "{refused}");
    in_time("it is closed", move || drop(bucket));
}

#[test]
fn a_store_that_waits_has_the_areas_of_its_request() {
    let world = World::new();
    let _agent = world.agent();
    let content = noise(1, 16 << 20);
    let memory = Memory::new(&content);
    let raw = Raw::with_memory(&world, 1, &memory);
    raw.store(1, 1, true);
    raw.store(2, 2, true);
    // A new shadow, into which nothing was copied yet.
    raw.replace("data", &Memory::zeros(16 << 20));
    raw.wait(3, 2);
    raw.hear_until("done", |it| *it == ToProgram::Done { request: 3 });
    drop(raw);
    let bucket = world.open(1);
    memory.write(&vec![0; 16 << 20]);
    memory.register(&bucket, "data");
    bucket.load("v", 2).unwrap();
    assert!(memory.read() == content, "the version has what was registered after it");
    // What is not there is refused at once.
    let unknown = bucket.store_areas("v", 3, &["none".to_owned()]);
    assert!(unknown.is_err());
}
