//! `forget`: what is said when there is no room for all that is wished.

use std::sync::Arc;

use strongroom_base::SnapshotId;
use strongroom_repository::{ErrorKind, RepositoryError, list_snapshots};
use strongroom_testkit::{CallKind, Calls, FaultKind, FaultPlan, FaultyBackend};
use strongroom_upkeep::forget;

use crate::world::World;

/// A disk that is full after some wishes: those count, and the next step is a prune; unless there is
/// nothing that a prune could do.
#[test]
fn what_could_be_wished_counts_and_a_prune_makes_room() {
    let world = World::bare(700);
    let ids: Vec<SnapshotId> = (0..5)
        .map(|version: u8| {
            world.write("file", &[version; 100]);
            world.backup().snapshot.id
        })
        .collect();
    for (earlier, room) in [(0, 0), (1, 0), (0, 1), (1, 2), (0, 3)] {
        let what = format!("{earlier} forgotten earlier, room for {room}");
        let objects = world.objects.snapshot();
        let memory = Arc::new(strongroom_backend::MemoryBackend::from_snapshot(objects));
        let repository = world.open_over(memory.clone()).unwrap();
        forget(&repository, &ids[..earlier]).unwrap();
        let wishes = Calls::of(&[CallKind::Create]).within("forgotten");
        let full = FaultPlan::lasting(wishes, room, FaultKind::NoSpace);
        let faulty = world.open_over(Arc::new(FaultyBackend::new(memory, full))).unwrap();
        let outcome = forget(&faulty, &ids[1..4]);
        match outcome {
            Ok(added) => assert_eq!((added, room), (3, 3), "{what}"),
            Err(RepositoryError::RoomOfPrune { forgotten, of }) => {
                assert_eq!((forgotten as u64, of), (room, 3), "{what}");
                assert!(earlier + forgotten > 0, "{what}: nothing is to be pruned");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{what}");
                assert_eq!((earlier, room), (0, 0), "{what}: {error}");
            }
        }
        let list = list_snapshots(&repository).unwrap();
        let mut forgotten: Vec<SnapshotId> = list.forgotten.iter().map(|it| it.id).collect();
        forgotten.sort_unstable();
        let mut expected = [&ids[..earlier], &ids[1..=room as usize]].concat();
        expected.sort_unstable();
        assert_eq!(forgotten, expected, "{what}");
    }
}
