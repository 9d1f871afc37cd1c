//! Agents that cannot do what a round asks for: what they keep, and what is said of it.

use strongroom_cluster::{REASON_BYTES_MAX, State};
use strongroom_testkit::noise;

use crate::controller::Controller;
use crate::world::{Memory, World, whole};

#[test]
fn an_agent_that_only_stores_says_what_it_needs_to_free() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let _agent = world.node_that_only_stores(&controller.node_file());
    let memory = Memory::new(&noise(1, 1 << 20));
    let _bucket = whole(&world, 1, &memory);
    let snapshot = controller.store(1, 1);
    let evict = controller.evict(1, 1, snapshot);
    let failed = controller.until(1, (2, 2), &evict, &[State::Failed]);
    assert_eq!(
        failed.reason,
        "the key of its agent can only store: to free or load it, start the agent with a key that \
         can read, of `strongroom key add` without --put-only"
    );
    assert!(failed.reason.len() < REASON_BYTES_MAX, "a part of it would be cut off");
}
