//! How a snapshot is stored, of files as of disks, and what is said of it afterwards.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use strongroom_arena::CompressionLevel;
use strongroom_base::units::{bytes_text, count_text, counted, duration_text};
use strongroom_base::{Severity, Silent, SnapshotId, Timestamp};
use strongroom_catalog::Snapshot;
use strongroom_engine::{BackupOptions, BackupOutcome, Profile};
use strongroom_repository::{Compression, OwnRecord, PackOptions, Repository};
use strongroom_source::SourceOptions;
use strongroom_upkeep::OwnGone;

use super::init;
use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::machine::{host_name, user_name};
use crate::night::{exit_of_doubtful, report_snapshot};
use crate::progress::TerminalMonitor;
use crate::running::{RecordedMonitor, RunningRecord};
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg};
use crate::terminal::printable_paths;

/// How a snapshot is stored.
#[derive(Debug, Clone, clap::Args)]
pub struct StoringArgs {
    /// Create the repository first if there is none
    #[arg(long)]
    pub init: bool,
    /// Add this label to the snapshot; may be given several times
    #[arg(long = "label", visible_alias = "tag", value_name = "TEXT", value_parser = parse_label)]
    labels: Vec<String>,
    /// Store nothing; show what would be stored
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Compare with this snapshot instead of the newest one of the same host and paths
    #[arg(long, value_name = "SNAPSHOT")]
    parent: Option<OsString>,
    /// Compression: a zstd level from -7 (fastest) to 22 (smallest), or "auto" for as much as the
    /// processor has time for
    #[arg(long, value_name = "LEVEL", allow_hyphen_values = true, default_value = "3",
        value_parser = parse_compression)]
    compression: Compression,
    /// Store every new chunk whole, never as a delta against the previous version
    #[arg(long)]
    no_deltas: bool,
    /// Report how busy each stage was, to show the bottleneck
    #[arg(long)]
    stages: bool,
    /// How many threads compress [default: one per core]
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    #[command(flatten)]
    new_repository: init::NewRepositoryArgs,
}

/// How snapshots are stored by what runs for long.
#[derive(Debug, Clone, clap::Args)]
pub struct PlainStoringArgs {
    /// Add this label to the snapshots; may be given several times
    #[arg(long = "label", visible_alias = "tag", value_name = "TEXT", value_parser = parse_label)]
    labels: Vec<String>,
    /// Record this host name instead of the machine's
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Compression: a zstd level from -7 (fastest) to 22 (smallest), or "auto" for as much as the
    /// processor has time for
    #[arg(long, value_name = "LEVEL", allow_hyphen_values = true, default_value = "3",
        value_parser = parse_compression)]
    compression: Compression,
}

impl PlainStoringArgs {
    /// The options of each backup.
    pub fn options(&self, context: &Context) -> BackupOptions {
        let pack = PackOptions { compression: self.compression, ..PackOptions::default() };
        let host = self.host.clone().unwrap_or_else(host_name);
        let readers = std::thread::available_parallelism().map_or(1, usize::from);
        let labels = self.labels.clone();
        BackupOptions { labels, readers, pack, ..options_of(context, host) }
    }
}

/// What is the same in every backup of this program.
fn options_of(context: &Context, host: String) -> BackupOptions {
    BackupOptions {
        paths: Vec::new(),
        source: SourceOptions::default(),
        host,
        user: user_name(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        labels: Vec::new(),
        force: false,
        dry_run: false,
        parent: None,
        readers: threads_that_read(),
        count_first: context.terminal.shows_progress(),
        pack: PackOptions::default(),
        program: concat!("strongroom ", env!("CARGO_PKG_VERSION")).to_owned(),
        as_made: None,
    }
}

impl StoringArgs {
    /// The repository, which is created if there is none.
    pub fn open_or_init(&self, context: &Context) -> Result<Repository, CliError> {
        if self.dry_run && !context.has_repository()? {
            let message = "there is no repository yet, and a dry run creates none";
            let hint = "create it with `strongroom init`, or leave out --dry-run";
            return Err(CliError::new(Exit::NoRepository, message, hint));
        }
        let opened = context.open_or_init(&self.new_repository.options()?)?;
        if opened.created {
            init::report_created(context, &opened.repository)?;
        }
        Ok(opened.repository)
    }

    /// The options of a backup without paths.
    pub fn options(
        &self,
        context: &Context,
        repository: &Repository,
        host: String,
    ) -> Result<BackupOptions, CliError> {
        let parent =
            self.parent.as_ref().map(|name| find_parent(context, repository, name)).transpose()?;
        let (compression, deltas) = (self.compression, !self.no_deltas);
        let mut pack = PackOptions { compression, deltas, ..PackOptions::default() };
        pack.workers = self.threads.unwrap_or(pack.workers);
        let (labels, dry_run) = (self.labels.clone(), self.dry_run);
        Ok(BackupOptions { labels, dry_run, parent, pack, ..options_of(context, host) })
    }

    /// A monitor that also writes down how far the backup is, for `status` and `tui`.
    pub fn recorded<'m>(
        &self,
        context: &Context,
        shown: &'m TerminalMonitor,
        paths: &[PathBuf],
    ) -> Result<RecordedMonitor<'m>, CliError> {
        let place = context.place_text()?;
        let record = (!self.dry_run)
            .then(|| RunningRecord::begin(context.cache(), "backup", &place, paths))
            .flatten();
        Ok(RecordedMonitor { shown, record })
    }

    /// Says what was stored, and how the program ends. Programs get `more` in the same event.
    pub fn report(
        &self,
        context: &Context,
        outcome: &BackupOutcome,
        elapsed: Duration,
        more: Value,
    ) -> Result<ExitCode, CliError> {
        if outcome.committed {
            report_snapshot(outcome.snapshot.id);
        }
        warn_of_clocks(context, outcome);
        if let Some((id, sequence)) = outcome.rolled_back {
            context.warn_of_rollback(OwnGone { id, sequence, is_damaged: false });
        }
        let mut event = summary_json(outcome, elapsed.as_secs_f64());
        if let (Value::Object(event), Value::Object(more)) = (&mut event, more) {
            event.extend(more);
        }
        // The summary is the last event.
        if outcome.is_doubtful {
            warn_of_doubt(context, outcome);
        }
        context.terminal.json(&event)?;
        for line in summary(outcome, elapsed) {
            context.terminal.line(line)?;
        }
        if self.stages {
            context.terminal.line(profile_line(&outcome.profile))?;
        }
        let is_doubtful = outcome.is_doubtful || outcome.rolled_back.is_some();
        Ok(match exit_of(outcome) {
            Exit::Incomplete if is_doubtful => exit_of_doubtful(),
            exit => exit.into(),
        })
    }
}

/// The snapshot to compare with. A key that can only store has those that this machine remembers.
fn find_parent(
    context: &Context,
    repository: &Repository,
    name: &OsStr,
) -> Result<SnapshotId, CliError> {
    let name = SnapshotArg::from(name);
    if repository.keys.can_read() {
        return Ok(name.find(context, repository, &NarrowingArgs::default())?.id);
    }
    let kept = OwnRecord::read(repository, &Silent).snapshots.into_iter();
    let kept: Vec<Snapshot> = kept.map(|kept| kept.snapshot).collect();
    Ok(name.find_in(&kept)?.id)
}

/// A label. Other programs take a comma for the end of one, or for "and".
pub fn parse_label(text: &str) -> Result<String, String> {
    match text.split_once(',') {
        Some((first, rest)) => Err(format!(
            "a label has no comma: for two labels, give the option twice, {first:?} and {rest:?}; a \
             snapshot that must have both cannot be asked for"
        )),
        None => Ok(text.to_owned()),
    }
}

fn parse_compression(text: &str) -> Result<Compression, String> {
    if text == "auto" {
        return Ok(Compression::Auto);
    }
    let level = text.parse().ok().and_then(CompressionLevel::new);
    let wrong = || "give a number from -7 to 22, or \"auto\"".to_owned();
    level.map(Compression::Level).ok_or_else(wrong)
}

/// How many threads read, where the disk does not seek.
pub fn threads_that_read() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores * 2).clamp(4, 16)
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

/// What follows if less was found than was expected.
fn warn_of_doubt(context: &Context, outcome: &BackupOutcome) {
    let message = match outcome.committed {
        true => format!(
            "something is missing from this backup: a run of a profile forgets and prunes nothing \
             after it, and rules let it take no place of an older one; if all is as it should be, \
             say `strongroom forget --accept {}`",
            outcome.snapshot.id.short()
        ),
        false => "something would be missing from this backup".to_owned(),
    };
    context.terminal.problem(Severity::Warning, &message);
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
    } else if outcome.snapshot.stats.problems > 0 || outcome.rolled_back.is_some() {
        Exit::Incomplete
    } else {
        Exit::Done
    }
}

fn summary(outcome: &BackupOutcome, elapsed: Duration) -> Vec<String> {
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
