//! `dump`: a snapshot, or a part of it, becomes a stream of bytes: a tar or zip archive, or the
//! content of one file.
//!
//! Members come in the order of the snapshot's walk, so the same snapshot gives the same archive,
//! byte for byte. A stream cannot be taken back: if a part of a file is lost, zeros replace it, the
//! file is reported and named in the outcome, and the rest follows.

mod acl;
mod ahead;
mod cat;
mod tar;
#[cfg(test)]
mod tests;
mod zip;

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Monitor, Problem, Progress, Severity};
use strongroom_catalog::{Entry, Snapshot};
use strongroom_repository::{ChunkReader, Found, Repository, RepositoryError, find_path};
use strongroom_source::PathFilter;

use crate::error::EngineError;
pub use ahead::ByteRange;
use ahead::{Item, LinkMode, Wanted, read_ahead};
pub use cat::{cat, cat_range};
use tar::TarArchive;
use zip::ZipArchive;

/// The format of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpFormat {
    /// POSIX tar with extended headers: everything but sockets.
    Tar,
    /// Zip: directories, files and symbolic links, with modes and times.
    Zip,
}

/// What is dumped of a snapshot.
#[derive(Debug, Clone, Copy)]
pub struct DumpPart<'p> {
    /// What is in this path; empty or `/` for all.
    pub path: &'p [u8],
    /// Of that, only what this wants.
    pub filter: Option<&'p PathFilter>,
}

/// The result of a dump.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DumpOutcome {
    /// Members of the archive that are not directories.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Entries that this format cannot hold, or only in part.
    pub left_out: u64,
    /// Files of which something is lost, with zeros in its place; directories of which names are
    /// lost.
    pub damaged: Vec<PathBuf>,
}

/// Writes a snapshot, or a part of it, as an archive. Names in the archive are relative to the path
/// of the part; a path that does not lead to a directory gives an archive of one member.
pub fn dump(
    repository: &Repository,
    snapshot: &Snapshot,
    part: DumpPart<'_>,
    format: DumpFormat,
    out: &mut dyn Write,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<DumpOutcome, EngineError> {
    let reader = ChunkReader::of_domain(repository, &snapshot.domain, CacheLimits::default())?;
    let found = find_path(snapshot, part.path, &reader)?;
    let is_whole = matches!(found, Found::Root { .. }) && part.filter.is_none();
    let total = is_whole.then_some(snapshot.stats);
    let progress = Progress {
        files_total: total.map(|stats| stats.files),
        bytes_total: total.map(|stats| stats.bytes),
        ..Progress::default()
    };
    let (filter, outcome) = (part.filter, DumpOutcome::default());
    let mut dumper = Dumper { monitor, cancel, filter, progress, current: None, outcome };
    match format {
        DumpFormat::Tar => {
            let mut archive = TarArchive::new(out);
            dumper.run(&reader, &found, LinkMode::First, &mut archive)?;
            archive.finish()?;
        }
        DumpFormat::Zip => {
            let mut archive = ZipArchive::new(out);
            dumper.run(&reader, &found, LinkMode::Each, &mut archive)?;
            archive.finish()?;
        }
    }
    monitor.progress(&dumper.progress);
    advise_repair(&reader, monitor);
    Ok(dumper.outcome)
}

fn advise_repair(reader: &ChunkReader, monitor: &dyn Monitor) {
    if reader.store().heals() > 0 {
        let message = "parts of the repository are damaged, and were repaired in memory from parity: run `strongroom repair`";
        monitor.problem(Problem { severity: Severity::Warning, path: None, message });
    }
}

/// Writes this many zeros, piece by piece.
fn write_zeros(
    mut bytes: u64,
    write: &mut dyn FnMut(&[u8]) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    while bytes > 0 {
        let piece = bytes.min(ZEROS.len() as u64);
        write(&ZEROS[..piece as usize])?;
        bytes -= piece;
    }
    Ok(())
}

/// One name of the archive.
struct Member<'m> {
    /// Relative to what is dumped; `.` for the top.
    path: &'m [u8],
    entry: &'m Entry,
    /// The first name of the same inode, if this is a further one.
    link: Option<&'m [u8]>,
}

/// How an archive took a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// Completely.
    Whole,
    /// Without something that the format cannot express.
    Without(&'static str),
    /// Not at all.
    Not(&'static str),
}

/// A format of archives. A member of a file is followed by all its content.
trait Archive {
    fn member(&mut self, member: &Member<'_>) -> Result<Taken, EngineError>;
    fn content(&mut self, bytes: &[u8]) -> Result<(), EngineError>;
}

/// The file whose content is being written.
struct Current {
    path: Vec<u8>,
    damaged: bool,
}

struct Dumper<'d> {
    monitor: &'d dyn Monitor,
    cancel: &'d Cancel,
    filter: Option<&'d PathFilter>,
    progress: Progress,
    current: Option<Current>,
    outcome: DumpOutcome,
}

impl Dumper<'_> {
    fn run(
        &mut self,
        reader: &ChunkReader,
        found: &Found,
        links: LinkMode,
        archive: &mut dyn Archive,
    ) -> Result<(), EngineError> {
        let cancel = self.cancel;
        let range = ByteRange::default();
        let wanted = Wanted { found, filter: self.filter, links, range };
        read_ahead(reader, wanted, cancel, &mut |item| match item {
            Item::Entry { path, entry, link } => {
                let member = Member { path: &path, entry: &entry, link: link.as_deref() };
                self.member(&member, archive)
            }
            Item::Chunk(Ok(chunk)) => {
                archive.content(&chunk)?;
                self.count(chunk.len() as u64);
                Ok(())
            }
            Item::Chunk(Err(lost)) => {
                if !lost.error.is_damage() {
                    return Err(lost.error.into());
                }
                self.lost(&lost.error);
                self.zeros(lost.bytes, archive)
            }
            Item::Hole(bytes) => self.zeros(bytes, archive),
            // An archive has whole files.
            Item::Before(_) => Ok(()),
            Item::LostNames { path, error } => {
                let message = format!("some entries of this directory are lost: {error}");
                self.damage(&path, &message);
                Ok(())
            }
        })
    }

    fn member(
        &mut self,
        member: &Member<'_>,
        archive: &mut dyn Archive,
    ) -> Result<(), EngineError> {
        let path = Path::new(OsStr::from_bytes(member.path));
        self.monitor.working_on(path);
        let taken = archive.member(member)?;
        let missing = match taken {
            Taken::Whole => None,
            Taken::Without(what) | Taken::Not(what) => Some(what),
        };
        if let Some(message) = missing {
            self.outcome.left_out += 1;
            let path = Some(path);
            self.monitor.problem(Problem { severity: Severity::Note, path, message });
        }
        if member.entry.is_directory() {
            self.outcome.directories += 1;
            return Ok(());
        }
        self.progress.files += 1;
        self.monitor.progress(&self.progress);
        if !matches!(taken, Taken::Not(_)) {
            self.outcome.files += 1;
        }
        if let Some(first) = member.link
            && self.outcome.damaged.iter().any(|damaged| damaged.as_os_str().as_bytes() == first)
        {
            self.damage(member.path, "it is another name of a damaged file");
        }
        self.current = Some(Current { path: member.path.to_vec(), damaged: false });
        Ok(())
    }

    fn zeros(&mut self, bytes: u64, archive: &mut dyn Archive) -> Result<(), EngineError> {
        let cancel = self.cancel;
        write_zeros(bytes, &mut |zeros| {
            cancel.check()?;
            archive.content(zeros)
        })?;
        self.count(bytes);
        Ok(())
    }

    fn count(&mut self, bytes: u64) {
        self.outcome.bytes += bytes;
        self.progress.bytes += bytes;
        self.progress.bytes_new += bytes;
        self.monitor.progress(&self.progress);
    }

    /// A part of the current file is lost. Reported once for each file.
    fn lost(&mut self, error: &RepositoryError) {
        let Some(current) = &mut self.current else { return };
        if !std::mem::replace(&mut current.damaged, true) {
            let path = current.path.clone();
            self.damage(&path, &format!("the lost parts of it are zeros in the archive: {error}"));
        }
    }

    fn damage(&mut self, path: &[u8], message: &str) {
        let path = PathBuf::from(OsStr::from_bytes(path));
        let problem = Problem { severity: Severity::Damage, path: Some(&path), message };
        self.monitor.problem(problem);
        self.outcome.damaged.push(path);
    }
}
