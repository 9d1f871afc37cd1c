//! `strongroom backup`

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use strongroom_arena::CompressionLevel;
use strongroom_base::units::{bytes_text, count_text, counted, duration_text, parse_bytes};
use strongroom_base::{Severity, Silent, SnapshotId, Timestamp};
use strongroom_catalog::Snapshot;
use strongroom_engine::{
    BackupOptions, BackupOutcome, BegunWalk, EngineError, Profile, backup, backup_walk,
};
use strongroom_repository::{Compression, OwnRecord, PackOptions, Repository};
use strongroom_source::{SourceOptions, TreeSource};

use super::init;
use crate::command_output::CommandOutput;
use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::filter_args::pattern;
use crate::machine::{host_name, user_name};
use crate::path_lists::PathLists;
use crate::progress::Words;
use crate::running::{RecordedMonitor, RunningRecord};
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg};
use crate::terminal::printable_paths;

/// How the progress is worded.
const WORDS: Words = Words { new_and_known: Some(("new", "known")), ..Words::files("stored") };

/// What is stored, and how.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Files and directories to store
    #[arg(required_unless_present_any = ["stdin", "lists"], conflicts_with = "stdin")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    lists: PathLists,
    /// Store standard input as a file of this name
    #[arg(long, value_name = "NAME")]
    stdin: Option<OsString>,
    /// Run this command with a shell and store what it writes, or nothing if it fails
    #[arg(long, value_name = "COMMAND", requires = "stdin")]
    stdin_from_command: Option<String>,
    /// Create the repository first if there is none
    #[arg(long)]
    init: bool,
    /// Add this label to the snapshot; may be given several times
    #[arg(long = "label", visible_alias = "tag", value_name = "TEXT")]
    labels: Vec<String>,
    /// Read every file, even those that did not change since the last snapshot
    #[arg(long)]
    force: bool,
    /// Store nothing; show what would be stored
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Compare with this snapshot instead of the newest one of the same host and paths
    #[arg(long, value_name = "SNAPSHOT")]
    parent: Option<OsString>,
    /// Record this host name instead of the machine's
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Compression: a zstd level from -7 (fastest) to 22 (smallest), or "auto" for as much as the
    /// processor has time for
    #[arg(long, value_name = "LEVEL", allow_hyphen_values = true, default_value = "3",
        value_parser = parse_compression)]
    compression: Compression,
    /// Store every new chunk whole, never as a delta against the previous version
    #[arg(long)]
    no_deltas: bool,
    /// How many files are read at a time [default: 2 on a spinning disk, else two per core]
    #[arg(long, value_name = "COUNT")]
    readers: Option<usize>,
    /// Report how busy each stage was, to show the bottleneck
    #[arg(long)]
    stages: bool,
    /// How many threads compress [default: one per core]
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    #[command(flatten)]
    exclude: ExcludeArgs,
    #[command(flatten)]
    new_repository: init::NewRepositoryArgs,
}

/// What is excluded.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Excluding")]
struct ExcludeArgs {
    /// Exclude what matches this gitignore pattern; with a leading slash it is an absolute path
    #[arg(long, short = 'e', value_name = "PATTERN", value_parser = pattern)]
    exclude: Vec<String>,
    /// As --exclude, but upper and lower case are the same
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    iexclude: Vec<String>,
    /// Exclude what matches a pattern in this file, one per line
    #[arg(long, visible_alias = "exclude-from", value_name = "FILE")]
    exclude_file: Vec<PathBuf>,
    /// As --exclude-file, but upper and lower case are the same
    #[arg(long, value_name = "FILE")]
    iexclude_file: Vec<PathBuf>,
    /// Exclude the content of directories that hold a file of this name, such as .nobackup
    #[arg(long, value_name = "NAME")]
    exclude_if_present: Vec<OsString>,
    /// Exclude the content of caches: directories with a CACHEDIR.TAG
    #[arg(long)]
    exclude_caches: bool,
    /// Exclude files larger than this, such as 500MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    exclude_larger_than: Option<u64>,
    /// Exclude other file systems mounted below the given paths
    #[arg(long, short = 'x')]
    one_file_system: bool,
}

impl ExcludeArgs {
    fn resolve(self) -> SourceOptions {
        let names = self.exclude_if_present.into_iter().map(OsStringExt::into_vec);
        SourceOptions {
            excludes: self.exclude,
            exclude_files: self.exclude_file,
            iexcludes: self.iexclude,
            iexclude_files: self.iexclude_file,
            exclude_if_present: names.collect(),
            cachedir_tag: self.exclude_caches,
            one_file_system: self.one_file_system,
            file_bytes_max: self.exclude_larger_than,
            skip_inodes: Vec::new(),
            root: None,
        }
    }
}

/// The snapshot to compare with. A key that can only store has those that this machine remembers.
fn find_parent(repository: &Repository, name: &OsStr) -> Result<SnapshotId, CliError> {
    let name = SnapshotArg::from(name);
    if repository.keys.can_read() {
        return Ok(name.find(repository, &NarrowingArgs::default())?.id);
    }
    let kept = OwnRecord::read(repository, &Silent).snapshots.into_iter();
    let kept: Vec<Snapshot> = kept.map(|kept| kept.snapshot).collect();
    Ok(name.find_in(&kept)?.id)
}

/// Stores it.
pub fn run(context: &Context, mut args: Args) -> Result<ExitCode, CliError> {
    let compression = args.compression;
    let source = args.exclude.clone().resolve();
    args.paths.extend(args.lists.read()?);
    // Before a repository is made for it, or a passphrase asked for.
    if args.stdin.is_none() {
        check_paths(&args.paths, &source)?;
    }
    let (repository, walk) = if args.init {
        (open_or_init(context, &args)?, None)
    } else if args.stdin.is_some() {
        (context.open_for_backup(|_| ())?.0, None)
    } else {
        let begin = |surroundings: &_| BegunWalk::begin(surroundings, &args.paths, &source);
        let (repository, walk) = context.open_for_backup(begin)?;
        (repository, Some(walk?))
    };
    let parent = match &args.parent {
        Some(name) => Some(find_parent(&repository, name)?),
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
        user: user_name(),
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
        as_made: None,
    };
    let shown = context.terminal.monitor(WORDS);
    let place = context.place_text()?;
    let record = (!args.dry_run)
        .then(|| RunningRecord::begin(context.cache(), "backup", &place, &args.paths))
        .flatten();
    let monitor = RecordedMonitor { shown: &shown, record };
    let outcome = match args.stdin {
        Some(name) => {
            let mut input = input(args.stdin_from_command.as_deref())?;
            let name = name.into_vec();
            strongroom_engine::backup_reader(
                &repository,
                &name,
                &mut *input,
                &options,
                &monitor,
                &context.cancel,
            )
        }
        None => match walk {
            Some(walk) => backup_walk(&repository, walk, &options, &monitor, &context.cancel),
            None => backup(&repository, &options, &monitor, &context.cancel),
        },
    };
    drop(monitor);
    shown.finish();
    let outcome = outcome?;
    warn_of_clocks(context, &outcome);
    if let Some((id, sequence)) = outcome.rolled_back {
        context.warn_of_rollback(id, sequence);
    }
    context.terminal.json(&summary_json(&outcome, shown.elapsed().as_secs_f64()))?;
    for line in summary(&outcome, shown.elapsed()) {
        context.terminal.line(line)?;
    }
    if args.stages {
        context.terminal.line(profile_line(&outcome.profile))?;
    }
    Ok(exit_of(&outcome).into())
}

fn open_or_init(context: &Context, args: &Args) -> Result<Repository, CliError> {
    if args.dry_run && !context.has_repository()? {
        let message = "there is no repository yet, and a dry run creates none";
        let hint = "create it with `strongroom init`, or leave out --dry-run";
        return Err(CliError::new(Exit::NoRepository, message, hint));
    }
    let opened = context.open_or_init(&args.new_repository.options()?)?;
    if opened.created {
        init::report_created(context, &opened.repository)?;
    }
    Ok(opened.repository)
}

/// Snapshots are ordered by their sequence, so a wrong clock harms nothing; but dates lead astray.
fn warn_of_clocks(context: &Context, outcome: &BackupOutcome) {
    let started = outcome.snapshot.started;
    if matches!(started, Timestamp::LATEST | Timestamp::EARLIEST) {
        let message = format!(
            "this machine's clock is outside of the years that a snapshot can record; it is dated \
             \"{}\": set the clock",
            dates::text(started)
        );
        context.terminal.problem(Severity::Warning, &message);
    }
    if let Some((id, future)) = outcome.from_the_future {
        let message = format!(
            "a snapshot from the future: {} is dated {}, and this machine's clock says {}. One of \
             the clocks is wrong; `latest` follows the order of the backups, dates do not",
            id.short(),
            dates::text(future),
            dates::text(started)
        );
        context.terminal.problem(Severity::Warning, &message);
    }
}

/// Fails if none of the paths exists, or an exclude pattern is invalid.
fn check_paths(paths: &[PathBuf], source: &SourceOptions) -> Result<(), CliError> {
    let exists = |path: &&PathBuf| TreeSource::find(std::slice::from_ref(*path)).is_ok();
    let found: Vec<PathBuf> = paths.iter().filter(exists).cloned().collect();
    let paths = if found.is_empty() { paths } else { &found };
    TreeSource::open(paths, source).map_err(EngineError::from)?;
    Ok(())
}

/// Standard input, or what a command writes to its own.
fn input(command: Option<&str>) -> Result<Box<dyn Read>, CliError> {
    Ok(match command {
        Some(command) => Box::new(CommandOutput::start(command)?),
        None => Box::new(std::io::stdin().lock()),
    })
}

fn parse_compression(text: &str) -> Result<Compression, String> {
    if text == "auto" {
        return Ok(Compression::Auto);
    }
    let level = text.parse().ok().and_then(CompressionLevel::new);
    let wrong = || "give a number from -7 to 22, or \"auto\"".to_owned();
    level.map(Compression::Level).ok_or_else(wrong)
}

/// How many threads read files, for the disks that these paths are on.
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
    let busy = shares.map(|(stage, share)| format!("{stage} {:.0} %", share * 100.0)).join(", ");
    format!("stages busy: {busy}; bottleneck: {busiest}")
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

fn summary(outcome: &BackupOutcome, elapsed: std::time::Duration) -> Vec<String> {
    let snapshot = &outcome.snapshot;
    let stats = &snapshot.stats;
    let paths = printable_paths(&snapshot.paths, ", ");
    let id = snapshot.id.short();
    let head = match (outcome.committed, snapshot.partial) {
        (true, true) => format!("stopped: incomplete snapshot {id} of {paths}"),
        (true, false) => format!("snapshot {id} of {paths}"),
        (false, true) => "stopped before a file was stored: there is no snapshot".to_owned(),
        (false, false) => "dry run: nothing was stored".to_owned(),
    };
    let rate = (stats.bytes as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
    let mut lines = vec![
        head,
        format!(
            "  {}, {} in {} ({}/s)",
            counted(stats.files, "file", "files"),
            bytes_text(stats.bytes),
            duration_text(elapsed),
            bytes_text(rate)
        ),
        format!("  {}", files_line(outcome)),
        format!("  {}", growth_line(outcome)),
    ];
    if outcome.excluded > 0 {
        lines.push(format!("  {} excluded", count_text(outcome.excluded)));
    }
    if stats.problems > 0 {
        let problems = counted(stats.problems, "problem", "problems");
        lines.push(format!("  {problems}: see the warnings above"));
    }
    lines
}

/// Links and special files are kept without being compared, so they are counted apart.
fn files_line(outcome: &BackupOutcome) -> String {
    let BackupOutcome { files_new, files_changed, files_unchanged, .. } = *outcome;
    let compared = files_new + files_changed + files_unchanged;
    let other = outcome.snapshot.stats.files.saturating_sub(compared);
    let mut line = format!(
        "{} new, {} changed, {} unchanged",
        count_text(files_new),
        count_text(files_changed),
        count_text(files_unchanged)
    );
    if other > 0 {
        line.push_str(&format!(
            ", {}",
            counted(other, "link or special file", "links and special files")
        ));
    }
    line
}

fn growth_line(outcome: &BackupOutcome) -> String {
    let stats = &outcome.snapshot.stats;
    let new = bytes_text(stats.bytes_new);
    if outcome.committed {
        format!("{new} of new content; the repository grew by {}", bytes_text(stats.bytes_stored))
    } else {
        format!("{new} of new content, before compression")
    }
}

fn summary_json(outcome: &BackupOutcome, seconds: f64) -> Value {
    let (snapshot, written) = (&outcome.snapshot, &outcome.written);
    json!({
        "event": "summary",
        "snapshot": snapshot.id.to_string(),
        "sequence": snapshot.sequence,
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
        "stages": outcome.profile.shares().into_iter().collect::<BTreeMap<_, _>>(),
        "metadata_chunks_new": written.metadata_chunks_new,
        "deltas": written.deltas,
        "metadata_bytes": written.metadata_bytes,
        "blocks": written.blocks,
        "arenas": written.arenas,
    })
}
