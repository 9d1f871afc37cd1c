//! Many schedules, and what is expected at the end of each.

use std::sync::atomic::{AtomicU64, Ordering};

use strongroom_cluster::{Outcome, Task};

use crate::programs::{KEYS, range_of};
use crate::world::{Event, Weather, World};

/// How long the weather lasts.
const STORM_MS: u64 = 4_000;
/// How long all that was begun may take to end in good weather.
const REST_MS: u64 = 10_000;

/// What schedules came to: a simulation in which nothing happens finds nothing.
#[derive(Default)]
struct Tally {
    cuts: AtomicU64,
    images: AtomicU64,
    evictions: AtomicU64,
    loads: AtomicU64,
    recoveries: AtomicU64,
    cancellations: AtomicU64,
    doubles: AtomicU64,
}

/// One schedule, to its end.
fn run(seed: u64, tally: &Tally) -> Result<(), String> {
    let mut world = World::new(seed);
    world.run_until(STORM_MS);
    let has_cut = !world.cuts.is_empty();
    world.weather = Weather::calm();
    world.is_calm = true;
    world.end_stale();
    world.sent.clear();
    for host in 0..world.hosts.len() {
        world.push(10, Event::Restart { host });
    }
    world.run_until(STORM_MS + REST_MS);
    world.judge_rest();
    for seat in 0..world.seats.len() {
        if world.seats[seat].client.is_some() {
            world.blame(format!("client {seat} does not end"));
        }
    }
    // What was evicted as a whole comes back as a whole; what was lost, by the hook.
    if world.programs.is_empty() && has_cut && world.fault.is_none() {
        let task = world.last_load_task();
        let outcome = finish(&mut world, task);
        if !matches!(outcome, Some(Outcome::Loaded { .. })) {
            world.blame(format!("a load in good weather ended with {outcome:?}"));
        }
    }
    let outcome = finish(&mut world, Task::Store { evicts: seed.is_multiple_of(2) });
    if !matches!(outcome, Some(Outcome::Stored { .. })) {
        world.blame(format!("a store in good weather ended with {outcome:?}"));
    }
    world.run_until(world.now_ms + REST_MS / 4);
    world.judge_rest();
    tally.cuts.fetch_add(world.cuts.len() as u64, Ordering::Relaxed);
    tally.images.fetch_add(world.images.len() as u64, Ordering::Relaxed);
    tally.evictions.fetch_add(world.evictions, Ordering::Relaxed);
    tally.loads.fetch_add(world.loads, Ordering::Relaxed);
    tally.recoveries.fetch_add(world.recoveries, Ordering::Relaxed);
    tally.cancellations.fetch_add(world.cancellations, Ordering::Relaxed);
    tally.doubles.fetch_add(world.doubles, Ordering::Relaxed);
    world.fault.map_or(Ok(()), Err)
}

/// Runs one client until it ends.
fn finish(world: &mut World, task: Task) -> Option<Outcome> {
    world.start(0, task);
    for _ in 0..300 {
        if world.seats[0].client.is_none() {
            break;
        }
        world.run_until(world.now_ms + 200);
    }
    world.seats[0].outcome.take()
}

/// Runs schedules on two threads, until one fails.
fn run_all(first: u64, count: u64) -> Tally {
    let (tally, next) = (Tally::default(), AtomicU64::new(first));
    let end = first + count;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    if let Err(fault) = run(seed, &tally) {
                        next.store(end, Ordering::Relaxed);
                        panic!("seed {seed}: {fault}");
                    }
                }
            });
        }
    });
    tally
}

/// A few thousand schedules. The same ones each time, so that a failure is found again.
#[test]
fn no_schedule_breaks_a_promise() {
    let tally = run_all(0, 3_000);
    // A simulation in which little happens finds little.
    let least = [
        ("cuts", &tally.cuts, 5_000),
        ("snapshots of agents", &tally.images, 25_000),
        ("evictions", &tally.evictions, 3_000),
        ("loads", &tally.loads, 500),
        ("recoveries", &tally.recoveries, 1_500),
        ("cancellations", &tally.cancellations, 500),
        ("doubles", &tally.doubles, 3_000),
    ];
    for (what, happened, least) in least {
        let happened = happened.load(Ordering::Relaxed);
        assert!(happened >= least, "only {happened} {what}: the schedules are too bad");
    }
}

/// For a night, or for a change of the protocol.
#[test]
#[ignore = "takes a minute"]
fn no_schedule_of_a_hundred_thousand_breaks_a_promise() {
    run_all(1_000_000, 100_000);
}

/// A store that waits for keys which no program has is cancelled: programs go on long before their
/// deadline, even if a datagram is lost.
#[test]
fn a_store_that_is_cancelled_lets_programs_go_on() {
    let (mut waiting, mut freed) = (0, 0);
    for seed in 0..200 {
        let mut world = World::new(seed);
        world.weather = Weather { loss: 100, ..Weather::calm() };
        world.is_calm = true;
        world.kill_program();
        world.start(0, Task::Store { evicts: false });
        world.run_until(300);
        let is_stopped = |world: &World| world.programs.values().any(|it| it.stop.is_some());
        if world.seats[0].client.is_none() || !is_stopped(&world) {
            continue;
        }
        waiting += 1;
        world.cancel_client(0);
        world.run_until(900);
        assert_eq!(world.seats[0].outcome, Some(Outcome::Cancelled), "seed {seed}");
        freed += u32::from(!is_stopped(&world));
    }
    // Of three ABORTs, one in ten is lost each.
    assert!(waiting >= 50 && freed + 2 >= waiting, "{freed} of {waiting}");
}

#[test]
fn a_schedule_is_its_seed() {
    let trace = |seed| {
        let mut world = World::new(seed);
        world.run_until(STORM_MS);
        (world.stamp, world.cuts.len(), world.images.len(), world.totals)
    };
    assert_eq!(trace(17), trace(17));
    assert_eq!(range_of(0, KEYS), strongroom_bucket::KeyRange::whole());
}
