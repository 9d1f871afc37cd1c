//! Machines that run under QEMU: stored night after night, by what was written. Their processor
//! is stopped; the tests write to their disks by the way that a guest's writes take.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use strongroom_base::Stopwatch;

use crate::images::disk_with_files;
use crate::world::World;

/// A machine called vm1, with one disk in qcow2.
pub struct Guest {
    folder: PathBuf,
    child: Child,
}

impl Guest {
    pub fn start(world: &World) -> Self {
        let (folder, raw) = (world.path("vm"), disk_with_files(world));
        fs::create_dir(&folder).unwrap();
        let disk = folder.join("vda.qcow2");
        let converted =
            Command::new("qemu-img").args(["convert", "-O", "qcow2"]).arg(raw).arg(&disk).status();
        assert!(converted.unwrap().success());
        let child = Self::run(&folder, &[]);
        Self { folder, child }
    }

    fn run(folder: &std::path::Path, more: &[String]) -> Child {
        let socket =
            |name: &str| format!("unix:{},server=on,wait=off", folder.join(name).display());
        let drive = format!("if=none,id=d0,file={}", folder.join("vda.qcow2").display());
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-name", "vm1"])
            .args(["-machine", "pc,accel=tcg", "-m", "32", "-nodefaults", "-display", "none", "-S"])
            .args(["-qmp", &socket("qmp"), "-qmp", &socket("side")])
            .args(["-drive", &drive, "-device", "virtio-blk-pci,drive=d0,id=vda"])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Stopwatch::start();
        while UnixStream::connect(folder.join("side")).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60), "QEMU does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        child
    }

    /// The monitor for the program under test.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("qmp")
    }

    /// Asks another monitor of the machine.
    fn ask(&self, command: &str, arguments: Value) -> Value {
        let mut stream = UnixStream::connect(self.folder.join("side")).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut answer = Value::Null;
        for (command, arguments) in [("qmp_capabilities", json!({})), (command, arguments)] {
            writeln!(stream, "{}", json!({"execute": command, "arguments": arguments})).unwrap();
            answer = loop {
                let line = lines.next().expect("QEMU answers").unwrap();
                let value: Value = serde_json::from_str(&line).unwrap();
                assert!(value.get("error").is_none(), "{value}");
                if let Some(answer) = value.get("return") {
                    break answer.clone();
                }
            };
        }
        answer
    }

    /// Fills a part of the disk with a byte, as the guest would.
    fn write(&self, offset: u64, bytes: u64, byte: u8) {
        let line = format!(
            "qemu-io -d /machine/peripheral/vda/virtio-backend \"write -P {byte} {offset} {bytes}\""
        );
        let said = self.ask("human-monitor-command", json!({"command-line": line}));
        assert_eq!(said, "", "QEMU says it elsewhere if it was written");
    }

    /// Ends QEMU as `quit` does, and starts it again.
    fn restart(&mut self) {
        self.ask("quit", json!({}));
        self.child.wait().unwrap();
        // QEMU removes its sockets at its end, if it is not killed.
        let _ = fs::remove_file(self.folder.join("side"));
        self.child = Self::run(&self.folder, &[]);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_night_reads_what_was_written_and_a_lost_bitmap_costs_reading_alone() {
    let world = World::with_repository();
    let mut guest = Guest::start(&world);
    let socket = guest.socket().display().to_string();
    world.run(["machine", "show", &socket]).exits(0).says("29.0 MiB  qcow2   also when it stops");
    let night = || {
        let args = ["--json", "machine", "backup", &socket, "--store-reserve", "1MiB"];
        world.run(args).exits(0).summary()
    };
    let first = night();
    assert!(first["bytes_read"].as_u64().unwrap() > 3 << 20, "{first}");
    // Behind the swap's header, and in the partition table's free room.
    guest.write(400 << 10, 100 << 10, 7);
    let second = night();
    let read = second["bytes_read"].as_u64().unwrap();
    assert!((100 << 10..2 << 20).contains(&read), "{second}");
    assert_eq!(second["consistency"], "at rest");
    // QEMU keeps what it has noted when it ends.
    guest.write(600 << 10, 10 << 10, 8);
    guest.restart();
    let third = night();
    assert!(third["bytes_read"].as_u64().unwrap() < 2 << 20, "{third}");
    let node = guest.ask("query-named-block-nodes", json!({}));
    let nodes = node.as_array().unwrap().iter();
    let bitmaps: Vec<(String, String)> = nodes
        .flat_map(|node| {
            let name = node["node-name"].as_str().unwrap().to_owned();
            let bitmaps = node["dirty-bitmaps"].as_array().cloned().unwrap_or_default();
            bitmaps
                .into_iter()
                .map(move |bitmap| (name.clone(), bitmap["name"].as_str().unwrap().to_owned()))
        })
        .collect();
    assert_eq!(bitmaps.len(), 1, "{bitmaps:?}");
    let lost = json!({"node": bitmaps[0].0, "name": bitmaps[0].1});
    guest.ask("block-dirty-bitmap-remove", lost);
    guest.write(800 << 10, 10 << 10, 9);
    let fourth = night();
    assert!(fourth["bytes_read"].as_u64().unwrap() > 3 << 20, "{fourth}");
    assert!(fourth["bytes_new"].as_u64().unwrap() < 1 << 20, "{fourth}");

    let out = world.path("out.raw");
    world.run(["image", "restore", "latest", out.to_str().unwrap()]).exits(0);
    let bytes = fs::read(&out).unwrap();
    for (offset, bytes_written, byte) in [(400, 100, 7), (600, 10, 8), (800, 10, 9)] {
        let part = &bytes[offset << 10..(offset + bytes_written) << 10];
        assert!(part.iter().all(|found| *found == byte), "{offset}");
    }
    let machine = world.run(["cat", "latest:/vm1/machine/machine.json"]).exits(0).out;
    assert!(machine.contains("\"virtio-blk-pci\""), "{machine}");
    world.run(["cat", "latest:/vm1/vda/p1/etc/fstab"]).exits(0).says("/dev/vda1");
    world.run(["machine", "undo", &socket]).exits(0).says("nothing of ours");

    // While QEMU has it its image is not read; afterwards the bitmap in it says what was written.
    let image = guest.folder.join("vda.qcow2").display().to_string();
    let image = format!("vda={image}");
    world.run(["image", "backup", "vm1", &image]).exits(1).warns("machine backup");
    // Nor is it written over.
    let own = guest.folder.join("vda.qcow2");
    let before = fs::read(&own).unwrap();
    for target in [own.as_path(), &linked_to(&own)] {
        let over = ["image", "restore", "latest", target.to_str().unwrap(), "--overwrite"];
        world.run(over).exits(1).warns("a machine runs from it");
    }
    assert!(fs::read(&own).unwrap() == before);
    guest.write(700 << 10, 10 << 10, 6);
    guest.ask("quit", json!({}));
    guest.child.wait().unwrap();
    world.run(["image", "backup", "vm1", &image]).exits(0);
    fs::remove_file(&out).unwrap();
    world.run(["image", "restore", "latest", out.to_str().unwrap()]).exits(0);
    let bytes = fs::read(&out).unwrap();
    assert!(bytes[700 << 10..710 << 10].iter().all(|found| *found == 6));
}

/// Without its variables a machine may not start: they are expected in the snapshot.
#[test]
fn variables_of_the_firmware_that_cannot_be_read_are_a_problem() {
    let world = World::with_repository();
    let mut guest = Guest::start(&world);
    guest.child.kill().unwrap();
    guest.child.wait().unwrap();
    let part = |name: &str, more: &str| {
        let path = guest.folder.join(name);
        fs::write(&path, vec![0xff; 128 << 10]).unwrap();
        format!("if=pflash,format=raw,file={}{more}", path.display())
    };
    let more = [part("code.fd", ",readonly=on"), part("vars.fd", "")];
    let more = more.into_iter().flat_map(|drive| ["-drive".to_owned(), drive]);
    for socket in ["qmp", "side"] {
        let _ = fs::remove_file(guest.folder.join(socket));
    }
    guest.child = Guest::run(&guest.folder, &more.collect::<Vec<_>>());
    let socket = guest.socket().display().to_string();
    world.run(["machine", "backup", &socket]).exits(0);
    fs::remove_file(guest.folder.join("vars.fd")).unwrap();
    let run = world.run(["machine", "backup", &socket]);
    run.exits(3).warns("uefi-variables.fd is not stored with the machine");
    world.run(["machine", "backup", &socket, "--without", "uefi-variables.fd"]).exits(0);
}

/// Another name of a file.
fn linked_to(file: &std::path::Path) -> PathBuf {
    let link = file.with_extension("link");
    std::os::unix::fs::symlink(file, &link).unwrap();
    link
}

#[test]
fn what_is_wrong_with_a_machine_is_named() {
    let world = World::with_repository();
    let guest = Guest::start(&world);
    let socket = guest.socket().display().to_string();
    let fails = |args: &[&str], code: i32, why: &str| {
        world.run([&["machine", "backup"][..], args].concat()).exits(code).warns(why);
    };
    fails(&["/nowhere"], 1, "/nowhere");
    fails(&[&socket, "--without", "sdx"], 1, "vda");
    fails(&[&socket, "--without", "vda"], 1, "no disk");
    fails(&[&socket, "--name", "a/b"], 1, "cannot name a machine");
    fails(&[&socket, "--store", "/nowhere"], 1, "/nowhere");
    fails(&[&socket, "--store-reserve", "1000TiB"], 1, "another folder");
    fails(&[&socket, "--freeze-limit", "0"], 2, "freeze-limit");
    world.run(["snapshots"]).exits(0);
    // Nothing of it is left in the machine.
    world.run(["machine", "undo", &socket]).exits(0).says("nothing of ours");

    // Something of which nothing is written down is in a machine that is paused.
    guest.ask("blockdev-add", json!({"driver": "null-co", "node-name": "strongroom-store-0"}));
    guest.ask("cont", json!({}));
    guest.ask("stop", json!({}));
    let undo = world.run(["machine", "undo", &socket]);
    undo.exits(1).says("removed strongroom-store-0").warns("the machine is paused");
    world.run(["machine", "undo", &socket]).exits(0).says("nothing of ours");
}
