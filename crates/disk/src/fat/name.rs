//! The names of a FAT directory: short ones in the code page of a PC, long ones in UTF-16.

use crate::wide;

/// What the upper half of a byte means. Which code page a machine had the volume does not say; this
/// is the one that Linux takes. Names with other letters than ASCII's have a long form too.
const CODE_PAGE_437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒ\
         áíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐\
         └┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀\
         αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// In the entry, the base of the name is in lower case, or its extension is.
const LOWER_BASE: u8 = 0x08;
const LOWER_EXTENSION: u8 = 0x10;

/// The name in an entry, or the volume's label: eight bytes, a dot that is not stored, and three.
pub(super) fn short(stored: &[u8; 11], case: u8) -> Vec<u8> {
    let (base, extension) = stored.split_at(8);
    let mut base = base.to_vec();
    // Deleted entries begin with this byte, so names that do begin with another.
    if base[0] == 0x05 {
        base[0] = 0xe5;
    }
    let mut name = part(&base, case & LOWER_BASE != 0);
    let extension = part(extension, case & LOWER_EXTENSION != 0);
    if !extension.is_empty() {
        name.push('.');
        name.push_str(&extension);
    }
    name.into_bytes()
}

/// A label, in which no dot is meant.
pub(super) fn label(stored: &[u8; 11]) -> Vec<u8> {
    part(stored, false).into_bytes()
}

fn part(bytes: &[u8], is_lower: bool) -> String {
    let end = bytes.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
    let chars = bytes[..end].iter().map(|&byte| match byte {
        0..0x80 => byte.into(),
        _ => CODE_PAGE_437.chars().nth(usize::from(byte - 0x80)).unwrap_or('?'),
    });
    if is_lower { chars.flat_map(char::to_lowercase).collect() } else { chars.collect() }
}

/// The checksum of a short name, which each part of its long name has.
fn checksum(stored: &[u8; 11]) -> u8 {
    stored.iter().fold(0, |sum: u8, &byte| sum.rotate_right(1).wrapping_add(byte))
}

/// The parts of a long name, as they come: the last first.
#[derive(Debug, Default)]
pub(super) struct Long {
    units: Vec<u16>,
    /// Parts that are still missing.
    missing: u8,
    checksum: u8,
}

/// The most parts of a name: 255 units, 13 in each part.
const PARTS_MAX: u8 = 20;
const LAST: u8 = 0x40;
const PART_UNITS: usize = 13;

impl Long {
    /// Takes a part of a long name.
    pub(super) fn push(&mut self, slot: &[u8; 32]) {
        let (order, checksum) = (slot[0], slot[13]);
        if order & LAST != 0 {
            let parts = order & !LAST;
            let missing = if parts <= PARTS_MAX { parts } else { 0 };
            *self = Self { units: Vec::new(), missing, checksum };
        }
        if self.missing == 0 || order & !LAST != self.missing || checksum != self.checksum {
            self.clear();
            return;
        }
        let units = wide::units(&slot[1..11]);
        let units = units.chain(wide::units(&slot[14..26])).chain(wide::units(&slot[28..32]));
        self.units.splice(0..0, units);
        self.missing -= 1;
    }

    /// Forgets what was taken.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The long name of the entry that follows; `None` if the parts are not all of its name.
    pub(super) fn take(&mut self, stored: &[u8; 11]) -> Option<Vec<u8>> {
        let long = std::mem::take(self);
        let is_whole = long.missing == 0 && long.units.len() >= PART_UNITS;
        (is_whole && long.checksum == checksum(stored))
            .then(|| wide::utf8(long.units.into_iter().take_while(|&unit| unit != 0)))
            .filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_as_linux_shows_them() {
        let check = |stored: &[u8; 11], case, name: &str| {
            assert_eq!(short(stored, case), name.as_bytes());
        };
        check(b"KERNEL  IMG", 0, "KERNEL.IMG");
        check(b"KERNEL  IMG", LOWER_BASE, "kernel.IMG");
        check(b"KERNEL  IMG", LOWER_BASE | LOWER_EXTENSION, "kernel.img");
        check(b"A B     X  ", 0, "A B.X");
        check(b"NODOT      ", 0, "NODOT");
        check(b"\x05\x9a\x81     TXT", 0, "σÜü.TXT");
        check(b"\x05\x9a\x81     TXT", LOWER_BASE, "σüü.TXT");
        assert_eq!(label(b"MY DISK 1  "), b"MY DISK 1");
        assert_eq!(CODE_PAGE_437.chars().count(), 128);
    }

    /// The parts of a long name.
    fn parts(name: &str, sum: u8) -> Vec<[u8; 32]> {
        let mut units: Vec<u16> = name.encode_utf16().collect();
        if !units.len().is_multiple_of(PART_UNITS) {
            units.push(0);
        }
        let count = units.len().div_ceil(PART_UNITS);
        units.resize(count * PART_UNITS, 0xffff);
        let mut parts: Vec<[u8; 32]> = units
            .chunks(PART_UNITS)
            .zip(1..)
            .map(|(units, order)| {
                let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
                let mut part = [0; 32];
                (part[0], part[11], part[13]) = (order, 0x0f, sum);
                part[1..11].copy_from_slice(&bytes[..10]);
                part[14..26].copy_from_slice(&bytes[10..22]);
                part[28..].copy_from_slice(&bytes[22..]);
                part
            })
            .collect();
        parts[count - 1][0] |= LAST;
        parts.reverse();
        parts
    }

    #[test]
    fn a_long_name_needs_all_its_parts_and_the_right_checksum() {
        let stored = b"LONGNA~1TXT";
        let sum = checksum(stored);
        let read = |parts: &[[u8; 32]]| {
            let mut long = Long::default();
            parts.iter().for_each(|part| long.push(part));
            long.take(stored)
        };
        let names = ["a", "thirteen uni.", "a name of more than thirteen units.txt", "Größe 𝄞"];
        let longest = "x".repeat(255);
        for name in names.into_iter().chain([&longest[..]]) {
            assert_eq!(read(&parts(name, sum)).unwrap(), name.as_bytes());
        }
        let whole = parts(names[2], sum);
        assert_eq!(whole.len(), 3);
        for missing in 0..whole.len() {
            let mut some = whole.clone();
            some.remove(missing);
            assert_eq!(read(&some), None, "{missing}");
        }
        assert_eq!(read(&parts(names[2], sum ^ 1)), None);
        let mut mixed = whole.clone();
        mixed[1][13] ^= 1;
        assert_eq!(read(&mixed), None);
        mixed = whole;
        mixed.swap(1, 2);
        assert_eq!(read(&mixed), None);
        let mut many = parts(&longest, sum);
        many[0][0] = LAST | 21;
        assert_eq!(read(&many), None);
    }
}
