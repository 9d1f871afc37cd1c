//! `strongroom diff`

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use strongroom_base::units::{bytes_text, count_text, counted};
use strongroom_catalog::Snapshot;
use strongroom_engine::{
    Change, ChangeKind, DiffOptions, DiffOutcome, DiffSide, EngineError, Modified, Node, NodeKind,
    diff,
};
use strongroom_repository::list_snapshots;

use crate::context::{Context, ReplicaArgs};
use crate::exit::{CliError, Exit};
use crate::paint::{Line, Style, name_text};
use crate::progress::{TerminalMonitor, Words};
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg, check_complete};
use crate::terminal::name_json;

/// What is compared, and how thoroughly.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The snapshot, and the path in it: `latest~1`, `latest:/home/me`
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    before: OsString,
    /// Another snapshot, and the path in it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    after: Option<OsString>,
    /// Compare with this directory of this machine
    #[arg(long, value_name = "DIR", conflicts_with = "after")]
    with: Option<PathBuf>,
    /// Read files of this machine even if their size and times are the same as in the snapshot
    #[arg(long)]
    content: bool,
    /// Also show what differs only in its time
    #[arg(long)]
    times: bool,
    #[command(flatten)]
    narrowing: NarrowingArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

const HELP: &str = "\
With two snapshots, compares them; with --with, compares a snapshot with a directory; with neither, \
compares a snapshot with the present state of the paths that it was made from.

  + path            only in the second
  - path            only in the first
  M path (what)     in both, with another content, mode, owner, time or xattrs
  T path (a to b)   in both, of another kind";

/// Compares.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    let repository = context.open_to_read(&args.replicas)?;
    let list = list_snapshots(&repository)?;
    let before = SnapshotArg::from(args.before);
    let first = before.find_listed(context, &list, &args.narrowing)?;
    before.report(context, first);
    let after = args.after.map(SnapshotArg::from);
    let second = match &after {
        Some(after) => {
            let found = after.find_listed(context, &list, &args.narrowing);
            let found = found.map_err(|error| with_hint(after, error))?;
            after.report(context, found);
            Some(found)
        }
        None => None,
    };
    let monitor = context.terminal.monitor(Words::files("compared"));
    let mut total = DiffOutcome::default();
    let mut hidden = 0;
    check_complete(context, first);
    second.map(|second| check_complete(context, second));
    for pair in pairs(first, &before, second.zip(after.as_ref()), args.with.as_deref()) {
        let options = DiffOptions { content: args.content };
        let mut visit = |change: &Change| {
            let path = pair.shown(&change.path);
            context.terminal.json(&change_json(change, &path)).map_err(EngineError::Output)?;
            let is_hidden = !args.times && differs_only_in_time(change);
            hidden += u64::from(is_hidden);
            if context.json() || is_hidden {
                return Ok(());
            }
            show(change, &path, context.terminal.is_quiet(), &monitor)
        };
        let (before, after) = (pair.before(), pair.after());
        let outcome =
            diff(&repository, before, after, options, &mut visit, &monitor, &context.cancel)?;
        add(&mut total, &outcome);
    }
    monitor.finish();
    context.terminal.json(&summary_json(first, second, &total))?;
    for line in summary(&total, hidden) {
        context.terminal.line(line)?;
    }
    Ok(if total.damaged > 0 {
        Exit::Damaged
    } else if total.problems > 0 {
        Exit::Incomplete
    } else {
        Exit::Done
    }
    .into())
}

/// If no snapshot has the name, a directory may be meant.
fn with_hint(after: &SnapshotArg, error: CliError) -> CliError {
    if after.path.is_empty() && Path::new(&after.name).exists() {
        let hint = format!("to compare with a directory of this machine: --with {}", after.name);
        return CliError::new(Exit::Failed, error.to_string(), hint);
    }
    error
}

/// Two things that are compared, and how their paths are shown.
struct Pair<'p> {
    first: &'p Snapshot,
    path: Vec<u8>,
    second: Second<'p>,
    prefix: Vec<u8>,
}

enum Second<'p> {
    Snapshot(&'p Snapshot, &'p [u8]),
    Directory(PathBuf),
}

fn pairs<'p>(
    first: &'p Snapshot,
    before: &SnapshotArg,
    second: Option<(&'p Snapshot, &'p SnapshotArg)>,
    with: Option<&Path>,
) -> Vec<Pair<'p>> {
    let pair = |second, prefix| Pair { first, path: before.path.clone(), second, prefix };
    if let Some((snapshot, after)) = second {
        let is_whole = |path: &[u8]| path.iter().all(|byte| *byte == b'/');
        let whole = is_whole(&before.path) && is_whole(&after.path);
        let prefix = if whole { b"/".to_vec() } else { Vec::new() };
        return vec![pair(Second::Snapshot(snapshot, &after.path), prefix)];
    }
    if let Some(with) = with {
        return vec![pair(Second::Directory(with.to_owned()), Vec::new())];
    }
    let paths = match before.path.is_empty() {
        true => first.paths.clone(),
        false => vec![before.path.clone()],
    };
    let live = |path: Vec<u8>| Pair {
        first,
        second: Second::Directory(PathBuf::from(OsStr::from_bytes(&path))),
        prefix: path.clone(),
        path,
    };
    paths.into_iter().map(live).collect()
}

impl Pair<'_> {
    fn before(&self) -> DiffSide<'_> {
        DiffSide::Snapshot { snapshot: self.first, path: &self.path }
    }

    fn after(&self) -> DiffSide<'_> {
        match &self.second {
            Second::Snapshot(snapshot, path) => DiffSide::Snapshot { snapshot, path },
            Second::Directory(path) => DiffSide::Directory(path),
        }
    }

    fn shown(&self, path: &[u8]) -> Vec<u8> {
        let mut shown = self.prefix.clone();
        if !path.is_empty() && !shown.is_empty() && !shown.ends_with(b"/") {
            shown.push(b'/');
        }
        shown.extend_from_slice(path);
        if shown.is_empty() { b".".to_vec() } else { shown }
    }
}

fn differs_only_in_time(change: &Change) -> bool {
    let time = Modified { mtime: true, ..Modified::default() };
    change.kind == ChangeKind::Modified(time)
}

fn show(
    change: &Change,
    path: &[u8],
    quiet: bool,
    monitor: &TerminalMonitor,
) -> Result<(), EngineError> {
    if quiet {
        return Ok(());
    }
    let is_directory =
        |node: &Option<Node>| node.as_ref().is_some_and(|node| node.kind == NodeKind::Directory);
    let slash = if is_directory(&change.before) || is_directory(&change.after) { "/" } else { "" };
    let path = name_text(path);
    let slash = if path.ends_with('/') { "" } else { slash };
    let text = match (change.kind, &change.before, &change.after) {
        (ChangeKind::Added, ..) => format!("+ {path}{slash}"),
        (ChangeKind::Removed, ..) => format!("- {path}{slash}"),
        (ChangeKind::Modified(modified), ..) => {
            format!("M {path}{slash} ({})", parts(modified).join(", "))
        }
        (ChangeKind::Type, Some(before), Some(after)) => {
            format!("T {path} ({} to {})", kind_text(&before.kind), kind_text(&after.kind))
        }
        (ChangeKind::Type, ..) => format!("T {path}"),
    };
    let style = match change.kind {
        ChangeKind::Added => Some(Style::Good),
        ChangeKind::Removed => Some(Style::Bad),
        _ => None,
    };
    monitor.painted(&Line::default().styled(style, &text)).map_err(EngineError::Output)
}

/// What differs in an entry, in words.
fn parts(modified: Modified) -> Vec<&'static str> {
    let Modified { content, mode, owner, mtime, xattrs } = modified;
    let all = [
        (content, "content"),
        (mode, "mode"),
        (owner, "owner"),
        (mtime && !content, "time"),
        (xattrs, "xattrs"),
    ];
    all.into_iter().filter(|(differs, _)| *differs).map(|(_, name)| name).collect()
}

fn kind_text(kind: &NodeKind) -> &'static str {
    match kind {
        NodeKind::File => "file",
        NodeKind::Directory => "directory",
        NodeKind::Symlink { .. } => "symlink",
        NodeKind::Fifo => "fifo",
        NodeKind::Socket => "socket",
        NodeKind::CharDevice(_) => "char-device",
        NodeKind::BlockDevice(_) => "block-device",
    }
}

fn change_json(change: &Change, path: &[u8]) -> Value {
    let (what, modified) = match change.kind {
        ChangeKind::Added => ("added", Modified::default()),
        ChangeKind::Removed => ("removed", Modified::default()),
        ChangeKind::Type => ("type", Modified::default()),
        ChangeKind::Modified(modified) => ("modified", modified),
    };
    let node = |node: &Option<Node>| {
        node.as_ref().map(|node| json!({ "kind": kind_text(&node.kind), "bytes": node.bytes() }))
    };
    json!({
        "event": "change",
        "path": name_json(path),
        "change": what,
        "content": modified.content,
        "mode": modified.mode,
        "owner": modified.owner,
        "mtime": modified.mtime,
        "xattrs": modified.xattrs,
        "before": node(&change.before),
        "after": node(&change.after),
    })
}

fn add(total: &mut DiffOutcome, outcome: &DiffOutcome) {
    total.added += outcome.added;
    total.removed += outcome.removed;
    total.changed += outcome.changed;
    total.metadata += outcome.metadata;
    total.bytes_added += outcome.bytes_added;
    total.bytes_removed += outcome.bytes_removed;
    total.problems += outcome.problems;
    total.damaged += outcome.damaged;
}

/// `hidden`: how many changes are not shown because they are only in a time.
fn summary(total: &DiffOutcome, hidden: u64) -> Vec<String> {
    let mut lines = Vec::new();
    if total.is_same() {
        lines.push("no differences".to_owned());
    } else {
        lines.push(format!(
            "{} added, {} removed, {} changed, {} only in metadata",
            count_text(total.added),
            count_text(total.removed),
            count_text(total.changed),
            count_text(total.metadata.saturating_sub(hidden)),
        ));
        let (added, removed) = (bytes_text(total.bytes_added), bytes_text(total.bytes_removed));
        lines.push(format!("  {added} added, {removed} removed"));
        if hidden > 0 {
            let hidden = count_text(hidden);
            lines.push(format!("  {hidden} more only in a time: shown with --times"));
        }
    }
    if total.problems > 0 {
        let problems = counted(total.problems, "entry", "entries");
        lines.push(format!("  {problems} could not be compared: see the warnings above"));
    }
    if total.damaged > 0 {
        let damaged = counted(total.damaged, "directory is", "directories are");
        lines.push(format!("  {damaged} damaged in the repository: see above"));
    }
    lines
}

fn summary_json(first: &Snapshot, second: Option<&Snapshot>, total: &DiffOutcome) -> Value {
    json!({
        "event": "summary",
        "before": first.id.to_string(),
        "after": second.map(|snapshot| snapshot.id.to_string()),
        "same": total.is_same(),
        "added": total.added,
        "removed": total.removed,
        "changed": total.changed,
        "metadata": total.metadata,
        "bytes_added": total.bytes_added,
        "bytes_removed": total.bytes_removed,
        "problems": total.problems,
        "damaged": total.damaged,
    })
}
