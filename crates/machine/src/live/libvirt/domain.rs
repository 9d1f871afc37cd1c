//! What libvirt says of a machine, which it calls a domain: its XML.

use roxmltree::{Document, Node, ParsingOptions};

use crate::description::{Description, DiskBus, DiskDescription};
use crate::error::MachineError;
use crate::left_out::WhyLeftOut;
use crate::passed_through::{HostDevices, UsbAddress};

/// No domain has more elements.
const NODES_MAX: u32 = 100_000;

/// The kinds of memory that keep what is in it.
const KEPT_MEMORY: [&str; 2] = ["nvdimm", "virtio-pmem"];

/// A machine, as far as a backup wants to know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Domain {
    pub name: String,
    pub uuid: String,
    /// The path of its QEMU.
    pub emulator: Option<String>,
    pub machine: Option<String>,
    pub architecture: Option<String>,
    pub memory_bytes: Option<u64>,
    pub processors: Option<u32>,
    pub is_kvm: bool,
    pub disks: Vec<DomainDisk>,
    pub left_out: Vec<(String, WhyLeftOut)>,
}

/// A disk that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainDisk {
    /// What libvirt calls it, and its users: `vda`.
    pub target: String,
    pub bus: DiskBus,
    /// What its device is called among QEMU's.
    pub alias: Option<String>,
    pub serial: Option<String>,
    /// The format of its image.
    pub format: String,
    /// Where its image is.
    pub source: Option<String>,
    /// An iothread serves it, or its controller.
    pub has_iothread: bool,
}

impl Domain {
    /// Reads the XML of a domain on this host.
    pub fn parse(xml: &str, host: &HostDevices) -> Result<Self, MachineError> {
        let options = ParsingOptions { nodes_limit: NODES_MAX, ..ParsingOptions::default() };
        let document = Document::parse_with_options(xml, options)
            .map_err(|error| MachineError::DomainXml(error.to_string()))?;
        let root = document.root_element();
        let text = |path: &[&str]| descend(root, path).and_then(|found| found.text());
        let name = text(&["name"]).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| MachineError::DomainXml("it has no name".to_owned()))?;
        let kind = descend(root, &["os", "type"]);
        let memory = descend(root, &["memory"]);
        let mut domain = Self {
            name: name.to_owned(),
            uuid: text(&["uuid"]).unwrap_or_default().to_owned(),
            emulator: text(&["devices", "emulator"]).map(str::to_owned),
            machine: kind.and_then(|kind| kind.attribute("machine")).map(str::to_owned),
            architecture: kind.and_then(|kind| kind.attribute("arch")).map(str::to_owned),
            memory_bytes: memory.and_then(bytes_of),
            processors: text(&["vcpu"]).and_then(|count| count.trim().parse().ok()),
            is_kvm: root.attribute("type") == Some("kvm"),
            ..Self::default()
        };
        let devices = || descend(root, &["devices"]).into_iter().flat_map(|found| found.children());
        // Which controller a disk has is not looked at: one with an iothread counts for all.
        let mut scsi = devices().filter(|device| {
            device.has_tag_name("controller") && device.attribute("type") == Some("scsi")
        });
        let has_scsi_iothread = scsi.any(has_iothread);
        for disk in devices().filter(|device| device.has_tag_name("disk")) {
            domain.take_disk(disk, has_scsi_iothread);
        }
        let hosts = devices().filter(|device| device.has_tag_name("hostdev"));
        for (number, device) in hosts.enumerate() {
            let is_disk = match device.attribute("type") {
                Some("pci") => {
                    pci_address(device).is_some_and(|address| host.is_pci_storage(&address))
                }
                Some("usb") => host.is_usb_storage(&usb_address(device)),
                Some(kind) => kind.starts_with("scsi") && descend(device, &["readonly"]).is_none(),
                None => false,
            };
            if is_disk {
                let name = alias_or(device, "hostdev", number);
                domain.left_out.push((name, WhyLeftOut::PassedThrough));
            }
        }
        // Memory that keeps what is in it is a disk of the guest.
        let memory = devices().filter(|device| device.has_tag_name("memory"));
        let kept = memory.filter(|device| {
            device.attribute("model").is_some_and(|model| KEPT_MEMORY.contains(&model))
        });
        for (number, device) in kept.enumerate() {
            let model = device.attribute("model").unwrap_or_default();
            let why = match descend(device, &["target", "readonly"]) {
                Some(_) => WhyLeftOut::ReadOnly,
                None => WhyLeftOut::PassedThrough,
            };
            domain.left_out.push((alias_or(device, model, number), why));
        }
        Ok(domain)
    }

    fn take_disk(&mut self, disk: Node<'_, '_>, has_scsi_iothread: bool) {
        let attribute = |path: &[&str], name: &str| {
            descend(disk, path).and_then(|found| found.attribute(name)).map(str::to_owned)
        };
        let Some(target) = attribute(&["target"], "dev") else { return };
        let kind = disk.attribute("device").unwrap_or("disk");
        let source = descend(disk, &["source"]);
        let names = ["file", "dev", "name", "dir", "volume"];
        let place = source.and_then(|source| names.iter().find_map(|name| source.attribute(*name)));
        let why = match kind {
            "cdrom" | "floppy" => Some(WhyLeftOut::Removable),
            "disk" if source.is_none() => Some(WhyLeftOut::Empty),
            _ if descend(disk, &["readonly"]).is_some() => Some(WhyLeftOut::ReadOnly),
            "disk" if disk.attribute("type").is_some_and(|kind| kind.starts_with("vhost")) => {
                Some(WhyLeftOut::PassedThrough)
            }
            "disk" => None,
            // A `lun`.
            _ => Some(WhyLeftOut::PassedThrough),
        };
        if let Some(why) = why {
            return self.left_out.push((target, why));
        }
        let text = |path: &[&str]| descend(disk, path).and_then(|found| found.text());
        self.disks.push(DomainDisk {
            target,
            bus: bus_of(attribute(&["target"], "bus").as_deref()),
            alias: attribute(&["alias"], "name"),
            serial: text(&["serial"]).map(str::to_owned),
            format: attribute(&["driver"], "type").unwrap_or_else(|| "raw".to_owned()),
            source: place.map(str::to_owned),
            has_iothread: has_iothread(disk)
                || (has_scsi_iothread && attribute(&["target"], "bus").as_deref() == Some("scsi")),
        });
    }

    /// Corrects what the command line of its QEMU says by what libvirt does. The disks are called as
    /// libvirt calls them.
    pub fn correct(&self, description: &mut Description, sizes: &[Option<u64>]) {
        description.name = Some(self.name.clone());
        description.uuid = Some(self.uuid.clone()).filter(|uuid| !uuid.is_empty());
        description.machine = self.machine.clone().or(description.machine.take());
        description.memory_bytes = self.memory_bytes.or(description.memory_bytes);
        description.emulator.is_kvm |= self.is_kvm;
        description.emulator.architecture.clone_from(&self.architecture);
        if let Some(count) = self.processors {
            description.cpu.count = count;
        }
        let known = std::mem::take(&mut description.disks);
        for (disk, bytes) in self.disks.iter().zip(sizes) {
            let same = known.iter().find(|known| Some(&known.name) == disk.alias.as_ref());
            let same = same.cloned().unwrap_or_default();
            description.disks.push(DiskDescription {
                name: disk.target.clone(),
                bus: disk.bus,
                serial: disk.serial.clone().or(same.serial),
                bytes: *bytes,
                format: Some(disk.format.clone()),
                path: disk.source.clone(),
                ..same
            });
        }
        let is_drive = |disk: &DiskDescription| disk.is_cdrom || disk.bus == DiskBus::Floppy;
        description.disks.extend(known.into_iter().filter(is_drive));
    }
}

/// The description in the XML of a checkpoint.
pub fn checkpoint_description(xml: &str) -> Option<String> {
    let options = ParsingOptions { nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(xml, options).ok()?;
    let description = descend(document.root_element(), &["description"])?;
    description.text().map(str::to_owned)
}

/// The element at the end of a path of names.
fn descend<'a, 'x>(from: Node<'a, 'x>, path: &[&str]) -> Option<Node<'a, 'x>> {
    path.iter().try_fold(from, |node, name| node.children().find(|child| child.has_tag_name(*name)))
}

/// What libvirt calls a device, or a word and its number.
fn alias_or(device: Node<'_, '_>, word: &str, number: usize) -> String {
    let alias = descend(device, &["alias"]).and_then(|alias| alias.attribute("name"));
    alias.map_or_else(|| format!("{word}{number}"), str::to_owned)
}

/// Which USB device of the host it is.
fn usb_address(device: Node<'_, '_>) -> UsbAddress {
    let number = |element: &str, name: &str| {
        descend(device, &["source", element])?.attribute(name).and_then(number_of)
    };
    UsbAddress {
        bus: number("address", "bus"),
        device: number("address", "device"),
        vendor: number("vendor", "id"),
        product: number("product", "id"),
    }
}

/// A number in decimal, or with `0x` in front.
fn number_of(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The address of a PCI device of the host, as the kernel writes it.
fn pci_address(device: Node<'_, '_>) -> Option<String> {
    let address = descend(device, &["source", "address"])?;
    let number = |name: &str| number_of(address.attribute(name).unwrap_or("0"));
    let (domain, bus) = (number("domain")?, number("bus")?);
    let (slot, function) = (number("slot")?, number("function")?);
    Some(format!("{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"))
}

/// Whether the driver of a device names an iothread, or several.
fn has_iothread(device: Node<'_, '_>) -> bool {
    let driver = descend(device, &["driver"]);
    driver.is_some_and(|driver| {
        driver.has_attribute("iothread") || descend(driver, &["iothreads"]).is_some()
    })
}

/// A size with its unit, which is KiB if nothing says it.
fn bytes_of(size: Node<'_, '_>) -> Option<u64> {
    let unit = match size.attribute("unit").unwrap_or("KiB") {
        "b" | "bytes" => 1,
        "KB" => 1000,
        "k" | "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "M" | "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "G" | "GiB" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "T" | "TiB" => 1_u64 << 40,
        _ => return None,
    };
    size.text()?.trim().parse::<u64>().ok()?.checked_mul(unit)
}

fn bus_of(bus: Option<&str>) -> DiskBus {
    match bus {
        Some("virtio") => DiskBus::Virtio,
        Some("scsi") => DiskBus::Scsi,
        Some("ide" | "sata") => DiskBus::Ide,
        Some("usb") => DiskBus::Usb,
        Some("sd") => DiskBus::Sd,
        Some("fdc") => DiskBus::Floppy,
        _ => DiskBus::Other,
    }
}

/// Text inside an element, or an attribute in single quotes.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&apos;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = "<domain type='kvm' id='3'><name>web &amp; mail</name>
        <uuid>2161acb5-80ce-4955-9f97-748a33a1a247</uuid>
        <memory unit='MiB'>2048</memory><vcpu placement='static'>2</vcpu>
        <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os>
        <devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
          <disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
            <source file='/images/a.qcow2' index='1'/><backingStore/>
            <target dev='vda' bus='virtio'/><serial>S1</serial><alias name='virtio-disk0'/></disk>
          <disk type='block' device='disk'><source dev='/dev/vg/b'/>
            <target dev='sda' bus='sata'/></disk>
          <disk type='file' device='cdrom'><target dev='sdb' bus='sata'/><readonly/></disk>
          <disk type='file' device='disk'><source file='/c'/><target dev='vdb' bus='virtio'/>
            <readonly/></disk>
          <disk type='block' device='lun'><source dev='/dev/d'/><target dev='sdc' bus='scsi'/></disk>
          <disk type='vhostuser' device='disk'><source type='unix' path='/s'/>
            <target dev='vdc' bus='virtio'/></disk>
          <hostdev mode='subsystem' type='usb'/>
          <hostdev mode='subsystem' type='scsi'><alias name='hostdev1'/></hostdev>
          <hostdev mode='subsystem' type='pci' managed='yes'><driver name='vfio'/><source>
            <address domain='0x0000' bus='0x0a' slot='0x1f' function='0x2'/></source>
            <alias name='hostdev2'/></hostdev>
          <hostdev mode='subsystem' type='pci'><source><address bus='0x02' slot='0x00'/></source>
            <alias name='hostdev3'/></hostdev>
          <hostdev mode='subsystem' type='usb'><source><vendor id='0x1d6b'/>
            <address bus='1' device='12'/></source><alias name='hostdev4'/></hostdev>
          <hostdev mode='subsystem' type='usb'><source><address bus='1' device='13'/></source>
            <alias name='hostdev5'/></hostdev>
          <memory model='dimm'/>
          <memory model='nvdimm'><source><path>/n</path></source><alias name='nvdimm0'/></memory>
          <memory model='nvdimm'><target><readonly/></target></memory>
          <memory model='virtio-pmem' access='shared'/>
        </devices></domain>";

    fn parse(xml: &str) -> Result<Domain, MachineError> {
        let (devices, usb) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (address, class) in [("0000:0a:1f.2", "0x010601\n"), ("0000:02:00.0", "0x030000\n")] {
            std::fs::create_dir(devices.path().join(address)).unwrap();
            std::fs::write(devices.path().join(address).join("class"), class).unwrap();
        }
        for (name, number, class) in [("1-2", "12", "08"), ("1-3", "13", "03")] {
            let (device, interface) =
                (usb.path().join(name), usb.path().join(format!("{name}:1.0")));
            std::fs::create_dir(&device).unwrap();
            std::fs::create_dir(&interface).unwrap();
            for (name, text) in [("busnum", "1"), ("devnum", number), ("idVendor", "1d6b")] {
                std::fs::write(device.join(name), text).unwrap();
            }
            std::fs::write(interface.join("bInterfaceClass"), class).unwrap();
        }
        let host = HostDevices { pci: devices.path().to_owned(), usb: usb.path().to_owned() };
        Domain::parse(xml, &host)
    }

    #[test]
    fn a_domain_is_read() {
        let domain = parse(XML).unwrap();
        assert_eq!((domain.name.as_str(), domain.is_kvm), ("web & mail", true));
        assert_eq!((domain.memory_bytes, domain.processors), (Some(2 << 30), Some(2)));
        let disk = |target: &str,
                    bus,
                    alias: Option<&str>,
                    serial: Option<&str>,
                    format: &str,
                    source: &str| {
            DomainDisk {
                target: target.to_owned(),
                bus,
                alias: alias.map(str::to_owned),
                serial: serial.map(str::to_owned),
                format: format.to_owned(),
                source: Some(source.to_owned()),
                has_iothread: false,
            }
        };
        assert_eq!(
            domain.disks,
            [
                disk(
                    "vda",
                    DiskBus::Virtio,
                    Some("virtio-disk0"),
                    Some("S1"),
                    "qcow2",
                    "/images/a.qcow2"
                ),
                disk("sda", DiskBus::Ide, None, None, "raw", "/dev/vg/b"),
            ]
        );
        let left_out = [
            ("sdb".to_owned(), WhyLeftOut::Removable),
            ("vdb".to_owned(), WhyLeftOut::ReadOnly),
            ("sdc".to_owned(), WhyLeftOut::PassedThrough),
            ("vdc".to_owned(), WhyLeftOut::PassedThrough),
            ("hostdev1".to_owned(), WhyLeftOut::PassedThrough),
            ("hostdev2".to_owned(), WhyLeftOut::PassedThrough),
            ("hostdev4".to_owned(), WhyLeftOut::PassedThrough),
            ("nvdimm0".to_owned(), WhyLeftOut::PassedThrough),
            ("nvdimm1".to_owned(), WhyLeftOut::ReadOnly),
            ("virtio-pmem2".to_owned(), WhyLeftOut::PassedThrough),
        ];
        assert_eq!(domain.left_out, left_out);
    }

    #[test]
    fn kept_1_7_an_iothread_of_a_disk_or_of_its_controller_is_found() {
        let of = |devices: &str| {
            let xml = format!("<domain><name>a</name><devices>{devices}</devices></domain>");
            parse(&xml).unwrap().disks.iter().map(|disk| disk.has_iothread).collect::<Vec<_>>()
        };
        let disk = |driver: &str, bus: &str| {
            format!(
                "<disk><driver {driver}</driver><source file='/a'/><target dev='d' bus='{bus}'/></disk>"
            )
        };
        let controller = "<controller type='scsi'><driver iothread='1'/></controller>";
        assert_eq!(of(&disk("iothread='1'>", "virtio")), [true]);
        assert_eq!(of(&disk("><iothreads><iothread id='1'/></iothreads>", "virtio")), [true]);
        assert_eq!(of(&format!("{}{controller}", disk(">", "scsi"))), [true]);
        assert_eq!(of(&format!("{controller}{}", disk(">", "virtio"))), [false]);
        assert_eq!(of(&disk(">", "scsi")), [false]);
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        for xml in ["", "<domain/>", "<domain><name/></domain>", "<domain><name>a</name>", "\u{0}"]
        {
            assert!(matches!(parse(xml), Err(MachineError::DomainXml(_))), "{xml:?}");
        }
        // An entity that grows is no way to fill memory.
        let bomb = "<!DOCTYPE d [<!ENTITY a 'aaaaaaaaaa'>]><domain><name>&a;</name></domain>";
        assert!(parse(bomb).is_err());
    }

    #[test]
    fn the_command_line_is_corrected() {
        let arguments: Vec<String> = [
            "-name",
            "guest=x",
            "-machine",
            "pc-q35-6.0",
            "-blockdev",
            r#"{"driver":"file","filename":"/images/a.qcow2","node-name":"f"}"#,
            "-device",
            r#"{"driver":"virtio-blk-pci","drive":"f","id":"virtio-disk0","bootindex":1}"#,
        ]
        .map(str::to_owned)
        .to_vec();
        let mut description = Description::from_arguments(&arguments);
        parse(XML).unwrap().correct(&mut description, &[Some(5), None]);
        assert_eq!(description.machine.as_deref(), Some("pc-q35-7.2"));
        let disks: Vec<_> = description
            .disks
            .iter()
            .map(|disk| (disk.name.as_str(), disk.device.as_str(), disk.boot_index, disk.bytes))
            .collect();
        assert_eq!(disks, [("vda", "virtio-blk-pci", Some(1), Some(5)), ("sda", "", None, None)]);
    }

    #[test]
    fn text_is_escaped() {
        let wild = "a<b>&'\"c";
        let xml = format!("<domain><name>{}</name></domain>", escaped(wild));
        assert_eq!(parse(&xml).unwrap().name, wild);
    }
}
