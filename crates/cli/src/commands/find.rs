//! `strongroom find`

mod criteria;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use globset::GlobBuilder;
use serde_json::json;
use strongroom_base::SnapshotId;
use strongroom_base::units::counted;
use strongroom_catalog::{Entry, Snapshot};
use strongroom_engine::{EngineError, FindPattern, Sighting, find};
use strongroom_repository::list_snapshots;
use strongroom_source::PathFilter;

use self::criteria::Criteria;
use super::ls;
use crate::context::{Context, ReplicaArgs};
use crate::exit::{CliError, Exit};
use crate::filter_args::FilterArgs;
use crate::paint::{Line, Style};
use crate::progress::{TerminalMonitor, Words};
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg, report_unread};

/// What is looked for, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A name with `*`, `?` and `[…]`; if it has a slash, a whole path
    #[arg(required_unless_present = "criteria")]
    pattern: Option<String>,
    /// As PATTERN, but upper and lower case are the same
    #[arg(long, value_name = "PATTERN", conflicts_with = "pattern", group = "criteria")]
    iname: Option<String>,
    #[command(flatten)]
    criteria: Criteria,
    /// Print sizes such as 1.5 MiB
    #[arg(long)]
    human_readable: bool,
    /// Search only this snapshot; may be given several times
    #[arg(long = "snapshot", short, value_name = "SNAPSHOT")]
    snapshots: Vec<OsString>,
    /// Ignore the difference of upper and lower case
    #[arg(long, short)]
    ignore_case: bool,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    narrowing: NarrowingArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

/// Finds it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let pattern = args.pattern.as_deref().or(args.iname.as_deref()).unwrap_or("*");
    let has_slash = pattern.contains('/');
    let matcher = GlobBuilder::new(pattern)
        .case_insensitive(args.ignore_case || args.iname.is_some())
        .literal_separator(has_slash)
        .build()
        .map_err(|error| {
            let hint = "put the pattern in quotes, such as '*.txt'";
            CliError::new(Exit::Failed, format!("invalid pattern: {error}"), hint)
        })?
        .compile_matcher();
    let filter = args.filter.resolve()?;
    let fits =
        |text: &[u8], entry: &Entry| matcher.is_match(as_path(text)) && args.criteria.fit(entry);
    let fits_filter = |path: &[u8], entry: &Entry| {
        let is_wanted = |filter: &PathFilter| filter.wants(as_path(path), entry.is_directory());
        fits(if has_slash { path } else { &entry.name }, entry)
            && filter.as_ref().is_none_or(is_wanted)
    };
    let pattern = match has_slash || filter.is_some() {
        true => FindPattern::Path(&fits_filter),
        false => FindPattern::Name(&fits),
    };
    let repository = context.open_to_read(&args.replicas)?;
    let list = list_snapshots(&repository)?;
    let mut exit = Exit::Done;
    let mut wanted: Vec<Snapshot> = Vec::new();
    for name in &args.snapshots {
        let name = SnapshotArg::from(name.as_os_str());
        wanted.push(name.find_listed(context, &list, &args.narrowing)?.clone());
    }
    if args.snapshots.is_empty() {
        let narrowing = args.narrowing.resolve();
        exit = report_unread(context, &list);
        wanted = list.snapshots.into_iter().filter(|snapshot| narrowing.fits(snapshot)).collect();
    }
    let monitor = context.terminal.monitor(Words::files("searched"));
    let mut sightings = Sightings::default();
    let mut visit = |sighting: &Sighting<'_>| {
        let Sighting { snapshot, path, entry } = sighting;
        if context.json() {
            let mut value = ls::entry_json(entry, path);
            value["snapshot"] = json!(snapshot.id.to_string());
            return context.terminal.json(&value).map_err(EngineError::Output);
        }
        let line = ls::long(entry, path, args.human_readable);
        sightings.add(&monitor, path, line, snapshot.id).map_err(EngineError::Output)
    };
    let outcome = find(&repository, &wanted, pattern, &mut visit, &monitor, &context.cancel);
    monitor.finish();
    let outcome = outcome?;
    if outcome.found == 0 {
        context.terminal.note(match args.criteria.is_none() {
            true => "nothing of that name",
            false => "nothing of that name, size, time and kind",
        });
    }
    sightings.print(&monitor)?;
    context.terminal.json(&json!({
        "event": "summary",
        "snapshots": wanted.len(),
        "found": outcome.found,
        "damaged": outcome.damaged,
    }))?;
    Ok(if outcome.damaged > 0 { Exit::Damaged } else { exit }.into())
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// How many sightings are kept before they are printed.
const SIGHTINGS_MAX: usize = 100_000;

/// What was found, with equal lines of successive snapshots joined.
#[derive(Default)]
struct Sightings {
    lines: Vec<Found>,
    /// The newest line of each path.
    newest: HashMap<Vec<u8>, usize>,
}

/// An entry that looks the same in some successive snapshots.
struct Found {
    line: Line,
    first: SnapshotId,
    last: SnapshotId,
    snapshots: u64,
}

impl Sightings {
    fn add(
        &mut self,
        monitor: &TerminalMonitor,
        path: &[u8],
        line: Line,
        snapshot: SnapshotId,
    ) -> std::io::Result<()> {
        if let Some(known) = self.newest.get(path).map(|place| &mut self.lines[*place])
            && known.line == line
        {
            known.last = snapshot;
            known.snapshots += 1;
            return Ok(());
        }
        if self.lines.len() >= SIGHTINGS_MAX {
            self.print(monitor)?;
        }
        self.newest.insert(path.to_vec(), self.lines.len());
        self.lines.push(Found { line, first: snapshot, last: snapshot, snapshots: 1 });
        Ok(())
    }

    fn print(&mut self, monitor: &TerminalMonitor) -> std::io::Result<()> {
        self.newest.clear();
        for Found { line, first, last, snapshots } in self.lines.drain(..) {
            let ids = match snapshots {
                1 => first.short(),
                _ => format!("{} to {}", first.short(), last.short()),
            };
            let count = counted(snapshots, "snapshot ", "snapshots");
            let ids = Line::default().styled(Style::Id, &format!("{ids:<20}"));
            monitor.painted(&ids.then(&format!("  {count:>13}  ")).and(&line))?;
        }
        Ok(())
    }
}
