//! A disk of a machine that can only store is read from what that machine has stored alone.

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, OsEntropy, Silent};
use strongroom_catalog::{ChunkRef, Entry, EntryKind, Metadata, Recipe, Snapshot, TreeWriter};
use strongroom_nbd::Exports;
use strongroom_repository::keys::{KdfCost, KeySlot, NewSlot, write_slot};
use strongroom_repository::{
    ChunkReader, ChunkWriter, OwnRecord, PackOptions, Repository, Session, find_disks,
};

use crate::fixture::World;

const LAPTOP: &[u8] = b"what the laptop knows";

/// The repository as the laptop's key opens it.
fn as_laptop(world: &World) -> Repository {
    let owner = &world.repository;
    let secret = owner.secret.put_only("laptop").unwrap();
    let new = NewSlot {
        label: "laptop".to_owned(),
        created: owner.surroundings.clock.now(),
        cost: Some(KdfCost::TYPED_MIN),
    };
    let slot = KeySlot::seal(new, &secret, LAPTOP, owner.config.id, &OsEntropy).unwrap();
    write_slot(owner.backend(), &slot).unwrap();
    Repository::open(owner.surroundings.clone(), LAPTOP).unwrap()
}

fn commit(session: Session<'_>, root: Recipe) -> Snapshot {
    let (host, paths) = ("laptop".to_owned(), vec![b"/vm1".to_vec()]);
    let snapshot = Snapshot { root, host, paths, ..Snapshot::empty(session.id) };
    session.commit(&snapshot).unwrap();
    snapshot
}

/// A tree with one entry.
fn tree_of(writer: &mut ChunkWriter<'_>, name: &str, kind: EntryKind, size: u64) -> Recipe {
    let metadata = Metadata { size, links: 1, ..Metadata::default() };
    let mut tree = TreeWriter::new();
    let entry = Entry { name: name.into(), kind, metadata };
    tree.push(&entry, &mut writer.metadata(None)).unwrap();
    tree.finish(&mut writer.metadata(None)).unwrap()
}

/// A snapshot of the thief with trees of its own, in which a file is the victim's disk.
fn own_trees(thief: &Repository, content: &Recipe) -> Snapshot {
    let own = OwnRecord::default();
    let reader = ChunkReader::for_parents(thief, &own, CacheLimits::default());
    let session = Session::begin(thief, "laptop").unwrap();
    let (cancel, pack) = (Cancel::new(), PackOptions { workers: 2, ..PackOptions::default() });
    let mut writer =
        ChunkWriter::open(thief, &reader, &session, pack, false, &Silent, &cancel).unwrap();
    let size = content.stream_bytes();
    let file = EntryKind::File { content: content.clone() };
    let disks = tree_of(&mut writer, "vda.raw", file, size);
    let machine = EntryKind::Directory { tree: disks, partial: false };
    let root = tree_of(&mut writer, "vm1", machine, 0);
    writer.finish(&Silent).unwrap();
    commit(session, root)
}

#[test]
fn kept_h3_a_disk_of_a_put_only_snapshot_is_read_from_its_own_arenas_alone() {
    let world = World::new();
    let night = world.night("vm1", 0, &[&world.disk("secret.raw", 1, 4)]);
    let owner = &world.repository;
    let reader = ChunkReader::of_domain(owner, "", CacheLimits::default()).unwrap();
    let disks = find_disks(&night, b"/vm1/vda.raw", &reader).unwrap();
    let content = disks.into_iter().next().unwrap().content;
    let thief = as_laptop(&world);
    // Once it names the owner's trees, once it has trees of its own that name the owner's disk.
    let session = Session::begin(&thief, "laptop").unwrap();
    let of_trees = commit(session, night.root.clone());
    let of_disk = own_trees(&thief, &content);
    let nights = world.nights(|_| {});

    let honest = nights.open(&format!("vm1/vda@{}", night.id)).unwrap();
    let whole = 0..honest.size();
    honest.append(whole.clone(), &mut Vec::new()).unwrap();
    assert!(nights.open(&format!("vm1/vda@{}", of_trees.id)).is_err(), "its tree is not read");
    let said = world.reports.take().join("\n");
    assert!(said.contains("cannot be found"), "{said}");

    let disk = nights.open(&format!("vm1/vda@{}", of_disk.id)).unwrap();
    assert!(disk.append(whole, &mut Vec::new()).is_err(), "no byte of it is given");
    // Also not once the blocks were fetched for the honest one, nor by reading ahead.
    disk.cache(0..disk.size()).unwrap();
    for at in (0..disk.size()).step_by(64 << 10) {
        let mut bytes = Vec::new();
        if disk.append(at..(at + 4096).min(disk.size()), &mut bytes).is_ok() {
            assert!(bytes.iter().all(|byte| *byte == 0), "a hole is a hole, at {at}");
        }
    }
}

/// One folder of many disks, named by many folders: a few chunks, and millions of disks.
#[test]
fn the_disks_of_a_snapshot_are_bounded() {
    let world = World::new();
    world.night("vm1", 0, &[&world.disk("honest.raw", 1, 4)]);
    let thief = as_laptop(&world);
    let own = OwnRecord::default();
    let reader = ChunkReader::for_parents(&thief, &own, CacheLimits::default());
    let session = Session::begin(&thief, "laptop").unwrap();
    let (cancel, pack) = (Cancel::new(), PackOptions { workers: 2, ..PackOptions::default() });
    let mut writer =
        ChunkWriter::open(&thief, &reader, &session, pack, false, &Silent, &cancel).unwrap();
    let mut many = |count: usize, suffix: &str, kind: &EntryKind, size: u64| {
        let mut tree = TreeWriter::new();
        for number in 0..count {
            let metadata = Metadata { size, links: 1, ..Metadata::default() };
            let name = format!("{number:05}{suffix}").into_bytes();
            let entry = Entry { name, kind: kind.clone(), metadata };
            tree.push(&entry, &mut writer.metadata(None)).unwrap();
        }
        tree.finish(&mut writer.metadata(None)).unwrap()
    };
    let hole = Recipe { depth: 0, refs: vec![ChunkRef::hole(512)] };
    let disks = many(1000, ".raw", &EntryKind::File { content: hole }, 512);
    let root = many(20, "", &EntryKind::Directory { tree: disks, partial: false }, 0);
    writer.finish(&Silent).unwrap();
    commit(session, root);
    let listed = world.nights(|_| {}).list().unwrap();
    assert!((1000..=4100).contains(&listed.len()), "{}", listed.len());
    assert!(listed.iter().any(|disk| disk.name.to_string().starts_with("vm1/")), "{listed:?}");
    assert!(world.reports.take().join("\n").contains("too many files"));
}
