//! Nights that go wrong, failure by failure. The guest is healthy after each.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use strongroom_base::{Cancel, Stopwatch};
use strongroom_disk::{Image, ReadAt};
use strongroom_machine::{
    Broken, Consistency, Machine, MachineError, Reached, RunningMachine, StoreLimits, undo,
};

use crate::world::{
    Agent, GRAIN, Guest, check_same, night, parent, plan, read_all, run, sizes, usual,
};

/// A file system of a few MiB, unmounted at the end.
struct Small(PathBuf);

impl Small {
    fn mount(guest: &Guest, size: &str) -> Self {
        let folder = guest.folder().join("small");
        std::fs::create_dir(&folder).unwrap();
        let option = format!("size={size}");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &option, "none"]).arg(&folder));
        Self(folder)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// A file system that can be made to hang.
struct Stalling(PathBuf);

impl Stalling {
    fn mount(guest: &Guest) -> Self {
        let (folder, image) = (guest.folder().join("hangs"), guest.folder().join("image"));
        std::fs::create_dir(&folder).unwrap();
        run(Command::new("truncate").args(["-s", "16M"]).arg(&image));
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
        run(Command::new("mount").args(["-o", "loop"]).args([&image, &folder]));
        Self(folder)
    }

    fn freeze(&self) {
        run(Command::new("fsfreeze").arg("--freeze").arg(&self.0));
    }

    fn thaw(&self) {
        run(Command::new("fsfreeze").arg("--unfreeze").arg(&self.0));
    }
}

impl Drop for Stalling {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(&self.0).output();
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_store_breaks_the_backup_alone() {
    let mut guest = Guest::start(&usual(), &[]);
    guest.write("vda", 0, 4 << 20, 1);
    let small = Small::mount(&guest, "1m");
    let machine = guest.connect();
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    machine.freeze_disks(&night("S0", &folder, &state)).unwrap().finish(true).unwrap();
    let cancel = Cancel::new();
    let known = sizes(&guest.disks);
    let mut tonight = night("S1", &small.0, &state);
    tonight.parent = parent("S0", &known);
    tonight.cancel = cancel.clone();
    let live = machine.freeze_disks(&tonight).unwrap();
    guest.write("vda", 0, 4 << 20, 2);
    let error = read_all(&live.disks[0]).unwrap_err();
    assert_eq!(live.broken(), Some(Broken::Store), "{error}");
    assert!(cancel.is_cancelled());
    assert!(error.to_string().contains("the store is full"), "{error}");
    live.finish(false).unwrap();
    guest.check_healthy();
    // All bitmaps stay, and the next night goes on from the last good one.
    let names = ["strongroom-test-S0.vda", "strongroom-test-S1.vda"];
    assert_eq!(guest.bitmaps("vda"), names);
    let then = guest.disks.clone();
    let known = sizes(&then);
    let mut tonight = night("S2", &folder, &state);
    tonight.parent = parent("S0", &known);
    let live = machine.freeze_disks(&tonight).unwrap();
    check_same(&live.disks[0], &then["vda"], Some(&vec![1; 4 << 20]));
    live.finish(true).unwrap();
    assert_eq!(guest.bitmaps("vda"), ["strongroom-test-S2.vda"]);
}

#[test]
fn a_store_that_reaches_its_limit_is_given_up() {
    let mut guest = Guest::start(&usual(), &[]);
    guest.write("vda", 0, 4 << 20, 1);
    let machine = guest.connect();
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    let mut tonight = night("S0", &folder, &state);
    tonight.store_limits = StoreLimits { bytes_max: Some(1 << 20), reserve: 0 };
    let live = machine.freeze_disks(&tonight).unwrap();
    guest.write("vda", 0, 2 << 20, 2);
    let waited = Stopwatch::start();
    while !live.is_broken() {
        assert!(waited.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(live.broken(), Some(Broken::Limit { limit: 1 << 20 }));
    assert!(read_all(&live.disks[0]).is_err());
    // The filter is gone by itself, soon.
    let waited = Stopwatch::start();
    while guest
        .ask("query-named-block-nodes", json!({"flat": true}))
        .to_string()
        .contains("-store-")
    {
        assert!(waited.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(20));
    }
    live.finish(false).unwrap();
    guest.check_healthy();

    let mut tonight = night("S1", &folder, &state);
    tonight.store_limits = StoreLimits { bytes_max: None, reserve: u64::MAX };
    assert!(matches!(machine.freeze_disks(&tonight), Err(MachineError::Room { .. })));
    guest.check_healthy();
}

#[test]
fn a_store_that_stalls_holds_the_guest_for_three_seconds() {
    let mut guest = Guest::start(&usual(), &[]);
    guest.write("vda", 0, 4 << 20, 1);
    let stalling = Stalling::mount(&guest);
    let machine = guest.connect();
    let state = guest.state();
    let live = machine.freeze_disks(&night("S0", &stalling.0, &state)).unwrap();
    guest.write("vda", 0, 512, 2);
    stalling.freeze();
    let waited = Stopwatch::start();
    guest.write("vda", 1 << 20, 512, 2);
    let waited = waited.elapsed();
    assert!(waited > Duration::from_secs(2) && waited < Duration::from_secs(8), "{waited:?}");
    let error = read_all(&live.disks[0]).unwrap_err();
    assert_eq!(live.broken(), Some(Broken::Store), "{error}");
    // The guest is fast again while the store still hangs.
    let waited = Stopwatch::start();
    guest.write("vda", 2 << 20, 512, 2);
    assert!(waited.elapsed() < Duration::from_secs(2), "{:?}", waited.elapsed());
    // QEMU would hang with the store, so it is not asked to let go of it yet.
    let error = live.finish(false).unwrap_err();
    assert!(matches!(error, MachineError::StoreHangs { .. }), "{error}");
    guest.write("vda", 3 << 20, 512, 2);
    stalling.thaw();
    // A monitor has one client.
    drop(machine);
    let undone = undo(None, None, &state).unwrap();
    assert!(!undone.removed.is_empty(), "{undone:?}");
    guest.check_healthy();
}

#[test]
fn qemu_that_ends_ends_the_backup() {
    let mut guest = Guest::start(&usual(), &[]);
    guest.write("vda", 0, 1 << 20, 1);
    let machine = guest.connect();
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    machine.freeze_disks(&night("S0", &folder, &state)).unwrap().finish(true).unwrap();
    let known = sizes(&guest.disks);
    let mut tonight = night("S1", &folder, &state);
    tonight.parent = parent("S0", &known);
    let live = machine.freeze_disks(&tonight).unwrap();
    guest.kill();
    let error = read_all(&live.disks[0]).unwrap_err();
    assert_eq!(live.broken(), Some(Broken::Gone), "{error}");
    live.finish(false).unwrap();
    assert!(!state.join("machine.intent").exists());
    assert!(undo(Some(&guest.monitor()), None, &state).unwrap().is_nothing());
    let error = machine.freeze_disks(&tonight).map(drop).unwrap_err();
    assert!(matches!(error, MachineError::Broken(Broken::Gone)), "{error}");

    // The bitmap was not stored: everything is read.
    guest.restart(false);
    let machine = guest.connect();
    let then = guest.disks.clone();
    let mut tonight = night("S2", &folder, &state);
    tonight.parent = parent("S0", &known);
    let live = machine.freeze_disks(&tonight).unwrap();
    check_same(&live.disks[0], &then["vda"], None);
    live.finish(true).unwrap();
    assert_eq!(guest.bitmaps("vda"), ["strongroom-test-S2.vda"]);
    guest.check_healthy();

    // One that ends in order stores it.
    guest.restart(true);
    assert_eq!(guest.bitmaps("vda"), ["strongroom-test-S2.vda"]);
    let before = guest.disks.clone();
    guest.write("vda", 2 << 20, 512, 9);
    let then = guest.disks.clone();
    let machine = guest.connect();
    let mut tonight = night("S3", &folder, &state);
    tonight.parent = parent("S2", &known);
    let live = machine.freeze_disks(&tonight).unwrap();
    let changed: u64 =
        live.disks[0].changed.iter().flatten().map(|range| range.end - range.start).sum();
    assert!(changed <= 2 * GRAIN, "{changed}");
    check_same(&live.disks[0], &then["vda"], Some(&before["vda"]));
    live.finish(true).unwrap();

    // QEMU was killed with a stored bitmap in use: it is inconsistent.
    guest.restart(false);
    let machine = guest.connect();
    let mut tonight = night("S4", &folder, &state);
    tonight.parent = parent("S3", &known);
    let live = machine.freeze_disks(&tonight).unwrap();
    assert_eq!(live.disks[0].changed, None);
    live.finish(true).unwrap();
    assert_eq!(guest.bitmaps("vda"), ["strongroom-test-S4.vda"]);
    guest.check_healthy();
}

#[test]
fn bitmaps_that_are_not_the_parents_are_not_believed() {
    let plans = [plan("vda", "virtio-blk-pci", "qcow2", 4), plan("sda", "ide-hd", "raw", 2)];
    let mut guest = Guest::start(&plans, &[]);
    guest.write("vda", 0, 1 << 20, 1);
    let machine = guest.connect();
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    machine.freeze_disks(&night("S0", &folder, &state)).unwrap().finish(true).unwrap();
    let known = sizes(&guest.disks);
    let nodes = guest.ask("query-block", Value::Null);
    let node = nodes[0]["inserted"]["node-name"].as_str().unwrap().to_owned();

    // A bitmap of another set, and one that was switched off.
    let foreign = json!({"node": node, "name": "strongroom-other-X.vda"});
    guest.ask("block-dirty-bitmap-add", foreign);
    let ours = json!({"node": node, "name": "strongroom-test-S0.vda"});
    guest.ask("block-dirty-bitmap-disable", ours);
    guest.write("vda", 0, 512, 7);
    let mut tonight = night("S1", &folder, &state);
    tonight.parent = parent("S0", &known);
    let live = machine.freeze_disks(&tonight).unwrap();
    assert_eq!(live.disks[0].changed, None);
    assert_eq!(live.disks[1].changed, Some(Vec::new()));
    live.finish(true).unwrap();
    assert_eq!(guest.bitmaps("vda"), ["strongroom-other-X.vda", "strongroom-test-S1.vda"]);

    // A parent of which there is no bitmap, and a disk that the parent did not have.
    let mut tonight = night("S2", &folder, &state);
    let only = [("sda".to_owned(), 2 << 20)].into();
    tonight.parent = parent("S1", &only);
    let live = machine.freeze_disks(&tonight).unwrap();
    assert_eq!(live.disks[0].changed, None);
    live.finish(false).unwrap();
    let mut tonight = night("S3", &folder, &state);
    tonight.parent = parent("unknown", &known);
    let live = machine.freeze_disks(&tonight).unwrap();
    assert!(live.disks.iter().all(|disk| disk.changed.is_none()));
    live.finish(true).unwrap();

    // What a disk has gained counts as changed.
    let bytes = 6 << 20;
    guest.ask("block_resize", json!({"device": "drive-vda", "size": bytes}));
    let mut tonight = night("S4", &folder, &state);
    tonight.parent = parent("S3", &known);
    let live = machine.freeze_disks(&tonight).unwrap();
    assert_eq!(live.disks[0].image.size(), bytes);
    let gained = 4 << 20..bytes;
    assert_eq!(live.disks[0].changed.as_deref(), Some(std::slice::from_ref(&gained)));
    live.finish(true).unwrap();
    guest.check_healthy();
}

#[test]
fn disks_can_be_left_out() {
    let plans = [plan("vda", "virtio-blk-pci", "qcow2", 1), plan("sda", "ide-hd", "raw", 1)];
    let mut guest = Guest::start(&plans, &[]);
    let machine = guest.connect();
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    let without = ["sda".to_owned()];
    let mut tonight = night("S0", &folder, &state);
    tonight.without = &without;
    let live = machine.freeze_disks(&tonight).unwrap();
    assert_eq!(live.disks.len(), 1);
    live.finish(true).unwrap();
    let without = ["sdx".to_owned()];
    tonight.without = &without;
    let error = machine.freeze_disks(&tonight).err().unwrap();
    assert_eq!(error.to_string(), "the machine has no disk \"sdx\"; it has vda, sda");
    let without = ["vda".to_owned(), "sda".to_owned()];
    tonight.without = &without;
    assert!(matches!(machine.freeze_disks(&tonight), Err(MachineError::NoDisks)));
    guest.check_healthy();
}

#[test]
fn a_machine_that_is_paused_stays_paused() {
    let mut guest = Guest::start(&usual(), &[]);
    guest.write("vda", 0, 1 << 20, 1);
    guest.ask("stop", Value::Null);
    let machine = guest.connect();
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    let beside = [folder.join("bios"), folder.join("none")];
    let mut tonight = night("S0", &folder, &state);
    tonight.beside = &beside;
    let live = machine.freeze_disks(&tonight).unwrap();
    // Its guest has not written what it will.
    assert!(matches!(live.reached, Reached::Paused { why: None }), "{:?}", live.reached);
    assert_eq!(live.beside[0].content.as_ref().unwrap().len(), 64 << 10);
    assert!(live.beside[1].content.is_err());
    check_same(&live.disks[0], &guest.disks["vda"], None);
    live.finish(true).unwrap();
    assert_eq!(guest.status(), "paused");

    let agent = Agent::start(&folder);
    let mut tonight = night("S1", &folder, &state);
    tonight.agent = Some(&agent.socket);
    tonight.consistency = Consistency::Required;
    let error = machine.freeze_disks(&tonight).err().unwrap();
    assert!(error.to_string().contains("in the state \"paused\""), "{error}");
    assert_eq!(guest.status(), "paused");
    guest.ask("cont", Value::Null);
    guest.check_healthy();
}

#[test]
fn a_machine_that_was_not_started_is_at_rest() {
    let guest = Guest::start(&usual(), &["-S"]);
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    let agent = Agent::start(&folder);
    let mut tonight = night("S0", &folder, &state);
    tonight.agent = Some(&agent.socket);
    tonight.consistency = Consistency::Required;
    let live = guest.connect().freeze_disks(&tonight).unwrap();
    assert!(matches!(live.reached, Reached::AtRest), "{:?}", live.reached);
    live.finish(true).unwrap();
}

#[test]
fn an_agent_that_freezes_nothing_is_no_frozen_guest() {
    let mut guest = Guest::start(&usual(), &[]);
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    for (name, answer) in [("none", json!(0)), ("other", json!({}))] {
        std::fs::create_dir(folder.join(name)).unwrap();
        let agent = Agent::answering(&folder.join(name), answer);
        let mut tonight = night("S0", &folder, &state);
        tonight.agent = Some(&agent.socket);
        let live = guest.connect().freeze_disks(&tonight).unwrap();
        assert!(matches!(live.reached, Reached::Paused { why: Some(_) }), "{:?}", live.reached);
        live.finish(false).unwrap();
        tonight.consistency = Consistency::Required;
        let error = guest.connect().freeze_disks(&tonight).err().unwrap();
        assert!(matches!(error, MachineError::Agent(_)), "{error}");
        assert!(!agent.is_frozen());
        guest.check_healthy();
    }
}

#[test]
fn an_agent_that_hangs_stops_nothing() {
    let mut guest = Guest::start(&usual(), &[]);
    guest.write("vda", 0, 1 << 20, 1);
    let machine = guest.connect();
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    let socket = folder.join("agent");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut tonight = night("S0", &folder, &state);
    tonight.agent = Some(&socket);
    tonight.freeze_limit = Duration::from_millis(200);
    let live = machine.freeze_disks(&tonight).unwrap();
    assert!(matches!(live.reached, Reached::Paused { why: Some(_) }), "{:?}", live.reached);
    check_same(&live.disks[0], &guest.disks["vda"], None);
    live.finish(true).unwrap();
    guest.check_healthy();

    tonight.consistency = Consistency::Required;
    let error = machine.freeze_disks(&tonight).err().unwrap();
    assert!(matches!(error, MachineError::Agent(_)), "{error}");
    guest.check_healthy();
    tonight.agent = None;
    assert!(matches!(machine.freeze_disks(&tonight), Err(MachineError::NoAgent)));
    guest.check_healthy();
}

/// A program that serves a disk to a guest, past QEMU.
struct Served(std::process::Child);

impl Served {
    fn start(folder: &std::path::Path) -> (Self, String) {
        let (image, socket) = (folder.join("served"), folder.join("socket"));
        std::fs::write(&image, vec![0; 1 << 20]).unwrap();
        let mut command = Command::new("qemu-storage-daemon");
        command.arg("--blockdev").arg(format!("file,node-name=f,filename={}", image.display()));
        let address = format!("addr.type=unix,addr.path={}", socket.display());
        let export = format!("vhost-user-blk,id=e,node-name=f,writable=on,{address}");
        let served = Self(command.arg("--export").arg(export).spawn().unwrap());
        let waited = Stopwatch::start();
        while !socket.exists() {
            assert!(waited.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(5));
        }
        (served, format!("socket,id=served,path={}", socket.display()))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_disk_that_another_program_serves_is_named() {
    let served = tempfile::tempdir().unwrap();
    let (_served, chardev) = Served::start(served.path());
    let more = [
        ["-object", "memory-backend-memfd,id=mem,size=16M,share=on"],
        ["-machine", "memory-backend=mem"],
        ["-chardev", &chardev],
        ["-device", "vhost-user-blk-pci,id=vdb,chardev=served"],
    ];
    let mut guest = Guest::start(&usual(), &more.concat());
    let machine = guest.connect();
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    let without = ["vhost-user-blk-pci-vdb".to_owned()];
    let mut tonight = night("S0", &folder, &state);
    for without in [&[][..], &without] {
        tonight.without = without;
        let live = machine.freeze_disks(&tonight).unwrap();
        assert_eq!(live.disks.len(), 1);
        let [left_out] = &live.left_out[..] else { panic!("{:?}", live.left_out) };
        assert!(left_out.why.is_loss() && left_out.name == "vhost-user-blk-pci-vdb");
        live.finish(true).unwrap();
    }
    guest.check_healthy();
}

#[test]
fn two_backups_at_once_are_refused() {
    let mut guest = Guest::start(&usual(), &[]);
    let machine = guest.connect();
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    let live = machine.freeze_disks(&night("S0", &folder, &state)).unwrap();
    assert!(matches!(
        machine.freeze_disks(&night("S1", &folder, &state)),
        Err(MachineError::Running(_))
    ));
    assert!(matches!(undo(None, None, &state), Err(MachineError::Running(_))));
    // Another state folder does not know of it, and leaves it alone.
    let elsewhere = folder.join("elsewhere");
    let error = machine.freeze_disks(&night("S1", &folder, &elsewhere)).err().unwrap();
    assert!(matches!(error, MachineError::LeftBehind { .. }), "{error}");
    assert!(!live.is_broken());
    live.finish(false).unwrap();
    guest.check_healthy();
}

#[test]
fn a_server_of_another_program_is_left_alone() {
    let mut guest = Guest::start(&usual(), &[]);
    let machine: Machine = guest.connect();
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    let theirs = folder.join("theirs");
    let address = json!({"type": "unix", "data": {"path": theirs}});
    guest.ask("nbd-server-start", json!({"addr": address}));
    let error = machine.freeze_disks(&night("S0", &folder, &state)).err().unwrap();
    assert!(error.to_string().contains("nbd-server-start"), "{error}");
    assert!(theirs.exists());
    guest.ask("nbd-server-stop", Value::Null);
    guest.check_healthy();
    let unused = machine.freeze_disks(&night("S1", &folder, &state)).unwrap();
    assert!(unused.disks[0].image.next_data(0).unwrap().is_some());
    drop(unused);
    guest.check_healthy();
}
