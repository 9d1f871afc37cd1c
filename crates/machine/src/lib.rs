//! Floor 5: machines that run under QEMU.
//!
//! A [`Description`] says what a machine is made of, so that it can be started again years later.
//! [`RunningMachine::freeze_disks`] gives all disks of a running machine as they were at one instant,
//! and what of them changed since an earlier one; [`undo`] removes what a run has left in a machine if
//! it died. A machine is reached by QEMU's monitor ([`Machine`]) or by libvirt ([`LibvirtMachine`]).
//!
//! This crate knows nothing of repositories and snapshots: the caller stores what it gives.

pub mod boot;
mod describe;
mod description;

mod live;

mod abilities;
mod bitmaps;
mod drives;
mod emulator_files;
mod graph;
mod intent;
mod left_out;
mod migration;
mod objects;
mod passed_through;
mod remains;
mod runs;

mod agent;
mod peer;
mod process;
mod qmp;
mod virsh;

mod error;

pub use agent::AgentError;
pub use bitmaps::bitmap_name;
pub use description::{
    Cpu, DESCRIPTION_BYTES_MAX, Description, DescriptionError, DiskBus, DiskDescription, Emulator,
    Firmware, FirmwareFile, MemoryPart, NetworkDescription, Tpm,
};
pub use drives::Drive;
pub use emulator_files::emulator_files;
pub use error::{Broken, MachineError};
pub use left_out::{LeftOut, WhyLeftOut};
pub use live::{
    Beside, Consistency, LibvirtMachine, LiveDisk, LiveDisks, LiveImage, Machine, Night, Parent,
    Reached, RunningMachine, STATE_BYTES_MAX, Settle, SharedMemory, ShownDisk, StoreLimits, Undone,
    undo, undo_libvirt,
};
pub use qmp::{Event, Qmp, QmpError, Unanswered};
pub use remains::Exchanged;
pub use virsh::VirshError;
