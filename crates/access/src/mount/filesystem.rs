//! Requests of the kernel, answered from the [`View`]. No decisions are made here.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{
    AccessFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};
use strongroom_catalog::entry::NAME_BYTES_MAX;

use super::contents::Extent;
use super::nodes::Node;
use super::view::{Acquaintance, Seen, TopList, View, never};

/// A number is never given to another node, so each has only one generation.
const GENERATION: Generation = Generation(0);
/// Requests that the kernel may have waiting for read-ahead.
const BACKGROUND_REQUESTS: u16 = 64;
/// `whence` of lseek(2).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Answers the kernel.
pub struct SnapshotFiles {
    view: View,
    /// The kernel decides what each user may do.
    checks_permissions: bool,
    /// The kernel need not ask us for each opening of a file.
    opens_unasked: bool,
    // A plain mutex: held for a map operation.
    lists: Mutex<HashMap<u64, Arc<TopList>>>,
    next_list: AtomicU64,
}

impl SnapshotFiles {
    /// Shows this view: to all users with the kernel's checks, or to one user without.
    pub fn new(view: View, checks_permissions: bool) -> Self {
        let (lists, next_list) = (Mutex::default(), AtomicU64::new(1));
        Self { view, checks_permissions, opens_unasked: false, lists, next_list }
    }

    fn lists(&self) -> MutexGuard<'_, HashMap<u64, Arc<TopList>>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_directory(
        &self,
        inode: INodeNo,
        handle: FileHandle,
        from: u64,
        with: Acquaintance,
        take: &mut dyn FnMut(&[u8], u64, &Seen) -> bool,
    ) -> Result<(), Errno> {
        let list = self.lists().get(&handle.0).cloned();
        match list {
            Some(list) => {
                self.view.list_top(&list, from, with, take);
                Ok(())
            }
            None => self.view.list(Node::of(inode.0), from, with, take),
        }
    }
}

impl Filesystem for SnapshotFiles {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let known = config.capabilities();
        self.opens_unasked = known.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        let mut wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS;
        if self.checks_permissions {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        // What the kernel does not know it does without.
        let _ = config.add_capabilities(wanted & known);
        if let Err(most) = config.set_max_readahead(u32::MAX) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_REQUESTS);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.view.lookup(Node::of(parent.0), name.as_bytes()) {
            Ok(seen) => {
                let seen = seen.unwrap_or_else(never);
                reply.entry(&seen.lifetime, &seen.attributes, GENERATION);
            }
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _: &Request, inode: INodeNo, lookups: u64) {
        self.view.forget(Node::of(inode.0), lookups);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.view.attributes(Node::of(inode.0)) {
            Ok(seen) => reply.attr(&seen.lifetime, &seen.attributes),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.view.link_target(Node::of(inode.0)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.opens_unasked {
            // From here on the kernel opens and closes without asking, and keeps what it read.
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.view.read(Node::of(inode.0), offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // There is nothing to flush, and the kernel need not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.view.open_list(Node::of(inode.0)) {
            Ok(Some(list)) => {
                let handle = self.next_list.fetch_add(1, Ordering::Relaxed);
                self.lists().insert(handle, Arc::new(list));
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Ok(None) => {
                let flags = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
                reply.opened(FileHandle(0), flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        from: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut take = |name: &[u8], next: u64, seen: &Seen| {
            reply.add(seen.attributes.ino, next, seen.attributes.kind, OsStr::from_bytes(name))
        };
        match self.read_directory(inode, handle, from, Acquaintance::None, &mut take) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        from: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut take = |name: &[u8], next: u64, seen: &Seen| {
            let (attributes, name) = (&seen.attributes, OsStr::from_bytes(name));
            reply.add(attributes.ino, next, name, &seen.lifetime, attributes, GENERATION)
        };
        match self.read_directory(inode, handle, from, Acquaintance::Made, &mut take) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.lists().remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, 4096, NAME_BYTES_MAX as u32, 4096);
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.view.with_xattrs(Node::of(inode.0), |xattrs| {
            let found = xattrs.iter().find(|xattr| xattr.name == name.as_bytes());
            found.map(|xattr| xattr.value.clone())
        });
        match value {
            Ok(Some(value)) => put_xattr(&value, size, reply),
            Ok(None) => reply.error(Errno::ENODATA),
            Err(error) => reply.error(error),
        }
    }

    fn listxattr(&self, _: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.view.with_xattrs(Node::of(inode.0), |xattrs| {
            xattrs.iter().fold(Vec::new(), |mut names, xattr| {
                names.extend_from_slice(&xattr.name);
                names.push(0);
                names
            })
        });
        match names {
            Ok(names) => put_xattr(&names, size, reply),
            Err(error) => reply.error(error),
        }
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // Either the kernel checks (see `MountOptions::allow_other`) or everything may be read;
        // it need not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn lseek(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let wanted = match whence {
            SEEK_DATA => Extent::Data,
            SEEK_HOLE => Extent::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.view.seek(Node::of(inode.0), offset, wanted) {
            // No file is longer than its offsets can express.
            Ok(found) => reply.offset(found as i64),
            Err(error) => reply.error(error),
        }
    }
}

/// Answers with the bytes; with their length if that was asked; or with an error if they are too
/// many.
fn put_xattr(bytes: &[u8], size: u32, reply: ReplyXattr) {
    match u32::try_from(bytes.len()) {
        Ok(length) if size == 0 => reply.size(length),
        Ok(length) if length <= size => reply.data(bytes),
        _ => reply.error(Errno::ERANGE),
    }
}
