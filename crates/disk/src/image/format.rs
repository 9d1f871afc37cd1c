//! In which format an image is: by its name, or by the magic numbers of its first and last bytes.

use std::fmt;
use std::str::FromStr;

use super::RawImage;
use crate::fields::{le32, part};
use crate::read::ReadAt;

/// The format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// The bytes of the disk as they are.
    Raw,
    /// QEMU's own, version 2 or 3.
    Qcow2,
    /// VMware's.
    Vmdk,
    /// Hyper-V's.
    Vhdx,
    /// Virtual PC's, and that of older Hyper-V and Azure; QEMU calls it `vpc`.
    Vhd,
}

/// What the bytes of a file say of its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recognized {
    Known(Format),
    /// A format of which we know the magic number only.
    Foreign(&'static str),
}

impl Format {
    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
            Self::Vhdx => "vhdx",
            Self::Vhd => "vhd",
        }
    }

    /// The format that QEMU calls by this name, in the header of an image for example.
    pub fn of_qemu(name: &str) -> Option<Self> {
        match name {
            // Older versions wrote the name of the driver that reads the bytes.
            "raw" | "file" | "host_device" => Some(Self::Raw),
            "vpc" => Some(Self::Vhd),
            other => other.parse().ok(),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no format of an image: name raw, qcow2, vmdk, vhdx or vhd")]
pub struct UnknownFormat(pub String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let all = [Self::Raw, Self::Qcow2, Self::Vmdk, Self::Vhdx, Self::Vhd];
        let found = all.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| UnknownFormat(name.into()))
    }
}

/// The format of the image that a file or a device contains, if it contains one whose bytes are not
/// those of a disk. LUKS is not named: a disk can begin so as well.
///
/// # Errors
///
/// It cannot be read.
pub fn container_of(path: &std::path::Path) -> std::io::Result<Option<&'static str>> {
    Ok(match recognize(&RawImage::open(path)?)? {
        Recognized::Known(Format::Raw) | Recognized::Foreign(LUKS) => None,
        Recognized::Known(format) => Some(format.name()),
        Recognized::Foreign(name) => Some(name),
    })
}

const SECTOR: usize = 512;
const LUKS: &str = "LUKS";

/// What the bytes of a file say. Anything else is raw.
pub(super) fn recognize(file: &dyn ReadAt) -> std::io::Result<Recognized> {
    use Recognized::{Foreign, Known};
    let sector = |offset: u64| {
        let left = file.size().saturating_sub(offset).min(SECTOR as u64);
        let mut bytes = vec![0; left as usize];
        file.read_at(offset, &mut bytes).map(|()| bytes)
    };
    let head = sector(0)?;
    let begins = |magic: &[u8]| head.starts_with(magic);
    Ok(if begins(b"QFI\xfb") {
        // Version 1 is another format, called qcow.
        if head.get(4..8) == Some(&[0, 0, 0, 1]) { Foreign("qcow") } else { Known(Format::Qcow2) }
    } else if begins(b"KDMV") || begins(b"COWD") || begins(b"# Disk DescriptorFile") {
        Known(Format::Vmdk)
    } else if begins(b"vhdxfile") {
        Known(Format::Vhdx)
    } else if begins(b"QED\0") {
        Foreign("QED")
    } else if begins(b"WithoutFreeSpace") || begins(b"WithouFreSpacExt") {
        Foreign("Parallels")
    } else if begins(b"LUKS\xba\xbe") {
        Foreign(LUKS)
    } else if begins(b"Bochs Virtual HD Image\0") {
        Foreign("Bochs")
    } else if le32(&head, 64) == 0xbeda_107f {
        Foreign("VDI")
    } else {
        // A fixed VHD has nothing but a last sector, in old versions of 511 bytes.
        let tail = sector(file.size().saturating_sub(SECTOR as u64))?;
        if tail.starts_with(b"conectix") || part(&tail, 1, 8) == b"conectix" {
            Known(Format::Vhd)
        } else if tail.starts_with(b"koly") {
            Foreign("DMG")
        } else {
            Known(Format::Raw)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magic_numbers_decide() {
        let of = |at: usize, magic: &[u8]| {
            let mut file = vec![0; 2000];
            file[at..at + magic.len()].copy_from_slice(magic);
            recognize(&file).unwrap()
        };
        let known = [
            (0, &b"QFI\xfb\0\0\0\x03"[..], Format::Qcow2),
            (0, b"KDMV", Format::Vmdk),
            (0, b"# Disk DescriptorFile\n", Format::Vmdk),
            (0, b"vhdxfile", Format::Vhdx),
            (2000 - 512, b"conectix", Format::Vhd),
            (2000 - 511, b"conectix", Format::Vhd),
            (1, b"KDMV", Format::Raw),
        ];
        for (at, magic, format) in known {
            assert_eq!(of(at, magic), Recognized::Known(format));
        }
        let foreign = [
            (0, &b"QFI\xfb\0\0\0\x01"[..], "qcow"),
            (0, b"QED\0", "QED"),
            (64, &[0x7f, 0x10, 0xda, 0xbe], "VDI"),
            (0, b"LUKS\xba\xbe", "LUKS"),
        ];
        for (at, magic, name) in foreign {
            assert_eq!(of(at, magic), Recognized::Foreign(name));
        }
        for bytes in [0, 1, 511, 512] {
            assert_eq!(recognize(&vec![0; bytes]).unwrap(), Recognized::Known(Format::Raw));
        }
    }

    #[test]
    fn what_contains_a_disk_is_named_and_a_disk_is_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (bytes, container) in [
            (&b"QFI\xfb\0\0\0\x03"[..], Some("qcow2")),
            (b"QED\0", Some("QED")),
            (b"LUKS\xba\xbe", None),
            (b"\xeb\x63\x90", None),
            (b"", None),
        ] {
            std::fs::write(file.path(), bytes).unwrap();
            assert_eq!(container_of(file.path()).unwrap(), container);
        }
    }

    #[test]
    fn names_are_ours_and_those_of_qemu() {
        assert_eq!("qcow2".parse(), Ok(Format::Qcow2));
        assert_eq!("vpc".parse::<Format>(), Err(UnknownFormat("vpc".into())));
        assert_eq!(Format::of_qemu("vpc"), Some(Format::Vhd));
        assert_eq!(Format::of_qemu("host_device"), Some(Format::Raw));
        assert_eq!(Format::of_qemu("qed"), None);
    }
}
