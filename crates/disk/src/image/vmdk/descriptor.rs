//! The text that says of which extents a disk is made.

use std::path::Path;

use crate::fields::until_nul;
use crate::image::error::{ImageError, ImageResult};

/// A disk of 8 TiB in extents of 2 GiB has twice this.
const EXTENTS_MAX: usize = 2048;
/// Sectors of a disk that is as long as a file can be.
const SECTORS_MAX: u64 = (i64::MAX / 512) as u64;
/// The identity of the parent of a disk that has none.
const NO_PARENT: &str = "ffffffff";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// In the order of the disk.
    pub extents: Vec<Extent>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Extent {
    pub sectors: u64,
    pub storage: Storage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Storage {
    /// From this sector of the file on.
    Flat {
        name: String,
        sector: u64,
    },
    Sparse {
        name: String,
    },
    Zeros,
}

impl Descriptor {
    /// Reads the text. The path is for messages.
    pub(super) fn read(bytes: &[u8], path: &Path) -> ImageResult<Self> {
        let damaged = |what| ImageError::damaged(path, what, 0);
        if !bytes.starts_with(b"# Disk DescriptorFile") {
            return Err(ImageError::OneExtent { path: path.into() });
        }
        // Names in other encodings than UTF-8 are not found, and named in the message.
        let text = String::from_utf8_lossy(until_nul(bytes));
        let (mut extents, mut sectors) = (Vec::new(), 0);
        for line in text.lines().map(str::trim) {
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            if key.trim().eq_ignore_ascii_case("parentCID")
                && !value.trim().eq_ignore_ascii_case(NO_PARENT)
            {
                return Err(ImageError::unsupported(path, "a parent disk"));
            }
            let access = line.split_whitespace().next().unwrap_or_default();
            if !["RW", "RDONLY", "NOACCESS"].contains(&access) {
                continue;
            }
            let extent = extent(line, path)?;
            sectors = extent.sectors.saturating_add(sectors);
            if sectors > SECTORS_MAX || extents.len() == EXTENTS_MAX {
                return Err(damaged("the list of extents is too long"));
            }
            extents.push(extent);
        }
        if extents.is_empty() {
            return Err(damaged("the list of extents is empty"));
        }
        Ok(Self { extents })
    }
}

/// A line such as `RW 4192256 FLAT "disk-f001.vmdk" 0`.
fn extent(line: &str, path: &Path) -> ImageResult<Extent> {
    let damaged = || ImageError::damaged(path, "a line of the list of extents is invalid", 0);
    let (fields, rest) = line.split_once('"').unwrap_or((line, ""));
    let (name, rest) = rest.rsplit_once('"').unwrap_or((rest, ""));
    let mut fields = fields.split_whitespace().skip(1);
    let sectors = fields.next().and_then(|sectors| sectors.parse().ok()).ok_or_else(damaged)?;
    let kind = fields.next().unwrap_or_default();
    let is_named = !name.is_empty() && !name.contains('\0');
    let storage = match kind {
        "ZERO" => Storage::Zeros,
        _ if !is_named => return Err(damaged()),
        "FLAT" | "VMFS" => {
            let sector = rest.trim();
            let sector = if sector.is_empty() { Some(0) } else { sector.parse().ok() };
            let sector = sector.filter(|&sector| sector <= SECTORS_MAX).ok_or_else(damaged)?;
            Storage::Flat { name: name.into(), sector }
        }
        "SPARSE" => Storage::Sparse { name: name.into() },
        other => {
            return Err(ImageError::unsupported(path, format!("an extent of the type {other:?}")));
        }
    };
    Ok(Extent { sectors, storage })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> ImageResult<Descriptor> {
        Descriptor::read(format!("# Disk DescriptorFile\n{text}").as_bytes(), Path::new("disk"))
    }

    #[test]
    fn lines_of_all_kinds() {
        let text = "version=1\nparentCID = FFFFFFFF\n\n# Extents\n RW 10 FLAT \"a b.vmdk\" 7\r\n\
                    RDONLY 20 SPARSE \"c\"\nRW 3 ZERO\nRW 4 VMFS \"d\"\nddb.x = \"RW\"\n";
        let storages = [
            (10, Storage::Flat { name: "a b.vmdk".into(), sector: 7 }),
            (20, Storage::Sparse { name: "c".into() }),
            (3, Storage::Zeros),
            (4, Storage::Flat { name: "d".into(), sector: 0 }),
        ];
        let extents = storages.map(|(sectors, storage)| Extent { sectors, storage });
        assert_eq!(read(text).unwrap().extents, extents);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for text in [
            "",
            "RW x FLAT \"a\" 0",
            "RW 1 FLAT a 0",
            "RW 1 FLAT \"\" 0",
            "RW 1 FLAT \"a\" -1",
            "RW 1 FLAT \"a\" 99999999999999999",
            "RW 99999999999999999 ZERO",
            "RW 1 VMFSSPARSE \"a\"",
            "RW 1 ZERO\nparentCID=1234",
            "RW",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read(&"RW 1 ZERO\n".repeat(2049)).is_err());
        assert!(read(&"RW 1 ZERO\n".repeat(2048)).is_ok());
        assert!(Descriptor::read(b"RW 1 ZERO\n", Path::new("disk")).is_err());
    }
}
