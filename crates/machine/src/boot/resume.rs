//! The arguments of QEMU for a machine that goes on where it was: those that it had, with other files
//! behind them.
//!
//! The state of devices fits only the same devices in the same order. So the command line is taken over
//! as it was, as far as it says what the guest sees; what it says of the host (files, sockets, networks)
//! is replaced. It comes from a snapshot, and another machine may have written it: options and devices
//! that are not on a list here are refused, and so is everything that names a file.

mod backends;
mod disks;
mod known;

use std::path::{Path, PathBuf};

use super::disks::escaped;
use super::{BootDisk, BootOptions, BootPlan, Qemu};
use crate::description::{Argument, Properties, split};
use crate::{Description, FirmwareFile};
use disks::Disks;
use known::{is_device, is_dropped, is_kept, names_host};

/// Why a machine cannot be resumed.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// There is nothing to resume from.
    #[error("it was stored without its memory")]
    NoMemory,
    /// Nothing says which devices it had.
    #[error("the command line of its QEMU is not stored")]
    NoArguments,
    /// An option that is not known, or that gave it a part of its host.
    #[error("its QEMU had the option -{name} {value}, which it cannot be resumed with")]
    Option {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A disk that it had is in no snapshot.
    #[error("its disk {path} is not stored")]
    Disk {
        /// Where it was.
        path: String,
    },
    /// A file of its firmware is not stored.
    #[error("a file of its firmware is not stored: {path}")]
    Firmware {
        /// Where it was.
        path: String,
    },
    /// This QEMU is another one.
    #[error("it is a {machine}, which this QEMU does not have")]
    Machine {
        /// The type of the machine.
        machine: String,
    },
    /// It ran by KVM, or did not.
    #[error("it ran by KVM, and /dev/kvm cannot be used here")]
    Kvm,
}

/// What has to be started for a machine to go on where it was. Its memory is expected in files in a
/// folder, each under its id.
///
/// # Errors
///
/// It cannot, and why.
pub fn plan_resume(
    description: &Description,
    boot_disks: &[BootDisk],
    emulator: &Qemu,
    options: &BootOptions,
    memory: &Path,
) -> Result<BootPlan, ResumeError> {
    if description.memory.is_empty() {
        return Err(ResumeError::NoMemory);
    }
    if description.arguments.is_empty() {
        return Err(ResumeError::NoArguments);
    }
    let is_kvm = description.emulator.is_kvm;
    if is_kvm && !options.uses_kvm {
        return Err(ResumeError::Kvm);
    }
    let machine = description.machine.as_deref().unwrap_or_default();
    if !emulator.machines.iter().any(|known| known == machine) {
        return Err(ResumeError::Machine { machine: machine.to_owned() });
    }
    let typed = split(&description.arguments);
    let mut resuming = Resuming {
        description,
        emulator,
        options,
        memory,
        disks: Disks::of(description, boot_disks, &options.socket),
        console: backends::console(&typed),
        has_console: false,
        is_forwarded: false,
        arguments: Vec::new(),
        notes: Vec::new(),
    };
    if let Some(name) = &description.name {
        resuming.add("-name", format!("guest={}", escaped(name)));
    }
    if !typed.iter().any(|argument| matches!(argument.name, "machine" | "M")) {
        resuming.add("-machine", machine);
    }
    for argument in &typed {
        resuming.take(argument)?;
    }
    resuming.add("-accel", if is_kvm { "kvm" } else { "tcg" });
    Ok(resuming.finish(&typed))
}

struct Resuming<'p> {
    description: &'p Description,
    emulator: &'p Qemu,
    options: &'p BootOptions,
    memory: &'p Path,
    disks: Disks<'p>,
    /// The chardev of its first serial port, if that has one by name.
    console: Option<String>,
    /// Its first serial port leads to standard output.
    has_console: bool,
    /// A card has the ports that are forwarded.
    is_forwarded: bool,
    arguments: Vec<String>,
    notes: Vec<String>,
}

impl Resuming<'_> {
    fn add(&mut self, option: &str, value: impl Into<String>) {
        self.arguments.extend([option.to_owned(), value.into()]);
    }

    /// Takes over an option, or what is behind it now.
    fn take(&mut self, argument: &Argument<'_>) -> Result<(), ResumeError> {
        let Argument { name, value } = *argument;
        let refused = || ResumeError::Option { name: name.to_owned(), value: value.to_owned() };
        if !Properties::are_all_of(value) {
            return Err(refused());
        }
        match name {
            "name" => {}
            "machine" | "M" => self.machine(value).ok_or_else(refused)?,
            "device" => {
                let device = Properties::of(value, "driver");
                let driver = device.get("driver").unwrap_or_default();
                if !is_device(driver) || names_host(&device) {
                    return Err(refused());
                }
                self.add("-device", value);
            }
            "object" => self.object(value).ok_or_else(refused)?,
            "drive" | "hda" | "hdb" | "hdc" | "hdd" | "cdrom" | "pflash" | "" => {
                let drive = disks::drive(argument);
                self.drive(&drive)?;
            }
            "blockdev" => self.node(&Properties::of(value, "driver"))?,
            "bios" => {
                let file = self.firmware(value)?;
                self.add("-bios", file);
            }
            "netdev" | "nic" | "net" => self.network(name, &Properties::of(value, "type")),
            "chardev" => self.chardev(&Properties::of(value, "backend")).ok_or_else(refused)?,
            "serial" => self.serial(value),
            "parallel" => self.add("-parallel", if value == "none" { value } else { "null" }),
            "audiodev" => {
                let id = Properties::of(value, "driver").owned("id").ok_or_else(refused)?;
                self.add("-audiodev", format!("none,id={}", escaped(&id)));
            }
            _ if is_dropped(name) => {}
            _ if is_kept(name) => {
                if value.contains('/') || names_host(&Properties::of(value, "")) {
                    return Err(refused());
                }
                self.arguments.push(format!("-{name}"));
                self.arguments.extend((!value.is_empty()).then(|| value.to_owned()));
            }
            _ => return Err(refused()),
        }
        Ok(())
    }

    /// The machine's type with its version, and what it has besides.
    fn machine(&mut self, value: &str) -> Option<()> {
        let mut properties = Properties::of(value, "type");
        properties.0.retain(|(key, _)| !matches!(key.as_str(), "type" | "accel" | "dumpdtb"));
        if names_host(&properties) || properties.0.iter().any(|(_, value)| value.contains('/')) {
            return None;
        }
        let kind = self.description.machine.clone().unwrap_or_default();
        self.add("-machine", kind + &joined(&properties));
        Some(())
    }

    /// An object that devices use.
    fn object(&mut self, value: &str) -> Option<()> {
        let mut object = Properties::of(value, "qom-type");
        let id = object.owned("id")?;
        match object.get("qom-type")? {
            "memory-backend-file" | "memory-backend-memfd" => {
                let part = self.description.memory.iter().find(|part| part.id == id)?;
                let path = memory_file(self.memory, &part.id)?;
                let path = escaped(&path.to_string_lossy());
                let (id, bytes) = (escaped(&id), part.bytes);
                let backend = format!("id={id},size={bytes},mem-path={path},share=on");
                self.add("-object", format!("memory-backend-file,{backend}"));
            }
            "rng-random" => {
                self.add(
                    "-object",
                    format!("rng-random,id={},filename=/dev/urandom", escaped(&id)),
                );
            }
            kind @ ("iothread" | "rng-builtin" | "throttle-group") => {
                let kind = kind.to_owned();
                object.0.retain(|(key, _)| key != "qom-type");
                self.add("-object", kind + &joined(&object));
            }
            _ => return None,
        }
        Some(())
    }

    /// A file of its firmware that is stored, by the path that it had.
    fn firmware(&self, path: &str) -> Result<String, ResumeError> {
        let missing = || ResumeError::Firmware { path: path.to_owned() };
        let files = self.description.files();
        let of_path = |file: &&&FirmwareFile| file.path == path;
        let file = files.iter().find(of_path).ok_or_else(missing)?;
        self.options.firmware.path_of(file).ok_or_else(missing)
    }

    fn finish(mut self, typed: &[Argument<'_>]) -> BootPlan {
        let BootOptions { folder, display, .. } = self.options;
        let is_given = |name: &str| typed.iter().any(|argument| argument.name == name);
        let is_serial = |argument: &Argument<'_>| {
            argument.name == "device" && argument.value.contains("isa-serial")
        };
        // Without a word of it, a machine has a serial port.
        let has_default = !is_given("serial") && !is_given("nodefaults");
        if has_default && !typed.iter().any(is_serial) {
            self.serial("stdio");
        }
        self.add("-monitor", "none");
        self.add("-display", display.clone());
        let monitor = folder.join("qmp");
        let path = escaped(&monitor.to_string_lossy());
        self.add("-chardev", format!("socket,id=strongroom-qmp,path={path},server=on,wait=off"));
        self.add("-mon", "chardev=strongroom-qmp,mode=control");
        self.add("-incoming", "defer");
        let cards = self.description.networks.iter();
        BootPlan {
            program: self.emulator.program.clone(),
            arguments: self.arguments,
            tpm: None,
            wire: None,
            card_addresses: cards.filter_map(|card| card.mac.clone()).collect(),
            notes: self.notes,
            monitor,
            agent: None,
        }
    }
}

/// Where a part of the memory is expected. An id that leaves the folder is of none.
pub fn memory_file(folder: &Path, id: &str) -> Option<PathBuf> {
    let is_name = !id.is_empty() && !id.contains('/') && !id.starts_with('.');
    is_name.then(|| folder.join(id))
}

/// Properties as text, each after a comma.
fn joined(properties: &Properties) -> String {
    let one = |(key, value): &(String, String)| format!(",{key}={}", escaped(value));
    properties.0.iter().map(one).collect()
}

#[cfg(test)]
mod tests;
