//! Swap areas: a page of header, which identifies the area, and pages that nothing needs after the
//! machine was switched off.

use std::ops::Range;

use crate::error::Result;
use crate::fields::{le32, part, until_nul, uuid};
use crate::read::{ReadAt, read_vec};

/// The sizes of a page on any machine that Linux runs on.
const PAGE_BYTES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// The signature is the end of the first page.
const SIGNATURE_BYTES: u64 = 10;
/// Where the header begins in the first page; before it is room for a boot sector.
const HEADER: usize = 1024;

/// A swap area, found by its header.
///
/// A file that has such a header need not be a swap area in use: see [`swap_files`](crate::swap_files).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    /// The page size of the machine that made it.
    pub page_bytes: u64,
    /// The label; often none.
    pub label: Vec<u8>,
    /// The UUID as it is stored.
    pub uuid: [u8; 16],
    /// It holds the memory of a suspended machine: all of it is needed.
    pub hibernated: bool,
    /// Bytes that nothing needs: all but the page of the header. Empty if it is hibernated.
    pub free: Range<u64>,
}

impl Swap {
    /// The swap area that a volume or a file is; `None` if it is something else.
    pub fn find(reader: &dyn ReadAt) -> Result<Option<Self>> {
        for page_bytes in PAGE_BYTES {
            if reader.size() < 2 * page_bytes {
                break;
            }
            let at = page_bytes - SIGNATURE_BYTES;
            let signature = read_vec(reader, at, SIGNATURE_BYTES as usize)?;
            let hibernated = match &signature[..] {
                b"SWAPSPACE2" => false,
                // The kernel, uswsusp and TuxOnIce replace the signature while they keep memory.
                b"S1SUSPEND\0" | b"S2SUSPEND\0" | b"ULSUSPEND\0" | b"LINHIB0001" => true,
                other if other.starts_with(b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c") => true,
                _ => continue,
            };
            let page = read_vec(reader, 0, page_bytes as usize)?;
            return Ok(Self::of_header(&page[HEADER..], page_bytes, hibernated, reader.size()));
        }
        Ok(None)
    }

    fn of_header(header: &[u8], page_bytes: u64, hibernated: bool, bytes: u64) -> Option<Self> {
        // The signature alone could be in any file; the version and the size follow from each other.
        let (version, last_page) = (le32(header, 0), le32(header, 4));
        let end = (u64::from(last_page) + 1).checked_mul(page_bytes)?;
        if version != 1 || last_page == 0 || (end > bytes && !hibernated) {
            return None;
        }
        let free = if hibernated { 0..0 } else { page_bytes..end };
        let label = until_nul(part(header, 28, 16)).to_vec();
        Some(Self { page_bytes, label, uuid: uuid(header, 12), hibernated, free })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(page_bytes: usize, pages: usize) -> Vec<u8> {
        let mut area = vec![0; page_bytes * pages];
        area[page_bytes - 10..page_bytes].copy_from_slice(b"SWAPSPACE2");
        area[1024] = 1;
        area[1028..1032].copy_from_slice(&(pages as u32 - 1).to_le_bytes());
        area[1036..1052].fill(7);
        area[1052..1056].copy_from_slice(b"swap");
        area
    }

    #[test]
    fn all_but_the_header_of_an_area_is_free() {
        for page_bytes in [4096, 16384, 65536] {
            let mut image = area(page_bytes, 5);
            image.extend([1; 1000]);
            let swap = Swap::find(&image).unwrap().unwrap();
            assert_eq!(swap.free, page_bytes as u64..5 * page_bytes as u64);
            assert_eq!((&swap.label[..], swap.uuid), (&b"swap"[..], [7; 16]));
        }
    }

    #[test]
    fn a_hibernated_machine_needs_all_of_it() {
        let mut image = area(4096, 5);
        image[4086..4096].copy_from_slice(b"S1SUSPEND\0");
        let swap = Swap::find(&image).unwrap().unwrap();
        assert!(swap.hibernated && swap.free.is_empty());
    }

    #[test]
    fn an_area_that_is_larger_than_its_volume_is_none() {
        let mut image = area(4096, 5);
        image.truncate(4 * 4096);
        assert_eq!(Swap::find(&image).unwrap(), None);
        assert_eq!(Swap::find(&vec![0; 100]).unwrap(), None);
        let mut image = area(4096, 5);
        image[1028..1032].fill(0xff);
        assert_eq!(Swap::find(&image).unwrap(), None);
        // Of a disk that was cut off, the machine is suspended all the same.
        let mut image = area(4096, 5);
        image.truncate(4 * 4096);
        image[4086..4096].copy_from_slice(b"S1SUSPEND\0");
        assert!(Swap::find(&image).unwrap().unwrap().hibernated);
    }
}
