//! `strongroom ls`

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use strongroom_arena::CacheLimits;
use strongroom_base::units::bytes_text;
use strongroom_base::{Monitor, Problem, Severity};
use strongroom_catalog::{Entry, EntryKind, Snapshot};
use strongroom_engine::{WantedEvent, WantedWalk};
use strongroom_repository::{
    ChunkReader, EnteredDirectory, Found, RepositoryError, SnapshotEvent, find_path,
};
use strongroom_source::PathFilter;

use crate::context::{Context, ReplicaArgs};
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::filter_args::FilterArgs;
use crate::paint::{Line, Style, name_text};
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg, check_complete};
use crate::terminal::{name_json, printable_text};

/// What is listed.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The snapshot, and the path in it: `latest`, `latest:/etc`; without a path, what was backed up
    #[arg(value_name = "SNAPSHOT[:PATH]", default_value = "latest")]
    what: OsString,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    narrowing: NarrowingArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

/// How it is listed.
#[derive(Debug, Clone, clap::Args)]
struct How {
    /// Also list what is below the directories
    #[arg(long, short = 'R')]
    recursive: bool,
    /// Go only this many levels down; implies --recursive
    #[arg(long, short = 'L', alias = "level", value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,
    /// Draw directories and what is below them as a tree
    #[arg(long)]
    tree: bool,
    /// Show mode, owner, size and time
    #[arg(long, short)]
    long: bool,
    /// With --long, print sizes such as 1.5 MiB
    #[arg(long)]
    human_readable: bool,
}

impl How {
    /// How many levels are listed.
    fn levels(&self) -> usize {
        match self.depth {
            Some(depth) => depth as usize,
            None if self.recursive || self.tree => usize::MAX,
            None => 1,
        }
    }
}

/// Lists it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    let filter = args.filter.resolve()?;
    let repository = context.open_to_read(&args.replicas)?;
    let what = SnapshotArg::from(args.what);
    let snapshot = what.find(context, &repository, &args.narrowing)?;
    what.report(context, &snapshot);
    check_complete(context, &snapshot);
    let reader = ChunkReader::of_domain(&repository, &snapshot.domain, CacheLimits::default())?;
    let listing = Listing {
        context,
        how: &args.how,
        filter: filter.as_ref(),
        reader: &reader,
        shown: Cell::new(0),
    };
    let mut exit = listing.list_all(&snapshot, &what.path)?;
    if filter.is_some() && listing.shown.get() == 0 && exit == Exit::Done {
        exit = FilterArgs::report_nothing(context);
    }
    context.terminal.json(&json!({
        "event": "summary",
        "snapshot": snapshot.id.to_string(),
        "partial": snapshot.partial,
        "path": name_json(&what.path),
    }))?;
    Ok(exit.into())
}

/// What is listed, and how.
struct Listing<'a> {
    context: &'a Context,
    how: &'a How,
    filter: Option<&'a PathFilter>,
    reader: &'a ChunkReader,
    /// How many entries were listed.
    shown: Cell<u64>,
}

impl Listing<'_> {
    fn list_all(&self, snapshot: &Snapshot, path: &[u8]) -> Result<Exit, CliError> {
        if !path.is_empty() {
            return self.list(&find_path(snapshot, path, self.reader)?);
        }
        // What was backed up, rather than the directories above it.
        let mut exit = Exit::Done;
        for path in &snapshot.paths {
            match find_path(snapshot, path, self.reader) {
                Ok(found) => match self.list(&found)? {
                    Exit::Done => {}
                    damaged => exit = damaged,
                },
                // The backup did not get to it, or it was gone by then.
                Err(RepositoryError::NoSuchPath { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(exit)
    }

    fn walk(&self, found: &Found) -> WantedWalk<'_> {
        WantedWalk::new(found, self.filter, self.reader, &self.context.cancel)
    }

    /// Lists a file, or what is in a directory. Returns [`Exit::Damaged`] if entries of it are lost.
    fn list(&self, found: &Found) -> Result<Exit, CliError> {
        let mut exit = Exit::Done;
        let mut walk = self.walk(found);
        let mut branches = Branches::default();
        let mut level = 0;
        while let Some(WantedEvent { event, .. }) = walk.next()? {
            match event {
                SnapshotEvent::Enter(directory) => {
                    let goes_on = level < self.how.levels();
                    let children = match self.how.tree && goes_on {
                        true => self.entries_of(&directory)?,
                        false => 0,
                    };
                    if level > 0 || self.how.tree {
                        match directory.entry {
                            Some(entry) => {
                                self.show(entry, directory.path, &branches.next(level))?;
                            }
                            None => self.show_top()?,
                        }
                    }
                    self.shown.update(|shown| shown + u64::from(level > 0));
                    if goes_on {
                        level += 1;
                        branches.enter(level, children);
                    } else {
                        walk.skip();
                    }
                }
                SnapshotEvent::Leaf { path, entry } => {
                    self.shown.update(|shown| shown + 1);
                    self.show(entry, path, &branches.next(level))?;
                }
                SnapshotEvent::Leave { .. } => level -= 1,
                SnapshotEvent::Lost { path, error } => {
                    exit = Exit::Damaged;
                    let message = format!("some entries of this directory are lost: {error}");
                    let path = Some(Path::new(OsStr::from_bytes(path)));
                    let monitor = self.context.terminal.monitor_of_problems();
                    let severity = Severity::Damage;
                    monitor.problem(Problem { severity, path, message: &message });
                }
            }
        }
        Ok(exit)
    }

    /// How many entries of a directory are listed: which is the last is drawn before what is below
    /// it.
    fn entries_of(&self, directory: &EnteredDirectory<'_>) -> Result<usize, CliError> {
        let found = directory.found();
        let mut walk = self.walk(&found);
        let mut count = 0;
        let mut is_inside = false;
        while let Some(WantedEvent { event, .. }) = walk.next()? {
            match event {
                SnapshotEvent::Enter(_) if !is_inside => is_inside = true,
                SnapshotEvent::Enter(_) => {
                    count += 1;
                    walk.skip();
                }
                SnapshotEvent::Leaf { .. } => count += 1,
                // What is lost is reported by the listing itself.
                SnapshotEvent::Leave { .. } | SnapshotEvent::Lost { .. } => {}
            }
        }
        Ok(count)
    }

    fn show_top(&self) -> Result<(), CliError> {
        if self.context.json() { Ok(()) } else { Ok(self.context.terminal.result("/")?) }
    }

    fn show(&self, entry: &Entry, path: &[u8], branches: &str) -> Result<(), CliError> {
        let Self { context, how, .. } = self;
        context.terminal.json(&entry_json(entry, path))?;
        if context.json() {
            return Ok(());
        }
        let mut line = Line::default();
        if how.long {
            line = line.then(&attributes(entry, how.human_readable)).then(" ");
        }
        let is_below = how.tree && !branches.is_empty();
        let name = if is_below { entry.name.as_slice() } else { path };
        if how.tree {
            line = line.then(branches);
        }
        line = line.styled(Style::of(entry), &name_text(name));
        line = if how.long {
            line.then(&arrow(entry))
        } else {
            line.then(if entry.is_directory() { "/" } else { "" })
        };
        Ok(context.terminal.painted(&line)?)
    }
}

/// The lines of a tree, in front of a name.
#[derive(Default)]
struct Branches {
    /// How many entries are still to come, of each directory on the way.
    left: Vec<usize>,
}

impl Branches {
    fn enter(&mut self, level: usize, entries: usize) {
        self.left.truncate(level - 1);
        self.left.push(entries);
    }

    /// Those of the next entry of the directory at this level.
    fn next(&mut self, level: usize) -> String {
        self.left.truncate(level);
        let Some((last, above)) = self.left.split_last_mut() else { return String::new() };
        *last = last.saturating_sub(1);
        let line = |left: &usize| if *left > 0 { "│   " } else { "    " };
        let mut text: String = above.iter().map(line).collect();
        text.push_str(if *last > 0 { "├── " } else { "└── " });
        text
    }
}

/// As `ls -l` shows it.
pub fn long(entry: &Entry, path: &[u8], human_readable: bool) -> Line {
    let line = Line::plain(&attributes(entry, human_readable)).then(" ");
    line.styled(Style::of(entry), &name_text(path)).then(&arrow(entry))
}

fn arrow(entry: &Entry) -> String {
    match &entry.kind {
        EntryKind::Symlink { target } => format!(" -> {}", name_text(target)),
        _ => String::new(),
    }
}

/// All but the name.
fn attributes(entry: &Entry, human_readable: bool) -> String {
    let meta = &entry.metadata;
    let size = match &entry.kind {
        EntryKind::CharDevice(device) | EntryKind::BlockDevice(device) => {
            format!("{}, {}", device.major, device.minor)
        }
        _ if human_readable => bytes_text(meta.size),
        _ => meta.size.to_string(),
    };
    let width = if human_readable { 10 } else { 12 };
    format!(
        "{} {:>3} {:<8} {:<8} {size:>width$} {}",
        mode_text(entry),
        meta.links,
        meta.user.as_deref().map_or(meta.uid.to_string(), printable_text),
        meta.group.as_deref().map_or(meta.gid.to_string(), printable_text),
        dates::text(meta.mtime),
    )
}

fn mode_text(entry: &Entry) -> String {
    let kind = match entry.kind {
        EntryKind::File { .. } => '-',
        EntryKind::Directory { .. } => 'd',
        EntryKind::Symlink { .. } => 'l',
        EntryKind::Fifo => 'p',
        EntryKind::Socket => 's',
        EntryKind::CharDevice(_) => 'c',
        EntryKind::BlockDevice(_) => 'b',
    };
    format!("{kind}{}", entry.metadata.permissions_text())
}

/// An entry for programs.
pub fn entry_json(entry: &Entry, path: &[u8]) -> Value {
    let kind = match entry.kind {
        EntryKind::File { .. } => "file",
        EntryKind::Directory { .. } => "directory",
        EntryKind::Symlink { .. } => "symlink",
        EntryKind::Fifo => "fifo",
        EntryKind::Socket => "socket",
        EntryKind::CharDevice(_) => "char-device",
        EntryKind::BlockDevice(_) => "block-device",
    };
    let meta = &entry.metadata;
    let target = match &entry.kind {
        EntryKind::Symlink { target } => Some(name_json(target)),
        _ => None,
    };
    json!({
        "event": "entry",
        "path": name_json(path),
        "kind": kind,
        "target": target,
        "mode": format!("{:04o}", meta.mode),
        "uid": meta.uid,
        "gid": meta.gid,
        "user": meta.user.as_deref(),
        "group": meta.group.as_deref(),
        "bytes": meta.size,
        "mtime": dates::rfc3339(meta.mtime),
        "links": meta.links,
    })
}
