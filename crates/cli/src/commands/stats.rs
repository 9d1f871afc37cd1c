//! `strongroom stats`

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use strongroom_arena::CacheLimits;
use strongroom_base::units::{bytes_text, count_text, counted};
use strongroom_catalog::Snapshot;
use strongroom_repository::{ChunkReader, Layout, Repository, list_snapshots};
use strongroom_upkeep::{ArenaTotals, RepositoryStats, repository_stats, snapshot_stats};

use super::stats_plot;
use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg, exit_of_unread, report_unread};
use crate::terminal::table;

/// What is counted.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Count what these snapshots hold, instead of the whole repository
    #[arg(value_name = "SNAPSHOT")]
    names: Vec<OsString>,
    /// Count what each snapshot holds
    #[arg(long, conflicts_with = "names")]
    snapshots: bool,
    /// Count the blocks and requests that a restore of each needs, and the least that it could
    #[arg(long)]
    fragmentation: bool,
    /// Draw how the repository grew, how much deduplication saves, and what each machine and folder
    /// costs; with a name that ends with .svg, write the picture to that file
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        conflicts_with_all = ["names", "snapshots", "fragmentation"]
    )]
    plot: Option<Option<PathBuf>>,
    #[command(flatten)]
    narrowing: NarrowingArgs,
}

/// Counts it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    if let Some(file) = &args.plot {
        return stats_plot::run(context, &args.narrowing, file.as_deref());
    }
    let repository = context.open()?;
    let can_read = repository.keys.can_read();
    let of_all = args.names.is_empty() && args.narrowing.is_none();
    if of_all && !args.snapshots && !args.fragmentation {
        let monitor = context.terminal.monitor(Words::objects("counted"));
        let stats = repository_stats(&repository, &monitor, &context.cancel);
        monitor.finish();
        let stats = stats?;
        context.terminal.json(&repository_json(&stats, can_read))?;
        let lines = match can_read {
            true => repository_lines(&stats),
            false => put_only_lines(&stats),
        };
        if !context.json() {
            for line in lines {
                context.terminal.result(line)?;
            }
        }
        return Ok(exit_of(stats.unreadable).into());
    }
    let list = list_snapshots(&repository)?;
    let mut exit = Exit::Done;
    let mut wanted: Vec<Snapshot> = Vec::new();
    for name in &args.names {
        let name = SnapshotArg::from(name.as_os_str());
        let snapshot = name.find_listed(context, &list, &args.narrowing)?;
        if !wanted.iter().any(|known| known.id == snapshot.id) {
            wanted.push(snapshot.clone());
        }
    }
    if args.names.is_empty() {
        // What is counted of each snapshot names them, too.
        exit = match args.fragmentation {
            true => report_unread(context, &list),
            false => exit_of_unread(&list),
        };
        let narrowing = args.narrowing.resolve();
        wanted = list.snapshots.into_iter().filter(|snapshot| narrowing.fits(snapshot)).collect();
    }
    if args.fragmentation {
        fragmentation(context, &repository, &wanted)?;
        return Ok(exit.into());
    }
    let monitor = context.terminal.monitor(Words::files("counted"));
    let stats = snapshot_stats(&repository, &wanted, &monitor, &context.cancel);
    monitor.finish();
    let stats = stats?;
    let head = ["id", "time", "files", "size", "stored", "freed if removed"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (snapshot, stat) in wanted.iter().zip(&stats) {
        context.terminal.json(&json!({
            "event": "snapshot_stats",
            "snapshot": stat.id.to_string(),
            "started": dates::rfc3339(snapshot.started),
            "files": stat.files,
            "directories": stat.directories,
            "bytes": stat.bytes,
            "unique_bytes": stat.unique_bytes,
            "own_bytes": stat.own_bytes,
            "stored_bytes": stat.stored_bytes,
            "own_stored_bytes": stat.own_stored_bytes,
            "unreadable": stat.unreadable,
        }))?;
        rows.push(vec![
            stat.id.short(),
            dates::text(snapshot.started),
            count_text(stat.files),
            bytes_text(stat.bytes),
            bytes_text(stat.stored_bytes),
            bytes_text(stat.own_stored_bytes),
        ]);
    }
    if !context.json() {
        for line in table(&rows, &[2, 3, 4, 5]) {
            context.terminal.result(line)?;
        }
        context.terminal.line("")?;
        for line in LEGEND {
            context.terminal.line(line)?;
        }
    }
    let unreadable: u64 = stats.iter().map(|stat| stat.unreadable).sum();
    Ok(if unreadable > 0 { Exit::Damaged } else { exit }.into())
}

/// How what each of these needs is laid out.
fn fragmentation(
    context: &Context,
    repository: &Repository,
    snapshots: &[Snapshot],
) -> Result<(), CliError> {
    let mut readers: HashMap<&str, ChunkReader> = HashMap::new();
    let head = ["id", "time", "requests", "least", "blocks", "least", "read", "least"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for snapshot in snapshots {
        let reader = match readers.entry(&snapshot.domain) {
            Entry::Occupied(reader) => reader.into_mut(),
            Entry::Vacant(none) => {
                let limits = CacheLimits::default();
                none.insert(ChunkReader::of_domain(repository, &snapshot.domain, limits)?)
            }
        };
        let found = Layout::of(snapshot, reader, &context.cancel)?.fragmentation();
        context.terminal.json(&json!({
            "event": "fragmentation",
            "snapshot": snapshot.id.to_string(),
            "requests": found.requests,
            "requests_least": found.requests_least,
            "blocks": found.blocks,
            "blocks_least": found.blocks_least,
            "read_bytes": found.read_bytes,
            "read_bytes_least": found.read_bytes_least,
        }))?;
        rows.push(vec![
            snapshot.id.short(),
            dates::text(snapshot.started),
            count_text(found.requests),
            count_text(found.requests_least),
            count_text(found.blocks),
            count_text(found.blocks_least),
            bytes_text(found.read_bytes),
            bytes_text(found.read_bytes_least),
        ]);
    }
    if !context.json() {
        for line in table(&rows, &[2, 3, 4, 5, 6, 7]) {
            context.terminal.result(line)?;
        }
        context.terminal.line("")?;
        context.terminal.line("least: if all that it needs lay together")?;
    }
    Ok(())
}

const LEGEND: [&str; 2] = [
    "stored: the compressed size of what the snapshot needs, shared or not",
    "freed if removed: what no other snapshot needs",
];

fn exit_of(unreadable: u64) -> Exit {
    if unreadable > 0 { Exit::Damaged } else { Exit::Done }
}

fn repository_lines(stats: &RepositoryStats) -> Vec<String> {
    let ratio =
        |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2} : 1"));
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let rows = [
        row("snapshots", count_text(stats.snapshots)),
        row("size of all of them, restored", bytes_text(stats.referenced_bytes)),
        row("content without duplicates", bytes_text(stats.data.chunk_bytes)),
        row("size of the repository", bytes_text(stats.stored_bytes())),
        row("deduplication", ratio(stats.dedup_ratio())),
        row("compression", ratio(stats.compression_ratio())),
        row("both together", ratio(stats.total_ratio())),
    ];
    let mut lines = table(&rows, &[1]);
    lines.extend(arena_lines(stats));
    lines
}

/// What a key that may only store can say.
fn put_only_lines(stats: &RepositoryStats) -> Vec<String> {
    let rows = [
        ["content without duplicates".to_owned(), bytes_text(stats.data.chunk_bytes)].to_vec(),
        ["size of the repository".to_owned(), bytes_text(stats.stored_bytes())].to_vec(),
    ];
    let mut lines = table(&rows, &[1]);
    lines.push("this key can only store: it cannot read the snapshots".to_owned());
    lines.extend(arena_lines(stats));
    lines
}

fn arena_lines(stats: &RepositoryStats) -> Vec<String> {
    let mut lines = vec![String::new()];
    let head = ["", "arenas", "blocks", "chunks", "deltas", "content", "compressed", "overhead"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (name, totals) in [("data", &stats.data), ("metadata", &stats.metadata)] {
        rows.push(vec![
            name.to_owned(),
            count_text(totals.arenas),
            count_text(totals.blocks),
            count_text(totals.chunks),
            count_text(totals.deltas),
            bytes_text(totals.chunk_bytes),
            bytes_text(totals.block_bytes),
            bytes_text(totals.overhead_bytes()),
        ]);
    }
    lines.extend(table(&rows, &[1, 2, 3, 4, 5, 6, 7]));
    lines.push(format!(
        "overhead: parity, signatures, summaries; other objects: {}",
        bytes_text(stats.small_bytes)
    ));
    if stats.not_opened > 0 {
        let closed = counted(stats.not_opened, "arena", "arenas");
        lines.push(format!("{closed} of other machines or newer programs: only sizes are counted"));
    }
    if stats.unreadable > 0 {
        let unreadable = counted(stats.unreadable, "arena", "arenas");
        lines.push(format!("{unreadable} cannot be read: run `strongroom verify`"));
    }
    lines
}

/// What a key that may only store cannot know is null.
fn repository_json(stats: &RepositoryStats, can_read: bool) -> Value {
    let totals = |totals: &ArenaTotals| {
        json!({
            "arenas": totals.arenas,
            "object_bytes": totals.object_bytes,
            "block_bytes": totals.block_bytes,
            "overhead_bytes": totals.overhead_bytes(),
            "blocks": totals.blocks,
            "chunks": totals.chunks,
            "chunk_bytes": totals.chunk_bytes,
            "deltas": totals.deltas,
        })
    };
    json!({
        "event": "summary",
        "snapshots": can_read.then_some(stats.snapshots),
        "referenced_bytes": can_read.then_some(stats.referenced_bytes),
        "stored_bytes": stats.stored_bytes(),
        "dedup_ratio": stats.dedup_ratio().filter(|_| can_read),
        "compression_ratio": stats.compression_ratio(),
        "total_ratio": stats.total_ratio().filter(|_| can_read),
        "data": totals(&stats.data),
        "metadata": totals(&stats.metadata),
        "small_bytes": stats.small_bytes,
        "unreadable": stats.unreadable,
        "not_opened": stats.not_opened,
    })
}
