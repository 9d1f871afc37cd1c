//! Regions of several snapshots become one snapshot, and nothing is stored again.

use strongroom_base::keys::TAG_BYTES;
use strongroom_engine::{CombinedPart, combine};

use strongroom_upkeep::{PruneOptions, forget, prune};

use super::*;
use crate::domains::put_only;
use crate::hostile::{directory, file, forge, tree};
use crate::world::LAPTOP;

const EXACT: Guarantee = Guarantee::new(Guarantee::EXACT, Guarantee::OWNER);

fn part(snapshot: &Snapshot, path: &str) -> CombinedPart {
    CombinedPart { snapshot: snapshot.clone(), path: path.into() }
}

fn combined(repository: &Repository, parts: &[CombinedPart]) -> Result<Snapshot, EngineError> {
    let options = backup_options(&["/file"]);
    combine(repository, parts, EXACT, &options, &Silent, &Cancel::new())
        .map(|outcome| outcome.snapshot)
}

#[test]
fn parts_of_snapshots_become_one() {
    for world in [World::bare(31), World::by_value(32, 4)] {
        let repository = world.open();
        let mut random = Random::new(31);
        let (one, two) = (random.noise(3 * CHUNK + 5), random.noise(2 * CHUNK));
        let regions = [Owned::new(&one).at("/file/1/data"), Owned::new(b"x").at("/file/1/about")];
        let first = store(&repository, &regions).backup.snapshot;
        let second =
            store(&repository, &[Owned::new(&two).at("/file/2/data"), Owned::new(b"y").at("/z")]);
        let second = second.backup.snapshot;
        let cut = combined(&repository, &[part(&first, "/file/1"), part(&second, "/file/2")]);
        let cut = cut.unwrap();
        assert_eq!(cut.stats.bytes_new, 0, "it only names what is there");
        assert_eq!((cut.stats.files, cut.guarantee), (3, Some(EXACT)));
        assert!(loaded(&repository, &cut, "/file/1/data", b"") == one);
        assert!(loaded(&repository, &cut, "/file/2/data", b"") == two);
        assert!(
            regions_of(&repository, &cut, b"/z", &Cancel::new()).is_err(),
            "it was not asked for"
        );
        // Who loads a bucket elsewhere goes on from the marks of the cut.
        let options = BackupOptions { parent: Some(cut.id), ..backup_options(&["/file/2/data"]) };
        let region = [Owned::new(&two).at("/file/2/data")];
        let next = backup_regions(&repository, &region, plain(), &options, &Silent, &Cancel::new());
        let next = next.unwrap();
        assert_eq!((next.passes, next.pages_changed), (1, 0));
        let verified = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new());
        assert!(verified.unwrap().is_sound());
    }
}

#[test]
fn a_part_that_is_not_there_makes_no_snapshot() {
    let world = World::bare(33);
    let repository = world.open();
    let bytes = Random::new(33).noise(CHUNK);
    let first = store(&repository, &[Owned::new(&bytes).at("/file/1/data")]).backup.snapshot;
    let error = combined(&repository, &[part(&first, "/file/2")]).unwrap_err();
    assert!(error.to_string().contains("/file/2"), "{error}");
    assert_eq!(snapshot_ids(&repository), [first.id]);
}

/// An arena of a part is gone: a snapshot that names it would be worth nothing.
#[test]
fn a_part_that_lost_its_chunks_makes_no_snapshot() {
    let world = World::bare(34);
    let bytes = Random::new(34).noise(20 * CHUNK);
    let first = store(&world.open(), &[Owned::new(&bytes).at("/file/1/data")]).backup.snapshot;
    for info in world.objects.list("arenas").unwrap() {
        if ArenaContent::of(ArenaName::of(&info.name).unwrap().id) == ArenaContent::Data {
            world.objects.remove(&info.name).unwrap();
        }
    }
    let repository = world.open();
    let error = combined(&repository, &[part(&first, "/file/1")]).unwrap_err();
    assert!(matches!(error, EngineError::PartGone { .. }), "{error}");
    assert_eq!(snapshot_ids(&repository), [first.id]);
}

/// A node names in its own snapshot what the owner has stored. The owner's snapshot of it would be read
/// without asking whose that is.
#[test]
fn a_part_gives_a_node_nothing_that_others_have_stored() {
    for world in [World::bare(36), World::by_value(37, TAG_BYTES)] {
        let node = put_only(&world, "laptop", LAPTOP);
        let owner = world.open();
        let bytes = Random::new(36).noise(20 * CHUNK);
        let first = store(&owner, &[Owned::new(&bytes).at("/secret")]).backup.snapshot;
        let [secret] = &regions_of(&owner, &first, b"/secret", &Cancel::new()).unwrap()[..] else {
            panic!("it has one region")
        };
        forge(&node, |writer| {
            let below = tree(writer, &[file("data", secret.content.clone())]);
            let below = tree(writer, &[directory("1", below)]);
            tree(writer, &[directory("file", below)])
        });
        let snapshots = list_snapshots(&owner).unwrap().snapshots;
        let forged = snapshots.iter().find(|snapshot| snapshot.id != first.id).unwrap();
        let error = combined(&owner, &[part(forged, "/file/1")]).unwrap_err();
        assert!(matches!(error, EngineError::PartGone { .. }), "{error}");
        assert!(combined(&owner, &[part(&first, "/secret")]).is_ok(), "it is the owner's own");
    }
}

/// A node may only store. Its snapshot is named by the owner's, and goes; what it stored stays.
#[test]
fn a_part_of_a_node_that_can_only_store_outlives_its_snapshot() {
    let world = World::bare(35);
    let node = put_only(&world, "laptop", LAPTOP);
    let mut bytes = Random::new(35).content(20 * CHUNK);
    store(&node, &[Owned::new(&bytes).at("/file/1/data")]);
    // The second is stored as deltas against the first.
    for at in 0..20 {
        bytes[at * CHUNK + 7] ^= 1;
    }
    store(&node, &[Owned::new(&bytes).at("/file/1/data")]);
    let owner = world.open();
    let parts = list_snapshots(&owner).unwrap().snapshots;
    let cut = combined(&owner, &[part(&parts[1], "/file/1")]).unwrap();
    assert_eq!(cut.stats.bytes_new, 0, "it only names what is there");
    let ids: Vec<_> = parts.iter().map(|snapshot| snapshot.id).collect();
    forget(&owner, &ids).unwrap();
    let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
    for _ in 0..3 {
        prune(&owner, &all, &Silent, &Cancel::new()).unwrap();
    }
    assert_eq!(snapshot_ids(&owner), [cut.id]);
    assert!(loaded(&world.open(), &cut, "/file/1/data", b"") == bytes);
    let verified = verify(&world.open(), VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
    assert!(verified.is_sound(), "{verified:?}");
}
