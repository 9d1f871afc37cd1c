//! Opening an image, and the files that it refers to.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::caches::Caches;
use super::error::{ImageError, ImageResult};
use super::format::{Format, Recognized, recognize};
use super::qcow2::Qcow2;
use super::vhd::Vhd;
#[cfg(feature = "vhdx")]
use super::vhdx::Vhdx;
#[cfg(feature = "vmdk")]
use super::vmdk::Vmdk;
use super::{Image, RawImage};

/// More images than this are no chain that anything runs from.
const CHAIN_MAX: usize = 64;

/// What the caller knows of an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImageOptions {
    /// Its format. It is recognised if this is `None`; but the guest of a raw disk can write the
    /// beginning of another format to it, with a name of a backing file that it wants to see. So
    /// a caller who knows the format names it.
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
    let mut chain = Chain::new(options);
    chain.enter(path)?;
    open_first(Box::new(file), path, chain)
}

/// Opens an image whose bytes are not those of a file, such as what another machine exports. It is
/// complete by itself: what it refers to is not followed.
///
/// # Errors
///
/// As for [`open_image`]; or it refers to a file.
pub fn image_over(file: Box<dyn Image>, format: Option<Format>) -> Result<OpenedImage, ImageError> {
    let chain = Chain::without_files(ImageOptions { format, backing_format: None });
    open_first(file, Path::new("the image"), chain)
}

fn open_first(file: Box<dyn Image>, path: &Path, mut chain: Chain) -> ImageResult<OpenedImage> {
    let format = match chain.options.format {
        Some(format) => format,
        None => match recognize(&*file).map_err(|error| ImageError::io(path, error))? {
            Recognized::Known(format) => format,
            Recognized::Foreign(format) => {
                return Err(ImageError::Foreign { path: path.into(), format });
            }
        },
    };
    let image = chain.open_as(file, path, format)?;
    Ok(OpenedImage { image, format })
}

/// The images of a chain that were opened so far, from the newest down.
pub(super) struct Chain {
    pub(super) options: ImageOptions,
    /// Devices and inodes, or the numbers of block devices.
    entered: Vec<(bool, u64, u64)>,
    /// Files that have a number.
    layers: u32,
    /// Names of files are followed.
    has_files: bool,
    caches: Arc<Caches>,
}

impl Chain {
    pub(super) fn new(options: ImageOptions) -> Self {
        let caches = Arc::new(Caches::new());
        Self { options, entered: Vec::new(), layers: 0, has_files: true, caches }
    }

    /// A chain of one image.
    pub(super) fn without_files(options: ImageOptions) -> Self {
        Self { has_files: false, ..Self::new(options) }
    }

    pub(super) fn caches(&self) -> Arc<Caches> {
        self.caches.clone()
    }

    /// Another number for the caches.
    pub(super) fn layer(&mut self) -> u32 {
        self.layers += 1;
        self.layers
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
        let (backing, file) = self.referred(path, name)?;
        self.enter(&backing)?;
        self.open_as(Box::new(file), &backing, format)
    }

    /// Opens a file whose bytes the image at `path` uses as they are.
    pub(super) fn open_raw(&self, path: &Path, name: &str) -> ImageResult<Box<dyn Image>> {
        Ok(Box::new(self.referred(path, name)?.1))
    }

    /// Opens a file by the name that the image at `path` has for it: relative to its own folder.
    pub(super) fn referred(&self, path: &Path, name: &str) -> ImageResult<(PathBuf, RawImage)> {
        let name = name.strip_prefix("file:").filter(|name| name.starts_with('/')).unwrap_or(name);
        // A colon before the first slash ends the name of a protocol, as in nbd:// and json:.
        let first = name.split('/').next().unwrap_or_default();
        if first.contains(':') || !self.has_files {
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

    /// Opens a file that was entered in this format.
    fn open_as(
        &mut self,
        file: Box<dyn Image>,
        path: &Path,
        format: Format,
    ) -> ImageResult<Box<dyn Image>> {
        Ok(match format {
            Format::Raw => file,
            Format::Qcow2 => Box::new(Qcow2::in_chain(file, path, self)?),
            Format::Vhd => Box::new(Vhd::open(file, path, self.layer(), self.caches())?),
            #[cfg(feature = "vhdx")]
            Format::Vhdx => Box::new(Vhdx::open(file, path, self.layer(), self.caches())?),
            #[cfg(feature = "vmdk")]
            Format::Vmdk => Box::new(Vmdk::open(file, path, self)?),
            #[cfg(not(feature = "vhdx"))]
            Format::Vhdx => return Err(foreign(path, format)),
            #[cfg(not(feature = "vmdk"))]
            Format::Vmdk => return Err(foreign(path, format)),
        })
    }
}

/// This program was built without the format.
#[cfg(not(all(feature = "vhdx", feature = "vmdk")))]
fn foreign(path: &Path, format: Format) -> ImageError {
    ImageError::Foreign { path: path.into(), format: format.name() }
}
