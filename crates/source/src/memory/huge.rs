//! Huge pages are written: their file system reads by `pread` and has no `pwrite`, so they have to be
//! mapped.
//!
//! What is mapped is written through `/proc/self/mem` and not by its address: if another process cuts
//! the file short, or no page is free, that is an error. By its address it would end this process
//! (SIGBUS).

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The type of hugetlbfs, as `statfs` says it.
const HUGETLBFS: u32 = 0x9584_58f6;

/// A file of huge pages, mapped to be written.
#[derive(Debug)]
pub struct HugePages {
    memory: File,
    start: *mut c_void,
    bytes: usize,
    page_bytes: u64,
}

// SAFETY: the mapping is only named by its address, and never read or written by it; the kernel writes
// for any thread.
unsafe impl Send for HugePages {}
// SAFETY: as above.
unsafe impl Sync for HugePages {}

impl HugePages {
    /// Maps a file, if it consists of huge pages; `None` if it is another.
    ///
    /// # Errors
    ///
    /// It cannot be mapped, as if it is not open for writing or there are too few huge pages.
    pub fn of(file: &File) -> io::Result<Option<Self>> {
        // The type has a sign on some machines.
        let found = rustix::fs::fstatfs(file)?;
        if found.f_type as u32 != HUGETLBFS {
            return Ok(None);
        }
        let page_bytes = u64::try_from(found.f_bsize).map_err(io::Error::other)?;
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        if bytes == 0 {
            return Ok(None);
        }
        let memory = File::options().write(true).open("/proc/self/mem")?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the kernel has room; no reference to it is ever made.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) };
        let start = start.map_err(|error| match error {
            rustix::io::Errno::NOMEM => {
                io::Error::other("there are too few huge pages: raise vm.nr_hugepages")
            }
            error => error.into(),
        })?;
        Ok(Some(Self { memory, start, bytes, page_bytes }))
    }

    /// The whole pages in a range; empty if there is none. Only these can become holes: before Linux 5.19,
    /// a hole that begins or ends within a page leaves that page as it is, and reports success.
    pub fn whole_pages(&self, range: Range<u64>) -> Range<u64> {
        whole_pages(range, self.page_bytes)
    }

    /// Writes all of `bytes` from `offset` on.
    ///
    /// # Errors
    ///
    /// The file does not go so far, or no page is free.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.bytes as u64) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.memory.write_all_at(bytes, self.start.addr() as u64 + offset)
    }
}

fn whole_pages(range: Range<u64>, page_bytes: u64) -> Range<u64> {
    let start = range.start.next_multiple_of(page_bytes).min(range.end);
    let end = (range.end - range.end % page_bytes).max(start);
    start..end
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // SAFETY: it was mapped so by `of`, and nothing refers to it. A failure would leave it mapped.
        let _ = unsafe { munmap(self.start, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_has_whole_pages_alone() {
        for (range, whole) in [
            (0..4, 0..4),
            (0..9, 0..8),
            (1..9, 4..8),
            (3..8, 4..8),
            (4..8, 4..8),
            (5..7, 7..7),
            (1..5, 4..4),
            (2..3, 3..3),
            (4..4, 4..4),
        ] {
            assert_eq!(whole_pages(range.clone(), 4), whole, "{range:?}");
        }
    }
}
