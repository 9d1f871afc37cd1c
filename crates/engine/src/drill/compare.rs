//! What was restored is read back from the disk and compared with what was stored, by a reading of
//! the snapshot of its own; and with the files of this machine that have not changed since.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Monitor};
use strongroom_catalog::{Entry, Recipe, RecipeReader, Snapshot};
use strongroom_repository::{
    ChunkReader, DrillVerdict, Found, Repository, RepositoryError, SnapshotEvent,
    false_if_unreadable,
};
use strongroom_source::{DirectoryId, Existing, PathFilter, Target, TargetOptions};

use super::links::Links;
use super::live::{self, Live};
use super::{DrillFinding, FindingKind, SourceCounts};
use crate::error::EngineError;
use crate::wanted::{WantedEvent, WantedWalk};

/// At most this much is read at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// Fills a buffer from a place in a file.
type Read<'r> = &'r dyn Fn(u64, &mut [u8]) -> io::Result<()>;

/// Where the next stored byte is, at a place in a file or behind it; none if holes follow.
type NextStored<'r> = &'r dyn Fn(u64) -> Option<u64>;

/// Why the content of a file was not compared.
enum Failure {
    /// The drill cannot go on.
    Drill(EngineError),
    /// The file cannot be read: whether it is right is not known.
    File(io::Error),
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::Drill(error)
    }
}

/// What was found.
#[derive(Default)]
pub struct Compared {
    pub findings: Vec<DrillFinding>,
    pub source: SourceCounts,
    /// A hash of what was read back.
    pub digest: [u8; 32],
}

/// What is compared.
pub struct Comparison<'c> {
    pub repository: &'c Repository,
    pub snapshot: &'c Snapshot,
    /// What was to be restored, and how many entries that are.
    pub filter: &'c PathFilter,
    pub entries: u64,
    /// Where it was restored.
    pub scratch: &'c Path,
    pub target: TargetOptions,
    /// Whether the files of this machine are read too.
    pub source: bool,
}

/// Compares all that was chosen.
pub fn compare(
    comparison: &Comparison<'_>,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Compared, EngineError> {
    let reader = ChunkReader::for_restore(
        comparison.repository,
        &comparison.snapshot.domain,
        CacheLimits::default(),
    )?;
    let target = Target::open(comparison.scratch, comparison.target)?;
    let digest = blake3::Hasher::new();
    let compared = Compared::default();
    let links = Links::new();
    let mut run = Run { comparison, reader: &reader, target, cancel, links, digest, compared };
    let root = Found::root(comparison.snapshot);
    let mut walk = WantedWalk::new(&root, Some(comparison.filter), &reader, cancel);
    let mut levels: Vec<Level> = Vec::new();
    let mut seen = 0;
    while let Some(WantedEvent { event, on_the_way }) = walk.next()? {
        match event {
            SnapshotEvent::Enter(directory) => {
                seen += u64::from(!on_the_way);
                match run.enter(levels.last_mut(), directory.entry, directory.path)? {
                    Some(level) => levels.push(level),
                    None => walk.skip(),
                }
            }
            SnapshotEvent::Leaf { path, entry } => {
                seen += 1;
                monitor.working_on(&super::as_path(path));
                run.leaf(levels.last_mut(), entry, path)?;
            }
            SnapshotEvent::Leave { path } => {
                if let Some(level) = levels.pop() {
                    run.leave(&level, path);
                }
            }
            // It was found when the sample was taken.
            SnapshotEvent::Lost { .. } => {}
        }
    }
    // The restore chooses by the same filter: what it passes over, both would not see. What was found
    // already explains it, unless it says nothing against the restore.
    let is_proved = |finding: &DrillFinding| finding.verdict() == DrillVerdict::Proved;
    if seen != comparison.entries && run.compared.findings.iter().all(is_proved) {
        run.find(b"", FindingKind::Missing);
    }
    run.compared.digest = *run.digest.finalize().as_bytes();
    Ok(run.compared)
}

/// A directory that is being compared.
struct Level {
    id: DirectoryId,
    /// Names that exist, and that no entry was seen for.
    surplus: HashSet<Vec<u8>>,
}

struct Run<'r> {
    comparison: &'r Comparison<'r>,
    reader: &'r ChunkReader,
    target: Target,
    cancel: &'r Cancel,
    links: Links,
    digest: blake3::Hasher,
    compared: Compared,
}

impl Run<'_> {
    fn find(&mut self, path: &[u8], kind: FindingKind) {
        self.compared.findings.push(DrillFinding::new(path, kind));
    }

    /// Compares a directory itself, and lists it. None if it was not restored.
    fn enter(
        &mut self,
        above: Option<&mut Level>,
        entry: Option<&Entry>,
        path: &[u8],
    ) -> Result<Option<Level>, EngineError> {
        let (Some(above), Some(entry)) = (above, entry) else {
            return Ok(self.list(DirectoryId::ROOT, path));
        };
        if !self.has_same_metadata(above, entry, path) {
            return Ok(None);
        }
        match self.target.create_directory(above.id, &entry.name) {
            Ok(id) => Ok(self.list(id, path)),
            Err(error) => {
                self.find(path, FindingKind::Unreadable { why: error.to_string() });
                Ok(None)
            }
        }
    }

    fn list(&mut self, id: DirectoryId, path: &[u8]) -> Option<Level> {
        match self.target.list(id) {
            Ok(names) => Some(Level { id, surplus: names.into_iter().collect() }),
            Err(error) => {
                self.find(path, FindingKind::Unreadable { why: error.to_string() });
                None
            }
        }
    }

    fn leave(&mut self, level: &Level, path: &[u8]) {
        let mut surplus: Vec<&Vec<u8>> = level.surplus.iter().collect();
        surplus.sort();
        for name in surplus {
            self.find(&[path, b"/", name].concat(), FindingKind::Surplus);
        }
        if level.id != DirectoryId::ROOT {
            self.target.release(level.id);
        }
    }

    /// Compares all but the content of a file. Returns false if it is not there, or is of another
    /// kind.
    fn has_same_metadata(&mut self, above: &mut Level, entry: &Entry, path: &[u8]) -> bool {
        above.surplus.remove(&entry.name);
        self.digest.update(path);
        let differences = match self.target.differences(above.id, entry) {
            Ok(differences) => differences,
            Err(error) => {
                self.find(path, FindingKind::Unreadable { why: error.to_string() });
                return false;
            }
        };
        let is_there = !differences.missing && !differences.kind;
        self.digest.update(&[u8::from(differences.none())]);
        if !differences.none() {
            let kind = match differences.missing {
                true => FindingKind::Missing,
                false => FindingKind::Metadata { differences },
            };
            self.find(path, kind);
        }
        is_there
    }

    fn leaf(
        &mut self,
        above: Option<&mut Level>,
        entry: &Entry,
        path: &[u8],
    ) -> Result<(), EngineError> {
        let Some(above) = above else { return Ok(()) };
        let is_there = self.has_same_metadata(above, entry, path);
        let restored = is_there.then(|| self.target.inode_of(above.id, &entry.name).ok()).flatten();
        if !self.links.agree(entry, restored) {
            self.find(path, FindingKind::NotLinked);
        }
        if !is_there {
            return Ok(());
        }
        let Some(content) = entry.content() else { return Ok(()) };
        let restored = match self.target.existing(above.id, &entry.name) {
            Ok(Existing::File(file)) => file,
            Ok(_) => {
                let why = "this user may not read it".to_owned();
                self.find(path, FindingKind::Unreadable { why });
                return Ok(());
            }
            Err(error) => {
                self.find(path, FindingKind::Unreadable { why: error.to_string() });
                return Ok(());
            }
        };
        restored.forget_cached();
        let size = restored.size();
        let read = |offset: u64, buffer: &mut [u8]| restored.read_at(offset, buffer);
        let stored = |offset: u64| restored.next_extent(offset).map(|extent| extent.offset);
        match self.first_difference(content, size, (&read, &stored), true) {
            Ok(None) if self.comparison.source => {
                self.compare_source(entry, content, path, &|| hash(size, &read, self.cancel))?;
            }
            Ok(None) => {}
            Ok(Some(offset)) => self.find(path, FindingKind::Content { offset }),
            Err(Failure::File(error)) => {
                self.find(path, FindingKind::Unreadable { why: error.to_string() });
            }
            Err(Failure::Drill(error)) => return Err(error),
        }
        Ok(())
    }

    /// Compares a file of this machine, if it is the one that was backed up and has not changed.
    fn compare_source(
        &mut self,
        entry: &Entry,
        content: &Recipe,
        path: &[u8],
        restored: &dyn Fn() -> Result<String, EngineError>,
    ) -> Result<(), EngineError> {
        let live = match live::open_unchanged(&super::as_path(path), &entry.metadata) {
            Live::Unchanged(live) => live,
            Live::Changed => return count(&mut self.compared.source.changed),
            Live::Gone => return count(&mut self.compared.source.gone),
            Live::Unreadable(why) => {
                self.cannot_read_source(path, why);
                return Ok(());
            }
        };
        let read = |offset: u64, buffer: &mut [u8]| live.file.read_exact_at(buffer, offset);
        let stored = |offset: u64| live.next_stored(offset);
        let size = entry.metadata.size;
        let compared = self.first_difference(content, size, (&read, &stored), false);
        let compared = compared.and_then(|difference| match difference {
            None if !live.ends_at(size).map_err(Failure::File)? => Ok(Some(size)),
            difference => Ok(difference),
        });
        let difference = match compared {
            Ok(difference) => difference,
            Err(Failure::File(error)) => {
                self.cannot_read_source(path, error.to_string());
                return Ok(());
            }
            Err(Failure::Drill(error)) => return Err(error),
        };
        if !live.is_still(&entry.metadata) {
            return count(&mut self.compared.source.changed);
        }
        let Some(offset) = difference else { return count(&mut self.compared.source.same) };
        if !live.proves_rot {
            return count(&mut self.compared.source.changed);
        }
        self.compared.source.different += 1;
        let source = hash(size, &read, self.cancel)?;
        self.find(path, FindingKind::SourceDiffers { offset, source, restored: restored()? });
        Ok(())
    }

    fn cannot_read_source(&mut self, path: &[u8], why: String) {
        self.compared.source.unreadable += 1;
        self.find(path, FindingKind::SourceUnreadable { why });
    }

    /// Where the first chunk begins that a file does not have; none if it is what was stored. Of
    /// the snapshot only the recipe is read.
    fn first_difference(
        &mut self,
        content: &Recipe,
        size: u64,
        (read, stored): (Read<'_>, NextStored<'_>),
        digests: bool,
    ) -> Result<Option<u64>, Failure> {
        if size != content.stream_bytes() {
            return Ok(Some(size.min(content.stream_bytes())));
        }
        let mut recipe = RecipeReader::new(content, self.reader);
        let mut buffer = Vec::new();
        loop {
            self.cancel.check().map_err(EngineError::from)?;
            let next = recipe.next_chunk().map_err(RepositoryError::from);
            let Some((offset, chunk)) = next.map_err(EngineError::from)? else { return Ok(None) };
            let same = if chunk.is_hole() {
                is_zeros(offset, chunk.stream_bytes, (read, stored), &mut buffer, self.cancel)?
            } else {
                let Ok(bytes) = usize::try_from(chunk.stream_bytes) else {
                    return Ok(Some(offset));
                };
                buffer.resize(bytes, 0);
                let is_read = is_read(read, offset, &mut buffer)?;
                if digests {
                    self.digest.update(&self.reader.naming().data.fingerprint(&buffer).0);
                }
                let is_it = false_if_unreadable(self.reader.is_data(&chunk, &buffer));
                is_read && is_it.map_err(EngineError::from)?
            };
            if !same {
                return Ok(Some(offset));
            }
        }
    }
}

fn count(counter: &mut u64) -> Result<(), EngineError> {
    *counter += 1;
    Ok(())
}

/// Fills a buffer from a place in a file. False if the file ends before.
fn is_read(read: Read<'_>, offset: u64, buffer: &mut [u8]) -> Result<bool, Failure> {
    match read(offset, buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(Failure::File(error)),
    }
}

/// True if all that is stored of a file within a hole is zeros.
fn is_zeros(
    offset: u64,
    bytes: u64,
    (read, stored): (Read<'_>, NextStored<'_>),
    buffer: &mut Vec<u8>,
    cancel: &Cancel,
) -> Result<bool, Failure> {
    let end = offset.saturating_add(bytes);
    let mut from = offset;
    while let Some(next) = stored(from).filter(|next| *next < end) {
        cancel.check().map_err(EngineError::from)?;
        let piece = (end - next).min(PIECE_BYTES);
        // A piece is at most PIECE_BYTES.
        buffer.resize(piece as usize, 0);
        if !is_read(read, next, buffer)? || buffer.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        from = next + piece;
    }
    Ok(true)
}

/// The BLAKE3 hash of a file, as `b3sum` prints it.
fn hash(size: u64, read: Read<'_>, cancel: &Cancel) -> Result<String, EngineError> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = Vec::new();
    let mut done = 0;
    while done < size {
        cancel.check()?;
        // A piece is at most PIECE_BYTES.
        buffer.resize((size - done).min(PIECE_BYTES) as usize, 0);
        if read(done, &mut buffer).is_err() {
            return Ok("unreadable".to_owned());
        }
        hasher.update(&buffer);
        done += buffer.len() as u64;
    }
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use strongroom_base::Silent;

    use super::*;
    use crate::restore::{RestoreOptions, RestorePlace, restore};
    use crate::testing::World;

    #[test]
    fn a_name_that_became_a_file_of_its_own_is_found() {
        let world = World::new();
        world.write("a", b"content");
        let names = ["a", "b"].map(|name| world.tree().join(name));
        fs::hard_link(&names[0], &names[1]).unwrap();
        let snapshot = world.backup();
        let filter = PathFilter::exactly(names.clone());
        let scratch = world.folder.path().join("scratch");
        let options = RestoreOptions {
            path: Vec::new(),
            filter: Some(filter.clone()),
            place: RestorePlace::Into(scratch.clone()),
            target: TargetOptions::default(),
            kept: Vec::new(),
            dry_run: false,
            verify: false,
            workers: 2,
        };
        let cancel = Cancel::new();
        restore(&world.repository, &snapshot, &options, &Silent, &cancel).unwrap();
        let found_with = |entries, source| {
            let comparison = Comparison {
                repository: &world.repository,
                snapshot: &snapshot,
                filter: &filter,
                entries,
                scratch: &scratch,
                target: options.target,
                source,
            };
            compare(&comparison, &Silent, &cancel).unwrap().findings
        };
        let found = |entries| found_with(entries, false);
        assert_eq!(found(2), []);
        let missing = DrillFinding::new(b"", FindingKind::Missing);
        assert_eq!(found(3), std::slice::from_ref(&missing));
        // That the files here cannot be read hides nothing.
        let away = world.folder.path().join("away");
        fs::rename(world.tree(), &away).unwrap();
        std::os::unix::fs::symlink("tree", world.tree()).unwrap();
        assert_eq!(found_with(2, true).len(), 2);
        assert!(found_with(3, true).contains(&missing));
        fs::remove_file(world.tree()).unwrap();
        fs::rename(&away, world.tree()).unwrap();

        let second = scratch.join(names[1].strip_prefix("/").unwrap());
        let (folder, copy) = (second.parent().unwrap(), scratch.join("copy"));
        let times = [&second, folder].map(|path| path.metadata().unwrap().modified().unwrap());
        fs::copy(&second, &copy).unwrap();
        fs::rename(&copy, &second).unwrap();
        for (path, time) in [&second, folder].into_iter().zip(times) {
            fs::File::open(path).unwrap().set_modified(time).unwrap();
        }
        let path = names[1].to_str().unwrap().as_bytes();
        assert_eq!(found(2), [DrillFinding::new(path, FindingKind::NotLinked)]);
    }
}
