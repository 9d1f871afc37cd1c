//! `strongroom find`

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use globset::{GlobBuilder, GlobMatcher};
use serde_json::json;
use strongroom_arena::CacheLimits;
use strongroom_base::SnapshotId;
use strongroom_base::units::counted;
use strongroom_catalog::Snapshot;
use strongroom_repository::{ChunkReader, Found, RepositoryError, SnapshotWalk, list_snapshots};

use super::ls;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::snapshot_arg::SnapshotArg;

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
}

/// Finds it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let whole_path = args.pattern.contains('/');
    let matcher = GlobBuilder::new(&args.pattern)
        .case_insensitive(args.ignore_case)
        .literal_separator(whole_path)
        .build()
        .map_err(|error| {
            let hint = "put the pattern in quotes, such as '*.txt'";
            CliError::new(Exit::Failed, format!("invalid pattern: {error}"), hint)
        })?
        .compile_matcher();
    let repository = context.open()?;
    let all = list_snapshots(&repository)?.snapshots;
    let mut wanted: Vec<&Snapshot> = Vec::new();
    for name in &args.snapshots {
        wanted.push(SnapshotArg::from(name.as_os_str()).find_in(&all)?);
    }
    if args.snapshots.is_empty() {
        wanted = all.iter().collect();
    }
    let reader = ChunkReader::new(&repository, CacheLimits::default())?;
    let mut sightings = Sightings::default();
    for snapshot in wanted {
        find_in(context, snapshot, &matcher, whole_path, &reader, &mut sightings)?;
    }
    if sightings.found == 0 {
        context.terminal.note("nothing of that name");
    }
    sightings.print(context)?;
    Ok(Exit::Done.into())
}

/// How many sightings are kept before they are printed.
const SIGHTINGS_MAX: usize = 100_000;

/// What was found, with equal lines of successive snapshots joined.
#[derive(Default)]
struct Sightings {
    /// How many entries were found.
    found: u64,
    lines: Vec<Sighting>,
    /// The newest line of each path.
    newest: HashMap<Vec<u8>, usize>,
}

/// An entry that looks the same in some successive snapshots.
struct Sighting {
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
        self.found += 1;
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
        self.lines.push(Sighting { line, first: snapshot, last: snapshot, snapshots: 1 });
        Ok(())
    }

    fn print(&mut self, context: &Context) -> std::io::Result<()> {
        self.newest.clear();
        for Sighting { line, first, last, snapshots } in self.lines.drain(..) {
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

fn find_in(
    context: &Context,
    snapshot: &Snapshot,
    matcher: &GlobMatcher,
    whole_path: bool,
    reader: &ChunkReader,
    sightings: &mut Sightings,
) -> Result<(), CliError> {
    let mut walk = SnapshotWalk::new(&Found::root(snapshot), reader);
    while let Some(entry) = walk.next()? {
        context.cancel.check().map_err(RepositoryError::from)?;
        let subject = if whole_path { walk.path() } else { entry.name.as_slice() };
        if !matcher.is_match(Path::new(std::ffi::OsStr::from_bytes(subject))) {
            continue;
        }
        if context.json() {
            sightings.found += 1;
            let mut value = ls::entry_json(&entry, walk.path());
            value["snapshot"] = json!(snapshot.id.to_string());
            context.terminal.json(&value)?;
        } else {
            let line = ls::long(&entry, walk.path());
            sightings.add(context, walk.path(), line, snapshot.id)?;
        }
    }
    Ok(())
}
