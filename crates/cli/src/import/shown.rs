//! A mount of the other program: a program that runs and a folder that shows what it mounts. Both
//! end with the value.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};

use super::program::{LOOK_EVERY, LastWords, Program};
use crate::exit::{CliError, Exit};

/// How long the program may take to end after it was asked to.
const END_WITHIN: Duration = Duration::from_secs(10);
/// What the names of the folders begin with; the number of our process follows.
const FOLDER_NAME: &str = "strongroom-import-";
/// What can remove a mount that the program left behind; the first two need no rights.
const UNMOUNTERS: [&[&str]; 3] =
    [&["fusermount3", "-uz"], &["fusermount", "-uz"], &["umount", "-l"]];

/// A mount.
#[derive(Debug)]
pub struct Mount {
    folder: PathBuf,
    child: Child,
    words: LastWords,
}

impl Mount {
    /// Has the program mount something: its arguments, then the folder. Returns when the folder
    /// shows it.
    pub fn start(program: &Program, arguments: &[OsString]) -> Result<Self, CliError> {
        let folder = make_folder()?;
        let mut command = program.command(arguments);
        command.arg(&folder).stdout(Stdio::null());
        let (child, words) = match program.start(command) {
            Ok(started) => started,
            Err(error) => {
                let _ = std::fs::remove_dir(&folder);
                return Err(error);
            }
        };
        let mut mount = Self { folder, child, words };
        loop {
            program.check_cancel()?;
            if is_mounted(&mount.folder) {
                return Ok(mount);
            }
            if let Some(status) = mount.child.try_wait().map_err(CliError::from)? {
                return Err(program.failure(Some(status), &mount.words.text(true)));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the program still runs, and the folder shows what it mounted.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None)) && is_mounted(&self.folder)
    }

    /// The end of what it wrote as errors.
    pub fn last_words(&mut self) -> String {
        self.words.text(false)
    }

    fn end(&mut self) {
        let group = Pid::from_child(&self.child);
        // restic unmounts when it is interrupted. It may have ended already.
        let _ = kill_process_group(group, Signal::INT);
        let asked = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if asked.elapsed() > END_WITHIN {
                let _ = kill_process_group(group, Signal::KILL);
                let _ = self.child.wait();
                break;
            }
            if asked.elapsed() > END_WITHIN / 5 && is_mounted(&self.folder) {
                unmount(&self.folder);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        if is_mounted(&self.folder) {
            unmount(&self.folder);
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.end();
        // Never what is in it: it may still be a mount.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Whether a folder is of another file system than the one that contains it.
fn is_mounted(folder: &Path) -> bool {
    let Some(above) = folder.parent().and_then(|above| std::fs::metadata(above).ok()) else {
        return false;
    };
    match std::fs::symlink_metadata(folder) {
        Ok(inside) => inside.dev() != above.dev(),
        // The program that answers for it is gone, and the mount is not.
        Err(error) => error.raw_os_error() == Some(libc::ENOTCONN),
    }
}

fn unmount(folder: &Path) {
    unmount_with(&UNMOUNTERS, folder);
}

fn unmount_with(unmounters: &[&[&str]], folder: &Path) {
    for unmounter in unmounters {
        let [program, flags] = unmounter else { continue };
        let mut command = Command::new(program);
        command.arg(flags).arg(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if command.status().is_ok_and(|status| status.success()) {
            return;
        }
    }
}

/// Removes the folders of imports that were killed, and their mounts.
fn remove_what_was_left(above: &Path) {
    let entries = std::fs::read_dir(above).into_iter().flatten().flatten();
    for folder in entries.map(|entry| entry.path()) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let number = name.strip_prefix(FOLDER_NAME).and_then(|rest| rest.split('-').next());
        let process = number.and_then(|number| Pid::from_raw(number.parse().ok()?));
        let Some(process) = process else { continue };
        if !matches!(test_kill_process(process), Err(rustix::io::Errno::SRCH)) {
            continue;
        }
        if is_mounted(&folder) {
            // `umount` would follow a link that another user puts there.
            unmount_with(&UNMOUNTERS[..2], &folder);
        }
        // Never what is in it: it may still be a mount.
        let _ = std::fs::remove_dir(&folder);
    }
}

/// A new folder that only we may look into.
fn make_folder() -> Result<PathBuf, CliError> {
    let above = std::env::temp_dir();
    let above = above.canonicalize().unwrap_or(above);
    remove_what_was_left(&above);
    let number = std::process::id();
    for attempt in 0..1000 {
        let folder = above.join(format!("{FOLDER_NAME}{number}-{attempt}"));
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let message = format!("cannot make a folder in {}: {error}", above.display());
                return Err(CliError::new(Exit::Failed, message, "set TMPDIR to another folder"));
            }
        }
    }
    let message = format!("{} is full of folders of earlier imports", above.display());
    Err(CliError::new(Exit::Failed, message, "remove its strongroom-import-* that are no mounts"))
}
