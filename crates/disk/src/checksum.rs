//! The checksums of foreign formats.
//!
//! Each function continues from `state`, without the inversions at the start and the end that some
//! formats add.

/// CRC-32C, reflected: ext4 and its journal.
pub(crate) fn crc32c(state: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!state, bytes)
}

/// CRC-32 (IEEE), reflected: GPT and LVM.
pub(crate) fn crc32(state: u32, bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(state, |state, &byte| (state >> 8) ^ REFLECTED_32[usize::from((state as u8) ^ byte)])
}

/// CRC-32 (IEEE), most significant bit first: the first version of the journal's checksums.
pub(crate) fn crc32_msb_first(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |state, &byte| {
        (state << 8) ^ STRAIGHT_32[usize::from((state >> 24) as u8 ^ byte)]
    })
}

/// CRC-16 (ANSI), reflected: group descriptors of early ext4.
pub(crate) fn crc16(state: u16, bytes: &[u8]) -> u16 {
    bytes
        .iter()
        .fold(state, |state, &byte| (state >> 8) ^ REFLECTED_16[usize::from((state as u8) ^ byte)])
}

const REFLECTED_32: [u32; 256] = reflected_32();
const STRAIGHT_32: [u32; 256] = straight_32();
const REFLECTED_16: [u16; 256] = reflected_16();

const fn reflected_32() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 != 0 { (value >> 1) ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

const fn straight_32() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            value = if value >> 31 != 0 { (value << 1) ^ 0x04c1_1db7 } else { value << 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

const fn reflected_16() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u16;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 != 0 { (value >> 1) ^ 0xa001 } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_the_check_value_of_the_catalogue() {
        let check = b"123456789";
        assert_eq!(!crc32c(!0, check), 0xe306_9283, "CRC-32/ISCSI");
        assert_eq!(!crc32(!0, check), 0xcbf4_3926, "CRC-32/ISO-HDLC");
        assert_eq!(crc32_msb_first(!0, check), 0x0376_e6e7, "CRC-32/MPEG-2");
        assert_eq!(crc16(!0, check), 0x4b37, "CRC-16/MODBUS");
    }
}
