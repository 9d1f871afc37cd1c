//! Trees of this machine, read by the source and put back by the target.

mod compare;
mod copy;

mod concurrent;
mod deep;
mod kinds;
mod mounts;
mod random;
mod rights;
mod target;
mod untouched;
