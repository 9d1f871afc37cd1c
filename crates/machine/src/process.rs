//! The processes of QEMU and of its TPM, as far as they can be seen from here.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::description::{Description, FirmwareFile, tpm_socket};

/// No command line is longer.
const ARGUMENTS_BYTES_MAX: u64 = 4 << 20;

/// The program's name and the arguments of a process, if it is a QEMU.
pub fn command_line(process: i32) -> Option<(String, Vec<String>)> {
    let (name, arguments) = any_command_line(process)?;
    // It may be a supervisor that opened the socket for QEMU.
    let is_qemu = name.starts_with("qemu-system-") || name == "qemu-kvm" || name == "kvm";
    is_qemu.then_some((name, arguments))
}

fn any_command_line(process: i32) -> Option<(String, Vec<String>)> {
    let file = File::open(format!("/proc/{process}/cmdline")).ok()?;
    let mut bytes = Vec::new();
    file.take(ARGUMENTS_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut words = text.trim_end_matches('\0').split('\0').map(str::to_owned);
    let program = words.next()?;
    let name = Path::new(&program).file_name()?.to_str()?.to_owned();
    Some((name, words.collect()))
}

/// All processes that can be seen from here.
pub fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The process of a machine of libvirt: the system's libvirt notes it, otherwise it is the only one
/// with this UUID.
pub fn process_of(name: &str, uuid: &str) -> Option<i32> {
    let is_it = |process: &i32| {
        command_line(*process).is_some_and(|(_, arguments)| {
            arguments.windows(2).any(|pair| pair[0] == "-uuid" && pair[1] == uuid)
        })
    };
    let noted = std::fs::read_to_string(format!("/run/libvirt/qemu/{name}.pid")).ok();
    if let Some(process) = noted.and_then(|text| text.trim().parse().ok()).filter(is_it) {
        return Some(process);
    }
    let mut found = processes().filter(is_it);
    // Anybody may start a program that says it is the machine.
    found.next().filter(|_| found.next().is_none())
}

/// Whether the program of a process is still the one that is installed.
pub fn runs_what_is_installed(process: i32) -> bool {
    let program = std::fs::read_link(format!("/proc/{process}/exe"));
    program.is_ok_and(|program| !program.as_os_str().as_encoded_bytes().ends_with(b" (deleted)"))
}

/// The user and the group of a process.
pub fn owner(process: i32) -> Option<(u32, u32)> {
    let found = std::fs::metadata(format!("/proc/{process}")).ok()?;
    Some((found.uid(), found.gid()))
}

/// Adds the files in which the TPM of a machine keeps its state, if it is emulated by a swtpm that
/// can be seen from here.
pub fn fill_tpm_state(description: &mut Description) {
    let Some(tpm) = &mut description.tpm else { return };
    let Some(socket) = tpm_socket(&description.arguments) else { return };
    let is_it = |(name, arguments): &(String, Vec<String>)| {
        let at_socket = format!("path={socket}");
        let has_it = |argument: &String| argument.split(',').any(|part| part == at_socket);
        name == "swtpm" && arguments.iter().any(has_it)
    };
    let Some((_, arguments)) = processes().filter_map(any_command_line).find(is_it) else { return };
    let state = arguments.iter().skip_while(|argument| *argument != "--tpmstate").nth(1);
    let folder =
        state.and_then(|state| state.split(',').find_map(|part| part.strip_prefix("dir=")));
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
    for entry in entries.into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        // Besides them there is a lock.
        if let (Some(name), Some(path)) = (name.to_str(), path.to_str())
            && name.starts_with("tpm")
        {
            let (name, path) = (name.to_owned(), path.to_owned());
            tpm.state.push(FirmwareFile { name, path, format: "raw".to_owned() });
        }
    }
    tpm.state.sort_by(|a, b| a.name.cmp(&b.name));
}
