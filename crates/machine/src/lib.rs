//! Floor 5: machines that run under QEMU.
//!
//! A [`Description`] says what a machine is made of, so that it can be started again years later.
//!
//! This crate knows nothing of repositories and snapshots: who calls it stores what it gives.

mod description;

pub use description::{
    Cpu, DESCRIPTION_BYTES_MAX, Description, DescriptionError, DiskBus, DiskDescription, Emulator,
    Firmware, FirmwareFile, NetworkDescription, Tpm,
};
