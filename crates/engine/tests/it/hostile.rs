//! Trees and recipes that are sealed as they should be and hold what no backup writes: each costs
//! the files that it is about, and never the verb.
//!
//! A recipe is a graph: a few nodes, each of which names another a thousand times, are for more
//! chunks than any verb could look at. The tests would not end if one tried; a watchdog cancels after a minute.

use std::path::{Path, PathBuf};
use std::time::Duration;

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Fingerprint, Silent, Timestamp};
use strongroom_catalog::format::{pack_node, put_entry};
use strongroom_catalog::{
    ChunkRef, Entry, EntryKind, Guarantee, Metadata, Part, Recipe, Snapshot, TreeReader,
    TreeWriter, WriteChunk,
};
use strongroom_engine::{
    BackupOptions, CombinedPart, DiffOptions, DiffSide, DrillAmount, DrillOptions, DumpFormat,
    DumpPart, EngineError, FindPattern, RestoreOptions, RestorePlace, backup, cat, combine, diff,
    drill, dump, find, region_at, regions_of, restore,
};
use strongroom_repository::{
    ChunkReader, ChunkWriter, OwnRecord, Repository, RepositoryError, Session,
};
use strongroom_source::TargetOptions;
use strongroom_upkeep::{VerifyDepth, snapshot_stats, verify};

use crate::world::{World, options, pack};

/// References in each node of the graphs.
const WIDTH: usize = 1024;

/// A snapshot whose root is what `build` stores.
/// Commits a snapshot of what is built, with the repository's key.
pub fn forge(
    repository: &Repository,
    build: impl FnOnce(&mut ChunkWriter<'_>) -> Recipe,
) -> Snapshot {
    let own = OwnRecord::default();
    let reader = ChunkReader::for_parents(repository, &own, CacheLimits::default());
    let mut session = Session::begin(repository, "host").unwrap();
    session.sequence = 100;
    let cancel = Cancel::new();
    let mut writer =
        ChunkWriter::open(repository, &reader, &session, pack(), false, &Silent, &cancel).unwrap();
    let root = build(&mut writer);
    writer.finish(&Silent).unwrap();
    let mut snapshot = Snapshot { root, sequence: 100, ..Snapshot::empty(session.id) };
    snapshot.started = Timestamp(1);
    snapshot.paths = vec![b"/".to_vec()];
    session.commit(&snapshot).unwrap();
    snapshot
}

/// A chunk of a file.
fn data(repository: &Repository, writer: &mut ChunkWriter<'_>, bytes: &[u8]) -> ChunkRef {
    let name = repository.keys.write.naming.data.fingerprint(bytes);
    writer.put_data(bytes, name, 0, None).unwrap()
}

/// A chunk of metadata that holds these bytes, and is said to be for `stream_bytes` of a stream.
fn metadata(writer: &mut ChunkWriter<'_>, bytes: &[u8], stream_bytes: u64) -> ChunkRef {
    let part = Part { level: 1, offset: 0 };
    let (fingerprint, location) = writer.metadata(None).write_chunk(bytes, part).unwrap();
    ChunkRef { fingerprint, location, stream_bytes }
}

/// A node that names one thing again and again.
fn node(writer: &mut ChunkWriter<'_>, of: &ChunkRef) -> ChunkRef {
    let bytes = pack_node(&[*of; WIDTH]);
    metadata(writer, &bytes, of.stream_bytes.saturating_mul(WIDTH as u64))
}

/// A recipe that names one chunk, 1024 times at each level.
fn graph(writer: &mut ChunkWriter<'_>, leaf: ChunkRef, depth: u8) -> Recipe {
    let top = (0..depth).fold(leaf, |below, _| node(writer, &below));
    Recipe { depth, refs: vec![top] }
}

pub fn file(name: &str, content: Recipe) -> Entry {
    let metadata = Metadata { size: content.stream_bytes(), links: 1, ..Metadata::default() };
    Entry { name: name.into(), kind: EntryKind::File { content }, metadata }
}

pub fn directory(name: &str, tree: Recipe) -> Entry {
    let kind = EntryKind::Directory { tree, partial: false };
    Entry { name: name.into(), kind, metadata: Metadata::default() }
}

pub fn tree(writer: &mut ChunkWriter<'_>, entries: &[Entry]) -> Recipe {
    let mut tree = TreeWriter::new();
    for entry in entries {
        tree.push(entry, &mut writer.metadata(None)).unwrap();
    }
    tree.finish(&mut writer.metadata(None)).unwrap()
}

/// Everything that can be wrong: what begins with `bad` cannot be read, and nothing else.
fn everything_wrong(repository: &Repository) -> Snapshot {
    wrong(repository, |_| true)
}

/// Those things with these names.
fn wrong(repository: &Repository, wanted: impl Fn(&[u8]) -> bool) -> Snapshot {
    forge(repository, |writer| {
        let letter = data(repository, writer, b"x");
        let hello = Recipe { depth: 0, refs: vec![data(repository, writer, b"hello")] };
        let lost = ChunkRef { fingerprint: Fingerprint([7; 32]), ..letter };
        let one = |depth, chunk| Recipe { depth, refs: vec![chunk] };
        let bytes = pack_node(&[letter]);
        let odd = metadata(writer, &[&bytes[..], b"!"].concat(), 1);
        let empty = metadata(writer, b"", 1);
        let sum = metadata(writer, &bytes, 9);
        let no_bytes = one(0, ChunkRef { stream_bytes: 0, ..letter });
        // Longer than a length can be: every node is said to be for 2^64 - 1 bytes.
        let vast = graph(writer, letter, 8);
        let vast_and_lost = graph(writer, lost, 5);
        let lie = Entry {
            metadata: Metadata { size: 5, links: 1, ..Metadata::default() },
            ..file("bad-lie", graph(writer, letter, 5))
        };
        let nonsense = metadata(writer, b"nonsense", 8);
        let mut entry = Vec::new();
        put_entry(&mut entry, &file("inside-good", hello.clone()));
        let again = metadata(writer, &entry, entry.len() as u64);
        let longer = ChunkRef { stream_bytes: again.stream_bytes + 1, ..again };
        let entries = [
            file("a-good", hello.clone()),
            directory("bad-tree", one(0, nonsense)),
            directory("bad-tree-again", graph(writer, again, 4)),
            directory("bad-tree-hole", one(0, ChunkRef::hole(1 << 40))),
            directory("bad-tree-length", one(0, longer)),
            directory("bad-tree-lost", graph(writer, lost, 6)),
            file("bad-vast", vast),
            file("bad-vast-lost", vast_and_lost),
            file("bad0-empty", one(1, empty)),
            lie,
            file("bad1-no-bytes", no_bytes),
            file("bad1-odd", one(1, odd)),
            file("bad1-sum", one(1, sum)),
            file("z-good", hello),
        ];
        let mut entries = entries.to_vec();
        entries.retain(|entry| wanted(&entry.name));
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        tree(writer, &entries)
    })
}

const FILES: u64 = 9;
const BAD: usize = 12;

/// Cancels after a minute, which no verb here takes.
fn within_a_minute() -> Cancel {
    let cancel = Cancel::new();
    let watchdog = cancel.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(60));
        watchdog.cancel();
    });
    cancel
}

#[test]
fn engine_08_what_is_malformed_is_one_finding_of_a_verification() {
    let world = World::new(80);
    let kept = world.backup().snapshot;
    let repository = world.open();
    let forged = everything_wrong(&repository);
    for depth in [VerifyDepth::Structure, VerifyDepth::Data] {
        let outcome = verify(&repository, depth, &Silent, &within_a_minute()).unwrap();
        assert_eq!(outcome.faults, [], "the objects are sound");
        assert!(outcome.affected.iter().all(|affected| affected.snapshot == forged.id), "{kept:?}");
        let mut named: Vec<&Path> = outcome.affected.iter().map(|a| a.path.as_path()).collect();
        named.dedup();
        assert_eq!(named.len(), BAD, "{named:?}");
        assert!(named.iter().all(|path| path.starts_with("/") && is_bad(path)), "{named:?}");
    }
}

fn is_bad(path: &Path) -> bool {
    path.to_string_lossy().contains("bad")
}

#[test]
fn engine_08_what_is_malformed_ends_no_statistics() {
    let world = World::new(81);
    let kept = world.backup().snapshot;
    let repository = world.open();
    let forged = everything_wrong(&repository);
    let cancel = within_a_minute();
    let stats = snapshot_stats(&repository, &[kept.clone(), forged], &Silent, &cancel).unwrap();
    assert_eq!((stats[0].files, stats[0].unreadable), (kept.stats.files, 0));
    assert!(stats[0].own_bytes > 0);
    // The one in the tree that comes again and again is read once.
    assert_eq!(stats[1].files, FILES + 1);
    assert!(stats[1].unreadable >= BAD as u64 - 1, "{:?}", stats[1]);
}

#[test]
fn engine_08_what_is_malformed_ends_no_search() {
    let world = World::new(82);
    world.backup();
    let repository = world.open();
    let forged = everything_wrong(&repository);
    let mut found = Vec::new();
    let outcome = find(
        &repository,
        &[forged.clone(), forged],
        FindPattern::Name(&|name, _| name.ends_with(b"good")),
        &mut |sighting| {
            found.push(String::from_utf8_lossy(sighting.path).into_owned());
            Ok(())
        },
        &Silent,
        &within_a_minute(),
    )
    .unwrap();
    let each = ["/a-good", "/bad-tree-again/inside-good", "/z-good"];
    assert_eq!(found, [each, each].concat());
    assert!(outcome.damaged >= 4, "{outcome:?}");
}

#[test]
fn engine_08_what_is_malformed_is_left_out_of_an_archive_and_the_rest_follows() {
    let world = World::new(83);
    let repository = world.open();
    // For a long file that is lost, as many zeros would be written.
    let forged = wrong(&repository, |name| !name.starts_with(b"bad-vast"));
    let (mut archive, cancel) = (Vec::new(), within_a_minute());
    let mut out = Bounded { out: &mut archive, left: 1 << 20 };
    let outcome = dump(
        &repository,
        &forged,
        DumpPart { path: b"", filter: None },
        DumpFormat::Tar,
        &mut out,
        &Silent,
        &cancel,
    )
    .unwrap();
    assert_eq!(outcome.files, FILES + 1 - 2);
    assert_eq!(outcome.damaged.len(), BAD - 2, "{:?}", outcome.damaged);
    assert!(outcome.damaged.iter().all(|path| is_bad(path)), "{:?}", outcome.damaged);
}

/// A disk that is full at some time.
struct Bounded<'o> {
    out: &'o mut Vec<u8>,
    left: usize,
}

impl std::io::Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let left = self.left.checked_sub(bytes.len());
        self.left = left.ok_or(std::io::ErrorKind::StorageFull)?;
        self.out.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn engine_08_what_is_malformed_is_named_by_a_restore_and_the_rest_is_restored() {
    let world = World::new(84);
    let repository = world.open();
    // A restore asks for each chunk of a file that is as long as it says, even if all are lost.
    let forged = wrong(&repository, |name| name != b"bad-vast-lost");
    for dry_run in [true, false] {
        let target = world.folder.path().join("restored");
        let options = RestoreOptions {
            filter: None,
            path: Vec::new(),
            place: RestorePlace::Into(target.clone()),
            target: TargetOptions::default(),
            kept: Vec::new(),
            dry_run,
            verify: false,
            workers: 2,
        };
        let cancel = within_a_minute();
        let outcome = restore(&repository, &forged, &options, &Silent, &cancel).unwrap();
        assert_eq!(outcome.files, FILES, "dry: {dry_run}");
        assert!(outcome.damaged.iter().all(|path| is_bad(path)), "{:?}", outcome.damaged);
        if !dry_run {
            assert_eq!(outcome.damaged.len(), BAD - 1, "{:?}", outcome.damaged);
            for name in ["a-good", "z-good", "bad-tree-again/inside-good"] {
                assert_eq!(std::fs::read(target.join(name)).unwrap(), b"hello", "{name}");
            }
        }
    }
}

#[test]
fn engine_08_what_is_malformed_ends_no_comparison() {
    let world = World::new(85);
    let kept = world.backup().snapshot;
    let repository = world.open();
    let forged = everything_wrong(&repository);
    let mut changes = 0;
    let mut visit = |_: &strongroom_engine::Change| {
        changes += 1;
        Ok::<_, EngineError>(())
    };
    let side = |snapshot| DiffSide::Snapshot { snapshot, path: b"" };
    let options = DiffOptions { content: true };
    let (before, after, cancel) = (side(&kept), side(&forged), within_a_minute());
    let outcome = diff(&repository, before, after, options, &mut visit, &Silent, &cancel).unwrap();
    assert!(outcome.damaged >= 4, "{outcome:?}");
    assert!(changes > 10);
}

/// A file of 2^60 bytes in eight stored chunks is a valid file, and a very long one.
#[test]
fn engine_08_a_graph_of_valid_nodes_is_looked_at_once_a_node() {
    let world = World::new(86);
    let repository = world.open();
    let forged = forge(&repository, |writer| {
        let letter = data(&repository, writer, b"x");
        let vast = graph(writer, letter, 6);
        tree(writer, &[file("vast", vast)])
    });
    let cancel = within_a_minute();
    for depth in [VerifyDepth::Structure, VerifyDepth::Data] {
        assert!(verify(&repository, depth, &Silent, &cancel).unwrap().is_sound());
    }
    let stats =
        snapshot_stats(&repository, std::slice::from_ref(&forged), &Silent, &cancel).unwrap()[0];
    assert_eq!((stats.bytes, stats.unique_bytes, stats.unreadable), (1 << 60, 1, 0));
    assert!(!cancel.is_cancelled());
    // What gives its bytes away ends when the other side does.
    let mut bytes = Vec::new();
    let mut out = Bounded { out: &mut bytes, left: 10_000 };
    assert!(matches!(cat(&repository, &forged, b"vast", &mut out), Err(EngineError::Output(_))));
    assert!(bytes.iter().all(|byte| *byte == b'x'));
}

/// A drill asks how much room a file needs without its holes.
#[test]
fn a_file_without_end_is_not_counted_to_its_end_by_a_drill() {
    let world = World::bare(89);
    let repository = world.open();
    for is_hole in [false, true] {
        let forged = forge(&repository, |writer| {
            let part = match is_hole {
                true => ChunkRef::hole(1),
                false => data(&repository, writer, b"x"),
            };
            let vast = graph(writer, part, 6);
            tree(writer, &[file("vast", vast)])
        });
        let options = DrillOptions {
            path: Vec::new(),
            amount: DrillAmount::Percent(100),
            seed: None,
            scratch: world.folder.path().to_owned(),
            host: "host".to_owned(),
            keep: false,
            source: false,
            record: false,
            workers: 2,
        };
        let cancel = within_a_minute();
        let drilled = drill(&repository, &forged, &options, &|_| None, &Silent, &cancel);
        assert!(matches!(drilled, Err(EngineError::NoRoom { .. })), "{drilled:?}");
        cancel.cancel();
        let drilled = drill(&repository, &forged, &options, &|_| None, &Silent, &cancel);
        assert!(matches!(drilled, Err(EngineError::Repository(RepositoryError::Cancelled(_)))));
    }
}

/// A backup asks whether all chunks of an unchanged file still exist.
#[test]
fn engine_08_a_graph_in_the_parent_s_tree_keeps_no_backup_busy() {
    let world = World::new(87);
    let vast = world.tree().join("vast");
    std::fs::File::create(&vast).unwrap().set_len(1 << 40).unwrap();
    // Times of the last moments are no proof that a file is what it was.
    let long_ago = vast.metadata().unwrap().modified().unwrap() - Duration::from_secs(3600);
    std::fs::File::options().write(true).open(&vast).unwrap().set_modified(long_ago).unwrap();
    let kept = world.backup().snapshot;
    let repository = world.open();
    let forged = forge(&repository, |writer| {
        let letter = data(&repository, writer, b"x");
        let content = graph(writer, letter, 4);
        replaced(&repository, writer, &kept.root, &vast, &content)
    });
    let mut options = options(&world.tree());
    options.parent = Some(forged.id);
    let outcome = backup(&repository, &options, &Silent, &within_a_minute()).unwrap();
    assert!(!outcome.snapshot.partial, "it was stopped");
    assert_eq!(outcome.snapshot.stats.bytes, kept.stats.bytes);
}

/// What a snapshot names for another one is looked up, also in an arena that was never rewritten.
#[test]
fn a_reference_that_was_made_up_is_no_part_of_a_combined_snapshot() {
    let world = World::new(88);
    world.backup();
    let repository = world.open();
    for is_made_up in [false, true] {
        let forged = forge(&repository, |writer| {
            let real = data(&repository, writer, b"what is there");
            let name = if is_made_up { Fingerprint([9; 32]) } else { real.fingerprint };
            let content = ChunkRef { fingerprint: name, ..real };
            let part = tree(writer, &[file("data", Recipe { depth: 0, refs: vec![content] })]);
            tree(writer, &[directory("file", part)])
        });
        let part = CombinedPart { snapshot: forged, path: "/file".into() };
        let asked = BackupOptions { paths: vec!["/file".into()], ..options(&world.tree()) };
        let exact = Guarantee::new(Guarantee::EXACT, Guarantee::OWNER);
        let combined = combine(&repository, &[part], exact, &asked, &Silent, &Cancel::new());
        assert_eq!(matches!(combined, Err(EngineError::PartGone { .. })), is_made_up);
        assert_eq!(combined.is_ok(), !is_made_up);
    }
}

/// A tree in which the file at a path has this content.
fn replaced(
    repository: &Repository,
    writer: &mut ChunkWriter<'_>,
    root: &Recipe,
    path: &Path,
    content: &Recipe,
) -> Recipe {
    let reader = ChunkReader::of_domain(repository, "", CacheLimits::default()).unwrap();
    let names: PathBuf = path.strip_prefix("/").unwrap_or(path).to_owned();
    let mut rest = names.components();
    let name = rest.next().expect("the path leads to a file").as_os_str().as_encoded_bytes();
    let mut entries = TreeReader::new(root, &reader).read_all().unwrap();
    for entry in &mut entries {
        if entry.name != name {
            continue;
        }
        match &mut entry.kind {
            EntryKind::Directory { tree, .. } => {
                *tree = replaced(repository, writer, tree, rest.as_path(), content);
            }
            kind => *kind = EntryKind::File { content: content.clone() },
        }
    }
    tree(writer, &entries)
}

/// Directories in directories: `names` of them at each of the levels, all the same one below.
fn nest(writer: &mut ChunkWriter<'_>, levels: usize, names: &[&str]) -> Recipe {
    let hello = Recipe { depth: 0, refs: vec![ChunkRef::hole(5)] };
    let bottom = tree(writer, &[file("region", hello)]);
    (0..levels).fold(bottom, |below, _| {
        let entries: Vec<_> = names.iter().map(|name| directory(name, below.clone())).collect();
        tree(writer, &entries)
    })
}

/// A region is looked for in what has no end, by depth or by breadth.
#[test]
fn regions_are_listed_of_no_endless_tree() {
    let world = World::bare(96);
    let repository = world.open();
    for (levels, names) in [(100_000, &["d"][..]), (40, &["a", "b"]), (2000, &["long"])] {
        let forged = forge(&repository, |writer| nest(writer, levels, names));
        let found = regions_of(&repository, &forged, b"/", &within_a_minute());
        let error = found.unwrap_err();
        assert!(matches!(error, EngineError::NoRegions { .. }), "{levels}: {error}");
        let at = regions_of(&repository, &forged, b"/nowhere", &Cancel::new());
        assert!(at.is_err());
        assert!(region_at(&repository, &forged, b"/").unwrap().is_none());
    }
    let forged = forge(&repository, |writer| nest(writer, 10, &["a", "b"]));
    let found = regions_of(&repository, &forged, b"/", &Cancel::new()).unwrap();
    assert_eq!(found.len(), 1024);
    let path = found[0].path.as_os_str().as_encoded_bytes();
    assert_eq!(region_at(&repository, &forged, path).unwrap().unwrap().path, found[0].path);
    let cancel = Cancel::new();
    cancel.cancel();
    assert!(regions_of(&repository, &forged, b"/", &cancel).is_err());
}
