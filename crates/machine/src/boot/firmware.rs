//! The files of a firmware that are stored beside a description: put into a folder for QEMU.
//!
//! QEMU opens what the header of an image names, also for writing. These files come from a snapshot,
//! and another machine may have written them: so QEMU is given none of them as an image. What was
//! stored as one is read here, and put there as the bytes that the guest sees.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use strongroom_disk::{Format, Image, ImageError, ReadAt, image_over};

use crate::FirmwareFile;

/// What the files of a firmware have at most, each as it is stored, and all as the guest sees them.
pub const FIRMWARE_BYTES_MAX: u64 = 256 << 20;
/// The format that is not put there as it is.
const QCOW2: &str = "qcow2";
/// What is copied at a time.
const COPY_BYTES: u64 = 1 << 20;

/// Why a file of the firmware cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FirmwareError {
    /// Its header names another file, which is never opened.
    #[error(
        "the stored file {name} of the firmware is an image that needs another file: \
         {reference:?}, which is never opened"
    )]
    OtherFile {
        /// Its name beside the description.
        name: String,
        /// The file that it names.
        reference: String,
    },
    /// It cannot be read as the image that it is called.
    #[error("the stored file {name} of the firmware is no image that can be used: {source}")]
    Image {
        /// Its name beside the description.
        name: String,
        /// Why not.
        source: ImageError,
    },
    /// The files are longer than those of any firmware.
    #[error(
        "the stored files of the firmware, up to {name}, have {bytes} bytes, and {FIRMWARE_BYTES_MAX} \
         are the most"
    )]
    TooLong {
        /// The name of the last one beside the description.
        name: String,
        /// How many bytes the guest would see.
        bytes: u64,
    },
    /// It cannot be read to its end, or not be written here.
    #[error("the stored file {name} of the firmware cannot be put into a folder: {source}")]
    Io {
        /// Its name beside the description.
        name: String,
        /// Why not.
        source: io::Error,
    },
}

/// A folder with the files of a firmware. All of them are raw: QEMU follows nothing in them.
#[derive(Debug, Clone)]
pub struct FirmwareFolder {
    folder: PathBuf,
    names: BTreeSet<String>,
    /// Of all files.
    bytes: u64,
}

impl FirmwareFolder {
    /// Makes the folder.
    ///
    /// # Errors
    ///
    /// It exists, or cannot be made.
    pub fn create(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir(&folder)?;
        Ok(Self { folder, names: BTreeSet::new(), bytes: 0 })
    }

    /// Puts a file there, of which these bytes are stored. A name that leaves the folder is of none.
    ///
    /// # Errors
    ///
    /// It is an image that is damaged, too long, or needs another file; or the folder has no room.
    pub fn put(&mut self, file: &FirmwareFile, bytes: Vec<u8>) -> Result<(), FirmwareError> {
        if !is_name(&file.name) {
            return Ok(());
        }
        let name = || file.name.clone();
        let image: Box<dyn Image> = match file.format.as_str() {
            QCOW2 => {
                let opened = image_over(Box::new(Stored(bytes)), Some(Format::Qcow2));
                opened.map_err(|error| unusable(name(), error))?.image
            }
            _ => Box::new(Stored(bytes)),
        };
        // The folder may be in memory.
        self.bytes = self.bytes.saturating_add(image.size());
        if self.bytes > FIRMWARE_BYTES_MAX {
            return Err(FirmwareError::TooLong { name: name(), bytes: self.bytes });
        }
        let written = write(&*image, &self.folder.join(&file.name));
        written.map_err(|source| FirmwareError::Io { name: name(), source })?;
        self.names.insert(name());
        Ok(())
    }

    /// Where a file of the firmware is, if it was put there.
    pub(super) fn path_of(&self, file: &FirmwareFile) -> Option<String> {
        let path = self.names.get(&file.name).map(|name| self.folder.join(name))?;
        Some(path.to_string_lossy().into_owned())
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.')
}

fn unusable(name: String, source: ImageError) -> FirmwareError {
    match source {
        ImageError::NotAFile { reference, .. }
        | ImageError::BackingFormat { backing: reference, .. } => {
            FirmwareError::OtherFile { name, reference }
        }
        source => FirmwareError::Image { name, source },
    }
}

fn write(image: &dyn Image, path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(image.size())?;
    let mut buffer = Vec::new();
    let mut at = 0;
    while let Some(data) = image.next_data(at)? {
        let end = data.end.min(data.start + COPY_BYTES);
        buffer.resize((end - data.start) as usize, 0);
        image.read_at(data.start, &mut buffer)?;
        file.write_all_at(&buffer, data.start)?;
        at = end;
    }
    Ok(())
}

/// The bytes of a file, in memory.
struct Stored(Vec<u8>);

impl ReadAt for Stored {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }
}

impl Image for Stored {}

#[cfg(test)]
mod tests;
