//! Cuts of many buckets.

use strongroom_arena::CacheLimits;
use strongroom_backend::Backend;
use strongroom_base::{Cancel, Silent, SnapshotId};
use strongroom_bucket::KeyRange;
use strongroom_catalog::{ChunkRef, Entry, EntryKind, Metadata, Recipe, Snapshot, TreeWriter};
use strongroom_cluster::{
    Acknowledgement, BucketNumber, Content, Description, Epoch, FileName, NodeId, Part, RunId,
    State, StoredPart,
};
use strongroom_ram::about::About;
use strongroom_ram::cut::StoredCut;
use strongroom_repository::{ChunkReader, ChunkWriter, Repository, Session};
use strongroom_testkit::noise;

use crate::controller::Controller;
use crate::world::{Memory, World, options, whole};

/// Half as many as are looked at for regions.
const AREAS: u32 = 1 << 15;

fn tree(writer: &mut ChunkWriter<'_>, entries: Vec<(String, EntryKind)>) -> EntryKind {
    let mut tree = TreeWriter::new();
    for (name, kind) in entries {
        let mut entry = Entry { name: name.into(), kind, metadata: Metadata::default() };
        entry.metadata.size = entry.content().map_or(0, Recipe::stream_bytes);
        tree.push(&entry, &mut writer.metadata(None)).unwrap();
    }
    let tree = tree.finish(&mut writer.metadata(None)).unwrap();
    EntryKind::Directory { tree, partial: false }
}

/// A snapshot of the file "file" with these buckets.
fn commit(
    repository: &Repository,
    fill: impl FnOnce(&mut ChunkWriter<'_>) -> Vec<(String, EntryKind)>,
) -> SnapshotId {
    let reader = ChunkReader::of_domain(repository, "", CacheLimits::default()).unwrap();
    let mut session = Session::begin(repository, "host").unwrap();
    session.sequence = 1;
    let (pack, cancel) = (options().pack, Cancel::new());
    let mut writer =
        ChunkWriter::open(repository, &reader, &session, pack, false, &Silent, &cancel).unwrap();
    let buckets = fill(&mut writer);
    let cut = tree(&mut writer, buckets);
    let root = tree(&mut writer, vec![("file".to_owned(), cut)]);
    let EntryKind::Directory { tree: root, .. } = root else { unreachable!("it is a folder") };
    writer.finish(&Silent).unwrap();
    let paths = vec![b"/file".to_vec()];
    let snapshot = Snapshot { root, paths, sequence: 1, ..Snapshot::empty(session.id) };
    session.commit(&snapshot).unwrap();
    snapshot.id
}

fn file(refs: Vec<ChunkRef>) -> EntryKind {
    EntryKind::File { content: Recipe { depth: 0, refs } }
}

#[test]
fn a_cut_of_more_areas_than_a_folder_of_regions_has_is_read() {
    let world = World::new();
    let repository = world.repository();
    let snapshot = commit(&repository, |writer| {
        let bucket = |bucket: u32| {
            let about = About {
                file: "file".to_owned(),
                bucket,
                range: None,
                split_version: 0,
                epoch: Some(5),
                version: None,
                areas: Vec::new(),
            };
            let bytes = serde_json::to_vec(&about).unwrap();
            let name = repository.keys.write.naming.data.fingerprint(&bytes);
            let about = writer.put_data(&bytes, name, 0, None).unwrap();
            let areas = (0..AREAS).map(|area| (format!("a{area:05}"), file(Vec::new())));
            let all = areas.chain([("bucket.json".to_owned(), file(vec![about]))]).collect();
            (bucket.to_string(), tree(writer, all))
        };
        (0..2).map(bucket).collect()
    });
    let keeper = world.keeper(world.repository(), &Cancel::new());
    let cut = keeper.cut(&FileName::new("file").unwrap(), snapshot).unwrap();
    let buckets: Vec<u32> = cut.buckets.iter().map(|about| about.bucket).collect();
    assert_eq!((cut.epoch, buckets), (Epoch(5), vec![0, 1]));
}

#[test]
fn kept_1_12_a_cut_has_what_was_stored_in_its_round_and_nothing_else() {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let _agent = world.node(&controller.node_file());
    let memory = Memory::new(&noise(1, 1 << 20));
    let _bucket = whole(&world, 1, &memory);
    let before = controller.store(1, 1);
    memory.write(&noise(2, 1 << 20));
    let now = controller.store(1, 2);
    let keeper = world.keeper(world.repository(), &Cancel::new());
    let file = FileName::new("file").unwrap();
    let said = Description {
        range: Some(KeyRange::whole()),
        split_version: 0,
        bytes: 1 << 20,
        content: Content::Filled,
    };
    let part = |bucket, snapshot, description: &Description| StoredPart {
        part: Part { bucket: BucketNumber(bucket), node: controller.files.nodes[0].id, snapshot },
        description: description.clone(),
    };
    let half = KeyRange { low: b"m".to_vec(), high: None };
    for (wrong, why) in [
        (part(1, before, &said), "it was stored in epoch 1"),
        (part(2, now, &said), "file/2"),
        (part(1, now, &Description { range: Some(half), ..said.clone() }), "other keys"),
        (part(1, now, &Description { split_version: 1, ..said.clone() }), "other keys"),
    ] {
        let error = keeper.commit_cut(&file, Epoch(2), &[wrong]).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let cut = keeper.commit_cut(&file, Epoch(2), &[part(1, now, &said)]).unwrap();
    assert_eq!(keeper.cut(&file, cut).unwrap().epoch, Epoch(2));
}

/// A hole takes no room in a repository, and any amount of memory.
#[test]
fn kept_1_12_a_description_is_read_up_to_its_length() {
    let world = World::new();
    let snapshot = commit(&world.repository(), |writer| {
        let endless = file(vec![ChunkRef::hole(1 << 30)]);
        vec![("0".to_owned(), tree(writer, vec![("bucket.json".to_owned(), endless)]))]
    });
    let keeper = world.keeper(world.repository(), &Cancel::new());
    let error = keeper.cut(&FileName::new("file").unwrap(), snapshot).unwrap_err().to_string();
    assert!(error.contains("is too long"), "{error}");
}

/// The node on which a bucket was evicted names it as long as its agent runs.
#[test]
fn kept_1_12_a_bucket_is_loaded_where_its_program_is() {
    let about = About {
        file: "file".to_owned(),
        bucket: 1,
        range: None,
        split_version: 0,
        epoch: Some(5),
        version: None,
        areas: Vec::new(),
    };
    let snapshot = SnapshotId([7; 16]);
    let cut = StoredCut { snapshot, epoch: Epoch(5), buckets: vec![about] };
    let answer = |node, state| Acknowledgement {
        run: RunId(1),
        epoch: Epoch(5),
        node: NodeId([node; 16]),
        highest: Epoch(5),
        bucket: Some(BucketNumber(1)),
        buckets: 1,
        state,
        description: Description {
            range: None,
            split_version: 0,
            bytes: 0,
            content: Content::Unknown,
        },
        snapshot: None,
        reason: String::new(),
    };
    let (evicted, idle) = (State::Evicted, State::Idle);
    for (states, chosen) in [
        (vec![(1, evicted), (2, idle)], Some(2)),
        (vec![(1, idle), (2, evicted)], Some(1)),
        (vec![(1, evicted)], Some(1)),
        // It is in memory on the other, so it is loaded nowhere.
        (vec![(1, evicted), (2, State::Stored)], None),
    ] {
        let answers: Vec<_> = states.iter().map(|(node, state)| answer(*node, *state)).collect();
        let (parts, missing) =
            cut.parts(&answers, |answer| (answer.state != State::Stored).then_some(snapshot));
        let nodes: Vec<NodeId> = parts.iter().map(|part| part.node).collect();
        let expected: Vec<NodeId> = chosen.iter().map(|node| NodeId([*node; 16])).collect();
        assert_eq!((nodes, missing.is_empty()), (expected, chosen.is_some()), "{states:?}");
    }
}

#[test]
fn kept_1_12_a_file_whose_snapshot_is_damaged_was_stored_before() {
    let world = World::new();
    let keeper = world.keeper(world.repository(), &Cancel::new());
    let (of, other) = (FileName::new("file").unwrap(), FileName::new("other").unwrap());
    assert!(!keeper.may_have_cut(&of).unwrap());
    let snapshot = commit(&world.repository(), |_| Vec::new());
    assert!(keeper.may_have_cut(&of).unwrap() && !keeper.may_have_cut(&other).unwrap());
    assert_eq!(keeper.newest_cut(&of).unwrap(), Some(snapshot));
    let objects = world.place.list("snapshots").unwrap();
    let name = &objects[0].name;
    let mut bytes = world.place.read(name, 0, usize::try_from(objects[0].bytes).unwrap()).unwrap();
    bytes.fill(0xaa);
    world.place.replace(name, &bytes).unwrap();
    assert_eq!(keeper.newest_cut(&of).unwrap(), None);
    assert!(keeper.may_have_cut(&of).unwrap(), "zeros would be stored over it");
}
