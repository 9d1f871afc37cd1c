//! What a machine is made of, besides the bytes of its disks.
//!
//! A snapshot has it as the file `/NAME/machine/machine.json`. It is kept so that the machine can be
//! started again years later, by another version of the emulator and perhaps on another kind of
//! host. So it says what a guest can notice (which devices it has, their serial numbers and
//! addresses), not where the host kept its files; those are only in
//! [`Description::arguments`], the command line of the emulator as it was.
//!
//! Fields that are not known are absent. Fields may be added without a new version; a reader ignores
//! those that it does not know.

mod arguments;
mod command_line;
mod devices;
mod format;

use serde::{Deserialize, Serialize};

pub(crate) use arguments::tpm_socket;
pub(crate) use command_line::{Argument, Properties, split};
pub(crate) use devices::{device_name, disk_bus, is_cdrom, is_network, is_passed_through};

/// A longer file is no description.
pub const DESCRIPTION_BYTES_MAX: u64 = 4 << 20;

/// What a machine is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The version of this format: 1.
    pub version: u32,
    /// What the machine is called (`-name`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The program that ran it.
    #[serde(default)]
    pub emulator: Emulator,
    /// The machine type with its version, such as `pc-q35-7.2`. From a command line alone it may be
    /// an alias, such as `q35`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The other properties of `-machine`, such as `("smm", "on")`, except those that name files or
    /// nodes of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine_options: Vec<(String, String)>,
    /// Its processors.
    #[serde(default)]
    pub cpu: Cpu,
    /// The size of its memory in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The files of its memory that are stored, if it was stored with its memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemoryPart>,
    /// The UUID that the guest sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// What starts it.
    #[serde(default)]
    pub firmware: Firmware,
    /// Its disks and drives, in the order of the command line.
    #[serde(default)]
    pub disks: Vec<DiskDescription>,
    /// Its network cards, in the order of the command line.
    #[serde(default)]
    pub networks: Vec<NetworkDescription>,
    /// Its Trusted Platform Module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm: Option<Tpm>,
    /// The value of `-rtc base=`, such as `localtime`, which Windows expects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_base: Option<String>,
    /// The graphics card: the value of `-vga`, or the driver of a display device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
    /// The arguments of the emulator's process as they were, without the program.
    #[serde(default)]
    pub arguments: Vec<String>,
}

/// A part of the memory that is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPart {
    /// The id of its object; it is stored as `/NAME/memory/ID`.
    pub id: String,
    /// How long it is.
    pub bytes: u64,
}

/// The program that ran a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Emulator {
    /// Its file name, such as `qemu-system-x86_64`.
    pub program: String,
    /// Its version, such as `7.2.22`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its package, such as `Debian 1:7.2+dfsg-7+deb12u18`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// What it emulates, such as `x86_64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// It ran by KVM, so the guest saw this machine's processor.
    #[serde(default)]
    pub is_kvm: bool,
}

/// The processors of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// The value of `-cpu`: the model with its flags, such as `Skylake-Client,-hle`, or `host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How many processors it has when it starts.
    pub count: u32,
    /// Sockets, cores of a socket and threads of a core, if they were said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<(u32, u32, u32)>,
}

impl Default for Cpu {
    fn default() -> Self {
        Self { model: None, count: 1, topology: None }
    }
}

/// What starts a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Firmware {
    /// What the emulator brings with it: for a PC, a BIOS.
    Bios {
        /// Another file than the emulator's own (`-bios`). It may hold UEFI without a place for
        /// its variables.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<FirmwareFile>,
    },
    /// UEFI in flash memory.
    Uefi {
        /// The program.
        code: FirmwareFile,
        /// Its variables, among them what it boots. Absent if code and variables are one file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        variables: Option<FirmwareFile>,
    },
}

impl Default for Firmware {
    fn default() -> Self {
        Self::Bios { file: None }
    }
}

/// A file of the firmware, or of what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareFile {
    /// The name under which it is stored beside the description, such as `uefi-code.fd`.
    pub name: String,
    /// Where it was on the host.
    pub path: String,
    /// Its format: `raw` or `qcow2`.
    pub format: String,
}

/// How a guest sees a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskBus {
    /// Virtio block.
    Virtio,
    /// SCSI, virtio or other.
    Scsi,
    /// IDE; on a q35 machine or behind an AHCI controller it is SATA.
    Ide,
    /// NVMe.
    Nvme,
    /// USB storage.
    Usb,
    /// A memory card.
    Sd,
    /// A floppy.
    Floppy,
    /// Anything else.
    #[default]
    #[serde(other)]
    Other,
}

/// A disk, or a drive that takes one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskDescription {
    /// What it is called here: the disk is stored as `NAME.raw`.
    pub name: String,
    /// How the guest sees it.
    #[serde(default)]
    pub bus: DiskBus,
    /// The driver of the device, such as `virtio-blk-pci`, `scsi-hd` or `ide-cd`.
    pub device: String,
    /// The driver of the controller that it is plugged into, if that is a device of its own, such as
    /// `virtio-scsi-pci` or `ich9-ahci`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// The serial number that the guest sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Its place in the order of booting; the lowest is first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_index: Option<u32>,
    /// The guest cannot write to it.
    #[serde(default)]
    pub is_read_only: bool,
    /// It is a drive for CDs or DVDs.
    #[serde(default)]
    pub is_cdrom: bool,
    /// Its size in bytes, if there is a disk in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The format of its image on the host, such as `raw` or `qcow2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Where its image was on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The other properties of its device that a guest can notice, such as `("logical_block_size",
    /// "4096")`; not its place on a bus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<(String, String)>,
}

/// A network card.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkDescription {
    /// The driver of the device, such as `virtio-net-pci` or `e1000`.
    pub device: String,
    /// The address that the guest sees, such as `52:54:00:12:34:56`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The kind of its other side on the host, such as `user`, `tap` or `bridge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
}

/// A Trusted Platform Module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tpm {
    /// The driver of the device, such as `tpm-tis` or `tpm-crb`.
    pub device: String,
    /// `emulator` or `passthrough`.
    pub backend: String,
    /// The files of the emulator's state, if they could be found: what the guest has sealed is only
    /// opened by a TPM with this state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<FirmwareFile>,
}

/// Why a description could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// It was written by a newer program.
    #[error("the machine's description has version {0}, which a newer Strongroom can read")]
    Version(u32),
    /// It is too long to be one.
    #[error("the machine's description is longer than {DESCRIPTION_BYTES_MAX} bytes")]
    TooLong,
    /// It is not a description.
    #[error("the machine's description is damaged: {0}")]
    Json(#[from] serde_json::Error),
}
