//! Sealed files in the cache of a repository: they are read whole, and replaced whole under a lock.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use strongroom_base::keys::derive_object_key;
use strongroom_base::seal::SealKey;

use crate::repository::Repository;

/// Bytes of the salt, from which a key is derived: each writing draws another one.
pub const SALT_BYTES: usize = 32;

/// The key of what is sealed at once. Only this machine's domain has it.
pub fn key(repository: &Repository, context: &str, salt: &[u8; SALT_BYTES]) -> SealKey {
    let machine_key = &repository.write_keys().domain.machine_key;
    let place = [&repository.config.id.0[..], salt].concat();
    SealKey::new(&derive_object_key(context, machine_key, &place))
}

/// The file; none if there is none, or if it is longer than `bytes_max`.
pub fn read_file(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= bytes_max))
}

/// Replaces the file as a whole; it is called `new_name` while it is written.
pub fn write_file(folder: &Path, name: &str, new_name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = folder.join(new_name);
    let mut options = File::options();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// Makes the folder, and keeps other processes from changing its files while the returned file is
/// open. If the file system has no locks, one of two changes may be lost: that costs time.
pub fn lock(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    let file = File::open(folder)?;
    let _ = flock(&file, FlockOperation::LockExclusive);
    Ok(file)
}
