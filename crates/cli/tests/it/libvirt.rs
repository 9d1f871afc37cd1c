//! Machines of libvirt: its own daemon, started for the test, with a machine whose processor is
//! stopped. The tests write to its disks by the way that a guest's writes take.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use strongroom_base::Stopwatch;

use crate::world::{World, is_root};

/// `nobody`. libvirtd keeps to folders of its own only if it is not root's.
const USER: u32 = 65534;
const MIB: u64 = 1 << 20;

/// A daemon of libvirt with a machine called vm1: `vda` in qcow2 and `vdb` raw.
struct Libvirt {
    folder: PathBuf,
    daemon: Child,
}

impl Libvirt {
    fn start(world: &World) -> Self {
        let folder = world.path("libvirt");
        for name in ["", "run", "home", "home/config", "home/config/libvirt"] {
            fs::create_dir(folder.join(name)).unwrap();
        }
        let set = "stdio_handler = \"file\"\nsecurity_driver = \"none\"\n";
        fs::write(folder.join("home/config/libvirt/qemu.conf"), set).unwrap();
        let mut noise = vec![0; 40 << 20];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        fs::write(folder.join("vdb.raw"), &noise[..8 << 20]).unwrap();
        fs::write(folder.join("vda.raw"), &noise).unwrap();
        let mut convert = Command::new("qemu-img");
        convert.args(["convert", "-O", "qcow2", "vda.raw", "vda.qcow2"]).current_dir(&folder);
        assert!(convert.status().unwrap().success());
        if is_root() {
            // Folders above it are the test's alone.
            let above = folder.ancestors().take_while(|path| *path != Path::new("/tmp")).skip(1);
            for path in above.filter(|path| path.starts_with("/tmp")) {
                fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            }
            let mut own = Command::new("chown");
            own.args(["-R", &format!("{USER}:{USER}")]).arg(&folder);
            assert!(own.status().unwrap().success());
            chown(&folder, Some(USER), Some(USER)).unwrap();
        }
        let daemon = Self::daemon(&folder).spawn().unwrap();
        let libvirt = Self { folder, daemon };
        let socket = libvirt.folder.join("run/libvirt/libvirt-sock");
        let begun = Stopwatch::start();
        while !socket.exists() || !libvirt.tries(&["list"]) {
            assert!(begun.elapsed() < Duration::from_secs(60), "libvirtd does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        let disk = |name: &str, file: &str, format: &str| {
            let file = libvirt.folder.join(file);
            format!(
                "<disk type='file' device='disk'><driver name='qemu' type='{format}'/>\
                 <source file='{}'/><target dev='{name}' bus='virtio'/></disk>",
                file.display()
            )
        };
        let xml = format!(
            "<domain type='qemu'><name>vm1</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>\
             <os><type arch='x86_64' machine='pc'>hvm</type></os><devices>{}{}\
             <disk type='file' device='cdrom'><target dev='hda' bus='ide'/><readonly/></disk>\
             <controller type='usb' model='none'/><memballoon model='none'/></devices></domain>",
            disk("vda", "vda.qcow2", "qcow2"),
            disk("vdb", "vdb.raw", "raw"),
        );
        let path = libvirt.folder.join("vm1.xml");
        fs::write(&path, xml).unwrap();
        libvirt.virsh(&["define", path.to_str().unwrap()]);
        libvirt.virsh(&["start", "vm1", "--paused"]);
        libvirt
    }

    fn daemon(folder: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]);
        if is_root() {
            let user = USER.to_string();
            command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        }
        command.arg("libvirtd").env("XDG_RUNTIME_DIR", folder.join("run"));
        command.env("HOME", folder.join("home")).stderr(Stdio::null()).stdin(Stdio::null());
        for (variable, name) in [("CONFIG", "config"), ("CACHE", "cache"), ("DATA", "data")] {
            command.env(format!("XDG_{variable}_HOME"), folder.join("home").join(name));
        }
        command
    }

    fn uri(&self) -> String {
        let socket = self.folder.join("run/libvirt/libvirt-sock");
        format!("qemu+unix:///session?socket={}", socket.display())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("virsh");
        command.args(["--quiet", "--connect", &self.uri()]).args(arguments).stdin(Stdio::null());
        command
    }

    fn tries(&self, arguments: &[&str]) -> bool {
        self.command(arguments).output().unwrap().status.success()
    }

    fn virsh(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Fills a mebibyte of a disk with a byte, as the guest would.
    fn fill(&self, disk: u32, mebibyte: u64, byte: u8) {
        let device = format!("/machine/peripheral/virtio-disk{disk}/virtio-backend");
        let write = format!("qemu-io -d {device} \"write -P {byte} {mebibyte}M 1M\"");
        self.virsh(&["qemu-monitor-command", "vm1", "--hmp", &write]);
    }

    fn checkpoints(&self) -> Vec<String> {
        let listed = self.virsh(&["checkpoint-list", "vm1", "--name"]);
        listed.lines().filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}

impl Drop for Libvirt {
    fn drop(&mut self) {
        let _ = self.command(&["destroy", "vm1"]).output();
        let process = rustix::process::Pid::from_child(&self.daemon);
        let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        let _ = self.daemon.wait();
    }
}

/// Backs the machine up, and returns the summary.
fn backup(world: &World, libvirt: &Libvirt) -> serde_json::Value {
    let uri = libvirt.uri();
    let words =
        ["machine", "backup", "vm1", "--connect", &uri, "--json", "--store-reserve", "1MiB"];
    world.run(words).exits(0).summary()
}

/// Whether all of both disks was read, and a little to find out what is on them.
fn has_read_all(summary: &serde_json::Value) -> bool {
    (48 * MIB..49 * MIB).contains(&summary["bytes_read"].as_u64().unwrap())
}

/// A byte of a disk of a snapshot.
fn stored_byte(world: &World, disk: &str, mebibyte: u64) -> u8 {
    let target = world.path("restored.raw");
    let _ = fs::remove_file(&target);
    let words = format!("image restore latest:/vm1/{disk}.raw {}", target.display());
    world.say(&words).exits(0);
    let mut byte = [0];
    fs::File::open(&target).unwrap().read_exact_at(&mut byte, mebibyte * MIB).unwrap();
    byte[0]
}

#[test]
fn nights_of_a_machine_of_libvirt() {
    let world = World::with_repository();
    let libvirt = Libvirt::start(&world);
    let uri = libvirt.uri();
    world
        .run(["machine", "show", "vm1", "--connect", &uri])
        .exits(0)
        .says("also when it stops")
        .says("left out: a drive for CDs or floppies");
    let first = backup(&world, &libvirt);
    assert!(has_read_all(&first), "{first}");
    assert_eq!(libvirt.checkpoints().len(), 1);

    // Of vda what was written is read and a sample, of vdb all: raw images keep no checkpoints.
    libvirt.fill(0, 3, 0x33);
    libvirt.fill(1, 2, 0x44);
    let second = backup(&world, &libvirt);
    let read = second["bytes_read"].as_u64().unwrap();
    assert!((9 * MIB..13 * MIB).contains(&read), "{second}");
    assert_eq!(second["bytes_new"].as_u64().map(|bytes| bytes < MIB), Some(true), "{second}");
    let checkpoints = libvirt.checkpoints();
    assert!(checkpoints[0].ends_with(second["snapshot"].as_str().unwrap()), "{checkpoints:?}");
    assert_eq!(checkpoints.len(), 1, "that of the night before is gone");
    assert_eq!((stored_byte(&world, "vda", 3), stored_byte(&world, "vdb", 2)), (0x33, 0x44));
    world.say("ls latest:/vm1/machine").exits(0).says("domain.xml").says("machine.json");
    let description = world.say("cat latest:/vm1/machine/machine.json").exits(0);
    description.says("\"name\": \"vdb\"").says("virtio-blk-pci").says("guest=vm1");

    // A checkpoint that an administrator removed: all is read and compared, and little is stored.
    libvirt.virsh(&["checkpoint-delete", "vm1", &checkpoints[0]]);
    libvirt.fill(0, 5, 0x55);
    let third = backup(&world, &libvirt);
    assert!(has_read_all(&third), "{third}");
    assert!(third["bytes_new"].as_u64().unwrap() < 2 * MIB, "{third}");
    assert_eq!(stored_byte(&world, "vda", 5), 0x55);

    // One whose bitmap is not what libvirt expects.
    let name = libvirt.checkpoints().remove(0);
    let node = "{\"execute\":\"query-named-block-nodes\"}";
    let nodes: serde_json::Value =
        serde_json::from_str(&libvirt.virsh(&["qemu-monitor-command", "vm1", node])).unwrap();
    let has_it = |node: &&serde_json::Value| node["dirty-bitmaps"].to_string().contains(&name);
    let node = nodes["return"].as_array().unwrap().iter().find(has_it).unwrap();
    let arguments = serde_json::json!({"node": node["node-name"], "name": name});
    let remove =
        serde_json::json!({"execute": "block-dirty-bitmap-remove", "arguments": arguments});
    libvirt.virsh(&["qemu-monitor-command", "vm1", &remove.to_string()]);
    libvirt.fill(0, 6, 0x66);
    let fourth = backup(&world, &libvirt);
    assert!(has_read_all(&fourth), "{fourth}");
    assert_eq!(stored_byte(&world, "vda", 6), 0x66);
    assert!(fs::read_dir("/var/tmp").unwrap().flatten().all(|entry| {
        !entry.file_name().to_string_lossy().contains(fourth["snapshot"].as_str().unwrap())
    }));
}

#[test]
fn what_goes_wrong_with_a_machine_of_libvirt_is_said_and_undone() {
    let world = World::with_repository();
    let libvirt = Libvirt::start(&world);
    let uri = libvirt.uri();
    let on = |words: &[&str]| world.run([words, &["--connect", &uri][..]].concat());
    on(&["machine", "show", "vm9"]).exits(1).warns("vm9").warns("virsh list --all");
    on(&["machine", "backup", "vm1", "--consistency", "required"])
        .exits(1)
        .warns("the guest could not be frozen");
    on(&["machine", "backup", "vm1", "--without", "vdx"]).exits(1).warns("it has vda, vdb");
    on(&["machine", "undo", "vm1"]).exits(0).says("nothing of ours");

    // Killed while the job runs: the guest goes on, and nothing is left after `undo`.
    let mut killed = world
        .command(["machine", "backup", "vm1", "--connect", &uri])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Stopwatch::start();
    while !libvirt.tries(&["backup-dumpxml", "vm1"]) {
        assert!(begun.elapsed() < Duration::from_secs(60), "no job was begun");
        std::thread::sleep(Duration::from_millis(2));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(libvirt.tries(&["backup-dumpxml", "vm1"]), "the job is still there");
    libvirt.fill(0, 1, 0x11);
    on(&["machine", "undo", "vm1"]).exits(0).says("removed the backup job of libvirt");
    assert!(!libvirt.tries(&["backup-dumpxml", "vm1"]));
    backup(&world, &libvirt);
    assert_eq!((stored_byte(&world, "vda", 1), libvirt.checkpoints().len()), (0x11, 1));

    // The store may hold less than what the guest overwrites: the job ends, the guest goes on.
    let limited = ["machine", "backup", "vm1", "--store-limit", "4KiB", "--read-all"];
    on(&limited).exits(7).warns("the store may hold");
    libvirt.fill(0, 2, 0x22);
    backup(&world, &libvirt);
    assert_eq!(stored_byte(&world, "vda", 2), 0x22);

    libvirt.virsh(&["destroy", "vm1"]);
    on(&["machine", "backup", "vm1"]).exits(1).warns("does not run").warns("vda.qcow2");
}
