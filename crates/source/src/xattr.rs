//! Extended attributes, read and written without opening what has them.
//!
//! The kernel's calls take a path or an open file. A path of the form `/proc/self/fd/N/name` is one
//! name below an open directory, so it can neither be too long nor lead elsewhere. Where `/proc` is
//! not mounted, as in an empty chroot, a thread goes into that directory instead.

use std::ffi::CStr;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::buffer::spare_capacity;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use rustix::thread::UnshareFlags;
use strongroom_catalog::Xattr;

/// The kernel's limit for a list and for a value.
const BYTES_MAX: usize = 64 * 1024;
/// Enough for nearly every list and value.
const BYTES_AT_FIRST: usize = 1024;

/// Something that has extended attributes.
pub(crate) enum Bearer<'a> {
    /// A file or directory that is open for more than its path.
    Open(BorrowedFd<'a>),
    /// A name in a directory, and the path below `/proc/self/fd` that leads to it; a symbolic link
    /// at its end is itself.
    Name(BorrowedFd<'a>, &'a CStr, Vec<u8>),
    /// The path of a descriptor that was opened for its path only; it leads to that file, and no
    /// further.
    PathOnly(Vec<u8>),
}

/// What was read of the attributes of one bearer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) xattrs: Vec<Xattr>,
    /// The first that is listed and cannot be read, and why.
    pub(crate) unread: Option<(Vec<u8>, Errno)>,
}

impl Attributes {
    /// Those of a list of names. One that the file system lists and does not give, such as an ACL on a
    /// Btrfs that is mounted without ACLs, costs none of the others.
    fn collect(
        list: &[u8],
        mut get: impl FnMut(&[u8]) -> Result<Vec<u8>, Errno>,
    ) -> Result<Self, Errno> {
        let mut xattrs = Vec::new();
        let mut unread = None;
        for name in list.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            match get(name) {
                Ok(value) => xattrs.push(Xattr { name: name.to_vec(), value }),
                // Removed since it was listed.
                Err(Errno::NODATA) => {}
                // What had them was removed, or cannot be reached this way.
                Err(Errno::NOENT) => return Err(Errno::NOENT),
                Err(error) => drop(unread.get_or_insert_with(|| (name.to_vec(), error))),
            }
        }
        xattrs.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        Ok(Self { xattrs, unread })
    }
}

impl<'a> Bearer<'a> {
    pub(crate) fn open(fd: &'a impl AsFd) -> Self {
        Self::Open(fd.as_fd())
    }

    pub(crate) fn name(directory: BorrowedFd<'a>, name: &'a CStr) -> Self {
        let mut path = Vec::with_capacity(32 + name.count_bytes());
        // Writing to a vector does not fail.
        let _ = write!(path, "/proc/self/fd/{}/", directory.as_raw_fd());
        path.extend_from_slice(name.to_bytes());
        Self::Name(directory, name, path)
    }

    pub(crate) fn path_only(fd: &impl AsFd) -> Self {
        Self::PathOnly(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()).into_bytes())
    }

    /// All attributes that can be read, sorted by name. An error if they cannot be listed:
    /// `OPNOTSUPP` says that there are none.
    pub(crate) fn read(&self) -> Result<Attributes, Errno> {
        match (self.read_here(), self) {
            (Err(Errno::NOENT), Self::Name(directory, name, _)) if !has_proc() => {
                in_directory(*directory, || {
                    Self::Name(*directory, name, name.to_bytes().into()).read_here()
                })
            }
            (Err(Errno::NOENT), Self::PathOnly(_)) if !has_proc() => Err(Errno::NOSYS),
            (read, _) => read,
        }
    }

    fn read_here(&self) -> Result<Attributes, Errno> {
        let list = with_room(|list| self.list(list))?;
        Attributes::collect(&list, |name| with_room(|value| self.get(name, value)))
    }

    pub(crate) fn set(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let flags = XattrFlags::empty();
        match self {
            Self::Open(fd) => rustix::fs::fsetxattr(fd, name, value, flags),
            Self::Name(_, _, path) => rustix::fs::lsetxattr(path, name, value, flags),
            Self::PathOnly(path) => rustix::fs::setxattr(path, name, value, flags),
        }
    }

    pub(crate) fn remove(&self, name: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fremovexattr(fd, name),
            Self::Name(_, _, path) => rustix::fs::lremovexattr(path, name),
            Self::PathOnly(path) => rustix::fs::removexattr(path, name),
        }
    }

    fn list(&self, list: &mut Vec<u8>) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::flistxattr(fd, spare_capacity(list)),
            Self::Name(_, _, path) => rustix::fs::llistxattr(path, spare_capacity(list)),
            Self::PathOnly(path) => rustix::fs::listxattr(path, spare_capacity(list)),
        }
    }

    fn get(&self, name: &[u8], value: &mut Vec<u8>) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fgetxattr(fd, name, spare_capacity(value)),
            Self::Name(_, _, path) => rustix::fs::lgetxattr(path, name, spare_capacity(value)),
            Self::PathOnly(path) => rustix::fs::getxattr(path, name, spare_capacity(value)),
        }
    }
}

/// If `/proc` is not mounted, that is what is missing, and not the file.
fn has_proc() -> bool {
    rustix::fs::access("/proc/self/fd", rustix::fs::Access::EXISTS).is_ok()
}

/// Runs this on a thread that has gone into the directory, while all others stay where they are.
fn in_directory<T: Send>(
    directory: BorrowedFd<'_>,
    call: impl FnOnce() -> Result<T, Errno> + Send,
) -> Result<T, Errno> {
    let thread = move || {
        // SAFETY: only where the thread is becomes its own; it shares open files as before.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS)? };
        rustix::process::fchdir(directory)?;
        call()
    };
    std::thread::scope(|scope| scope.spawn(thread).join()).unwrap_or(Err(Errno::NOSYS))
}

/// Calls with little room first, and again with all the room that can be needed if that is short.
fn with_room(mut call: impl FnMut(&mut Vec<u8>) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::with_capacity(BYTES_AT_FIRST);
    match call(&mut bytes) {
        Err(Errno::RANGE) => {
            bytes = Vec::with_capacity(BYTES_MAX);
            call(&mut bytes)?;
        }
        other => {
            other?;
        }
    }
    bytes.shrink_to_fit();
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_attribute_that_cannot_be_read_costs_no_other() {
        let list = b"user.b\0system.posix_acl_access\0user.gone\0user.a\0user.c\0";
        let read = |failure| {
            Attributes::collect(list, |name| match name {
                b"system.posix_acl_access" | b"user.c" => Err(failure),
                b"user.gone" => Err(Errno::NODATA),
                name => Ok(name.to_vec()),
            })
        };
        for failure in [Errno::OPNOTSUPP, Errno::ACCESS, Errno::IO] {
            let Attributes { xattrs, unread } = read(failure).unwrap();
            let names: Vec<&[u8]> = xattrs.iter().map(|xattr| &xattr.name[..]).collect();
            assert_eq!(names, [b"user.a", b"user.b"], "{failure}");
            assert_eq!(unread, Some((b"system.posix_acl_access".to_vec(), failure)));
        }
        assert_eq!(read(Errno::NODATA).map(|read| read.unread), Ok(None));
        assert_eq!(read(Errno::NOENT), Err(Errno::NOENT));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test of what happens to this folder")]
    fn attributes_are_read_without_proc_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        symlink("nowhere", folder.path().join("link")).unwrap();
        rustix::fs::setxattr(&file, "user.note", b"kept", XattrFlags::empty()).unwrap();
        let open = std::fs::File::open(folder.path()).unwrap();
        let before = std::env::current_dir().unwrap();
        let mut read = 0;
        for name in [c"file", c"link", c"."] {
            let bearer = Bearer::name(open.as_fd(), name);
            let inside = Bearer::Name(open.as_fd(), name, name.to_bytes().into());
            let without = in_directory(open.as_fd(), || inside.read_here()).unwrap();
            assert_eq!(without, bearer.read().unwrap(), "{name:?}");
            read += without.xattrs.len();
        }
        assert_eq!(read, 1);
        assert_eq!(std::env::current_dir().unwrap(), before);
        let gone = in_directory(open.as_fd(), || {
            Bearer::Name(open.as_fd(), c"gone", b"gone".into()).read_here()
        });
        assert_eq!(gone, Err(Errno::NOENT));
    }
}
