//! Machines with disks that QEMU does not read itself, and machines with which another program works at
//! the same time as a backup.

use strongroom_machine::{RunningMachine, WhyLeftOut};

use crate::world::{Guest, night, plan};

#[test]
fn a_disk_that_takes_scsi_commands_is_named() {
    let scsi = "virtio-blk-pci,scsi=on,disable-modern=on";
    let plans = [plan("vda", "virtio-blk-pci", "qcow2", 1), plan("vdb", scsi, "raw", 1)];
    let mut guest = Guest::start(&plans, &[]);
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    let live = guest.connect().freeze_disks(&night("S0", &folder, &state)).unwrap();
    assert_eq!(live.disks.len(), 1);
    let [left_out] = &live.left_out[..] else { panic!("{:?}", live.left_out) };
    assert_eq!((left_out.name.as_str(), left_out.why), ("vdb", WhyLeftOut::PassedThrough));
    live.finish(true).unwrap();
    guest.check_healthy();
}
