//! A machine that counts: in its memory, on its disk, and on its serial port. It is a boot sector, so it
//! needs no kernel.
//!
//! ```text
//! begin:  count = 0
//! next:   read the sector from the disk; say later "." if it has the count, else "!"
//!         count += 1; fill 64 KiB of memory with it; write it to the sector
//!         say the count in eight digits of base 16, the sign, and a line's end
//!         wait for two ticks of the clock; go to next
//! ```

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Pid;
use serde_json::{Value, json};
use strongroom_base::Stopwatch;
use strongroom_machine::Qmp;
use strongroom_testkit::Random;

use crate::world::World;

/// Where it counts in its memory, and in its disk.
pub const IN_MEMORY: u64 = 0x1000;
pub const ON_DISK: u64 = 8 * 512;
/// How much memory it has.
pub const MEMORY_BYTES: u64 = 16 << 20;
const DISK_BYTES: usize = 4 << 20;
/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(120);
/// The program, at 0x7c00: `testdata/counting.s`.
const PROGRAM: &str = "\
    fa31c08ed88ec08ed0bc007c8816ff076631c066a30010fbfcb442bb0012e872\
    0066a10010b32e66390600127402b321664066a30010ba00208ec231ffb90040\
    66f3ab53b443bb0010e847005b66a10010b9080066c1c00450240f04303c3976\
    020427e81e0058e2eb88d8e81600b00ae81100b90200a06c04f438066c0474f9\
    e2f4eb9550bafd03eca82074fb58baf803eec3891ea77cbea37c30c08a16ff07\
    cd13c310000100000000000800000000000000";

/// What it said.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    pub number: u32,
    /// Its disk had what its memory has.
    pub agrees: bool,
    /// The line is whole.
    pub is_whole: bool,
}

/// What a line says. Of the first line after it goes on, the beginning may be missing.
pub fn counted(line: &str) -> Option<Counted> {
    let line = line.trim_end();
    let digits = line.strip_suffix(['.', '!']).unwrap_or_default();
    let number = u32::from_str_radix(digits, 16).ok()?;
    Some(Counted { number, agrees: line.ends_with('.'), is_whole: digits.len() == 8 })
}

/// The machine, called vm1.
pub struct Counting {
    child: Child,
    folder: PathBuf,
    side: Qmp,
}

impl Counting {
    /// Starts it, with its memory in the file `ram0` unless `more` has another object for it.
    pub fn start(world: &World, format: &str, more: &[&str]) -> Self {
        let folder = world.folder.path().to_owned();
        let mut disk = program();
        disk.resize(510, 0);
        disk.extend_from_slice(&[0x55, 0xaa]);
        disk.resize(DISK_BYTES, 0);
        fs::write(folder.join("raw"), disk).unwrap();
        for old in ["disk", "qmp", "side", "log"] {
            let _ = fs::remove_file(folder.join(old));
        }
        let mut convert = Command::new("qemu-img");
        convert.args(["convert", "-f", "raw", "-O", format, "raw", "disk"]).current_dir(&folder);
        assert!(convert.status().unwrap().success());
        let path = |name: &str| folder.join(name).display().to_string();
        let ram = format!(
            "memory-backend-file,id=ram0,size={MEMORY_BYTES},mem-path={},share=on",
            path("ram0")
        );
        let memory: &[&str] = if more.contains(&"-object") { &[] } else { &["-object", &ram] };
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-name", "vm1", "-machine", "pc,memory-backend=ram0", "-accel", "tcg"]);
        command
            .args(["-m", "16M", "-display", "none", "-serial"])
            .arg(format!("file:{}", path("log")));
        command.args(memory).args(more).arg("-drive");
        command.arg(format!("if=none,id=d0,format={format},discard=unmap,file={}", path("disk")));
        command.args(["-device", "virtio-blk-pci,drive=d0,id=vda"]);
        for name in ["qmp", "side"] {
            command.arg("-qmp").arg(format!("unix:{},server=on,wait=off", path(name)));
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let begun = Stopwatch::start();
        let side = loop {
            match Qmp::connect(&folder.join("side"), LIMIT) {
                Ok(side) => break side,
                Err(error) => assert!(begun.elapsed() < LIMIT, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let guest = Self { child, folder, side };
        guest.waits_for_more();
        guest
    }

    pub fn monitor(&self) -> PathBuf {
        self.folder.join("qmp")
    }

    pub fn process(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn ask(&self, command: &str) -> Value {
        self.side.execute(command, Value::Null).unwrap()
    }

    /// How far it has counted, by its serial port.
    fn count(&self) -> u32 {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let mut said = log.lines().rev().filter_map(counted).filter(|one| one.is_whole);
        said.next().map_or(0, |one| one.number)
    }

    /// Waits until it has counted on, and returns how far.
    #[track_caller]
    pub fn waits_for_more(&self) -> u32 {
        let (before, begun) = (self.count(), Stopwatch::start());
        while self.count() < before + 3 {
            assert!(begun.elapsed() < LIMIT, "it does not count: {}", self.ask("query-status"));
            std::thread::sleep(Duration::from_millis(10));
        }
        self.count()
    }

    /// Writes to most of its memory, which it does not use.
    pub fn fill_memory(&self) {
        let memory = File::options().write(true).open(self.folder.join("ram0")).unwrap();
        let noise = Random::new(7).noise(8 << 20);
        memory.write_all_at(&noise, 4 << 20).unwrap();
    }

    /// What of ours is in QEMU.
    fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        let nodes = self.side.execute("query-named-block-nodes", json!({"flat": true})).unwrap();
        let names = nodes.as_array().unwrap().iter().map(|node| &node["node-name"]);
        left.extend(names.map(|name| name.as_str().unwrap().to_owned()));
        left.retain(|name| name.starts_with("strongroom-"));
        let exports = self.ask("query-block-exports");
        left.extend(exports.as_array().unwrap().iter().map(|export| export["id"].to_string()));
        let capabilities = self.ask("query-migrate-capabilities");
        let on = capabilities.as_array().unwrap().iter().filter(|known| known["state"] == true);
        left.extend(on.map(|known| known["capability"].to_string()));
        if self.ask("query-status")["status"] != "running" {
            left.push("a pause".to_owned());
        }
        left
    }

    #[track_caller]
    pub fn has_nothing_of_ours(&self) {
        assert_eq!(self.left(), Vec::<String>::new());
    }

    #[track_caller]
    pub fn waits_until_nothing_is_left(&self) {
        let begun = Stopwatch::start();
        while !self.left().is_empty() {
            assert!(begun.elapsed() < LIMIT, "{:?}", self.left());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Vec<u8> {
    let digits: Vec<u8> = PROGRAM.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// A monitor that passes on commands. Of its first client, each is shown before it passes.
pub struct Relay {
    path: PathBuf,
    has_ended: Arc<AtomicBool>,
}

impl Relay {
    pub fn start(world: &World, guest: &Counting, shown: impl Fn(&str) + Send + 'static) -> Self {
        let path = world.path("relay");
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let has_ended = Arc::new(AtomicBool::new(false));
        let (monitor, ended) = (guest.monitor(), has_ended.clone());
        std::thread::spawn(move || {
            let mut streams = listener.incoming().map(Result::unwrap);
            let _ = streams.next().map(|stream| pass_on(&stream, &monitor, &shown));
            ended.store(true, Ordering::SeqCst);
            for stream in streams {
                let _ = pass_on(&stream, &monitor, &|_| ());
            }
        });
        Self { path, has_ended }
    }

    pub fn path(&self) -> String {
        self.path.display().to_string()
    }

    pub fn waits_for_its_client(&self) {
        let begun = Stopwatch::start();
        while !self.has_ended.load(Ordering::SeqCst) {
            assert!(begun.elapsed() < LIMIT, "the backup does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn pass_on(client: &UnixStream, monitor: &Path, shown: &dyn Fn(&str)) -> std::io::Result<()> {
    let mut qemu = UnixStream::connect(monitor)?;
    let (mut answers, mut back) = (qemu.try_clone()?, client.try_clone()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(std::net::Shutdown::Both);
    });
    // A client that was killed ends with an error.
    for line in BufReader::new(client.try_clone()?).lines().map_while(Result::ok) {
        writeln!(qemu, "{line}")?;
        let command: Value = serde_json::from_str(&line)?;
        if let Some(name) = command["execute"].as_str() {
            shown(name);
        }
    }
    qemu.shutdown(std::net::Shutdown::Both)
}
