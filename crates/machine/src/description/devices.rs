//! Which devices are disks, network cards and displays, and what a disk is called.

use super::DiskBus;

/// The longest name of a disk.
const NAME_BYTES_MAX: usize = 64;

/// How a guest sees a disk behind a device of this driver. `None` if it is no device for disks.
pub fn disk_bus(driver: &str) -> Option<DiskBus> {
    let buses = [
        ("virtio-blk", DiskBus::Virtio),
        ("vhost-user-blk", DiskBus::Virtio),
        ("scsi-hd", DiskBus::Scsi),
        ("scsi-cd", DiskBus::Scsi),
        ("scsi-disk", DiskBus::Scsi),
        ("scsi-block", DiskBus::Scsi),
        ("scsi-generic", DiskBus::Scsi),
        ("ide-", DiskBus::Ide),
        ("nvme", DiskBus::Nvme),
        ("usb-storage", DiskBus::Usb),
        ("sd-card", DiskBus::Sd),
        ("floppy", DiskBus::Floppy),
        ("xen-disk", DiskBus::Other),
        ("xen-cdrom", DiskBus::Other),
    ];
    let found = buses.iter().find(|(start, _)| driver.starts_with(start));
    found.map(|&(_, bus)| bus).filter(|_| driver != "nvme-subsys")
}

/// True if a device of this driver is a drive for CDs.
pub fn is_cdrom(driver: &str) -> bool {
    matches!(driver, "scsi-cd" | "ide-cd" | "xen-cdrom")
}

/// True if the guest's requests to a disk behind a device of this driver go to the host as SCSI commands
/// (`SG_IO`): past the filters and the bitmaps of QEMU, although it lists the disk.
pub fn is_passed_through(driver: &str) -> bool {
    matches!(driver, "scsi-block" | "scsi-generic")
}

/// True if a device of this driver is a network card, as far as its name says.
pub fn is_network(driver: &str) -> bool {
    const CARDS: [&str; 14] = [
        "virtio-net",
        "e1000",
        "igb",
        "rtl8139",
        "vmxnet3",
        "pcnet",
        "ne2k",
        "i8255",
        "i82801",
        "usb-net",
        "tulip",
        "sungem",
        "spapr-vlan",
        "rocker",
    ];
    CARDS.iter().any(|start| driver.starts_with(start))
}

/// True if a device of this driver is a graphics card.
pub fn is_display(driver: &str) -> bool {
    const CARDS: [&str; 10] = [
        "VGA",
        "virtio-vga",
        "virtio-gpu",
        "qxl",
        "cirrus-vga",
        "bochs-display",
        "ramfb",
        "vmware-svga",
        "secondary-vga",
        "ati-vga",
    ];
    CARDS.iter().any(|start| driver.starts_with(start))
}

/// What a disk is called: by the first of these names of QEMU's that a person chose, and otherwise by
/// its bus and its place among the disks of the same bus (`vda`, `sdb`). So it has the same name each
/// night, as long as the machine's configuration is the same.
pub fn device_name(ids: &[Option<&str>], bus: DiskBus, place: usize) -> String {
    if let Some(id) = ids.iter().flatten().find(|id| is_plain_name(id)) {
        return (*id).to_owned();
    }
    let letters = letters(place);
    match bus {
        DiskBus::Virtio => format!("vd{letters}"),
        DiskBus::Scsi | DiskBus::Ide | DiskBus::Usb => format!("sd{letters}"),
        DiskBus::Nvme => format!("nvme{place}"),
        DiskBus::Sd => format!("mmc{place}"),
        DiskBus::Floppy => format!("fd{place}"),
        DiskBus::Other => format!("disk{place}"),
    }
}

/// True for what can be the name of a file and of a node without surprises. What QEMU makes up
/// itself begins with `#`.
pub fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(is_plain)
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

/// `a` to `z`, then `aa` and so on, as Linux numbers disks.
fn letters(place: usize) -> String {
    let mut letters = Vec::new();
    let mut rest = place + 1;
    while rest > 0 {
        rest -= 1;
        letters.push(b'a' + (rest % 26) as u8);
        rest /= 26;
    }
    letters.iter().rev().map(|&letter| char::from(letter)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_named() {
        assert_eq!(device_name(&[None, Some("scsi0")], DiskBus::Scsi, 3), "scsi0");
        assert_eq!(device_name(&[Some("#block1"), Some("../x")], DiskBus::Scsi, 0), "sda");
        assert_eq!(device_name(&[], DiskBus::Virtio, 25), "vdz");
        assert_eq!(device_name(&[], DiskBus::Virtio, 26), "vdaa");
        assert_eq!(device_name(&[], DiskBus::Ide, 27), "sdab");
        assert_eq!(device_name(&[], DiskBus::Nvme, 1), "nvme1");
        assert!(!is_plain_name(".hidden") && !is_plain_name("") && !is_plain_name("a/b"));
    }

    #[test]
    fn devices_are_known() {
        assert_eq!(disk_bus("virtio-blk-pci"), Some(DiskBus::Virtio));
        assert_eq!(disk_bus("ide-cd"), Some(DiskBus::Ide));
        assert_eq!(disk_bus("nvme-ns"), Some(DiskBus::Nvme));
        assert_eq!(disk_bus("nvme-subsys"), None);
        assert_eq!(disk_bus("virtio-scsi-pci"), None);
        assert!(is_network("e1000e") && is_display("qxl-vga") && is_cdrom("scsi-cd"));
    }
}
