//! A server as a program of an agent: its memory is registered, stored, evicted and loaded.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use strongroom_bucket::{Bucket, BucketError, KeyRange, Owner};

use super::error::RpError;
use super::server::{Registered, Server};

/// The only area of a bucket.
pub const AREA: &str = "records";

/// Has the agent of this node store, evict and load a server's bucket, as a bucket of `file`. Without
/// a socket, it is the one that `strongroom-bucket` looks for.
///
/// # Errors
///
/// No agent listens, or it refuses.
pub fn register(server: &Server, socket: Option<&Path>, file: &str) -> Result<(), RpError> {
    let refused = |error: BucketError| RpError::Agent(error.to_string());
    let bucket = Bucket::open(socket, file, server.status().bucket).map_err(refused)?;
    let agent = Arc::new(Agent(bucket));
    server.register(agent.clone())?;
    // Last: from here on the agent may ask for a quiesce.
    agent.0.on_quiesce(Box::new(Owned(server.clone()))).map_err(refused)
}

/// The agent, as a server sees it.
struct Agent(Bucket);

impl Registered for Agent {
    fn region(&self, area: BorrowedFd<'_>, bytes: u64) -> Result<(), String> {
        self.0.region(AREA, area, None, bytes).map_err(|error| error.to_string())
    }

    fn range(&self, range: &KeyRange, split_version: u64) -> Result<(), String> {
        self.0.range(range, split_version).map_err(|error| error.to_string())
    }
}

/// A server, as an agent sees it.
struct Owned(Server);

impl Owner for Owned {
    fn quiesce(&mut self) -> Result<(), String> {
        self.0.quiesce()
    }

    fn resume(&mut self) {
        self.0.resume();
    }

    fn loaded(&mut self) -> Result<(), String> {
        self.0.loaded()
    }

    fn evict(&mut self) -> Result<(), String> {
        self.0.evict()
    }
}
