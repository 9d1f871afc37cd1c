//! The memory of a machine that goes on where it was: loaded into files that QEMU maps.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use strongroom_base::units::bytes_text;
use strongroom_catalog::Snapshot;
use strongroom_engine::{EngineError, cat, load_region, memory_path, region_at};
use strongroom_machine::boot::{BootError, ResumeError, Running, memory_file};
use strongroom_machine::{Description, STATE_BYTES_MAX};
use strongroom_repository::{Repository, RepositoryError};

use super::DEVICE_STATE;
use super::stored::Bounded;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use crate::scratch::ScratchFolder;
use crate::terminal::{printable, printable_text};

/// Where shared memory is on Linux.
pub const SHARED_MEMORY: &str = "/dev/shm";
/// What must stay free beside it.
const RESERVE: u64 = 256 << 20;

/// The memory of a machine, in a folder of this start.
pub struct LoadedMemory {
    folder: ScratchFolder,
    files: Vec<PathBuf>,
    state: Vec<u8>,
}

impl LoadedMemory {
    /// Finds room for it: in shared memory if it fits, otherwise in the cache.
    pub fn folder_for(context: &Context, description: &Description) -> Result<Self, CliError> {
        // The description may come from another machine, and say anything.
        let lengths = description.memory.iter().map(|part| part.bytes);
        let bytes = lengths.fold(0, u64::saturating_add);
        let needed = bytes.saturating_add(RESERVE);
        let has_room = |folder: &Path| room(folder).is_none_or(|room| room >= needed);
        let in_memory = Path::new(SHARED_MEMORY);
        let fits = has_room(in_memory) && free_memory().is_some_and(|free| free >= needed);
        let shared = || ScratchFolder::make_in(context, in_memory).ok();
        let folder = match fits.then(shared).flatten() {
            Some(folder) => folder,
            None => ScratchFolder::make(context)?,
        };
        if !has_room(folder.path()) {
            let (place, bytes) = (printable(folder.path()).to_string(), bytes_text(bytes));
            let message = format!("{place} has no room for {bytes} of memory");
            let hint = "name another folder with --cache FOLDER, or make room there";
            return Err(CliError::new(Exit::Failed, message, hint));
        }
        Ok(Self { folder, files: Vec::new(), state: Vec::new() })
    }

    /// The folder of its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Loads it, and the state of the devices.
    pub fn load(
        &mut self,
        context: &Context,
        repository: &Repository,
        (snapshot, machine): (&Snapshot, &str),
        description: &Description,
    ) -> Result<(), CliError> {
        let path = format!("/{machine}/machine/{DEVICE_STATE}").into_bytes();
        let mut state = Bounded { bytes: Vec::new(), bytes_max: STATE_BYTES_MAX };
        match cat(repository, snapshot, &path, &mut state) {
            Ok(_) => self.state = state.bytes,
            Err(EngineError::Repository(RepositoryError::NoSuchPath { .. })) => {
                return Err(cannot_resume(ResumeError::NoMemory));
            }
            Err(error) => return Err(error.into()),
        }
        let words = Words { new_and_known: Some(("written", "zeros")), ..Words::files("loaded") };
        let monitor = context.terminal.monitor(words);
        for part in &description.memory {
            let missing = || cannot_resume(ResumeError::NoMemory);
            let target = memory_file(self.folder(), &part.id).ok_or_else(missing)?;
            let path = memory_path(machine, &part.id);
            let path = path.as_os_str().as_encoded_bytes();
            let region = region_at(repository, snapshot, path)?.ok_or_else(missing)?;
            if region.content.stream_bytes() != part.bytes {
                return Err(missing());
            }
            let mut options = File::options();
            let file = options.read(true).write(true).create_new(true).mode(0o600).open(&target)?;
            let outcome = load_region(repository, &region, &file, &monitor, &context.cancel)?;
            if outcome.is_damaged() {
                let message = format!("the memory of {} is damaged", printable_text(machine));
                let hint = "`strongroom repair` may mend it; without --resume the machine starts from \
                            its disks";
                return Err(CliError::new(Exit::Damaged, message, hint));
            }
            self.files.push(target);
        }
        monitor.finish();
        Ok(())
    }

    /// Gives a machine the state of its devices; it goes on. QEMU has the files open, and their names
    /// are removed: so their room is free when it ends, however it ends.
    pub fn resume(&self, mut running: Running) -> Result<Running, CliError> {
        for file in &self.files {
            std::fs::remove_file(file)?;
        }
        running.resume(&self.state).map_err(does_not_fit)?;
        Ok(running)
    }
}

/// Bytes that are free in a folder, if its file system says it.
fn room(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Bytes of memory that programs can still have.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Why a machine cannot be resumed, and what can be done.
pub fn cannot_resume(error: ResumeError) -> CliError {
    let hint = match &error {
        ResumeError::NoMemory => "boot it without --resume; `machine backup --memory` stores it",
        ResumeError::Machine { .. } => {
            "--emulator SNAPSHOT:PROGRAM runs the one that was stored; without --resume it starts from \
             its disks"
        }
        _ => "without --resume it starts from its disks",
    };
    CliError::new(Exit::Failed, format!("the machine cannot be resumed: {error}"), hint)
}

fn does_not_fit(error: BootError) -> CliError {
    let hint = "it wants the version of QEMU that it had (--qemu, --emulator), and the same kind of \
                processor; without --resume it starts from its disks";
    CliError::new(Exit::Failed, error.to_string(), hint)
}
