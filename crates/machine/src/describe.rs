//! What a running machine is made of: what its process was started with, and what its monitor says.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::description::{Description, Firmware, FirmwareFile};
use crate::live::Machine;
use crate::qmp::Qmp;

/// A longer command line is none of QEMU's.
const ARGUMENTS_BYTES_MAX: u64 = 4 << 20;
/// Longer files are not firmware.
const FIRMWARE_BYTES_MAX: u64 = 128 << 20;
/// The name of the description beside the files that it names.
const FILE_NAME: &str = "machine.json";

/// What describes a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Described {
    /// Names of files, and their content: the description itself as `machine.json`, and the files
    /// that it names, such as UEFI's variables.
    pub files: Vec<(String, Vec<u8>)>,
    /// What could not be had, in words.
    pub missing: Vec<String>,
}

impl Machine {
    /// What the machine is called (`-name`), if QEMU knows it.
    pub fn name(&self) -> Option<String> {
        let answer = self.qmp().execute("query-name", Value::Null).ok()?;
        answer["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned)
    }

    /// What the machine is made of, as far as this host can see.
    pub fn describe(&self) -> Described {
        let mut described = Described::default();
        let mut description = match arguments(self.qmp()) {
            Ok((program, arguments)) => {
                let mut description = Description::from_arguments(&arguments);
                description.emulator.program = program;
                description
            }
            Err(why) => {
                described.missing.push(format!("the command line of QEMU ({why})"));
                Description::new()
            }
        };
        ask(self.qmp(), &mut description);
        for drive in self.disks() {
            let found = description.disks.iter_mut().find(|disk| disk.name == drive.name);
            if let Some(disk) = found {
                disk.bytes = Some(drive.bytes);
                disk.format = Some(drive.format.clone());
            }
        }
        for file in files(&description.firmware) {
            match read(Path::new(&file.path)) {
                Ok(bytes) => described.files.push((file.name.clone(), bytes)),
                Err(why) => described.missing.push(format!("{} ({why})", file.path)),
            }
        }
        if let Some(tpm) = description.tpm.as_ref().filter(|tpm| tpm.state.is_none()) {
            described.missing.push(format!("the state of the TPM ({})", tpm.backend));
        }
        described.files.push((FILE_NAME.to_owned(), description.to_json()));
        described
    }
}

fn files(firmware: &Firmware) -> Vec<&FirmwareFile> {
    match firmware {
        Firmware::Bios { file } => file.iter().collect(),
        Firmware::Uefi { code, variables } => [code].into_iter().chain(variables).collect(),
    }
}

/// The program that serves the monitor, and what it was started with.
fn arguments(qmp: &Qmp) -> Result<(String, Vec<String>), String> {
    let peer = qmp.peer().ok_or("its process is not known")?;
    let path = format!("/proc/{}/cmdline", peer.pid.as_raw_nonzero());
    let bytes = read_at_most(Path::new(&path), ARGUMENTS_BYTES_MAX)?;
    let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|byte| *byte == 0);
    let mut words = words.map(|word| String::from_utf8_lossy(word).into_owned());
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    Ok((program, words.collect()))
}

/// What the monitor knows better than the command line. What it does not answer stays as it is.
fn ask(qmp: &Qmp, description: &mut Description) {
    let query = |command: &str| qmp.execute(command, Value::Null).unwrap_or_default();
    let (major, minor, micro) = qmp.version();
    description.emulator.version = Some(format!("{major}.{minor}.{micro}"));
    description.emulator.package = Some(qmp.package().to_owned()).filter(|name| !name.is_empty());
    description.emulator.is_kvm = query("query-kvm")["enabled"] == true;
    if let Some(architecture) = query("query-target")["arch"].as_str() {
        description.emulator.architecture = Some(architecture.to_owned());
    }
    if let Some(name) = query("query-name")["name"].as_str() {
        description.name = Some(name.to_owned());
    }
    let asked = serde_json::json!({"path": "/machine", "property": "type"});
    let machine = qmp.execute("qom-get", asked).unwrap_or_default();
    if let Some(machine) = machine.as_str() {
        description.machine = Some(machine.strip_suffix("-machine").unwrap_or(machine).to_owned());
    }
    if let Some(bytes) = query("query-memory-size-summary")["base-memory"].as_u64() {
        description.memory_bytes = Some(bytes);
    }
    if let Some(uuid) = query("query-uuid")["UUID"].as_str()
        && uuid.chars().any(|digit| !matches!(digit, '0' | '-'))
    {
        description.uuid = Some(uuid.to_owned());
    }
    let cpus = query("query-cpus-fast").as_array().map_or(0, Vec::len);
    if let Ok(count @ 1..) = u32::try_from(cpus) {
        description.cpu.count = count;
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is no file".to_owned());
    }
    read_at_most(path, FIRMWARE_BYTES_MAX)
}

fn read_at_most(path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    match bytes.len() as u64 > bytes_max {
        true => Err(format!("it is longer than {bytes_max} bytes")),
        false => Ok(bytes),
    }
}
