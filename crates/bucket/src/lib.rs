//! Floor 0: for programs that keep buckets in memory, and for the agent that stores them.
//!
//! A *file* is spread over *buckets*; a bucket holds one [`KeyRange`] and consists of *areas*,
//! regions of memory (SDDS-2002, §2). A program opens a [`Bucket`], registers its areas, and has them
//! stored, loaded and evicted by the agent of its node:
//!
//! ```text
//! program ── Bucket ── Unix socket, descriptors ── served::Connection ── agent ── repository
//! ```
//!
//! An area is shared memory, which the agent reads by its descriptor, or private memory, of which
//! this library keeps a *shadow*: a memory file into which it copies what differs while the program
//! holds still. So the program goes on before anything is stored.
//!
//! The library is loaded into other people's programs. It has two threads for each bucket, which take
//! no signals ([`quiet`]), and no panic leaves it. `crates/bucket/include/strongroom-bucket.h` is its face in C,
//! `crates/bucket/python/strongroom_bucket.py` in Python. The messages are described in
//! `docs/format/bucket.md`.
//!
//! It knows nothing of repositories and decides nothing about what is stored.

mod bucket;
mod c;
mod callbacks;
mod calls;
mod connected;
mod error;
mod format;
mod heard;
mod link;
mod message;
mod name;
mod peer;
pub mod quiet;
mod range;
mod region;
pub mod served;
mod shadow;
mod state;
mod stores;
mod wire;

pub use bucket::{Bucket, Stored};
pub use callbacks::Owner;
pub use error::{AreaFault, BucketError};
pub use format::MessageError;
pub use message::{AreaSize, FromProgram, PROTOCOL, ToProgram};
pub use name::{AREA_NAME_BYTES_MAX, AREAS_MAX, NameError, VERSION_NAME_BYTES_MAX};
pub use range::{KEY_BYTES_MAX, KeyRange};
pub use wire::MESSAGE_BYTES_MAX;
