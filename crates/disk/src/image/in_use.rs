//! Whether QEMU writes to an image: it says so by a lock on a byte of the file.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// QEMU locks the byte 100 + 1 of an image that it may write to, whether the image is so long or not.
const WRITING: u64 = 101;

/// Whether a QEMU of this machine has an image open for writing. What it writes meanwhile would make
/// a mixture of what is read.
pub fn is_in_use(image: &Path) -> bool {
    let Ok(metadata) = std::fs::metadata(image) else { return false };
    let Ok(locks) = std::fs::read_to_string("/proc/locks") else { return false };
    locks.lines().any(|line| is_lock_of(line, metadata.ino()))
}

/// A line such as `7: OFDLCK ADVISORY  READ -1 00:1f:4711 100 101`.
fn is_lock_of(line: &str, inode: u64) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some(kind) = words.iter().position(|word| *word == "OFDLCK") else { return false };
    let [file, start, end] = words.get(kind + 4..).unwrap_or_default() else { return false };
    let is_of_file = file.rsplit(':').next().and_then(|last| last.parse().ok()) == Some(inode);
    let start = start.parse().unwrap_or(u64::MAX);
    is_of_file && start <= WRITING && end.parse().unwrap_or(u64::MAX) >= WRITING
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_found_by_its_file_and_its_byte() {
        assert!(is_lock_of("7: OFDLCK ADVISORY  READ -1 00:1f:4711 100 101", 4711));
        assert!(is_lock_of("7: OFDLCK ADVISORY  READ -1 fe:00:4711 101 101", 4711));
        assert!(is_lock_of("7: OFDLCK ADVISORY  WRITE -1 fe:00:4711 0 EOF", 4711));
        assert!(!is_lock_of("7: OFDLCK ADVISORY  READ -1 00:1f:4711 100 100", 4711));
        assert!(!is_lock_of("7: OFDLCK ADVISORY  READ -1 00:1f:4712 100 101", 4711));
        assert!(!is_lock_of("7: POSIX  ADVISORY  READ 12 00:1f:4711 100 101", 4711));
        for line in ["", "OFDLCK", "1: OFDLCK a b", "x OFDLCK ADVISORY READ -1 4711"] {
            assert!(!is_lock_of(line, 4711), "{line}");
        }
    }
}
