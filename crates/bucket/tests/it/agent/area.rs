//! An area that a program registered.

use std::os::fd::OwnedFd;

use rustix::io::{pread, pwrite};

#[derive(Debug)]
pub struct Area {
    pub file: OwnedFd,
    pub bytes: u64,
}

impl Area {
    pub fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; self.bytes as usize];
        let mut done = 0;
        while done < bytes.len() {
            match pread(&self.file, &mut bytes[done..], done as u64) {
                Ok(0) => return Err(format!("area {name} is shorter than it was registered")),
                Ok(count) => done += count,
                Err(error) => return Err(format!("area {name} cannot be read: {error}")),
            }
        }
        Ok(bytes)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        if bytes.len() as u64 != self.bytes {
            return Err(format!("area {name} has another length than what was stored"));
        }
        let mut done = 0;
        while done < bytes.len() {
            let count = pwrite(&self.file, &bytes[done..], done as u64);
            done += count.map_err(|error| format!("area {name} cannot be written: {error}"))?;
        }
        Ok(())
    }
}
