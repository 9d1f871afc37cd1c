//! What the command line of QEMU says of a machine.
//!
//! Nothing here fails: what is not understood is left out, and the arguments are kept as they were.

use std::collections::BTreeMap;

use super::command_line::{Argument, Properties, size, split};
use super::devices::{device_name, disk_bus, is_cdrom, is_display, is_network};
use super::{
    Cpu, Description, DiskBus, DiskDescription, Firmware, FirmwareFile, NetworkDescription, Tpm,
};

/// The first address that QEMU gives to a network card; the next ones count on.
const MAC_FIRST: u32 = 0x12_34_56;
/// The size of the memory, if nothing says it.
const MEMORY_BYTES: u64 = 128 << 20;
/// A chain of nodes is followed for this many steps.
const NODES_MAX: usize = 64;

impl Description {
    /// What the arguments of a QEMU process say, without the program's own name.
    pub fn from_arguments(arguments: &[String]) -> Self {
        let mut reading = Reading::default();
        for argument in split(arguments) {
            reading.take(&argument);
        }
        let mut description = reading.finish();
        description.arguments = arguments.to_vec();
        description
    }
}

/// Where the emulator of a TPM listens, by the arguments of a QEMU.
pub fn tpm_socket(arguments: &[String]) -> Option<String> {
    let values = |name: &'static str, first: &'static str| {
        let named = split(arguments).into_iter().filter(move |argument| argument.name == name);
        named.map(move |argument| Properties::of(argument.value, first)).collect::<Vec<_>>()
    };
    let tpm =
        values("tpmdev", "type").into_iter().find(|tpm| tpm.get("type") == Some("emulator"))?;
    let device = tpm.get("chardev")?;
    let devices = values("chardev", "backend");
    devices.into_iter().find(|found| found.get("id") == Some(device))?.owned("path")
}

/// A command line that is being read.
#[derive(Default)]
struct Reading {
    description: Description,
    machine: Properties,
    /// `-drive`, in their order.
    drives: Vec<Properties>,
    /// `-device`, in their order.
    devices: Vec<Properties>,
    /// `-blockdev`, by node name.
    nodes: BTreeMap<String, Properties>,
    /// `-netdev`, by id: the kind.
    networks: BTreeMap<String, String>,
    /// `-tpmdev`, by id: the kind.
    tpms: BTreeMap<String, String>,
    bios: Option<String>,
    has_no_defaults: bool,
    has_network_options: bool,
}

impl Reading {
    fn take(&mut self, argument: &Argument<'_>) {
        let value = argument.value;
        let description = &mut self.description;
        match argument.name {
            "name" => description.name = Properties::of(value, "guest").owned("guest"),
            "machine" | "M" => self.machine.0.extend(Properties::of(value, "type").0),
            "accel" => {
                let accelerator = Properties::of(value, "accel").owned("accel");
                description.emulator.is_kvm |= accelerator.as_deref() == Some("kvm");
            }
            "enable-kvm" => description.emulator.is_kvm = true,
            "cpu" => description.cpu.model = Some(value.to_owned()),
            "smp" => description.cpu = processors(&Properties::of(value, "cpus"), description),
            "m" => {
                let memory = Properties::of(value, "size");
                let bytes = memory.get("size").and_then(|text| size(text, 1 << 20));
                description.memory_bytes = bytes.or(description.memory_bytes);
            }
            "uuid" => description.uuid = Some(value.to_owned()),
            "smbios" => {
                let table = Properties::of(value, "");
                if table.get("type") == Some("1") {
                    description.uuid = table.owned("uuid").or(description.uuid.take());
                }
            }
            "rtc" => description.clock_base = Properties::of(value, "").owned("base"),
            "vga" => description.display = Some(value.to_owned()),
            "bios" => self.bios = Some(value.to_owned()),
            "drive" => self.drives.push(Properties::of(value, "")),
            "device" => self.devices.push(Properties::of(value, "driver")),
            "blockdev" => {
                let node = Properties::of(value, "driver");
                if let Some(name) = node.owned("node-name") {
                    self.nodes.insert(name, node);
                }
            }
            "nodefaults" => self.has_no_defaults = true,
            "netdev" | "nic" | "net" => self.take_network(argument.name, value),
            "tpmdev" => {
                let tpm = Properties::of(value, "type");
                if let (Some(id), Some(kind)) = (tpm.owned("id"), tpm.owned("type")) {
                    self.tpms.insert(id, kind);
                }
            }
            _ => self.take_image(argument),
        }
    }

    /// The short forms of `-drive`.
    fn take_image(&mut self, argument: &Argument<'_>) {
        let image = |properties: &[(&str, &str)]| {
            let pair = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
            Properties(properties.iter().map(pair).collect())
        };
        let file = argument.value;
        self.drives.push(match argument.name {
            "" => image(&[("file", argument.value)]),
            "hda" => image(&[("file", file), ("index", "0")]),
            "hdb" => image(&[("file", file), ("index", "1")]),
            "hdc" => image(&[("file", file), ("index", "2")]),
            "hdd" => image(&[("file", file), ("index", "3")]),
            "cdrom" => image(&[("file", file), ("index", "2"), ("media", "cdrom")]),
            "pflash" => image(&[("file", file), ("if", "pflash")]),
            "sd" => image(&[("file", file), ("if", "sd")]),
            "fda" => image(&[("file", file), ("if", "floppy"), ("index", "0")]),
            "fdb" => image(&[("file", file), ("if", "floppy"), ("index", "1")]),
            _ => return,
        });
    }

    fn take_network(&mut self, option: &str, value: &str) {
        self.has_network_options = true;
        let network = Properties::of(value, "type");
        let kind = network.owned("type");
        if option == "netdev" {
            if let (Some(id), Some(kind)) = (network.owned("id"), kind) {
                self.networks.insert(id, kind);
            }
            return;
        }
        let is_none = kind.as_deref() == Some("none");
        if is_none || (option == "net" && kind.as_deref() != Some("nic")) {
            return;
        }
        let model = network.owned("model").unwrap_or_default();
        let mac = network.owned("mac").or_else(|| network.owned("macaddr"));
        let backend = kind.filter(|_| option == "nic");
        self.description.networks.push(NetworkDescription { device: model, mac, backend });
    }

    fn finish(mut self) -> Description {
        let version = Description::new().version;
        self.description.version = version;
        self.finish_machine();
        self.finish_firmware();
        self.finish_disks();
        self.finish_devices();
        self.finish_networks();
        self.description
    }

    fn finish_machine(&mut self) {
        self.description.machine = self.machine.owned("type");
        if self
            .machine
            .get("accel")
            .is_some_and(|accelerators| accelerators.split(':').next() == Some("kvm"))
        {
            self.description.emulator.is_kvm = true;
        }
        const OF_THE_HOST: [&str; 6] =
            ["type", "accel", "pflash0", "pflash1", "memory-backend", "dumpdtb"];
        let options = self.machine.0.iter();
        let kept = options.filter(|(key, _)| !OF_THE_HOST.contains(&key.as_str()));
        self.description.machine_options = kept.cloned().collect();
        self.description.memory_bytes.get_or_insert(MEMORY_BYTES);
    }

    fn finish_firmware(&mut self) {
        let mut flash: BTreeMap<u32, (String, String)> = BTreeMap::new();
        for drive in self.drives.iter().filter(|drive| drive.get("if") == Some("pflash")) {
            let unit = drive.get("unit").or(drive.get("index"));
            let unit = unit.and_then(|unit| unit.parse().ok());
            let unit =
                unit.unwrap_or_else(|| (0..).find(|unit| !flash.contains_key(unit)).unwrap_or(0));
            let format = drive.owned("format").unwrap_or_else(|| "raw".to_owned());
            let path = drive.owned("file").or_else(|| drive.owned("file.filename"));
            flash.insert(unit, (path.unwrap_or_default(), format));
        }
        for unit in [0, 1] {
            if let Some(node) = self.machine.get(&format!("pflash{unit}"))
                && let Some((path, format)) = self.node_file(node)
            {
                flash.insert(unit, (path, format));
            }
        }
        let file = |name: &str, (path, format): (String, String)| FirmwareFile {
            name: name.to_owned(),
            path,
            format,
        };
        let code = flash.remove(&0);
        let variables = flash.remove(&1).map(|found| file("uefi-variables.fd", found));
        self.description.firmware = match (code, self.bios.take()) {
            (Some(code), _) => Firmware::Uefi { code: file("uefi-code.fd", code), variables },
            (None, Some(path)) => {
                Firmware::Bios { file: Some(file("bios.bin", (path, "raw".to_owned()))) }
            }
            (None, None) => Firmware::Bios { file: None },
        };
    }

    /// The file under a node, and the format that it has.
    fn node_file(&self, name: &str) -> Option<(String, String)> {
        let mut node = self.nodes.get(name)?;
        let mut format = None;
        for _ in 0..NODES_MAX {
            let driver = node.get("driver").unwrap_or_default();
            let is_filter = matches!(driver, "throttle" | "copy-on-read" | "blkdebug");
            if format.is_none() && !is_filter {
                format = Some(driver.to_owned());
            }
            let path = ["filename", "file.filename", "file.file.filename"];
            if let Some(path) = path.iter().find_map(|key| node.get(key)) {
                // A protocol alone is a raw disk.
                let format = format.filter(|format| !is_protocol(format));
                return Some((path.to_owned(), format.unwrap_or_else(|| "raw".to_owned())));
            }
            node = self.nodes.get(node.get("file")?)?;
        }
        None
    }

    fn finish_disks(&mut self) {
        let is_q35 = self.description.machine.as_deref().is_some_and(|name| name.contains("q35"));
        let mut places: BTreeMap<&str, u32> = BTreeMap::new();
        let mut disks = Vec::new();
        for drive in &self.drives {
            let interface = drive.get("if").unwrap_or("ide");
            if matches!(interface, "none" | "pflash" | "mtd") {
                continue;
            }
            let next = places.entry(interface).or_default();
            let index = drive.get("index").and_then(|index| index.parse().ok()).unwrap_or(*next);
            *next = index.saturating_add(1);
            let is_cdrom = drive.get("media") == Some("cdrom");
            let medium = if is_cdrom { "cd" } else { "hd" };
            let units = if is_q35 { 1 } else { 2 };
            let (bus, device, id) = match interface {
                "virtio" => {
                    (DiskBus::Virtio, "virtio-blk-pci".to_owned(), format!("virtio{index}"))
                }
                "scsi" => {
                    (DiskBus::Scsi, format!("scsi-{medium}"), format!("scsi0-{medium}{index}"))
                }
                "sd" => (DiskBus::Sd, "sd-card".to_owned(), format!("sd{index}")),
                "floppy" => (DiskBus::Floppy, "floppy".to_owned(), format!("floppy{index}")),
                _ => {
                    let id = format!("ide{}-{medium}{}", index / units, index % units);
                    (DiskBus::Ide, format!("ide-{medium}"), id)
                }
            };
            let name = drive.owned("id").unwrap_or(id);
            disks.push(DiskDescription {
                name: device_name(&[Some(&name)], bus, index as usize),
                bus,
                device,
                serial: drive.owned("serial"),
                is_read_only: is_cdrom || drive.is_on("readonly") || drive.is_on("read-only"),
                is_cdrom,
                format: drive.owned("format"),
                path: drive.owned("file").or_else(|| drive.owned("file.filename")),
                ..DiskDescription::default()
            });
        }
        self.description.disks = disks;
    }

    fn finish_devices(&mut self) {
        let mut places: BTreeMap<DiskBus, usize> = BTreeMap::new();
        for device in self.devices.clone() {
            let driver = device.get("driver").unwrap_or_default().to_owned();
            if let Some(bus) = disk_bus(&driver) {
                // A controller for NVMe namespaces has no disk of its own.
                let Some(drive) = device.get("drive") else {
                    if is_cdrom(&driver) {
                        self.add_disk(&device, bus, 0, "");
                    }
                    continue;
                };
                let place = places.entry(bus).or_default();
                self.add_disk(&device, bus, *place, drive);
                *place += 1;
            } else if is_display(&driver) {
                self.description.display.get_or_insert(driver);
            } else if let Some(id) = device.get("tpmdev") {
                let backend = self.tpms.get(id).cloned().unwrap_or_default();
                self.description.tpm = Some(Tpm { device: driver, backend, state: Vec::new() });
            } else if is_network(&driver) || device.get("netdev").is_some() {
                self.has_network_options = true;
                let backend = device.get("netdev").and_then(|id| self.networks.get(id)).cloned();
                let mac = device.owned("mac");
                self.description.networks.push(NetworkDescription { device: driver, mac, backend });
            }
        }
    }

    /// Adds a disk of `-device`. `drive` is the id of a `-drive`, or the name of a node.
    fn add_disk(&mut self, device: &Properties, bus: DiskBus, place: usize, drive: &str) {
        let driver = device.get("driver").unwrap_or_default();
        let options = self.drives.iter().find(|known| known.get("id") == Some(drive));
        let (path, format, is_read_only) = match options {
            Some(options) => (
                options.owned("file").or_else(|| options.owned("file.filename")),
                options.owned("format"),
                options.is_on("readonly") || options.is_on("read-only"),
            ),
            None => {
                let node = self.nodes.get(drive);
                let file = self.node_file(drive);
                let (path, format) =
                    file.map_or((None, None), |(path, format)| (Some(path), Some(format)));
                (path, format, node.is_some_and(|node| node.is_on("read-only")))
            }
        };
        const ELSEWHERE: [&str; 11] = [
            "driver",
            "drive",
            "id",
            "bus",
            "addr",
            "serial",
            "bootindex",
            "iothread",
            "share-rw",
            "write-cache",
            "discard",
        ];
        let properties = device.0.iter().filter(|(key, _)| !ELSEWHERE.contains(&key.as_str()));
        let controller = device.get("bus").and_then(|bus| self.controller(bus));
        self.description.disks.push(DiskDescription {
            name: device_name(&[device.get("id"), Some(drive)], bus, place),
            bus,
            device: driver.to_owned(),
            controller,
            serial: device
                .owned("serial")
                .or_else(|| options.and_then(|known| known.owned("serial"))),
            boot_index: device.get("bootindex").and_then(|index| index.parse().ok()),
            is_read_only: is_read_only || is_cdrom(driver),
            is_cdrom: is_cdrom(driver),
            bytes: None,
            format,
            path,
            properties: properties.cloned().collect(),
        });
    }

    /// The driver of the controller that has a bus: `scsi0.0` is a bus of `scsi0`.
    fn controller(&self, bus: &str) -> Option<String> {
        let id = bus.split('.').next()?;
        let controller = self.devices.iter().find(|device| device.get("id") == Some(id))?;
        controller.owned("driver")
    }

    fn finish_networks(&mut self) {
        let is_q35 = self.description.machine.as_deref().is_some_and(|name| name.contains("q35"));
        let usual = if is_q35 { "e1000e" } else { "e1000" };
        let networks = &mut self.description.networks;
        if !self.has_network_options && !self.has_no_defaults {
            let backend = Some("user".to_owned());
            networks.push(NetworkDescription { device: usual.to_owned(), mac: None, backend });
        }
        // `-nic` and `-net nic` are named by their model, and created before devices.
        for (place, network) in networks.iter_mut().enumerate() {
            network.device = match network.device.as_str() {
                "" => usual.to_owned(),
                "virtio" => "virtio-net-pci".to_owned(),
                _ => std::mem::take(&mut network.device),
            };
            let last = MAC_FIRST.wrapping_add(place as u32).to_le_bytes();
            network.mac.get_or_insert_with(|| {
                format!("52:54:00:{:02x}:{:02x}:{:02x}", last[2], last[1], last[0])
            });
        }
    }
}

/// What `-smp` says.
fn processors(options: &Properties, description: &Description) -> Cpu {
    let number = |key: &str| options.get(key).and_then(|text| text.parse::<u32>().ok());
    let topology = match (number("sockets"), number("cores"), number("threads")) {
        (Some(sockets), Some(cores), Some(threads)) => Some((sockets, cores, threads)),
        _ => None,
    };
    let product = ["sockets", "cores", "threads"].into_iter().filter_map(number);
    let product = product.fold(1u32, u32::saturating_mul);
    let count = number("cpus").unwrap_or(product).max(1);
    Cpu { model: description.cpu.model.clone(), count, topology }
}

/// True for drivers of nodes that are places of bytes, not formats.
fn is_protocol(driver: &str) -> bool {
    const PROTOCOLS: [&str; 10] =
        ["file", "host_device", "nbd", "rbd", "iscsi", "nfs", "ssh", "https", "gluster", "nvme"];
    PROTOCOLS.contains(&driver)
}

#[cfg(test)]
mod tests;
