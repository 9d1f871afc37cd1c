//! The engine as a whole, on backends that fail, lie, crash and record their calls.
#![expect(clippy::unwrap_used, reason = "a helper that cannot do its work fails the test")]

mod backup;
mod cache;
mod changing;
mod clearing;
mod concurrent;
mod crash;
mod damage;
mod defragment;
mod deltas;
mod domains;
mod faults;
mod holds;
mod hostile;
mod keys;
mod linear;
mod memory;
mod model;
mod newer;
mod own_record;
mod parents;
mod prune;
mod read_back;
mod refused;
mod repair;
mod repair_from;
mod replicate;
mod restore;
mod restore_faults;
mod retention;
mod sequences;
mod slots;
mod stats;
mod trust;
mod verify;
mod world;
