//! The arguments of QEMU for a machine as it was described.
//!
//! What a description names is used only if it is on a list here, and its values cannot end a
//! property: another machine may have written it.

mod cards;

use std::path::Path;

use super::disks::escaped;
use super::{BootDisk, BootOptions, BootPlan, Qemu, TpmPlan, disks, tpm};
use crate::{Description, Firmware, FirmwareFile};

/// The memory of a machine of which nothing is known.
const MEMORY_BYTES: u64 = 1 << 30;
const MEBIBYTE: u64 = 1 << 20;
/// Where distributions have UEFI for PCs: the program, and variables that nothing was written to.
const UEFI_PLACES: [(&str, &str); 5] = [
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
    ("/usr/share/qemu/ovmf-x86_64-code.bin", "/usr/share/qemu/ovmf-x86_64-vars.bin"),
];
/// Values of `-vga`.
const VGA_KINDS: [&str; 6] = ["std", "cirrus", "vmware", "qxl", "virtio", "none"];
/// Graphics cards that a machine may have as a device.
const SCREENS: [&str; 8] = [
    "VGA",
    "bochs-display",
    "cirrus-vga",
    "qxl-vga",
    "virtio-vga",
    "virtio-gpu-pci",
    "vmware-svga",
    "ramfb",
];
/// TPMs that a machine may have.
const TPMS: [&str; 3] = ["tpm-crb", "tpm-tis", "tpm-spapr"];
/// Properties of a machine that a guest can notice.
const MACHINE_OPTIONS: [&str; 12] = [
    "smm",
    "hpet",
    "vmport",
    "usb",
    "i8042",
    "acpi",
    "graphics",
    "sata",
    "smbus",
    "pit",
    "pic",
    "mem-merge",
];

/// What has to be started for a machine to run again.
pub fn plan(
    description: &Description,
    boot_disks: &[BootDisk],
    emulator: &Qemu,
    options: &BootOptions,
) -> BootPlan {
    let mut planning =
        Planning { description, emulator, options, arguments: Vec::new(), notes: Vec::new() };
    planning.machine();
    planning.firmware();
    planning.disks(boot_disks);
    let (wire, card_addresses) = planning.network();
    planning.screen();
    let monitor = options.folder.join("qmp");
    let agent = options.has_agent.then(|| options.folder.join("agent"));
    planning.consoles(&monitor, agent.as_deref());
    let tpm = planning.tpm();
    let Planning { arguments, notes, .. } = planning;
    let program = emulator.program.clone();
    BootPlan { program, arguments, tpm, wire, card_addresses, notes, monitor, agent }
}

struct Planning<'p> {
    description: &'p Description,
    emulator: &'p Qemu,
    options: &'p BootOptions,
    arguments: Vec<String>,
    notes: Vec<String>,
}

impl Planning<'_> {
    fn add(&mut self, option: &str, value: impl Into<String>) {
        self.arguments.push(option.to_owned());
        self.arguments.push(value.into());
    }

    fn machine(&mut self) {
        let description = self.description;
        self.arguments.extend(["-nodefaults", "-no-user-config"].map(str::to_owned));
        if let Some(name) = &description.name {
            self.add("-name", format!("guest={}", escaped(name)));
        }
        let wanted = description.machine.as_deref().unwrap_or("pc");
        let machine = self.emulator.nearest_machine(wanted).unwrap_or_else(|| "pc".to_owned());
        if machine != wanted {
            self.notes.push(format!(
                "it was a {wanted}, which this QEMU no longer has, and starts as {machine}"
            ));
        }
        let options = description.machine_options.iter();
        let options = options.filter(|(name, _)| MACHINE_OPTIONS.contains(&&**name));
        let options = options.map(|(name, value)| format!(",{name}={}", escaped(value)));
        self.add("-machine", machine + &options.collect::<String>());
        if self.options.uses_kvm {
            self.add("-accel", "kvm");
        }
        self.add("-accel", "tcg");
        self.processor();
        let memory = self.options.memory_bytes.or(description.memory_bytes).unwrap_or(MEMORY_BYTES);
        self.add("-m", format!("{}M", memory.div_ceil(MEBIBYTE).max(1)));
        if let Some(uuid) = &description.uuid {
            self.add("-uuid", uuid.clone());
        }
        if let Some(base) = &description.clock_base {
            self.add("-rtc", format!("base={}", escaped(base)));
        }
    }

    fn processor(&mut self) {
        let cpu = &self.description.cpu;
        if let Some(model) = &cpu.model {
            let is_of_host = model == "host" || model.starts_with("host,");
            if is_of_host && !self.options.uses_kvm {
                self.add("-cpu", "max");
                self.notes
                    .push("its processor was that of its host, and is emulated now".to_owned());
            } else {
                self.add("-cpu", model.clone());
            }
        }
        let count = self.options.cpus.unwrap_or(cpu.count).max(1);
        let topology = cpu.topology.filter(|_| self.options.cpus.is_none());
        self.add(
            "-smp",
            match topology {
                Some((sockets, cores, threads)) => {
                    format!("{count},sockets={sockets},cores={cores},threads={threads}")
                }
                None => count.to_string(),
            },
        );
    }

    fn firmware(&mut self) {
        match &self.description.firmware {
            Firmware::Bios { file: None } => {}
            Firmware::Bios { file: Some(file) } => match self.stored(file) {
                Some(path) => self.add("-bios", path),
                None => self
                    .notes
                    .push("its own BIOS is not stored, and it starts with that of QEMU".to_owned()),
            },
            Firmware::Uefi { code, variables } => self.uefi(code, variables.as_ref()),
        }
    }

    fn uefi(&mut self, code: &FirmwareFile, variables: Option<&FirmwareFile>) {
        let stored = self.stored(code);
        let stored_variables = variables.and_then(|file| self.stored(file));
        let is_stored = stored.is_some();
        let here = UEFI_PLACES.iter().find(|(code, _)| Path::new(code).exists());
        let code_path = match (stored, here) {
            (Some(path), _) => path,
            (None, Some((path, _))) => (*path).to_owned(),
            (None, None) => {
                let note = "it starts by UEFI, whose program is neither stored nor installed here \
                            (package ovmf)";
                return self.notes.push(note.to_owned());
            }
        };
        if !is_stored {
            self.notes.push(format!("its UEFI is not stored, and that of {code_path} is used"));
        }
        self.add("-drive", flash(0, &code_path, true));
        match (stored_variables, here) {
            (Some(path), _) => self.add("-drive", flash(1, &path, false)),
            (None, Some((_, empty))) if !is_stored => {
                let copy = self.options.folder.join("uefi-variables");
                if std::fs::copy(empty, &copy).is_ok() {
                    self.add("-drive", flash(1, &copy.to_string_lossy(), false));
                }
            }
            _ => {}
        }
    }

    /// Where a file of the firmware is, if it is stored.
    fn stored(&self, file: &FirmwareFile) -> Option<String> {
        self.options.firmware.path_of(file)
    }

    /// Its TPM, if the state is stored and something can emulate it.
    fn tpm(&mut self) -> Option<TpmPlan> {
        let tpm = self.description.tpm.as_ref()?;
        let state: Vec<String> = tpm.state.iter().filter_map(|file| self.stored(file)).collect();
        let is_whole = !state.is_empty() && state.len() == tpm.state.len();
        let is_known = TPMS.contains(&&*tpm.device) && self.emulator.has_device(&tpm.device);
        if !is_whole || !is_known || !tpm::is_here() {
            let why = match (is_whole, is_known) {
                (false, _) => "its state is not stored",
                (true, false) => "this QEMU has none like it",
                (true, true) => "swtpm is not installed",
            };
            self.notes.push(format!("it had a TPM, and starts without one: {why}"));
            return None;
        }
        let socket = self.options.folder.join("tpm.sock");
        let path = escaped(&socket.to_string_lossy());
        self.add("-chardev", format!("socket,id=tpm,path={path}"));
        self.add("-tpmdev", "emulator,id=tpm0,chardev=tpm");
        self.add("-device", format!("{},tpmdev=tpm0", tpm.device));
        Some(TpmPlan {
            is_version_2: tpm.state.iter().any(|file| file.name.starts_with("tpm2")),
            state: state.into_iter().map(Into::into).collect(),
            folder: self.options.folder.join("tpm"),
            socket,
        })
    }

    fn disks(&mut self, boot_disks: &[BootDisk]) {
        let described = &self.description.disks;
        let of = |disk: &BootDisk| described.iter().position(|other| other.name == disk.name);
        // In the order in which the machine had them; others follow.
        let mut ordered: Vec<&BootDisk> = boot_disks.iter().collect();
        ordered.sort_by_key(|disk| of(disk).unwrap_or(usize::MAX));
        for numbered in ordered.iter().copied().enumerate() {
            let place = of(numbered.1);
            let described = place.map(|place| &described[place]);
            let (emulator, options) = (self.emulator, self.options);
            let (arguments, notes) = (&mut self.arguments, &mut self.notes);
            disks::add(numbered, described, emulator, options, arguments, notes);
        }
        for disk in described.iter().filter(|disk| !disk.is_cdrom) {
            if !boot_disks.iter().any(|other| other.name == disk.name) {
                self.notes.push(format!("its disk {} is not stored, and is missing", disk.name));
            }
        }
    }

    fn screen(&mut self) {
        self.add("-display", self.options.display.clone());
        match self.description.display.as_deref() {
            None => self.add("-vga", "std"),
            Some(kind) if VGA_KINDS.contains(&kind) => self.add("-vga", kind),
            Some(device) if SCREENS.contains(&device) && self.emulator.has_device(device) => {
                self.add("-vga", "none");
                self.add("-device", device);
            }
            Some(device) => {
                self.add("-vga", "std");
                self.notes.push(format!("its screen was a {device}, and is standard VGA now"));
            }
        }
    }

    fn consoles(&mut self, monitor: &Path, agent: Option<&Path>) {
        // What the machine says goes to standard output, where it is read as it comes.
        self.add("-chardev", "stdio,id=serial,signal=off");
        self.add("-serial", "chardev:serial");
        let socket = |path: &Path| {
            format!("socket,path={},server=on,wait=off", escaped(&path.to_string_lossy()))
        };
        self.add("-chardev", format!("{},id=qmp", socket(monitor)));
        self.add("-mon", "chardev=qmp,mode=control");
        if let Some(agent) = agent {
            self.add("-chardev", format!("{},id=agent", socket(agent)));
            self.add("-device", "virtio-serial-pci,id=agents");
            self.add("-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0");
        }
    }
}

/// Always raw: of an image, QEMU would open what its header names.
fn flash(unit: u32, path: &str, is_read_only: bool) -> String {
    let read_only = if is_read_only { "on" } else { "off" };
    let path = escaped(path);
    format!("if=pflash,unit={unit},format=raw,readonly={read_only},file={path}")
}

#[cfg(test)]
mod tests;
