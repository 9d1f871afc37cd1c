//! What a snapshot has of a machine: which machine is meant, its disks, its description and firmware.

use std::io::Write;

use strongroom_access::{Night, Nights};
use strongroom_base::SnapshotId;
use strongroom_catalog::Snapshot;
use strongroom_engine::{EngineError, cat};
use strongroom_machine::boot::{
    BootDisk, FIRMWARE_BYTES_MAX, FirmwareError, FirmwareFolder, guess,
};
use strongroom_machine::{DESCRIPTION_BYTES_MAX, Description};
use strongroom_nbd::Exports;
use strongroom_repository::{Repository, RepositoryError};

use crate::exit::{CliError, Exit};
use crate::terminal::printable_text;

/// The machine that a path means, and its disks.
pub(super) fn choose(
    nights: &Nights,
    snapshot: SnapshotId,
    path: &[u8],
) -> Result<(String, Vec<BootDisk>), CliError> {
    let path = String::from_utf8_lossy(path);
    let path = path.trim_matches('/');
    let all = nights.list()?;
    let split = |night: &Night| {
        let disk = night.name.rsplit_once('@').map_or(&*night.name, |(disk, _)| disk);
        disk.split_once('/').map(|(machine, disk)| (machine.to_owned(), disk.to_owned()))
    };
    let disks: Vec<(String, String)> = all.iter().filter_map(split).collect();
    let mut machines: Vec<&str> = disks.iter().map(|(machine, _)| &**machine).collect();
    machines.dedup();
    let failed = |message: String, hint: &str| Err(CliError::new(Exit::Failed, message, hint));
    let machine = match (path, &machines[..]) {
        (_, []) => {
            return failed(
                format!(
                    "snapshot {} has no machine: no disk such as /vm1/vda.raw",
                    snapshot.short()
                ),
                "`strongroom image backup NAME IMAGE` stores one; `strongroom snapshots` lists what \
                 there is",
            );
        }
        ("", [machine]) => *machine,
        ("", several) => {
            return failed(
                format!(
                    "snapshot {} has several machines: {}",
                    snapshot.short(),
                    several.join(", ")
                ),
                "name one after a colon, such as latest:/vm1",
            );
        }
        (path, machines) if machines.contains(&path) => path,
        (path, machines) => {
            return failed(
                format!("/{} is no machine of snapshot {}", printable_text(path), snapshot.short()),
                &format!("it has {}", machines.join(", ")),
            );
        }
    };
    let of_machine = disks.iter().filter(|(of, _)| of == machine);
    let boot_disks = of_machine.map(|(_, disk)| BootDisk {
        name: disk.clone(),
        export: format!("{machine}/{disk}@{snapshot}"),
    });
    Ok((machine.to_owned(), boot_disks.collect()))
}

/// The stored description of a machine; its firmware is put into a folder.
pub(super) fn describe(
    repository: &Repository,
    snapshot: &Snapshot,
    machine: &str,
    firmware: &mut FirmwareFolder,
) -> Result<Option<Description>, CliError> {
    let stored = |name: &str| format!("/{machine}/machine/{name}").into_bytes();
    let mut json = Bounded { bytes: Vec::new(), bytes_max: DESCRIPTION_BYTES_MAX };
    match cat(repository, snapshot, &stored("machine.json"), &mut json) {
        Ok(_) => {}
        Err(EngineError::Repository(RepositoryError::NoSuchPath { .. })) => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    }
    let description = Description::from_json(&json.bytes).map_err(|error| {
        let hint = "`strongroom nbd` offers its disks to a QEMU that you start yourself";
        CliError::new(Exit::Failed, error.to_string(), hint)
    })?;
    for file in description.files() {
        if !strongroom_catalog::entry::is_valid_name(file.name.as_bytes()) {
            continue;
        }
        let mut content = Bounded { bytes: Vec::new(), bytes_max: FIRMWARE_BYTES_MAX };
        match cat(repository, snapshot, &stored(&file.name), &mut content) {
            Ok(_) => firmware.put(file, content.bytes).map_err(no_firmware)?,
            // The plan says what is used instead.
            Err(EngineError::Repository(RepositoryError::NoSuchPath { .. })) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(description))
}

fn no_firmware(error: FirmwareError) -> CliError {
    let hint = "`strongroom nbd` offers its disks to a QEMU that you start yourself";
    CliError::new(Exit::Failed, error.to_string(), hint)
}

/// What its first disk suggests of a machine that has no description.
pub(super) fn guessed(nights: &Nights, disks: &[BootDisk]) -> Result<Description, CliError> {
    let mut start = Vec::new();
    if let Some(disk) = disks.first() {
        let disk = nights.open(&disk.export)?;
        disk.append(0..disk.size().min(Description::GUESS_BYTES as u64), &mut start)?;
    }
    Ok(guess(&start))
}

/// Takes bytes up to a limit.
pub(super) struct Bounded {
    pub(super) bytes: Vec<u8>,
    pub(super) bytes_max: u64,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() as u64 + bytes.len() as u64 > self.bytes_max {
            return Err(std::io::Error::other("the file is too long to be what it is called"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
