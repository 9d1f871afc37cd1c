//! Whether QEMU writes to an image: it says so by a lock on a byte of the file.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// QEMU locks the byte 100 + 1 of an image that it may write to, whether the image is so long or not.
const WRITING: u64 = 101;

/// Whether a QEMU of this machine has an image open for writing. What it writes meanwhile would make
/// a mixture of what is read.
pub fn is_in_use(image: &Path) -> bool {
    let Ok(metadata) = std::fs::metadata(image) else { return false };
    if metadata.file_type().is_block_device() && is_device_in_use(metadata.rdev()) {
        return true;
    }
    let Ok(locks) = std::fs::read_to_string("/proc/locks") else { return false };
    locks.lines().any(|line| is_lock_of(line, Some(metadata.ino())))
}

/// Whether a process has a lock of QEMU on a block device, by whichever node: the `/dev` of libvirt's
/// machines has nodes of its own.
fn is_device_in_use(device: u64) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| has_locked(&process.path(), device))
}

fn has_locked(process: &Path, device: u64) -> bool {
    let Ok(files) = std::fs::read_dir(process.join("fd")) else { return false };
    files.flatten().any(|file| {
        let is_device = std::fs::metadata(file.path()).is_ok_and(|metadata| {
            metadata.file_type().is_block_device() && metadata.rdev() == device
        });
        let said = || std::fs::read_to_string(process.join("fdinfo").join(file.file_name()));
        is_device && said().is_ok_and(|said| said.lines().any(|line| is_lock_of(line, None)))
    })
}

/// A line such as `7: OFDLCK ADVISORY  READ -1 00:1f:4711 100 101`, of this file if one is given.
fn is_lock_of(line: &str, inode: Option<u64>) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some(kind) = words.iter().position(|word| *word == "OFDLCK") else { return false };
    let [file, start, end] = words.get(kind + 4..).unwrap_or_default() else { return false };
    let is_of_file = inode.is_none_or(|inode| {
        file.rsplit(':').next().and_then(|last| last.parse().ok()) == Some(inode)
    });
    let start = start.parse().unwrap_or(u64::MAX);
    is_of_file && start <= WRITING && end.parse().unwrap_or(u64::MAX) >= WRITING
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_found_by_its_file_and_its_byte() {
        assert!(is_lock_of("7: OFDLCK ADVISORY  READ -1 00:1f:4711 100 101", Some(4711)));
        assert!(is_lock_of("7: OFDLCK ADVISORY  READ -1 fe:00:4711 101 101", Some(4711)));
        assert!(is_lock_of("7: OFDLCK ADVISORY  WRITE -1 fe:00:4711 0 EOF", Some(4711)));
        assert!(!is_lock_of("7: OFDLCK ADVISORY  READ -1 00:1f:4711 100 100", Some(4711)));
        assert!(!is_lock_of("7: OFDLCK ADVISORY  READ -1 00:1f:4712 100 101", Some(4711)));
        assert!(!is_lock_of("7: POSIX  ADVISORY  READ 12 00:1f:4711 100 101", Some(4711)));
        // As the description of an open file has it.
        assert!(is_lock_of("lock:\t1: OFDLCK ADVISORY  READ -1 00:05:612 100 101", None));
        for line in ["", "OFDLCK", "1: OFDLCK a b", "x OFDLCK ADVISORY READ -1 4711"] {
            assert!(!is_lock_of(line, Some(4711)), "{line}");
        }
    }
}
