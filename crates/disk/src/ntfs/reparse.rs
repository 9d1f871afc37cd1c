//! Files that Windows does not open as they are: links, and content that is kept in another form.

use crate::fields::{le16, le32, part};
use crate::file_system::NodeKind;
use crate::wide;

const MOUNT_POINT: u32 = 0xa000_0003;
const SYMLINK: u32 = 0xa000_000c;
const LX_SYMLINK: u32 = 0xa000_001d;
const LX_SOCKET: u32 = 0x8000_0023;
const LX_FIFO: u32 = 0x8000_0024;
const WOF: u32 = 0x8000_0017;
const DEDUP: u32 = 0x8000_0013;
const HSM: [u32; 2] = [0xc000_0004, 0x8000_0006];

/// What a symbolic link begins with that Services for Unix or ntfs-3g made.
const INTERIX_LINK: &[u8] = b"IntxLNK\x01";
/// Their links are not longer.
pub(super) const INTERIX_BYTES_MAX: u64 = 8 + 2 * 4096;

/// What a reparse point makes of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reparse {
    /// It is another kind of file.
    Is(NodeKind),
    /// The content is not the file's data.
    Elsewhere(&'static str),
    /// It means nothing to us: the file is as any other.
    Other,
}

/// What the value of a reparse point means.
pub(super) fn reparse(value: &[u8]) -> Reparse {
    // Behind the tag and the length are offsets and lengths of two names: the one that is followed,
    // and the one that is shown.
    let data = part(value, 8, le16(value, 4).into());
    let name = |names: usize| {
        let name = part(data, names + usize::from(le16(data, 0)), le16(data, 2).into());
        wide::utf8(wide::units(name))
    };
    match le32(value, 0) {
        SYMLINK => Reparse::Is(NodeKind::Symlink { target: target(&name(12)) }),
        MOUNT_POINT => Reparse::Is(NodeKind::Symlink { target: target(&name(8)) }),
        LX_SYMLINK => {
            let target = data.get(4..).unwrap_or_default().to_vec();
            Reparse::Is(NodeKind::Symlink { target })
        }
        LX_SOCKET => Reparse::Is(NodeKind::Socket),
        LX_FIFO => Reparse::Is(NodeKind::Fifo),
        WOF => Reparse::Elsewhere("content that Windows compressed as a whole (CompactOS, WOF)"),
        DEDUP => Reparse::Elsewhere("content that Windows Server deduplicated"),
        tag if HSM.contains(&tag) => Reparse::Elsewhere("content that was moved to other storage"),
        _ => Reparse::Other,
    }
}

/// The target of a link of Windows with slashes, without the prefix of the kernel's names:
/// `\??\C:\Users` is `C:/Users`, and `\??\UNC\server\share` is `//server/share`.
fn target(name: &[u8]) -> Vec<u8> {
    let kernels =
        [br"\??\".as_slice(), br"\\?\"].iter().find_map(|prefix| name.strip_prefix(*prefix));
    let path = match kernels.map(|path| path.strip_prefix(br"UNC\").ok_or(path)) {
        Some(Ok(share)) => [br"\\", share].concat(),
        Some(Err(path)) => path.to_vec(),
        None => name.to_vec(),
    };
    path.into_iter().map(|byte| if byte == b'\\' { b'/' } else { byte }).collect()
}

/// The target of a link of Services for Unix or of ntfs-3g, which is the content of a system file.
pub(super) fn interix_target(content: &[u8]) -> Option<Vec<u8>> {
    content.strip_prefix(INTERIX_LINK).map(|units| wide::utf8(wide::units(units)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(tag: u32, flags: Option<u32>, name: &str) -> Vec<u8> {
        let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut data = Vec::new();
        for number in [0, units.len(), units.len(), 0] {
            data.extend((number as u16).to_le_bytes());
        }
        data.extend(flags.iter().flat_map(|flags| flags.to_le_bytes()));
        data.extend(units);
        let head = [tag.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat();
        [head, data].concat()
    }

    #[test]
    fn targets_have_slashes() {
        let link = |value: Vec<u8>| match reparse(&value) {
            Reparse::Is(NodeKind::Symlink { target }) => String::from_utf8(target).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(link(value(SYMLINK, Some(1), r"..\other\file")), "../other/file");
        assert_eq!(link(value(SYMLINK, Some(0), r"\??\C:\Users\Ä")), "C:/Users/Ä");
        assert_eq!(link(value(SYMLINK, Some(0), r"\??\UNC\host\share")), "//host/share");
        assert_eq!(link(value(MOUNT_POINT, None, r"\??\C:\ProgramData")), "C:/ProgramData");
        let lx = [&LX_SYMLINK.to_le_bytes()[..], &[10, 0, 0, 0, 2, 0, 0, 0], b"target"].concat();
        assert_eq!(link(lx), "target");
    }

    #[test]
    fn content_elsewhere_is_said_and_noise_ends() {
        assert!(matches!(reparse(&WOF.to_le_bytes()), Reparse::Elsewhere(_)));
        assert_eq!(reparse(&0x8000_001b_u32.to_le_bytes()), Reparse::Other);
        assert_eq!(reparse(&[]), Reparse::Other);
        for tag in [SYMLINK, MOUNT_POINT, LX_SYMLINK] {
            let whole = value(tag, None, "name");
            (0..whole.len()).for_each(|end| drop(reparse(&whole[..end])));
            let lies = [&whole[..8], &[0xff; 20]].concat();
            assert!(matches!(reparse(&lies), Reparse::Is(_)));
        }
    }
}
