//! A machine is started again, from disks that an NBD server offers.
//!
//! [`plan`] turns a [`Description`](crate::Description) into the arguments of the QEMU that is here
//! ([`Qemu`]): what this QEMU no longer has becomes the nearest that it has, and a note says so.
//! [`plan_resume`] takes the arguments over as they were, for a machine that goes on where it was.
//! [`Running`] is the machine, from its start to its end. [`Sign`]s are what shows that it lives.
//!
//! The network is closed: the machine reaches neither this one nor any other, and is reached only by
//! ports that are forwarded to it. Several machines of a set can share a [`PrivateNetwork`].

mod arguments;
mod console;
mod disks;
mod emulator;
mod firmware;
mod guess;
mod incoming;
mod network;
mod picture;
mod resume;
mod running;
mod signs;
mod tpm;

use std::net::Ipv4Addr;
use std::path::PathBuf;

pub use arguments::plan;
pub use console::Console;
pub use emulator::{Qemu, QemuError};
pub use firmware::{FIRMWARE_BYTES_MAX, FirmwareError, FirmwareFolder};
pub use guess::guess;
pub use network::{PrivateNetwork, Wire};
pub use resume::{ResumeError, memory_file, plan_resume};
pub use running::{BootError, Running};
pub use signs::Sign;

/// A disk that an NBD server offers to the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootDisk {
    /// What it is called in the description, such as `vda`.
    pub name: String,
    /// The name of its export.
    pub export: String,
}

/// The network of a machine that is started from the archive.
#[derive(Debug, Clone)]
pub enum BootNetwork {
    /// It has no card.
    None,
    /// It has its cards, and a network of its own that leads nowhere.
    Isolated {
        /// Connections to some ports of this machine lead to ports of it: each pair is a port here,
        /// 0 for any that is free, and one there.
        forwards: Vec<(u16, u16)>,
        /// Other machines are on the network of its first card.
        shared: Option<SharedNetwork>,
    },
}

/// A machine's place on a [`PrivateNetwork`].
#[derive(Debug, Clone)]
pub struct SharedNetwork {
    /// The wire to it.
    pub wire: Wire,
    /// Which machine of the set it is. A machine that asks for an address gets 10.0.2.15, the next
    /// one 10.0.2.16, and so on.
    pub place: u8,
    /// The address that it has, if it does not ask for one: ports are forwarded to it.
    pub address: Option<Ipv4Addr>,
    /// The addresses that machines of the set have: its gateway has another.
    pub neighbours: Vec<Ipv4Addr>,
    /// Addresses of cards that other machines of the set have.
    pub taken: Vec<String>,
}

/// What is decided for this start.
#[derive(Debug, Clone)]
pub struct BootOptions {
    /// A folder of this start: sockets are made in it. Its path must be short, as paths of sockets
    /// have to be.
    pub folder: PathBuf,
    /// The files of the firmware that are stored beside the description.
    pub firmware: FirmwareFolder,
    /// The socket of the server of the disks.
    pub socket: PathBuf,
    /// Another size of memory than the description says.
    pub memory_bytes: Option<u64>,
    /// Another count of processors.
    pub cpus: Option<u32>,
    /// How its screen is shown: the value of `-display`.
    pub display: String,
    /// Its network.
    pub network: BootNetwork,
    /// Try the processor's help (`/dev/kvm`) first. Without it, or if that is refused, the processor
    /// is emulated.
    pub uses_kvm: bool,
    /// Give it the device over which a guest agent speaks.
    pub has_agent: bool,
}

/// An emulated TPM with the state that it had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TpmPlan {
    /// The files of its state.
    pub state: Vec<PathBuf>,
    /// It is of version 2.
    pub is_version_2: bool,
    /// The folder for the state of this start.
    pub folder: PathBuf,
    /// Where it listens.
    pub socket: PathBuf,
}

/// What is to be started.
#[derive(Debug, Clone)]
pub struct BootPlan {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The TPM that has to run before it.
    pub tpm: Option<TpmPlan>,
    /// The wire that it inherits.
    pub wire: Option<Wire>,
    /// The addresses of its network cards.
    pub card_addresses: Vec<String>,
    /// What differs from the machine as it was.
    pub notes: Vec<String>,
    /// The socket of the monitor.
    pub monitor: PathBuf,
    /// The socket of the guest agent, if it may speak.
    pub agent: Option<PathBuf>,
}
