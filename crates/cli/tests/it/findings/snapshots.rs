//! Which snapshot is meant, and what is said about it.

use crate::world::World;

#[test]
fn trial_08_a_filter_that_matches_nothing_says_of_how_many() {
    let world = World::with_tree(1);
    world.backup().exits(0);
    world.backup().exits(0);
    world.say("snapshots --path /nowhere").exits(0).warns("none of 2 snapshots");
}
