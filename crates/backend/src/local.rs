//! Objects as files of a local file system.
//!
//! A new object is written to a file without a name (`O_TMPFILE`), flushed, and then given its
//! name by `linkat`, which refuses a name that is taken: a crash leaves nothing at all. File
//! systems without such files (vfat, exfat, some network ones) get a hidden temporary file and an
//! exclusive rename. Replacing always goes through a temporary file and `rename`. In each case the
//! folder is flushed before the call returns.
//!
//! A large object goes past the kernel's cache (`O_DIRECT`) if the file system supports that: it is
//! flushed at once anyway and is seldom read soon. So the time to copy it into the cache is saved,
//! and the cache keeps what others need.
//!
//! A temporary file is locked as long as its writer lives, and its name contains the name of its
//! machine. So [`Backend::sweep`] can distinguish an abandoned file from one in use without a
//! clock. If the file system has no locks, or another machine wrote the file, it is left alone.
//!
//! Files and folders that root makes in a place of another user are given to that user: files are private
//! to their owner, so a single `sudo strongroom prune` would lock the user out of the repository.
//!
//! Every process that may write into the folder can put a directory, a FIFO or a device under an
//! object's name. Such a thing is listed, and reading it fails at once with
//! [`BackendError::Unreadable`].

use std::fs::{File, TryLockError};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use strongroom_base::aligned::write_aligned;

use crate::{
    Backend, BackendError, ObjectInfo, ObjectName, Operation, Promises, Room, Stores, holds,
};

/// Keeps objects as files below one folder.
#[derive(Debug)]
pub struct LocalBackend {
    path: PathBuf,
    top: OwnedFd,
    /// To whom new files and folders are given, if that is another than who makes them.
    owner: Option<Owner>,
    /// What the names of this machine's temporary files begin with.
    temporary: String,
    temporaries: AtomicU64,
}

/// What the names of all temporary files begin with; no object's name does.
const TEMPORARY: &str = ".tmp-";
/// An object of at least this many bytes is written past the kernel's cache.
const PAST_CACHE_MIN: usize = 1 << 20;
/// The file that keeps room: without it, on a full disk no collection could begin, which frees some. It
/// begins like no object's name.
const ROOM: &str = ".room";
/// Its length: some plans and verdicts, and what a file system writes along with them.
const ROOM_BYTES: u64 = 512 << 10;
/// What is left of it for a collection if something else takes a part: a plan, a verdict, their copies and
/// an end.
const ROOM_OF_COLLECTION: u64 = 128 << 10;
/// If there is not that much room, less is kept, down to this.
const ROOM_BYTES_MIN: u64 = 16 << 10;
const FOLDER_MODE: Mode = Mode::RWXU;
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);

impl LocalBackend {
    /// Opens the place at `path`, which must be a folder.
    pub fn open(path: &Path) -> Result<Self, BackendError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| BackendError::at_path(Operation::Open, path, errno.into()))?;
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let temporary = format!("{TEMPORARY}{}-", machine_name());
        let owner = Owner::of(&top).filter(|_| geteuid().is_root());
        Ok(Self { path, top, owner, temporary, temporaries: AtomicU64::new(0) })
    }

    /// Makes the folder `path`, with those above it, and opens it. It may exist already.
    pub fn create(path: &Path) -> Result<Self, BackendError> {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let missing = whole.ancestors().skip(1).take_while(|above| !above.exists()).count();
        std::fs::DirBuilder::new()
            .recursive(true)
            .create(path)
            .map_err(|error| BackendError::at_path(Operation::Write, path, error))?;
        // The names of all new folders must last as long as what is put into them.
        for above in whole.ancestors().skip(1).take(missing + 1) {
            let synced = match File::open(above) {
                // It may be searched and not listed: all of its disk is flushed instead.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    File::open(path).and_then(|own| Ok(rustix::fs::syncfs(own)?))
                }
                opened => opened.and_then(|above| above.sync_all()),
            };
            synced.map_err(|error| BackendError::at_path(Operation::Write, above, error))?;
        }
        Self::open(path)
    }

    fn open_folder(&self, folder: &str) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = if folder.is_empty() { "." } else { folder };
        rustix::fs::openat(&self.top, folder, flags, Mode::empty())
    }

    fn open_or_create_folder(&self, folder: &str) -> rustix::io::Result<OwnedFd> {
        match self.open_folder(folder) {
            Err(Errno::NOENT) => {
                match rustix::fs::mkdirat(&self.top, folder, FOLDER_MODE) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                self.give_folder(folder);
                rustix::fs::fsync(&self.top)?;
                self.open_folder(folder)
            }
            opened => {
                // Made by a program that did not give it.
                self.give_folder(folder);
                opened
            }
        }
    }

    /// Gives a folder that is still of who made it to the owner of the place. A link that another has
    /// put there is not followed.
    fn give_folder(&self, folder: &str) {
        let Some(owner) = self.owner else { return };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let Ok(fd) = rustix::fs::openat(&self.top, folder, flags, Mode::empty()) else { return };
        let devices = [rustix::fs::fstat(&self.top), rustix::fs::fstat(&fd)];
        if let [Ok(top), Ok(of_folder)] = devices
            && top.st_dev == of_folder.st_dev
            && of_folder.st_uid == geteuid().as_raw()
        {
            owner.take(&fd);
        }
    }

    /// Gives a new file to the owner of the place, unless the folder that it is in is of another: then
    /// it is not in the place.
    fn give_file(&self, folder: &impl AsFd, file: &File) {
        if let Some(owner) = self.owner
            && Owner::of(folder).is_some_and(|of_folder| of_folder.user == owner.user)
        {
            owner.take(file);
        }
    }

    /// Opens an object for reading. Never waits, as opening a FIFO would.
    fn open_object(&self, name: &ObjectName) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = match rustix::fs::openat(&self.top, name.as_str(), flags, Mode::empty()) {
            Err(Errno::NOENT) if self.is_dangling(name.as_str()) => {
                return Err(not_a_file(FileType::Symlink));
            }
            Err(Errno::NXIO) => return Err(not_a_file(FileType::Socket)),
            opened => opened?,
        };
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
        if kind != FileType::RegularFile {
            return Err(not_a_file(kind));
        }
        Ok(File::from(fd))
    }

    /// Whether a symbolic link is in the place of an object, and nothing is where it points.
    fn is_dangling(&self, path: &str) -> bool {
        let found = rustix::fs::statat(&self.top, path, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    }

    /// Fills the file that keeps room, as far as there is room.
    fn fill_room(&self) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.top, ROOM, flags, FILE_MODE)?);
        self.give_file(&self.top, &file);
        let mut wanted = ROOM_BYTES;
        let has = file.metadata()?.len();
        while wanted > has.max(ROOM_BYTES_MIN) {
            // A file system that allocates nothing in advance keeps none.
            if rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, wanted).is_ok() {
                break;
            }
            wanted /= 2;
        }
        Ok(())
    }

    fn flush_folder(&self, name: &ObjectName) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.open_folder(name.folder())?)?)
    }

    /// Creates a file; the folder it is in is not flushed yet.
    fn create_file(&self, name: &ObjectName, bytes: &[u8]) -> io::Result<OwnedFd> {
        let folder = self.open_or_create_folder(name.folder())?;
        match self.create_unnamed(&folder, name.file(), bytes) {
            Err(error) if lacks_unnamed_files(&error) => {
                self.through_temporary(&folder, bytes, |temporary| {
                    rename_exclusively(&folder, temporary, name.file())
                })?;
            }
            other => other?,
        }
        Ok(folder)
    }

    fn create_unnamed(&self, folder: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(folder, ".", flags, FILE_MODE)?);
        self.give_file(folder, &file);
        write_flushed(&file, bytes)?;
        let unnamed = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        Ok(rustix::fs::linkat(CWD, &unnamed, folder, name, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// Errors of a file that may exist.
    fn replace_file(&self, name: &ObjectName, bytes: &[u8]) -> io::Result<OwnedFd> {
        let folder = self.open_or_create_folder(name.folder())?;
        self.through_temporary(&folder, bytes, |temporary| {
            Ok(rustix::fs::renameat(&folder, temporary, &folder, name.file())?)
        })?;
        Ok(folder)
    }

    /// Writes a temporary file and lets `publish` rename it; removes it if that fails.
    fn through_temporary(
        &self,
        folder: &OwnedFd,
        bytes: &[u8],
        publish: impl FnOnce(&str) -> io::Result<()>,
    ) -> io::Result<()> {
        let (temporary, file) = loop {
            let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
            let temporary = format!("{}{}-{number}", self.temporary, std::process::id());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = match rustix::fs::openat(folder, &temporary, flags, FILE_MODE) {
                // A process with our number exists, or existed, in a container.
                Err(Errno::EXIST) => continue,
                opened => File::from(opened?),
            };
            // If the file system has no locks, the file is never swept.
            let is_being_swept = matches!(file.try_lock(), Err(TryLockError::WouldBlock))
                || rustix::fs::fstat(&file)?.st_nlink == 0;
            if !is_being_swept {
                break (temporary, file);
            }
        };
        self.give_file(folder, &file);
        let outcome = write_flushed(&file, bytes).and_then(|()| publish(&temporary));
        if outcome.is_err() {
            // Best effort: the error that matters is the first one.
            let _ = rustix::fs::unlinkat(folder, &temporary, AtFlags::empty());
        }
        outcome
    }

    /// Removes abandoned temporary files: those of this machine whose lock is free.
    ///
    /// The lock must have been obtained. On NFS this requires a file that is open for writing, and
    /// any result but success may mean that the writer is alive.
    fn sweep_folder(&self, folder: &str) -> io::Result<usize> {
        let fd = self.open_folder(folder)?;
        let mut swept = 0;
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name();
            if !name.to_bytes().starts_with(self.temporary.as_bytes()) {
                continue;
            }
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let Ok(file) = rustix::fs::openat(&fd, name, flags, Mode::empty()) else { continue };
            let file = File::from(file);
            if file.try_lock().is_ok() {
                match rustix::fs::unlinkat(&fd, name, AtFlags::empty()) {
                    Ok(()) => swept += 1,
                    // Another sweep was faster.
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        Ok(swept)
    }

    fn entries(&self, folder: &str) -> io::Result<Vec<(String, FileType, u64)>> {
        let fd = match self.open_folder(folder) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(Errno::NOTDIR) => {
                let why = "a file is in the place of this folder: move it away";
                return Err(io::Error::new(io::ErrorKind::NotADirectory, why));
            }
            other => other?,
        };
        let mut entries = Vec::new();
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name.starts_with('.') {
                continue;
            }
            match rustix::fs::statat(&fd, name, AtFlags::empty()) {
                Ok(stat) => {
                    let kind = FileType::from_raw_mode(stat.st_mode);
                    let is_file = kind == FileType::RegularFile;
                    let bytes = if is_file { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 };
                    entries.push((name.to_owned(), kind, bytes));
                }
                // Removed between the listing and this look at it.
                Err(Errno::NOENT) if !self.is_dangling(&path_in(folder, name)) => {}
                // Reading it will report what is wrong.
                Err(_) => entries.push((name.to_owned(), FileType::Unknown, 0)),
            }
        }
        entries.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        Ok(entries)
    }
}

impl Backend for LocalBackend {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        let read = || {
            let file = self.open_object(name)?;
            // At most the memory that the file can fill, even if a damaged length asks for more.
            let rest = file.metadata()?.len().saturating_sub(offset);
            let length = length.min(usize::try_from(rest).unwrap_or(usize::MAX));
            let mut bytes = vec![0; length];
            let mut filled = 0;
            while filled < length {
                match file.read_at(&mut bytes[filled..], offset + filled as u64) {
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            bytes.truncate(filled);
            Ok(bytes)
        };
        read().map_err(|error| BackendError::io(Operation::Read, name, error))
    }

    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        let stat = match rustix::fs::statat(&self.top, name.as_str(), AtFlags::empty()) {
            Err(Errno::NOENT) if self.is_dangling(name.as_str()) => {
                return Err(BackendError::io(Operation::Read, name, not_a_file(FileType::Symlink)));
            }
            found => {
                found.map_err(|errno| BackendError::io(Operation::Read, name, errno.into()))?
            }
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(u64::try_from(stat.st_size).unwrap_or(0)),
            kind => Err(BackendError::io(Operation::Read, name, not_a_file(kind))),
        }
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        let failed = |error| BackendError::io(Operation::Write, name, error);
        let flushed = match self.create_file(name, bytes) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !holds(self, name, bytes)? {
                    return Err(BackendError::AlreadyExists { name: name.clone() });
                }
                // Its creator may not have flushed the folder yet.
                self.flush_folder(name)
            }
            // What is there takes no more room.
            Err(error) if is_full(&error) && holds(self, name, bytes).unwrap_or(false) => {
                self.flush_folder(name)
            }
            created => rustix::fs::fsync(created.map_err(failed)?).map_err(io::Error::from),
        };
        // It has its name by now.
        flushed.map_err(|error| failed(error).unsettled())
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        let said = |error: io::Error| match error.kind() {
            io::ErrorKind::IsADirectory => not_a_file(FileType::Directory),
            _ => error,
        };
        let failed = |error| BackendError::io(Operation::Write, name, said(error));
        let folder = self.replace_file(name, bytes).map_err(failed)?;
        rustix::fs::fsync(folder).map_err(|errno| failed(errno.into()).unsettled())
    }

    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        rustix::fs::unlinkat(&self.top, name.as_str(), AtFlags::empty())
            .map_err(io::Error::from)
            .and_then(|()| self.flush_folder(name))
            .map_err(|error| BackendError::io(Operation::Remove, name, error))
    }

    fn room(&self) -> Option<&dyn Room> {
        Some(self)
    }

    fn stores(&self) -> Option<&dyn Stores> {
        None
    }

    fn complaint(&self) -> Option<String> {
        None
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, BackendError> {
        let entries = self.entries(folder).map_err(|error| {
            BackendError::at_path(Operation::List, &self.path.join(folder), error)
        })?;
        Ok(entries
            .into_iter()
            // At the top, directories are folders of objects.
            .filter(|(_, kind, _)| !folder.is_empty() || *kind != FileType::Directory)
            .filter_map(|(file, _, bytes)| {
                let name = ObjectName::parse(&path_in(folder, &file))?;
                Some(ObjectInfo { name, bytes })
            })
            .collect())
    }

    fn sweep(&self) -> Result<usize, BackendError> {
        let list_error = |error| BackendError::at_path(Operation::Remove, &self.path, error);
        let mut swept = self.sweep_folder("").map_err(list_error)?;
        for (folder, kind, _) in self.entries("").map_err(list_error)? {
            if kind == FileType::Directory {
                swept += self.sweep_folder(&folder).map_err(list_error)?;
            }
        }
        Ok(swept)
    }

    fn promises(&self) -> Promises {
        Promises::LOCAL
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        let entries = std::fs::read_dir(&self.path)
            .map_err(|source| BackendError::at_path(Operation::Open, &self.path, source))?;
        Ok(entries.into_iter().all(|entry| entry.is_ok_and(|entry| entry.file_name() == folder)))
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    fn folders(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }
}

impl Room for LocalBackend {
    fn save(&self) {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let kept = rustix::fs::statat(&self.top, ROOM, flags).map_or(0, |stat| stat.st_size);
        if u64::try_from(kept).unwrap_or(0) < ROOM_BYTES {
            let _ = self.fill_room();
        }
    }

    fn release(&self) -> bool {
        rustix::fs::unlinkat(&self.top, ROOM, AtFlags::empty())
            .and_then(|()| rustix::fs::fsync(&self.top))
            .is_ok()
    }

    fn release_half(&self) -> bool {
        let halve = || -> io::Result<bool> {
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::openat(&self.top, ROOM, flags, Mode::empty())?);
            let half = file.metadata()?.len() / 2;
            if half < ROOM_OF_COLLECTION {
                return Ok(false);
            }
            file.set_len(half)?;
            file.sync_all()?;
            Ok(true)
        };
        halve().unwrap_or(false)
    }
}

/// To whom a file belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    user: Uid,
    group: Gid,
}

impl Owner {
    /// The owner of a file; none if it cannot be said.
    fn of(file: &impl AsFd) -> Option<Self> {
        let stat = rustix::fs::fstat(file).ok()?;
        Some(Self { user: Uid::from_raw(stat.st_uid), group: Gid::from_raw(stat.st_gid) })
    }

    /// Becomes the owner of a file. Some file systems know no owners, and some refuse: then the file
    /// stays with who made it.
    fn take(self, file: &impl AsFd) {
        let _ = rustix::fs::fchown(file, Some(self.user), Some(self.group));
    }
}

/// The name of an object, by its folder and its file.
fn path_in(folder: &str, file: &str) -> String {
    if folder.is_empty() { file.to_owned() } else { format!("{folder}/{file}") }
}

/// The error where something is that is not a regular file, and what a person can do about it.
fn not_a_file(kind: FileType) -> io::Error {
    let what = match kind {
        FileType::Directory => "a directory",
        // Perhaps to a disk that is not there at the moment.
        FileType::Symlink => "a link that leads nowhere",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::BlockDevice | FileType::CharacterDevice => "a device",
        _ => "something unknown",
    };
    let way_out = match kind {
        FileType::Symlink => "mount what it leads to, or move it away",
        _ => "move it away",
    };
    let is_directory = kind == FileType::Directory;
    let kind = if is_directory { io::ErrorKind::IsADirectory } else { io::ErrorKind::Unsupported };
    io::Error::new(kind, format!("it is {what}, not a file: {way_out}"))
}

/// Fills a new file, and returns once the medium has it.
fn write_flushed(file: &File, bytes: &[u8]) -> io::Result<()> {
    let written = if bytes.len() < PAST_CACHE_MIN { 0 } else { write_past_cache(file, bytes)? };
    file.write_all_at(&bytes[written..], written as u64)?;
    file.sync_all()
}

/// Writes as much of `bytes` past the kernel's cache as possible, and returns how much that was:
/// all but an unaligned end, or nothing if the file system does not support it.
fn write_past_cache(file: &File, bytes: &[u8]) -> io::Result<usize> {
    let through_cache = rustix::fs::fcntl_getfl(file)?;
    if rustix::fs::fcntl_setfl(file, through_cache | OFlags::DIRECT).is_err() {
        return Ok(0);
    }
    let parts = [IoSlice::new(bytes)];
    let written = write_aligned(0, &parts, |piece, offset| file.write_at(piece, offset))?;
    rustix::fs::fcntl_setfl(file, through_cache)?;
    Ok(written.end)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// What a kernel answers if the file system does not support files without names, or if `/proc`,
/// which gives them one, is not mounted.
fn lacks_unnamed_files(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL | Errno::PERM)
    )
}

fn rename_exclusively(folder: &OwnedFd, old: &str, new: &str) -> io::Result<()> {
    match rustix::fs::renameat_with(folder, old, folder, new, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {}
        other => return Ok(other?),
    }
    rustix::fs::linkat(folder, old, folder, new, AtFlags::empty())?;
    Ok(rustix::fs::unlinkat(folder, old, AtFlags::empty())?)
}

/// The machine's name, as far as it can be part of a file's name.
fn machine_name() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy();
    name.chars().filter(char::is_ascii_alphanumeric).take(64).collect()
}
