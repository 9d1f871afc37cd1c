//! An object on its way in. It waits on the disk until it is whole: a slow client takes no memory.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use strongroom_backend::ObjectName;

/// Objects of no more bytes wait in memory.
const IN_MEMORY_BYTES: u64 = 16 << 10;

/// An object on its way in.
pub(crate) struct Upload {
    pub(crate) name: ObjectName,
    /// Whether it takes the place of what is there.
    pub(crate) replaces: bool,
    pub(crate) bytes: u64,
    received: u64,
    waiting: Waiting,
}

enum Waiting {
    Memory(Vec<u8>),
    /// A file without a name: it is gone when this program ends.
    Disk(File),
}

impl Upload {
    /// For this many bytes. A file waits in `folder`, where the object will be.
    pub(crate) fn new(
        name: ObjectName,
        replaces: bool,
        bytes: u64,
        folder: &Path,
    ) -> io::Result<Self> {
        let waiting = if bytes <= IN_MEMORY_BYTES {
            Waiting::Memory(Vec::new())
        } else {
            Waiting::Disk(tempfile::tempfile_in(folder)?)
        };
        Ok(Self { name, replaces, bytes, received: 0, waiting })
    }

    /// Takes the next part. False if more comes than was announced.
    pub(crate) fn push(&mut self, part: &[u8]) -> io::Result<bool> {
        self.received += part.len() as u64;
        if self.received > self.bytes {
            return Ok(false);
        }
        match &mut self.waiting {
            Waiting::Memory(bytes) => bytes.extend_from_slice(part),
            Waiting::Disk(file) => file.write_all(part)?,
        }
        Ok(true)
    }

    /// Whether all of it is here.
    pub(crate) fn is_whole(&self) -> bool {
        self.received == self.bytes
    }

    /// Its bytes.
    pub(crate) fn into_bytes(self) -> io::Result<Vec<u8>> {
        match self.waiting {
            Waiting::Memory(bytes) => Ok(bytes),
            Waiting::Disk(mut file) => {
                let mut bytes = Vec::with_capacity(usize::try_from(self.bytes).unwrap_or(0));
                file.rewind()?;
                file.read_to_end(&mut bytes)?;
                Ok(bytes)
            }
        }
    }
}
