//! What stands at the target: compared before it is written, and read again after.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering;

use strongroom_base::{Cancel, Cancelled};
use strongroom_catalog::{Entry, EntryKind, Recipe};
use strongroom_repository::config::CHUNK_BYTES_MAX;
use strongroom_source::{TargetError, TargetFile};

use super::{BatchFile, Shared, Want, lock};
use crate::error::EngineError;

impl<'b> Shared<'b> {
    /// Compares what stands at the target, chunk by chunk; gives what is needed, sorted by where
    /// it lies.
    pub(super) fn look_at_what_stands(
        &self,
        cancel: &Cancel,
    ) -> Result<Vec<&'b Want>, EngineError> {
        let mut needed = Vec::with_capacity(self.batch.wants.len());
        let mut buffer = Vec::new();
        for (number, file) in self.batch.files.iter().enumerate() {
            cancel.check()?;
            let wants = &self.batch.wants[file.first_want..file.first_want + file.wants];
            // A batch holds at most FILES_MAX files and a few.
            let number = number as u32;
            if !file.stands {
                if wants.is_empty() {
                    self.finish(number);
                }
                needed.extend(wants);
                continue;
            }
            if file.lost.is_none() && self.is_linked_and_right(file, wants, &mut buffer) {
                let bytes: u64 = wants.iter().map(|want| u64::from(want.bytes)).sum();
                self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
                self.files_right.fetch_add(1, Ordering::Relaxed);
                self.files_done.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let Some(handle) = self.open(number) else { continue };
            let before = needed.len();
            for (offset, bytes) in &file.holes {
                self.check(number, handle.punch_hole(*offset, *bytes));
            }
            for want in wants {
                if self.stands_right(&handle, want, &mut buffer) {
                    self.states[number as usize].remaining.fetch_sub(1, Ordering::Relaxed);
                    self.bytes_done.fetch_add(u64::from(want.bytes), Ordering::Relaxed);
                } else {
                    needed.push(want);
                }
            }
            drop(handle);
            if needed.len() == before {
                self.files_right.fetch_add(u64::from(file.lost.is_none()), Ordering::Relaxed);
                self.finish(number);
            }
        }
        needed.sort_unstable_by_key(|want| (want.location, want.file, want.offset));
        Ok(needed)
    }

    /// True for a file with several names that is right in all, content and metadata. To open it
    /// for writing would cut its links; here it is only looked at.
    fn is_linked_and_right(&self, file: &BatchFile, wants: &[Want], buffer: &mut Vec<u8>) -> bool {
        if file.metadata.links < 2 || !file.holes.is_empty() {
            return false;
        }
        let opened = self.target.open_file_for_reading(file.directory, &file.name);
        let Ok(opened) = opened else { return false };
        let links = opened.metadata().map_or(0, |stat| stat.nlink());
        // With more names than it should have, it is also somebody else's.
        if !(2..=file.metadata.links).contains(&links) {
            return false;
        }
        let kind = EntryKind::File { content: Recipe::default() };
        let entry = Entry { name: file.name.clone(), kind, metadata: file.metadata.clone() };
        if !self.target.differences(file.directory, &entry).is_ok_and(|found| found.none()) {
            return false;
        }
        wants.iter().all(|want| {
            let read = |buffer: &mut [u8]| opened.read_exact_at(buffer, want.offset).is_ok();
            self.is_right(want, buffer, read)
        })
    }

    fn stands_right(&self, file: &TargetFile, want: &Want, buffer: &mut Vec<u8>) -> bool {
        let read =
            |buffer: &mut [u8]| file.read_at(want.offset, buffer).is_ok_and(|n| n == buffer.len());
        !file.is_fresh() && self.is_right(want, buffer, read)
    }

    /// True where what `read` gives is the chunk. No chunk is longer than the bound, whatever a
    /// recipe says.
    fn is_right(
        &self,
        want: &Want,
        buffer: &mut Vec<u8>,
        read: impl FnOnce(&mut [u8]) -> bool,
    ) -> bool {
        let bytes = want.bytes as usize;
        if bytes > CHUNK_BYTES_MAX {
            return false;
        }
        buffer.resize(bytes, 0);
        read(buffer) && self.reader.fingerprinter().fingerprint(buffer) == want.fingerprint
    }

    /// Reads every file of the batch again.
    pub(super) fn verify(&self, cancel: &Cancel) -> Result<(), EngineError> {
        let mut buffer = Vec::new();
        for (number, file) in self.batch.files.iter().enumerate() {
            cancel.check()?;
            let state = &self.states[number];
            if state.failed.load(Ordering::Relaxed) || state.damaged.load(Ordering::Relaxed) {
                continue;
            }
            let opened = self.target.open_file_for_reading(file.directory, &file.name);
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
            if let Err(error) = verified {
                lock(&self.problems).push(error);
            }
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
    ) -> Result<usize, Cancelled> {
        let length = opened.metadata().map_or(0, |stat| stat.len());
        let mut wrong = usize::from(length != file.metadata.size);
        for want in &self.batch.wants[file.first_want..file.first_want + file.wants] {
            cancel.check()?;
            let read = |buffer: &mut [u8]| opened.read_exact_at(buffer, want.offset).is_ok();
            wrong += usize::from(!self.is_right(want, buffer, read));
        }
        for (offset, bytes) in &file.holes {
            wrong += usize::from(!reads_as_zeros(opened, *offset, *bytes, buffer, cancel)?);
        }
        Ok(wrong)
    }
}

/// True where a range of a file is all zeros.
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
