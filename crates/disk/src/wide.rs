//! Names in UTF-16, as FAT, exFAT and NTFS have them.

/// The UTF-8 of little-endian UTF-16. Half of a surrogate pair, which these file systems allow in
/// names, gets the three bytes that UTF-8 would have for it, so that different names stay different.
pub(crate) fn utf8(units: impl IntoIterator<Item = u16>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for unit in char::decode_utf16(units) {
        match unit {
            Ok(char) => bytes.extend(char.encode_utf8(&mut [0; 4]).bytes()),
            Err(half) => {
                let half = half.unpaired_surrogate();
                let (middle, low) = ((half >> 6) as u8 & 0x3f, half as u8 & 0x3f);
                bytes.extend([0xed, 0x80 | middle, 0x80 | low]);
            }
        }
    }
    bytes
}

/// The units of little-endian bytes; half a unit at the end is left out.
pub(crate) fn units(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_utf8_and_half_pairs_stay_different() {
        let text = "Größe 𝄞 €";
        assert_eq!(utf8(text.encode_utf16()), text.as_bytes());
        assert_eq!(utf8([0xd834]), [0xed, 0xa0, 0xb4]);
        assert_eq!(utf8([0xdd1e, 0x41]), [0xed, 0xb4, 0x9e, 0x41]);
        assert_eq!(utf8(units(&[0x41, 0, 0x42])), b"A");
        let all = (0xd800..=0xdfff).map(|half| utf8([half]));
        assert_eq!(all.collect::<std::collections::BTreeSet<_>>().len(), 2048);
    }
}
