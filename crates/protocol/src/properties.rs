//! What must hold in every state, and what must be reached.

use crate::set::Set;
use crate::world::World;

/// Every snapshot that no verdict forgot can be read: what it names exists, and all bases.
pub fn is_readable(world: &World) -> bool {
    let present = world.store.present();
    let mut snapshots = world.store.snapshots().minus(forgotten(world)).iter();
    snapshots.all(|snapshot| {
        let roots = world.store.roots(snapshot).unwrap_or_default();
        world.with_bases(roots).is_within(present)
    })
}

/// Every snapshot that a writer acknowledged, and that no verdict forgot, exists.
pub fn is_kept(world: &World) -> bool {
    world.past.acknowledged.minus(forgotten(world)).is_within(world.store.snapshots())
}

/// A session of which there was a tombstone has no snapshot. One that a verdict forgot does not
/// count: its writer may not have had an answer yet, and creates it again.
pub fn is_decided_once(world: &World) -> bool {
    let decided = world.past.tombstones.minus(forgotten(world));
    decided.and(world.store.snapshots()).is_empty()
}

/// No verdict forgets a snapshot of which the wish was reported to be taken back.
pub fn is_taken_back(world: &World) -> bool {
    world.past.taken_back.and(forgotten(world)).is_empty()
}

/// A writer that believes its session fenced is right.
pub fn is_denial_true(world: &World) -> bool {
    world.past.denied.and(world.store.snapshots()).is_empty()
}

/// A verdict removes something.
pub fn a_slot_goes(world: &World) -> bool {
    world.store.verdicts().any(|verdict| !verdict.dead.is_empty())
}

/// A writer commits while a collection is under way.
pub fn a_writer_commits_beside_a_plan(world: &World) -> bool {
    let mut collections = world.store.collections.iter();
    let is_collecting = collections.any(|collection| collection.plan.is_some() && !collection.done);
    is_collecting && !world.past.acknowledged.minus(Set::of(&[0, 1])).is_empty()
}

/// Snapshots that verdicts, and mutants, removed.
fn forgotten(world: &World) -> Set {
    let verdicts = world.store.verdicts();
    verdicts.fold(world.past.forgotten_at_once, |all, verdict| all.or(verdict.forgotten))
}
