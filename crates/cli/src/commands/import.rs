//! `strongroom import`

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use strongroom_base::units::{bytes_text, counted, duration_text};
use strongroom_base::{Cancel, Severity, SnapshotId};
use strongroom_catalog::{Origin, Snapshot};
use strongroom_engine::{AsMade, BackupOptions, BackupOutcome, EngineError, backup};
use strongroom_repository::{
    PackOptions, Repository, RepositoryError, SnapshotList, list_snapshots,
};
use strongroom_source::{ForeignRoot, SourceOptions};

use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::import::{Failure, Foreign, Kind, Shown, Source};
use crate::passphrase::{ask_foreign, foreign_passphrase};
use crate::progress::Words;
use crate::running::{RecordedMonitor, RunningRecord};
use crate::terminal::{name_json, printable, printable_bytes};

/// How the progress is worded.
const WORDS: Words = Words { new_and_known: Some(("new", "known")), ..Words::files("imported") };
/// Threads that read files. The other program answers most questions one after the other.
const READERS: usize = 4;

/// What is taken over.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Whose repository it is
    #[arg(value_enum)]
    program: Kind,
    /// The place of that repository, as that program takes it
    #[arg(value_name = "REPO")]
    from: OsString,
    /// Read the passphrase of that repository from the first line of this file
    #[arg(long, value_name = "FILE", conflicts_with = "from_password_command")]
    from_password_file: Option<PathBuf>,
    /// Read the passphrase of that repository from the first line that this shell command prints
    #[arg(long, value_name = "COMMAND")]
    from_password_command: Option<String>,
    /// Import only this snapshot, by its id or by the name of its archive; can be given several times
    #[arg(long = "snapshot", value_name = "ID")]
    snapshots: Vec<String>,
    /// Import nothing; list what would be imported
    #[arg(long, short = 'n')]
    dry_run: bool,
}

const HELP: &str = "\
All snapshots are imported, from the oldest on, with their times, hosts, users, paths and tags; \
the name of a Borg archive becomes a label. What was imported before is passed over, so an import \
that was stopped goes on when it is run again. Imported snapshots are older than all that were made \
here: `latest` means one of them only if there is no other.

The other program reads its repository and mounts it in a temporary folder, so it must be \
installed, and FUSE too. It takes its passphrase from the same variables as ever (RESTIC_PASSWORD, \
BORG_PASSPHRASE and so on). Nothing is written into its repository, except for locks while it is \
read.";

/// What an import did.
#[derive(Debug, Default)]
struct Done {
    imported: u64,
    known: u64,
    unreadable: u64,
    problems: u64,
    bytes: u64,
    bytes_new: u64,
    files_read: u64,
}

/// Takes it over.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let passphrase = foreign_passphrase(
        args.from_password_file.as_ref(),
        args.from_password_command.as_deref(),
    )?;
    let mut source = Source::new(args.program, &args.from, passphrase, &context.cancel)?;
    let repository = context.open()?;
    if !repository.keys.can_read() {
        let message = "an import has to see which snapshots are here, and this key can only store";
        return Err(CliError::new(
            Exit::Failed,
            message,
            "use the passphrase of a key that may read",
        ));
    }
    let listing = match source.list() {
        Err(error) if error.is_of_passphrase() && can_ask(args) => {
            source.set_passphrase(ask_foreign(&args.from.to_string_lossy(), &context.cancel)?);
            source.list()?
        }
        other => other?,
    };
    let origin = |snapshot: &Foreign| Origin {
        program: args.program.name().to_owned(),
        repository: listing.repository.clone(),
        snapshot: snapshot.origin.clone(),
    };
    let chosen = choose(&listing.snapshots, &args.snapshots, args)?;
    let mut known = known_origins(&repository)?;
    let begun = Instant::now();
    let mut done = Done::default();
    let mut told = HashSet::new();
    for (place, snapshot) in listing.snapshots.iter().enumerate() {
        if !chosen.contains(&place) {
            continue;
        }
        context.cancel.check().map_err(RepositoryError::from)?;
        if let Some(here) = known.get(&origin(snapshot)) {
            done.known += 1;
            if here.is_incomplete {
                let id = here.id.short();
                context.terminal.note(format!(
                    "{} was imported without some of its files; when {} can read them, \
                     `strongroom forget {id}`, and the next import takes it again",
                    snapshot.name,
                    args.program.name()
                ));
            }
            continue;
        }
        if args.dry_run {
            done.imported += 1;
            context.terminal.json(&foreign_json("planned", args.program, snapshot))?;
            context.terminal.line(format!("would import {}", sentence(snapshot)))?;
            continue;
        }
        // The one before it of the same files: what did not change since is not read again.
        let earlier = listing.snapshots[..place].iter().rev();
        let before = earlier.filter(|earlier| is_series(earlier, snapshot));
        let before = before.filter_map(|one| Some((one, known.get(&origin(one))?.id))).next();
        let shown = match source.show(snapshot, before.map(|(earlier, _)| earlier)) {
            Ok(shown) => shown,
            Err(failure) => {
                pass_over(context, &mut source, snapshot, failure)?;
                done.unreadable += 1;
                continue;
            }
        };
        for note in &shown.notes {
            // Most are the same for all snapshots.
            if told.insert(note.clone()) {
                context.terminal.problem(Severity::Note, note);
            }
        }
        for warning in &shown.warnings {
            context.terminal.problem(Severity::Warning, warning);
        }
        done.problems += shown.warnings.len() as u64;
        let options = options(shown, before.map(|(_, parent)| parent), origin(snapshot));
        let outcome = match import(context, &repository, &mut source, snapshot, &options) {
            Ok(outcome) => outcome,
            Err(failure) => {
                pass_over(context, &mut source, snapshot, failure)?;
                done.unreadable += 1;
                continue;
            }
        };
        let stats = &outcome.snapshot.stats;
        known.insert(origin(snapshot), Here::of(&outcome.snapshot));
        done.imported += 1;
        done.problems += stats.problems;
        done.bytes += stats.bytes;
        done.bytes_new += stats.bytes_new;
        done.files_read += outcome.files_new + outcome.files_changed;
        report(context, args.program, snapshot, &outcome)?;
    }
    summarise(context, args, &done, begun.elapsed())
}

/// A person can be asked for a passphrase, and has given none.
fn can_ask(args: &Args) -> bool {
    let is_given = args.from_password_file.is_some() || args.from_password_command.is_some();
    !is_given && std::io::stdin().is_terminal()
}

/// Whether two snapshots are of the same files.
fn is_series(one: &Foreign, other: &Foreign) -> bool {
    one.host == other.host && one.paths == other.paths
}

/// The snapshots that are wanted, by their places.
fn choose(
    snapshots: &[Foreign],
    wanted: &[String],
    args: &Args,
) -> Result<HashSet<usize>, CliError> {
    if wanted.is_empty() {
        return Ok((0..snapshots.len()).collect());
    }
    let mut chosen = HashSet::new();
    for text in wanted {
        let named = |snapshot: &&(usize, &Foreign)| {
            snapshot.1.name == *text
                || (text.len() >= 4 && snapshot.1.id.starts_with(text.as_str()))
        };
        let all: Vec<(usize, &Foreign)> = snapshots.iter().enumerate().collect();
        let found: Vec<usize> = all.iter().filter(named).map(|(place, _)| *place).collect();
        let fail = |what: String| {
            let hint = "`strongroom import --dry-run` lists what can be imported";
            Err(CliError::new(Exit::Failed, what, hint))
        };
        match found[..] {
            [place] => chosen.insert(place),
            [] => {
                let place = printable(args.from.as_ref());
                return fail(format!("there is no snapshot \"{text}\" in {place}"));
            }
            _ => return fail(format!("\"{text}\" names {} snapshots", found.len())),
        };
    }
    Ok(chosen)
}

/// An imported snapshot as it is here.
struct Here {
    id: SnapshotId,
    is_incomplete: bool,
}

impl Here {
    fn of(snapshot: &Snapshot) -> Self {
        Self { id: snapshot.id, is_incomplete: snapshot.stats.problems > 0 }
    }
}

/// Which snapshots of other programs are here, and as what.
fn known_origins(repository: &Repository) -> Result<HashMap<Origin, Here>, CliError> {
    Ok(origins_in(list_snapshots(repository)?, repository.secret.domain_name()))
}

/// Origins of the snapshots in a list, and what each is here. One that lacks files and was forgotten is imported again, so it does not count.
/// Nor does what a machine says that may only store: it could keep from being imported what is not here.
fn origins_in(list: SnapshotList, own_domain: &str) -> HashMap<Origin, Here> {
    let is_trusted = |one: &Snapshot| one.domain.is_empty() || one.domain == own_domain;
    let forgotten = list.forgotten.into_iter().filter(|snapshot| snapshot.stats.problems == 0);
    let all = forgotten.chain(list.snapshots).filter(is_trusted);
    all.filter_map(|snapshot| Some((snapshot.origin.clone()?, Here::of(&snapshot)))).collect()
}

/// Says why a snapshot is not imported. Fails if there is no other to go on with.
fn pass_over(
    context: &Context,
    source: &mut Source,
    snapshot: &Foreign,
    failure: Failure,
) -> Result<(), CliError> {
    context.cancel.check().map_err(RepositoryError::from)?;
    let error = match failure {
        Failure::OfAll(error) => return Err(error),
        Failure::OfSnapshot(error) => error,
    };
    // If the repository cannot be reached any more, no other snapshot can be read either.
    source.list()?;
    let warning = format!("{} was not imported: {error}", snapshot.name);
    context.terminal.problem(Severity::Warning, &warning);
    Ok(())
}

fn options(shown: Shown, parent: Option<SnapshotId>, origin: Origin) -> BackupOptions {
    let Shown { root, snapshot, accounts, corrections, changed, files, .. } = shown;
    let root = ForeignRoot { path: root, accounts, corrections };
    BackupOptions {
        paths: vec![PathBuf::from("/")],
        source: SourceOptions { root: Some(root), ..SourceOptions::default() },
        host: snapshot.host,
        user: snapshot.user,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        labels: snapshot.labels,
        force: false,
        dry_run: false,
        parent,
        count_first: false,
        pack: PackOptions::default(),
        readers: READERS,
        program: concat!("strongroom ", env!("CARGO_PKG_VERSION")).to_owned(),
        as_made: Some(AsMade {
            importer: crate::machine::host_name(),
            started: snapshot.started,
            ended: snapshot.ended,
            paths: snapshot.paths,
            origin,
            changed,
            files,
        }),
    }
}

/// Backs up what the mount shows. If the mount ends meanwhile, so does this, and nothing is kept.
fn import(
    context: &Context,
    repository: &Repository,
    source: &mut Source,
    snapshot: &Foreign,
    options: &BackupOptions,
) -> Result<BackupOutcome, Failure> {
    let (cancel, ended) = (Cancel::new(), AtomicBool::new(false));
    let shown = context.terminal.monitor(WORDS);
    let paths = snapshot.paths.iter().map(|path| PathBuf::from(OsString::from_vec(path.clone())));
    let paths: Vec<PathBuf> = paths.collect();
    let place = context.place_text()?;
    let record = RunningRecord::begin(context.cache(), "import", &place, &paths);
    let monitor = RecordedMonitor { shown: &shown, record };
    let outcome = std::thread::scope(|scope| {
        let mount = source.mount();
        scope.spawn(|| {
            let mut mount = mount;
            while !ended.load(Ordering::Relaxed) {
                let is_alive = mount.as_mut().is_none_or(|mount| mount.is_alive());
                if context.cancel.is_cancelled() || !is_alive {
                    return cancel.cancel();
                }
                std::thread::sleep(crate::import::LOOK_EVERY);
            }
        });
        let outcome = backup(repository, options, &monitor, &cancel);
        ended.store(true, Ordering::Relaxed);
        outcome
    });
    drop(monitor);
    shown.finish();
    drop(shown);
    context.cancel.check().map_err(RepositoryError::from).map_err(CliError::from)?;
    let mount = source.mount();
    if let Some(mount) = mount
        && !mount.is_alive()
    {
        let words = mount.last_words();
        let why = words.lines().rev().find(|line| !line.is_empty());
        let why = why.map(|line| format!(": {line}")).unwrap_or_default();
        // Borg's ends at the first chunk that is damaged.
        let message = format!("its mount ended while it was read{why}");
        return Err(Failure::OfSnapshot(CliError::new(Exit::Failed, message, AGAIN)));
    }
    match outcome {
        Ok(outcome) if outcome.committed => Ok(outcome),
        Ok(_) => {
            let message = format!("{} could not be read to its end", snapshot.name);
            Err(CliError::new(Exit::Failed, message, AGAIN).into())
        }
        Err(EngineError::Source(error)) => {
            let message = format!("its mount does not show it: {error}");
            Err(Failure::OfSnapshot(CliError::new(Exit::Failed, message, AGAIN)))
        }
        Err(error) => Err(Failure::OfAll(error.into())),
    }
}

const AGAIN: &str = "run it again: what was imported is kept, and this snapshot comes next";

/// `6a4c9e7b of 2026-11-25 13:42:04, web:/srv [daily]`.
fn sentence(snapshot: &Foreign) -> String {
    let Foreign { name, host, paths, labels, .. } = snapshot;
    let paths: Vec<String> = paths.iter().map(|path| printable_bytes(path)).collect();
    let mut text = format!("{name} of {}, {host}", dates::text(snapshot.started));
    if !paths.is_empty() {
        text.push_str(&format!(":{}", paths.join(", ")));
    }
    if !labels.is_empty() {
        text.push_str(&format!(" [{}]", labels.join(", ")));
    }
    text
}

fn foreign_json(event: &str, program: Kind, snapshot: &Foreign) -> Value {
    let paths: Vec<_> = snapshot.paths.iter().map(|path| name_json(path)).collect();
    json!({
        "event": event,
        "program": program.name(),
        "origin": snapshot.origin,
        "name": snapshot.name,
        "started": dates::rfc3339(snapshot.started),
        "host": snapshot.host,
        "user": snapshot.user,
        "paths": paths,
        "labels": snapshot.labels,
    })
}

fn report(
    context: &Context,
    program: Kind,
    snapshot: &Foreign,
    outcome: &BackupOutcome,
) -> Result<(), CliError> {
    let made = &outcome.snapshot;
    let found = Foreign { started: made.started, paths: made.paths.clone(), ..snapshot.clone() };
    let mut event = foreign_json("imported", program, &found);
    let numbers = json!({
        "snapshot": made.id.to_string(),
        "files": made.stats.files,
        "directories": made.stats.directories,
        "files_read": outcome.files_new + outcome.files_changed,
        "files_unchanged": outcome.files_unchanged,
        "bytes": made.stats.bytes,
        "bytes_new": made.stats.bytes_new,
        "bytes_stored": made.stats.bytes_stored,
        "problems": made.stats.problems,
    });
    if let (Value::Object(event), Value::Object(numbers)) = (&mut event, numbers) {
        event.extend(numbers);
    }
    context.terminal.json(&event)?;
    context.terminal.line(format!("imported {} as {}", sentence(&found), made.id.short()))?;
    context.terminal.line(format!(
        "  {}, {}, {} new; {} read",
        counted(made.stats.files, "file", "files"),
        bytes_text(made.stats.bytes),
        bytes_text(made.stats.bytes_new),
        counted(outcome.files_new + outcome.files_changed, "file was", "files were"),
    ))?;
    Ok(())
}

fn summarise(
    context: &Context,
    args: &Args,
    done: &Done,
    elapsed: std::time::Duration,
) -> Result<ExitCode, CliError> {
    context.terminal.json(&json!({
        "event": "summary",
        "dry_run": args.dry_run,
        "imported": done.imported,
        "known": done.known,
        "unreadable": done.unreadable,
        "files_read": done.files_read,
        "bytes": done.bytes,
        "bytes_new": done.bytes_new,
        "problems": done.problems,
        "seconds": elapsed.as_secs_f64(),
    }))?;
    let snapshots = |count: u64| counted(count, "snapshot", "snapshots");
    let known = match done.known {
        0 => String::new(),
        known => format!("; {} imported before", counted(known, "was", "were")),
    };
    if args.dry_run {
        let line = format!("dry run: {} would be imported{known}", snapshots(done.imported));
        context.terminal.line(line)?;
    } else {
        let rate = (done.bytes as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
        context.terminal.line(format!(
            "{} imported{known}: {} in {} ({}/s)",
            snapshots(done.imported),
            bytes_text(done.bytes),
            duration_text(elapsed),
            bytes_text(rate)
        ))?;
    }
    if done.unreadable > 0 {
        let line = format!("  {} could not be read: see the warnings", snapshots(done.unreadable));
        context.terminal.line(line)?;
    }
    if done.problems > 0 {
        let problems = counted(done.problems, "problem", "problems");
        context.terminal.line(format!("  {problems}: see the warnings above"))?;
    }
    if done.problems + done.unreadable > 0 {
        return Ok(Exit::Incomplete.into());
    }
    Ok(Exit::Done.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who may only store could say of anything that it is here.
    #[test]
    fn only_imports_of_those_who_may_read_count() {
        let origin = |snapshot: &str| Origin {
            program: "restic".to_owned(),
            repository: "r".to_owned(),
            snapshot: snapshot.to_owned(),
        };
        let snapshot = |number: u8, domain: &str, snapshot: &str| Snapshot {
            domain: domain.to_owned(),
            origin: Some(origin(snapshot)),
            ..Snapshot::empty(SnapshotId([number; 16]))
        };
        let list = || SnapshotList {
            snapshots: vec![snapshot(1, "", "a"), snapshot(2, "thief", "b")],
            forgotten: vec![snapshot(3, "thief", "c"), snapshot(4, "reader", "d")],
            ..SnapshotList::default()
        };
        let known = |own: &str| {
            let origins = origins_in(list(), own);
            let mut known: Vec<String> =
                origins.into_keys().map(|origin| origin.snapshot).collect();
            known.sort();
            known.concat()
        };
        assert_eq!(known(""), "a");
        assert_eq!(known("reader"), "ad");
    }
}
