//! Object storage: one small trait, the local file system, and layers.
