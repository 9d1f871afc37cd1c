//! Arenas that this machine has written lately, kept near: a backup of a repository on another
//! machine reads its parent's trees and the bases of deltas from here, not over the network.
//!
//! ```text
//! near/ID.G      an arena's object, as it was stored
//! ```
//!
//! The files are what the repository holds, sealed as there. Any of them may be missing, torn or
//! changed: what fails to open is read from the repository. Only a backup reads here: all other
//! verbs are asked what the repository holds. Which arenas there are, and what is in them, is no
//! question to what is near: an arena comes into the index from the place itself, and what is found
//! lost there is dropped here. The oldest files go first once there are more bytes than allowed; a
//! file that was read counts as new again.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW};
use strongroom_arena::{ArenaContent, ArenaName, NearArenas};
use strongroom_base::ArenaId;

/// The folder in the cache of a repository.
const FOLDER: &str = "near";
/// How many bytes of arenas with trees are kept: some ten million files.
const METADATA_BYTES_MAX: u64 = 512 << 20;
/// How many bytes of arenas with data are kept, for deltas.
const DATA_BYTES_MAX: u64 = 1 << 30;

/// Arenas that this machine has written lately.
#[derive(Debug)]
pub struct Near {
    folder: PathBuf,
    // A plain mutex: held for a look into a set.
    /// Those that were read by this process, and count as new.
    used: Mutex<HashSet<ArenaName>>,
}

impl Near {
    /// Those in a repository's cache.
    pub fn in_cache(cache: &Path) -> Self {
        Self { folder: cache.join(FOLDER), used: Mutex::default() }
    }

    /// Keeps an arena. That it fails costs only time.
    pub fn keep(&self, name: ArenaName, object: &[u8]) {
        // A full disk is better used by others.
        let _ = self.write(name, object);
    }

    fn write(&self, name: ArenaName, object: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let new = self.folder.join(format!("{name}.{}.new", std::process::id()));
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let written = file.write_all_at(object, 0);
        let written = written.and_then(|()| fs::rename(&new, self.folder.join(name.to_string())));
        if written.is_err() {
            // Nothing can be done about a file that cannot be removed either.
            let _ = fs::remove_file(&new);
        }
        written
    }

    /// Drops the copies of arenas for which `is_gone` is true: what is lost at the place is not relied
    /// on because it is whole here.
    pub fn forget(&self, is_gone: impl Fn(ArenaId) -> bool) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let arena = name.to_str().and_then(|name| name.parse::<ArenaName>().ok());
            if arena.is_some_and(|arena| is_gone(arena.id)) {
                // Another process may have removed it.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Removes the oldest files beyond what is allowed, and what killed processes left.
    pub fn trim(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut found: [Vec<(SystemTime, u64, PathBuf)>; 2] = Default::default();
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let age = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let name = entry.file_name();
            let arena = name.to_str().and_then(|name| name.parse::<ArenaName>().ok());
            let kind = match arena.map(|arena| ArenaContent::of(arena.id)) {
                Some(ArenaContent::Metadata) => &mut found[0],
                // What is not an arena counts here, and goes when it is old.
                Some(ArenaContent::Data) | None => &mut found[1],
            };
            kind.push((age, metadata.len(), entry.path()));
        }
        for (mut files, bytes_max) in found.into_iter().zip([METADATA_BYTES_MAX, DATA_BYTES_MAX]) {
            files.sort_by(|one, other| other.cmp(one));
            let mut bytes = 0_u64;
            for (_, length, path) in files {
                bytes = bytes.saturating_add(length);
                if bytes > bytes_max {
                    // Another process may have removed it.
                    let _ = fs::remove_file(path);
                }
            }
        }
    }

    /// Counts a file as new, once in this process.
    fn note_use(&self, name: ArenaName, path: &Path) {
        let is_first = self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        if is_first {
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let times = Timestamps { last_access: now, last_modification: now };
            // Otherwise it goes earlier.
            let _ = rustix::fs::utimensat(CWD, path, &times, AtFlags::empty());
        }
    }
}

impl NearArenas for Near {
    fn read(&self, name: ArenaName, offset: u64, length: usize) -> Option<Vec<u8>> {
        let path = self.folder.join(name.to_string());
        let file = File::open(&path).ok()?;
        let rest = file.metadata().ok()?.len().saturating_sub(offset);
        let length = length.min(usize::try_from(rest).ok()?);
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset).ok()?;
        self.note_use(name, &path);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_and_the_rest_is_not() {
        let cache = tempfile::tempdir().unwrap();
        let near = Near::in_cache(cache.path());
        let name = |byte| ArenaName::first(ArenaId([byte; 16]));
        near.trim();
        near.keep(name(1), b"0123456789");
        assert_eq!(near.read(name(1), 3, 4).unwrap(), b"3456");
        assert_eq!(near.read(name(1), 8, 40).unwrap(), b"89");
        assert_eq!(near.read(name(2), 0, 1), None);
        near.trim();
        assert!(near.read(name(1), 0, 1).is_some());
        near.keep(name(3), b"0123456789");
        near.forget(|id| id == name(3).id);
        assert!(near.read(name(1), 0, 1).is_some());
        assert_eq!(near.read(name(3), 0, 1), None);
    }
}
