//! Writing behind: the disk writes what was put back while more is being made, so that little is
//! left to flush at the end.
//!
//! Writers do not run far ahead of the disk. What waits for the disk can be neither cancelled nor
//! accelerated: a restore onto a slow stick would first fill a fifth of all memory, and end minutes
//! after it was cancelled.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Sender, bounded};
use strongroom_source::{Target, TargetError};

/// The target is flushed whenever this many more bytes wait for it: a few of these are on their
/// way.
const FLUSH_BYTES: u64 = 128 << 20;

/// A target that is flushed while it is written to.
pub struct FlushedTarget<'t> {
    target: &'t Target,
    waiting: AtomicU64,
    turns: Sender<()>,
}

impl<'t> FlushedTarget<'t> {
    /// Does some work on the target, and returns when all of it is on the disk; if the work fails,
    /// as soon as the flushes that were begun are done.
    pub fn flush<T, E: From<TargetError>>(
        target: &'t Target,
        work: impl FnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, E> {
        Self::flush_by(|| target.sync(), target, work)
    }

    fn flush_by<T, E: From<TargetError>>(
        sync: impl Fn() -> Result<(), TargetError> + Sync,
        target: &'t Target,
        work: impl FnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let sync = &sync;
        std::thread::scope(|scope| {
            let (turns, taken) = bounded(1);
            // A failure to write is reported by only one flush, so each result counts.
            let flusher = scope.spawn(move || taken.iter().try_for_each(|()| sync()));
            let flushed = Self { target, waiting: AtomicU64::new(0), turns };
            let done = work(&flushed)?;
            drop(flushed);
            flusher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            sync()?;
            Ok(done)
        })
    }

    /// This many more bytes wait in the kernel's cache. Returns once the disk is not far behind.
    pub fn note_waiting(&self, bytes: u64) {
        let before = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        if before / FLUSH_BYTES < (before + bytes) / FLUSH_BYTES {
            // A failed flush has ended the thread; it is reported at the end.
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
    use std::sync::atomic::AtomicUsize;

    use strongroom_base::Cancelled;
    use strongroom_repository::RepositoryError;
    use strongroom_source::TargetOptions;

    use super::*;
    use crate::error::EngineError;

    /// Writes 24 halves of what is flushed at a time on four threads, and returns how often `sync`
    /// was called.
    fn write(
        sync: impl Fn(usize) -> Result<(), TargetError> + Sync,
        end: Result<(), EngineError>,
    ) -> (Result<(), EngineError>, usize) {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::open(folder.path(), TargetOptions::default()).unwrap();
        let flushes = AtomicUsize::new(0);
        let sync = || sync(flushes.fetch_add(1, Ordering::Relaxed) + 1);
        let done = FlushedTarget::flush_by(sync, &target, |target| {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..6).for_each(|_| target.note_waiting(FLUSH_BYTES / 2)));
                }
            });
            end
        });
        (done, flushes.into_inner())
    }

    #[test]
    fn what_is_written_is_flushed_on_the_way_and_in_the_end() {
        let (done, flushes) = write(|_| Ok(()), Ok(()));
        assert!(done.is_ok());
        assert_eq!(flushes, 12 + 1);
    }

    #[test]
    fn a_flush_that_fails_on_the_way_is_told_in_the_end() {
        for failing in [1, 7, 13] {
            let fail = |flush| {
                let error = TargetError::DirectoryInTheWay { path: "it".into(), wanted: "a file" };
                if flush == failing { Err(error) } else { Ok(()) }
            };
            let (done, flushes) = write(fail, Ok(()));
            assert!(matches!(done, Err(EngineError::Target(_))), "{failing}");
            assert_eq!(flushes, failing, "the thread has ended, and nothing waits for it");
        }
    }

    #[test]
    fn work_that_fails_is_not_flushed_again() {
        let (done, flushes) = write(|_| Ok(()), Err(Cancelled.into()));
        let Err(EngineError::Repository(error)) = done else { panic!("it failed") };
        assert!(matches!(error, RepositoryError::Cancelled(_)));
        assert_eq!(flushes, 12);
    }
}
