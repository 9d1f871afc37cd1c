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
pub struct Pending(Vec<JoinHandle<Result<(), BucketError>>>);

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
        self.0.push(thread.map_err(BucketError::Thread)?);
        Ok(())
    }

    /// Whether none is left to wait for.
    pub fn are_finished(&self) -> bool {
        self.0.iter().all(JoinHandle::is_finished)
    }

    /// Waits for all. The first failure is returned.
    pub fn wait(&mut self) -> Result<(), VelocError> {
        let mut outcome = Ok(());
        for thread in self.0.drain(..) {
            let waited = thread.join().unwrap_or(Err(BucketError::AgentGone));
            outcome = outcome.and(waited.map_err(VelocError::from));
        }
        outcome
    }
}
