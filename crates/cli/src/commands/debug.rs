//! `strongroom debug`: shows each structure of a repository, to study or repair it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;
use strongroom_arena::envelope;
use strongroom_arena::{ArenaContent, CacheLimits, ListedArenas};
use strongroom_base::Cancel;
use strongroom_catalog::Recipe;
use strongroom_repository::{
    ChunkIndex, ChunkReader, Found, ListedSession, RepositoryError, find_path, list_sessions,
};

use super::ls;
use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg};
use crate::terminal::{printable, printable_bytes, printable_text, table};

/// Which structure.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// The envelope of any file of a repository; needs no key
    Envelope {
        /// The file
        file: PathBuf,
    },
    /// An arena: its blocks, and with -v its chunks
    Arena {
        /// Its id, or the first digits of it
        arena: String,
    },
    /// The index in the cache, after bringing it up to date
    Index,
    /// Sessions: who is writing, or died while writing
    Sessions,
    /// A snapshot's record
    Snapshot {
        /// The snapshot
        snapshot: OsString,
    },
    /// The tree of a directory, with the recipes of its entries
    Tree {
        /// The snapshot and the directory
        #[arg(value_name = "SNAPSHOT[:PATH]")]
        what: OsString,
    },
}

/// Shows it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    match args.what {
        What::Envelope { file } => envelope_of(context, &file)?,
        What::Arena { arena } => show_arena(context, &arena)?,
        What::Index => index(context)?,
        What::Sessions => sessions(context)?,
        What::Snapshot { snapshot } => {
            let repository = context.open()?;
            let snapshot = SnapshotArg::from(snapshot).find(
                context,
                &repository,
                &NarrowingArgs::default(),
            )?;
            for line in format!("{snapshot:#?}").lines() {
                context.terminal.text(line)?;
            }
        }
        What::Tree { what } => tree(context, &SnapshotArg::from(what))?,
    }
    Ok(Exit::Done.into())
}

fn sessions(context: &Context) -> Result<(), CliError> {
    let mut rows = vec![["id", "time", "host", "domain"].map(str::to_owned).to_vec()];
    for ListedSession { id, domain, head } in list_sessions(&context.open()?)? {
        let domain = domain.map(|domain| domain.to_string()).unwrap_or_default();
        rows.push(match head {
            Ok(head) => {
                let domain = if head.domain.is_empty() { "owner" } else { &head.domain };
                let (host, domain) = (printable_text(&head.host), printable_text(domain));
                vec![id.short(), dates::text(head.started), host, domain]
            }
            Err(RepositoryError::PutOnly) => {
                vec![id.short(), String::new(), "of another domain".to_owned(), domain]
            }
            Err(error) => vec![id.short(), String::new(), error.to_string(), domain],
        });
    }
    for line in table(&rows, &[]) {
        context.terminal.text(line)?;
    }
    Ok(())
}

fn envelope_of(context: &Context, file: &std::path::Path) -> Result<(), CliError> {
    let object = std::fs::read(file).map_err(|error| {
        let message = format!("cannot read {}: {error}", printable(file));
        CliError::new(Exit::Failed, message, "name a file of a repository, such as room/config")
    })?;
    let inspection = envelope::inspect(&object).map_err(|error| {
        let message = format!("{}: {error}", printable(file));
        CliError::new(Exit::Damaged, message, "`strongroom repair` repairs what can be repaired")
    })?;
    let header = &inspection.header;
    let layout = header.layout();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for line in [
        format!("kind           {:?}", header.kind),
        format!("id             {}", hex(&header.id)),
        format!("generation     {}", header.generation),
        format!("session        {}", header.origin.session),
        format!("sequence       {}", header.origin.sequence),
        format!("features       {:#x} required", header.required_features),
        format!("body           {} bytes at {}", header.body_bytes, envelope::HEADROOM),
        format!("body hash      {}", hex(&header.body_hash)),
        format!("shards         {} of {} bytes", header.data_shards(), header.shard_bytes()),
        format!("parity shards  {} at {}", header.parity_shards, layout.parity),
        format!(
            "tables         {} bytes at {} and {}",
            layout.table_bytes, layout.first_table, layout.second_table
        ),
        format!("trailer        at {}; {} bytes in all", layout.trailer, layout.object_bytes),
        format!("lost shards    {:?}", inspection.lost_shards),
        format!("frame damaged  {}", inspection.frame_damaged),
    ] {
        context.terminal.text(line)?;
    }
    Ok(())
}

fn show_arena(context: &Context, wanted: &str) -> Result<(), CliError> {
    let repository = context.open()?;
    let listed = ListedArenas::list(repository.backend())?;
    let names = listed.newest().map(|arena| arena.name);
    let named: Vec<_> = names.filter(|name| name.to_string().starts_with(wanted)).collect();
    let [name] = named[..] else {
        let message = format!("{} arenas are named \"{wanted}\"", named.len());
        return Err(CliError::new(
            Exit::Failed,
            message,
            "`ls arenas` in the repository shows them",
        ));
    };
    let store = repository.arena_store(CacheLimits::default());
    store.learn(name);
    let arena = store.arena(name.id).map_err(RepositoryError::from)?;
    let content = ArenaContent::of(name.id);
    let slots = arena.summary.slots.len();
    context.terminal.text(format!(
        "arena {}: {content:?}, {} blocks, {slots} chunks",
        arena.name(),
        arena.summary.blocks.len(),
    ))?;
    for (place, block) in arena.summary.blocks.iter().enumerate() {
        let (frame, head) = (block.frame, block.head);
        let (offset, length) = arena.span(place..=place);
        context.terminal.text(format!(
            "block {:>4} at {offset:>9}: {length:>8} bytes, {:>8} raw, {:?}, slots {}..{}",
            frame.number,
            head.raw_bytes,
            head.codec,
            head.slots().start,
            head.slots().end,
        ))?;
    }
    if context.terminal.is_verbose() {
        for (number, slot) in arena.slots() {
            let (bytes, bases) = (slot.chunk_bytes, slot.bases.len());
            let line =
                format!("slot {number:>6} {} {bytes:>7} bytes, {bases} bases", slot.fingerprint);
            context.terminal.text(line)?;
        }
    }
    Ok(())
}

fn index(context: &Context) -> Result<(), CliError> {
    let repository = context.open()?;
    let store = repository.arena_store(CacheLimits::default());
    let mut index = ChunkIndex::open(repository.cache_folder().as_deref())?;
    let monitor = context.terminal.monitor(Words::objects("indexed"));
    let refreshed = index.refresh(repository.backend(), &store, &monitor, &Cancel::new());
    monitor.finish();
    let refreshed = refreshed?;
    index.flush(&monitor);
    let stats = index.stats();
    context.terminal.json(&json!({
        "event": "index",
        "records": stats.records,
        "segments": stats.segments,
        "disk_bytes": stats.disk_bytes,
        "memory_bytes": stats.memory_bytes,
    }))?;
    context.terminal.line(format!(
        "{} records in {} segments; {} bytes on disk, {} in memory",
        stats.records, stats.segments, stats.disk_bytes, stats.memory_bytes
    ))?;
    Ok(context.terminal.line(format!(
        "brought up to date: {} arenas read, {} gone, {} unreadable",
        refreshed.read, refreshed.vanished, refreshed.unreadable
    ))?)
}

fn tree(context: &Context, what: &SnapshotArg) -> Result<(), CliError> {
    let repository = context.open()?;
    let snapshot = what.find(context, &repository, &NarrowingArgs::default())?;
    let reader = ChunkReader::of_domain(&repository, &snapshot.domain, CacheLimits::default())?;
    let tree = match find_path(&snapshot, &what.path, &reader)? {
        Found::Root { tree, .. } => tree,
        Found::Entry { entry, .. } => match entry.tree() {
            Some(tree) => tree.clone(),
            None => {
                let message = format!("{} is not a directory", printable_bytes(&what.path));
                return Err(CliError::new(Exit::Failed, message, "name a directory"));
            }
        },
    };
    show_recipe(context, "tree", &tree)?;
    let mut entries = strongroom_catalog::TreeReader::new(&tree, &reader);
    while let Some(entry) = entries.next_entry().map_err(RepositoryError::from)? {
        let line = ls::long(&entry, &entry.name, false);
        match context.json() {
            true => context.terminal.text(line.text())?,
            false => context.terminal.painted(&line)?,
        }
        if let Some(recipe) = entry.content().or(entry.tree()) {
            show_recipe(context, "  recipe", recipe)?;
        }
    }
    Ok(())
}

fn show_recipe(context: &Context, what: &str, recipe: &Recipe) -> Result<(), CliError> {
    context.terminal.text(format!(
        "{what}: depth {}, {} references, {} bytes",
        recipe.depth,
        recipe.refs.len(),
        recipe.stream_bytes()
    ))?;
    for chunk in &recipe.refs {
        let line = if chunk.is_hole() {
            format!("    hole of {} bytes", chunk.stream_bytes)
        } else {
            let (arena, slot) = (chunk.location.arena, chunk.location.slot);
            format!("    {} {arena}/{slot} {} bytes", chunk.fingerprint, chunk.stream_bytes)
        };
        context.terminal.text(line)?;
    }
    Ok(())
}
