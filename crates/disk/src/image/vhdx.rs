//! Images in Hyper-V's format VHDX: fixed and dynamic ones.
//!
//! The source is Microsoft's \[MS-VHDX\]. An image whose log was not replayed is refused: the
//! program that wrote it can replay it.

mod format;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fields::le64;

use super::Image;
use super::blocks::{Blocks, Content, OfBlocks};
use super::caches::Caches;
use super::chain::Chain;
use super::error::{ImageError, ImageResult};

use format::Parameters;

/// States of a block, in the low bits of an entry.
const NOT_PRESENT: u64 = 0;
const UNDEFINED: u64 = 1;
const ZERO: u64 = 2;
const UNMAPPED: u64 = 3;
const FULLY_PRESENT: u64 = 6;
const STATE: u64 = 7;
/// The place, a multiple of a mebibyte.
const PLACE: u64 = !((1 << 20) - 1);

/// A fixed or dynamic image.
pub(super) struct Vhdx {
    path: PathBuf,
    layer: u32,
    file: Box<dyn Image>,
    parameters: Parameters,
    caches: Arc<Caches>,
}

impl Vhdx {
    pub(super) fn open(
        file: Box<dyn Image>,
        path: &Path,
        chain: &mut Chain,
    ) -> ImageResult<OfBlocks<Self>> {
        let parameters = Parameters::read(&*file, path)?;
        let (layer, caches) = (chain.layer(), chain.caches());
        Ok(OfBlocks(Self { path: path.into(), layer, file, parameters, caches }))
    }
}

impl Blocks for Vhdx {
    fn disk_bytes(&self) -> u64 {
        self.parameters.disk_bytes
    }

    fn file(&self) -> (&dyn Image, &Path) {
        (&*self.file, &self.path)
    }

    fn block(&self, at: u64) -> ImageResult<(Content, u64)> {
        let Parameters { disk_bytes, block_bytes, table, .. } = self.parameters;
        let (index, inside) = (at / block_bytes, at % block_bytes);
        let entry_at = table.0 + self.parameters.entry_of(index) * 8;
        let piece = self.caches.piece(self.layer, &*self.file, &self.path, table, entry_at)?;
        let entry = le64(piece.from(entry_at), 0);
        let content = match entry & STATE {
            NOT_PRESENT | UNDEFINED | ZERO | UNMAPPED => Content::Zeros,
            FULLY_PRESENT => Content::Stored((entry & PLACE).saturating_add(inside)),
            _ => {
                let what = "the state of a block is invalid";
                return Err(ImageError::damaged(&self.path, what, entry_at));
            }
        };
        Ok((content, (at - inside).saturating_add(block_bytes).min(disk_bytes)))
    }
}
