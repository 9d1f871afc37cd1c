//! What is kept in memory of the images of a chain: pieces of tables, and decompressed clusters.
//!
//! All images of a chain share the two caches, so that memory is bounded for all of them together.

use std::path::Path;
use std::sync::Arc;

use strongroom_base::ByteCache;

use crate::read::ReadAt;

use super::error::{ImageError, ImageResult};

/// Pieces of tables that are kept: of a qcow2 image with clusters of 64 KiB, those of 32 GiB.
const TABLE_BYTES: usize = 4 << 20;
/// Decompressed clusters that are kept.
const CLUSTER_BYTES: usize = 4 << 20;
/// Tables are read and kept in pieces of at most this size.
pub(super) const PIECE_BYTES: u64 = 16 << 10;

/// An image of the chain, and a byte of its file.
type Key = (u32, u64);

pub(super) struct Caches {
    tables: ByteCache<Key, Arc<[u8]>>,
    clusters: ByteCache<Key, Arc<[u8]>>,
}

/// A piece of a table, and where in the file it begins.
#[derive(Clone)]
pub(super) struct Piece {
    pub start: u64,
    pub bytes: Arc<[u8]>,
}

impl Piece {
    /// The bytes from this one of the file on; none if it is not in the piece.
    pub(super) fn from(&self, at: u64) -> &[u8] {
        let inside = at.checked_sub(self.start).and_then(|inside| usize::try_from(inside).ok());
        inside.and_then(|inside| self.bytes.get(inside..)).unwrap_or_default()
    }
}

impl Caches {
    pub(super) fn new() -> Self {
        Self { tables: ByteCache::new(TABLE_BYTES), clusters: ByteCache::new(CLUSTER_BYTES) }
    }

    /// The piece with the byte `at` of a table that is at `table` of the file, without its end if
    /// that is in another.
    pub(super) fn piece(
        &self,
        layer: u32,
        file: &dyn ReadAt,
        path: &Path,
        table: (u64, u64),
        at: u64,
    ) -> ImageResult<Piece> {
        let (table, end) = table;
        let start = at - (at - table) % PIECE_BYTES;
        let key = (layer, start);
        if let Some(bytes) = self.tables.get(&key) {
            return Ok(Piece { start, bytes });
        }
        let bytes = PIECE_BYTES.min(end - start);
        if start.checked_add(bytes).is_none_or(|end| end > file.size()) {
            return Err(ImageError::damaged(path, "a table is behind the end of the file", at));
        }
        let mut piece = vec![0; bytes as usize];
        file.read_at(start, &mut piece).map_err(|error| ImageError::io(path, error))?;
        let bytes: Arc<[u8]> = piece.into();
        self.tables.put(key, bytes.clone(), bytes.len());
        Ok(Piece { start, bytes })
    }

    /// The cluster that is compressed at this byte of the file, which `decompress` makes if it is
    /// not there.
    pub(super) fn cluster(
        &self,
        layer: u32,
        at: u64,
        decompress: impl FnOnce() -> ImageResult<Vec<u8>>,
    ) -> ImageResult<Arc<[u8]>> {
        let key = (layer, at);
        if let Some(known) = self.clusters.get(&key) {
            return Ok(known);
        }
        let cluster: Arc<[u8]> = decompress()?.into();
        self.clusters.put(key, cluster.clone(), cluster.len());
        Ok(cluster)
    }
}
