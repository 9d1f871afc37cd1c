//! Numbers at known places of a structure.
//!
//! Behind the end of the slice everything is zero, so that no length of a disk's can make a reader
//! panic. The callers have read whole sectors or blocks and bound what they take from the disk.

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

/// The byte at `at`.
pub(crate) fn byte(bytes: &[u8], at: usize) -> u8 {
    let [byte] = array(bytes, at);
    byte
}

/// Two bytes, little-endian.
pub(crate) fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

/// Four bytes, little-endian.
pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// Eight bytes, little-endian.
pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// Two bytes, big-endian.
#[expect(clippy::big_endian_bytes, reason = "the journal's byte order")]
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

/// Four bytes, big-endian.
#[expect(clippy::big_endian_bytes, reason = "the journal's byte order")]
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

/// Eight bytes, big-endian.
#[expect(clippy::big_endian_bytes, reason = "the journal's byte order")]
pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

/// Sixteen bytes: a UUID as it is stored.
pub(crate) fn uuid(bytes: &[u8], at: usize) -> [u8; 16] {
    array(bytes, at)
}

/// The part that begins at `at`, of at most `count` bytes.
pub(crate) fn part(bytes: &[u8], at: usize, count: usize) -> &[u8] {
    let rest = bytes.get(at..).unwrap_or_default();
    &rest[..count.min(rest.len())]
}

/// Bytes up to the first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}
