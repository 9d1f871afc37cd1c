//! Who may write to a file, as `/proc` shows: processes that have it open for writing, or mapped so.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// A file, by its device and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileNumber {
    /// The device, as `stat` has it.
    pub device: u64,
    /// The number.
    pub inode: u64,
}

/// Access modes of descriptors, in octal digits of `/proc/PID/fdinfo`.
const ACCESS_MODE: u32 = 0o3;

/// Processes other than this one that may write to one of these files. Of a process that this one may not
/// look at, nothing is known: root sees all.
///
/// # Errors
///
/// `/proc` cannot be read.
pub fn writers_of(files: &[FileNumber]) -> io::Result<Vec<u32>> {
    let own = std::process::id();
    let mut writers = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(process) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if process != own && (maps_one(process, files) || has_one_open(process, files)) {
            writers.push(process);
        }
    }
    writers.sort_unstable();
    Ok(writers)
}

/// What a process is called, for people.
pub fn name_of(process: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

fn maps_one(process: u32, files: &[FileNumber]) -> bool {
    // One that is gone, or not to be looked at, maps nothing that is known.
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    maps.lines().filter_map(shared_and_written).any(|(device, inode)| {
        let device_of = |device| (rustix::fs::major(device), rustix::fs::minor(device));
        files.iter().any(|file| file.inode == inode && device_of(file.device) == device)
    })
}

/// The device and the number of the file of a line of `/proc/PID/maps`, if what is written to the mapping
/// is written to the file.
fn shared_and_written(line: &str) -> Option<((u32, u32), u64)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (rights, device, inode) = (words.next()?, words.nth(1)?, words.next()?);
    let is_written = rights.as_bytes().get(1) == Some(&b'w') && rights.ends_with('s');
    let (major, minor) = device.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    is_written.then_some(((number(major)?, number(minor)?), inode.parse().ok()?))
}

fn has_one_open(process: u32, files: &[FileNumber]) -> bool {
    let folder = format!("/proc/{process}/fdinfo");
    let open = fs::read_dir(&folder).into_iter().flatten().flatten();
    open.filter_map(|entry| entry.file_name().into_string().ok()).any(|descriptor| {
        let info = fs::read_to_string(format!("{folder}/{descriptor}")).unwrap_or_default();
        let field = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next())
        };
        let flags = field("flags:").and_then(|flags| u32::from_str_radix(flags, 8).ok());
        if flags.is_none_or(|flags| flags & ACCESS_MODE == 0) {
            return false;
        }
        // Only a file of that number is asked for its device: others may be on a server that is gone.
        let inode = field("ino:").and_then(|inode| inode.parse::<u64>().ok());
        if inode.is_some_and(|inode| files.iter().all(|file| file.inode != inode)) {
            return false;
        }
        let found = fs::metadata(format!("/proc/{process}/fd/{descriptor}"));
        found.is_ok_and(|found| {
            files.contains(&FileNumber { device: found.dev(), inode: found.ino() })
        })
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn mappings_that_write_to_a_file_are_found_by_their_line() {
        for (line, found) in [
            ("7f00-7f10 rw-s 00000000 00:1a 77 /dev/shm/x", Some(((0, 0x1a), 77))),
            ("7f00-7f10 -w-s 00000000 fd:01 7 /x y (deleted)", Some(((0xfd, 1), 7))),
            ("7f00-7f10 rw-p 00000000 00:1a 77 /dev/shm/x", None),
            ("7f00-7f10 r--s 00000000 00:1a 77 /dev/shm/x", None),
            ("7f00-7f10 rw-p 00000000 00:00 0", None),
            ("7f00", None),
        ] {
            assert_eq!(shared_and_written(line), found, "{line}");
        }
    }

    /// A program that has a file open until this is dropped.
    struct Holder(Child);

    impl Holder {
        fn of(redirection: &str, file: &std::path::Path) -> Self {
            let script = format!("{redirection} \"$0\"; echo ready; read -r _");
            let mut child = Command::new("/bin/sh")
                .args(["-c", &script])
                .arg(file)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut ready = [0; 6];
            child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
            Self(child)
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn kept_1_11_who_has_a_file_open_for_writing_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        fs::write(&path, "content").unwrap();
        let metadata = fs::metadata(&path).unwrap();
        let file = FileNumber { device: metadata.dev(), inode: metadata.ino() };
        let other = FileNumber { inode: file.inode + 1, ..file };
        assert_eq!(writers_of(&[file]).unwrap(), [0; 0]);
        let reader = Holder::of("exec 9<", &path);
        assert_eq!(writers_of(&[file]).unwrap(), [0; 0]);
        let writers = [Holder::of("exec 9>>", &path), Holder::of("exec 9<>", &path)];
        let mut expected = writers.iter().map(|it| it.0.id()).collect::<Vec<_>>();
        expected.sort_unstable();
        assert_eq!(writers_of(&[other, file]).unwrap(), expected);
        assert_eq!(writers_of(&[other]).unwrap(), [0; 0]);
        assert_eq!(name_of(expected[0]), "sh");
        drop((reader, writers));
    }
}
