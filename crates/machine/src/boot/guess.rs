//! What a machine is, if no description of it is stored: as the start of its first disk suggests.

use crate::{Description, Firmware, FirmwareFile};

/// Bytes of the disk that are looked at.
const SECTOR: usize = 512;
/// Programs of a BIOS begin here; a disk that only UEFI starts has zeros.
const BOOT_CODE_BYTES: usize = 440;
const ENTRIES_MAX: usize = 128;
const ENTRY_BYTES: usize = 128;
const EFI_SYSTEM: [u8; 16] = [
    0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b,
];

impl Description {
    /// How many bytes of a disk [`guess`] looks at.
    pub const GUESS_BYTES: usize = 2 * SECTOR + ENTRIES_MAX * ENTRY_BYTES;
}

/// A description of a machine of which only the first bytes of its first disk are known: 1 GiB of
/// memory, all disks virtio. With a GUID partition table it is a q35 machine, and otherwise an
/// older PC. If that table has an EFI system partition and the disk has no program for a BIOS, UEFI
/// starts it.
pub fn guess(start: &[u8]) -> Description {
    let mut description = Description::new();
    let is_gpt = start.get(SECTOR..SECTOR + 8) == Some(b"EFI PART");
    description.machine = Some(if is_gpt { "q35" } else { "pc" }.to_owned());
    description.memory_bytes = Some(1 << 30);
    let has_boot_code = start.iter().take(BOOT_CODE_BYTES).any(|byte| *byte != 0);
    if is_gpt && !has_boot_code && has_efi_system(start) {
        let code =
            FirmwareFile { name: String::new(), path: String::new(), format: "raw".to_owned() };
        description.firmware = Firmware::Uefi { code, variables: None };
    }
    description
}

fn has_efi_system(start: &[u8]) -> bool {
    let entries = start.get(2 * SECTOR..).unwrap_or_default();
    entries.chunks_exact(ENTRY_BYTES).take(ENTRIES_MAX).any(|entry| entry.starts_with(&EFI_SYSTEM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_which_machine() {
        let machine = |start: &[u8]| {
            let guessed = guess(start);
            (guessed.machine.unwrap(), matches!(guessed.firmware, Firmware::Uefi { .. }))
        };
        let mut disk = vec![0; Description::GUESS_BYTES];
        assert_eq!(machine(&disk), ("pc".to_owned(), false));
        disk[SECTOR..SECTOR + 8].copy_from_slice(b"EFI PART");
        assert_eq!(machine(&disk), ("q35".to_owned(), false));
        disk[1024 + 128..1024 + 144].copy_from_slice(&EFI_SYSTEM);
        assert_eq!(machine(&disk), ("q35".to_owned(), true));
        disk[0] = 0xeb;
        assert_eq!(machine(&disk), ("q35".to_owned(), false));
        for length in [0, 1, 511, 519, 520, 1024, 1100] {
            machine(&disk[..length]);
        }
    }
}
