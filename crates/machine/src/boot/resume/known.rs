//! What may be on the command line of a machine that is resumed. It comes from a snapshot, so all else
//! is refused.

use crate::description::Properties;

/// Options without effect on what the guest sees: of the host, or of how the machine was started.
const DROPPED: &str = "\
    qmp qmp-pretty monitor mon daemonize pidfile D d dfilter trace sandbox runas run-with \
    chroot S s gdb incoming msg only-migratable enable-kvm accel display vnc spice nographic \
    curses full-screen k L overcommit mem-prealloc mem-path seed no-shutdown async-teardown";
/// Options that say only what the guest sees.
const KEPT: &str = "\
    nodefaults no-user-config no-hpet no-acpi usb no-fd-bootchk win2k-hack no-reboot cpu smp \
    m uuid rtc global vga numa boot smbios icount";
/// Properties that name something of the host.
const OF_THE_HOST: &str = "\
    romfile file filename path mem-path logfile sysfsdev host hostaddr hostbus rootdir evdev \
    vhostfd fd splash initrd rrfile firmware kernel dtb shim";
/// Devices, by the beginnings of their names.
const DEVICES: &str = "\
    virtio-blk virtio-scsi virtio-net virtio-rng virtio-balloon virtio-serial virtio-gpu \
    virtio-vga virtio-keyboard virtio-mouse virtio-tablet virtio-iommu virtio-mem \
    virtio-crypto virtserialport virtconsole scsi-hd scsi-cd ide-hd ide-cd nvme usb-storage \
    usb-tablet usb-kbd usb-mouse usb-hub usb-ehci piix3-usb piix4-usb ich9-usb nec-usb-xhci \
    qemu-xhci ahci ich9-ahci lsi megasas mptsas1068 pvscsi e1000 rtl8139 vmxnet3 ne2k_pci \
    pcnet igb pci-bridge pcie- pxb ioh3420 isa-serial pci-serial VGA bochs-display \
    cirrus-vga qxl pvpanic vmware-svga ramfb vmgenid vmcoreinfo intel-hda ich9-intel-hda \
    hda- AC97 i6300esb ib700 isa-debugcon isa-parallel pc-dimm intel-iommu i82801b11 x3130 \
    xio3130 floppy";

/// Whether an option says nothing of what the guest sees.
pub fn is_dropped(option: &str) -> bool {
    DROPPED.split_whitespace().any(|known| known == option)
}

/// Whether an option says only what the guest sees.
pub fn is_kept(option: &str) -> bool {
    KEPT.split_whitespace().any(|known| known == option)
}

/// Whether a machine may have a device when it is resumed.
pub fn is_device(driver: &str) -> bool {
    DEVICES.split_whitespace().any(|known| driver.starts_with(known))
}

/// Whether a property names something of the host.
pub fn names_host(properties: &Properties) -> bool {
    let is_of_host = |name: &str| OF_THE_HOST.split_whitespace().any(|known| known == name);
    properties.0.iter().any(|(key, value)| {
        let last = key.rsplit('.').next().unwrap_or(key);
        // `-global` has the name of a property as a value.
        let is_named = is_of_host(last) || (key == "property" && is_of_host(value));
        value.contains('/') || (is_named && !value.is_empty())
    })
}
