//! `strongroom stats`

use std::ffi::OsString;
use std::process::ExitCode;

use serde_json::{Value, json};
use strongroom_base::units::{bytes_text, count_text};
use strongroom_catalog::Snapshot;
use strongroom_engine::{ArenaTotals, RepositoryStats, repository_stats, snapshot_stats};
use strongroom_repository::list_snapshots;

use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use crate::snapshot_arg::SnapshotArg;
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
}

/// Counts it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let repository = context.open()?;
    if !args.snapshots && args.names.is_empty() {
        let monitor = context.terminal.monitor(Words::plain("counted"));
        let stats = repository_stats(&repository, &monitor, &context.cancel);
        monitor.finish();
        let stats = stats?;
        context.terminal.json(&repository_json(&stats))?;
        if !context.json() {
            for line in repository_lines(&stats) {
                context.terminal.result(line)?;
            }
        }
        return Ok(exit_of(stats.unreadable).into());
    }
    let list = list_snapshots(&repository)?;
    let mut wanted: Vec<Snapshot> = Vec::new();
    for name in &args.names {
        let snapshot = SnapshotArg::from(name.as_os_str()).find_in(&list.snapshots)?;
        if !wanted.iter().any(|known| known.id == snapshot.id) {
            wanted.push(snapshot.clone());
        }
    }
    if args.snapshots {
        wanted = list.snapshots;
    }
    let monitor = context.terminal.monitor(Words::plain("counted"));
    let stats = snapshot_stats(&repository, &wanted, &monitor, &context.cancel);
    monitor.finish();
    let stats = stats?;
    let head = ["id", "time", "files", "size", "unique", "its own", "stored", "stored alone"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (snapshot, stat) in wanted.iter().zip(&stats) {
        context.terminal.json(&json!({
            "event": "snapshot",
            "id": stat.id.to_string(),
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
            bytes_text(stat.unique_bytes),
            bytes_text(stat.own_bytes),
            bytes_text(stat.stored_bytes),
            bytes_text(stat.own_stored_bytes),
        ]);
    }
    if !context.json() {
        for line in table(&rows, &[2, 3, 4, 5, 6, 7]) {
            context.terminal.result(line)?;
        }
        context.terminal.line("")?;
        for line in LEGEND {
            context.terminal.line(line)?;
        }
    }
    let unreadable: u64 = stats.iter().map(|stat| stat.unreadable).sum();
    Ok(exit_of(unreadable + list.unreadable.len() as u64).into())
}

const LEGEND: [&str; 4] = [
    "unique: every chunk once; its own: chunks that no other snapshot has;",
    "stored: what its chunks and trees take, compressed;",
    "stored alone: what would become free if this snapshot alone were forgotten.",
    "What several snapshots share counts for each of them, and is freed by none alone.",
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
        row("restoring all of them gives", bytes_text(stats.referenced_bytes)),
        row("content, each chunk once", bytes_text(stats.data.chunk_bytes)),
        row("the repository takes", bytes_text(stats.stored_bytes())),
        row("deduplication", ratio(stats.dedup_ratio())),
        row("compression", ratio(stats.compression_ratio())),
        row("in all", ratio(stats.total_ratio())),
    ];
    let mut lines = table(&rows, &[1]);
    lines.push(String::new());
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
        "overhead: parity, signatures, summaries; beside the arenas: {}",
        bytes_text(stats.small_bytes)
    ));
    if stats.unreadable > 0 {
        let unreadable = count_text(stats.unreadable);
        lines.push(format!("{unreadable} arenas cannot be read: run `strongroom verify`"));
    }
    lines
}

fn repository_json(stats: &RepositoryStats) -> Value {
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
        "snapshots": stats.snapshots,
        "referenced_bytes": stats.referenced_bytes,
        "stored_bytes": stats.stored_bytes(),
        "dedup_ratio": stats.dedup_ratio(),
        "compression_ratio": stats.compression_ratio(),
        "total_ratio": stats.total_ratio(),
        "data": totals(&stats.data),
        "metadata": totals(&stats.metadata),
        "small_bytes": stats.small_bytes,
        "unreadable": stats.unreadable,
    })
}
