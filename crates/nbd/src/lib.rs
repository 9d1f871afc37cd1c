//! Floor 1: the NBD protocol (Network Block Device), which QEMU, libvirt and the Linux kernel speak.
//!
//! [`Server`] offers disks to other programs: what a disk is, [`Export`] and [`Exports`] say.
//! [`Overlay`] makes a writable disk of one that is only read. [`Client`] reads the disks of other
//! programs, and asks them which parts are holes and which changed.
//!
//! The protocol is described in `doc/proto.md` of the NBD project. Both sides speak its fixed
//! newstyle with structured replies and without TLS, so connections never leave the machine: they are
//! Unix sockets, or TCP on the loopback. There are threads and no asynchronous runtime.
//!
//! The other side is never trusted. Each length that it sends is compared with a limit before memory
//! is used for it, each wait has an end, and what breaks the protocol ends the connection.
//!
//! This crate knows nothing of repositories, snapshots or QEMU's own monitor.

mod allowance;
mod client;
mod error;
mod export;
mod file;
mod overlay;
mod server;
mod sparse;
mod stream;
mod wire;

pub use client::{BlockStatus, Client, ClientOptions, PendingRead, StatusRun};
pub use error::{Asked, Cause, NbdError};
pub use export::{Export, Exports, Extent, Zeroing};
pub use file::FileExport;
pub use overlay::{Overlay, OverlayError};
pub use server::{Listener, Server, ServerOptions};
pub use stream::Stream;
pub use wire::{Errno, ProtocolError, REQUEST_BYTES_MAX, STATUS_HOLE, STATUS_ZERO};
