//! Compares what is counted with what is known.

use std::fs;

use strongroom_arena::{ARENAS_FOLDER, ArenaName};
use strongroom_backend::{Backend, read_all};
use strongroom_base::{Cancel, Severity, Silent};
use strongroom_catalog::Snapshot;
use strongroom_testkit::tree::grow;
use strongroom_testkit::{Listener, noise};
use strongroom_upkeep::{SnapshotStat, repository_stats, snapshot_stats};

use crate::world::{TREE, World, options, run};

/// Backs the tree up without deltas: what a chunk takes is its own.
fn backup(world: &World) -> Snapshot {
    let mut options = options(&world.tree());
    options.pack.deltas = false;
    run(&world.open(), &options, &Silent).unwrap().snapshot
}

#[test]
fn every_byte_of_a_repository_is_counted() {
    let world = World::bare(1);
    grow(&world.tree(), 6, TREE);
    let first = backup(&world);
    world.write("more", &noise(9, 50_000));
    let second = backup(&world);
    let stats = repository_stats(&world.open(), &Silent, &Cancel::new()).unwrap();
    let bytes_in = |folder: &str| -> u64 {
        let listed = world.objects.list(folder).unwrap();
        listed.iter().map(|info| read_all(&*world.objects, &info.name).unwrap().len() as u64).sum()
    };
    let all: u64 = ["", "keys", "snapshots", "sessions", "arenas"].map(bytes_in).iter().sum();
    assert_eq!(stats.stored_bytes(), all);
    assert_eq!(stats.data.object_bytes + stats.metadata.object_bytes, bytes_in(ARENAS_FOLDER));
    assert_eq!((stats.snapshots, stats.unreadable), (2, 0));
    assert_eq!(stats.referenced_bytes, first.stats.bytes + second.stats.bytes);
    assert_eq!(stats.data.chunk_bytes, first.stats.bytes_new + second.stats.bytes_new);
    assert!(stats.data.overhead_bytes() > 0 && stats.data.overhead_bytes() < all / 2);
    assert!(stats.dedup_ratio().unwrap() > 1.5);
    assert!(stats.compression_ratio().unwrap() > 0.9);
}

#[test]
fn an_empty_repository_has_no_ratios() {
    let world = World::bare(1);
    let stats = repository_stats(&world.open(), &Silent, &Cancel::new()).unwrap();
    assert_eq!(stats.stored_bytes(), stats.small_bytes);
    assert_eq!((stats.dedup_ratio(), stats.compression_ratio()), (None, None));
    assert_eq!(stats.total_ratio(), Some(0.0));
}

#[test]
fn shares_of_snapshots() {
    let world = World::bare(1);
    let (shared, first, second) = (noise(1, 90_000), noise(2, 50_000), noise(3, 70_000));
    world.write("dir/shared", &shared);
    world.write("dir/twice", &shared);
    world.write("first", &first);
    fs::hard_link(world.tree().join("first"), world.tree().join("first-too")).unwrap();
    let one = backup(&world);
    fs::remove_file(world.tree().join("first")).unwrap();
    fs::remove_file(world.tree().join("first-too")).unwrap();
    world.write("second", &second);
    let two = backup(&world);
    let snapshots = [one.clone(), two.clone()];
    let count = |of: &[_]| -> Vec<SnapshotStat> {
        snapshot_stats(&world.open(), of, &Silent, &Cancel::new()).unwrap()
    };
    let stats = count(&snapshots);
    for (stat, snapshot) in stats.iter().zip(&snapshots) {
        assert_eq!(stat.id, snapshot.id);
        let saved = snapshot.stats;
        let counted = (stat.files, stat.directories, stat.bytes);
        assert_eq!(counted, (saved.files, saved.directories, saved.bytes));
        assert_eq!(stat.unreadable, 0);
    }
    assert_eq!(stats[0].bytes, 2 * 90_000 + 2 * 50_000);
    assert_eq!((stats[0].unique_bytes, stats[0].own_bytes), (140_000, 50_000));
    assert_eq!((stats[1].unique_bytes, stats[1].own_bytes), (160_000, 70_000));
    // Noise takes as many bytes as it has, and the trees take a little.
    for (stat, own) in stats.iter().zip([50_000, 70_000]) {
        assert!((own..own + 5_000).contains(&stat.own_stored_bytes), "{stat:?}");
        assert!((stat.unique_bytes..stat.unique_bytes + 9_000).contains(&stat.stored_bytes));
    }
    // In another order, or for one alone: the share is always computed against all.
    assert_eq!(count(&[two.clone(), one.clone()]), [stats[1], stats[0]]);
    assert_eq!(count(&[one]), [stats[0]]);
    assert_eq!(count(&[]), []);
}

#[test]
fn shares_add_up_to_what_is_stored() {
    let world = World::bare(1);
    grow(&world.tree(), 5, TREE);
    let snapshot = backup(&world);
    let stat = snapshot_stats(&world.open(), &[snapshot], &Silent, &Cancel::new()).unwrap()[0];
    let stats = repository_stats(&world.open(), &Silent, &Cancel::new()).unwrap();
    assert_eq!(stat.unique_bytes, stats.data.chunk_bytes);
    assert_eq!((stat.own_bytes, stat.own_stored_bytes), (stat.unique_bytes, stat.stored_bytes));
    let blocks = stats.data.block_bytes + stats.metadata.block_bytes;
    let chunks = stats.data.chunks + stats.metadata.chunks;
    assert!((blocks - chunks..=blocks).contains(&stat.stored_bytes), "{blocks} {stat:?}");
}

#[test]
fn what_is_lost_is_told_and_the_rest_is_counted() {
    let world = World::bare(1);
    world.write("lost/file", b"x");
    let first = backup(&world);
    world.write("whole/file", b"y");
    let second = backup(&world);
    world.objects.remove(&ArenaName::first(first.root.refs[0].location.arena).object()).unwrap();
    let (listener, cancel) = (Listener::new(), Cancel::new());
    let stats = snapshot_stats(&world.open(), &[second], &listener, &cancel).unwrap();
    assert_eq!((stats[0].files, stats[0].unreadable), (1, 1));
    assert!(listener.problems().iter().all(|problem| problem.severity == Severity::Damage));
    // A damaged arena still has a size.
    let name = world.objects.list(ARENAS_FOLDER).unwrap().remove(0).name;
    world.objects.replace(&name, &[0; 100]).unwrap();
    let stats = repository_stats(&world.open(), &Silent, &Cancel::new()).unwrap();
    assert_eq!(stats.unreadable, 1);
}
