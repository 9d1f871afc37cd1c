//! Why an image of a disk could not be opened or read.

use std::io;
use std::path::{Path, PathBuf};

use super::format::Format;

/// Why an image of a disk could not be opened or read. The messages name the file and the next step.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file could not be opened or read.
    #[error("{} cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is in a format that we do not read.
    #[error(
        "{0} is an image in the format {format}, which is not read directly: convert it with \
         `qemu-img convert -O qcow2 {0} NEW.qcow2`; if its bytes are to be taken as they are, name \
         the format raw",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The format.
        format: &'static str,
    },
    /// It is not in the format that was named, by the caller or by the image on top of it.
    #[error("{} is not in the format {format}: name its real format", path.display())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// What it was called.
        format: &'static str,
    },
    /// A structure contradicts itself or the file.
    #[error(
        "{} is damaged at byte {at}: {what}; it may have been cut short when it was copied, and \
         `qemu-img check` may say more",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
        /// The byte of the file, or of the disk if `what` says so.
        at: u64,
    },
    /// It needs what we lack.
    #[error(
        "{0} has {what}, which is not supported: convert it with \
         `qemu-img convert -O qcow2 {0} NEW.qcow2`",
        path.display()
    )]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What would have to be supported.
        what: String,
    },
    /// QEMU has found it inconsistent before.
    #[error(
        "QEMU has marked {0} as corrupt: repair it with `qemu-img check -r all {0}`, on a copy",
        path.display()
    )]
    MarkedCorrupt {
        /// The file.
        path: PathBuf,
    },
    /// What was written last is only in the image's log.
    #[error(
        "{0} has a log that was not replayed, since its machine was not shut down properly: replay \
         it with `qemu-img check -r all {0}`, on a copy",
        path.display()
    )]
    LogNotReplayed {
        /// The file.
        path: PathBuf,
    },
    /// It is a part of a disk, and does not say which other parts there are.
    #[error(
        "{} is one extent of a disk that has several: name the file that lists the extents",
        path.display()
    )]
    OneExtent {
        /// The file.
        path: PathBuf,
    },
    /// The format of the backing file is not named in the image, and is not guessed: a guest can
    /// make a raw disk look like any other format.
    #[error(
        "{0} has the backing file {backing} and does not name its format, which is not guessed: \
         name it with `qemu-img rebase -u -b {backing} -F FORMAT {0}`",
        path.display()
    )]
    BackingFormat {
        /// The file.
        path: PathBuf,
        /// Its backing file.
        backing: String,
    },
    /// An image refers to something that is not a file or a block device.
    #[error(
        "{} refers to {reference}, and only names of files and block devices are followed: name a \
         file with `qemu-img rebase -u`",
        path.display()
    )]
    NotAFile {
        /// The file.
        path: PathBuf,
        /// What it names.
        reference: String,
    },
    /// An image whose format was guessed refers to another file.
    #[error(
        "{} looks like an image in the format {format} and refers to {reference}, which is not \
         opened: the guest of a raw disk can make it look so; if {format} is its real format, name \
         it with `--format {format}` (of one disk of several with `--format NAME={format}`), otherwise \
         `--format raw`",
        path.display()
    )]
    FormatNotNamed {
        /// The image.
        path: PathBuf,
        /// The format that it seems to have.
        format: Format,
        /// The file that it names.
        reference: String,
    },
    /// A file that an image needs cannot be opened.
    #[error("{} needs another file: {source}", path.display())]
    Needed {
        /// The file.
        path: PathBuf,
        /// What is wrong with the other.
        source: Box<ImageError>,
    },
    /// A chain of backing files returns to a file that it has already.
    #[error("the backing files of {} form a loop: correct it with `qemu-img rebase`", path.display())]
    Loop {
        /// The file that would be opened again.
        path: PathBuf,
    },
    /// A chain of backing files is too long.
    #[error(
        "{} is the last of more than {max} images in a chain: shorten it with `qemu-img commit`",
        path.display()
    )]
    TooDeep {
        /// The last file.
        path: PathBuf,
        /// How long a chain may be.
        max: usize,
    },
    /// There is no such bitmap.
    #[error("{} has no bitmap {name}: `qemu-img info` lists those that it has", path.display())]
    NoBitmap {
        /// The file.
        path: PathBuf,
        /// The bitmap.
        name: String,
    },
    /// A bitmap was not written back by its last user, so that it lacks what changed.
    #[error(
        "the bitmap {name} of {0} is inconsistent, since its machine was not shut down properly: \
         compare the whole disk, and remove it with `qemu-img bitmap --remove {0} {name}`",
        path.display()
    )]
    InconsistentBitmap {
        /// The file.
        path: PathBuf,
        /// The bitmap.
        name: String,
    },
}

/// The result of opening or reading an image.
pub(crate) type ImageResult<T> = Result<T, ImageError>;

impl ImageError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    pub(crate) fn damaged(path: &Path, what: &'static str, at: u64) -> Self {
        Self::Damaged { path: path.into(), what, at }
    }

    pub(crate) fn unsupported(path: &Path, what: impl Into<String>) -> Self {
        Self::Unsupported { path: path.into(), what: what.into() }
    }
}

impl From<ImageError> for io::Error {
    fn from(error: ImageError) -> Self {
        let kind = match &error {
            ImageError::Io { source, .. } => source.kind(),
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
