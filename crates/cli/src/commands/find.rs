//! `strongroom find`

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use globset::{GlobBuilder, GlobMatcher};
use serde_json::json;
use strongroom_arena::CacheLimits;
use strongroom_catalog::Snapshot;
use strongroom_repository::{ChunkReader, Found, RepositoryError, SnapshotWalk, list_snapshots};

use super::ls;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::snapshot_arg::SnapshotArg;

/// What is looked for, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A name with `*`, `?` and `[…]`; with a slash in it, a whole path
    pattern: String,
    /// In this snapshot alone; may be given several times
    #[arg(long = "snapshot", short, value_name = "SNAPSHOT")]
    snapshots: Vec<OsString>,
    /// Upper and lower case are the same
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
            CliError::new(Exit::Failed, format!("the pattern makes no sense: {error}"), hint)
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
    let mut found = 0_u64;
    for snapshot in wanted {
        found += find_in(context, snapshot, &matcher, whole_path, &reader)?;
    }
    if found == 0 {
        context.terminal.note("nothing of that name");
    }
    Ok(Exit::Done.into())
}

fn find_in(
    context: &Context,
    snapshot: &Snapshot,
    matcher: &GlobMatcher,
    whole_path: bool,
    reader: &ChunkReader,
) -> Result<u64, CliError> {
    let mut walk = SnapshotWalk::new(&Found::root(snapshot), reader);
    let mut found = 0;
    while let Some(entry) = walk.next()? {
        context.cancel.check().map_err(RepositoryError::from)?;
        let subject = if whole_path { walk.path() } else { entry.name.as_slice() };
        if !matcher.is_match(Path::new(std::ffi::OsStr::from_bytes(subject))) {
            continue;
        }
        found += 1;
        if context.json() {
            let mut value = ls::entry_json(&entry, walk.path());
            value["snapshot"] = json!(snapshot.id.to_string());
            context.terminal.json(&value)?;
        } else {
            let line = ls::long(&entry, walk.path());
            context.terminal.result(format!("{}  {line}", snapshot.id.short()))?;
        }
    }
    Ok(found)
}
