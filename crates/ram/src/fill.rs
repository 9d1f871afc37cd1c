//! Puts what was stored of an area back into its memory. Only what differs is written.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use strongroom_base::{Cancel, Monitor};
use strongroom_catalog::Snapshot;
use strongroom_engine::{EngineError, StoredRegion, cat, load_region};
use strongroom_repository::Repository;
use strongroom_source::memory::huge::HugePages;

/// What is compared at once where memory is the beginning of a longer file.
const PIECE_BYTES: usize = 64 << 10;

/// Fills memory from a region of a snapshot that is as long, and returns how many bytes are lost.
///
/// A program may register the beginning of a longer file. What is behind it is the program's, and
/// stays.
pub fn fill(
    repository: &Repository,
    snapshot: &Snapshot,
    region: &StoredRegion,
    memory: &File,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<u64, EngineError> {
    let metadata = memory.metadata().map_err(EngineError::Output)?;
    if metadata.is_file() && metadata.len() > region.content.stream_bytes() {
        let mut beginning = Beginning::of(memory).map_err(EngineError::Output)?;
        let path = region.path.as_os_str().as_encoded_bytes();
        cat(repository, snapshot, path, &mut beginning)?;
        return Ok(0);
    }
    Ok(load_region(repository, region, memory, monitor, cancel)?.bytes_lost)
}

/// Writes over the beginning of a file, and does not change its length.
struct Beginning<'f> {
    file: &'f File,
    /// The file, if it consists of huge pages.
    huge: Option<HugePages>,
    at: u64,
    found: Vec<u8>,
}

impl<'f> Beginning<'f> {
    fn of(file: &'f File) -> io::Result<Self> {
        Ok(Self { file, huge: HugePages::of(file)?, at: 0, found: Vec::new() })
    }
}

impl Write for Beginning<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
        self.found.resize(piece.len(), 0);
        self.file.read_exact_at(&mut self.found, self.at)?;
        if self.found != piece {
            match &self.huge {
                Some(huge) => huge.write_all_at(piece, self.at)?,
                None => self.file.write_all_at(piece, self.at)?,
            }
        }
        self.at += piece.len() as u64;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_the_beginning_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        let before = [1; 200_000];
        std::fs::write(&path, before).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut stored = [1; 150_001];
        (stored[0], stored[70_000], stored[150_000]) = (2, 3, 4);
        let mut beginning = Beginning::of(&file).unwrap();
        beginning.write_all(&stored).unwrap();
        let after = std::fs::read(&path).unwrap();
        assert!(after[..150_001] == stored && after[150_001..] == before[150_001..]);
        // Equal memory is not written, so it need not be writable.
        let file = File::open(&path).unwrap();
        let mut beginning = Beginning::of(&file).unwrap();
        beginning.write_all(&stored).unwrap();
        assert!(beginning.write_all(&[9]).is_err());
    }
}
