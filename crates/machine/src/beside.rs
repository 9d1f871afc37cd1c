//! What is stored beside the disks of a machine: its description, and the files that this names.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::description::{Firmware, FirmwareFile};
use crate::error::MachineError;
use crate::live::Machine;

/// Longer files are not firmware.
const FIRMWARE_BYTES_MAX: u64 = 128 << 20;
/// The name of the description beside the files that it names.
const FILE_NAME: &str = "machine.json";

/// What is stored beside the disks of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beside {
    /// Names of files, and their content: the description as `machine.json`, and the files that it
    /// names, such as UEFI's variables.
    pub files: Vec<(String, Vec<u8>)>,
    /// What this host cannot see, in words.
    pub missing: Vec<String>,
}

impl Machine {
    /// What the machine is called (`-name`), if QEMU knows it.
    pub fn name(&self) -> Option<String> {
        let answer = self.qmp().execute("query-name", Value::Null).ok()?;
        answer["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned)
    }

    /// What is to be stored beside its disks.
    ///
    /// # Errors
    ///
    /// QEMU does not answer. A file that cannot be read is missing.
    pub fn beside(&self) -> Result<Beside, MachineError> {
        let description = self.description()?;
        let mut beside = Beside::default();
        if description.arguments.is_empty() {
            beside.missing.push("the command line of QEMU".to_owned());
        }
        for file in files(&description.firmware) {
            match read(Path::new(&file.path)) {
                Ok(bytes) => beside.files.push((file.name.clone(), bytes)),
                Err(why) => beside.missing.push(format!("{} ({why})", file.path)),
            }
        }
        if description.tpm.as_ref().is_some_and(|tpm| tpm.state.is_none()) {
            beside.missing.push("the state of its TPM".to_owned());
        }
        beside.files.push((FILE_NAME.to_owned(), description.to_json()));
        Ok(beside)
    }
}

fn files(firmware: &Firmware) -> Vec<&FirmwareFile> {
    match firmware {
        Firmware::Bios { file } => file.iter().collect(),
        Firmware::Uefi { code, variables } => [code].into_iter().chain(variables).collect(),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let open = || {
        let kind = std::fs::metadata(path)?.file_type();
        if !kind.is_file() {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        let mut bytes = Vec::new();
        File::open(path)?.take(FIRMWARE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    let bytes = open().map_err(|error| error.to_string())?;
    match bytes.len() as u64 > FIRMWARE_BYTES_MAX {
        true => Err("it is too long for firmware".to_owned()),
        false => Ok(bytes),
    }
}
