//! `SNAPSHOT` and `SNAPSHOT:PATH` on the command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use strongroom_base::units::counted;
use strongroom_base::{Severity, SnapshotId};
use strongroom_catalog::Snapshot;
use strongroom_repository::{
    Narrowing, Repository, RepositoryError, SnapshotList, SnapshotName, find_snapshot,
    find_snapshot_among, list_snapshots,
};

use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::machine::host_name;
use crate::terminal::{printable, printable_paths, printable_text};

/// A prefix of an identifier has at least this many digits.
pub const SHORTEST_ID: usize = 4;

/// A snapshot, and a path in it, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotArg {
    /// What names the snapshot.
    pub name: String,
    /// The path in it; empty for all.
    pub path: Vec<u8>,
}

impl From<&OsStr> for SnapshotArg {
    /// The path begins after the colon that ends the longest valid name.
    fn from(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        let name_bytes = plain_name(bytes).or_else(|| name_with_place(bytes));
        // If no name is valid, the error quotes the text before the first colon.
        let first_colon = || bytes.iter().position(|byte| *byte == b':');
        let name_bytes = name_bytes.or_else(first_colon).unwrap_or(bytes.len());
        let name = String::from_utf8_lossy(&bytes[..name_bytes]).into_owned();
        Self { name, path: bytes.get(name_bytes + 1..).unwrap_or_default().to_vec() }
    }
}

/// The length of the longest prefix that names a snapshot without an `@`.
fn plain_name(bytes: &[u8]) -> Option<usize> {
    let ends = (0..=bytes.len()).rev().filter(|end| matches!(bytes.get(*end), None | Some(b':')));
    let mut names = ends.filter_map(|end| Some((end, std::str::from_utf8(&bytes[..end]).ok()?)));
    let is_plain =
        |name: &str| !name.contains('@') && SnapshotName::parse(name, dates::last_moment).is_ok();
    names.find(|(_, name)| is_plain(name)).map(|(end, _)| end)
}

/// The length of a prefix such as `host:path@date`.
fn name_with_place(bytes: &[u8]) -> Option<usize> {
    let ats = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'@');
    let mut ends = ats.filter_map(|(at, _)| {
        let which = &bytes[at + 1..];
        let nothing = which.is_empty() || which.starts_with(b":");
        let which_bytes = if nothing { Some(0) } else { plain_name(which) };
        Some(at + 1 + which_bytes?)
    });
    ends.next()
}

impl From<OsString> for SnapshotArg {
    fn from(text: OsString) -> Self {
        Self::from(OsStr::from_bytes(&text.into_vec()))
    }
}

/// Which snapshots are meant: by every command that takes a name such as `latest`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct NarrowingArgs {
    /// Only snapshots of this host
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    host: Option<String>,
    /// Only snapshots that hold this path
    #[arg(long, value_name = "PATH", help_heading = HEADING)]
    path: Option<OsString>,
    /// Only snapshots with this label
    #[arg(long, visible_alias = "tag", value_name = "TEXT", help_heading = HEADING)]
    label: Option<String>,
}

const HEADING: &str = "Which snapshots";

impl NarrowingArgs {
    /// For those who choose. Snapshots have absolute paths; another is taken as from here.
    pub fn resolve(&self) -> Narrowing {
        let absolute = |path: &OsString| std::path::absolute(path).map(PathBuf::into_os_string);
        let path = self.path.as_ref().map(|path| absolute(path).unwrap_or_else(|_| path.clone()));
        let path = path.map(OsStringExt::into_vec);
        Narrowing { host: self.host.clone(), path, label: self.label.clone() }
    }

    /// Whether all snapshots are meant.
    pub fn is_none(&self) -> bool {
        self.resolve() == Narrowing::default()
    }

    /// The same; or those of this machine alone, if nothing says which are meant, it `may` be these, and there
    /// are some.
    pub fn or_own_host(&self, repository: &Repository, may: bool) -> Result<Self, CliError> {
        let own = host_name();
        let is_own = |snapshot: &Snapshot| snapshot.host == own;
        let is_meant =
            may && self.is_none() && list_snapshots(repository)?.snapshots.iter().any(is_own);
        Ok(match is_meant {
            true => Self { host: Some(own), ..self.clone() },
            false => self.clone(),
        })
    }

    /// As it would be typed; empty if all snapshots are meant.
    fn text(&self) -> String {
        let path = self.path.as_ref().map(|path| printable(Path::new(path)));
        let options = [("host", self.host.clone()), ("path", path), ("label", self.label.clone())];
        let given = options.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let words = given.map(|(name, value)| format!("--{name} {}", printable_text(&value)));
        words.collect::<Vec<_>>().join(" ")
    }
}

impl SnapshotArg {
    /// The snapshot that is meant.
    pub fn find(
        &self,
        context: &Context,
        repository: &Repository,
        narrowing: &NarrowingArgs,
    ) -> Result<Snapshot, CliError> {
        let list = list_snapshots(repository)?;
        let found = self.find_listed(context, &list, narrowing).cloned();
        if found.is_err() && self.name.len() >= SHORTEST_ID {
            if let Some(late) = list.late.iter().find(|late| late.id.starts_with(&self.name)) {
                let (snapshot, domain) = (late.id, late.domain.clone());
                return Err(RepositoryError::AfterTheEnd { snapshot, domain }.into());
            }
            let mut unread = list.newer.into_iter().chain(list.unreadable);
            // It exists, and there is a reason why it cannot be used.
            if let Some((_, why)) = unread.find(|(id, _)| id.starts_with(&self.name)) {
                return Err(why.into());
            }
        }
        found
    }

    /// The snapshot that is meant, among those of a list. One that cannot be read may be the one that
    /// `latest` would mean: that is said.
    pub fn find_listed<'s>(
        &self,
        context: &Context,
        list: &'s SnapshotList,
        narrowing: &NarrowingArgs,
    ) -> Result<&'s Snapshot, CliError> {
        let found = self.find_among(&list.snapshots, narrowing)?;
        let unread = list.unreadable.len() + list.newer.len();
        if unread > 0 && self.is_relative() && !context.passed_over.swap(true, Ordering::Relaxed) {
            let unread = counted(unread as u64, "snapshot", "snapshots");
            let message = format!(
                "{unread} cannot be read, and may be newer than the one that is used: \
                 `strongroom snapshots` names what cannot be read, and why"
            );
            context.terminal.problem(Severity::Warning, &message);
        }
        Ok(found)
    }

    /// Whether another snapshot would change what the name means.
    pub fn is_relative(&self) -> bool {
        let name = SnapshotName::parse(&self.name, dates::last_moment);
        !matches!(name, Ok(SnapshotName::Prefix(_)) | Err(_))
    }

    /// The snapshot that is meant, among these.
    pub fn find_in<'s>(&self, snapshots: &'s [Snapshot]) -> Result<&'s Snapshot, CliError> {
        let name = SnapshotName::parse(&self.name, dates::last_moment)?;
        Ok(find_snapshot(snapshots, &name, &self.path, &self.name)?)
    }

    /// The snapshot that is meant, among these, if it fits.
    pub fn find_among<'s>(
        &self,
        snapshots: &'s [Snapshot],
        narrowing: &NarrowingArgs,
    ) -> Result<&'s Snapshot, CliError> {
        let name = SnapshotName::parse(&self.name, dates::last_moment)?;
        let resolved = narrowing.resolve();
        let found = find_snapshot_among(snapshots, &resolved, &name, &self.path, &self.name);
        found.map_err(|error| {
            let options = narrowing.text();
            let is_none = matches!(error, RepositoryError::NoSuchSnapshot { .. });
            if options.is_empty() || !is_none || self.find_in(snapshots).is_err() {
                return error.into();
            }
            let message = format!(
                "no snapshot that {} means fits {options}",
                format_args!("\"{}\"", printable_text(&self.name))
            );
            let hint = format!("`strongroom snapshots {options}` lists those that fit");
            CliError::new(Exit::Failed, message, hint)
        })
    }

    /// Says which snapshot is meant, if its name was not typed.
    pub fn report(&self, context: &Context, snapshot: &Snapshot) {
        if !self.is_relative() {
            return;
        }
        context.terminal.note(format!(
            "{} is {}",
            printable_text(&self.name),
            snapshot_text(snapshot)
        ));
    }
}

/// A snapshot in words.
fn snapshot_text(snapshot: &Snapshot) -> String {
    format!(
        "snapshot {} of {} ({}, {})",
        snapshot.id.short(),
        printable_paths(&snapshot.paths, ", "),
        printable_text(&snapshot.host),
        dates::text(snapshot.started),
    )
}

/// A line about the snapshot that something was taken from.
pub fn from_line(snapshot: &Snapshot) -> String {
    let incomplete = if snapshot.partial { "incomplete " } else { "" };
    format!("  from {incomplete}{}", snapshot_text(snapshot))
}

/// A name that is of a whole snapshot: a path behind it would be passed over.
fn whole(name: &OsString) -> Result<SnapshotArg, CliError> {
    let arg = SnapshotArg::from(name.clone());
    if arg.path.is_empty() {
        return Ok(arg);
    }
    let message = format!("{} is a path in a snapshot", printable(Path::new(name)));
    let hint = format!(
        "this is done to whole snapshots: write `{}` to mean the snapshot, or --path PATH to choose it by \
         what it holds",
        printable_text(&arg.name)
    );
    Err(CliError::new(Exit::Usage, message, hint))
}

/// The snapshots that these names mean, among these.
pub fn find_all(
    names: &[OsString],
    narrowing: &NarrowingArgs,
    snapshots: &[Snapshot],
) -> Result<Vec<SnapshotId>, CliError> {
    let find =
        |name: &OsString| whole(name)?.find_among(snapshots, narrowing).map(|found| found.id);
    names.iter().map(find).collect()
}

/// Snapshots that these names mean, for a command that changes what becomes of them.
pub fn find_surely(
    names: &[OsString],
    narrowing: &NarrowingArgs,
    list: &SnapshotList,
) -> Result<Vec<SnapshotId>, CliError> {
    check_sure(names, list)?;
    find_all(names, narrowing, &list.snapshots)
}

/// Fails if a name such as `latest` may mean a snapshot that cannot be read: what is meant for it would
/// be done to the one before it.
fn check_sure(names: &[OsString], list: &SnapshotList) -> Result<(), CliError> {
    let unread = list.unreadable.iter().chain(&list.newer).map(|(id, _)| *id).next();
    let unsure = names.iter().find(|name| SnapshotArg::from((*name).clone()).is_relative());
    let (Some(unread), Some(name)) = (unread, unsure) else { return Ok(()) };
    let (unread, name) = (unread.short(), printable(Path::new(name)));
    let message = format!("{name} may mean snapshot {unread}, which cannot be read");
    let hint = "write the id of the one that you mean: `strongroom snapshots` lists them";
    Err(CliError::new(Exit::Failed, message, hint))
}

/// The snapshots that these names mean; if none of the others has a name, one that is forgotten.
pub fn find_also_forgotten(
    names: &[OsString],
    narrowing: &NarrowingArgs,
    list: &SnapshotList,
) -> Result<Vec<Snapshot>, CliError> {
    check_sure(names, list)?;
    let find = |name: &OsString| {
        let name = whole(name)?;
        let found = name.find_among(&list.snapshots, narrowing);
        let or_forgotten = |error| name.find_among(&list.forgotten, narrowing).map_err(|_| error);
        found.or_else(or_forgotten).cloned()
    };
    names.iter().map(find).collect()
}

/// Names the snapshots that cannot be read, for a command that goes through several. What it then ends
/// with, if nothing worse happened.
pub fn report_unread(context: &Context, list: &SnapshotList) -> Exit {
    let report = |severity, id: SnapshotId, error: &RepositoryError| {
        context.terminal.problem(severity, &format!("snapshot {}: {error}", id.short()));
    };
    for (id, error) in &list.newer {
        report(Severity::Warning, *id, error);
    }
    for (id, error) in &list.unreadable {
        let is_withheld = error.is_withheld();
        report(if is_withheld { Severity::Warning } else { Severity::Damage }, *id, error);
    }
    exit_of_unread(list)
}

/// The same without naming them.
pub fn exit_of_unread(list: &SnapshotList) -> Exit {
    match list.unreadable.iter().all(|(_, error)| error.is_withheld()) {
        true if list.unreadable.is_empty() => Exit::Done,
        true => Exit::Withheld,
        false => Exit::Damaged,
    }
}

/// Warns if a snapshot is incomplete, or lacks one of its paths. What a command that gives out its
/// content then ends with, if nothing worse happened: also if one that cannot be read may be newer.
pub fn check_complete(context: &Context, snapshot: &Snapshot) -> Exit {
    let id = snapshot.id.short();
    if !snapshot.missing.is_empty() {
        let paths = printable_paths(snapshot.missing.keys(), ", ");
        let message = format!(
            "snapshot {id} lacks what was in {paths}: it could not be read, or was suddenly empty"
        );
        context.terminal.problem(Severity::Warning, &message);
    }
    if !snapshot.partial {
        return match context.passed_over.load(Ordering::Relaxed) {
            true => Exit::Incomplete,
            false => Exit::Done,
        };
    }
    let message = format!("snapshot {id} is incomplete: its backup was stopped before the end");
    context.terminal.problem(Severity::Warning, &message);
    Exit::Incomplete
}

/// What a command that brings back all below a path ends with, if nothing worse happened: it is not all, if the
/// snapshot lacks one of its sources there.
pub fn exit_of_missing(snapshot: &Snapshot, path: &[u8], exit: Exit) -> Exit {
    let at = |path: &[u8]| Path::new("/").join(OsStr::from_bytes(path));
    let path = at(path);
    let mut missing = snapshot.missing.keys().map(|missing| at(missing));
    let lacks_some =
        missing.any(|missing| missing.starts_with(&path) || path.starts_with(&missing));
    if exit == Exit::Done && lacks_some { Exit::Incomplete } else { exit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_where_the_path_begins() {
        for (text, name, path) in [
            ("latest", "latest", ""),
            ("latest:/home/me", "latest", "/home/me"),
            ("latest~2:home/me", "latest~2", "home/me"),
            ("latest-partial:/etc", "latest-partial", "/etc"),
            ("3fa2:a:b", "3fa2", "a:b"),
            ("2026-11-20", "2026-11-20", ""),
            ("2026-11-20 08:15", "2026-11-20 08:15", ""),
            ("2026-11-20 08:15:/etc", "2026-11-20 08:15", "/etc"),
            ("laptop:/home@latest:/home/me", "laptop:/home@latest", "/home/me"),
            ("laptop:/home@", "laptop:/home@", ""),
            ("laptop:/home@:/home/me", "laptop:/home@", "/home/me"),
            ("laptop:/home@2026-11-20 08:15:etc", "laptop:/home@2026-11-20 08:15", "etc"),
            ("laptop:/a@b/c@latest:/d", "laptop:/a@b/c@latest", "/d"),
            ("2026-11-20 08:15:30:/etc", "2026-11-20 08:15:30", "/etc"),
            ("latest:/home/me@latest", "latest", "/home/me@latest"),
            ("lates:/etc", "lates", "/etc"),
            ("nothing", "nothing", ""),
        ] {
            let arg = SnapshotArg::from(OsStr::new(text));
            assert_eq!((arg.name.as_str(), arg.path.as_slice()), (name, path.as_bytes()), "{text}");
        }
    }
}
