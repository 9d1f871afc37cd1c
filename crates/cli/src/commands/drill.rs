//! `strongroom drill`

mod boot;
mod set;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use strongroom_base::units::{bytes_text, count_text, counted, duration_text, parse_bytes};
use strongroom_catalog::Snapshot;
use strongroom_engine::{
    DrillAmount, DrillFinding, DrillOptions, DrillOutcome, FindingKind, drill,
};
use strongroom_repository::{Drill, DrillVerdict, Repository};

use crate::child::{self, Ending, Patience, Stream};
use crate::commands::verify;
use crate::context::{Context, ReplicaArgs};
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::machine::{host_name, restore_threads};
use crate::progress::{TerminalMonitor, Words};
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg, check_complete, exit_of_missing, from_line};
use crate::terminal::{name_json, path_json, printable, printable_text, write_wrapped};
use boot::BootArgs;
pub use boot::{boot_json, boot_text};

/// What is drilled, and how.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The snapshot, and the path in it: `latest`, `latest:/home/me`. `latest` is of this machine, if it
    /// has any
    #[arg(value_name = "SNAPSHOT[:PATH]", default_value = "latest")]
    what: OsString,
    /// Restore about this many bytes, or one file if it is larger [default: 1GiB]
    #[arg(long, value_name = "SIZE", group = "amount", value_parser = parse_bytes)]
    bytes: Option<u64>,
    /// Restore this many entries
    #[arg(long, value_name = "COUNT", group = "amount",
        value_parser = clap::value_parser!(u64).range(1..))]
    files: Option<u64>,
    /// Restore this share of the entries
    #[arg(long, value_name = "PERCENT", group = "amount", value_parser = verify::percent)]
    sample: Option<u8>,
    /// Repeat the drill that printed this seed; otherwise a drill begins where the last one ended
    #[arg(long, value_name = "SEED", value_parser = parse_seed)]
    seed: Option<u64>,
    /// Restore into a new folder below this one [default: the cache, or else TMPDIR]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Leave the restored files, to look at them
    #[arg(long)]
    keep: bool,
    /// Do not compare with the files of this machine that have not changed since
    #[arg(long)]
    no_source: bool,
    /// Do not keep the result in the repository
    #[arg(long)]
    no_record: bool,
    /// Run this in the folder with the restored files; the drill fails if it does
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
    /// How many threads read and write [default: one per core, and two]
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    #[command(flatten)]
    booting: BootArgs,
    #[command(flatten)]
    narrowing: NarrowingArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

/// How much is restored if nothing else is said.
const BYTES_USUAL: u64 = 1 << 30;

/// How long a command that is asked to stop may take for it.
const GRACE: Duration = Duration::from_secs(5);

fn parse_seed(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16)
        .map_err(|_| "write the seed as a drill printed it: up to 16 digits from 0 to f".to_owned())
}

impl Args {
    fn amount(&self) -> DrillAmount {
        match (self.sample, self.files) {
            (Some(percent), _) => DrillAmount::Percent(percent),
            (None, Some(files)) => DrillAmount::Files(files),
            (None, None) => DrillAmount::Bytes(self.bytes.unwrap_or(BYTES_USUAL)),
        }
    }

    /// Where the scratch folder is made: a backup leaves the cache of its repository out.
    fn scratch(&self, repository: &Repository) -> Result<PathBuf, CliError> {
        if let Some(scratch) = &self.scratch {
            return Ok(scratch.clone());
        }
        let Some(cache) = repository.cache_folder() else { return Ok(std::env::temp_dir()) };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&cache).map_err(|error| {
            let message = format!("cannot make the folder {}: {error}", printable(&cache));
            CliError::new(Exit::Failed, message, "choose another folder with --scratch DIR")
        })?;
        Ok(cache)
    }
}

/// Drills it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let what = SnapshotArg::from(args.what.clone());
    if args.booting.boot {
        let around = (&args.narrowing, &args.replicas, !args.no_record);
        return match &args.booting.set {
            Some(file) => set::run(context, file, &args.booting, around),
            None => boot::run(context, &what, &args.booting, around),
        };
    }
    if args.booting.is_given() {
        let message = "how a machine is started was given, but not that it is";
        return Err(CliError::new(Exit::Usage, message, "add --boot, or leave these options out"));
    }
    let amount = args.amount();
    if !args.no_record {
        context.check_present()?;
    }
    let repository = context.open_to_read(&args.replicas)?;
    let own = args.narrowing.or_own_host(&repository, what.name == "latest")?;
    let snapshot = what.find(context, &repository, &own)?;
    let exit = check_complete(context, &snapshot);
    let exit = exit_of_missing(&snapshot, &what.path, exit);
    let options = DrillOptions {
        path: what.path.clone(),
        amount,
        seed: args.seed,
        scratch: args.scratch(&repository)?,
        host: host_name(),
        keep: args.keep,
        source: !args.no_source,
        record: !args.no_record,
        workers: args.threads.unwrap_or_else(restore_threads),
    };
    let monitor = context.terminal.monitor(Words::files("restored"));
    let judge = |folder: &Path| {
        let command = args.command.as_ref()?;
        let part = folder.join(OsStr::from_bytes(what.path.strip_prefix(b"/").unwrap_or_default()));
        let place = if part.is_dir() { &part } else { folder };
        monitor.finish();
        run_command(context, command, place).err()
    };
    let outcome = drill(&repository, &snapshot, &options, &judge, &monitor, &context.cancel);
    monitor.finish();
    let outcome = outcome?;
    report(context, &snapshot, &outcome, &monitor)?;
    Ok(exit_of(&outcome, exit).into())
}

fn exit_of(outcome: &DrillOutcome, otherwise: Exit) -> Exit {
    let is_failed = |finding: &DrillFinding| finding.verdict() == DrillVerdict::Failed;
    match outcome.verdict {
        DrillVerdict::Proved => otherwise,
        DrillVerdict::Incomplete => Exit::Incomplete,
        DrillVerdict::Failed if outcome.findings.iter().any(is_failed) => Exit::Damaged,
        // Only the command is against it.
        DrillVerdict::Failed => Exit::Failed,
    }
}

/// Runs a command in a folder, and says why it failed.
fn run_command(context: &Context, text: &str, folder: &Path) -> Result<(), String> {
    let mut command = child::shell(text);
    command.current_dir(folder).env("STRONGROOM_DRILL", folder);
    let patience = Patience { whole: None, grace: GRACE };
    let mut each = |stream: Stream, line: &str| match (stream, context.json()) {
        (Stream::Out, false) => drop(context.terminal.line(line)),
        // With `--json`, standard output is for events.
        _ => write_wrapped("", line),
    };
    match child::run(command, b"", patience, &context.cancel, &mut each) {
        Ok(ended) if ended.ending == Ending::Code(0) => Ok(()),
        Ok(ended) => Err(format!("the command {text:?} {}", ended.ending)),
        Err(error) => Err(format!("the command {text:?} cannot be run: {error}")),
    }
}

/// A verdict in one word, for programs.
pub fn verdict_text(verdict: DrillVerdict) -> &'static str {
    match verdict {
        DrillVerdict::Proved => "proved",
        DrillVerdict::Incomplete => "incomplete",
        DrillVerdict::Failed => "failed",
    }
}

/// The last drill of a snapshot, for programs.
pub fn drill_json(drill: &Drill) -> serde_json::Value {
    json!({
        "time": dates::rfc3339(drill.time),
        "verdict": verdict_text(drill.verdict),
        "files": drill.files,
        "bytes": drill.bytes,
        "last_proved": drill.proved.map(dates::rfc3339),
    })
}

/// The last drill of a snapshot in a few words.
pub fn drill_text(drill: &Drill) -> String {
    let day = dates::day(drill.time);
    match drill.verdict {
        DrillVerdict::Proved => format!("proved {day}"),
        DrillVerdict::Incomplete => format!("drill incomplete {day}"),
        DrillVerdict::Failed => format!("drill failed {day}"),
    }
}

fn report(
    context: &Context,
    snapshot: &Snapshot,
    outcome: &DrillOutcome,
    monitor: &TerminalMonitor,
) -> Result<(), CliError> {
    context.terminal.json(&summary_json(snapshot, outcome, monitor.elapsed()))?;
    for line in summary(snapshot, outcome, monitor.elapsed()) {
        context.terminal.line(line)?;
    }
    if let Some(error) = &outcome.not_recorded {
        context.terminal.note(format!(
            "the result is not kept in the repository: {error}; --no-record does not try to"
        ));
    }
    Ok(())
}

fn summary_json(
    snapshot: &Snapshot,
    outcome: &DrillOutcome,
    elapsed: Duration,
) -> serde_json::Value {
    let source = &outcome.source;
    json!({
        "event": "summary",
        "snapshot": snapshot.id.to_string(),
        "partial": snapshot.partial,
        "verdict": verdict_text(outcome.verdict),
        "seed": format!("{:016x}", outcome.seed),
        "next_seed": format!("{:016x}", outcome.next),
        "seconds": elapsed.as_secs_f64(),
        "restore_seconds": outcome.restore_time.as_secs_f64(),
        "full_restore_seconds": outcome.full_restore_time.map(|time| time.as_secs_f64()),
        "files": outcome.files,
        "directories": outcome.directories,
        "bytes": outcome.bytes,
        "bytes_written": outcome.bytes_written,
        "entries": outcome.entries.0,
        "entries_total": outcome.entries.1,
        "findings": outcome.findings.iter().map(|finding| json!({
            "path": name_json(&finding.path),
            "verdict": verdict_text(finding.verdict()),
            "message": finding.kind.to_string(),
        })).collect::<Vec<_>>(),
        "source": {
            "same": source.same,
            "changed": source.changed,
            "gone": source.gone,
            "different": source.different,
            "unreadable": source.unreadable,
        },
        "same_as_before": outcome.same_as_before,
        "judged": outcome.judged,
        "kept": outcome.kept.as_deref().map(path_json),
        "recorded": outcome.recorded,
    })
}

fn summary(snapshot: &Snapshot, outcome: &DrillOutcome, elapsed: Duration) -> Vec<String> {
    let verdict = match outcome.verdict {
        DrillVerdict::Proved => "proved restorable",
        DrillVerdict::Incomplete => "not proved",
        DrillVerdict::Failed => "FAILED",
    };
    let (entries, all) = outcome.entries;
    let mut lines = vec![
        format!(
            "{verdict}: {}, {}, restored and compared in {}",
            counted(outcome.files, "file", "files"),
            bytes_text(outcome.bytes),
            duration_text(elapsed),
        ),
        from_line(snapshot),
        format!(
            "  a sample of {} of {}; seed {:016x}",
            count_text(entries),
            counted(all, "entry", "entries"),
            outcome.seed
        ),
    ];
    let seconds = outcome.restore_time.as_secs_f64();
    if let Some(full) = outcome.full_restore_time.filter(|_| seconds > 0.0) {
        lines.push(format!(
            "  restored at {}/s; a restore of all of it would take about {}",
            bytes_text((outcome.bytes_written as f64 / seconds) as u64),
            duration_text(full),
        ));
    }
    let source = &outcome.source;
    if source.same + source.different > 0 {
        lines.push(format!(
            "  {} unchanged here: {} the same, {} not; {} changed since or gone",
            counted(source.same + source.different, "file is", "files are"),
            count_text(source.same),
            count_text(source.different),
            count_text(source.changed + source.gone),
        ));
    }
    if outcome.same_as_before == Some(true) {
        lines.push("  the same as when this sample was drilled before".to_owned());
    }
    if let Some(judged) = &outcome.judged {
        lines.push(format!("  {}", printable_text(judged)));
    }
    if let Some(kept) = &outcome.kept {
        lines.push(format!("  the restored files are in {}", printable(kept)));
    }
    lines.extend(next_step(outcome));
    lines
}

fn next_step(outcome: &DrillOutcome) -> Option<String> {
    let is = |wanted: fn(&FindingKind) -> bool| {
        outcome.findings.iter().any(|finding| wanted(&finding.kind))
    };
    let count = |verdict| {
        outcome.findings.iter().filter(|finding| finding.verdict() == verdict).count() as u64
    };
    let failed = count(DrillVerdict::Failed);
    if is(|kind| matches!(kind, FindingKind::Damaged { .. } | FindingKind::NamesLost { .. })) {
        return Some(format!(
            "  {} wrong, see above: run `strongroom verify`, then `strongroom repair`",
            counted(failed, "entry is", "entries are")
        ));
    }
    if failed > 0 {
        return Some(format!(
            "  {} not what was stored, see above: check the disk and the memory of this machine",
            counted(failed, "entry is", "entries are")
        ));
    }
    if is(|kind| matches!(kind, FindingKind::SourceDiffers { .. })) {
        return Some(
            "  a file here differs from its backup, see above: look at both (--keep), and keep the \
             good one"
                .to_owned(),
        );
    }
    let untried = count(DrillVerdict::Incomplete);
    (untried > 0).then(|| {
        format!(
            "  {} not proved, see above: run the drill as root, or with another --scratch",
            counted(untried, "entry was", "entries were")
        )
    })
}
