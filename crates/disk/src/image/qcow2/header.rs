//! The header of a qcow2 image, with its extensions.
//!
//! The source of all numbers is the specification "qcow2" in QEMU's documentation.

use std::path::Path;

use crate::fields::{be16, be32, be64, byte, part, until_nul};
use crate::image::error::{ImageError, ImageResult};
use crate::read::ReadAt;
use crate::understood::image as words;

pub(super) const MAGIC: &[u8; 4] = b"QFI\xfb";
/// Bytes of the header of version 2; that of version 3 says its own length.
const V2_BYTES: usize = 72;
const V3_BYTES: usize = 104;
/// The largest table of the first level: QEMU's limit too.
const L1_BYTES_MAX: u64 = 32 << 20;
const NAME_BYTES_MAX: usize = 1023;

/// Incompatible features, by bit.
const CORRUPT: u64 = 1 << 1;
const DATA_FILE: u64 = 1 << 2;
const COMPRESSION: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;

/// Features that a program which does not know them clears when it writes.
const BITMAPS: u64 = 1 << 0;

/// Types of extensions.
const END: u32 = 0;
const BACKING_FORMAT: u32 = 0xe279_2aca;
const FEATURE_NAMES: u32 = 0x6803_f857;
const BITMAP_DIRECTORY: u32 = 0x2385_2875;
const DATA_FILE_NAME: u32 = 0x4441_5441;

/// What the header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub version: u32,
    /// From 9 to 21.
    pub cluster_bits: u32,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Where the table of the first level is; a multiple of the size of a cluster.
    pub l1_offset: u64,
    /// How many entries of it are used: as many as the disk needs.
    pub l1_entries: u64,
    pub backing: Option<Backing>,
    /// The clusters are in another file. The name is absent in some.
    pub data_file: Option<Option<String>>,
    pub compression: Compression,
    /// Entries of the second level have 16 bytes, and say it of each 32nd of a cluster.
    pub has_subclusters: bool,
    pub bitmaps: Option<BitmapDirectory>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Backing {
    pub name: String,
    /// As QEMU calls it.
    pub format: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Zlib,
    Zstd,
}

/// Where the directory of bitmaps is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BitmapDirectory {
    pub count: u32,
    pub bytes: u64,
    pub offset: u64,
    /// The last program that wrote the image knew of bitmaps.
    pub is_current: bool,
}

impl Header {
    /// Reads and checks it. The path is for messages.
    pub(super) fn read(file: &dyn ReadAt, path: &Path) -> ImageResult<Self> {
        let head = front(file, V3_BYTES + 8, path)?;
        let damaged = |what, at| Err(ImageError::damaged(path, what, at));
        if head.get(..4) != Some(MAGIC) {
            return Err(ImageError::OtherFormat { path: path.into(), format: "qcow2" });
        }
        let version = be32(&head, 4);
        if !(2..=3).contains(&version) {
            return Err(ImageError::unsupported(path, format!("version {version} of qcow2")));
        }
        let cluster_bits = be32(&head, 20);
        if !(9..=21).contains(&cluster_bits) {
            return damaged("the size of clusters is invalid", 20);
        }
        let header_bytes = if version == 2 { V2_BYTES } else { be32(&head, 100) as usize };
        let cluster_bytes = 1 << cluster_bits;
        if version == 3 && !(V3_BYTES..=cluster_bytes).contains(&header_bytes) {
            return damaged("the length of the header is invalid", 100);
        }
        // Extensions and names are in the first cluster.
        let head = front(file, cluster_bytes, path)?;
        let extensions = Extensions::read(&head, header_bytes, path)?;
        let incompatible = if version == 2 { 0 } else { be64(&head, 72) };
        check_features(incompatible, &extensions, path)?;
        match be32(&head, 32) {
            0 => {}
            2 => return Err(ImageError::unsupported(path, "encryption by LUKS")),
            _ => return Err(ImageError::unsupported(path, "encryption")),
        }
        let compression_at = if header_bytes > V3_BYTES { V3_BYTES } else { head.len() };
        let compression = match byte(&head, compression_at) {
            0 => Compression::Zlib,
            1 if incompatible & COMPRESSION != 0 => Compression::Zstd,
            1 => return damaged("the type of compression lacks its feature", V3_BYTES as u64),
            other => {
                let what = format!("compression of type {other}");
                return Err(ImageError::unsupported(path, what));
            }
        };
        let has_subclusters = incompatible & EXTENDED_L2 != 0;
        // A 32nd of a cluster has at least one sector.
        if has_subclusters && cluster_bits < 14 {
            return damaged("clusters are too small for extended entries", 20);
        }
        let mut header = Self {
            version,
            cluster_bits,
            disk_bytes: be64(&head, 24),
            l1_offset: be64(&head, 40),
            l1_entries: 0,
            backing: backing(&head, &extensions, path)?,
            data_file: (incompatible & DATA_FILE != 0).then_some(extensions.data_file),
            compression,
            has_subclusters,
            bitmaps: extensions.bitmaps,
        };
        let is_current = version == 3 && be64(&head, 88) & BITMAPS != 0;
        header.bitmaps = header.bitmaps.map(|bitmaps| BitmapDirectory { is_current, ..bitmaps });
        header.l1_entries = header.checked_l1(be32(&head, 36), file.size(), path)?;
        Ok(header)
    }

    pub(super) fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Where the used entries of the first level end.
    pub(super) fn l1_end(&self) -> u64 {
        self.l1_offset + self.l1_entries * 8
    }

    /// Bytes of an entry of the second level.
    pub(super) fn entry_bytes(&self) -> u64 {
        if self.has_subclusters { 16 } else { 8 }
    }

    /// Bytes of the disk that one table of the second level describes, as a power of two.
    pub(super) fn table_reach_bits(&self) -> u32 {
        2 * self.cluster_bits - self.entry_bytes().ilog2()
    }

    /// How many entries of the first level the disk needs, if the table has as many.
    fn checked_l1(&self, said: u32, file_bytes: u64, path: &Path) -> ImageResult<u64> {
        let reach_bits = self.table_reach_bits();
        let needed = (self.disk_bytes >> reach_bits)
            + u64::from(self.disk_bytes & ((1 << reach_bits) - 1) != 0);
        let damaged = |what, at| Err(ImageError::damaged(path, what, at));
        // No position of a disk is negative in the interfaces of the system.
        if self.disk_bytes > i64::MAX as u64 || needed * 8 > L1_BYTES_MAX {
            return damaged("the disk is too large for its clusters", 24);
        }
        if u64::from(said) < needed {
            return damaged("the table of the first level is too small for the disk", 36);
        }
        if needed > 0 && !self.l1_offset.is_multiple_of(self.cluster_bytes()) {
            return damaged("the table of the first level is at an invalid place", 40);
        }
        let end = self.l1_offset.checked_add(needed * 8);
        if end.is_none_or(|end| end > file_bytes) {
            return damaged("the table of the first level is outside of the file", 40);
        }
        Ok(needed)
    }
}

/// Bytes from the front of the file, fewer if it is shorter.
fn front(file: &dyn ReadAt, bytes: usize, path: &Path) -> ImageResult<Vec<u8>> {
    let mut front = vec![0; bytes.min(usize::try_from(file.size()).unwrap_or(usize::MAX))];
    file.read_at(0, &mut front).map_err(|error| ImageError::io(path, error))?;
    Ok(front)
}

fn check_features(incompatible: u64, extensions: &Extensions, path: &Path) -> ImageResult<()> {
    let unknown = incompatible & !words::QCOW2.known;
    if unknown != 0 {
        let names = (0..64).filter(|bit| unknown & 1 << bit != 0).map(|bit| {
            let known = extensions.feature_names.iter().find(|(number, _)| *number == bit);
            known.map_or_else(|| format!("number {bit}"), |(_, name)| format!("{name:?}"))
        });
        let names: Vec<String> = names.collect();
        let plural = if names.len() == 1 { "" } else { "s" };
        let what = format!("the incompatible feature{plural} {}", names.join(", "));
        return Err(ImageError::unsupported(path, what));
    }
    if incompatible & CORRUPT != 0 {
        return Err(ImageError::MarkedCorrupt { path: path.into() });
    }
    // A dirty image (bit 0) has reference counts that are not right; reading needs none.
    Ok(())
}

fn backing(head: &[u8], extensions: &Extensions, path: &Path) -> ImageResult<Option<Backing>> {
    let (offset, bytes) = (be64(head, 8), be32(head, 16) as usize);
    if offset == 0 || bytes == 0 {
        return Ok(None);
    }
    let name = usize::try_from(offset).map_or(&[][..], |offset| part(head, offset, bytes));
    if bytes > NAME_BYTES_MAX || name.len() < bytes {
        return Err(ImageError::damaged(path, "the name of the backing file is invalid", 8));
    }
    let name = text(name, 8, path)?;
    Ok(Some(Backing { name, format: extensions.backing_format.clone() }))
}

/// What the extensions say.
#[derive(Debug, Default)]
struct Extensions {
    backing_format: Option<String>,
    data_file: Option<String>,
    bitmaps: Option<BitmapDirectory>,
    /// Incompatible features that the writer knew.
    feature_names: Vec<(u8, String)>,
}

impl Extensions {
    fn read(head: &[u8], mut at: usize, path: &Path) -> ImageResult<Self> {
        let mut found = Self::default();
        // Before the end, or before the name of the backing file, which follows it.
        let name = usize::try_from(be64(head, 8)).unwrap_or(0);
        let end = if name == 0 { head.len() } else { name.min(head.len()) };
        while at + 8 <= end {
            let (kind, bytes) = (be32(head, at), be32(head, at + 4) as usize);
            if kind == END {
                break;
            }
            let content = part(head, at + 8, bytes);
            if bytes > end - at - 8 {
                let what = "an extension of the header is longer than the header";
                return Err(ImageError::damaged(path, what, at as u64));
            }
            match kind {
                BACKING_FORMAT => found.backing_format = Some(text(content, at, path)?),
                DATA_FILE_NAME => found.data_file = Some(text(content, at, path)?),
                BITMAP_DIRECTORY => {
                    found.bitmaps = Some(BitmapDirectory {
                        count: be32(content, 0),
                        bytes: be64(content, 8),
                        offset: be64(content, 16),
                        is_current: false,
                    });
                }
                FEATURE_NAMES => found.feature_names = feature_names(content),
                _ => {}
            }
            at += 8 + bytes.next_multiple_of(8);
        }
        Ok(found)
    }
}

/// The names of incompatible features, of which there are 64.
fn feature_names(content: &[u8]) -> Vec<(u8, String)> {
    const ENTRY_BYTES: usize = 48;
    let entries = content.chunks_exact(ENTRY_BYTES).filter(|entry| byte(entry, 0) == 0).take(64);
    let name = |entry| String::from_utf8_lossy(until_nul(part(entry, 2, 46))).into_owned();
    entries.map(|entry| (byte(entry, 1), name(entry))).collect()
}

fn text(bytes: &[u8], at: usize, path: &Path) -> ImageResult<String> {
    let is_name = |name: &String| !name.contains('\0');
    let name = String::from_utf8(bytes.to_vec()).ok().filter(is_name);
    name.filter(|name| name.len() <= NAME_BYTES_MAX)
        .ok_or_else(|| ImageError::damaged(path, "a name in the header is invalid", at as u64))
}

/// An entry of a directory of bitmaps, without its name and what else follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BitmapEntry {
    pub table_offset: u64,
    pub table_entries: u32,
    pub flags: u32,
    pub kind: u8,
    pub granularity_bits: u8,
    pub name_bytes: u16,
    pub extra_bytes: u32,
}

impl BitmapEntry {
    pub(super) const BYTES: usize = 24;

    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            table_offset: be64(bytes, 0),
            table_entries: be32(bytes, 8),
            flags: be32(bytes, 12),
            kind: byte(bytes, 16),
            granularity_bits: byte(bytes, 17),
            name_bytes: be16(bytes, 18),
            extra_bytes: be32(bytes, 20),
        }
    }
}
