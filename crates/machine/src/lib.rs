//! Floor 5: machines that run under QEMU.
//!
//! A [`Description`] says what a machine is made of, so that it can be started again years later.
//!
//! This crate knows nothing of repositories and snapshots: the caller stores what it gives.

mod agent;
mod description;
mod qmp;

pub use agent::AgentError;
pub use description::{
    Cpu, DESCRIPTION_BYTES_MAX, Description, DescriptionError, DiskBus, DiskDescription, Emulator,
    Firmware, FirmwareFile, NetworkDescription, Tpm,
};
pub use qmp::{Event, Qmp, QmpError, Unanswered};
