//! Checkpoints that are captured and not committed yet: a thread waits for each, so that a program can
//! ask whether they are finished.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use strongroom_bucket::{Bucket, BucketError, quiet};

use crate::error::VelocError;

/// The checkpoints that are not known to be committed, oldest first.
#[derive(Debug, Default)]
pub struct Pending {
    threads: Vec<JoinHandle<Result<(), BucketError>>>,
    /// The first failure that no one has been given yet.
    failure: Option<VelocError>,
}

impl Pending {
    /// Waits for a version on a thread, and then removes the file that it was made of.
    pub fn add(
        &mut self,
        bucket: &Arc<Bucket>,
        name: String,
        version: u64,
        file: Option<PathBuf>,
    ) -> Result<(), VelocError> {
        let bucket = bucket.clone();
        let wait = move || {
            bucket.wait(&name, version)?;
            if let Some(file) = file {
                // The program may have removed it.
                drop(fs::remove_file(file));
            }
            Ok(())
        };
        let thread = quiet::start("veloc-wait", wait);
        self.threads.push(thread.map_err(BucketError::Thread)?);
        // A program that never waits would keep all threads that have ended.
        self.join(JoinHandle::is_finished);
        Ok(())
    }

    /// Whether none is left to wait for.
    pub fn are_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for all. The first failure since the last call is returned.
    pub fn wait(&mut self) -> Result<(), VelocError> {
        self.join(|_| true);
        self.failure.take().map_or(Ok(()), Err)
    }

    fn join(&mut self, is_wanted: impl Fn(&JoinHandle<Result<(), BucketError>>) -> bool) {
        for thread in self.threads.extract_if(.., |thread| is_wanted(thread)) {
            let waited = thread.join().unwrap_or(Err(BucketError::AgentGone));
            if let Err(error) = waited {
                self.failure.get_or_insert(error.into());
            }
        }
    }
}
