//! The disk of a path: one that seeks is read by few threads at a time, others by many.

use std::path::Path;

use rustix::fs::{major, minor};

/// True if a path is on a disk with heads. An unknown disk, such as a virtual disk or a file system
/// without a device, does not seek.
pub fn seeks(path: &Path) -> bool {
    let Ok(stat) = rustix::fs::stat(path) else { return false };
    let device = format!("/sys/dev/block/{}:{}", major(stat.st_dev), minor(stat.st_dev));
    let Ok(device) = std::fs::canonicalize(device) else { return false };
    // Virtual disks say that they rotate, on any medium.
    if device.components().any(|part| part.as_os_str().to_string_lossy().starts_with("virtio")) {
        return false;
    }
    // A partition has the queue of its disk.
    let queue = [device.join("queue"), device.join("../queue")];
    let rotates = |queue: &std::path::PathBuf| std::fs::read(queue.join("rotational")).ok();
    queue.iter().find_map(rotates).is_some_and(|said| said.starts_with(b"1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_disk_does_not_seek() {
        assert!(!seeks(Path::new("/proc")));
        assert!(!seeks(Path::new("/nowhere/at/all")));
    }
}
