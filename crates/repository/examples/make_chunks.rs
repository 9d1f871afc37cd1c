//! Makes a repository of many chunks, for `campaign/prune-memory`: made-up chunks of eight bytes in
//! arenas of the usual number of chunks, a snapshot that names all of them, and one that names those
//! that a later backup would have left: half of the arenas, and of these fifteen chunks in sixteen.
//!
//! ```text
//! make_chunks REPOSITORY PASSPHRASE CHUNKS
//! ```
#![expect(clippy::disallowed_methods, reason = "an example is a program")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use strongroom_arena::CacheLimits;
use strongroom_backend::LocalBackend;
use strongroom_base::{Cancel, OsEntropy, Silent, SystemClock};
use strongroom_catalog::recipe::RecipeBuilder;
use strongroom_catalog::{ChunkRef, Entry, EntryKind, Metadata, Snapshot, TreeWriter};
use strongroom_repository::{
    ChunkReader, ChunkWriter, InitOptions, PackOptions, Repository, Session, Surroundings,
};

/// Chunks of 4 KiB, as they lie, in an arena of 16 MiB.
const CHUNKS_OF_ARENA: u64 = 4096;
/// Bytes of a made-up chunk.
const CHUNK_BYTES: u64 = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, passphrase, chunks] = &arguments[..] else {
        return Err("give REPOSITORY PASSPHRASE CHUNKS".into());
    };
    let chunks: u64 = chunks.parse()?;
    let surroundings = Surroundings {
        backend: Arc::new(LocalBackend::create(Path::new(folder))?),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(OsEntropy),
        cache: None,
    };
    let options = InitOptions {
        arena_bytes: u32::try_from(CHUNKS_OF_ARENA * CHUNK_BYTES)?,
        ..InitOptions::default()
    };
    let repository = Repository::init(surroundings, passphrase.as_bytes(), &options)?;
    commit(&repository, 1, &mut (0..chunks))?;
    let is_left = |number: &u64| {
        (number / CHUNKS_OF_ARENA).is_multiple_of(2) && !(number / 64).is_multiple_of(16)
    };
    commit(&repository, 2, &mut (0..chunks).filter(is_left))?;
    Ok(())
}

/// A snapshot of one file of these chunks.
fn commit(
    repository: &Repository,
    sequence: u64,
    numbers: &mut dyn Iterator<Item = u64>,
) -> Result<(), Box<dyn Error>> {
    let mut session = Session::begin(repository, "made up")?;
    session.sequence = sequence;
    let reader = ChunkReader::of_domain(repository, "", CacheLimits::default())?;
    let pack = PackOptions { deltas: false, ..PackOptions::default() };
    let cancel = Cancel::new();
    let mut writer =
        ChunkWriter::open(repository, &reader, &session, pack, false, &Silent, &cancel)?;
    let fingerprinter = reader.naming().data.clone();
    let mut recipe = RecipeBuilder::new();
    for number in numbers {
        let chunk = number.to_le_bytes();
        let name = fingerprinter.fingerprint(&chunk);
        let chunk: ChunkRef = writer.put_data(&chunk, name, recipe.stream_bytes(), None)?;
        recipe.push(chunk, &mut writer.metadata(None))?;
    }
    let content = recipe.finish(&mut writer.metadata(None))?;
    let size = content.stream_bytes();
    let metadata = Metadata { mode: 0o600, size, links: 1, ..Metadata::default() };
    let entry = Entry { name: b"file".to_vec(), kind: EntryKind::File { content }, metadata };
    let mut tree = TreeWriter::new();
    tree.push(&entry, &mut writer.metadata(None))?;
    let root = tree.finish(&mut writer.metadata(None))?;
    writer.finish(&Silent)?;
    let paths = vec![b"/file".to_vec()];
    let host = "made up".to_owned();
    let made = Snapshot { sequence, root, paths, host, ..Snapshot::empty(session.id) };
    session.commit(&made)?;
    Ok(())
}
