//! Floor 0: what every other crate may use and what none of them owns.
//!
//! Identifiers, units for people, clock and randomness as parameters, the keys of a repository with
//! the few cryptographic operations built on them, a cache bounded by bytes, the limits that decide shapes,
//! aligned writes, names made safe for a terminal, and the monitor that verbs report to.
//! Nothing here touches a disk, prints, or knows what a chunk is stored in.

pub mod aligned;
pub mod cache;
pub mod cancel;
pub mod clock;
pub mod entropy;
pub mod ids;
pub mod keys;
pub mod le;
pub mod limits;
#[cfg(feature = "memo")]
mod memo;
pub mod monitor;
pub mod printable;
pub mod regimes;
pub mod seal;
pub mod units;

pub use cache::ByteCache;
pub use cancel::{Cancel, Cancelled};
pub use clock::{Clock, FixedClock, Stopwatch, SystemClock, Timestamp};
pub use entropy::{Entropy, OsEntropy, SeededEntropy};
pub use ids::{
    ArenaId, DomainId, Fingerprint, Location, ParseIdError, RepositoryId, SlotId, SnapshotId,
    VoucherId,
};
pub use keys::{
    ArenaSecret, DomainKeys, DomainSecret, Fingerprinter, MasterSecret, NamingKeys, NamingSecret,
    OwnerKeys, RepositoryKeys, WriteKeys,
};
pub use limits::SizeLimits;
pub use monitor::{Monitor, Problem, Progress, Severity, Silent};
pub use printable::Printable;
