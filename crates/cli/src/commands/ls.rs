//! `strongroom ls`

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use strongroom_arena::CacheLimits;
use strongroom_base::{Monitor, Problem, Severity};
use strongroom_catalog::{Entry, EntryKind};
use strongroom_repository::{
    ChunkReader, Found, RepositoryError, SnapshotEvent, SnapshotWalk, find_path,
};

use crate::context::{Context, ReplicaArgs};
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use crate::snapshot_arg::{SnapshotArg, check_complete};
use crate::terminal::{name_json, printable_bytes, printable_text};

/// What is listed.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The snapshot, and the path in it: `latest`, `latest:/etc`; without a path, what was backed up
    #[arg(value_name = "SNAPSHOT[:PATH]", default_value = "latest")]
    what: OsString,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

/// How it is listed.
#[derive(Debug, Clone, clap::Args)]
struct How {
    /// Also list what is below the directories
    #[arg(long, short = 'R')]
    recursive: bool,
    /// Show mode, owner, size and time
    #[arg(long, short)]
    long: bool,
}

/// Lists it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    let repository = context.open_to_read(&args.replicas)?;
    let what = SnapshotArg::from(args.what);
    let snapshot = what.find(&repository)?;
    check_complete(context, &snapshot);
    let reader = ChunkReader::new(&repository, CacheLimits::default())?;
    if !what.path.is_empty() {
        let found = find_path(&snapshot, &what.path, &reader)?;
        return Ok(list(context, &args.how, &found, &reader)?.into());
    }
    // What was backed up, rather than the directories above it.
    let mut exit = Exit::Done;
    for path in &snapshot.paths {
        match find_path(&snapshot, path, &reader) {
            Ok(found) => match list(context, &args.how, &found, &reader)? {
                Exit::Done => {}
                damaged => exit = damaged,
            },
            // The backup did not get to it, or it was gone by then.
            Err(RepositoryError::NoSuchPath { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(exit.into())
}

/// Lists a file, or what is in a directory. Returns [`Exit::Damaged`] if entries of it are lost.
fn list(
    context: &Context,
    how: &How,
    found: &Found,
    reader: &ChunkReader,
) -> Result<Exit, CliError> {
    let mut exit = Exit::Done;
    let mut walk = SnapshotWalk::new(found, reader, &context.cancel);
    let mut is_top = true;
    while let Some(event) = walk.next()? {
        let is_top = std::mem::take(&mut is_top);
        match event {
            SnapshotEvent::Enter(directory) => {
                if let Some(entry) = directory.entry.filter(|_| !is_top) {
                    show(context, how, entry, directory.path)?;
                    if !how.recursive {
                        walk.skip();
                    }
                }
            }
            SnapshotEvent::Leaf { path, entry } => show(context, how, entry, path)?,
            SnapshotEvent::Leave { .. } => {}
            SnapshotEvent::Lost { path, error } => {
                exit = Exit::Damaged;
                let message = format!("some entries of this directory are lost: {error}");
                let path = Some(Path::new(OsStr::from_bytes(path)));
                let monitor = context.terminal.monitor(Words::files("listed"));
                let severity = Severity::Damage;
                monitor.problem(Problem { severity, path, message: &message });
            }
        }
    }
    Ok(exit)
}

fn show(context: &Context, how: &How, entry: &Entry, path: &[u8]) -> Result<(), CliError> {
    context.terminal.json(&entry_json(entry, path))?;
    if !context.json() {
        let line = if how.long { long(entry, path) } else { short(entry, path) };
        context.terminal.result(line)?;
    }
    Ok(())
}

fn short(entry: &Entry, path: &[u8]) -> String {
    let slash = if entry.is_directory() { "/" } else { "" };
    format!("{}{slash}", printable_bytes(path))
}

/// As `ls -l` shows it.
pub fn long(entry: &Entry, path: &[u8]) -> String {
    let meta = &entry.metadata;
    let size = match &entry.kind {
        EntryKind::CharDevice(device) | EntryKind::BlockDevice(device) => {
            format!("{}, {}", device.major, device.minor)
        }
        _ => meta.size.to_string(),
    };
    let arrow = match &entry.kind {
        EntryKind::Symlink { target } => format!(" -> {}", printable_bytes(target)),
        _ => String::new(),
    };
    format!(
        "{} {:>3} {:<8} {:<8} {size:>12} {} {}{arrow}",
        mode_text(entry),
        meta.links,
        meta.user.as_deref().map_or(meta.uid.to_string(), printable_text),
        meta.group.as_deref().map_or(meta.gid.to_string(), printable_text),
        dates::text(meta.mtime),
        printable_bytes(path),
    )
}

fn mode_text(entry: &Entry) -> String {
    let mode = entry.metadata.mode;
    let mut text = String::from(match entry.kind {
        EntryKind::File { .. } => "-",
        EntryKind::Directory { .. } => "d",
        EntryKind::Symlink { .. } => "l",
        EntryKind::Fifo => "p",
        EntryKind::Socket => "s",
        EntryKind::CharDevice(_) => "c",
        EntryKind::BlockDevice(_) => "b",
    });
    for (shift, special, set, unset) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
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
