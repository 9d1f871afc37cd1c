//! Clusters that are compressed, each by itself: deflate without a header, or zstd.

use std::sync::Arc;

use flate2::{Decompress, FlushDecompress};
use zstd::zstd_safe;

use crate::image::error::{ImageError, ImageResult};

use super::Qcow2;
use super::header::Compression;

impl Qcow2 {
    /// The content of a compressed cluster: always a whole one.
    pub(super) fn decompressed(&self, offset: u64, bytes: u32) -> ImageResult<Arc<[u8]>> {
        self.caches.cluster(self.layer, offset, || self.decompress(offset, bytes))
    }

    fn decompress(&self, offset: u64, bytes: u32) -> ImageResult<Vec<u8>> {
        let damaged = |what| ImageError::damaged(&self.path, what, offset);
        // The last sector can be behind the end of the file: its end is not part of the cluster.
        let left = self.file.size().saturating_sub(offset).min(u64::from(bytes));
        if left == 0 {
            return Err(damaged("a compressed cluster is behind the end of the file"));
        }
        let mut compressed = vec![0; left as usize];
        self.read_file(offset, &mut compressed)?;
        let mut cluster = vec![0; self.header.cluster_bytes() as usize];
        let is_whole = match self.header.compression {
            Compression::Zlib => inflate(&compressed, &mut cluster),
            Compression::Zstd => unzstd(&compressed, &mut cluster),
        };
        if !is_whole {
            return Err(damaged("a compressed cluster cannot be decompressed"));
        }
        Ok(cluster)
    }
}

/// Fills the cluster; false if that is not possible. What follows the stream is ignored.
fn inflate(compressed: &[u8], cluster: &mut [u8]) -> bool {
    let mut stream = Decompress::new(false);
    let ended = stream.decompress(compressed, cluster, FlushDecompress::Finish);
    ended.is_ok() && stream.total_out() == cluster.len() as u64
}

/// The same. The window is the cluster itself, so a frame that claims a large one takes no memory.
fn unzstd(compressed: &[u8], cluster: &mut [u8]) -> bool {
    let frame = zstd_safe::find_frame_compressed_size(compressed).ok();
    let frame = frame.and_then(|bytes| compressed.get(..bytes));
    frame.is_some_and(|frame| zstd_safe::decompress(cluster, frame) == Ok(cluster.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_is_too_short_or_too_long_is_refused() {
        let content = b"0123456789".repeat(100);
        let frame = zstd::bulk::compress(&content, 3).unwrap();
        let padded = [&frame[..], &[0xaa; 100]].concat();
        for (bytes, is_right) in [(999, false), (1000, true), (1001, false)] {
            assert_eq!(unzstd(&padded, &mut vec![0; bytes]), is_right, "{bytes}");
        }
        let mut deflated = Vec::with_capacity(2000);
        let mut stream = flate2::Compress::new(flate2::Compression::fast(), false);
        stream.compress_vec(&content, &mut deflated, flate2::FlushCompress::Finish).unwrap();
        deflated.extend([0xaa; 100]);
        let mut cluster = vec![0; 1000];
        assert!(inflate(&deflated, &mut cluster) && cluster == content);
        assert!(!inflate(&deflated, &mut [0; 1001]));
        for end in 0..30 {
            assert!(!inflate(&deflated[..end.min(10)], &mut cluster));
            assert!(!unzstd(&frame[..end.min(frame.len() - 1)], &mut cluster));
        }
    }
}
