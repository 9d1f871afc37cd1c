//! The memory of a running machine: the files in which QEMU shares it, so that the caller can read
//! them.
//!
//! A file is found by its name, and compared with what QEMU has mapped: another program may have put
//! another file in its place. One without a name is found among the files that QEMU has open.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{MachineError, file_error};
use crate::objects::{property, value};
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
        let begins_later = value(qmp, &object, "offset")?.is_some_and(|offset| offset != 0);
        if has.map_err(file_error(&path))?.len() != bytes || begins_later {
            return Err(MachineError::MemoryNotAlone { id, bytes });
        }
        found.push(SharedMemory { id, path, bytes });
    }
    if found.is_empty() {
        return Err(MachineError::MemoryNotShared { id: String::new(), bytes: 0 });
    }
    Ok(found)
}

/// The file of a part of the memory.
fn file_of(qmp: &Qmp, id: &str, bytes: u64, named: Option<&Path>) -> Result<PathBuf, MachineError> {
    let lost = || MachineError::MemoryNotFound { id: id.to_owned() };
    let peer = qmp.peer().and_then(|peer| peer.pid);
    if let Some(path) = named.filter(|path| path.is_file()) {
        let file = fs::metadata(path).map_err(file_error(path))?;
        return if is_mapped(&file, peer) { Ok(path.to_owned()) } else { Err(lost()) };
    }
    let process = peer.ok_or_else(lost)?;
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

/// Whether the QEMU of a monitor has mapped a file. If the process at the other end is another one that
/// passes on what is said, it may be any QEMU.
fn is_mapped(file: &Metadata, peer: Option<i32>) -> bool {
    let is_qemu = |process: &i32| command_line(*process).is_some();
    match peer.filter(is_qemu) {
        Some(qemu) => maps(qemu, file),
        None => processes().filter(is_qemu).any(|process| maps(process, file)),
    }
}

fn maps(process: i32, file: &Metadata) -> bool {
    let text = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    text.lines().any(|line| {
        let mut fields = line.split_whitespace();
        let range = fields.next().unwrap_or_default();
        let inode = fields.nth(3).and_then(|inode| inode.parse().ok());
        if inode != Some(file.ino()) {
            return false;
        }
        // Other file systems have the same numbers. Only root may look.
        let mapped = fs::metadata(format!("/proc/{process}/map_files/{range}"));
        mapped.map_or(true, |mapped| mapped.dev() == file.dev())
    })
}
