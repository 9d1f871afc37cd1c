//! Whether QEMU writes to an image: it says so by a lock on a byte of the file.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{major, minor};

/// QEMU locks the byte 100 + 1 of an image that it may write to, whether the image is so long or not.
const WRITING: u64 = 101;

/// Whether a QEMU of this machine has an image open for writing. What it writes meanwhile would make
/// a mixture of what is read.
pub fn is_in_use(image: &Path) -> bool {
    let Ok(metadata) = std::fs::metadata(image) else { return false };
    let own = Id::of_file(&metadata);
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let locked: Vec<Id> = locks.lines().filter_map(locked_file).collect();
    let may_be_named_otherwise =
        metadata.file_type().is_block_device() || locked.iter().any(|locked| locked.may_be(&own));
    locked.contains(&own) || (may_be_named_otherwise && is_locked_by_a_process(&metadata))
}

/// The device of a file, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Id {
    major: u32,
    minor: u32,
    inode: u64,
}

impl Id {
    fn of_file(metadata: &Metadata) -> Self {
        let device = metadata.dev();
        Self { major: major(device), minor: minor(device), inode: metadata.ino() }
    }

    /// Whether a lock of this file may be one of a file of another id. A file system whose device is no disk
    /// (major 0) may give its files other devices than the one in the list of locks: Btrfs gives one to each
    /// subvolume, and an overlay those of what is below it.
    fn may_be(&self, file: &Self) -> bool {
        self.inode == file.inode && self.major == 0
    }
}

/// Whether a process has a lock of QEMU on a file, or on a block device by whichever node: the `/dev` of
/// libvirt's machines has nodes of its own. A QEMU whose files this user may not see counts as one that has.
fn is_locked_by_a_process(image: &Metadata) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| has_locked(&process.path(), image))
}

fn has_locked(process: &Path, image: &Metadata) -> bool {
    let files = match std::fs::read_dir(process.join("fd")) {
        Ok(files) => files,
        Err(error) => {
            let is_hidden = error.kind() == std::io::ErrorKind::PermissionDenied;
            return is_hidden && !image.file_type().is_block_device() && is_qemu(process);
        }
    };
    files.flatten().any(|file| {
        let is_it = std::fs::metadata(file.path()).is_ok_and(|found| is_same(&found, image));
        let said = || std::fs::read_to_string(process.join("fdinfo").join(file.file_name()));
        is_it && said().is_ok_and(|said| said.lines().any(|line| locked_file(line).is_some()))
    })
}

fn is_same(found: &Metadata, image: &Metadata) -> bool {
    match image.file_type().is_block_device() {
        true => found.file_type().is_block_device() && found.rdev() == image.rdev(),
        false => Id::of_file(found) == Id::of_file(image),
    }
}

fn is_qemu(process: &Path) -> bool {
    let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
    name.contains("qemu") || name.trim_end() == "kvm"
}

/// The file of a line such as `7: OFDLCK ADVISORY  READ -1 00:1f:4711 100 101`, if it is a lock of a QEMU
/// that may write.
fn locked_file(line: &str) -> Option<Id> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let kind = words.iter().position(|word| *word == "OFDLCK")?;
    let [file, start, end] = words.get(kind + 4..)? else { return None };
    let is_for_writing =
        start.parse().unwrap_or(u64::MAX) <= WRITING && end.parse().unwrap_or(u64::MAX) >= WRITING;
    let [major, minor, inode] = file.split(':').collect::<Vec<_>>().try_into().ok()?;
    let hex = |text| u32::from_str_radix(text, 16).ok();
    let id = Id { major: hex(major)?, minor: hex(minor)?, inode: inode.parse().ok()? };
    is_for_writing.then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_found_by_its_file_and_its_byte() {
        let of = |major, minor, inode| Some(Id { major, minor, inode });
        for (line, file) in [
            ("7: OFDLCK ADVISORY  READ -1 00:1f:4711 100 101", of(0, 0x1f, 4711)),
            ("7: OFDLCK ADVISORY  READ -1 fe:00:4711 101 101", of(0xfe, 0, 4711)),
            ("7: OFDLCK ADVISORY  WRITE -1 103:05:4711 0 EOF", of(0x103, 5, 4711)),
            ("7: OFDLCK ADVISORY  READ -1 00:1f:4711 100 100", None),
            ("7: POSIX  ADVISORY  READ 12 00:1f:4711 100 101", None),
            // As the description of an open file has it.
            ("lock:\t1: OFDLCK ADVISORY  READ -1 00:05:612 100 101", of(0, 5, 612)),
            ("", None),
            ("OFDLCK", None),
            ("1: OFDLCK a b", None),
            ("x OFDLCK ADVISORY READ -1 4711", None),
            ("7: OFDLCK ADVISORY  READ -1 1f:4711 100 101", None),
        ] {
            assert_eq!(locked_file(line), file, "{line}");
        }
    }

    #[test]
    fn another_disk_has_files_of_the_same_number() {
        let id = |major, minor| Id { major, minor, inode: 4711 };
        assert!(id(0, 0x1f).may_be(&id(0, 0x2a)), "a subvolume of Btrfs");
        assert!(!id(0, 0x1f).may_be(&Id { inode: 4712, ..id(0, 0x2a) }));
        assert!(!id(8, 1).may_be(&id(8, 2)) && !id(8, 1).may_be(&id(0, 1)));
    }
}
