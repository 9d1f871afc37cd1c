//! Areas that the next agent does not take: nothing is stored without them, and nothing is freed.

use std::sync::Arc;
use std::time::Duration;

use strongroom_bucket::{AreaFault, BucketError};

use crate::agent::Manners;
use crate::world::{FILE, Record, Recorder, Shared, World, register_private};

fn refuses(area: &str) -> Manners {
    Manners { refused_area: Some(area.to_owned()), ..Manners::default() }
}

fn is_not_taken(outcome: Result<(), BucketError>) -> bool {
    matches!(outcome, Err(BucketError::Area { fault: AreaFault::NotTaken(_), .. }))
}

#[test]
fn an_agent_that_has_not_all_areas_stores_and_frees_nothing() {
    let mut world = World::new();
    let record = Arc::new(Record::default());
    let (shared, mut heap) = (Shared::new(&[1; 100]), vec![2; 70_000]);
    let bucket = world.open(0);
    shared.register(&bucket, "data", 100);
    register_private(&bucket, "heap", &mut heap);
    bucket.on_quiesce(Box::new(Recorder(record.clone()))).unwrap();
    bucket.store_areas("part", 1, &["data".to_owned()]).unwrap();
    bucket.wait("part", 1).unwrap();

    world.restart_with(refuses("heap"));
    assert!(world.agent().await_owner(FILE, 0));
    let refused = world.agent().store(FILE, 0, "n", 1).unwrap_err();
    assert!(refused.contains("area heap") && refused.contains("too many areas"), "{refused}");
    // The agent has what the version has, and not what the program has.
    world.agent().evict(FILE, 0, "part", 1).unwrap_err();
    assert_eq!(Record::count(&record.quiesced), 0);
    assert_eq!(Record::count(&record.evicted), 0);
    assert!(is_not_taken(bucket.evict()));

    // An agent that takes it ends the refusals.
    world.restart();
    assert!(world.agent().await_owner(FILE, 0));
    world.agent().store(FILE, 0, "n", 2).unwrap();
    assert_eq!(world.archive.areas(FILE, 0, "n", 2).unwrap()["heap"], heap);
    bucket.store("n", 3).unwrap();
}

#[test]
fn the_call_that_connects_again_waits_for_the_answers() {
    let mut world = World::new();
    let (mut data, mut heap) = (vec![1; 100], vec![2; 70_000]);
    let bucket = world.open(0);
    register_private(&bucket, "data", &mut data);
    register_private(&bucket, "heap", &mut heap);
    let slow = Manners { region_time: Duration::from_millis(300), ..refuses("data") };
    world.restart_with(slow);
    let lost = |outcome: &Result<(), BucketError>| {
        matches!(outcome, Err(BucketError::AgentGone | BucketError::NoAgent { .. }))
    };
    let first = std::iter::repeat_with(|| bucket.store("n", 1)).find(|outcome| !lost(outcome));
    assert!(is_not_taken(first.unwrap()));
    assert_eq!(world.archive.versions(FILE, 0, "n"), [0; 0]);
}
