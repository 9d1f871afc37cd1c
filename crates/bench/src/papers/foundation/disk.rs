//! A disk as Foundation's simulator sees it (§5.1): it seeks, and it moves bytes. What a request
//! costs depends on where the request before it ended.

use std::ops::{AddAssign, Sub};

/// What a disk, or a place that is like one, takes for a seek and for a byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Disk {
    /// Seek and rotation, in milliseconds; for a place without an arm, the latency of a request.
    pub seek_ms: f64,
    /// Sequential reads, in millions of bytes per second, as `dd` prints them.
    pub read_mb: f64,
    /// Sequential writes, in millions of bytes per second.
    pub write_mb: f64,
}

/// Where the archive is, and where the machine that is backed up has its own disk. The two work at
/// the same time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// Name in the tables.
    pub name: &'static str,
    /// The disk of the machine, which also holds our index.
    pub local: Disk,
    /// The disk of the archive, which also holds Foundation's index.
    pub archive: Disk,
}

/// The paper's: a Hitachi inside, a Maxtor at the end of a USB cable, as §5 measured them.
pub const PAPER: Pair = Pair {
    name: "the paper's disks",
    local: Disk { seek_ms: 15.0, read_mb: 38.5, write_mb: 32.2 },
    archive: Disk { seek_ms: 13.6, read_mb: 32.2, write_mb: 26.5 },
};

/// A consumer's NVMe disk behind PCIe 4: 70 to 80 µs for 4 KiB at queue depth 1; the rates are what
/// is left when its write cache is full, not what the box says.
const SSD: Disk = Disk { seek_ms: 0.08, read_mb: 3_500.0, write_mb: 1_500.0 };

/// A 3.5" disk at 7,200 rpm: half a turn is 4.17 ms, an average seek 8.5 ms. Data sheets promise 270
/// MB/s at the rim; over all tracks three quarters of that remain.
const HDD: Disk = Disk { seek_ms: 12.7, read_mb: 200.0, write_mb: 200.0 };

/// One request at a time: Amazon's guide for developers ("Performance design patterns for Amazon
/// S3") gives 100 to 200 ms for the first byte of a small object, and 85 to 90 MB/s a connection.
const S3: Disk = Disk { seek_ms: 100.0, read_mb: 90.0, write_mb: 90.0 };

/// Sixteen requests in flight, none of which waits for another, over a line of 1 Gbit/s.
const S3_WIDE: Disk = Disk { seek_ms: 100.0 / 16.0, read_mb: 118.0, write_mb: 118.0 };

/// The paper's pair, and what a person has in 2026.
pub const PAIRS: [Pair; 6] = [
    PAPER,
    Pair { name: "the paper's, own disk an SSD", local: SSD, archive: PAPER.archive },
    Pair { name: "HDD of 2026", local: SSD, archive: HDD },
    Pair { name: "SSD of 2026", local: SSD, archive: SSD },
    Pair { name: "S3, one request at a time", local: SSD, archive: S3 },
    Pair { name: "S3, sixteen in flight", local: SSD, archive: S3_WIDE },
];

/// What was asked of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests that did not begin where the one before had ended.
    pub seeks: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

impl Traffic {
    /// Seconds that a disk seeks.
    pub fn seeking(self, disk: &Disk) -> f64 {
        self.seeks as f64 * disk.seek_ms / 1e3
    }

    /// Seconds that a disk takes for all of it.
    pub fn seconds(self, disk: &Disk) -> f64 {
        let moving = self.read as f64 / disk.read_mb + self.written as f64 / disk.write_mb;
        self.seeking(disk) + moving / 1e6
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, more: Self) {
        self.seeks += more.seeks;
        self.read += more.read;
        self.written += more.written;
    }
}

impl Sub for Traffic {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            seeks: self.seeks - before.seeks,
            read: self.read - before.read,
            written: self.written - before.written,
        }
    }
}

/// What was asked of both disks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Of the machine's own.
    pub local: Traffic,
    /// Of the archive's.
    pub archive: Traffic,
}

impl Work {
    /// Seconds: the slower of the two, since each has an arm of its own and the streams overlap
    /// (§5.1, "having two disk arms here is the key").
    pub fn seconds(self, pair: &Pair) -> f64 {
        self.local.seconds(&pair.local).max(self.archive.seconds(&pair.archive))
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, more: Self) {
        self.local += more.local;
        self.archive += more.archive;
    }
}

impl Sub for Work {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { local: self.local - before.local, archive: self.archive - before.archive }
    }
}

/// A file or a region of a disk. Two regions are never neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// The image that is backed up.
    Image,
    /// An arena of the log.
    Arena(u32),
    /// The file with an arena's summary.
    Summary(u32),
    /// The index, if it is read or written from one end to the other.
    Index,
}

/// A disk's arm: counts what is asked, and knows where the last request ended.
#[derive(Debug, Default)]
pub struct Arm {
    traffic: Traffic,
    at: Option<(Region, u64)>,
}

impl Arm {
    /// Reads bytes at a place.
    pub fn read(&mut self, region: Region, offset: u64, bytes: u64) {
        self.go(region, offset, bytes);
        self.traffic.read += bytes;
    }

    /// Writes bytes at a place.
    pub fn write(&mut self, region: Region, offset: u64, bytes: u64) {
        self.go(region, offset, bytes);
        self.traffic.written += bytes;
    }

    /// Reads bytes at a place that a hash chooses: always a seek.
    pub fn read_at_random(&mut self, bytes: u64) {
        self.traffic.seeks += 1;
        self.traffic.read += bytes;
        self.at = None;
    }

    /// Writes bytes at a place that a hash chooses.
    pub fn write_at_random(&mut self, bytes: u64) {
        self.traffic.seeks += 1;
        self.traffic.written += bytes;
        self.at = None;
    }

    /// All so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn go(&mut self, region: Region, offset: u64, bytes: u64) {
        if self.at != Some((region, offset)) {
            self.traffic.seeks += 1;
        }
        self.at = Some((region, offset + bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_cost_no_seek() {
        let mut arm = Arm::default();
        arm.read(Region::Arena(0), 0, 100);
        arm.read(Region::Arena(0), 100, 50);
        arm.write(Region::Arena(0), 150, 10);
        assert_eq!(arm.traffic(), Traffic { seeks: 1, read: 150, written: 10 });
        arm.read(Region::Arena(0), 170, 10);
        arm.read(Region::Arena(1), 180, 10);
        arm.read_at_random(8);
        arm.read(Region::Arena(1), 190, 10);
        assert_eq!(arm.traffic(), Traffic { seeks: 5, read: 188, written: 10 });
    }

    #[test]
    fn seconds_by_hand() {
        let disk = Disk { seek_ms: 10.0, read_mb: 50.0, write_mb: 20.0 };
        let traffic = Traffic { seeks: 300, read: 100_000_000, written: 10_000_000 };
        assert!((traffic.seconds(&disk) - (3.0 + 2.0 + 0.5)).abs() < 1e-9);
        let pair = Pair { name: "two", local: disk, archive: disk };
        let local = Traffic { seeks: 0, read: 500_000_000, written: 0 };
        let work = Work { local, archive: traffic };
        assert!((work.seconds(&pair) - 10.0).abs() < 1e-9);
    }
}
