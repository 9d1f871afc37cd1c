//! What a run is about to do to a machine, written down before it does it.
//!
//! The file is in the state folder of the machine, synced before the guest is frozen and before the
//! first change of QEMU's graph. It names everything that may have been changed by the time that the
//! run ends; what of it really was is asked of QEMU when it is undone (`remains.rs`). So nothing is
//! written while the machine is paused.
//!
//! ```text
//! machine.lock    locked by the run, as long as it lives
//! machine.intent  this file; removed when nothing is left to undo
//! run/            for QEMU's socket of the disks, and for disks that it mounts; for its user alone
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::FlockOperation;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use strongroom_base::Stopwatch;

use crate::error::{MachineError, file_error};
use crate::migration::MigrationSettings;

/// A longer file is no intent.
const INTENT_BYTES_MAX: u64 = 4 << 20;
/// How long a lock is waited for: a program that a thread starts has it, too, for a moment.
const LOCK_LIMIT: Duration = Duration::from_millis(500);
const LOCK_TICK: Duration = Duration::from_millis(20);
/// The longest path of a Unix socket.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// What a run is about to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The monitor's socket.
    pub monitor: PathBuf,
    /// The snapshot to come.
    pub snapshot: String,
    /// The guest agent's socket, if the guest may be frozen by us.
    pub agent: Option<PathBuf>,
    /// The machine was running and may be paused by us.
    pub is_pausing: bool,
    /// What is changed of QEMU's migration while the state of the devices is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationSettings>,
    /// The disks whose devices may be given a filter.
    pub disks: Vec<IntendedDisk>,
}

/// A disk whose device may be given a filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntendedDisk {
    /// What it is called.
    pub name: String,
    /// The path of its device.
    pub device: String,
    /// The node that it had.
    pub node: String,
    /// The file for what the guest overwrites.
    pub store: PathBuf,
}

/// The state folder of a machine, locked.
#[derive(Debug)]
pub struct StateFolder {
    folder: PathBuf,
    _lock: File,
}

impl StateFolder {
    /// Creates the folder if need be, and locks it.
    ///
    /// # Errors
    ///
    /// Another process has locked it.
    pub fn lock(folder: &Path) -> Result<Self, MachineError> {
        // QEMU's user must be able to go through it to its socket.
        let created = DirBuilder::new().recursive(true).mode(0o711).create(folder);
        created.map_err(file_error(folder))?;
        let path = folder.join("machine.lock");
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(&path).map_err(file_error(&path))?;
        let waited = Stopwatch::start();
        loop {
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { folder: folder.to_owned(), _lock: lock }),
                Err(rustix::io::Errno::WOULDBLOCK) if waited.elapsed() < LOCK_LIMIT => {
                    std::thread::sleep(LOCK_TICK);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(MachineError::Running(path)),
                Err(error) => return Err(file_error(&path)(error.into())),
            }
        }
    }

    /// What an earlier run was about to do.
    pub fn intent<I: DeserializeOwned>(&self) -> Result<Option<I>, MachineError> {
        let path = self.intent_path();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(file_error(&path)(error)),
        };
        let mut json = Vec::new();
        file.take(INTENT_BYTES_MAX + 1).read_to_end(&mut json).map_err(file_error(&path))?;
        let intent = serde_json::from_slice(&json);
        intent.map(Some).map_err(|error| file_error(&path)(error.into()))
    }

    /// Writes down what is about to be done. When this returns, it is on the medium.
    pub fn write(&self, intent: &impl Serialize) -> Result<(), MachineError> {
        let path = self.intent_path();
        let beside = self.folder.join("machine.intent.new");
        let write = || {
            match fs::remove_file(&beside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut options = File::options();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(&serde_json::to_vec_pretty(intent)?)?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(file_error(&path))
    }

    /// Writes a text for another program, for us to give its path.
    pub fn write_text(&self, name: &str, text: &str) -> Result<PathBuf, MachineError> {
        self.remove_text(name)?;
        let path = self.folder.join(name);
        let mut options = File::options();
        let made = options.write(true).create_new(true).mode(0o600).open(&path);
        made.and_then(|mut file| file.write_all(text.as_bytes())).map_err(file_error(&path))?;
        Ok(path)
    }

    /// Removes it, if it is there.
    pub fn remove_text(&self, name: &str) -> Result<(), MachineError> {
        let path = self.folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(&path)(error)),
            _ => Ok(()),
        }
    }

    /// Nothing is left to undo.
    pub fn remove(&self) -> Result<(), MachineError> {
        let path = self.intent_path();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(&path)(error)),
            _ => Ok(()),
        }
    }

    /// Creates the folder for QEMU's socket, which is for `owner` alone, and returns the socket's
    /// path. There is no such socket yet.
    pub fn prepare_socket(&self, owner: Option<(u32, u32)>) -> Result<PathBuf, MachineError> {
        self.prepare(self.socket()?, owner)
    }

    /// The same for our socket to which QEMU sends the state of its devices. Its path is shorter.
    pub fn prepare_state_socket(&self, owner: Option<(u32, u32)>) -> Result<PathBuf, MachineError> {
        self.prepare(self.socket()?.with_file_name("state"), owner)
    }

    fn prepare(&self, socket: PathBuf, owner: Option<(u32, u32)>) -> Result<PathBuf, MachineError> {
        let folder = self.folder.join("run");
        let prepare = || {
            match DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            give_to(&folder, owner)?;
            match fs::remove_file(&socket) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        };
        prepare().map_err(file_error(&folder))?;
        Ok(socket)
    }

    /// Removes the files that QEMU has mounted disks on, once it has ended or unmounted them.
    pub fn remove_mounts(&self) -> Result<(), MachineError> {
        let folder = self.folder.join("run");
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(file_error(&folder))?,
        };
        for entry in entries {
            let path = entry.map_err(file_error(&folder))?.path();
            if path.file_name().is_some_and(|name| name == "disks") {
                continue;
            }
            let removed = fs::remove_file(&path).or_else(|_| {
                // QEMU was killed, and its mount is still there.
                let mut unmount = Command::new("fusermount3");
                unmount.args(["-u", "-z", "-q"]).arg(&path).stderr(Stdio::null()).status()?;
                fs::remove_file(&path)
            });
            removed.map_err(file_error(&path))?;
        }
        Ok(())
    }

    /// The path of QEMU's socket. If it exists, QEMU made it for us.
    pub fn socket(&self) -> Result<PathBuf, MachineError> {
        let folder = self.folder.canonicalize().map_err(file_error(&self.folder))?;
        let socket = folder.join("run/disks");
        if socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Err(MachineError::SocketPath(socket));
        }
        Ok(socket)
    }

    fn intent_path(&self) -> PathBuf {
        self.folder.join("machine.intent")
    }
}

/// Gives a file to QEMU's user, if that is another one. Only root can.
pub fn give_to(path: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    let ours = rustix::process::geteuid();
    match owner {
        Some((user, group)) if ours.is_root() && user != 0 => {
            let user = rustix::fs::Uid::from_raw(user);
            let group = rustix::fs::Gid::from_raw(group);
            Ok(rustix::fs::chown(path, Some(user), Some(group))?)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intent_outlives_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let state = StateFolder::lock(&path).unwrap();
        assert!(matches!(StateFolder::lock(&path), Err(MachineError::Running(_))));
        assert_eq!(state.intent::<Intent>().unwrap(), None);
        let intent = Intent {
            monitor: "/run/qmp".into(),
            snapshot: "S".to_owned(),
            agent: None,
            is_pausing: true,
            migration: None,
            disks: Vec::new(),
        };
        state.write(&intent).unwrap();
        drop(state);
        let state = StateFolder::lock(&path).unwrap();
        assert_eq!(state.intent::<Intent>().unwrap(), Some(intent));
        state.remove().unwrap();
        state.remove().unwrap();
        assert_eq!(state.intent::<Intent>().unwrap(), None);
        fs::write(path.join("machine.intent"), "{").unwrap();
        assert!(matches!(state.intent::<Intent>(), Err(MachineError::File { .. })));
    }

    #[test]
    fn a_socket_has_a_short_path() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::lock(&folder.path().join("x".repeat(100))).unwrap();
        assert!(matches!(state.prepare_socket(None), Err(MachineError::SocketPath(_))));
        let state = StateFolder::lock(folder.path()).unwrap();
        let socket = state.prepare_socket(None).unwrap();
        fs::write(&socket, "").unwrap();
        assert!(!state.prepare_socket(None).unwrap().exists());
    }
}
