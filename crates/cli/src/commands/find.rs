//! `strongroom find`

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use globset::GlobBuilder;
use serde_json::json;
use strongroom_base::SnapshotId;
use strongroom_base::units::counted;
use strongroom_catalog::Snapshot;
use strongroom_engine::{EngineError, FindPattern, Sighting, find};
use strongroom_repository::list_snapshots;

use super::ls;
use crate::context::{Context, ReplicaArgs};
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg};

/// What is looked for, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A name with `*`, `?` and `[…]`; if it has a slash, a whole path
    pattern: String,
    /// Search only this snapshot; may be given several times
    #[arg(long = "snapshot", short, value_name = "SNAPSHOT")]
    snapshots: Vec<OsString>,
    /// Ignore the difference of upper and lower case
    #[arg(long, short)]
    ignore_case: bool,
    #[command(flatten)]
    narrowing: NarrowingArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

/// Finds it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let has_slash = args.pattern.contains('/');
    let matcher = GlobBuilder::new(&args.pattern)
        .case_insensitive(args.ignore_case)
        .literal_separator(has_slash)
        .build()
        .map_err(|error| {
            let hint = "put the pattern in quotes, such as '*.txt'";
            CliError::new(Exit::Failed, format!("invalid pattern: {error}"), hint)
        })?
        .compile_matcher();
    let fits = |text: &[u8]| matcher.is_match(Path::new(OsStr::from_bytes(text)));
    let pattern = match has_slash {
        true => FindPattern::Path(&fits),
        false => FindPattern::Name(&fits),
    };
    let repository = context.open_to_read(&args.replicas)?;
    let all = list_snapshots(&repository)?.snapshots;
    let mut wanted: Vec<Snapshot> = Vec::new();
    for name in &args.snapshots {
        let name = SnapshotArg::from(name.as_os_str());
        wanted.push(name.find_among(&all, &args.narrowing)?.clone());
    }
    if args.snapshots.is_empty() {
        let narrowing = args.narrowing.resolve();
        wanted = all.into_iter().filter(|snapshot| narrowing.fits(snapshot)).collect();
    }
    let mut sightings = Sightings::default();
    let mut visit = |sighting: &Sighting<'_>| {
        let Sighting { snapshot, path, entry } = sighting;
        if context.json() {
            let mut value = ls::entry_json(entry, path);
            value["snapshot"] = json!(snapshot.id.to_string());
            return context.terminal.json(&value).map_err(EngineError::Output);
        }
        let line = ls::long(entry, path);
        sightings.add(context, path, line, snapshot.id).map_err(EngineError::Output)
    };
    let monitor = context.terminal.monitor(Words::files("searched"));
    let outcome = find(&repository, &wanted, pattern, &mut visit, &monitor, &context.cancel);
    monitor.finish();
    let outcome = outcome?;
    if outcome.found == 0 {
        context.terminal.note("nothing of that name");
    }
    sightings.print(context)?;
    Ok(if outcome.damaged > 0 { Exit::Damaged } else { Exit::Done }.into())
}

/// How many sightings are kept before they are printed.
const SIGHTINGS_MAX: usize = 100_000;

/// What was found, with equal lines of successive snapshots joined.
#[derive(Default)]
struct Sightings {
    lines: Vec<Line>,
    /// The newest line of each path.
    newest: HashMap<Vec<u8>, usize>,
}

/// An entry that looks the same in some successive snapshots.
struct Line {
    line: String,
    first: SnapshotId,
    last: SnapshotId,
    snapshots: u64,
}

impl Sightings {
    fn add(
        &mut self,
        context: &Context,
        path: &[u8],
        line: String,
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
            self.print(context)?;
        }
        self.newest.insert(path.to_vec(), self.lines.len());
        self.lines.push(Line { line, first: snapshot, last: snapshot, snapshots: 1 });
        Ok(())
    }

    fn print(&mut self, context: &Context) -> std::io::Result<()> {
        self.newest.clear();
        for Line { line, first, last, snapshots } in self.lines.drain(..) {
            let ids = match snapshots {
                1 => first.short(),
                _ => format!("{} to {}", first.short(), last.short()),
            };
            let count = counted(snapshots, "snapshot ", "snapshots");
            context.terminal.result(format!("{ids:<20}  {count:>13}  {line}"))?;
        }
        Ok(())
    }
}
