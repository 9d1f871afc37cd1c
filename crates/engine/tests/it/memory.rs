//! What is kept in memory between two looks at the same thing.

use std::fs;
use std::sync::Arc;

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Silent};
use strongroom_repository::{ChunkReader, Found, Repository, SnapshotWalk, read_snapshot};
use strongroom_testkit::{CallKind, RecordingBackend};

use crate::world::{PASSPHRASE, World, init_options, options, run, snapshot_ids};

/// Each small backup leaves an arena of data and one of metadata. Sixteen summaries were kept:
/// a walk over the history read a summary for nearly every tree, each time again.
#[test]
fn engine_22_a_second_walk_over_200_small_arenas_reads_no_summary() {
    let world = World::empty(90);
    Repository::init(world.surroundings(), PASSPHRASE, &init_options()).unwrap();
    for version in 0..100 {
        let folder = world.tree().join(format!("folder{}", version % 10));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("file"), format!("version {version}")).unwrap();
        run(&world.open(), &options(&world.tree()), &Silent).unwrap();
    }
    let recording = Arc::new(RecordingBackend::new(world.objects.clone()));
    let repository = Repository::open(world.over(recording.clone()), PASSPHRASE).unwrap();
    let reader = ChunkReader::of_domain(&repository, "", CacheLimits::default()).unwrap();
    let snapshots: Vec<_> = snapshot_ids(&repository)
        .into_iter()
        .map(|id| read_snapshot(&repository, id).unwrap())
        .collect();
    assert_eq!(snapshots.len(), 100);
    let reads_of_a_pass = || {
        recording.take();
        for snapshot in &snapshots {
            let mut walk = SnapshotWalk::new(&Found::root(snapshot), &reader, &Cancel::new());
            while walk.next().unwrap().is_some() {}
        }
        let calls = recording.take();
        calls.iter().filter(|call| call.kind == CallKind::Read).count()
    };
    let first = reads_of_a_pass();
    assert!((200..=210).contains(&first), "a summary and a block of each: {first}");
    assert_eq!(reads_of_a_pass(), 0);
}
