//! `cat`: the content of one file, or a range of it, as a stream of bytes.
//!
//! Of a range, only the chunks are read that hold it. Unlike an archive, the stream ends where
//! something of the file is lost: zeros never replace it.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use strongroom_arena::CacheLimits;
use strongroom_base::Cancel;
use strongroom_catalog::{EntryKind, Snapshot};
use strongroom_repository::{ChunkReader, Found, Repository, RepositoryError, find_path};

use super::ahead::{ByteRange, Item, LinkMode, Wanted, read_ahead};
use super::write_zeros;
use crate::error::EngineError;

/// Writes the content of one file, and returns how many bytes. If something of it is lost, it stops
/// there.
pub fn cat(
    repository: &Repository,
    snapshot: &Snapshot,
    path: &[u8],
    out: &mut dyn Write,
) -> Result<u64, EngineError> {
    cat_range(repository, snapshot, path, ByteRange::default(), out)
}

/// Writes a range of one file, and returns how many bytes: fewer than were asked for if the file
/// ends before. A range may begin at the end of the file, not behind it.
pub fn cat_range(
    repository: &Repository,
    snapshot: &Snapshot,
    path: &[u8],
    range: ByteRange,
    out: &mut dyn Write,
) -> Result<u64, EngineError> {
    let reader = ChunkReader::of_domain(repository, &snapshot.domain, CacheLimits::default())?;
    let found = find_path(snapshot, path, &reader)?;
    check_range(&found, path, range)?;
    let mut output = Output { out, skip: 0, left: range.length, bytes: 0 };
    let wanted = Wanted { found: &found, filter: None, links: LinkMode::Each, range };
    read_ahead(&reader, wanted, &Cancel::new(), &mut |item| {
        match item {
            Item::Entry { .. } => {}
            Item::Before(bytes) => output.skip = bytes,
            Item::Chunk(chunk) => output.chunk(&chunk.map_err(|lost| lost.error)?)?,
            Item::Hole(bytes) => output.zeros(bytes)?,
            Item::LostNames { error, .. } => return Err(error.into()),
        }
        Ok(())
    })?;
    output.out.flush().map_err(EngineError::Output)?;
    Ok(output.bytes)
}

/// Fails if it is no file, or ends before the range.
fn check_range(found: &Found, path: &[u8], range: ByteRange) -> Result<(), EngineError> {
    let path = PathBuf::from(OsStr::from_bytes(path));
    let (kind, content) = match found {
        Found::Root { .. } => ("a directory", None),
        Found::Entry { entry, .. } => (kind_text(&entry.kind), entry.content()),
    };
    let Some(content) = content else {
        return Err(RepositoryError::WrongKind { path, found: kind, wanted: "a file" }.into());
    };
    let bytes = content.stream_bytes();
    if range.offset > bytes {
        return Err(EngineError::BehindEnd { path, offset: range.offset, bytes });
    }
    Ok(())
}

fn kind_text(kind: &EntryKind) -> &'static str {
    match kind {
        EntryKind::File { .. } => "a file",
        EntryKind::Directory { .. } => "a directory",
        EntryKind::Symlink { .. } => "a symbolic link",
        EntryKind::Fifo => "a named pipe",
        EntryKind::Socket => "a socket",
        EntryKind::CharDevice(_) => "a character device",
        EntryKind::BlockDevice(_) => "a block device",
    }
}

/// What is written of the chunks, which begin before the range and end behind it.
struct Output<'o> {
    out: &'o mut dyn Write,
    /// Bytes of the next chunk that are before the range.
    skip: u64,
    /// Bytes that are still wanted; none for all.
    left: Option<u64>,
    bytes: u64,
}

impl Output<'_> {
    fn chunk(&mut self, chunk: &[u8]) -> Result<(), EngineError> {
        let bytes = self.take(chunk.len() as u64);
        let start = chunk.len() - bytes.in_all as usize;
        let wanted = &chunk[start..start + bytes.wanted as usize];
        self.out.write_all(wanted).map_err(EngineError::Output)
    }

    fn zeros(&mut self, zeros: u64) -> Result<(), EngineError> {
        let wanted = self.take(zeros).wanted;
        write_zeros(wanted, &mut |zeros| self.out.write_all(zeros).map_err(EngineError::Output))
    }

    /// What of the next bytes of the file is in the range.
    fn take(&mut self, bytes: u64) -> Taken {
        let in_all = bytes.saturating_sub(std::mem::take(&mut self.skip));
        let wanted = self.left.map_or(in_all, |left| left.min(in_all));
        self.left = self.left.map(|left| left - wanted);
        self.bytes += wanted;
        Taken { in_all, wanted }
    }
}

/// Bytes of a chunk or hole.
struct Taken {
    /// From the beginning of the range on.
    in_all: u64,
    /// Of these, inside the range.
    wanted: u64,
}
