//! Whether a snapshot that was stored again is the one that it replaces: of two that differ in one thing,
//! that is found, at its path, even if all else of them is the same.

use std::path::PathBuf;

use strongroom_catalog::{ChunkRef, Entry, EntryKind, Metadata, RecipeBuilder, TreeWriter};
use strongroom_repository::{ChunkWriter, PackOptions, Places, Session, StreamCutter};
use strongroom_upkeep::reckon_same;

use super::*;
use crate::world::reader_of_everything;

/// A chunk of a file.
#[derive(Clone, Copy)]
enum Chunk {
    /// This byte, and how often.
    Of(u8, usize),
    /// Said to be the first, in the place of the second.
    InPlaceOf(u8, u8, usize),
    Hole(usize),
}

#[derive(Clone)]
enum Node {
    File(Vec<Chunk>),
    Directory {
        below: Vec<(&'static str, Node)>,
        partial: bool,
    },
    Link(&'static str),
    /// As another node, with another owner.
    Owned(Box<Node>),
}

use Chunk::{Hole, InPlaceOf, Of};
use Node::{Directory, File, Link, Owned};

type Below = Vec<(&'static str, Node)>;

struct Writer<'w> {
    chunks: ChunkWriter<'w>,
    cutter: StreamCutter,
    by_value: bool,
}

impl Writer<'_> {
    fn tree(&mut self, below: &Below) -> Recipe {
        let mut tree = TreeWriter::new();
        for (name, node) in below {
            let mut metadata = Metadata::default();
            let node = match node {
                Owned(node) => {
                    metadata.uid = 7;
                    node
                }
                node => node,
            };
            let kind = match node {
                File(chunks) => EntryKind::File { content: self.content(chunks) },
                Directory { below, partial } => {
                    EntryKind::Directory { tree: self.tree(below), partial: *partial }
                }
                Link(target) => EntryKind::Symlink { target: target.as_bytes().to_vec() },
                Owned(_) => panic!("a node has one owner"),
            };
            let entry = Entry { name: name.as_bytes().to_vec(), kind, metadata };
            tree.push(&entry, &mut self.chunks.metadata(None)).unwrap();
        }
        tree.finish(&mut self.chunks.metadata(None)).unwrap()
    }

    fn content(&mut self, chunks: &[Chunk]) -> Recipe {
        let (mut recipe, mut offset) = (RecipeBuilder::new(), 0);
        for chunk in chunks {
            let chunk = match *chunk {
                Of(byte, bytes) => self.data(byte, bytes, offset),
                InPlaceOf(byte, other, bytes) => {
                    let other = self.data(other, bytes, offset);
                    let named = self.data(byte, bytes, offset);
                    if self.by_value {
                        other
                    } else {
                        ChunkRef { location: other.location, ..named }
                    }
                }
                Hole(bytes) => ChunkRef::hole(bytes as u64),
            };
            offset += chunk.stream_bytes;
            recipe.push(chunk, &mut self.chunks.metadata(None)).unwrap();
        }
        recipe.finish(&mut self.chunks.metadata(None)).unwrap()
    }

    fn data(&mut self, byte: u8, bytes: usize, offset: u64) -> ChunkRef {
        let chunk = vec![byte; bytes];
        let name = self.cutter.fingerprint(&chunk);
        self.chunks.put_data(&chunk, name, offset, None).unwrap()
    }
}

/// Stores a tree; what is in `again` is stored once more.
fn store(repository: &Repository, below: &Below, again: Places) -> Snapshot {
    let session = Session::begin(repository, "host").unwrap();
    let reader = reader_of_everything(repository);
    let pack = PackOptions::default();
    let (silent, cancel) = (Silent, Cancel::new());
    let mut chunks =
        ChunkWriter::open(repository, &reader, &session, pack, false, &silent, &cancel).unwrap();
    chunks.store_again(again);
    let by_value = repository.keys.write.naming.is_by_value();
    let mut writer =
        Writer { chunks, cutter: StreamCutter::of_files(repository).unwrap(), by_value };
    let root = writer.tree(below);
    writer.chunks.finish(&silent).unwrap();
    Snapshot { root, ..Snapshot::empty(session.id) }
}

/// The path at which two differ.
fn difference(repository: &Repository, one: &Snapshot, other: &Snapshot) -> Option<PathBuf> {
    match reckon_same(repository, &reader_of_everything(repository), one, other, &Cancel::new()) {
        Ok(()) => None,
        Err(RepositoryError::Miscopied { snapshot, path }) => {
            assert_eq!(snapshot, one.id);
            Some(path)
        }
        Err(error) => panic!("{error}"),
    }
}

fn directory(below: &[(&'static str, Node)]) -> Node {
    Directory { below: below.to_vec(), partial: false }
}

fn original() -> Below {
    let below = directory(&[("f", File(vec![Of(3, 2000), Hole(4096), Of(4, 500)]))]);
    vec![("a", File(vec![Of(1, 3000), Of(2, 3000)])), ("d", below), ("l", Link("x"))]
}

/// The original with another node of this name.
fn with(name: &'static str, node: Node) -> Below {
    let replaced = |(at, old)| if at == name { (at, node.clone()) } else { (at, old) };
    original().into_iter().map(replaced).collect()
}

fn with_file(chunks: &[Chunk]) -> Below {
    with("a", File(chunks.to_vec()))
}

/// With another content of the file in the directory.
fn with_below(chunks: &[Chunk]) -> Below {
    with("d", directory(&[("f", File(chunks.to_vec()))]))
}

#[test]
fn what_was_stored_again_is_the_same_in_everything_but_its_places() {
    let a = |node: Node| with("a", node);
    let file = original()[0].1.clone();
    let below = original()[1].1.clone();
    let Directory { below: inner, .. } = &below else { panic!("it is a directory") };
    let cases: Vec<(&str, Below, &str)> = vec![
        ("an entry less", original()[..2].to_vec(), ""),
        ("an entry more", original().into_iter().chain([("z", Link("x"))]).collect(), ""),
        ("another name", [vec![("b", file.clone())], original()[1..].to_vec()].concat(), "/a"),
        ("another target", with("l", Link("y")), "/l"),
        ("another kind", with("l", File(vec![])), "/l"),
        ("partial", with("d", Directory { below: inner.clone(), partial: true }), "/d"),
        ("an owner", a(Owned(Box::new(file.clone()))), "/a"),
        ("an owner of a directory", with("d", Owned(Box::new(below.clone()))), "/d"),
        ("an owner of a link", with("l", Owned(Box::new(Link("x")))), "/l"),
        ("an entry less below", with("d", directory(&[])), "/d"),
        ("the first chunk", with_file(&[Of(9, 3000), Of(2, 3000)]), "/a"),
        ("the last chunk", with_file(&[Of(1, 3000), Of(9, 3000)]), "/a"),
        ("a chunk less", with_file(&[Of(1, 3000)]), "/a"),
        ("a chunk more", with_file(&[Of(1, 3000), Of(2, 3000), Of(1, 3000)]), "/a"),
        ("other lengths", with_file(&[Of(1, 2999), Of(2, 3001)]), "/a"),
        ("another place", with_file(&[Of(1, 3000), InPlaceOf(2, 9, 3000)]), "/a"),
        ("zeros for a hole", with_below(&[Of(3, 2000), Of(0, 4096), Of(4, 500)]), "/d/f"),
        ("a hole for data", with_below(&[Hole(2000), Hole(4096), Of(4, 500)]), "/d/f"),
        ("a longer hole", with_below(&[Of(3, 2000), Hole(4097), Of(4, 500)]), "/d/f"),
        ("what is behind a hole", with_below(&[Of(3, 2000), Hole(4096), Of(5, 500)]), "/d/f"),
    ];
    for world in [World::bare(80), World::by_value(81, 8)] {
        let repository = world.open();
        let one = store(&repository, &original(), Places::default());
        let as_before = store(&repository, &original(), Places::default());
        assert_eq!(difference(&repository, &one, &as_before), None);
        for (what, below, path) in &cases {
            let other = store(&repository, below, Places::default());
            let found = difference(&repository, &one, &other);
            assert_eq!(found, Some(PathBuf::from(path)), "{what}");
            // In the second one places are right.
            let is_one_way = *what == "another place";
            let back = difference(&repository, &other, &one);
            assert!(back.is_some() || is_one_way, "{what}, the other way");
        }

        let mut again = Places::default();
        let Some(content) = content_of(&repository, &one) else { panic!("it has a file") };
        content.refs.iter().for_each(|chunk| again.insert(chunk.location));
        let moved = store(&repository, &original(), again);
        assert_ne!(content_of(&repository, &moved), Some(content));
        assert_eq!(difference(&repository, &one, &moved), None, "in other places");
    }
}

/// The content of the first file.
fn content_of(repository: &Repository, snapshot: &Snapshot) -> Option<Recipe> {
    let reader = reader_of_everything(repository);
    let cancel = Cancel::new();
    let mut walk = SnapshotWalk::new(&Found::root(snapshot), &reader, &cancel);
    while let Some(event) = walk.next().unwrap() {
        if let SnapshotEvent::Leaf { entry, .. } = event
            && let Some(content) = entry.content()
        {
            return Some(content.clone());
        }
    }
    None
}
