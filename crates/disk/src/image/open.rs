//! Opening an image, and the files that it refers to.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{ImageError, ImageResult};
use super::format::{Format, Recognized, recognize};
use super::qcow2::{Caches, Qcow2};
use super::{Image, RawImage};

/// More images than this are no chain that anything runs from.
const CHAIN_MAX: usize = 64;

/// What the caller knows of an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImageOptions {
    /// Its format. It is recognised if this is `None`; but the guest of a raw disk can write the
    /// beginning of another format to it, with a name of a backing file that it wants to see. So
    /// whoever knows the format names it.
    pub format: Option<Format>,
    /// The format of backing files if an image names a backing file without a format.
    pub backing_format: Option<Format>,
}

/// An image that was opened.
pub struct OpenedImage {
    /// The bytes of the disk.
    pub image: Box<dyn Image>,
    /// The format that was named or recognised.
    pub format: Format,
}

/// Opens a file or a block device as an image of a disk, with the files that it needs.
///
/// # Errors
///
/// It cannot be read, or is an image that is damaged, lacks another file, or needs what we lack.
pub fn open_image(path: &Path, options: ImageOptions) -> Result<OpenedImage, ImageError> {
    let file = RawImage::open(path).map_err(|error| ImageError::io(path, error))?;
    let format = match options.format {
        Some(format) => format,
        None => match recognize(&file).map_err(|error| ImageError::io(path, error))? {
            Recognized::Known(format) => format,
            Recognized::Foreign(format) => {
                return Err(ImageError::Foreign { path: path.into(), format });
            }
        },
    };
    let mut chain = Chain::new(options);
    chain.enter(path)?;
    let image = chain.open_as(file, path, format)?;
    Ok(OpenedImage { image, format })
}

/// The images of a chain that were opened so far, from the newest down.
pub(super) struct Chain {
    pub(super) options: ImageOptions,
    /// Devices and inodes, or the numbers of block devices.
    entered: Vec<(bool, u64, u64)>,
    caches: Arc<Caches>,
}

impl Chain {
    pub(super) fn new(options: ImageOptions) -> Self {
        Self { options, entered: Vec::new(), caches: Arc::new(Caches::new()) }
    }

    pub(super) fn caches(&self) -> Arc<Caches> {
        self.caches.clone()
    }

    /// The number of the image that was entered last.
    pub(super) fn layer(&self) -> u32 {
        self.entered.len() as u32
    }

    /// Notes that a file is part of the chain.
    pub(super) fn enter(&mut self, path: &Path) -> ImageResult<()> {
        let metadata = std::fs::metadata(path).map_err(|error| ImageError::io(path, error))?;
        let is_device = metadata.file_type().is_block_device();
        let identity = match is_device {
            true => (true, metadata.rdev(), 0),
            false => (false, metadata.dev(), metadata.ino()),
        };
        if self.entered.contains(&identity) {
            return Err(ImageError::Loop { path: path.into() });
        }
        if self.entered.len() == CHAIN_MAX {
            return Err(ImageError::TooDeep { path: path.into(), max: CHAIN_MAX });
        }
        self.entered.push(identity);
        Ok(())
    }

    /// Opens the backing file of the image at `path`.
    pub(super) fn open_backing(
        &mut self,
        path: &Path,
        name: &str,
        format: Format,
    ) -> ImageResult<Box<dyn Image>> {
        let (backing, file) = referred(path, name)?;
        self.enter(&backing)?;
        self.open_as(file, &backing, format)
    }

    /// Opens a file whose bytes the image at `path` uses as they are.
    pub(super) fn open_raw(&self, path: &Path, name: &str) -> ImageResult<Box<dyn Image>> {
        Ok(Box::new(referred(path, name)?.1))
    }

    /// Opens a file that was entered in this format.
    fn open_as(
        &mut self,
        file: RawImage,
        path: &Path,
        format: Format,
    ) -> ImageResult<Box<dyn Image>> {
        Ok(match format {
            Format::Raw => Box::new(file),
            Format::Qcow2 => Box::new(Qcow2::in_chain(Box::new(file), path, self)?),
            Format::Vmdk | Format::Vhdx | Format::Vhd => {
                return Err(ImageError::Foreign { path: path.into(), format: format.name() });
            }
        })
    }
}

/// Opens a file by the name that the image at `path` has for it: relative to its own folder.
fn referred(path: &Path, name: &str) -> ImageResult<(PathBuf, RawImage)> {
    let name = name.strip_prefix("file:").filter(|name| name.starts_with('/')).unwrap_or(name);
    // A colon before the first slash ends the name of a protocol, as in nbd:// and json:.
    let first = name.split('/').next().unwrap_or_default();
    if first.contains(':') {
        return Err(ImageError::NotAFile { path: path.into(), reference: name.into() });
    }
    let place = path.parent().unwrap_or(Path::new("")).join(name);
    match RawImage::open(&place) {
        Ok(file) => Ok((place, file)),
        Err(error) => {
            let source = Box::new(ImageError::io(&place, error));
            Err(ImageError::Needed { path: path.into(), source })
        }
    }
}
