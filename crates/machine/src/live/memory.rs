//! The memory of a running machine: the files in which QEMU shares it, so that the caller can read
//! them.
//!
//! A file is found by its name, and compared with what QEMU has mapped: another program may have put
//! another file in its place. One without a name is found among the files that QEMU has open.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::drives::{property, value};
use crate::error::{MachineError, file_error};
use crate::process::{command_line, processes};
use crate::qmp::Qmp;

/// A part of a machine's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedMemory {
    /// The id of its object.
    pub id: String,
    /// The file that has it; for one without a name, where it is below `/proc`.
    pub path: PathBuf,
    /// How long it is.
    pub bytes: u64,
}

/// All memory of a machine.
///
/// # Errors
///
/// A part of it is in no file, or in one that this process cannot find.
pub fn find(qmp: &Qmp) -> Result<Vec<SharedMemory>, MachineError> {
    let answer = qmp.execute("query-memdev", Value::Null)?;
    let mut found = Vec::new();
    for backend in answer.as_array().into_iter().flatten() {
        let bytes = backend["size"].as_u64().unwrap_or_default();
        let id = backend["id"].as_str().unwrap_or_default().to_owned();
        let object = format!("/objects/{id}");
        let kind = property(qmp, &object, "type")?.unwrap_or_default();
        let is_shared = value(qmp, &object, "share")?.is_some_and(|share| share == true);
        let is_in_file = matches!(&*kind, "memory-backend-file" | "memory-backend-memfd");
        if !is_shared || !is_in_file {
            return Err(MachineError::MemoryNotShared { id, bytes });
        }
        let named = property(qmp, &object, "mem-path")?.map(PathBuf::from);
        let path = file_of(qmp, &id, bytes, named.as_deref())?;
        let has = File::open(&path).and_then(|file| file.metadata());
        if has.map_err(file_error(&path))?.len() < bytes {
            return Err(MachineError::MemoryNotFound { id });
        }
        found.push(SharedMemory { id, path, bytes });
    }
    match found.is_empty() {
        true => Err(MachineError::MemoryNotShared { id: String::new(), bytes: 0 }),
        false => Ok(found),
    }
}

/// The file of a part of the memory.
fn file_of(qmp: &Qmp, id: &str, bytes: u64, named: Option<&Path>) -> Result<PathBuf, MachineError> {
    let lost = || MachineError::MemoryNotFound { id: id.to_owned() };
    if let Some(path) = named.filter(|path| path.is_file()) {
        let inode = fs::metadata(path).map_err(file_error(path))?.ino();
        return if is_mapped(inode) { Ok(path.to_owned()) } else { Err(lost()) };
    }
    let process = qmp.peer().and_then(|peer| peer.pid).ok_or_else(lost)?;
    let folder = PathBuf::from(format!("/proc/{process}/fd"));
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&folder).map_err(file_error(&folder))? {
        let path = entry.map_err(file_error(&folder))?.path();
        // One that is closed meanwhile is another.
        let (Ok(target), Ok(metadata)) = (fs::read_link(&path), fs::metadata(&path)) else {
            continue;
        };
        let name = target.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // The names of memfds do not say which object has them.
        let is_memfd = name.starts_with("memfd:") && metadata.len() == bytes;
        if is_memfd || name.starts_with(&format!("qemu_back_mem.{id}.")) {
            found.insert(metadata.ino(), path);
        }
    }
    match found.len() {
        1 => found.into_values().next().ok_or_else(lost),
        _ => Err(lost()),
    }
}

/// Whether a QEMU has mapped a file. The process at the other end of a monitor may be another one, that
/// passes on what is said.
fn is_mapped(inode: u64) -> bool {
    let has_it =
        |line: &str| line.split_whitespace().nth(4).is_some_and(|found| found.parse() == Ok(inode));
    let maps_it = |process: &i32| {
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        maps.lines().any(has_it)
    };
    let mut qemus = processes().filter(|process| command_line(*process).is_some());
    qemus.any(|process| maps_it(&process))
}
