//! The memory of a bucket: a memfd, mapped for reading and writing.
//!
//! Pages are copied in and out and never borrowed: an agent writes into the same memory when it
//! loads a bucket. The memfd is sealed, so that no process can cut it short below the mapping.

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::error::TreeError;

/// Bytes of a page, as in SDDS-2002.
pub const PAGE_BYTES: usize = 16 << 10;

/// The bytes of a page, copied.
pub type PageBytes = Box<[u8; PAGE_BYTES]>;

/// A memfd of whole pages. Pages are named by number, so it can be mapped at any address.
pub struct Area {
    fd: OwnedFd,
    /// `pages * PAGE_BYTES` bytes, until this value is dropped.
    map: NonNull<c_void>,
    pages: u32,
}

// SAFETY: the mapping is of the process, not of a thread, and only this value unmaps it.
unsafe impl Send for Area {}

impl Area {
    /// Makes an area of zeros. It takes memory only for pages that are written.
    pub fn create(pages: u32) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("rp-bucket", flags)?;
        rustix::fs::ftruncate(&fd, u64::from(pages) * PAGE_BYTES as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::open(fd)
    }

    /// Maps the area of another process, or of a bucket that was loaded.
    ///
    /// # Errors
    ///
    /// It is not of whole pages, or could be cut short while it is mapped.
    pub fn open(fd: OwnedFd) -> io::Result<Self> {
        if !rustix::fs::fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK) {
            return Err(io::Error::other("the memory of the bucket is not sealed (F_SEAL_SHRINK)"));
        }
        let bytes = usize::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(0);
        let pages = u32::try_from(bytes / PAGE_BYTES).unwrap_or(0);
        if pages == 0 || pages as usize * PAGE_BYTES != bytes {
            return Err(io::Error::other("the memory of the bucket does not consist of pages"));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; nothing refers to it yet.
        let map = unsafe {
            rustix::mm::mmap(null_mut(), bytes, protection, MapFlags::SHARED, fd.as_fd(), 0)?
        };
        let map = NonNull::new(map).ok_or_else(|| io::Error::other("it was mapped at zero"))?;
        Ok(Self { fd, map, pages })
    }

    /// How many pages it has.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// How long it is.
    pub fn bytes(&self) -> u64 {
        u64::from(self.pages) * PAGE_BYTES as u64
    }

    /// A copy of a page.
    pub(super) fn read(&self, page: u32) -> Result<PageBytes, TreeError> {
        let source = self.place(page)?;
        let mut bytes = Box::new([0; PAGE_BYTES]);
        // SAFETY: `place` is that of a whole page within the mapping, which the seal keeps, and the
        // target is memory of our own. If another process writes meanwhile, the copy is damaged,
        // and each reader of a page verifies what it reads.
        unsafe { source.copy_to_nonoverlapping(bytes.as_mut_ptr(), PAGE_BYTES) };
        Ok(bytes)
    }

    /// Replaces a page.
    pub(super) fn write(&mut self, page: u32, bytes: &[u8; PAGE_BYTES]) -> Result<(), TreeError> {
        let target = self.place(page)?;
        // SAFETY: as in `read`; no reference into the mapping ever exists.
        unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), PAGE_BYTES) };
        Ok(())
    }

    /// Makes all pages zeros again and gives back their memory.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.fd, flags, 0, self.bytes())?)
    }

    /// Where a page is mapped.
    fn place(&self, page: u32) -> Result<*mut u8, TreeError> {
        if page >= self.pages {
            return Err(TreeError::Damaged { page, what: "is behind the end of its memory" });
        }
        // SAFETY: the page is within the mapping.
        Ok(unsafe { self.map.as_ptr().cast::<u8>().add(page as usize * PAGE_BYTES) })
    }
}

impl AsFd for Area {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference into it exists.
        let _ = unsafe { rustix::mm::munmap(self.map.as_ptr(), self.pages as usize * PAGE_BYTES) };
    }
}

impl fmt::Debug for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Area({} pages)", self.pages)
    }
}
