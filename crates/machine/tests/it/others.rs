//! Machines with disks that QEMU does not read itself, and machines with which another program works at
//! the same time as a backup.

use std::time::Duration;

use serde_json::{Value, json};
use strongroom_machine::{Exchanged, MachineError, RunningMachine, WhyLeftOut, undo};

use crate::killed::run_until;
use crate::world::{Guest, check_same, night, plan, run, usual};

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

#[test]
fn memory_that_keeps_what_is_in_it_is_named() {
    let more = [
        ["-machine", "nvdimm=on"],
        ["-m", "slots=3,maxmem=64M"],
        ["-object", "memory-backend-ram,id=m1,size=8M"],
        ["-object", "memory-backend-ram,id=m2,size=8M"],
        ["-object", "memory-backend-ram,id=m3,size=8M"],
        ["-device", "nvdimm,id=one,memdev=m1"],
        ["-device", "nvdimm,id=two,memdev=m2,unarmed=on"],
        ["-device", "virtio-pmem-pci,id=three,memdev=m3"],
    ];
    let guest = Guest::start(&usual(), &more.concat());
    let machine = guest.connect();
    let mut left_out: Vec<_> =
        machine.left_out().iter().map(|drive| (drive.name.as_str(), drive.why)).collect();
    left_out.sort_by_key(|(name, _)| *name);
    let (past, read_only) = (WhyLeftOut::PassedThrough, WhyLeftOut::ReadOnly);
    let expected =
        [("nvdimm-one", past), ("nvdimm-two", read_only), ("virtio-pmem-pci-three", past)];
    assert_eq!(left_out, expected);
}

/// The node that a device has, by the graph: `query-block` does not show that of a mirror.
fn root_of(guest: &Guest, drive: &str) -> String {
    let graph = guest.ask("x-debug-query-block-graph", Value::Null);
    let member = |id: &Value| {
        let mut nodes = graph["nodes"].as_array().unwrap().iter();
        nodes.find(|node| node["id"] == *id).unwrap().clone()
    };
    let mut edges = graph["edges"].as_array().unwrap().iter();
    let root = edges.find(|edge| member(&edge["parent"])["name"] == drive).unwrap();
    member(&root["child"])["name"].as_str().unwrap().to_owned()
}

/// The node of the first disk.
fn node_of(guest: &Guest) -> String {
    let blocks = guest.ask("query-block", Value::Null);
    blocks[0]["inserted"]["node-name"].as_str().unwrap().to_owned()
}

/// Another program takes a snapshot of the first disk; then the guest writes.
fn put_overlay(guest: &mut Guest, node: &str) {
    let overlay = json!({
        "node-name": node, "snapshot-file": guest.folder().join("overlay"), "format": "qcow2",
        "snapshot-node-name": "overlay",
    });
    guest.ask("blockdev-snapshot-sync", overlay);
    guest.write("vda", 0, 1 << 20, 2);
}

fn check_overlay(guest: &Guest, exchanged: &[Exchanged]) {
    let [exchanged] = exchanged else { panic!("{exchanged:?}") };
    assert_eq!((exchanged.disk.as_str(), exchanged.node.as_str()), ("vda", "overlay"));
    assert_eq!(root_of(guest, "drive-vda"), "overlay");
    let answer = guest.io("vda", "read -P 2 0 1048576");
    assert!(!answer.contains("failed"), "{answer}");
}

#[test]
fn a_disk_that_gets_an_overlay_meanwhile_keeps_it() {
    let mut guest = Guest::start(&usual(), &[]);
    guest.write("vda", 0, 1 << 20, 1);
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    let (then, node) = (guest.disks["vda"].clone(), node_of(&guest));
    let live = guest.connect().freeze_disks(&night("S0", &folder, &state)).unwrap();
    put_overlay(&mut guest, &node);
    check_same(&live.disks[0], &then, None);
    check_overlay(&guest, &live.finish(true).unwrap());
    guest.check_healthy();
}

#[test]
fn a_disk_that_got_an_overlay_after_a_death_keeps_it() {
    let mut guest = Guest::start(&usual(), &[]);
    let node = node_of(&guest);
    assert!(!run_until(&guest, None, |command| command == "block-export-add"));
    put_overlay(&mut guest, &node);
    let undone = undo(Some(&guest.monitor()), None, &guest.state()).unwrap();
    check_overlay(&guest, &undone.exchanged);
    guest.check_healthy();
}

/// Starts a mirror of a disk, and waits until it has copied everything.
fn mirror(guest: &Guest) {
    let path = guest.folder().join("target");
    run(std::process::Command::new("qemu-img")
        .args(["create", "-q", "-f", "raw"])
        .arg(&path)
        .arg("4M"));
    let file = json!({"driver": "file", "filename": path});
    guest.ask("blockdev-add", json!({"driver": "raw", "node-name": "target", "file": file}));
    let job = json!({"job-id": "job", "device": "drive-vda", "target": "target", "sync": "full"});
    guest.ask("blockdev-mirror", job);
    while guest.ask("query-block-jobs", Value::Null)[0]["ready"] != true {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn end_mirror(guest: &Guest, command: &str) {
    guest.ask(command, json!({"device": "job"}));
    while guest.ask("query-block-jobs", Value::Null) != json!([]) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_mirror_that_begins_meanwhile_misses_nothing() {
    for (end, root) in [("block-job-cancel", None), ("block-job-complete", Some("target"))] {
        let mut guest = Guest::start(&usual(), &[]);
        let (folder, state) = (guest.folder().to_owned(), guest.state());
        let node = node_of(&guest);
        let live = guest.connect().freeze_disks(&night("S0", &folder, &state)).unwrap();
        // QEMU refuses the job while the disk is read.
        guest.ask("block-export-del", json!({"id": "strongroom-export-0", "mode": "hard"}));
        while guest.ask("query-block-exports", Value::Null) != json!([]) {
            std::thread::sleep(Duration::from_millis(5));
        }
        guest.ask("blockdev-del", json!({"node-name": "strongroom-image-0"}));
        mirror(&guest);
        let by_mirror = root_of(&guest, "drive-vda");
        let error = live.finish(true).unwrap_err();
        assert!(
            matches!(&error, MachineError::NotUndone(why) if why.contains("\"job\"")),
            "{error}"
        );
        assert_eq!(root_of(&guest, "drive-vda"), by_mirror);
        end_mirror(&guest, end);
        undo(Some(&guest.monitor()), None, &state).unwrap();
        assert_eq!(root_of(&guest, "drive-vda"), root.unwrap_or(&node));
        guest.check_healthy();
    }
}

#[test]
fn a_disk_that_is_mirrored_is_left_alone() {
    let plans = [plan("vda", "virtio-blk-pci", "qcow2", 4), plan("sda", "ide-hd", "raw", 1)];
    let mut guest = Guest::start(&plans, &[]);
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    mirror(&guest);
    let by_mirror = root_of(&guest, "drive-vda");
    let error = guest.connect().freeze_disks(&night("S0", &folder, &state)).err().unwrap();
    assert!(
        matches!(&error, MachineError::Busy { disk, job } if (&**disk, &**job) == ("vda", "job")),
        "{error}"
    );
    assert_eq!(root_of(&guest, "drive-vda"), by_mirror);
    let without = ["vda".to_owned()];
    let mut tonight = night("S1", &folder, &state);
    tonight.without = &without;
    let live = guest.connect().freeze_disks(&tonight).unwrap();
    assert_eq!(live.disks.len(), 1);
    live.finish(true).unwrap();
    assert_eq!(root_of(&guest, "drive-vda"), by_mirror);
    end_mirror(&guest, "block-job-complete");
    let live = guest.connect().freeze_disks(&night("S2", &folder, &state)).unwrap();
    assert_eq!(live.disks.len(), 2);
    live.finish(true).unwrap();
    guest.check_healthy();
}

/// The job begins after the disks were looked at, and before the instant.
#[test]
fn a_mirror_that_begins_before_the_instant_is_noticed() {
    let mut guest = Guest::start(&usual(), &[]);
    let (folder, state, machine) = (guest.folder().to_owned(), guest.state(), guest.connect());
    let mut tonight = night("S0", &folder, &state);
    tonight.watched = Duration::from_secs(3);
    let error = std::thread::scope(|scope| {
        let frozen = scope.spawn(|| machine.freeze_disks(&tonight).err());
        let nodes = || guest.ask("query-named-block-nodes", json!({"flat": true})).to_string();
        while !nodes().contains("strongroom-store-0") {
            std::thread::sleep(Duration::from_millis(5));
        }
        mirror(&guest);
        frozen.join().unwrap().unwrap()
    });
    assert!(matches!(error, MachineError::Busy { .. }), "{error}");
    assert_eq!(guest.ask("query-block-jobs", Value::Null)[0]["ready"], true);
    end_mirror(&guest, "block-job-cancel");
    guest.check_healthy();
}
