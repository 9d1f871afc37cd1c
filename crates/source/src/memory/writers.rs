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
    maps.lines().filter_map(shared_and_written).any(|mapping| {
        // Only a file of that number is asked for its device: others may be on a server that is gone.
        let mut of_number = files.iter().filter(|file| file.inode == mapping.inode).peekable();
        if of_number.peek().is_none() {
            return false;
        }
        match mapping.found(process) {
            Some(found) => files.contains(&found),
            None => {
                let device_of = |device| (rustix::fs::major(device), rustix::fs::minor(device));
                of_number.any(|file| device_of(file.device) == mapping.device)
            }
        }
    })
}

/// A mapping that writes to its file, as a line of `/proc/PID/maps` has it.
#[derive(Debug, PartialEq, Eq)]
struct Mapping<'l> {
    /// Where it begins and ends.
    start: u64,
    end: u64,
    /// The device of the file system, which is not always that of `stat`: on Btrfs, each subvolume has
    /// one of its own.
    device: (u32, u32),
    inode: u64,
    path: &'l str,
}

impl Mapping<'_> {
    /// Its file, as `stat` has it, if that can be asked. The first question takes a capability, the
    /// second a file that still has its name, and is called so here as well.
    fn found(&self, process: u32) -> Option<FileNumber> {
        let itself = format!("/proc/{process}/map_files/{:x}-{:x}", self.start, self.end);
        let number_of = |path: &str| {
            let found = fs::metadata(path).ok()?;
            Some(FileNumber { device: found.dev(), inode: found.ino() })
        };
        number_of(&itself)
            .or_else(|| number_of(self.path).filter(|found| found.inode == self.inode))
    }
}

/// The mapping of a line of `/proc/PID/maps`, if what is written to it is written to the file.
fn shared_and_written(line: &str) -> Option<Mapping<'_>> {
    let mut words = line.split_ascii_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let (device, inode) = (words.nth(1)?, words.next()?);
    let is_written = rights.as_bytes().get(1) == Some(&b'w') && rights.ends_with('s');
    let (major, minor) = device.split_once(':')?;
    let (start, end) = range.split_once('-')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let address = |text| u64::from_str_radix(text, 16).ok();
    is_written.then_some(Mapping {
        start: address(start)?,
        end: address(end)?,
        device: (number(major)?, number(minor)?),
        inode: inode.parse().ok()?,
        path: line.find('/').map_or("", |at| &line[at..]),
    })
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

    use rustix::mm::{MapFlags, ProtFlags, mmap};
    use strongroom_testkit::skipped;

    use super::*;

    #[test]
    fn mappings_that_write_to_a_file_are_found_by_their_line() {
        for (line, found) in [
            ("7f00-7f10 rw-s 00000000 00:1a 77 /dev/shm/x", Some(((0, 0x1a), 77, "/dev/shm/x"))),
            (
                "00007f00-7f10 -w-s 00000000 fd:01 7 /x y (deleted)",
                Some(((0xfd, 1), 7, "/x y (deleted)")),
            ),
            ("7f00-7f10 rw-p 00000000 00:1a 77 /dev/shm/x", None),
            ("7f00-7f10 r--s 00000000 00:1a 77 /dev/shm/x", None),
            ("7f00-7f10 rw-p 00000000 00:00 0", None),
            ("7f00", None),
        ] {
            let found = found.map(|(device, inode, path)| Mapping {
                start: 0x7f00,
                end: 0x7f10,
                device,
                inode,
                path,
            });
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

    /// A file system whose `stat` says another device than `/proc/PID/maps`. It is gone with the folder.
    struct Btrfs(tempfile::TempDir);

    impl Btrfs {
        fn mount() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let (image, mounted) = (folder.path().join("image"), folder.path().join("mounted"));
            fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
            fs::create_dir(&mounted).unwrap();
            let run = |program: &str, words: &[&std::path::Path]| {
                let output = Command::new(program).args(words).output().unwrap();
                assert!(output.status.success(), "{program}: {output:?}");
            };
            run("mkfs.btrfs", &["-q".as_ref(), &image]);
            run("mount", &["-o".as_ref(), "loop".as_ref(), &image, &mounted]);
            Self(folder)
        }
    }

    impl Drop for Btrfs {
        fn drop(&mut self) {
            let mounted = self.0.path().join("mounted");
            assert!(Command::new("umount").arg(mounted).status().unwrap().success());
        }
    }

    #[test]
    #[ignore = "run by kept_1_12_a_file_that_is_only_mapped_is_found_on_btrfs, as another process"]
    fn maps_a_file() {
        let file = fs::File::options().read(true).write(true).open("region").unwrap();
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping where the kernel has room; nothing refers to it.
        unsafe { mmap(std::ptr::null_mut(), 4096, protection, flags, &file, 0) }.unwrap();
        drop(file);
        fs::write("ready", "").unwrap();
        std::thread::sleep(std::time::Duration::from_secs(60));
    }

    #[test]
    fn kept_1_12_a_file_that_is_only_mapped_is_found_on_btrfs() {
        let is_root = rustix::process::geteuid().is_root();
        if skipped((!is_root).then_some("only root can mount a file system")) {
            return;
        }
        let btrfs = Btrfs::mount();
        let folder = btrfs.0.path().join("mounted");
        fs::write(folder.join("region"), [1; 4096]).unwrap();
        let number = |name: &str| {
            let metadata = fs::metadata(folder.join(name)).unwrap();
            FileNumber { device: metadata.dev(), inode: metadata.ino() }
        };
        let mapping = Command::new("/proc/self/exe")
            .args(["--exact", "memory::writers::tests::maps_a_file", "--ignored"])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .spawn();
        let mapping = Holder(mapping.unwrap());
        for _ in 0..1000 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            if folder.join("ready").exists() {
                break;
            }
        }
        let writers = writers_of(&[number("region")]).unwrap();
        let others = writers_of(&[number("ready")]).unwrap();
        let process = mapping.0.id();
        drop(mapping);
        assert_eq!((writers, others), (vec![process], vec![]));
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
