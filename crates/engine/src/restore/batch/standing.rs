//! What stands at the target: compared before it is written, and read again after.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering;

use strongroom_base::Cancel;
use strongroom_catalog::{Entry, EntryKind, Recipe};
use strongroom_source::{TargetError, TargetFile};

use super::{BatchFile, Shared, Want, lock};
use crate::config::CHUNK_BYTES_MAX;
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
            if let Err(error) = self.verify_file(file, &mut buffer) {
                lock(&self.problems).push(error);
            }
        }
        Ok(())
    }

    /// Reads a file again, its holes too.
    fn verify_file(&self, file: &BatchFile, buffer: &mut Vec<u8>) -> Result<(), TargetError> {
        let wants = &self.batch.wants[file.first_want..file.first_want + file.wants];
        let opened = self.target.open_file_for_reading(file.directory, &file.name)?;
        let mut wrong = 0;
        for want in wants {
            let read = |buffer: &mut [u8]| opened.read_exact_at(buffer, want.offset).is_ok();
            wrong += usize::from(!self.is_right(want, buffer, read));
        }
        for (offset, bytes) in &file.holes {
            wrong += usize::from(!reads_as_zeros(&opened, *offset, *bytes, buffer));
        }
        let length = opened.metadata().map_or(0, |stat| stat.len());
        if wrong == 0 && length == file.metadata.size {
            return Ok(());
        }
        let path = self.target.path_of(file.directory, &file.name);
        Err(TargetError::ReadsOtherwise { path, wrong })
    }
}

/// True where a range of a file is all zeros.
fn reads_as_zeros(file: &std::fs::File, offset: u64, bytes: u64, buffer: &mut Vec<u8>) -> bool {
    buffer.resize(CHUNK_BYTES_MAX, 0);
    let end = offset.saturating_add(bytes);
    (offset..end).step_by(CHUNK_BYTES_MAX).all(|begin| {
        let length = CHUNK_BYTES_MAX.min((end - begin) as usize);
        let part = &mut buffer[..length];
        file.read_exact_at(part, begin).is_ok() && part.iter().all(|byte| *byte == 0)
    })
}
