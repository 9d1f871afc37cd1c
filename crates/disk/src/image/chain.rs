//! The images that an image refers to: loops and endless chains are found, and only files are
//! followed.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::caches::Caches;
use super::error::{ImageError, ImageResult};
use super::format::Format;
use super::{Image, RawImage};

/// More images than this are no chain that anything runs from.
const CHAIN_MAX: usize = 64;

/// Opens a file that is part of the chain, in a format.
pub(super) type Open = fn(Box<dyn Image>, &Path, Format, &mut Chain) -> ImageResult<Box<dyn Image>>;

/// The images of a chain that were opened so far, from the newest down.
pub(super) struct Chain {
    /// The format of backing files if an image does not name it.
    pub(super) backing_format: Option<Format>,
    open: Open,
    /// Devices and inodes, or the numbers of block devices.
    entered: Vec<(bool, u64, u64)>,
    /// Files that have a number.
    layers: u32,
    /// Names of files are followed.
    has_files: bool,
    /// The format of the first image, if it was guessed: then none are followed.
    guessed: Option<Format>,
    caches: Arc<Caches>,
}

impl Chain {
    /// A chain whose images `open` opens.
    pub(super) fn new(backing_format: Option<Format>, open: Open) -> Self {
        let caches = Arc::new(Caches::new());
        let (entered, layers, has_files, guessed) = (Vec::new(), 0, true, None);
        Self { backing_format, open, entered, layers, has_files, guessed, caches }
    }

    /// A chain of one image.
    pub(super) fn without_files(open: Open) -> Self {
        Self { has_files: false, ..Self::new(None, open) }
    }

    /// Notes that the format of the first image was guessed. The guest of a raw disk can make it
    /// begin as an image with any file below it, and would see that file after a restore.
    pub(super) fn guess(&mut self, format: Format) {
        self.guessed = Some(format);
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
        let identity = if metadata.file_type().is_block_device() {
            (true, metadata.rdev(), 0)
        } else {
            (false, metadata.dev(), metadata.ino())
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
        (self.open)(Box::new(file), &backing, format, self)
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
        if let Some(format) = self.guessed {
            let (path, reference) = (path.into(), name.into());
            return Err(ImageError::FormatNotNamed { path, format, reference });
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
}
