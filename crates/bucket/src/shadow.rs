//! Private memory of a program, and its *shadow*: a memory file that the agent reads and fills.
//!
//! - The shadow is as long as the memory and can neither shrink nor grow (sealed), so no mapping of
//!   it faults.
//! - It is written by `pwrite`, so a lack of memory is an error and no signal.
//! - A page that was never written is a hole, and is not read: of memory that is zero no copy exists.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, ftruncate, memfd_create, seek};
use rustix::io::{Errno, pwrite};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Memory is compared and copied by pages of this size.
pub const PAGE_BYTES: usize = 16_384;
/// Neighbouring pages are copied together, up to this many, while the cache still holds them.
const RUN_PAGES_MAX: usize = 16;

/// What a hole reads as.
static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// Private memory and its shadow.
#[derive(Debug)]
pub struct Shadow {
    /// The program's memory.
    memory: NonNull<u8>,
    /// The shadow, mapped to be read.
    map: NonNull<u8>,
    /// How long both are, at least 1.
    bytes: usize,
    file: OwnedFd,
    /// Which pages of the shadow are no holes, a bit for each.
    written: Vec<u64>,
}

// SAFETY: `map` belongs to the shadow alone. `memory` may be used by any thread: the maker of the
// shadow promised that it stays valid and does not change during `capture` and `put_back`.
unsafe impl Send for Shadow {}

impl Shadow {
    /// A shadow of zeros.
    ///
    /// # Safety
    ///
    /// Until the shadow is dropped, `bytes` bytes from `memory` on must be valid for reads and writes.
    /// During [`Shadow::capture`] and [`Shadow::put_back`] no other thread may change them, and during
    /// the latter none may read them.
    pub unsafe fn new(memory: NonNull<u8>, bytes: usize) -> Result<Self, Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("strongroom-shadow", flags)?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: the kernel chooses an address at which nothing is mapped.
        let map =
            unsafe { mmap(ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, &file, 0)? };
        let map = NonNull::new(map.cast()).ok_or(Errno::NOMEM)?;
        let written = vec![0; bytes.div_ceil(PAGE_BYTES).div_ceil(64)];
        Ok(Self { memory, map, bytes, file, written })
    }

    /// The memory file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Copies into the shadow what differs. Returns how many bytes were copied.
    pub fn capture(&mut self) -> Result<u64, Errno> {
        let mut copied = 0;
        let mut run = 0..0;
        for page in 0..self.bytes.div_ceil(PAGE_BYTES) {
            if !self.differs(page) {
                continue;
            }
            if run.end != page || run.len() == RUN_PAGES_MAX {
                copied += self.write(run)?;
                run = page..page;
            }
            run.end += 1;
        }
        Ok(copied + self.write(run)?)
    }

    /// Looks which pages are holes: the agent may have written into the shadow.
    pub fn look_for_holes(&mut self) {
        match self.find_written() {
            Ok(written) => self.written = written,
            // If the file cannot say, holes are read as if they had been written.
            Err(_) => self.written.fill(u64::MAX),
        }
    }

    /// Copies into the memory what differs.
    pub fn put_back(&mut self) {
        self.look_for_holes();
        for page in 0..self.bytes.div_ceil(PAGE_BYTES) {
            let part = self.part(page);
            let is_hole = !self.is_written(page);
            // SAFETY: both ranges are within what is mapped, as `part` ends at `bytes`. The maker of
            // the shadow promised that no other thread uses the memory now.
            let (memory, shadow) = unsafe {
                let memory = self.memory.add(part.start).as_ptr();
                let shadow = self.map.add(part.start).as_ptr();
                (
                    std::slice::from_raw_parts_mut(memory, part.len()),
                    std::slice::from_raw_parts(shadow, part.len()),
                )
            };
            let shadow = if is_hole { &ZEROS[..part.len()] } else { shadow };
            if memory != shadow {
                memory.copy_from_slice(shadow);
            }
        }
    }

    /// Which pages of the file are no holes. The file's position changes: it means nothing.
    fn find_written(&self) -> Result<Vec<u64>, Errno> {
        let mut written = vec![0; self.written.len()];
        let mut at = 0;
        while at < self.bytes as u64 {
            let start = match seek(&self.file, SeekFrom::Data(at)) {
                Err(Errno::NXIO) => break,
                start => start?,
            };
            at = seek(&self.file, SeekFrom::Hole(start))?;
            let pages = start as usize / PAGE_BYTES..(at as usize).div_ceil(PAGE_BYTES);
            for page in pages {
                written[page / 64] |= 1 << (page % 64);
            }
        }
        Ok(written)
    }

    fn is_written(&self, page: usize) -> bool {
        self.written[page / 64] & 1 << (page % 64) != 0
    }

    fn differs(&self, page: usize) -> bool {
        let part = self.part(page);
        let memory = self.memory(part.clone());
        if !self.is_written(page) {
            return memory != &ZEROS[..part.len()];
        }
        // SAFETY: the range is within the mapping, which lives as long as `self`. The agent writes to
        // the file only while the program waits for it to load.
        let shadow =
            unsafe { std::slice::from_raw_parts(self.map.add(part.start).as_ptr(), part.len()) };
        memory != shadow
    }

    fn write(&mut self, run: Range<usize>) -> Result<u64, Errno> {
        let part = run.start * PAGE_BYTES..self.bytes.min(run.end * PAGE_BYTES);
        let mut done = part.start;
        while done < part.end {
            match pwrite(&self.file, self.memory(done..part.end), done as u64) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        for page in run {
            self.written[page / 64] |= 1 << (page % 64);
        }
        Ok(part.len() as u64)
    }

    /// A part of the program's memory.
    fn memory(&self, part: Range<usize>) -> &[u8] {
        // SAFETY: every part that is asked for ends at `bytes` or before. The maker of the shadow
        // promised that the memory is valid, and that no thread changes it while it is copied.
        unsafe { std::slice::from_raw_parts(self.memory.add(part.start).as_ptr(), part.len()) }
    }

    fn part(&self, page: usize) -> Range<usize> {
        page * PAGE_BYTES..self.bytes.min((page + 1) * PAGE_BYTES)
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and nothing borrows from it.
        let unmapped = unsafe { munmap(self.map.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "the mapping is our own");
    }
}

#[cfg(test)]
mod tests;
