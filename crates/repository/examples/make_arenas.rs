//! Makes a repository of many arenas and snapshots, for `campaign/startup`: arenas of one made-up
//! chunk each, all of one session, and snapshots of the same content, one second apart.
//!
//! ```text
//! make_arenas REPOSITORY PASSPHRASE ARENAS SNAPSHOTS
//! ```
#![expect(clippy::disallowed_methods, reason = "an example is a program")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use strongroom_arena::CacheLimits;
use strongroom_backend::LocalBackend;
use strongroom_base::{Cancel, Clock, OsEntropy, Silent, SystemClock, Timestamp};
use strongroom_catalog::recipe::RecipeBuilder;
use strongroom_catalog::{Entry, EntryKind, Metadata, Snapshot, TreeWriter};
use strongroom_repository::{
    ChunkReader, ChunkWriter, InitOptions, PackOptions, Repository, Session, Surroundings,
};

/// Bytes of a made-up chunk, and of what fills an arena.
const CHUNK_BYTES: u32 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, passphrase, arenas, snapshots] = &arguments[..] else {
        return Err("give REPOSITORY PASSPHRASE ARENAS SNAPSHOTS".into());
    };
    let (arenas, snapshots): (u64, u64) = (arenas.parse()?, snapshots.parse()?);
    let surroundings = Surroundings {
        backend: Arc::new(LocalBackend::create(Path::new(folder))?),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(OsEntropy),
        cache: None,
    };
    let options = InitOptions { arena_bytes: CHUNK_BYTES, ..InitOptions::default() };
    let repository = Repository::init(surroundings, passphrase.as_bytes(), &options)?;

    let mut session = Session::begin(&repository, "made up")?;
    session.sequence = 1;
    let reader = ChunkReader::of_domain(&repository, "", CacheLimits::default())?;
    let cancel = Cancel::new();
    let pack =
        PackOptions { deltas: false, block_bytes: CHUNK_BYTES as usize, ..PackOptions::default() };
    let mut writer =
        ChunkWriter::open(&repository, &reader, &session, pack, false, &Silent, &cancel)?;
    let fingerprinter = reader.naming().data.clone();
    let mut recipe = RecipeBuilder::new();
    for number in 0..arenas {
        let mut chunk = [0; CHUNK_BYTES as usize];
        chunk[..8].copy_from_slice(&number.to_le_bytes());
        let name = fingerprinter.fingerprint(&chunk);
        let chunk = writer.put_data(&chunk, name, recipe.stream_bytes(), None)?;
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

    let begun = SystemClock.now().0 - i64::try_from(snapshots)? * 1_000_000_000;
    let mut first = Some(session);
    for number in 0..snapshots {
        let mut session = match first.take() {
            Some(first) => first,
            // It writes no arena, so it need not learn which there are: that takes seconds.
            None => Session::create(&repository, "made up")?,
        };
        session.sequence = 1 + number;
        let started = Timestamp(begun + i64::try_from(number)? * 1_000_000_000);
        let (paths, host) = (vec![b"/file".to_vec()], "made up".to_owned());
        let made = Snapshot {
            sequence: session.sequence,
            root: root.clone(),
            paths,
            host,
            started,
            ended: started,
            ..Snapshot::empty(session.id)
        };
        session.commit(&made)?;
    }
    Ok(())
}
