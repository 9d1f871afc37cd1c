//! A physical volume of LVM2 with any text of its group: also one that LVM's own tools would not write.

const SECTOR_BYTES: usize = 512;
/// Where the metadata area begins, and the extents by a `pe_start` of 2048.
const AREA: usize = 4096;
const EXTENTS: usize = 1 << 20;
/// The UUID that the text has to name: 32 times `a`.
pub const PHYSICAL_ID: [u8; 32] = [b'a'; 32];

/// A physical volume of this many bytes, whose group has this text. Its extents begin at 1 MiB.
pub fn physical_volume(text: &str, bytes: usize) -> Vec<u8> {
    let mut volume = vec![0; bytes];
    let mut put = |at: usize, part: &[u8]| volume[at..at + part.len()].copy_from_slice(part);
    let mut label = [0; SECTOR_BYTES];
    label[..8].copy_from_slice(b"LABELONE");
    label[8] = 1;
    label[20] = 32;
    label[24..32].copy_from_slice(b"LVM2 001");
    label[32..64].copy_from_slice(&PHYSICAL_ID);
    let numbers = [bytes, EXTENTS, 0, 0, 0, AREA, EXTENTS - AREA];
    for (index, number) in numbers.into_iter().enumerate() {
        label[64 + 8 * index..72 + 8 * index].copy_from_slice(&(number as u64).to_le_bytes());
    }
    let sum = checksum(&label[20..]);
    label[16..20].copy_from_slice(&sum.to_le_bytes());
    put(SECTOR_BYTES, &label);
    let mut header = [0; SECTOR_BYTES];
    header[4..20].copy_from_slice(b" LVM2 x[5A%r0N*>");
    header[20] = 1;
    let numbers = [AREA, EXTENTS - AREA, SECTOR_BYTES, text.len()];
    for (index, number) in numbers.into_iter().enumerate() {
        header[24 + 8 * index..32 + 8 * index].copy_from_slice(&(number as u64).to_le_bytes());
    }
    header[56..60].copy_from_slice(&checksum(text.as_bytes()).to_le_bytes());
    let sum = checksum(&header[4..]);
    header[..4].copy_from_slice(&sum.to_le_bytes());
    put(AREA, &header);
    put(AREA + SECTOR_BYTES, text.as_bytes());
    volume
}

/// The text of a group on one physical volume, with linear volumes: a name, and the first extent and
/// the number of extents of 1 MiB.
pub fn group_text(group: &str, volumes: &[(&str, usize, usize)]) -> String {
    let volume = |(name, first, count): &(&str, usize, usize)| {
        format!(
            "{name} {{ id = \"v\" status = [\"READ\", \"VISIBLE\"] segment1 {{ start_extent = 0 \
             extent_count = {count} type = \"striped\" stripe_count = 1 stripes = [\"pv0\", \
             {first}] }} }}\n"
        )
    };
    let volumes: String = volumes.iter().map(volume).collect();
    let id = String::from_utf8_lossy(&PHYSICAL_ID);
    format!(
        "{group} {{ id = \"{group}\" seqno = 1 extent_size = 2048 physical_volumes {{ pv0 {{ id = \
         \"{id}\" pe_start = 2048 }} }} logical_volumes {{ {volumes} }} }}\nversion = 1\n"
    )
}

/// CRC-32 as LVM begins it.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0xf597_a6cf, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    })
}
