//! What exists at the target: compared before it is written, and read again after.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use strongroom_base::{Cancel, Cancelled};
use strongroom_catalog::{ChunkRef, Entry, RecipeReader};
use strongroom_repository::config::CHUNK_BYTES_MAX;
use strongroom_repository::{ChunkReader, RepositoryError, false_if_unreadable};
use strongroom_source::{Existing, ExistingFile, TargetError, TargetFile};

use super::{BatchFile, Making, Shared, Want};
use crate::error::EngineError;

/// True if an existing file has the content of an entry, to its end. Of a hole only what is stored
/// is read.
pub fn is_right(
    file: &ExistingFile,
    entry: &Entry,
    reader: &ChunkReader,
    cancel: &Cancel,
) -> Result<bool, EngineError> {
    let Some(content) = entry.content() else { return Ok(false) };
    if file.size() != entry.metadata.size || file.size() != content.stream_bytes() {
        return Ok(false);
    }
    let mut recipe = RecipeReader::new(content, reader);
    let mut buffer = Vec::new();
    loop {
        cancel.check()?;
        let (offset, chunk) = match recipe.next_chunk().map_err(RepositoryError::from) {
            Ok(Some(next)) => next,
            Ok(None) => return Ok(true),
            // What is lost or withheld of its recipe is reported when the file is to be written.
            Err(error) if error.is_unreadable() => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let right = match chunk.is_hole() {
            true => is_zeros(file, offset, &chunk, &mut buffer, cancel)?,
            false => {
                let read = |buffer: &mut [u8]| file.read_at(offset, buffer).is_ok();
                is_chunk(reader, &chunk, &mut buffer, read)?
            }
        };
        if !right {
            return Ok(false);
        }
    }
}

/// True if all that is stored of a file within a hole is zeros.
fn is_zeros(
    file: &ExistingFile,
    offset: u64,
    hole: &ChunkRef,
    buffer: &mut Vec<u8>,
    cancel: &Cancel,
) -> Result<bool, Cancelled> {
    let end = offset.saturating_add(hole.stream_bytes);
    let mut from = offset;
    buffer.resize(CHUNK_BYTES_MAX, 0);
    while let Some(extent) = file.next_extent(from).filter(|extent| extent.offset < end) {
        cancel.check()?;
        let stored = (extent.offset + extent.bytes).min(end) - extent.offset;
        let part = &mut buffer[..CHUNK_BYTES_MAX.min(stored as usize)];
        if file.read_at(extent.offset, part).is_err() || part.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        from = extent.offset + part.len() as u64;
    }
    Ok(true)
}

/// True if what `read` gives is the chunk. No chunk is longer than the bound, even if a recipe says
/// so.
fn is_chunk(
    reader: &ChunkReader,
    chunk: &ChunkRef,
    buffer: &mut Vec<u8>,
    read: impl FnOnce(&mut [u8]) -> bool,
) -> Result<bool, RepositoryError> {
    if chunk.stream_bytes > CHUNK_BYTES_MAX as u64 {
        return Ok(false);
    }
    buffer.resize(chunk.stream_bytes as usize, 0);
    // A chunk that is lost is reported when it is read.
    Ok(read(buffer) && false_if_unreadable(reader.is_data(chunk, buffer))?)
}

impl<'b> Shared<'b> {
    /// Uses what is right in the files that exist. Returns what is needed from the repository,
    /// sorted by where it lies.
    pub(super) fn use_what_exists(&self, cancel: &Cancel) -> Result<Vec<&'b Want>, EngineError> {
        let mut needed: Vec<&Want> = Vec::with_capacity(self.batch.wants.len());
        let mut buffer = Vec::new();
        for (number, file) in self.batch.files.iter().enumerate() {
            cancel.check()?;
            let wants = &self.batch.wants[file.first_want..file.first_want + file.wants];
            // A batch is bounded.
            let number = number as u32;
            let before = needed.len();
            match file.making {
                Making::Fresh => needed.extend(wants),
                Making::Beside => {
                    let Some(handle) = self.open(number) else {
                        self.finish(number);
                        continue;
                    };
                    let old = match self.target.existing(file.directory, &file.name) {
                        Ok(Existing::File(old)) => Some(old),
                        _ => None,
                    };
                    for want in wants {
                        cancel.check()?;
                        let copied = match &old {
                            Some(old) => {
                                self.copy_right(old, &handle, number, want, &mut buffer)?
                            }
                            None => false,
                        };
                        needed.extend((!copied).then_some(want));
                    }
                }
                Making::Patch => {
                    let Some(handle) = self.open(number) else {
                        self.finish(number);
                        continue;
                    };
                    for (offset, bytes) in &file.holes {
                        self.check(number, handle.punch_hole(*offset, *bytes));
                    }
                    for want in wants {
                        cancel.check()?;
                        let right = self.is_right_in(&handle, want, &mut buffer)?;
                        needed.extend((!right).then_some(want));
                        self.count_right(number, want, right);
                    }
                }
            }
            if needed.len() == before {
                self.finish(number);
            }
        }
        needed.sort_unstable_by_key(|want| (want.location, want.file, want.offset));
        Ok(needed)
    }

    /// Copies a chunk from the file that exists to the one that is to take its place, if it is
    /// right. What is written is what was compared: the file may be changing.
    fn copy_right(
        &self,
        old: &ExistingFile,
        new: &TargetFile,
        number: u32,
        want: &Want,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, RepositoryError> {
        let read = |buffer: &mut [u8]| old.read_at(want.offset, buffer).is_ok();
        if !is_chunk(self.reader, &want.chunk(), buffer, read)? {
            return Ok(false);
        }
        let written = new.write_at(want.offset, buffer);
        self.target.note_waiting(u64::from(want.bytes));
        self.check(number, written);
        self.count_right(number, want, true);
        Ok(true)
    }

    /// Counts a chunk that need not be read.
    fn count_right(&self, number: u32, want: &Want, right: bool) {
        if right {
            self.states[number as usize].remaining.fetch_sub(1, Ordering::Relaxed);
            self.bytes_done.fetch_add(u64::from(want.bytes), Ordering::Relaxed);
        }
    }

    fn is_right_in(
        &self,
        file: &TargetFile,
        want: &Want,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, RepositoryError> {
        let read =
            |buffer: &mut [u8]| file.read_at(want.offset, buffer).is_ok_and(|n| n == buffer.len());
        Ok(!file.is_fresh() && is_chunk(self.reader, &want.chunk(), buffer, read)?)
    }

    /// Reads every file of the batch again, before it takes the place of one that exists.
    pub(super) fn verify(&self, cancel: &Cancel) -> Result<(), EngineError> {
        let mut buffer = Vec::new();
        for (number, file) in self.batch.files.iter().enumerate() {
            cancel.check()?;
            let state = &self.states[number];
            if state.failed.load(Ordering::Relaxed) || state.damaged.load(Ordering::Relaxed) {
                continue;
            }
            let opened = self.target.open_file_for_reading(file.directory, &self.name_now(number));
            let verified = match opened {
                Err(error) => Err(error),
                Ok(opened) => match self.wrong_parts(file, &opened, &mut buffer, cancel)? {
                    0 => Ok(()),
                    wrong => {
                        let path = self.target.path_of(file.directory, &file.name);
                        Err(TargetError::ReadsOtherwise { path, wrong })
                    }
                },
            };
            self.check(number as u32, verified);
        }
        Ok(())
    }

    /// How many chunks and holes of a file are not what they should be, its end counted as one.
    fn wrong_parts(
        &self,
        file: &BatchFile,
        opened: &File,
        buffer: &mut Vec<u8>,
        cancel: &Cancel,
    ) -> Result<usize, EngineError> {
        let length = opened.metadata().map_or(0, |stat| stat.len());
        let mut wrong = usize::from(file.is_last && length != file.metadata.size);
        for want in &self.batch.wants[file.first_want..file.first_want + file.wants] {
            cancel.check()?;
            let read = |buffer: &mut [u8]| opened.read_exact_at(buffer, want.offset).is_ok();
            let right = is_chunk(self.reader, &want.chunk(), buffer, read)?;
            wrong += usize::from(!right);
        }
        for (offset, bytes) in &file.holes {
            wrong += usize::from(!reads_as_zeros(opened, *offset, *bytes, buffer, cancel)?);
        }
        Ok(wrong)
    }
}

/// True if a range of a file is all zeros.
fn reads_as_zeros(
    file: &File,
    offset: u64,
    bytes: u64,
    buffer: &mut Vec<u8>,
    cancel: &Cancel,
) -> Result<bool, Cancelled> {
    buffer.resize(CHUNK_BYTES_MAX, 0);
    let end = offset.saturating_add(bytes);
    for begin in (offset..end).step_by(CHUNK_BYTES_MAX) {
        cancel.check()?;
        let part = &mut buffer[..CHUNK_BYTES_MAX.min((end - begin) as usize)];
        if file.read_exact_at(part, begin).is_err() || part.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_is_all_zeros_to_its_end() {
        let file = tempfile::tempfile().unwrap();
        let (hole, end) = (3 * CHUNK_BYTES_MAX as u64 + 5, 10 * CHUNK_BYTES_MAX as u64);
        file.write_all_at(b"data", 0).unwrap();
        file.set_len(end).unwrap();
        let cancel = Cancel::new();
        let reads = |offset, bytes| reads_as_zeros(&file, offset, bytes, &mut Vec::new(), &cancel);
        assert_eq!(reads(4, hole), Ok(true));
        assert_eq!(reads(3, hole), Ok(false), "data before it");
        file.write_all_at(b"!", hole + 3).unwrap();
        assert_eq!(reads(4, hole), Ok(false), "its last byte");
        assert_eq!(reads(4, hole - 1), Ok(true));
        assert_eq!(reads(end - 1, 2), Ok(false), "the file is too short");
        cancel.cancel();
        assert_eq!(reads(4, hole), Err(Cancelled));
    }
}
