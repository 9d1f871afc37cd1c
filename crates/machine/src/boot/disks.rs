//! Disks of a machine, as arguments of QEMU.
//!
//! A description comes from a snapshot, and another machine may have written it. So only devices and
//! properties of a list are taken from it: others could give a guest what belongs to this machine.

use serde_json::json;

use super::{BootDisk, BootOptions, Qemu};
use crate::{DiskBus, DiskDescription};

/// How long QEMU waits for the server of the disks to come back, in seconds.
const RECONNECT_SECONDS: u64 = 30;

/// Devices that a disk may be.
const DEVICES: [&str; 9] = [
    "virtio-blk-pci",
    "virtio-blk-pci-transitional",
    "virtio-blk-pci-non-transitional",
    "virtio-blk",
    "scsi-hd",
    "ide-hd",
    "nvme",
    "usb-storage",
    "virtio-blk-ccw",
];
/// Controllers that a disk may be plugged into.
const CONTROLLERS: [&str; 10] = [
    "virtio-scsi-pci",
    "virtio-scsi-pci-transitional",
    "virtio-scsi-pci-non-transitional",
    "lsi53c895a",
    "lsi",
    "megasas",
    "megasas-gen2",
    "mptsas1068",
    "pvscsi",
    "qemu-xhci",
];
/// Properties of a disk that a guest can notice.
const PROPERTIES: [&str; 13] = [
    "logical_block_size",
    "physical_block_size",
    "min_io_size",
    "opt_io_size",
    "discard_granularity",
    "rotation_rate",
    "wwn",
    "vendor",
    "product",
    "ver",
    "model",
    "device_id",
    "removable",
];

/// Adds what a disk needs. `number` counts the disks.
pub fn add(
    (number, disk): (usize, &BootDisk),
    described: Option<&DiskDescription>,
    emulator: &Qemu,
    options: &BootOptions,
    arguments: &mut Vec<String>,
    notes: &mut Vec<String>,
) {
    let node = format!("disk{number}");
    let blockdev = json!({
        "driver": "raw",
        "node-name": node,
        "read-only": false,
        "discard": "unmap",
        "file": {
            "driver": "nbd",
            "server": {"type": "unix", "path": options.socket.to_string_lossy()},
            "export": disk.export,
            "reconnect-delay": RECONNECT_SECONDS,
        },
    });
    arguments.extend(["-blockdev".to_owned(), blockdev.to_string()]);
    let (device, bus) = device_of(disk, described, emulator, arguments, notes);
    let mut properties = vec![format!("drive={node}"), format!("id=device{number}")];
    properties.extend(bus.map(|bus| format!("bus={bus}")));
    let boot_index = match described {
        Some(described) => described.boot_index,
        None => Some(number as u32 + 1),
    };
    // Without any index the firmware tries the first disk first.
    let boot_index = boot_index.or((number == 0).then_some(1));
    properties.extend(boot_index.map(|index| format!("bootindex={index}")));
    let serial = described.and_then(|described| described.serial.clone());
    let serial = serial.or_else(|| (device == "nvme").then(|| disk.name.clone()));
    properties.extend(serial.map(|serial| format!("serial={}", escaped(&serial))));
    let known = described.map(|described| &*described.properties).unwrap_or_default();
    for (name, value) in known.iter().filter(|(name, _)| PROPERTIES.contains(&&**name)) {
        properties.push(format!("{name}={}", escaped(value)));
    }
    arguments.extend(["-device".to_owned(), format!("{device},{}", properties.join(","))]);
}

/// The device of a disk, and the bus that it has to name. Adds the controller that it needs.
fn device_of(
    disk: &BootDisk,
    described: Option<&DiskDescription>,
    emulator: &Qemu,
    arguments: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> (String, Option<&'static str>) {
    let virtio = || ("virtio-blk-pci".to_owned(), None);
    let Some(described) = described else { return virtio() };
    let (usual, controller, bus) = match described.bus {
        DiskBus::Virtio => ("virtio-blk-pci", None, None),
        DiskBus::Scsi => ("scsi-hd", Some("virtio-scsi-pci"), Some("scsi-disks.0")),
        DiskBus::Ide => ("ide-hd", None, None),
        DiskBus::Nvme => ("nvme", None, None),
        DiskBus::Usb => ("usb-storage", Some("qemu-xhci"), Some("usb-disks.0")),
        DiskBus::Sd | DiskBus::Floppy | DiskBus::Other => {
            notes.push(format!(
                "the disk {} was a {}, and is a virtio disk now",
                disk.name, described.device
            ));
            return virtio();
        }
    };
    let is_known = DEVICES.contains(&&*described.device);
    let device = if is_known && emulator.has_device(&described.device) {
        described.device.clone()
    } else {
        if !described.device.is_empty() {
            notes.push(format!(
                "the disk {} was a {}, and is a {usual} now",
                disk.name, described.device
            ));
        }
        usual.to_owned()
    };
    if let (Some(usual), Some(bus)) = (controller, bus) {
        let may_be = |name: &&str| CONTROLLERS.contains(name) && emulator.has_device(name);
        let theirs = described.controller.as_deref().filter(may_be);
        let id = bus.split('.').next().unwrap_or(bus);
        let is_made = |argument: &String| argument.ends_with(&format!(",id={id}"));
        if !arguments.iter().any(is_made) {
            let controller = theirs.unwrap_or(usual);
            arguments.extend(["-device".to_owned(), format!("{controller},id={id}")]);
        }
    }
    (device, bus)
}

/// A comma ends a property, and two are one comma.
pub fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}
