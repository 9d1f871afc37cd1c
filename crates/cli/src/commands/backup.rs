//! `strongroom backup`

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use strongroom_arena::CompressionLevel;
use strongroom_base::units::{bytes_text, count_text, duration_text, parse_bytes};
use strongroom_engine::{BackupOptions, BackupOutcome, EngineError, backup};
use strongroom_repository::{Compression, PackOptions, Profile};
use strongroom_source::{Accounts, SourceOptions};

use super::init;
use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use crate::snapshot_arg::SnapshotArg;
use crate::terminal::printable_bytes;

/// What progress is called.
const WORDS: Words = Words { done: "stored", new_and_known: Some(("new", "known")) };

/// What is stored, and how.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Files and directories to store
    #[arg(required_unless_present = "stdin", conflicts_with = "stdin")]
    paths: Vec<PathBuf>,
    /// Store what comes from standard input, as a file of this name
    #[arg(long, value_name = "NAME")]
    stdin: Option<OsString>,
    /// Make the repository first where there is none
    #[arg(long)]
    init: bool,
    /// Write this on the snapshot; may be given several times
    #[arg(long = "label", value_name = "TEXT")]
    labels: Vec<String>,
    /// Read every file, also those that did not change since the last snapshot
    #[arg(long)]
    force: bool,
    /// Store nothing; show what would be stored
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Compare with this snapshot instead of the newest of the same paths
    #[arg(long, value_name = "SNAPSHOT")]
    parent: Option<OsString>,
    /// Bear this host name on the snapshot
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// How hard to compress: a zstd level from -7 (fastest) to 22 (smallest), or "auto": harder
    /// while the processor has time
    #[arg(long, value_name = "LEVEL", allow_hyphen_values = true, default_value = "3")]
    compression: String,
    /// Store every new chunk whole, none as a delta of what it was before
    #[arg(long)]
    no_deltas: bool,
    /// Files that are read at a time: two on a disk that seeks, else twice as many as cores
    #[arg(long, value_name = "COUNT")]
    readers: Option<usize>,
    /// Tell how busy each stage was, and so which one bound the backup
    #[arg(long)]
    profile: bool,
    /// Threads that compress, one for each core unless told otherwise
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    #[command(flatten)]
    exclude: ExcludeArgs,
    #[command(flatten)]
    new_repository: init::NewRepositoryArgs,
}

/// What is left out.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Leaving out")]
struct ExcludeArgs {
    /// Leave out what this gitignore pattern matches; a leading slash means a path of this machine
    #[arg(long, short = 'e', value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Leave out what the patterns in this file match, one a line
    #[arg(long, value_name = "FILE")]
    exclude_file: Vec<PathBuf>,
    /// Leave out what stands in a directory that holds a file of this name
    #[arg(long, value_name = "NAME")]
    exclude_if_present: Vec<OsString>,
    /// Leave out the content of caches: directories with a CACHEDIR.TAG
    #[arg(long)]
    exclude_caches: bool,
    /// Leave out files larger than this, such as 500MiB
    #[arg(long, value_name = "SIZE")]
    exclude_larger_than: Option<String>,
    /// Leave out what is mounted below the given paths
    #[arg(long, short = 'x')]
    one_file_system: bool,
}

impl ExcludeArgs {
    fn resolve(self) -> Result<SourceOptions, CliError> {
        let largest = self.exclude_larger_than.as_deref().map(parse_bytes).transpose();
        let file_bytes_max = largest.map_err(|error| {
            CliError::new(Exit::Failed, error.to_string(), "check --exclude-larger-than")
        })?;
        let names = self.exclude_if_present.into_iter().map(OsStringExt::into_vec);
        Ok(SourceOptions {
            excludes: self.exclude,
            exclude_files: self.exclude_file,
            exclude_if_present: names.collect(),
            cachedir_tag: self.exclude_caches,
            one_file_system: self.one_file_system,
            file_bytes_max,
            skip_inodes: Vec::new(),
        })
    }
}

/// Stores it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    let compression = parse_compression(&args.compression)?;
    let source = args.exclude.clone().resolve()?;
    // Before a repository is made for it, or a passphrase asked for.
    if args.stdin.is_none() {
        strongroom_source::TreeSource::open(&args.paths, &source).map_err(EngineError::from)?;
    }
    let (repository, made) = if args.init {
        context.open_or_init(&args.new_repository.options()?)?
    } else {
        (context.open()?, false)
    };
    if made {
        context.terminal.line(format!("made repository {}", repository.backend().describe()))?;
        context.terminal.note(init::KEEP_THE_PASSPHRASE);
    }
    let parent = match &args.parent {
        Some(name) => Some(SnapshotArg::from(name.as_os_str()).find(&repository)?.id),
        None => None,
    };
    let uid = rustix::process::geteuid().as_raw();
    let deltas = !args.no_deltas;
    let mut pack = PackOptions { compression, deltas, ..PackOptions::default() };
    pack.workers = args.threads.unwrap_or(pack.workers);
    let options = BackupOptions {
        paths: args.paths.clone(),
        source,
        host: args.host.clone().unwrap_or_else(host_name),
        user: Accounts::of_this_machine()
            .user_name(uid)
            .map_or(uid.to_string(), ToString::to_string),
        uid,
        gid: rustix::process::getegid().as_raw(),
        labels: args.labels.clone(),
        force: args.force,
        dry_run: args.dry_run,
        parent,
        readers: args.readers.unwrap_or_else(|| readers_for(&args.paths)),
        count_first: context.terminal.shows_progress(),
        pack,
        program: concat!("strongroom ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    let monitor = context.terminal.monitor(WORDS);
    let outcome = match args.stdin {
        Some(name) => {
            let mut input = std::io::stdin().lock();
            let name = name.into_vec();
            strongroom_engine::backup_reader(
                &repository,
                &name,
                &mut input,
                &options,
                &monitor,
                &context.cancel,
            )
        }
        None => backup(&repository, &options, &monitor, &context.cancel),
    };
    monitor.finish();
    let outcome = outcome?;
    context.terminal.json(&summary_json(&outcome, monitor.elapsed().as_secs_f64()))?;
    for line in summary(&outcome, monitor.elapsed()) {
        context.terminal.line(line)?;
    }
    if args.profile {
        context.terminal.line(profile_line(&outcome.profile))?;
    }
    Ok(exit_of(&outcome).into())
}

fn parse_compression(text: &str) -> Result<Compression, CliError> {
    if text == "auto" {
        return Ok(Compression::Auto);
    }
    let level = text.parse().ok().and_then(CompressionLevel::new);
    level.map(Compression::Level).ok_or_else(|| {
        let message = format!("there is no compression level {text}");
        CliError::new(Exit::Failed, message, "give a number from -7 to 22, or \"auto\"")
    })
}

/// Threads that read files on what these paths lie on.
fn readers_for(paths: &[PathBuf]) -> usize {
    if paths.iter().any(|path| strongroom_source::seeks(path)) {
        return 2;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores * 2).clamp(4, 16)
}

fn profile_line(profile: &Profile) -> String {
    let shares = profile.shares();
    let busiest = shares.iter().fold(shares[0], |a, b| if b.1 > a.1 { *b } else { a }).0;
    let told = shares.map(|(stage, share)| format!("{stage} {:.0} %", share * 100.0)).join(", ");
    format!("stages at work: {told}; bound by: {busiest}")
}

fn exit_of(outcome: &BackupOutcome) -> Exit {
    if outcome.snapshot.partial {
        Exit::Interrupted
    } else if outcome.snapshot.stats.problems > 0 {
        Exit::Incomplete
    } else {
        Exit::Done
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

fn summary(outcome: &BackupOutcome, elapsed: std::time::Duration) -> Vec<String> {
    let snapshot = &outcome.snapshot;
    let stats = &snapshot.stats;
    let paths: Vec<String> = snapshot.paths.iter().map(|path| printable_bytes(path)).collect();
    let head = match (outcome.committed, snapshot.partial) {
        (false, _) => "dry run; nothing was stored".to_owned(),
        (true, true) => {
            format!("stopped: partial snapshot {} of {}", snapshot.id.short(), paths.join(", "))
        }
        (true, false) => format!("snapshot {} of {}", snapshot.id.short(), paths.join(", ")),
    };
    let rate = (stats.bytes as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
    let mut lines = vec![
        head,
        format!(
            "  {} files, {} in {} ({}/s)",
            count_text(stats.files),
            bytes_text(stats.bytes),
            duration_text(elapsed),
            bytes_text(rate)
        ),
        format!(
            "  {} new, {} changed, {} unchanged",
            count_text(outcome.files_new),
            count_text(outcome.files_changed),
            count_text(outcome.files_unchanged)
        ),
        format!(
            "  {} of content were new; the repository grew by {}",
            bytes_text(stats.bytes_new),
            bytes_text(stats.bytes_stored)
        ),
    ];
    if outcome.excluded > 0 {
        lines.push(format!("  {} left out as asked", count_text(outcome.excluded)));
    }
    if stats.problems > 0 {
        lines.push(format!("  problems: {}; see the warnings above", count_text(stats.problems)));
    }
    lines
}

fn summary_json(outcome: &BackupOutcome, seconds: f64) -> Value {
    let (snapshot, written) = (&outcome.snapshot, &outcome.written);
    json!({
        "event": "summary",
        "snapshot": snapshot.id.to_string(),
        "committed": outcome.committed,
        "partial": snapshot.partial,
        "started": dates::rfc3339(snapshot.started),
        "seconds": seconds,
        "files": snapshot.stats.files,
        "directories": snapshot.stats.directories,
        "files_new": outcome.files_new,
        "files_changed": outcome.files_changed,
        "files_unchanged": outcome.files_unchanged,
        "excluded": outcome.excluded,
        "problems": snapshot.stats.problems,
        "bytes": snapshot.stats.bytes,
        "bytes_new": snapshot.stats.bytes_new,
        "bytes_stored": snapshot.stats.bytes_stored,
        "chunks": written.data_chunks,
        "chunks_new": written.data_chunks_new,
        "profile": outcome.profile.shares().into_iter().collect::<BTreeMap<_, _>>(),
        "metadata_chunks_new": written.metadata_chunks_new,
        "deltas": written.deltas,
        "metadata_bytes": written.metadata_bytes,
        "blocks": written.blocks,
        "arenas": written.arenas,
    })
}
