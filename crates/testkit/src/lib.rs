//! For tests only: what every backend must do, disks that fail, disks that record their calls,
//! damage, real servers and lines
//! to them, and file trees with everything that a tree can have.
//!
//! Nothing here knows what an object holds, and [`Image`] looks at trees through the standard
//! library and plain calls, so that what is tested is never what tests it. A helper that cannot do
//! its work panics with the path it was about.

pub mod conformance;
pub mod damage;
pub mod fault;
pub mod http_faults;
mod image;
mod limits;
pub mod lvm;
mod mapped;
mod monitor;
mod random;
mod recording;
mod refusing;
pub mod relay;
pub mod rp;
pub mod servers;
mod skip;
pub mod tree;
mod withholding;
mod world;

pub use damage::Change;
pub use fault::{Calls, Fault, FaultKind, FaultPlan, FaultyBackend};
pub use image::{Content, Image, Kind, Node, assert_same, compare};
pub use limits::draw_limits;
pub use mapped::Mapped;
pub use monitor::{Heard, Listener};
pub use random::{Random, noise};
pub use recording::{Call, CallKind, RecordingBackend};
pub use refusing::RefusingBackend;
pub use skip::{skip, skipped};
pub use withholding::{Gives, WithholdingBackend};
pub use world::TickingClock;
