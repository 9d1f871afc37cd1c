//! Memory that another process has handed over: a descriptor that came over a socket. What may be done
//! with it is what that descriptor is open for. The process that sent it may do as much by itself, so
//! it gains nothing from the rights of this one.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{OFlags, SealFlags, fcntl_get_seals, fcntl_getfl};

use super::writers::FileNumber;
use super::{MemoryFile, metadata_of, system};

/// A regular file that is open for reading, and its first bytes.
#[derive(Debug)]
pub struct Handed {
    file: File,
    bytes: u64,
    is_writable: bool,
}

impl Handed {
    /// Takes the first `bytes` bytes of a file. A file that becomes shorter later is noticed when it is
    /// read.
    ///
    /// # Errors
    ///
    /// The descriptor is not open for reading, or is open for appending; or the file is no regular one,
    /// one of the kernel's own, or shorter.
    pub fn take(file: File, bytes: u64) -> io::Result<Self> {
        let flags = fcntl_getfl(&file)?;
        // A descriptor of O_PATH shows no access mode, and takes no right to be made.
        let is_open = !flags.contains(OFlags::PATH);
        let is_writable = match flags & OFlags::RWMODE {
            OFlags::RDONLY if is_open => false,
            OFlags::RDWR if is_open => true,
            _ => return Err(io::Error::other("its descriptor is not open for reading")),
        };
        if is_writable {
            refuse_appending(&file)?;
        }
        let metadata = metadata_of(&file)?;
        if metadata.size < bytes {
            let message = format!("it has {} bytes, and {bytes} were announced", metadata.size);
            return Err(io::Error::other(message));
        }
        Ok(Self { file, bytes, is_writable })
    }

    /// The same as a region.
    ///
    /// # Errors
    ///
    /// It is shorter meanwhile.
    pub fn memory(&self) -> io::Result<MemoryFile> {
        let mut metadata = metadata_of(&self.file)?;
        if metadata.size < self.bytes {
            return Err(io::Error::other(super::SHORTER));
        }
        metadata.size = self.bytes;
        let own = self.of_own_position();
        let is_shared = own.is_none();
        let file = own.map_or_else(|| self.file.try_clone(), Ok)?;
        let bytes = self.bytes;
        Ok(MemoryFile { path: None, file, bytes, metadata, is_held: false, is_shared })
    }

    /// To be written to.
    ///
    /// # Errors
    ///
    /// The descriptor is open for reading alone, or meanwhile for appending.
    pub fn writable(&self) -> io::Result<&File> {
        if !self.is_writable {
            return Err(io::Error::other("its descriptor is not open for writing"));
        }
        // The process that handed it over can change it at any time.
        refuse_appending(&self.file)?;
        Ok(&self.file)
    }

    /// Which file it is.
    ///
    /// # Errors
    ///
    /// It cannot be asked.
    pub fn number(&self) -> io::Result<FileNumber> {
        let found = self.file.metadata()?;
        Ok(FileNumber { device: found.dev(), inode: found.ino() })
    }

    /// Whether the process that handed it over can make it neither shorter nor longer.
    pub fn is_of_fixed_length(&self) -> bool {
        let seals = fcntl_get_seals(&self.file).unwrap_or(SealFlags::empty());
        seals.contains(SealFlags::SHRINK | SealFlags::GROW)
    }

    /// The same file with a position of its own, by which holes are found. It is opened with the rights
    /// of this process, so only where that gives the bytes that the descriptor gives as well.
    fn of_own_position(&self) -> Option<File> {
        if !system::has_one_content(&self.file) {
            return None;
        }
        let name = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        // A lease of the other process is not waited for.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let own = rustix::fs::open(name, flags, rustix::fs::Mode::empty());
        own.ok().map(File::from)
    }
}

/// Such a descriptor writes at the end of its file, and not where it is asked to.
fn refuse_appending(file: &File) -> io::Result<()> {
    match fcntl_getfl(file)?.contains(OFlags::APPEND) {
        true => Err(io::Error::other(
            "its descriptor is open for appending (O_APPEND), and writes nothing in its place",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt;

    use rustix::fs::{MemfdFlags, Mode, SeekFrom, fcntl_add_seals, fcntl_setfl, memfd_create};

    use super::*;
    use crate::memory::Memory;

    fn memfd(bytes: u64) -> File {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("region", flags).unwrap());
        file.set_len(bytes).unwrap();
        file
    }

    #[test]
    fn kept_1_10_what_may_be_done_is_what_the_descriptor_is_open_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        fs::write(&path, [7; 100]).unwrap();
        let open = |flags: OFlags| {
            let file = rustix::fs::open(&path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
            Handed::take(File::from(file), 100)
        };
        for flags in [OFlags::PATH, OFlags::PATH | OFlags::RDWR, OFlags::WRONLY] {
            let error = open(flags).unwrap_err().to_string();
            assert_eq!(error, "its descriptor is not open for reading", "{flags:?}");
        }
        let readable = open(OFlags::RDONLY).unwrap();
        let error = readable.writable().unwrap_err().to_string();
        assert_eq!(error, "its descriptor is not open for writing");
        let mut read = [0; 100];
        readable.memory().unwrap().read_at(0, &mut read).unwrap();
        assert_eq!(read, [7; 100]);
        open(OFlags::RDWR).unwrap().writable().unwrap().write_all_at(&[8; 100], 0).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [8; 100]);
    }

    /// Its writes would go to the end of the file.
    #[test]
    fn a_descriptor_that_appends_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        fs::write(&path, [7; 100]).unwrap();
        let open = |append| File::options().read(true).write(true).append(append).open(&path);
        let error = Handed::take(open(true).unwrap(), 100).unwrap_err().to_string();
        assert!(error.contains("O_APPEND"), "{error}");
        // Or later, by the process that has the same descriptor.
        let owner = open(false).unwrap();
        let handed = Handed::take(owner.try_clone().unwrap(), 100).unwrap();
        assert!(handed.writable().is_ok());
        fcntl_setfl(&owner, OFlags::APPEND).unwrap();
        let error = handed.writable().unwrap_err().to_string();
        assert!(error.contains("O_APPEND"), "{error}");
    }

    /// What the kernel makes up when it is read may depend on the rights of who reads.
    #[test]
    fn kept_1_10_a_file_of_the_kernel_is_no_memory() {
        let mut refused = 0;
        for path in ["/proc/self/maps", "/proc/self/mem", "/sys/kernel/mm/ksm/run"] {
            let Ok(file) = File::open(path) else { continue };
            let error = Handed::take(file, 1).unwrap_err().to_string();
            assert_eq!(error, "it is made by the kernel, and no region of memory", "{path}");
            refused += 1;
        }
        assert!(refused >= 2);
    }

    /// A descriptor that another process has handed over has its position in common with it.
    #[test]
    fn the_position_of_a_file_that_was_handed_over_is_left_alone() {
        let owner = memfd(1 << 20);
        owner.write_all_at(b"x", 512 << 10).unwrap();
        rustix::fs::seek(&owner, SeekFrom::Start(77)).unwrap();
        let handed = Handed::take(owner.try_clone().unwrap(), 600 << 10).unwrap();
        let region = handed.memory().unwrap();
        assert_eq!((region.bytes(), region.metadata().size), (600 << 10, 600 << 10));
        assert!(!region.has_data(0..512 << 10) && region.has_data(0..600 << 10));
        assert!(region.hold_on().is_err(), "it has no name beside which a copy could be");
        owner.set_len(2 << 20).unwrap();
        region.check().unwrap();
        assert_eq!(rustix::fs::seek(&owner, SeekFrom::Current(0)).unwrap(), 77);
        owner.set_len(512 << 10).unwrap();
        assert!(region.check().unwrap_err().to_string().starts_with("it became shorter"));
        assert!(handed.memory().unwrap_err().to_string().starts_with("it became shorter"));
        let error = Handed::take(owner, 600 << 10).unwrap_err().to_string();
        assert_eq!(error, "it has 524288 bytes, and 614400 were announced");
    }

    #[test]
    fn kept_1_10_a_length_is_fixed_by_both_seals() {
        let owner = memfd(100);
        let is_fixed =
            || Handed::take(owner.try_clone().unwrap(), 100).unwrap().is_of_fixed_length();
        assert!(!is_fixed());
        fcntl_add_seals(&owner, SealFlags::SHRINK).unwrap();
        assert!(!is_fixed());
        fcntl_add_seals(&owner, SealFlags::GROW).unwrap();
        assert!(is_fixed());
    }
}
