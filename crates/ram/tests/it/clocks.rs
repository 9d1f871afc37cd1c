//! A clock that is set back or ahead: what a program evicted last is what it gets back.

use strongroom_testkit::noise;

use crate::world::{Memory, World, whole};

const BYTES: usize = 300_000;
const YEAR: i64 = 365 * 86_400;
/// The version as which a program's own eviction is stored.
const EVICTED: &str = "evicted";

/// A program evicts while the clock is set to each of these, in order. Returns the versions.
#[track_caller]
fn evictions(world: &World, ahead_seconds: &[i64]) -> Vec<u64> {
    let memory = Memory::new(&noise(0, BYTES));
    let bucket = whole(world, 1, &memory);
    let evict = |(number, ahead): (usize, &i64)| {
        world.clock.set(*ahead);
        let content = noise(number as u64 + 1, BYTES);
        memory.write(&content);
        bucket.evict().unwrap();
        let version = bucket.test(EVICTED).unwrap().unwrap();
        memory.write(&vec![0; BYTES]);
        memory.register(&bucket, "data");
        bucket.load(EVICTED, version).unwrap();
        assert!(memory.read() == content, "eviction {number} was of something else");
        version
    };
    ahead_seconds.iter().enumerate().map(evict).collect()
}

#[test]
fn what_was_evicted_last_is_the_newest_version_however_the_clock_is_set() {
    let world = World::new();
    let _agent = world.agent();
    // As it goes, back by a year, far ahead, back again, before 1970, and ahead of all.
    let versions = evictions(&world, &[0, -YEAR, 10 * YEAR, 0, -100 * YEAR, 20 * YEAR]);
    assert!(versions.is_sorted_by(|before, after| before < after), "{versions:?}");
    assert_eq!(versions[1], versions[0] + 1, "the clock was set back");
    assert_eq!((versions[3], versions[4]), (versions[2] + 1, versions[2] + 2));
    let year_ns = YEAR as u64 * 1_000_000_000;
    assert!(versions[2] >= versions[0] + 9 * year_ns && versions[5] >= versions[2] + 9 * year_ns);
}

/// No version is above this: what was stored last as it counts.
#[test]
fn what_was_evicted_last_is_loaded_even_if_no_version_is_left() {
    let world = World::new();
    let _agent = world.agent();
    let memory = Memory::new(&noise(9, BYTES));
    let bucket = whole(&world, 1, &memory);
    bucket.store(EVICTED, u64::MAX).unwrap();
    bucket.wait(EVICTED, u64::MAX).unwrap();
    drop(bucket);
    assert_eq!(evictions(&world, &[0, -YEAR]), [u64::MAX, u64::MAX]);
}
