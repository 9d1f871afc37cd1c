//! What the QEMU that is here can emulate.
//!
//! Types of machines are removed from QEMU six years after a newer version replaced them. A machine
//! of a type that is gone gets the nearest of the same family: the first later version, since what
//! changed between the two is least.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use strongroom_base::Stopwatch;

/// How long QEMU may take to say what it can do.
const LIMIT: Duration = Duration::from_secs(20);
/// What it says is shorter than this.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Why nothing is known of an emulator.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    /// It cannot be run.
    #[error("cannot run {}: {error}", .program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It says nothing that is understood.
    #[error("{} does not say which machines it has", .program.display())]
    Silent {
        /// The program.
        program: PathBuf,
    },
}

/// What an emulator can do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Qemu {
    /// The program.
    pub program: PathBuf,
    /// The types of machines that it has.
    pub machines: Vec<String>,
    /// The devices that it has.
    pub devices: Vec<String>,
}

impl Qemu {
    /// Asks an emulator.
    ///
    /// # Errors
    ///
    /// It cannot be run, or says nothing.
    pub fn ask(program: &Path) -> Result<Self, QemuError> {
        let machines = output(program, &["-machine", "help"])?;
        let devices = output(program, &["-device", "help"])?;
        let emulator = Self {
            program: program.to_owned(),
            machines: machines_in(&machines),
            devices: devices_in(&devices),
        };
        match emulator.machines.is_empty() || emulator.devices.is_empty() {
            true => Err(QemuError::Silent { program: program.to_owned() }),
            false => Ok(emulator),
        }
    }

    /// Whether it has a device.
    pub fn has_device(&self, name: &str) -> bool {
        self.devices.iter().any(|device| device == name)
    }

    /// The type of machine that is nearest to one that may be gone.
    pub fn nearest_machine(&self, wanted: &str) -> Option<String> {
        if self.machines.iter().any(|machine| machine == wanted) {
            return Some(wanted.to_owned());
        }
        let (family, version) = family_of(wanted);
        let relatives = self.machines.iter().filter_map(|machine| {
            let (its_family, its_version) = family_of(machine);
            (its_family == family).then_some((its_version?, machine))
        });
        let mut relatives: Vec<_> = relatives.collect();
        relatives.sort();
        let later = relatives.iter().find(|(its_version, _)| Some(its_version) >= version.as_ref());
        if let Some((_, machine)) = later.or(relatives.last()) {
            return Some((*machine).clone());
        }
        let alias = if wanted.contains("q35") { "q35" } else { "pc" };
        self.machines.iter().find(|machine| *machine == alias).cloned()
    }
}

/// `pc-q35-7.2` is version 7.2 of `pc-q35`.
fn family_of(machine: &str) -> (&str, Option<Vec<u32>>) {
    let Some((family, version)) = machine.rsplit_once('-') else { return (machine, None) };
    let version: Result<Vec<u32>, _> = version.split('.').map(str::parse).collect();
    match version {
        Ok(version) => (family, Some(version)),
        Err(_) => (machine, None),
    }
}

/// The first word of each line but the first, which is a heading.
fn machines_in(text: &str) -> Vec<String> {
    let lines = text.lines().skip(1);
    lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// What is in quotes after `name` and after `alias`.
fn devices_in(text: &str) -> Vec<String> {
    let mut devices = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("name ")) {
        for key in ["name \"", "alias \""] {
            let value = line.split_once(key).and_then(|(_, rest)| rest.split_once('"'));
            devices.extend(value.map(|(value, _)| value.to_owned()));
        }
    }
    devices
}

fn output(program: &Path, arguments: &[&str]) -> Result<String, QemuError> {
    let failed = |error| QemuError::Run { program: program.to_owned(), error };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let Some(stdout) = child.stdout.take() else {
        return Err(QemuError::Silent { program: program.to_owned() });
    };
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let begun = Stopwatch::start();
    while child.try_wait().map_err(failed)?.is_none() {
        if begun.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return Err(QemuError::Silent { program: program.to_owned() });
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(reader.join().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emulator(machines: &[&str]) -> Qemu {
        let machines = machines.iter().map(|machine| (*machine).to_owned()).collect();
        Qemu { machines, ..Qemu::default() }
    }

    #[test]
    fn a_machine_that_is_gone_becomes_the_nearest() {
        let now = emulator(&[
            "pc",
            "q35",
            "pc-i440fx-7.2",
            "pc-i440fx-10.0",
            "pc-q35-8.0",
            "pc-q35-7.2",
            "none",
        ]);
        for (wanted, nearest) in [
            ("pc-q35-7.2", "pc-q35-7.2"),
            ("pc-q35-2.4", "pc-q35-7.2"),
            ("pc-q35-7.2.1", "pc-q35-8.0"),
            ("pc-q35-11.0", "pc-q35-8.0"),
            ("pc-i440fx-9.1", "pc-i440fx-10.0"),
            ("q35", "q35"),
            ("pc-q35-rhel9.4.0", "q35"),
            ("pc-1.0", "pc"),
            ("", "pc"),
        ] {
            assert_eq!(now.nearest_machine(wanted).as_deref(), Some(nearest), "{wanted}");
        }
        assert_eq!(emulator(&["virt"]).nearest_machine("pc-q35-2.4"), None);
    }

    #[test]
    fn the_lists_of_qemu_are_understood() {
        let machines = "Supported machines are:\nmicrovm              microvm (i386)\n\
                        pc   Standard PC (alias of pc-i440fx-7.2)\n\n";
        assert_eq!(machines_in(machines), ["microvm", "pc"]);
        let devices = "Storage devices:\nname \"nvme\", bus PCI, desc \"Non-Volatile\"\n\
                       name \"virtio-blk-pci\", bus PCI, alias \"virtio-blk\"\nname \"bro";
        assert_eq!(devices_in(devices), ["nvme", "virtio-blk-pci", "virtio-blk"]);
    }

    #[test]
    fn the_qemu_that_is_here_answers() {
        let here = Qemu::ask(Path::new("qemu-system-x86_64")).unwrap();
        assert!(here.has_device("virtio-blk-pci") && here.nearest_machine("pc-q35-2.4").is_some());
        assert!(matches!(Qemu::ask(Path::new("/nowhere")), Err(QemuError::Run { .. })));
        assert!(matches!(Qemu::ask(Path::new("true")), Err(QemuError::Silent { .. })));
    }
}
