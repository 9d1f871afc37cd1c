//! Disks that a guest reads and writes past QEMU, so that QEMU lists no drive for them: devices of the
//! host, devices that another program serves, and memory that keeps what is in it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::MachineError;
use crate::left_out::{LeftOut, WhyLeftOut};
use crate::objects::{DRIVES_MAX, PERIPHERAL, property, value};
use crate::qmp::Qmp;

/// How the drivers of devices begin that are disks in any case.
const DISKS: [&str; 4] = ["vhost-user-blk", "vhost-user-scsi", "vhost-scsi", "virtio-pmem"];
/// Bridges are at most this deep below each other.
const BRIDGES_MAX: usize = 16;
/// The first byte of the class of PCI devices with disks.
const PCI_STORAGE: u64 = 0x01;
/// The class of USB interfaces to disks, as the kernel writes it.
const USB_STORAGE: &str = "08";

/// Asks QEMU for them.
///
/// # Errors
///
/// It does not answer.
pub fn find(qmp: &Qmp) -> Result<Vec<LeftOut>, MachineError> {
    let (host, mut found) = (HostDevices::default(), Vec::new());
    for folder in [PERIPHERAL, "/machine/peripheral-anon/"] {
        let path = folder.trim_end_matches('/');
        let devices = match qmp.execute("qom-list", json!({"path": path})) {
            Err(error) if error.is_refused() => continue,
            devices => devices?,
        };
        for device in devices.as_array().into_iter().flatten().take(DRIVES_MAX) {
            let (Some(name), Some(kind)) = (device["name"].as_str(), device["type"].as_str())
            else {
                continue;
            };
            let driver = kind.strip_prefix("child<").and_then(|kind| kind.strip_suffix('>'));
            let device = Device { qmp, path: &format!("{folder}{name}"), name };
            let driver = driver.unwrap_or_default();
            if let Some(why) = device.why_left_out(driver, &host)? {
                found.push(LeftOut { name: format!("{driver}-{name}"), why });
            }
        }
    }
    Ok(found)
}

/// A device of a machine.
struct Device<'d> {
    qmp: &'d Qmp,
    path: &'d str,
    name: &'d str,
}

impl Device<'_> {
    /// Why it is left out; `None` if it is no disk, or one that QEMU lists.
    fn why_left_out(
        &self,
        driver: &str,
        host: &HostDevices,
    ) -> Result<Option<WhyLeftOut>, MachineError> {
        let is_disk = match driver {
            // The guest only reads it.
            "nvdimm" if value(self.qmp, self.path, "unarmed")? == Some(Value::Bool(true)) => {
                return Ok(Some(WhyLeftOut::ReadOnly));
            }
            "nvdimm" => true,
            "vfio-pci" => {
                let address = property(self.qmp, self.path, "host")?;
                address.is_some_and(|address| host.is_pci_storage(&address))
            }
            // What is not known to be none is one: such a server has a disk in most cases.
            "vfio-user-pci" => self.pci_class()?.is_none_or(|class| class >> 8 == PCI_STORAGE),
            "usb-host" => host.is_usb_storage(&UsbAddress {
                bus: self.number("hostbus")?,
                device: self.number("hostaddr")?,
                vendor: self.number("vendorid")?,
                product: self.number("productid")?,
            }),
            driver if driver.starts_with("vhost-vdpa-device") => {
                let kind = self.virtio_kind()?;
                kind.is_none_or(|kind| matches!(&*kind, "virtio-blk" | "virtio-scsi"))
            }
            driver => DISKS.iter().any(|start| driver.starts_with(start)),
        };
        Ok(is_disk.then_some(WhyLeftOut::PassedThrough))
    }

    /// A property that is a number. Zero is none.
    fn number(&self, name: &str) -> Result<Option<u64>, MachineError> {
        let number = value(self.qmp, self.path, name)?.and_then(|value| value.as_u64());
        Ok(number.filter(|number| *number > 0))
    }

    /// What the guest takes a virtio device for, if QEMU says it.
    fn virtio_kind(&self) -> Result<Option<String>, MachineError> {
        let devices = match self.qmp.execute("x-query-virtio", Value::Null) {
            Err(error) if error.is_refused() => return Ok(None),
            devices => devices?,
        };
        let is_it = |path: &str| path == self.path || path.starts_with(&format!("{}/", self.path));
        let mut devices = devices.as_array().into_iter().flatten();
        let found = devices.find(|device| device["path"].as_str().is_some_and(is_it));
        Ok(found.and_then(|device| device["name"].as_str().map(str::to_owned)))
    }

    /// The class of a PCI device, if QEMU says it: not of one behind a bridge that no firmware has set up.
    fn pci_class(&self) -> Result<Option<u64>, MachineError> {
        match self.qmp.execute("query-pci", Value::Null) {
            Err(error) if error.is_refused() => Ok(None),
            buses => Ok(class_in(&buses?, self.name, BRIDGES_MAX)),
        }
    }
}

/// The class of a device in an answer to `query-pci`.
fn class_in(buses: &Value, name: &str, depth: usize) -> Option<u64> {
    let buses = buses.as_array().into_iter().flatten();
    let mut devices = buses.flat_map(|bus| bus["devices"].as_array().into_iter().flatten());
    devices.find_map(|device| {
        if device["qdev_id"] == name {
            return device["class_info"]["class"].as_u64();
        }
        let behind = json!([{"devices": device["pci_bridge"]["devices"]}]);
        if depth > 0 { class_in(&behind, name, depth - 1) } else { None }
    })
}

/// The devices of this host, as the kernel shows them.
#[derive(Debug, Clone)]
pub struct HostDevices {
    /// Where PCI devices are.
    pub pci: PathBuf,
    /// Where USB devices are.
    pub usb: PathBuf,
}

impl Default for HostDevices {
    fn default() -> Self {
        Self { pci: "/sys/bus/pci/devices".into(), usb: "/sys/bus/usb/devices".into() }
    }
}

/// By what a device is chosen: of its place and its kind, as much as is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsbAddress {
    /// The number of its bus.
    pub bus: Option<u64>,
    /// Its number on the bus.
    pub device: Option<u64>,
    /// Who made it.
    pub vendor: Option<u64>,
    /// What its maker calls it.
    pub product: Option<u64>,
}

impl HostDevices {
    /// Whether a PCI device has disks: the first byte of its class says so.
    pub fn is_pci_storage(&self, address: &str) -> bool {
        let class = std::fs::read_to_string(self.pci.join(address).join("class"));
        class.is_ok_and(|class| class.trim().starts_with("0x01"))
    }

    /// Whether a USB device is known to be a disk. One that is not found is not.
    pub fn is_usb_storage(&self, address: &UsbAddress) -> bool {
        if *address == UsbAddress::default() {
            return false;
        }
        let Ok(entries) = std::fs::read_dir(&self.usb) else { return false };
        let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        let name =
            |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut chosen = paths.iter().filter(|path| address.is_of(path));
        chosen.any(|device| {
            // Its interfaces are beside it: `1-2:1.0` is one of `1-2`.
            let start = format!("{}:", name(device));
            let mut interfaces = paths.iter().filter(|path| name(path).starts_with(&start));
            interfaces.any(|path| {
                let class = std::fs::read_to_string(path.join("bInterfaceClass"));
                class.is_ok_and(|class| class.trim() == USB_STORAGE)
            })
        })
    }
}

impl UsbAddress {
    /// Whether the device in a folder of the kernel is such a one.
    fn is_of(&self, device: &Path) -> bool {
        let is = |name: &str, radix: u32, wanted: Option<u64>| {
            let read = || {
                let text = std::fs::read_to_string(device.join(name)).ok()?;
                u64::from_str_radix(text.trim(), radix).ok()
            };
            wanted.is_none() || wanted == read()
        };
        is("busnum", 10, self.bus)
            && is("devnum", 10, self.device)
            && is("idVendor", 16, self.vendor)
            && is("idProduct", 16, self.product)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn a_device_of_the_host_is_a_disk_by_its_class() {
        let folder = tempfile::tempdir().unwrap();
        let host = HostDevices { pci: folder.path().join("pci"), usb: folder.path().join("usb") };
        write(&host.pci, &[("0000:01:00.0/class", "0x010802"), ("0000:02:00.0/class", "0x030000")]);
        assert!(host.is_pci_storage("0000:01:00.0"));
        assert!(!host.is_pci_storage("0000:02:00.0") && !host.is_pci_storage("0000:03:00.0"));
        let stick = UsbAddress { bus: Some(1), device: Some(12), ..UsbAddress::default() };
        assert!(!host.is_usb_storage(&stick), "there is no such folder");
        for (name, number, product, class) in
            [("1-2", "12", "00ab", "08"), ("1-22", "13", "00ac", "03")]
        {
            let device = host.usb.join(name);
            write(
                &device,
                &[
                    ("busnum", "1"),
                    ("devnum", number),
                    ("idVendor", "1d6b"),
                    ("idProduct", product),
                ],
            );
            write(&host.usb.join(format!("{name}:1.0")), &[("bInterfaceClass", class)]);
        }
        assert!(host.is_usb_storage(&stick));
        assert!(!host.is_usb_storage(&UsbAddress { device: Some(13), ..stick }));
        assert!(!host.is_usb_storage(&UsbAddress { bus: Some(2), ..stick }));
        let by_kind =
            UsbAddress { vendor: Some(0x1d6b), product: Some(0xab), ..UsbAddress::default() };
        assert!(host.is_usb_storage(&by_kind));
        assert!(!host.is_usb_storage(&UsbAddress { product: Some(0xac), ..by_kind }));
        assert!(!host.is_usb_storage(&UsbAddress::default()), "it is not known which");
    }

    #[test]
    fn a_class_is_found_behind_bridges() {
        let device =
            |name: &str, class: u64| json!({"qdev_id": name, "class_info": {"class": class}});
        let mut bridge = device("bridge", 0x0604);
        bridge["pci_bridge"] = json!({"devices": [device("disk", 0x0108)]});
        let buses = json!([{"devices": [device("net", 0x0200), bridge]}, {"bus": 1}]);
        let class = |name: &str| class_in(&buses, name, BRIDGES_MAX);
        assert_eq!(
            (class("disk"), class("net"), class("none")),
            (Some(0x0108), Some(0x0200), None)
        );
        assert_eq!(class_in(&buses, "disk", 0), None);
    }
}
