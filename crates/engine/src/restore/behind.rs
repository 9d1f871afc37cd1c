//! Writing behind: the disk takes what was put back while more is being made, so that little is
//! left to be flushed in the end.
//!
//! Nobody runs far ahead of the disk. What waits for it can be told neither to stop nor to hurry:
//! a restore onto a slow stick would fill a fifth of all memory first, and end minutes after it was
//! cancelled.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Sender, bounded};
use strongroom_source::{Target, TargetError};

/// The target is flushed whenever so many bytes were written: a few of these are on their way.
const FLUSH_BYTES: u64 = 128 << 20;

/// A target that is flushed while it is written to.
pub struct FlushedTarget<'t> {
    target: &'t Target,
    written: AtomicU64,
    turns: Sender<()>,
}

impl<'t> FlushedTarget<'t> {
    /// Does some work on the target, and returns when all of it is on the disk; where the work
    /// fails, at once.
    pub fn flush<T, E: From<TargetError>>(
        target: &'t Target,
        work: impl FnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, E> {
        std::thread::scope(|scope| {
            let (turns, taken) = bounded(1);
            // A failure to write is told by one flush alone, so each one counts.
            let flusher = scope.spawn(move || taken.iter().try_for_each(|()| target.sync()));
            let flushed = Self { target, written: AtomicU64::new(0), turns };
            let done = work(&flushed)?;
            drop(flushed);
            flusher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            target.sync()?;
            Ok(done)
        })
    }

    /// So many bytes more were written. Returns once the disk is near.
    pub fn note_written(&self, bytes: u64) {
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        if before / FLUSH_BYTES < (before + bytes) / FLUSH_BYTES {
            // A flush that failed has ended the thread; it is told in the end.
            let _ = self.turns.send(());
        }
    }
}

impl Deref for FlushedTarget<'_> {
    type Target = Target;

    fn deref(&self) -> &Target {
        self.target
    }
}

#[cfg(test)]
mod tests {
    use strongroom_base::Cancelled;
    use strongroom_source::TargetOptions;

    use super::*;
    use crate::error::EngineError;

    #[test]
    fn all_is_flushed_and_the_outcome_of_the_work_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::open(folder.path(), TargetOptions::default()).unwrap();
        let done: Result<u64, EngineError> = FlushedTarget::flush(&target, |target| {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..6).for_each(|_| target.note_written(FLUSH_BYTES / 2)));
                }
            });
            Ok(target.written.load(Ordering::Relaxed))
        });
        assert_eq!(done.unwrap(), 12 * FLUSH_BYTES);
        let failed: Result<(), EngineError> =
            FlushedTarget::flush(&target, |_| Err(EngineError::Cancelled(Cancelled)));
        assert!(matches!(failed, Err(EngineError::Cancelled(Cancelled))));
    }
}
