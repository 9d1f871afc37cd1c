//! Nights that go well: each kind of disk, read while the guest goes on writing.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use strongroom_disk::{Image, ReadAt};
use strongroom_machine::{Broken, DiskBus, MachineError, Reached, RunningMachine, WhyLeftOut};
use strongroom_testkit::Random;

use crate::world::{GRAIN, Guest, Plan, check_same, night, parent, plan, read_all, sizes, usual};

#[test]
fn all_disks_are_of_one_instant() {
    let plans = [
        plan("vda", "virtio-blk-pci", "qcow2", 4),
        plan("sda", "scsi-hd,bus=scsi.0", "raw", 3),
        plan("hda", "ide-hd", "raw", 2),
        plan("nvme", "nvme,serial=N", "qcow2", 2),
        plan("stick", "usb-storage", "raw", 2),
    ];
    let more = ["-device", "virtio-scsi-pci,id=scsi", "-usb", "-device", "ide-cd,id=cd"];
    let mut guest = Guest::start(&plans, &more);
    let mut random = Random::new(1);
    for plan in &plans {
        guest.scribble(plan.name, &mut random, 20);
    }
    let machine = guest.connect();
    let names: Vec<_> = machine.drives().iter().map(|disk| disk.name.as_str()).collect();
    let mut expected: Vec<_> = plans.iter().map(|plan| plan.name).collect();
    expected.sort();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(sorted, expected);
    assert_eq!(machine.left_out()[0].why, WhyLeftOut::Removable);

    let (folder, state) = (guest.folder().to_owned(), guest.state());
    let mut before: Option<BTreeMap<String, Vec<u8>>> = None;
    for (number, snapshot) in ["S0", "S1", "S2"].into_iter().enumerate() {
        let then = guest.disks.clone();
        let known = sizes(&then);
        let mut tonight = night(snapshot, &folder, &state);
        let earlier = format!("S{}", number.saturating_sub(1));
        tonight.parent = before.as_ref().and_then(|_| parent(&earlier, &known));
        let live = machine.freeze_disks(&tonight).unwrap();
        assert!(matches!(live.reached, Reached::Paused { why: None }), "{:?}", live.reached);
        assert!(live.pause < Duration::from_secs(5), "{:?}", live.pause);
        let disks = &live.disks;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for disk in disks {
                    let was = before.as_ref().map(|disks| disks[&disk.name].as_slice());
                    check_same(disk, &then[&disk.name], was);
                }
            });
            // While it is read.
            for _ in 0..3 {
                for plan in &plans {
                    guest.scribble(plan.name, &mut random, 4);
                }
            }
        });
        for disk in disks {
            assert!(read_all(disk).unwrap() == then[&disk.name], "{} at last", disk.name);
        }
        assert!(live.store_bytes() > 0 && !live.is_broken());
        live.finish(true).unwrap();
        guest.check_healthy();
        for plan in &plans {
            assert_eq!(
                guest.bitmaps(plan.name),
                [format!("strongroom-test-{snapshot}.{}", plan.name)]
            );
        }
        before = Some(then);
    }
}

#[test]
fn disks_in_iothreads_do_not_crash_qemu() {
    let plans = [
        plan("vda", "virtio-blk-pci,iothread=io", "qcow2", 2),
        plan("sda", "scsi-hd,bus=scsi.0", "raw", 2),
    ];
    let more = ["-object", "iothread,id=io", "-device", "virtio-scsi-pci,id=scsi,iothread=io"];
    let mut guest = Guest::start_pc(&plans, &more);
    let machine = guest.connect();
    assert!(machine.drives().iter().all(|disk| disk.iothread.as_deref() == Some("io")));
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    guest.write("vda", 0, 1 << 20, 1);
    guest.write("sda", 0, 1 << 20, 1);
    machine.freeze_disks(&night("S0", &folder, &state)).unwrap().finish(true).unwrap();
    guest.check_healthy();
    let before = guest.disks.clone();
    guest.write("sda", 8 * GRAIN, 512, 2);
    let then = guest.disks.clone();
    let known = sizes(&then);
    let mut tonight = night("S1", &folder, &state);
    tonight.parent = parent("S0", &known);
    let live = machine.freeze_disks(&tonight).unwrap();
    for plan in &plans {
        guest.write(plan.name, 0, 1 << 20, 3);
    }
    for disk in &live.disks {
        check_same(disk, &then[&disk.name], Some(&before[&disk.name]));
        let changed: u64 = disk.changed.iter().flatten().map(|range| range.end - range.start).sum();
        assert!(changed <= 2 * GRAIN, "{changed}");
    }
    let full = live.store_bytes();
    live.disks[1].image.release(GRAIN..16 * GRAIN);
    assert!(live.store_bytes() <= full - 14 * GRAIN, "{} of {full}", live.store_bytes());
    let mut bytes = [0; 512];
    let error = live.disks[1].image.read_at(GRAIN, &mut bytes).unwrap_err();
    assert!(!live.is_broken(), "{error}");
    live.finish(true).unwrap();
    guest.check_healthy();

    // QEMU is killed while its files are mounted.
    let live = machine.freeze_disks(&night("S2", &folder, &state)).unwrap();
    guest.kill();
    live.disks[0].image.read_at(0, &mut bytes).unwrap_err();
    assert_eq!(live.broken(), Some(Broken::Gone));
    live.finish(false).unwrap();
    guest.restart(false);
    guest.check_healthy();
}

/// QEMU 7.2 ended when the guest's driver of a disk with an iothread started, or started again, while
/// the disk was read. So a disk whose driver runs is read, with anything that the guest and its owner do
/// meanwhile, and another one is refused.
#[test]
fn kept_1_7_a_backup_ends_no_machine_with_an_iothread() {
    let plans = [plan("vda", "virtio-blk-pci,iothread=io", "qcow2", 4)];
    let iothread = ["-object", "iothread,id=io"];
    let mut guest = Guest::start_pc(&plans, &iothread);
    let machine = guest.connect();
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    // Right after its start: the firmware's driver is waited for.
    let mut live = machine.freeze_disks(&night("S0", &folder, &state)).unwrap();
    for command in ["system_reset", "stop", "cont", "system_reset"] {
        guest.ask(command, Value::Null);
        for _ in 0..20 {
            check_same(&live.disks[0], &guest.disks["vda"], None);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(guest.is_alive(), "after {command}");
    }
    live.finish(true).unwrap();
    guest.check_healthy();
    guest.ask("system_reset", Value::Null);
    live = machine.freeze_disks(&night("S1", &folder, &state)).unwrap();
    live.finish(true).unwrap();
    guest.check_healthy();

    // A guest that has no driver for it, and a machine that is paused before it starts.
    for more in [&iothread[..], &["-object", "iothread,id=io", "-S"]] {
        let mut guest = Guest::start(&plans, more);
        let machine = guest.connect();
        let (folder, state) = (guest.folder().to_owned(), guest.state());
        let mut tonight = night("S0", &folder, &state);
        tonight.start_limit = Duration::from_millis(200);
        let error = machine.freeze_disks(&tonight).map(drop).unwrap_err();
        assert!(matches!(&error, MachineError::NotStarted { disk } if disk == "vda"), "{error}");
        if guest.status() != "running" {
            guest.ask("cont", Value::Null);
        }
        guest.check_healthy();
    }
}

#[test]
fn a_machine_is_described() {
    let plans = [
        plan("vda", "virtio-blk-pci,serial=V1,bootindex=2", "qcow2", 4),
        plan("sda", "scsi-hd,bus=scsi.0", "raw", 3),
    ];
    let more = [
        "-device",
        "virtio-scsi-pci,id=scsi",
        "-device",
        "ide-cd,id=cd",
        "-smp",
        "2",
        "-uuid",
        "11111111-2222-3333-4444-555555555555",
        "-name",
        "web",
        "-netdev",
        "user,id=n",
        "-device",
        "e1000,netdev=n,mac=52:54:00:00:00:07",
    ];
    let guest = Guest::start(&plans, &more);
    let description = guest.connect().description().unwrap();
    let emulator = &description.emulator;
    assert_eq!(emulator.program, "qemu-system-x86_64");
    assert_eq!(emulator.architecture.as_deref(), Some("x86_64"));
    assert!(emulator.version.is_some() && !emulator.is_kvm);
    assert!(description.machine.as_ref().unwrap().starts_with("pc-i440fx-"));
    assert_eq!(description.cpu.model.as_deref(), Some("qemu64"));
    assert_eq!((description.cpu.count, description.memory_bytes), (2, Some(16 << 20)));
    assert_eq!(description.name.as_deref(), Some("web"));
    assert_eq!(description.uuid.as_deref(), Some("11111111-2222-3333-4444-555555555555"));
    let [vda, sda, cd] = description.disks.as_slice() else { panic!("{:?}", description.disks) };
    assert_eq!((vda.name.as_str(), vda.device.as_str()), ("vda", "virtio-blk-pci"));
    assert_eq!((vda.serial.as_deref(), vda.boot_index), (Some("V1"), Some(2)));
    assert_eq!((vda.bytes, vda.format.as_deref()), (Some(4 << 20), Some("qcow2")));
    assert_eq!((sda.bus, sda.controller.as_deref()), (DiskBus::Scsi, Some("virtio-scsi-pci")));
    assert!(cd.is_cdrom && cd.name == "cd");
    let [network] = description.networks.as_slice() else { panic!() };
    assert_eq!(network.device, "e1000");
    assert_eq!(network.mac.as_deref(), Some("52:54:00:00:00:07"));
    assert_eq!(network.backend.as_deref(), Some("user"));
    assert!(description.arguments.contains(&"-smp".to_owned()));
}

#[test]
fn little_that_changed_is_little_to_read() {
    let mut guest = Guest::start(&usual(), &[]);
    guest.write("vda", 0, 4 << 20, 1);
    let machine = guest.connect();
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    machine.freeze_disks(&night("S0", &folder, &state)).unwrap().finish(true).unwrap();
    guest.write("vda", 5 * GRAIN + 512, 512, 2);
    guest.write("vda", 9 * GRAIN, 2 * GRAIN, 3);
    let known = sizes(&guest.disks);
    let mut tonight = night("S1", &folder, &state);
    tonight.parent = parent("S0", &known);
    let live = machine.freeze_disks(&tonight).unwrap();
    let changed = live.disks[0].changed.clone().unwrap();
    assert_eq!(changed, [5 * GRAIN..6 * GRAIN, 9 * GRAIN..11 * GRAIN]);
    live.finish(true).unwrap();
}

#[test]
fn what_is_released_is_not_kept() {
    let mut guest = Guest::start(&usual(), &[]);
    guest.write("vda", 0, 4 << 20, 1);
    let machine = guest.connect();
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    let live = machine.freeze_disks(&night("S0", &folder, &state)).unwrap();
    let image = &live.disks[0].image;
    guest.write("vda", GRAIN, 16 * GRAIN, 2);
    let full = live.store_bytes();
    assert!(full >= 16 * GRAIN, "{full}");
    // In parts that are no clusters, as a reader that cuts chunks would.
    let mut at = GRAIN;
    while at < 17 * GRAIN {
        let end = (at + 50_000).min(17 * GRAIN);
        image.release(at..end);
        at = end;
    }
    assert!(live.store_bytes() <= full - 15 * GRAIN, "{} of {full}", live.store_bytes());
    let rest = live.store_bytes();
    guest.write("vda", GRAIN, 16 * GRAIN, 3);
    image.release(32 * GRAIN..64 * GRAIN);
    guest.write("vda", 32 * GRAIN, 16 * GRAIN, 4);
    assert!(live.store_bytes() <= rest + GRAIN, "{}", live.store_bytes());
    // What was released cannot be read, and that is not the end of the rest.
    let mut bytes = [0; 512];
    let error = image.read_at(GRAIN, &mut bytes).unwrap_err();
    assert!(!live.is_broken(), "{error}");
    image.read_at(20 * GRAIN, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 512]);
    image.read_at(0, &mut bytes).unwrap();
    live.finish(true).unwrap();
    guest.check_healthy();
}

/// Two full disks, one of them in an iothread: QEMU offers the one by NBD, the other by FUSE.
fn read_in_both_ways() -> ([Plan; 2], Guest) {
    let plans =
        [plan("vda", "virtio-blk-pci", "qcow2", 4), plan("sda", "scsi-hd,bus=scsi.0", "raw", 4)];
    let more = ["-object", "iothread,id=io", "-device", "virtio-scsi-pci,id=scsi,iothread=io"];
    let mut guest = Guest::start(&plans, &more);
    plans.iter().for_each(|plan| guest.write(plan.name, 0, 4 << 20, 1));
    (plans, guest)
}

#[test]
fn what_the_guest_writes_most_is_read_first() {
    let (plans, mut guest) = read_in_both_ways();
    let machine = guest.connect();
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    let mut tonight = night("S0", &folder, &state);
    tonight.watched = Duration::from_secs(1);
    let live = std::thread::scope(|scope| {
        let begun = scope.spawn(|| machine.freeze_disks(&tonight).unwrap());
        for plan in &plans {
            while !guest.bitmaps(plan.name).contains(&"strongroom-recent".to_owned()) {
                std::thread::yield_now();
            }
            guest.write(plan.name, 0, 512, 2);
            guest.write(plan.name, 9 * GRAIN + 512, 2 * GRAIN, 3);
        }
        begun.join().unwrap()
    });
    let then = guest.disks.clone();
    for plan in &plans {
        guest.write(plan.name, 9 * GRAIN, 3 * GRAIN, 4);
    }
    assert_eq!(live.store_bytes(), 0, "what was read already is not kept");
    for plan in &plans {
        guest.write(plan.name, 0, 512, 5);
        guest.write(plan.name, 20 * GRAIN, GRAIN, 6);
    }
    assert_eq!(live.store_bytes(), 2 * 2 * GRAIN);
    live.disks.iter().for_each(|disk| check_same(disk, &then[&disk.name], None));
    live.finish(true).unwrap();
    guest.check_healthy();
}

/// QEMU before version 8 reads the disk of now, where a read begins with what was overwritten and
/// goes beyond it.
#[test]
fn what_is_overwritten_or_freed_meanwhile_is_read_as_it_was() {
    let (plans, mut guest) = read_in_both_ways();
    let machine = guest.connect();
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    let then = guest.disks.clone();
    let live = machine.freeze_disks(&night("S0", &folder, &state)).unwrap();
    plans.iter().for_each(|plan| guest.write(plan.name, 3 * GRAIN, GRAIN, 2));
    guest.io("vda", &format!("write -z -u {} {GRAIN}", 20 * GRAIN));
    guest.io("vda", &format!("discard {} {GRAIN}", 24 * GRAIN));
    for disk in &live.disks {
        for first in [0, 2, 3, 4, 20, 23, 24] {
            let mut bytes = vec![0; ((64 - first) * GRAIN) as usize];
            disk.image.read_at(first * GRAIN, &mut bytes).unwrap();
            let changed = bytes.iter().position(|&byte| byte != 1);
            assert_eq!(changed, None, "{} from cluster {first} on", disk.name);
        }
        check_same(disk, &then[&disk.name], None);
    }
    live.finish(true).unwrap();
}

/// What the guest discards goes on to its disk while a backup is under way.
#[test]
fn what_the_guest_frees_meanwhile_is_free_on_the_disk() {
    use std::os::unix::fs::MetadataExt;
    for format in ["raw", "qcow2"] {
        let mut guest = Guest::start(&[plan("vda", "virtio-blk-pci", format, 8)], &[]);
        guest.write("vda", 0, 8 << 20, 1);
        let then = guest.disks["vda"].clone();
        let (folder, state) = (guest.folder().to_owned(), guest.state());
        let taken = || {
            let path = folder.join(format!("vda.{format}"));
            std::fs::metadata(path).unwrap().blocks() * 512
        };
        let live = guest.connect().freeze_disks(&night("S0", &folder, &state)).unwrap();
        assert!(taken() >= 8 << 20);
        let answer = guest.io("vda", "discard 0 8M");
        assert!(!answer.contains("failed"), "{answer}");
        check_same(&live.disks[0], &then, None);
        live.finish(true).unwrap();
        assert!(taken() < 1 << 20, "{format}: {}", taken());
        guest.check_healthy();
    }
}
