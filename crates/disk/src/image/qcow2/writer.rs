//! A new qcow2 image: the disk that is put into it, without its zeros.
//!
//! Clusters are given out in the order in which they are first written, each is used once, and so
//! all reference counts are one: they are made when all else is written. The header follows last,
//! so that a file which was not finished is no image.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::fields::be64;

use super::header::MAGIC;

const CLUSTER_BITS: u32 = 16;
const CLUSTER_BYTES: u64 = 1 << CLUSTER_BITS;
/// Entries of a table of the second level.
const TABLE_ENTRIES: u64 = CLUSTER_BYTES / 8;
/// Clusters whose reference counts, of two bytes, are in one cluster.
const BLOCK_ENTRIES: u64 = CLUSTER_BYTES / 2;
/// The largest table of the first level that QEMU accepts.
const L1_ENTRIES_MAX: u64 = (32 << 20) / 8;
/// Tables of the second level that are kept: 4 MiB, which is 32 GiB of the disk.
const TABLES_MAX: usize = 64;
/// In an entry: the cluster is used by nothing else.
const COPIED: u64 = 1 << 63;
const HEADER_BYTES: u32 = 104;

/// Writes an image of version 3 with clusters of 64 KiB. Places may come in any order; ascending
/// ones make an image that is read fast.
pub struct Qcow2Writer {
    file: File,
    /// Bytes of the disk.
    bytes: u64,
    /// Where the tables of the second level are; zero for those that do not exist.
    l1: Vec<u64>,
    /// Some of these tables, the one that was used last at the end.
    tables: Vec<Table>,
    /// The first byte of the file that is not given out: the start of a cluster.
    end: u64,
}

struct Table {
    index: usize,
    bytes: Vec<u8>,
}

/// Consecutive bytes that are about to be written.
struct Pending<'b> {
    place: u64,
    bytes: &'b [u8],
}

impl Qcow2Writer {
    /// Begins an image of a disk of this size in a new file. The size is rounded up to whole
    /// sectors of 512 bytes, as QEMU has no others.
    ///
    /// # Errors
    ///
    /// The file is not empty, or cannot be empty as it is a device; or the disk has more than 2 PiB.
    pub fn create(file: File, bytes: u64) -> io::Result<Self> {
        let refused = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() > 0 {
            return refused(
                "a qcow2 image is written to a new file: this one is not empty, or a device",
            );
        }
        let entries = bytes.div_ceil(CLUSTER_BYTES * TABLE_ENTRIES).max(1);
        if entries > L1_ENTRIES_MAX {
            return refused("the disk is too large for a qcow2 image with clusters of 64 KiB");
        }
        // The header has the first cluster.
        let end = CLUSTER_BYTES + (entries * 8).next_multiple_of(CLUSTER_BYTES);
        let l1 = vec![0; entries as usize];
        Ok(Self { file, bytes: bytes.next_multiple_of(512), l1, tables: Vec::new(), end })
    }

    /// Writes bytes of the disk. Clusters that were not written yet stay away if they get zeros.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or the bytes are behind the end of the disk.
    pub fn write_at(&mut self, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.bytes) {
            let why = "the bytes are behind the end of the disk";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let whole = bytes;
        let mut pending: Option<Pending<'_>> = None;
        while !bytes.is_empty() {
            let inside = offset % CLUSTER_BYTES;
            let count = bytes.len().min((CLUSTER_BYTES - inside) as usize);
            let (now, rest) = bytes.split_at(count);
            if let Some(place) = self.cluster_for(offset / CLUSTER_BYTES, now)? {
                let place = place + inside;
                let follows =
                    |before: &Pending<'_>| before.place + before.bytes.len() as u64 == place;
                match &mut pending {
                    // The bytes before are those right before these in `whole`.
                    Some(before) if follows(before) => {
                        let until = whole.len() - rest.len();
                        before.bytes = &whole[until - before.bytes.len() - count..until];
                    }
                    _ => self.write_pending(pending.replace(Pending { place, bytes: now }))?,
                }
            } else {
                self.write_pending(pending.take())?;
            }
            offset += count as u64;
            bytes = rest;
        }
        self.write_pending(pending)
    }

    /// Writes the tables, the reference counts and the header, and returns the file, which is not
    /// flushed to the medium.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn finish(mut self) -> io::Result<File> {
        while let Some(table) = self.tables.pop() {
            self.write_table(&table)?;
        }
        let entry = |&place: &u64| if place == 0 { 0 } else { place | COPIED };
        let l1: Vec<u8> = self.l1.iter().map(entry).flat_map(be).collect();
        self.file.write_all_at(&l1, CLUSTER_BYTES)?;
        let counts = Counts::after(self.end / CLUSTER_BYTES);
        self.write_counts(&counts)?;
        self.file.set_len(counts.clusters * CLUSTER_BYTES)?;
        self.file.write_all_at(&self.header(&counts), 0)?;
        Ok(self.file)
    }

    fn write_pending(&self, pending: Option<Pending<'_>>) -> io::Result<()> {
        pending.map_or(Ok(()), |Pending { place, bytes }| self.file.write_all_at(bytes, place))
    }

    /// Where the cluster is or will be; `None` if it stays away, since it would get only zeros.
    fn cluster_for(&mut self, cluster: u64, bytes: &[u8]) -> io::Result<Option<u64>> {
        let (index, entry) =
            ((cluster / TABLE_ENTRIES) as usize, (cluster % TABLE_ENTRIES) as usize);
        let is_zeros = bytes.iter().all(|&byte| byte == 0);
        if self.l1[index] == 0 {
            if is_zeros {
                return Ok(None);
            }
            self.l1[index] = self.give_out();
            let table = Table { index, bytes: vec![0; CLUSTER_BYTES as usize] };
            self.keep(table)?;
        }
        let at = entry * 8;
        let place = be64(&self.table(index)?.bytes, at) & !COPIED;
        if place != 0 || is_zeros {
            return Ok((place != 0).then_some(place));
        }
        let place = self.give_out();
        self.table(index)?.bytes[at..at + 8].copy_from_slice(&be(place | COPIED));
        Ok(Some(place))
    }

    fn give_out(&mut self) -> u64 {
        let place = self.end;
        self.end += CLUSTER_BYTES;
        place
    }

    /// A table that exists, which is then the last of those that are kept.
    fn table(&mut self, index: usize) -> io::Result<&mut Table> {
        match self.tables.iter().rposition(|table| table.index == index) {
            Some(at) => self.tables[at..].rotate_left(1),
            None => {
                let mut bytes = vec![0; CLUSTER_BYTES as usize];
                self.file.read_exact_at(&mut bytes, self.l1[index])?;
                self.keep(Table { index, bytes })?;
            }
        }
        self.tables.last_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn keep(&mut self, table: Table) -> io::Result<()> {
        if self.tables.len() == TABLES_MAX {
            let oldest = self.tables.remove(0);
            self.write_table(&oldest)?;
        }
        self.tables.push(table);
        Ok(())
    }

    fn write_table(&self, table: &Table) -> io::Result<()> {
        self.file.write_all_at(&table.bytes, self.l1[table.index])
    }

    fn write_counts(&self, counts: &Counts) -> io::Result<()> {
        let blocks = (0..counts.blocks).map(|block| counts.first_block + block * CLUSTER_BYTES);
        let table: Vec<u8> = blocks.clone().flat_map(be).collect();
        self.file.write_all_at(&table, counts.table)?;
        let mut left = counts.clusters;
        for place in blocks {
            let count = left.min(BLOCK_ENTRIES);
            self.file.write_all_at(&[0, 1].repeat(count as usize), place)?;
            left -= count;
        }
        Ok(())
    }

    fn header(&self, counts: &Counts) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        let l1_entries = self.l1.len() as u32;
        header.extend(be32(3));
        // No backing file.
        header.extend([0; 12]);
        header.extend(be32(CLUSTER_BITS));
        header.extend(be(self.bytes));
        // No encryption.
        header.extend(be32(0));
        header.extend(be32(l1_entries));
        header.extend(be(CLUSTER_BYTES));
        header.extend(be(counts.table));
        header.extend(be32(counts.table_clusters as u32));
        // No snapshots, and none of the three kinds of features.
        header.extend([0; 12 + 24]);
        // Counts of 2^4 bits.
        header.extend(be32(4));
        header.extend(be32(HEADER_BYTES));
        debug_assert_eq!(header.len(), HEADER_BYTES as usize);
        // The end of the extensions.
        header.extend([0; 8]);
        header
    }
}

/// Where reference counts are put behind everything else, and how many clusters there are then.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    table: u64,
    table_clusters: u64,
    first_block: u64,
    blocks: u64,
    clusters: u64,
}

impl Counts {
    fn after(used: u64) -> Self {
        let (mut blocks, mut table_clusters) = (1, 1);
        loop {
            // The counts are counted, too.
            let clusters = used + table_clusters + blocks;
            if clusters <= blocks * BLOCK_ENTRIES && blocks <= table_clusters * TABLE_ENTRIES {
                let table = used * CLUSTER_BYTES;
                let first_block = table + table_clusters * CLUSTER_BYTES;
                return Self { table, table_clusters, first_block, blocks, clusters };
            }
            blocks = clusters.div_ceil(BLOCK_ENTRIES);
            table_clusters = blocks.div_ceil(TABLE_ENTRIES);
        }
    }
}

#[expect(clippy::big_endian_bytes, reason = "the byte order of qcow2")]
fn be(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

#[expect(clippy::big_endian_bytes, reason = "the byte order of qcow2")]
fn be32(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_counts_count_themselves() {
        for used in (1..200_000).step_by(997).chain([32766, 32767, 1 << 28, (1 << 28) + 1, 1 << 40])
        {
            let counts = Counts::after(used);
            assert_eq!(counts.clusters, used + counts.blocks + counts.table_clusters);
            assert!(counts.clusters <= counts.blocks * BLOCK_ENTRIES);
            assert!(counts.clusters + 2 > (counts.blocks - 1) * BLOCK_ENTRIES, "no block too many");
        }
    }
}
