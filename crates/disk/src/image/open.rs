//! Opening an image, with the files that it refers to.

use std::path::Path;

use super::chain::Chain;
use super::error::{ImageError, ImageResult};
use super::format::{Format, Recognized, recognize};
use super::qcow2::Qcow2;
use super::vhd::Vhd;
use super::vhdx::Vhdx;
use super::vmdk::Vmdk;
use super::{Image, RawImage};

/// What messages call an image that is not a file.
const NO_PATH: &str = "the image";

/// What the caller knows of an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImageOptions {
    /// Its format. It is recognised if this is `None`; but the guest of a raw disk can write the
    /// beginning of another format to it, with a name of a backing file that it wants to see. So
    /// other files are opened only if the format is named.
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
/// The image cannot be read, or is one that is damaged, lacks another file, or needs what we lack; or
/// it refers to another file and its format was not named.
pub fn open_image(path: &Path, options: ImageOptions) -> Result<OpenedImage, ImageError> {
    let file = RawImage::open(path).map_err(|error| ImageError::io(path, error))?;
    let mut chain = Chain::new(options.backing_format, open_as);
    chain.enter(path)?;
    open_first(Box::new(file), path, options.format, &mut chain)
}

/// Opens an image whose bytes are not those of a file, such as what another machine exports. It is
/// complete by itself: what it refers to is not followed.
///
/// # Errors
///
/// As for [`open_image`]; or it refers to a file.
pub fn image_over(file: Box<dyn Image>, format: Option<Format>) -> Result<OpenedImage, ImageError> {
    open_first(file, Path::new(NO_PATH), format, &mut Chain::without_files(open_as))
}

fn open_first(
    file: Box<dyn Image>,
    path: &Path,
    format: Option<Format>,
    chain: &mut Chain,
) -> ImageResult<OpenedImage> {
    let format = match format {
        Some(format) => format,
        None => match recognize(&*file).map_err(|error| ImageError::io(path, error))? {
            Recognized::Known(format) => {
                chain.guess(format);
                format
            }
            Recognized::Foreign(format) => {
                return Err(ImageError::Foreign { path: path.into(), format });
            }
        },
    };
    let image = open_as(file, path, format, chain)?;
    Ok(OpenedImage { image, format })
}

impl Qcow2 {
    /// Opens an image with the files that it needs.
    ///
    /// # Errors
    ///
    /// It, or an image that it needs, is not an image of its format, is damaged, or needs what we
    /// lack.
    pub fn open(path: &Path, backing_format: Option<Format>) -> Result<Self, ImageError> {
        let file = RawImage::open(path).map_err(|error| ImageError::io(path, error))?;
        let mut chain = Chain::new(backing_format, open_as);
        chain.enter(path)?;
        Self::in_chain(Box::new(file), path, &mut chain)
    }

    /// Opens an image whose bytes are not those of a file. It is complete by itself: what it refers
    /// to is not followed.
    ///
    /// # Errors
    ///
    /// As for [`Self::open`]; or it refers to a file.
    pub fn over(file: Box<dyn Image>) -> Result<Self, ImageError> {
        Self::in_chain(file, Path::new(NO_PATH), &mut Chain::without_files(open_as))
    }
}

/// Opens a file that is part of a chain, in this format.
fn open_as(
    file: Box<dyn Image>,
    path: &Path,
    format: Format,
    chain: &mut Chain,
) -> ImageResult<Box<dyn Image>> {
    Ok(match format {
        Format::Raw => file,
        Format::Qcow2 => Box::new(Qcow2::in_chain(file, path, chain)?),
        Format::Vhd => Box::new(Vhd::open(file, path, chain)?),
        Format::Vhdx => Box::new(Vhdx::open(file, path, chain)?),
        Format::Vmdk => Box::new(Vmdk::open(file, path, chain)?),
    })
}
