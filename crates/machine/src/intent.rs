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
//! state           our socket to which QEMU sends the state of its devices
//! run/            for QEMU's socket of the disks, and for disks that it mounts; for its user alone
//! ```
//!
//! QEMU's user is not trusted: a link that it makes in `run/` is not followed.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown, lchown};
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
/// What it is called to which QEMU sends the state of its devices.
const STATE_SOCKET: &str = "state";
/// What the group and others may not do to a folder, unless the next bit is set.
const WRITABLE: u32 = 0o022;
/// Only its owner may exchange what is in a folder.
const STICKY: u32 = 0o1000;

/// What a run is about to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The monitor's socket.
    pub monitor: PathBuf,
    /// The snapshot to come.
    pub snapshot: String,
    /// The guest agent's socket, if the guest may be frozen by us.
    pub agent: Option<PathBuf>,
    /// The sockets of agents whose guest an earlier run may have left frozen, and that have not said since
    /// then that it is thawed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unthawed: Vec<PathBuf>,
    /// The machine was running and may be paused by us.
    pub is_pausing: bool,
    /// What is changed of QEMU's migration while the state of the devices is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationSettings>,
    /// The disks whose devices may be given a filter.
    pub disks: Vec<IntendedDisk>,
}

impl Intent {
    /// The agents whose guest may be frozen by us, by this run or by an earlier one.
    pub fn agents(&self) -> impl Iterator<Item = &Path> {
        let others = self.unthawed.iter().filter(|socket| Some(*socket) != self.agent.as_ref());
        self.agent.iter().chain(others).map(PathBuf::as_path)
    }
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
    /// Another process has locked it; or others may write to it, or exchange it.
    pub fn lock(folder: &Path) -> Result<Self, MachineError> {
        check_ours(folder)?;
        // QEMU's user must be able to go through it to its socket.
        let created = DirBuilder::new().recursive(true).mode(0o711).create(folder);
        created.map_err(file_error(folder))?;
        check_ours(folder)?;
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
        let (socket, folder) = (self.socket()?, self.folder.join("run"));
        let prepare = || {
            match DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            give_to(&folder, owner)?;
            remove_if_there(&socket)
        };
        prepare().map_err(file_error(&folder))?;
        Ok(socket)
    }

    /// The path of our socket to which QEMU sends the state of its devices; there is no such socket yet.
    /// It is in our own folder, as nothing in QEMU's can be given to QEMU by its name. Its path is
    /// shorter than that of the other.
    pub fn prepare_state_socket(&self) -> Result<PathBuf, MachineError> {
        self.remove_text(STATE_SOCKET)?;
        let folder = self.folder.canonicalize().map_err(file_error(&self.folder))?;
        Ok(folder.join(STATE_SOCKET))
    }

    /// Removes the files that QEMU has mounted disks on, once it has ended or unmounted them, and our
    /// socket.
    pub fn remove_mounts(&self) -> Result<(), MachineError> {
        self.remove_text(STATE_SOCKET)?;
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

/// Creates an empty file for QEMU's user in a folder that is that user's as well. What has its name is
/// removed first.
pub fn create_for(path: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    remove_if_there(path)?;
    let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    give_file_to(&file, owner)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Gives a file to QEMU's user, if that is another one. Only root can. A link is given itself.
pub fn give_to(path: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    owner_to_be(owner).map_or(Ok(()), |(user, group)| lchown(path, Some(user), Some(group)))
}

/// The same of an open file, however it is called now.
pub fn give_file_to(file: &File, owner: Option<(u32, u32)>) -> io::Result<()> {
    owner_to_be(owner).map_or(Ok(()), |(user, group)| fchown(file, Some(user), Some(group)))
}

fn owner_to_be(owner: Option<(u32, u32)>) -> Option<(u32, u32)> {
    owner.filter(|(user, _)| rustix::process::geteuid().is_root() && *user != 0)
}

/// Fails if another user may write to a folder, or may exchange it or one above it. What does not exist
/// yet is not looked at.
fn check_ours(folder: &Path) -> Result<(), MachineError> {
    let absolute = std::path::absolute(folder).map_err(file_error(folder))?;
    check_path(&absolute)?;
    // And where links lead.
    absolute.canonicalize().map_or(Ok(()), |real| check_path(&real))
}

fn check_path(folder: &Path) -> Result<(), MachineError> {
    let ours = rustix::process::geteuid().as_raw();
    // In a container it may be another than root.
    let of_all = fs::metadata("/").map_err(file_error(Path::new("/")))?.uid();
    let ancestors: Vec<&Path> = folder.ancestors().collect();
    for path in ancestors.into_iter().rev() {
        let refused = |why| Err(MachineError::StateFolder { folder: path.to_owned(), why });
        let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
        if ![ours, 0, of_all].contains(&found.uid()) {
            return refused("it belongs to another user");
        }
        let is_sticky = path != folder && found.mode() & STICKY != 0;
        if !found.is_symlink() && found.mode() & WRITABLE != 0 && !is_sticky {
            return refused("other users may write to it");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
            unthawed: vec!["/run/agent".into()],
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

    fn is_refused(folder: &Path) -> bool {
        matches!(StateFolder::lock(folder), Err(MachineError::StateFolder { .. }))
    }

    #[test]
    fn a_state_folder_that_others_may_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let (above, own) = (folder.path().join("above"), folder.path().join("above/own"));
        fs::create_dir_all(&own).unwrap();
        for bad in [0o777, 0o775, 0o1777] {
            mode(&own, bad);
            assert!(is_refused(&own), "{bad:o}");
        }
        mode(&own, 0o711);
        mode(&above, 0o777);
        assert!(is_refused(&own) && is_refused(&above.join("new")));
        assert!(!above.join("new").exists());
        // As that of `/tmp`.
        mode(&above, 0o1777);
        drop(StateFolder::lock(&own).unwrap());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&own, Some(1234), None).unwrap();
            assert!(is_refused(&own));
            let link = above.join("link");
            std::os::unix::fs::symlink(folder.path(), &link).unwrap();
            lchown(&link, Some(1234), None).unwrap();
            assert!(is_refused(&link.join("state")));
        }
    }

    #[test]
    fn no_link_of_qemus_user_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (link, victim) = (folder.path().join("link"), folder.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        let owner = Some((1234, 1234));
        give_to(&link, owner).unwrap();
        assert_eq!(fs::metadata(&victim).unwrap().uid(), rustix::process::geteuid().as_raw());
        create_for(&link, owner).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(fs::metadata(&victim).unwrap().uid(), rustix::process::geteuid().as_raw());
    }
}
