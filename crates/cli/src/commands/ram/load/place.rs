//! The place of a file that is loaded: a name in a folder that is open.
//!
//! The path that the user typed is the user's, and links on it are followed. What comes from a
//! snapshot is not: below the folder of the user no link is followed, and a name of a snapshot that
//! is a link is refused.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A name in a folder.
pub struct Place {
    folder: OwnedFd,
    name: PathBuf,
    /// A link of this name leads to the file that is meant.
    is_typed: bool,
    /// For messages.
    path: PathBuf,
}

impl Place {
    /// A path that was typed.
    pub fn typed(path: &Path) -> io::Result<Self> {
        Self::at(path, true)
    }

    /// A path of a snapshot, on this machine as it was.
    pub fn of_snapshot(path: &Path) -> io::Result<Self> {
        Self::at(path, false)
    }

    fn at(path: &Path, is_typed: bool) -> io::Result<Self> {
        let name = path.file_name().ok_or(Errno::ISDIR)?.into();
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let folder = rustix::fs::open(above.unwrap_or(Path::new(".")), FOLDER, Mode::empty())?;
        Ok(Self { folder, name, is_typed, path: path.to_owned() })
    }

    /// A path of a snapshot, below a folder that was typed. The folders on the way are made.
    pub fn below(folder: &Path, rest: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let mut above = rustix::fs::open(folder, FOLDER, Mode::empty())?;
        let mut names = Vec::new();
        for part in rest.components() {
            let Component::Normal(name) = part else { return Err(Errno::INVAL.into()) };
            names.push(name);
        }
        let name = PathBuf::from(names.pop().ok_or(Errno::ISDIR)?);
        for name in names {
            let open =
                || rustix::fs::openat(&above, name, FOLDER | OFlags::NOFOLLOW, Mode::empty());
            let next = match open() {
                Err(Errno::NOENT) => match rustix::fs::mkdirat(&above, name, Mode::from(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => open(),
                    Err(error) => Err(error),
                },
                opened => opened,
            };
            above = next?;
        }
        Ok(Self { folder: above, name, is_typed: false, path: folder.join(rest) })
    }

    /// For messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The metadata of what has the name; none if nothing has it.
    pub fn stat(&self) -> io::Result<Option<Stat>> {
        let flags = if self.is_typed { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        match rustix::fs::statat(&self.folder, &self.name, flags) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a file of the name, which must be free, for its owner alone.
    pub fn create(&self) -> io::Result<File> {
        self.open_with(OFlags::CREATE | OFlags::EXCL)
    }

    /// Opens the file that has the name, for reading and writing.
    pub fn open(&self) -> io::Result<File> {
        let nofollow = if self.is_typed { OFlags::empty() } else { OFlags::NOFOLLOW };
        let file = self.open_with(nofollow | OFlags::NONBLOCK)?;
        // Something else may have taken the name since it was looked at.
        if file.metadata()?.is_file() { Ok(file) } else { Err(Errno::INVAL.into()) }
    }

    fn open_with(&self, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::openat(&self.folder, &self.name, flags, mode)?.into())
    }

    /// Removes the file of the name.
    pub fn remove(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty())?)
    }
}

/// The kind of what has a name.
pub fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
