//! Cuts of many buckets.

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Silent};
use strongroom_catalog::{ChunkRef, Entry, EntryKind, Metadata, Recipe, Snapshot, TreeWriter};
use strongroom_cluster::{Epoch, FileName};
use strongroom_ram::about::About;
use strongroom_repository::{ChunkReader, ChunkWriter, Session};

use crate::world::{World, options};

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

fn file(refs: Vec<ChunkRef>) -> EntryKind {
    EntryKind::File { content: Recipe { depth: 0, refs } }
}

#[test]
fn a_cut_of_more_areas_than_a_folder_of_regions_has_is_read() {
    let world = World::new();
    let repository = world.repository();
    let reader = ChunkReader::of_domain(&repository, "", CacheLimits::default()).unwrap();
    let mut session = Session::begin(&repository, "host").unwrap();
    session.sequence = 1;
    let (pack, cancel) = (options().pack, Cancel::new());
    let mut writer =
        ChunkWriter::open(&repository, &reader, &session, pack, false, &Silent, &cancel).unwrap();
    let buckets = (0..2).map(|bucket| {
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
        (bucket.to_string(), tree(&mut writer, all))
    });
    let buckets = buckets.collect();
    let cut = tree(&mut writer, buckets);
    let root = tree(&mut writer, vec![("file".to_owned(), cut)]);
    let EntryKind::Directory { tree: root, .. } = root else { unreachable!("it is a folder") };
    writer.finish(&Silent).unwrap();
    let paths = vec![b"/file".to_vec()];
    let snapshot = Snapshot { root, paths, sequence: 1, ..Snapshot::empty(session.id) };
    session.commit(&snapshot).unwrap();
    let keeper = world.keeper(world.repository(), &Cancel::new());
    let cut = keeper.cut(&FileName::new("file").unwrap(), snapshot.id).unwrap();
    let buckets: Vec<u32> = cut.buckets.iter().map(|about| about.bucket).collect();
    assert_eq!((cut.epoch, buckets), (Epoch(5), vec![0, 1]));
}
