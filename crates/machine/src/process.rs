//! The processes of QEMU, as far as they can be seen from here.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// No command line is longer.
const ARGUMENTS_BYTES_MAX: u64 = 4 << 20;

/// The program's name and the arguments of a process, if it is a QEMU.
pub fn command_line(process: i32) -> Option<(String, Vec<String>)> {
    let file = File::open(format!("/proc/{process}/cmdline")).ok()?;
    let mut bytes = Vec::new();
    file.take(ARGUMENTS_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut words = text.trim_end_matches('\0').split('\0').map(str::to_owned);
    let program = words.next()?;
    let name = Path::new(&program).file_name()?.to_str()?.to_owned();
    // It may be a supervisor that opened the socket for QEMU.
    let is_qemu = name.starts_with("qemu-system-") || name == "qemu-kvm" || name == "kvm";
    is_qemu.then(|| (name, words.collect()))
}

/// The process whose machine has this UUID.
pub fn process_of(uuid: &str) -> Option<i32> {
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let mut processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.find(|process| {
        command_line(*process).is_some_and(|(_, arguments)| {
            arguments.windows(2).any(|pair| pair[0] == "-uuid" && pair[1] == uuid)
        })
    })
}

/// The user and the group of a process.
pub fn owner(process: i32) -> Option<(u32, u32)> {
    let found = std::fs::metadata(format!("/proc/{process}")).ok()?;
    Some((found.uid(), found.gid()))
}
