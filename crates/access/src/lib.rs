//! Snapshots as a mounted file system.
