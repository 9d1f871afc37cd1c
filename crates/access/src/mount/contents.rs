//! The bytes of files: any range of any file, by the chunks of its recipe.
//!
//! The kernel opens files without asking us, so what one read leaves for the next is kept by inode
//! number: *cursors*, which are positions in a recipe at which a read ended, so that a file that is
//! read from front to back is walked once; and the chunks in which reads ended.

use std::sync::Arc;

use strongroom_base::{ByteCache, Fingerprint};
use strongroom_catalog::{ChunkRef, Recipe, RecipeCursor};

use crate::chunks::{Chunks, Failure};

/// Bytes of cursors that are kept: those of some thirty files, or of one with many long nodes.
const CURSOR_BYTES_MAX: usize = 4 << 20;
/// Cursors kept for one file: this many readers at different places do not disturb each other.
const CURSORS_PER_FILE: usize = 4;
/// Bytes of chunks that are kept for the next read.
const RECENT_BYTES_MAX: usize = 4 << 20;

/// A search for a hole or for data passes this many chunks at most. A recipe can name one chunk
/// without end.
const SEEK_CHUNKS_MAX: usize = 1 << 20;

/// Why a range of a file cannot be read.
#[derive(Debug)]
pub struct ReadFailure {
    /// The byte of the file that it begins at.
    pub offset: u64,
    /// What is wrong.
    pub failure: Failure,
}

/// What [`Contents::seek`] looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Zeros that nothing is stored for.
    Hole,
    /// Bytes.
    Data,
}

/// Reads files.
pub struct Contents {
    chunks: Arc<Chunks>,
    /// By inode number.
    cursors: ByteCache<u64, Vec<RecipeCursor>>,
    recent: ByteCache<Fingerprint, Arc<Vec<u8>>>,
}

impl Contents {
    /// Reads these chunks.
    pub fn new(chunks: Arc<Chunks>) -> Self {
        let cursors = ByteCache::new(CURSOR_BYTES_MAX);
        Self { chunks, cursors, recent: ByteCache::new(RECENT_BYTES_MAX) }
    }

    /// The file's bytes from `offset` on: `size` of them, or all up to its end.
    pub fn read(
        &self,
        inode: u64,
        content: &Recipe,
        offset: u64,
        size: usize,
    ) -> Result<Vec<u8>, ReadFailure> {
        let rest = content.stream_bytes().saturating_sub(offset);
        let size = usize::try_from(rest).unwrap_or(usize::MAX).min(size);
        if size == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = Vec::with_capacity(size);
        let mut cursor = self.take_cursor(inode, content, offset);
        while bytes.len() < size {
            let at = offset + bytes.len() as u64;
            let failed = |failure| ReadFailure { offset: at, failure };
            let wanted = size - bytes.len();
            self.append(&mut cursor, at, wanted, &mut bytes).map_err(failed)?;
        }
        self.put_cursor(inode, content, cursor);
        Ok(bytes)
    }

    /// Where from `offset` on the next hole or the next data begins; the file's end is a hole.
    /// `None` if there is no such place. A search that takes too long takes holes for data, which
    /// every program must expect.
    pub fn seek(
        &self,
        inode: u64,
        content: &Recipe,
        offset: u64,
        wanted: Extent,
    ) -> Result<Option<u64>, ReadFailure> {
        let end = content.stream_bytes();
        if offset >= end {
            return Ok(None);
        }
        let mut cursor = self.take_cursor(inode, content, offset);
        let mut at = offset;
        for _ in 0..SEEK_CHUNKS_MAX {
            if at >= end {
                return Ok((wanted == Extent::Hole).then_some(end));
            }
            let failed = |failure| ReadFailure { offset: at, failure };
            let (start, chunk) = self.chunk_at(&mut cursor, at).map_err(failed)?;
            if chunk.is_hole() == (wanted == Extent::Hole) {
                self.put_cursor(inode, content, cursor);
                return Ok(Some(at));
            }
            at = start + chunk.stream_bytes;
        }
        Ok(Some(if wanted == Extent::Hole { end } else { at }))
    }

    /// Appends the file's bytes at `at`: at most `wanted`, and as many as one chunk has.
    fn append(
        &self,
        cursor: &mut RecipeCursor,
        at: u64,
        wanted: usize,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let (start, chunk) = self.chunk_at(cursor, at)?;
        let skip = at - start;
        // At most `wanted`, which is a usize.
        let wanted = (chunk.stream_bytes - skip).min(wanted as u64) as usize;
        if chunk.is_hole() {
            bytes.resize(bytes.len() + wanted, 0);
        } else if wanted as u64 == chunk.stream_bytes {
            bytes.append(&mut self.chunks.read_data(&chunk)?);
        } else {
            // Within a chunk that is in memory.
            let skip = skip as usize;
            bytes.extend_from_slice(&self.recent(&chunk)?[skip..skip + wanted]);
        }
        Ok(())
    }

    /// The chunk or hole that holds a byte of the file, and where in the file it begins.
    fn chunk_at(&self, cursor: &mut RecipeCursor, at: u64) -> Result<(u64, ChunkRef), Failure> {
        cursor.seek_forward(at, &*self.chunks)?;
        let ended = || Failure::damage("its recipe ends before its length");
        cursor.chunk_at_hand().ok_or_else(ended)
    }

    /// A chunk that is read in parts, each by a separate request.
    fn recent(&self, chunk: &ChunkRef) -> Result<Arc<Vec<u8>>, Failure> {
        if let Some(bytes) = self.recent.get(&chunk.fingerprint) {
            // Another reference to it may have been right.
            let is_as_long = bytes.len() as u64 == chunk.stream_bytes;
            return if is_as_long { Ok(bytes) } else { Err(Failure::wrong_length()) };
        }
        let bytes = Arc::new(self.chunks.read_data(chunk)?);
        self.recent.put(chunk.fingerprint, bytes.clone(), bytes.capacity());
        Ok(bytes)
    }

    /// A cursor that is at or before `offset`: the nearest unused one, or a new one.
    fn take_cursor(&self, inode: u64, content: &Recipe, offset: u64) -> RecipeCursor {
        if content.depth == 0 {
            return RecipeCursor::new(content);
        }
        let mut cursors = self.cursors.remove(&inode).unwrap_or_default();
        let before = cursors.iter().enumerate().filter(|(_, at)| at.offset() <= offset);
        let nearest = before.max_by_key(|(_, at)| at.offset()).map(|(place, _)| place);
        let resting = nearest.map(|place| cursors.remove(place));
        self.keep_cursors(inode, cursors);
        resting.unwrap_or_else(|| RecipeCursor::new(content))
    }

    fn put_cursor(&self, inode: u64, content: &Recipe, cursor: RecipeCursor) {
        if content.depth == 0 {
            return;
        }
        let mut cursors = self.cursors.remove(&inode).unwrap_or_default();
        if cursors.len() == CURSORS_PER_FILE {
            cursors.remove(0);
        }
        cursors.push(cursor);
        self.keep_cursors(inode, cursors);
    }

    fn keep_cursors(&self, inode: u64, cursors: Vec<RecipeCursor>) {
        if !cursors.is_empty() {
            let bytes = cursors.iter().map(|at| size_of::<RecipeCursor>() + at.heap_bytes()).sum();
            self.cursors.put(inode, cursors, bytes);
        }
    }
}
