//! The private memory of a process: what of its address space it can write to, and shares with no
//! other process. Each mapping is a region, named by where it begins.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use strongroom_catalog::Metadata;

use super::Memory;

/// A mapping of a process.
#[derive(Debug)]
pub struct ProcessMemory {
    process: Arc<Process>,
    range: Range<u64>,
}

#[derive(Debug)]
struct Process {
    number: u32,
    memory: File,
}

impl ProcessMemory {
    /// All private mappings of a process that it can read and write.
    ///
    /// # Errors
    ///
    /// There is no such process, or this one may not trace it.
    pub fn of(number: u32) -> io::Result<Vec<Self>> {
        let memory = File::open(format!("/proc/{number}/mem"))?;
        let process = Arc::new(Process { number, memory });
        let ranges = process.mappings()?.into_iter();
        Ok(ranges.map(|range| Self { process: process.clone(), range }).collect())
    }

    /// Where it begins in the process's address space.
    pub fn start(&self) -> u64 {
        self.range.start
    }
}

impl Process {
    fn mappings(&self) -> io::Result<Vec<Range<u64>>> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.number))?;
        Ok(maps.lines().filter_map(private_mapping).collect())
    }
}

/// The range of a line of `/proc/PID/maps`, if it is of private memory that can be written to.
fn private_mapping(line: &str) -> Option<Range<u64>> {
    let mut words = line.split(' ');
    let (range, rights) = (words.next()?, words.next()?);
    let (start, end) = range.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    rights.starts_with("rw").then_some(())?;
    rights.ends_with('p').then_some(address(start)?..address(end)?)
}

impl Memory for ProcessMemory {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.process.memory.read_exact_at(buffer, self.range.start + offset).map_err(|error| {
            let what = "it is mapped no more, or the process has ended";
            io::Error::new(error.kind(), format!("{what} ({error})"))
        })
    }

    fn check(&self) -> io::Result<()> {
        let is_there =
            |range: &Range<u64>| range.start <= self.range.start && range.end >= self.range.end;
        match self.process.mappings()?.iter().any(is_there) {
            true => Ok(()),
            false => Err(io::Error::other("it was unmapped while it was read: store it again")),
        }
    }

    fn metadata(&self) -> Metadata {
        Metadata { mode: 0o600, size: self.bytes(), links: 1, ..Metadata::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_that_is_written_to_is_found_by_its_line() {
        for (line, range) in [
            ("7f00-7f10 rw-p 00000000 00:00 0 [heap]", Some(0x7f00..0x7f10)),
            ("7f00-7f10 rw-p 00000000 00:00 0 ", Some(0x7f00..0x7f10)),
            ("7f00-7f10 rw-s 00000000 00:01 9 /dev/shm/x", None),
            ("7f00-7f10 r--p 00000000 00:00 0 [vvar]", None),
            ("7f00-7f10 r-xp 00000000 08:01 7 /bin/rw-p", None),
            ("7f00 rw-p", None),
            ("", None),
        ] {
            assert_eq!(private_mapping(line), range, "{line}");
        }
    }

    #[test]
    fn this_process_finds_what_it_holds() {
        let held: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let address = held.as_ptr().addr() as u64;
        let regions = ProcessMemory::of(std::process::id()).unwrap();
        let region = regions.iter().find(|region| region.range.contains(&address)).unwrap();
        let mut read = vec![0; held.len()];
        region.read_at(address - region.start(), &mut read).unwrap();
        assert_eq!(read, held);
        region.check().unwrap();
        let nothing = ProcessMemory { process: region.process.clone(), range: 0..4096 };
        assert!(nothing.read_at(0, &mut [0; 10]).is_err());
        assert!(nothing.check().is_err());
        assert!(ProcessMemory::of(u32::MAX).is_err());
    }
}
