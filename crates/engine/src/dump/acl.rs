//! Access control lists: from the bytes in which Linux keeps them as extended attributes to the
//! text form in tar archives.

use std::fmt::Write;

use strongroom_base::le::LeReader;

/// The attribute that holds the list of an entry.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that holds the list which a directory passes on to new entries.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The version of the attribute's bytes.
const VERSION: u32 = 2;

/// The list as `user::rwx,user:1000:r--,…`, owners by number; `None` if the bytes are invalid.
///
/// Source: `include/uapi/linux/posix_acl_xattr.h`: version (4), then entries of tag (2),
/// permissions (2) and owner (4), little-endian.
pub fn text(value: &[u8]) -> Option<String> {
    let mut fields = LeReader::new(value);
    if fields.u32().ok()? != VERSION {
        return None;
    }
    let mut text = String::new();
    while fields.remaining() > 0 {
        let tag = u16::from_le_bytes(fields.array().ok()?);
        let permissions = u16::from_le_bytes(fields.array().ok()?);
        let owner = fields.u32().ok()?;
        let (who, is_named) = match tag {
            0x01 => ("user", false),
            0x02 => ("user", true),
            0x04 => ("group", false),
            0x08 => ("group", true),
            0x10 => ("mask", false),
            0x20 => ("other", false),
            _ => return None,
        };
        let comma = if text.is_empty() { "" } else { "," };
        let letter = |bit: u16, letter| if permissions & bit != 0 { letter } else { '-' };
        let (r, w, x) = (letter(4, 'r'), letter(2, 'w'), letter(1, 'x'));
        let owner = if is_named { owner.to_string() } else { String::new() };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{who}:{owner}:{r}{w}{x}");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn a_list_reads_as_getfacl_tells_it() {
        let mut value = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, owner) in [
            (1_u16, 7_u16, u32::MAX),
            (2, 4, 1000),
            (4, 5, u32::MAX),
            (8, 2, 50),
            (16, 7, u32::MAX),
            (32, 0, u32::MAX),
        ] {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&permissions.to_le_bytes());
            value.extend_from_slice(&owner.to_le_bytes());
        }
        let list = "user::rwx,user:1000:r--,group::r-x,group:50:-w-,mask::rwx,other::---";
        assert_eq!(text(&value).as_deref(), Some(list));
        for torn in [&value[..3], &value[..7], &[3, 0, 0, 0], &[2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]]
        {
            assert_eq!(text(torn), None);
        }
    }
}
