//! Files that are replaced as a whole: written beside their place, then renamed, so that no reader
//! and no full disk sees half of one.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces a file that others may read.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_all(&[(path, bytes)])
}

/// Replaces a file that is for this user alone.
pub fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with_mode(&[(path, bytes)], 0o600)
}

/// Replaces several files that others may read.
pub fn replace_all(files: &[(&Path, &[u8])]) -> io::Result<()> {
    replace_with_mode(files, 0o644)
}

/// All are written before the first is renamed, and renaming takes no room on the disk.
fn replace_with_mode(files: &[(&Path, &[u8])], mode: u32) -> io::Result<()> {
    let written = files.iter().try_for_each(|(path, bytes)| write_new(&beside(path), bytes, mode));
    let replaced = written
        .and_then(|()| files.iter().try_for_each(|(path, _)| std::fs::rename(beside(path), path)));
    if replaced.is_err() {
        for (path, _) in files {
            let _ = std::fs::remove_file(beside(path));
        }
    }
    replaced
}

fn beside(path: &Path) -> PathBuf {
    let mut name: OsString = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

/// Writes a file that does not exist yet. In a folder that others may write to, one that does exist
/// may be a link of theirs to a file of ours.
fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let open = || File::options().write(true).create_new(true).mode(mode).open(path);
    let mut file = match open() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(path)?;
            open()?
        }
        other => other?,
    };
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn all_are_replaced_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        replace_all(&[(&a, b"1"), (&b, b"2")]).unwrap();
        let missing = folder.path().join("none/c");
        for files in [[(&*a, &b"3"[..]), (&*missing, b"4")], [(&*missing, b"4"), (&*a, b"3")]] {
            assert!(replace_all(&files).is_err());
            assert_eq!(std::fs::read(&a).unwrap(), b"1");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o077;
        replace_private(&a, b"5").unwrap();
        assert_eq!((mode(&a), mode(&b) & 0o022), (0, 0));
        assert!(replace_private(&missing, b"6").is_err());
    }

    #[test]
    fn no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (own, path) = (folder.path().join("own"), folder.path().join("metrics"));
        std::fs::write(&own, b"own").unwrap();
        std::os::unix::fs::symlink(&own, beside(&path)).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&own).unwrap(), b"own");
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert!(!path.is_symlink());
    }
}
