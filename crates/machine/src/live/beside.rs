//! Files that belong to a machine beside its disks: the variables of its UEFI, the state of its TPM.
//!
//! They are read while the machine is paused, so they are of the same instant as the disks. They are
//! small; what is larger than they can be is not read.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// All files together.
const BYTES_MAX: u64 = 64 << 20;

/// A file beside the disks.
#[derive(Debug)]
pub struct Beside {
    /// Where it is.
    pub path: PathBuf,
    /// What it held at the instant, or why it could not be read.
    pub content: io::Result<Vec<u8>>,
}

impl Beside {
    /// Reads files, as far as they are no larger than 64 MiB together.
    pub(super) fn read_all(paths: &[PathBuf]) -> Vec<Self> {
        let mut left = BYTES_MAX;
        let read = |path: &PathBuf| {
            let content = read(path, left);
            left -= content.as_ref().map_or(0, |content| content.len() as u64);
            Self { path: path.clone(), content }
        };
        paths.iter().map(read).collect()
    }
}

fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // Opening a pipe would wait for its other side, while the machine is paused.
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no ordinary file"));
    }
    let mut content = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 64 MiB"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("small"), "x").unwrap();
        File::create(path("large")).unwrap().set_len(BYTES_MAX).unwrap();
        let paths = [path("small"), path("large"), path("none"), folder.path().to_owned()];
        let found = Beside::read_all(&paths);
        assert_eq!(found[0].content.as_ref().unwrap(), b"x");
        assert!(found[1..].iter().all(|file| file.content.is_err()), "{found:?}");
    }
}
