//! What a restore has read of arenas far away, in a file without a name: a block that several
//! batches of files need, as its own chunks or as bases of deltas, crosses the network once.
//!
//! The file is in the cache and vanishes with the process. What does not fit is read again.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, Mode, OFlags};
use strongroom_arena::{ArenaName, NearArenas};

/// At most this many bytes are kept.
const BYTES_MAX: u64 = 4 << 30;
/// Shorter pieces are not worth a place: summaries are kept in memory.
const PIECE_BYTES_MIN: usize = 128 << 10;

/// What was read of arenas far away.
#[derive(Debug)]
pub struct Spool {
    file: File,
    // A plain mutex: held for a look into the list, never during reading or writing.
    pieces: Mutex<Pieces>,
}

#[derive(Debug, Default)]
struct Pieces {
    of_arena: HashMap<ArenaName, Vec<Piece>>,
    /// Where the next piece goes.
    end: u64,
}

/// A piece of an object.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Where it begins in the object.
    offset: u64,
    bytes: usize,
    /// Where it is in the file.
    place: u64,
}

impl Spool {
    /// An empty one in a folder, which must be on a file system that has files without names.
    pub fn in_cache(cache: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(cache)?;
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = rustix::fs::openat(CWD, cache, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Self { file: File::from(file), pieces: Mutex::default() })
    }

    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NearArenas for Spool {
    fn read(&self, name: ArenaName, offset: u64, length: usize) -> Option<Vec<u8>> {
        let has_all = |piece: &&Piece| {
            piece.offset <= offset && offset + length as u64 <= piece.offset + piece.bytes as u64
        };
        let piece = self.pieces().of_arena.get(&name)?.iter().find(has_all).copied()?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, piece.place + (offset - piece.offset)).ok()?;
        Some(bytes)
    }

    fn note(&self, name: ArenaName, offset: u64, bytes: &[u8]) {
        if bytes.len() < PIECE_BYTES_MIN {
            return;
        }
        let place = {
            let mut pieces = self.pieces();
            let place = pieces.end;
            if place + bytes.len() as u64 > BYTES_MAX {
                return;
            }
            pieces.end += bytes.len() as u64;
            place
        };
        if self.file.write_all_at(bytes, place).is_ok() {
            let piece = Piece { offset, bytes: bytes.len(), place };
            self.pieces().of_arena.entry(name).or_default().push(piece);
        }
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.pieces().end + bytes <= BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use strongroom_base::ArenaId;

    use super::*;

    #[test]
    fn what_was_noted_is_read_and_the_rest_is_not() {
        let cache = tempfile::tempdir().unwrap();
        let spool = Spool::in_cache(cache.path()).unwrap();
        let name = |byte| ArenaName::first(ArenaId([byte; 16]));
        let bytes: Vec<u8> = (0..PIECE_BYTES_MIN).map(|place| (place % 251) as u8).collect();
        spool.note(name(1), 1000, &bytes);
        spool.note(name(2), 0, &bytes[1..]);
        assert_eq!(spool.read(name(1), 1000, bytes.len()).unwrap(), bytes);
        assert_eq!(spool.read(name(1), 1010, 20).unwrap(), bytes[10..30]);
        assert_eq!(spool.read(name(1), 990, 20), None);
        assert_eq!(spool.read(name(1), 1001, bytes.len()), None);
        assert_eq!(spool.read(name(2), 0, 1), None);
        let rest = BYTES_MAX - bytes.len() as u64;
        assert!(spool.has_room(rest) && !spool.has_room(rest + 1));
    }
}
