//! QEMU for the tests: machines whose processor sleeps, and whose disks the test writes to, by the way
//! that the guest's own writes take.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use strongroom_base::{Cancel, Stopwatch};
use strongroom_disk::{Image, ReadAt};
use strongroom_machine::{Consistency, LiveDisk, Machine, Night, Parent, Qmp, StoreLimits};
use strongroom_testkit::Random;
use tempfile::TempDir;

/// How long QEMU may take until it listens.
const START: Duration = Duration::from_secs(60);
/// The unit in which QEMU's bitmaps note changes.
pub const GRAIN: u64 = 64 << 10;

/// A running QEMU.
pub struct Guest {
    child: Child,
    folder: TempDir,
    side: Qmp,
    arguments: Vec<String>,
    /// What each disk holds, by the name of its device.
    pub disks: BTreeMap<String, Vec<u8>>,
}

/// What a guest's processor does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Firmware {
    Asleep,
    Pc,
}

/// A disk of a guest.
pub struct Plan {
    /// The id of its device.
    pub name: &'static str,
    /// The driver of its device and more properties of it.
    pub device: &'static str,
    pub format: &'static str,
    pub bytes: u64,
}

pub fn plan(name: &'static str, device: &'static str, format: &'static str, mib: u64) -> Plan {
    Plan { name, device, format, bytes: mib << 20 }
}

/// A virtio disk in qcow2 of 4 MiB.
pub fn usual() -> Vec<Plan> {
    vec![plan("vda", "virtio-blk-pci", "qcow2", 4)]
}

impl Guest {
    /// Starts a machine that runs, and whose processor sleeps.
    pub fn start(plans: &[Plan], more: &[&str]) -> Self {
        Self::start_with(plans, more, Firmware::Asleep)
    }

    /// Starts a machine with the firmware of a PC, which looks at each disk for a boot loader.
    pub fn start_pc(plans: &[Plan], more: &[&str]) -> Self {
        Self::start_with(plans, more, Firmware::Pc)
    }

    fn start_with(plans: &[Plan], more: &[&str], firmware: Firmware) -> Self {
        // In memory, so that no test waits for a disk that others keep busy.
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut disks = BTreeMap::new();
        let mut arguments = Vec::new();
        for plan in plans {
            let path = folder.path().join(format!("{}.{}", plan.name, plan.format));
            run(Command::new("qemu-img")
                .args(["create", "-q", "-f", plan.format])
                .arg(&path)
                .arg(plan.bytes.to_string()));
            disks.insert(plan.name.to_owned(), vec![0; plan.bytes as usize]);
            let (name, format) = (plan.name, plan.format);
            arguments.extend([
                "-drive".to_owned(),
                format!(
                    "if=none,id=drive-{name},format={format},discard=unmap,file={}",
                    path.display()
                ),
            ]);
            arguments.extend([
                "-device".to_owned(),
                format!("{},drive=drive-{name},id={name}", plan.device),
            ]);
        }
        let socket =
            |name: &str| format!("unix:{},server=on,wait=off", folder.path().join(name).display());
        let fixed = ["-machine", "pc,accel=tcg", "-nodefaults", "-display", "none", "-m", "16"];
        let mut all: Vec<String> = more.iter().chain(&fixed).map(|&word| word.to_owned()).collect();
        if firmware == Firmware::Asleep {
            // A processor that does nothing but sleep: cli, hlt, and back to hlt.
            let mut code = vec![0xf4; 64 << 10];
            let reset = code.len() - 16;
            code[reset..reset + 4].copy_from_slice(&[0xfa, 0xf4, 0xeb, 0xfd]);
            let bios = folder.path().join("bios");
            std::fs::write(&bios, code).unwrap();
            all.extend(["-bios".to_owned(), bios.display().to_string()]);
        }
        all.extend(["-qmp".to_owned(), socket("qmp"), "-qmp".to_owned(), socket("side")]);
        all.extend(arguments);
        let (child, side) = launch(&all, folder.path());
        Self { child, folder, side, arguments: all, disks }
    }

    /// The monitor that is for the code under test.
    pub fn monitor(&self) -> PathBuf {
        self.folder.path().join("qmp")
    }

    pub fn connect(&self) -> Machine {
        Machine::connect(&self.monitor()).unwrap()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The state folder of this machine.
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// A command of the test's own.
    pub fn ask(&self, command: &str, arguments: Value) -> Value {
        self.side.execute(command, arguments).unwrap()
    }

    /// The path of a device, as `qemu-io` wants it.
    fn device(&self, disk: &str) -> String {
        let blocks = self.ask("query-block", Value::Null);
        let mut devices =
            blocks.as_array().unwrap().iter().filter_map(|block| block["qdev"].as_str());
        let found = devices.find(|path| path.split('/').any(|part| part == disk));
        found.unwrap_or_else(|| panic!("no device {disk} in {blocks}")).to_owned()
    }

    /// Carries out a command of `qemu-io` as the guest would.
    pub fn io(&self, disk: &str, command: &str) -> String {
        let line = format!("qemu-io -d {} \"{command}\"", self.device(disk));
        self.ask("human-monitor-command", json!({"command-line": line}))
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// The guest writes.
    pub fn write(&mut self, disk: &str, offset: u64, bytes: u64, pattern: u8) {
        self.io(disk, &format!("write -P {pattern} {offset} {bytes}"));
        let content = self.disks.get_mut(disk).unwrap();
        content[offset as usize..(offset + bytes) as usize].fill(pattern);
    }

    /// The guest writes at random places of a disk.
    pub fn scribble(&mut self, disk: &str, random: &mut Random, times: usize) {
        let size = self.disks[disk].len() as u64;
        for _ in 0..times {
            let bytes = 512 * (1 + random.below(100));
            let offset = 512 * random.below((size - bytes) / 512);
            self.write(disk, offset, bytes, 1 + random.below(255) as u8);
        }
    }

    /// The guest reads back what it wrote, and QEMU has nothing of ours.
    pub fn check_healthy(&mut self) {
        let nodes = self.ask("query-named-block-nodes", json!({"flat": true}));
        for node in nodes.as_array().unwrap() {
            assert!(!node["node-name"].as_str().unwrap().starts_with("strongroom-"), "{node}");
        }
        assert_eq!(self.ask("query-block-exports", Value::Null), json!([]));
        let stopped = self.side.execute("nbd-server-stop", Value::Null);
        assert!(stopped.is_err(), "the server still runs");
        assert_eq!(self.status(), "running");
        let left: Vec<_> = std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".store"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        assert!(!self.state().join("machine.intent").exists());
        for disk in self.disks.keys() {
            assert!(!self.bitmaps(disk).contains(&"strongroom-recent".to_owned()));
        }
        for disk in self.disks.keys().cloned().collect::<Vec<_>>() {
            self.write(&disk, 512, 512, 0x5a);
            let answer = self.io(&disk, "read -P 0x5a 512 512");
            assert!(!answer.contains("failed"), "{answer}");
        }
    }

    pub fn status(&self) -> String {
        self.ask("query-status", Value::Null)["status"].as_str().unwrap().to_owned()
    }

    /// The names of our bitmaps of a disk.
    pub fn bitmaps(&self, disk: &str) -> Vec<String> {
        let blocks = self.ask("query-block", Value::Null);
        let device = self.device(disk);
        let mut blocks = blocks.as_array().unwrap().iter();
        let block = blocks.find(|block| block["qdev"] == *device).unwrap();
        let bitmaps = block["inserted"]["dirty-bitmaps"].as_array().cloned().unwrap_or_default();
        let names = bitmaps.iter().filter_map(|bitmap| bitmap["name"].as_str());
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.sort();
        names
    }

    /// Whether QEMU still runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends QEMU at once.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends QEMU in order, or not, and starts it again.
    pub fn restart(&mut self, in_order: bool) {
        if in_order {
            let _ = self.side.execute("quit", Value::Null);
            self.child.wait().unwrap();
        } else {
            self.kill();
        }
        for socket in ["qmp", "side"] {
            let _ = std::fs::remove_file(self.folder.path().join(socket));
        }
        (self.child, self.side) = launch(&self.arguments, self.folder.path());
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(arguments: &[String], folder: &Path) -> (Child, Qmp) {
    let log = File::create(folder.join("log")).unwrap();
    let mut command = Command::new("qemu-system-x86_64");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut child = command.spawn().unwrap();
    let waited = Stopwatch::start();
    loop {
        if let Ok(side) = Qmp::connect(&folder.join("side"), START) {
            return (child, side);
        }
        let log = std::fs::read_to_string(folder.join("log")).unwrap();
        assert!(child.try_wait().unwrap().is_none(), "QEMU ended: {log}");
        assert!(waited.elapsed() < START, "QEMU does not listen: {log}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// A night with usual limits.
pub fn night<'a>(snapshot: &'a str, folder: &'a Path, state: &'a Path) -> Night<'a> {
    Night {
        snapshot,
        parent: None,
        set: "test",
        without: &[],
        beside: &[],
        store_folder: folder,
        store_limits: StoreLimits { bytes_max: None, reserve: 0 },
        state_folder: state,
        agent: None,
        consistency: Consistency::Preferred,
        freeze_limit: Duration::from_secs(5),
        start_limit: Duration::from_secs(60),
        watched: Duration::ZERO,
        share: None,
        connections: 3,
        cancel: Cancel::new(),
    }
}

/// A parent whose disks had these sizes.
pub fn parent<'a>(snapshot: &'a str, sizes: &'a BTreeMap<String, u64>) -> Option<Parent<'a>> {
    Some(Parent { snapshot, disk_bytes: sizes })
}

pub fn sizes(disks: &BTreeMap<String, Vec<u8>>) -> BTreeMap<String, u64> {
    disks.iter().map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect()
}

/// All bytes of a disk.
pub fn read_all(disk: &LiveDisk) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; disk.image.size() as usize];
    for (place, part) in bytes.chunks_mut(1 << 20).enumerate() {
        disk.image.read_at((place as u64) << 20, part)?;
    }
    Ok(bytes)
}

/// The disk is as it was, by its data as by its zeros, and what changed is within what it says.
pub fn check_same(disk: &LiveDisk, then: &[u8], before: Option<&[u8]>) {
    assert_eq!(disk.image.size(), then.len() as u64);
    assert!(read_all(disk).unwrap() == then, "{} is not as it was", disk.name);
    let mut at = 0;
    while let Some(data) = disk.image.next_data(at).unwrap() {
        assert!(then[at as usize..data.start as usize].iter().all(|&byte| byte == 0));
        at = data.end;
    }
    assert!(then[at as usize..].iter().all(|&byte| byte == 0));
    let Some(before) = before else {
        assert_eq!(disk.changed, None);
        return;
    };
    let changed = disk.changed.as_ref().expect("a bitmap is trusted");
    let dirty = |at: u64| changed.iter().any(|range| range.contains(&at));
    for at in (0..then.len()).step_by(512) {
        let end = (at + 512).min(then.len());
        let was = before.get(at..end);
        assert!(was == Some(&then[at..end]) || dirty(at as u64), "{at} changed, not noted");
    }
}

/// A guest agent that does what it is asked for.
pub struct Agent {
    pub socket: PathBuf,
    frozen: Arc<AtomicBool>,
}

impl Agent {
    pub fn start(folder: &Path) -> Self {
        Self::slow(folder, Duration::ZERO)
    }

    /// One that takes this long to freeze.
    pub fn slow(folder: &Path, freezing: Duration) -> Self {
        Self::with(folder, freezing, json!(1))
    }

    /// One that answers this to what freezes and thaws.
    pub fn answering(folder: &Path, answer: Value) -> Self {
        Self::with(folder, Duration::ZERO, answer)
    }

    fn with(folder: &Path, freezing: Duration, count: Value) -> Self {
        let socket = folder.join("agent");
        let listener = UnixListener::bind(&socket).unwrap();
        let frozen = Arc::new(AtomicBool::new(false));
        let inside = frozen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = attend(&stream.unwrap(), &inside, freezing, &count);
            }
        });
        Self { socket, frozen }
    }

    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::SeqCst)
    }
}

/// Answers one client of the agent.
fn attend(
    mut stream: &UnixStream,
    frozen: &AtomicBool,
    freezing: Duration,
    count: &Value,
) -> std::io::Result<()> {
    for line in BufReader::new(stream.try_clone()?).split(b'\n') {
        let line = line?;
        let start = line.iter().position(|&byte| byte == b'{').unwrap();
        let asked: Value = serde_json::from_slice(&line[start..])?;
        let answer = match asked["execute"].as_str().unwrap() {
            "guest-sync-delimited" => {
                stream.write_all(&[0xff])?;
                asked["arguments"]["id"].clone()
            }
            "guest-fsfreeze-status" if frozen.load(Ordering::SeqCst) => json!("frozen"),
            "guest-fsfreeze-status" => json!("thawed"),
            other => {
                if other == "guest-fsfreeze-freeze" {
                    std::thread::sleep(freezing);
                }
                frozen.store(other == "guest-fsfreeze-freeze", Ordering::SeqCst);
                count.clone()
            }
        };
        writeln!(stream, "{}", json!({"return": answer}))?;
    }
    Ok(())
}
