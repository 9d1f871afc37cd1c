//! The files of an index: their names, the lock, the manifest. All changes to the directory are
//! here.
//!
//! Nothing is flushed to the medium: this is a cache, and every file is checked when read.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Context;
use crate::format::{Manifest, ManifestSegment, NUMBERS_END, pack_manifest_around};
use crate::segment::Segment;
use crate::segment_writer::SegmentWriter;
use crate::step::step;
use crate::{Damage, IndexError, Result};

const LOCK_NAME: &str = "LOCK";
const MANIFEST_NAME: &str = "MANIFEST";
const MANIFEST_NEW_NAME: &str = "MANIFEST.new";
const SEGMENT_EXTENSION: &str = "segment";

/// Private segments are numbered from here on, so that they are never mistaken for others.
const PRIVATE_BEGIN: u64 = NUMBERS_END;

/// How often a reader begins again because a writer committed meanwhile.
const LOAD_ATTEMPTS_MAX: usize = 100;

/// A directory that holds an index.
pub(crate) struct Directory {
    path: PathBuf,
    /// Held when this handle is the writer.
    lock: Option<Lock>,
    /// The number of the next segment. The writer's are never used twice while a manifest that
    /// names them may be read.
    next: u64,
}

impl Directory {
    /// Opens the directory at `path`, made if need be, as its writer if it has none.
    pub(crate) fn open(path: &Path) -> Result<Directory> {
        fs::create_dir_all(path).context("create", path)?;
        let lock = Lock::take(&path.join(LOCK_NAME))?;
        let next = if lock.is_some() { 0 } else { PRIVATE_BEGIN };
        Ok(Directory { path: path.to_owned(), lock, next })
    }

    /// Whether this handle may change what others read.
    pub(crate) fn is_writer(&self) -> bool {
        self.lock.is_some()
    }

    /// The note and the segments that are committed, oldest first.
    pub(crate) fn load(&mut self) -> Result<(Vec<u8>, Vec<Segment>)> {
        let mut before = None;
        for _ in 0..LOAD_ATTEMPTS_MAX {
            let manifest = self.read_manifest()?;
            let opened: Result<Vec<Segment>> =
                manifest.segments.iter().map(|segment| self.open_segment(segment)).collect();
            match opened {
                // A writer that commits removes segments that we were about to open.
                Err(error) if !self.is_writer() && before.as_ref() != Some(&manifest) => {
                    before = Some(manifest);
                    drop(error);
                }
                opened => {
                    if self.is_writer() {
                        self.next = manifest.next;
                    }
                    return Ok((manifest.note, opened?));
                }
            }
        }
        Err(Damage::Missing.at(&self.path))
    }

    /// Begins a new segment: the writer's, or a private one that has no name. `None` if this handle
    /// cannot write here at all.
    pub(crate) fn create_segment(&mut self) -> Result<Option<SegmentWriter>> {
        let number = self.next;
        let (file, path) = if self.is_writer() {
            let path = self.segment_path(number);
            step().context("create", &path)?;
            (open_new(OpenOptions::new().create(true).truncate(true), &path)?, path)
        } else {
            match create_nameless(&self.path) {
                Ok(created) => created,
                Err(IndexError::Io { source, .. }) if is_refused(&source) => return Ok(None),
                Err(error) => return Err(error),
            }
        };
        self.next += 1;
        SegmentWriter::new(file, path, number).map(Some)
    }

    /// Replaces the manifest: from now on `segments` and `note` are the contents.
    pub(crate) fn commit(&self, segments: &[ManifestSegment], note: &[u8]) -> Result<()> {
        let (head, checksum) = pack_manifest_around(self.next, segments, note);
        let path = self.path.join(MANIFEST_NEW_NAME);
        step().context("create", &path)?;
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
        let mut file = file.context("create", &path)?;
        step().context("write", &path)?;
        for part in [&head, note, &checksum] {
            file.write_all(part).context("write", &path)?;
        }
        step().context("rename", &path)?;
        fs::rename(&path, self.path.join(MANIFEST_NAME)).context("rename", &path)
    }

    /// Removes a segment of the writer's that no manifest names, if the system allows it: what
    /// stays is removed at the next opening.
    pub(crate) fn discard_segment(&self, number: u64) {
        if self.is_writer() {
            drop(remove(&self.segment_path(number)));
        }
    }

    /// Removes the manifest: from now on the directory holds an empty index.
    pub(crate) fn remove_manifest(&self) -> Result<()> {
        remove(&self.path.join(MANIFEST_NAME))
    }

    /// Removes what a crash has left: every file of ours that is neither the lock, nor the
    /// manifest, nor a segment in `keep`.
    pub(crate) fn sweep(&self, keep: &[u64]) -> Result<()> {
        let keep: Vec<PathBuf> = keep.iter().map(|number| self.segment_path(*number)).collect();
        for entry in fs::read_dir(&self.path).context("list", &self.path)? {
            let path = entry.context("list", &self.path)?.path();
            let ours = path.extension().is_some_and(|extension| extension == SEGMENT_EXTENSION)
                || path.file_name().is_some_and(|name| name == MANIFEST_NEW_NAME);
            if ours && !keep.contains(&path) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// The manifest; an empty one if there is none.
    fn read_manifest(&self) -> Result<Manifest> {
        let path = self.path.join(MANIFEST_NAME);
        match fs::read(&path) {
            Ok(bytes) => Manifest::unpack(bytes).map_err(|damage| damage.at(&path)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Manifest::default()),
            Err(error) => Err(error).context("read", &path),
        }
    }

    fn open_segment(&self, segment: &ManifestSegment) -> Result<Segment> {
        let path = self.segment_path(segment.number);
        match File::open(&path) {
            Ok(file) => Segment::open(file, path, segment),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Damage::Missing.at(&path)),
            Err(error) => Err(error).context("open", &path),
        }
    }

    fn segment_path(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:016x}.{SEGMENT_EXTENSION}"))
    }
}

/// The locked lock file; dropping it unlocks.
struct Lock(File);

impl Lock {
    /// `None` if another handle holds the lock or the file cannot be written.
    fn take(path: &Path) -> Result<Option<Lock>> {
        let file = match OpenOptions::new().write(true).create(true).truncate(false).open(path) {
            Ok(file) => file,
            Err(error) if is_refused(&error) => return Ok(None),
            Err(error) => return Err(error).context("open", path),
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).context("lock", path),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would leave the lock to a child that another thread has forked and that
        // has not called `exec` yet.
        let _ = self.0.unlock();
    }
}

/// Whether the directory is not ours to write.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

/// A new file in `directory` that has lost its name already, and the name it had.
fn create_nameless(directory: &Path) -> Result<(File, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("private-{}-{next}.{SEGMENT_EXTENSION}", std::process::id());
        let path = directory.join(name);
        match open_new(OpenOptions::new().create_new(true), &path) {
            Ok(file) => {
                remove(&path)?;
                return Ok((file, path));
            }
            // Left by a process that died between the two steps.
            Err(IndexError::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn open_new(options: &mut OpenOptions, path: &Path) -> Result<File> {
    options.read(true).write(true).open(path).context("create", path)
}

/// Removes a file, which may be gone already.
fn remove(path: &Path) -> Result<()> {
    step().context("remove", path)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.context("remove", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_a_forked_child_still_has_open_is_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LOCK_NAME);
        let first = Lock::take(&path).unwrap().unwrap();
        // As a child has it between `fork` and `exec`.
        let _inherited = first.0.try_clone().unwrap();
        assert!(Lock::take(&path).unwrap().is_none());
        drop(first);
        assert!(Lock::take(&path).unwrap().is_some());
    }
}
