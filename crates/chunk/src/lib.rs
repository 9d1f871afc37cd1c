//! Content-defined and aligned chunkers; pure functions over bytes.
