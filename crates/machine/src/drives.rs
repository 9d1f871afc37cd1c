//! The disks of a running machine, as QEMU's monitor says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::description::{DiskBus, device_name, disk_bus, is_cdrom, is_passed_through};
use crate::error::MachineError;
use crate::left_out::{LeftOut, WhyLeftOut};
use crate::objects::{DRIVES_MAX, PERIPHERAL, device_path, property, value};
use crate::passed_through;
use crate::qmp::Qmp;

/// A device is at most this deep among QEMU's objects.
const DEPTH_MAX: usize = 16;

/// A disk of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    /// What it is called; the same each night.
    pub name: String,
    /// How the guest sees it.
    pub bus: DiskBus,
    /// The driver of its device, such as `virtio-blk-pci`.
    pub driver: String,
    /// The driver of the controller that the device is plugged into, if it is one of disks.
    pub controller: Option<String>,
    /// The path of its device among QEMU's objects; the device has the property `drive`.
    pub device: String,
    /// The node that the guest reads and writes.
    pub node: String,
    /// The driver of this node, such as `qcow2`.
    pub format: String,
    /// Where the image is on the host, as QEMU says it.
    pub file: Option<String>,
    /// Its size in bytes.
    pub bytes: u64,
    /// Bitmaps that are added can be stored in the image.
    pub keeps_bitmaps: bool,
    /// The thread that serves it, if it is one of its own.
    pub iothread: Option<String>,
}

/// The drives of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drives {
    /// Those that can be read.
    pub disks: Vec<Drive>,
    /// The others.
    pub left_out: Vec<LeftOut>,
}

/// A bitmap of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitmap {
    /// Its name.
    pub name: String,
    /// It notes what is written.
    pub is_recording: bool,
    /// How many bytes each of its bits is for.
    pub granularity: u64,
    /// QEMU did not store it when it ended, so it says nothing.
    pub is_inconsistent: bool,
}

impl Drives {
    /// Asks QEMU which drives there are.
    ///
    /// # Errors
    ///
    /// QEMU does not answer.
    pub fn find(qmp: &Qmp) -> Result<Self, MachineError> {
        let answer = qmp.execute("query-block", Value::Null)?;
        let mut drives = Self::default();
        let mut places: BTreeMap<DiskBus, usize> = BTreeMap::new();
        let mut names = BTreeSet::new();
        for block in answer.as_array().into_iter().flatten().take(DRIVES_MAX) {
            let Some(qdev) = block["qdev"].as_str().filter(|path| !path.is_empty()) else {
                // A drive that no device uses.
                continue;
            };
            let device = Device::find(qmp, qdev)?;
            let bus = device.bus.unwrap_or_default();
            let place = places.entry(bus).or_default();
            let inserted = &block["inserted"];
            let ids =
                [device.id.as_deref(), block["device"].as_str(), inserted["node-name"].as_str()];
            let mut name = device_name(&ids, bus, *place);
            *place += 1;
            // Devices, drives and nodes have ids of their own, which may be the same.
            let mut number = 2;
            while !names.insert(name.clone()) {
                name = format!("{}-{number}", device_name(&ids, bus, *place - 1));
                number += 1;
            }
            match why_left_out(&device, inserted) {
                Some(why) => drives.left_out.push(LeftOut { name, why }),
                None => drives.disks.push(drive(name, bus, device, inserted)),
            }
        }
        drives.left_out.extend(passed_through::find(qmp)?);
        Ok(drives)
    }

    /// Fails unless each of these is a name of a disk, or of one that is left out in any case.
    pub fn check_names(&self, names: &[String]) -> Result<(), MachineError> {
        let disks = self.disks.iter().map(|drive| &drive.name);
        check_names(names, disks, self.left_out.iter().map(|drive| &drive.name))
    }
}

/// As [`Drives::check_names`].
pub fn check_names<'n>(
    names: &[String],
    disks: impl Iterator<Item = &'n String> + Clone,
    left_out: impl Iterator<Item = &'n String> + Clone,
) -> Result<(), MachineError> {
    let all = || disks.clone().chain(left_out.clone());
    match names.iter().find(|name| !all().any(|known| known == *name)) {
        None => Ok(()),
        Some(name) => {
            let known = disks.cloned().collect();
            Err(MachineError::NoSuchDisk { name: name.clone(), known })
        }
    }
}

fn why_left_out(device: &Device, inserted: &Value) -> Option<WhyLeftOut> {
    let Some(bus) = device.bus else { return Some(WhyLeftOut::NoDisk) };
    if is_cdrom(&device.driver) || bus == DiskBus::Floppy {
        Some(WhyLeftOut::Removable)
    } else if inserted["node-name"].as_str().is_none_or(str::is_empty) {
        Some(WhyLeftOut::Empty)
    } else if inserted["ro"] == true {
        Some(WhyLeftOut::ReadOnly)
    } else if is_passed_through(&device.driver) || device.takes_scsi {
        Some(WhyLeftOut::PassedThrough)
    } else {
        None
    }
}

fn drive(name: String, bus: DiskBus, device: Device, inserted: &Value) -> Drive {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let format = text(&inserted["drv"]);
    let image = &inserted["image"];
    let is_newer_qcow2 = image["format-specific"]["data"]["compat"] == "1.1";
    Drive {
        name,
        bus,
        driver: device.driver,
        controller: device.controller,
        device: device.path,
        node: text(&inserted["node-name"]),
        keeps_bitmaps: format == "qcow2" && is_newer_qcow2,
        format,
        file: inserted["file"].as_str().map(str::to_owned),
        bytes: image["virtual-size"].as_u64().unwrap_or_default(),
        iothread: device.iothread,
    }
}

/// A device that has a drive.
struct Device {
    /// Its path among QEMU's objects.
    path: String,
    /// The id that it was given.
    id: Option<String>,
    driver: String,
    controller: Option<String>,
    /// Absent if it is none for disks.
    bus: Option<DiskBus>,
    iothread: Option<String>,
    /// A `virtio-blk` that passes SCSI commands of the guest to the host (`scsi=on`), beside its usual
    /// requests.
    takes_scsi: bool,
}

impl Device {
    /// `qdev` is what QEMU calls it: a path, or an id alone.
    fn find(qmp: &Qmp, qdev: &str) -> Result<Self, MachineError> {
        let path = device_path(qdev);
        let id = path.strip_prefix(PERIPHERAL).and_then(|rest| rest.split('/').next());
        let id = id.map(str::to_owned);
        let outer = path.strip_suffix("/virtio-backend").unwrap_or(&path);
        let driver = match &id {
            // Of a device inside of another one, such as a USB stick's, the outer one counts.
            Some(id) => property(qmp, &format!("{PERIPHERAL}{id}"), "type")?,
            None => property(qmp, outer, "type")?,
        };
        let driver = driver.unwrap_or_default();
        let bus_path = property(qmp, outer, "parent_bus")?.unwrap_or_default();
        let mut iothread = iothread(qmp, &path)?;
        let mut controller = None;
        // The devices that the bus belongs to, from the inside out.
        for (place, _) in bus_path.rmatch_indices('/').take(DEPTH_MAX) {
            let above = &bus_path[..place];
            if above.matches('/').count() < 3 {
                break;
            }
            iothread = iothread.or(self::iothread(qmp, above)?);
            if let Some(kind) = property(qmp, above, "type")?
                && is_controller(&kind)
            {
                controller = Some(kind);
            }
        }
        let bus = disk_bus(&driver);
        let takes_scsi = value(qmp, &path, "scsi")?.is_some_and(|value| value == true);
        Ok(Self { path, id, driver, controller, bus, iothread, takes_scsi })
    }
}

fn is_controller(driver: &str) -> bool {
    const PARTS: [&str; 7] = ["scsi", "ahci", "ide", "sas", "lsi", "esp", "usb"];
    !driver.ends_with("-device") && PARTS.iter().any(|part| driver.contains(part))
}

/// The id of the iothread of a device. It is an object: the property is its path, or its id alone.
fn iothread(qmp: &Qmp, path: &str) -> Result<Option<String>, MachineError> {
    let named = property(qmp, path, "iothread")?.filter(|name| !name.is_empty());
    Ok(named.map(|name| name.rsplit('/').next().unwrap_or_default().to_owned()))
}

/// The names of all nodes, and the bitmaps of each.
pub fn nodes(qmp: &Qmp) -> Result<BTreeMap<String, Vec<Bitmap>>, MachineError> {
    let answer = qmp.execute("query-named-block-nodes", json!({"flat": true}))?;
    let nodes = answer.as_array().into_iter().flatten();
    let named = nodes.filter_map(|node| {
        let bitmaps = node["dirty-bitmaps"].as_array().into_iter().flatten();
        let bitmaps = bitmaps.filter_map(|bitmap| {
            Some(Bitmap {
                name: bitmap["name"].as_str()?.to_owned(),
                is_recording: bitmap["recording"] == true,
                is_inconsistent: bitmap["inconsistent"] == true,
                granularity: bitmap["granularity"].as_u64().unwrap_or_default(),
            })
        });
        Some((node["node-name"].as_str()?.to_owned(), bitmaps.collect()))
    });
    Ok(named.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(driver: &str) -> Device {
        Device {
            path: "/machine/peripheral/sda".to_owned(),
            id: Some("sda".to_owned()),
            driver: driver.to_owned(),
            controller: None,
            bus: disk_bus(driver),
            iothread: None,
            takes_scsi: false,
        }
    }

    #[test]
    fn a_disk_to_which_the_guest_sends_scsi_commands_is_no_disk_of_qemus() {
        let inserted = json!({"node-name": "n", "ro": false});
        for (driver, why) in [
            ("scsi-hd", None),
            ("virtio-blk-pci", None),
            ("scsi-block", Some(WhyLeftOut::PassedThrough)),
            ("scsi-generic", Some(WhyLeftOut::PassedThrough)),
            ("scsi-cd", Some(WhyLeftOut::Removable)),
        ] {
            assert_eq!(why_left_out(&device(driver), &inserted), why, "{driver}");
        }
        let with_scsi = Device { takes_scsi: true, ..device("virtio-blk-pci") };
        assert_eq!(why_left_out(&with_scsi, &inserted), Some(WhyLeftOut::PassedThrough));
        let read_only = json!({"node-name": "n", "ro": true});
        let why = why_left_out(&device("scsi-block"), &read_only);
        assert_eq!(why, Some(WhyLeftOut::ReadOnly));
    }
}
