//! The trees of a snapshot of regions: each is a file at its path.

use std::collections::BTreeMap;
use std::path::Component;

use strongroom_base::{Cancel, Timestamp};
use strongroom_catalog::{Entry, EntryKind, Metadata, Recipe};
use strongroom_repository::{ChunkReader, ChunkWriter};

use super::{RegionFile, bytes_of};
use crate::backup::tally::Tally;
use crate::backup::trees::{RootTree, Trees};
use crate::error::EngineError;

/// Writes the trees of these files: paths, contents, metadata. No path is above another.
pub fn write<'r>(
    files: Vec<RegionFile>,
    started: Timestamp,
    reader: &'r ChunkReader,
    writer: &mut ChunkWriter<'r>,
    tally: &mut Tally<'_>,
    cancel: &'r Cancel,
) -> Result<RootTree, EngineError> {
    let mut trees = Trees::new(reader, writer, cancel);
    trees.enter(Vec::new(), folder(started), None);
    push(&mut trees, files, started, tally)?;
    trees.leave(tally)?;
    trees.finish(tally)
}

/// Writes these files below the folder that is open, by their paths from there.
pub fn push(
    trees: &mut Trees<'_, '_>,
    files: Vec<RegionFile>,
    started: Timestamp,
    tally: &mut Tally<'_>,
) -> Result<(), EngineError> {
    // Sorted by the names on the way, as trees are.
    let sorted: BTreeMap<Vec<Vec<u8>>, (Recipe, Metadata)> = files
        .into_iter()
        .map(|(path, content, metadata)| {
            let names = path.components().filter_map(|part| match part {
                Component::Normal(name) => Some(bytes_of(name.as_ref()).to_vec()),
                _ => None,
            });
            (names.collect(), (content, metadata))
        })
        .collect();
    let mut open: Vec<Vec<u8>> = Vec::new();
    for (mut names, (content, metadata)) in sorted {
        let name = names.pop().expect("a region has a name");
        let common = open.iter().zip(&names).take_while(|(a, b)| a == b).count();
        while open.len() > common {
            open.pop();
            trees.leave(tally)?;
        }
        for name in names.drain(common..) {
            trees.enter(name.clone(), folder(started), None);
            open.push(name);
        }
        let metadata = Metadata { size: content.stream_bytes(), ..metadata };
        trees.push(Entry { name, kind: EntryKind::File { content }, metadata }, tally)?;
    }
    open.iter().try_for_each(|_| trees.leave(tally))
}

fn folder(started: Timestamp) -> Box<Metadata> {
    let metadata = Metadata { mode: 0o755, mtime: started, ctime: started, ..Metadata::default() };
    Box::new(Metadata { links: 1, ..metadata })
}
