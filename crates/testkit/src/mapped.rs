//! A file that is written through a shared mapping: no call shows the writing.

use std::ffi::c_void;
use std::fs::File;
use std::path::Path;
use std::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags};

/// The first page of a file, mapped until this value is dropped.
pub struct Mapped(*mut c_void);

const PAGE_BYTES: usize = 4096;

impl Mapped {
    /// Maps a file, which is at least a page long and stays so.
    pub fn new(path: &Path) -> Self {
        let file = File::options().read(true).write(true).open(path);
        let file = file.unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()));
        let bytes = file.metadata().map_or(0, |found| found.len());
        assert!(bytes >= PAGE_BYTES as u64, "{} is shorter than a page", path.display());
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; nothing refers to it yet.
        let map = unsafe {
            rustix::mm::mmap(null_mut(), PAGE_BYTES, protection, MapFlags::SHARED, &file, 0)
        };
        Self(map.unwrap_or_else(|error| panic!("cannot map {}: {error}", path.display())))
    }

    /// Writes the first byte.
    pub fn write(&mut self, byte: u8) {
        // SAFETY: the page is mapped for writing as long as this value exists.
        unsafe { self.0.cast::<u8>().write_volatile(byte) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more.
        let _ = unsafe { rustix::mm::munmap(self.0, PAGE_BYTES) };
    }
}
