//! The disks of a running machine at one instant.
//!
//! For the length of a backup each disk has a filter (QEMU's `copy-before-write`): before the guest
//! overwrites something for the first time, the old bytes are copied to the store, and what is read
//! here comes from the store or from the disk. If the store fails, the backup is lost and the guest
//! goes on.
//!
//! ```text
//! guest ─▶ filter ─▶ disk            store: what was overwritten
//!            └─▶ store                image: the instant, as an export over NBD
//! ```
//!
//! All filters are put in while the machine is paused, so all disks are of one instant. What is done
//! is written down before ([`crate::intent`]), and undone by [`LiveDisks::finish`], by the next
//! backup, or by [`undo`].

mod freeze;

mod beside;
mod device_state;
mod export;

mod image;
mod libvirt;
mod memory;
mod pace;
mod reader;
mod recent;
mod released;
mod started;
mod store;
mod undo;
mod watch;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use strongroom_base::Cancel;

use crate::abilities::Abilities;
use crate::agent::{AgentError, Freezer};
use crate::bitmaps;
use crate::description::Description;
use crate::drives::{Drive, Drives, nodes};
use crate::error::{Broken, MachineError};
use crate::intent::{Intent, StateFolder};
use crate::left_out::LeftOut;
use crate::qmp::Qmp;
use crate::remains::Exchanged;
pub use beside::Beside;
pub use device_state::STATE_BYTES_MAX;
use image::Instant;
pub use image::LiveImage;
pub use libvirt::{LibvirtMachine, undo_libvirt};
pub use memory::SharedMemory;
pub use store::StoreLimits;
pub use undo::{Undone, undo};
use watch::Watch;

/// How long a monitor may take to greet.
pub const GREETING_LIMIT: Duration = Duration::from_secs(10);

/// A machine that runs, however it is reached.
pub trait RunningMachine: Sync {
    /// Its disks, as they were when it was found.
    fn disks(&self) -> Vec<ShownDisk>;

    /// Drives that cannot be backed up, and why.
    fn left_out(&self) -> &[LeftOut];

    /// What the machine is made of.
    ///
    /// # Errors
    ///
    /// QEMU does not answer.
    fn description(&self) -> Result<Description, MachineError>;

    /// Further descriptions, in the words of what runs it: names of files, and their content.
    ///
    /// # Errors
    ///
    /// It does not answer.
    fn documents(&self) -> Result<Vec<(String, Vec<u8>)>, MachineError> {
        Ok(Vec::new())
    }

    /// All its memory, if it is in files that QEMU shares.
    ///
    /// # Errors
    ///
    /// It is not, or its files are not found.
    fn memory(&self) -> Result<Vec<SharedMemory>, MachineError> {
        Err(MachineError::NoMemory)
    }

    /// As [`freeze_disks`](Self::freeze_disks), and takes the state of the devices. `settle` is called
    /// while the machine is paused: its memory is as it is to be resumed.
    ///
    /// # Errors
    ///
    /// Those of `freeze_disks`, and what `settle` says.
    fn freeze_with_memory(
        &self,
        _night: &Night<'_>,
        _settle: Settle<'_>,
    ) -> Result<LiveDisks, MachineError> {
        Err(MachineError::NoMemory)
    }

    /// Brings all disks to one instant. What an earlier run has left is undone first.
    ///
    /// # Errors
    ///
    /// Something is missing or fails; then the machine is as it was, as far as the error does not
    /// say otherwise.
    fn freeze_disks(&self, night: &Night<'_>) -> Result<LiveDisks, MachineError>;
}

/// Reads the memory of a machine once more while it is paused; an error is in words.
pub type Settle<'s> = &'s mut dyn FnMut() -> Result<(), String>;

/// A disk that a backup would read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownDisk {
    /// What it is called; the same each night.
    pub name: String,
    /// Its size, if that is known.
    pub bytes: Option<u64>,
    /// The format of its image.
    pub format: String,
    /// Where the image is on the host.
    pub file: Option<String>,
    /// What is written to it is noted, so that the next backup need not read all.
    pub notes_writes: bool,
    /// The notes outlive its QEMU.
    pub keeps_bitmaps: bool,
}

/// Gives a machine back as it was.
trait GiveBack: Send {
    /// With a snapshot that was committed, the notes for earlier ones are removed.
    fn give_back(&self, is_committed: bool) -> Result<Vec<Exchanged>, MachineError>;
}

/// A machine that runs under QEMU, reached by its monitor.
pub struct Machine {
    qmp: Arc<Qmp>,
    monitor: PathBuf,
    drives: Drives,
    /// QEMU can offer disks as files.
    has_fuse: bool,
}

/// Whether the guest must hold still while the instant is chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Consistency {
    /// There is no backup if the guest cannot be frozen.
    Required,
    /// The guest is frozen if it can be.
    #[default]
    Preferred,
    /// The guest is not asked. The disks are as after a power failure.
    None,
}

/// What was reached.
#[derive(Debug, Clone)]
pub enum Reached {
    /// The guest's file systems were frozen, this many of them: at least one.
    Frozen(u64),
    /// The machine was paused, by us or before. The disks are as after a power failure, all of the same moment.
    Paused {
        /// Why the guest was not frozen, if it was asked.
        why: Option<AgentError>,
    },
    /// The machine was not started, or had shut down.
    AtRest,
}

/// The snapshot from which what did not change is taken over.
#[derive(Debug, Clone, Copy)]
pub struct Parent<'a> {
    /// Its name.
    pub snapshot: &'a str,
    /// Its disks, with the size that each had. What is behind this size counts as changed: QEMU says
    /// nothing of what a disk has gained.
    pub disk_bytes: &'a BTreeMap<String, u64>,
}

/// A backup that is to begin.
#[derive(Debug, Clone)]
pub struct Night<'a> {
    /// The name that the snapshot will have.
    pub snapshot: &'a str,
    /// Its parent, if it has one.
    pub parent: Option<Parent<'a>>,
    /// What distinguishes these backups from others of the same machine, to other repositories: a few
    /// letters and digits. Bitmaps of others are left alone.
    pub set: &'a str,
    /// Disks to leave out.
    pub without: &'a [String],
    /// Files to read at the same instant: the variables of the UEFI, the state of a TPM. 64 MiB at
    /// most, all together.
    pub beside: &'a [PathBuf],
    /// The folder for what the guest overwrites.
    pub store_folder: &'a Path,
    /// How much the store may take.
    pub store_limits: StoreLimits,
    /// The folder of this machine for what must be undone after any death. QEMU makes its socket in
    /// it. No other machine has the same.
    pub state_folder: &'a Path,
    /// The guest agent's socket.
    pub agent: Option<&'a Path>,
    /// Whether the guest must be frozen.
    pub consistency: Consistency,
    /// How long freezing may take.
    pub freeze_limit: Duration,
    /// How long a disk that is in no iothread yet is waited for, where QEMU needs that.
    pub start_limit: Duration,
    /// How long the guest is watched before the instant: what it writes in this time is read first,
    /// because it is going to write there again.
    pub watched: Duration,
    /// Connections to each disk: QEMU answers this many requests at once, at most.
    pub connections: usize,
    /// How much of the processors' time this process may use meanwhile, in processors; all that there
    /// is, if there is no limit.
    pub share: Option<f64>,
    /// Set when the instant is lost, so that nothing is committed.
    pub cancel: Cancel,
}

/// A disk at the instant.
pub struct LiveDisk {
    /// What it is called; the same each night.
    pub name: String,
    /// Its bytes.
    pub image: LiveImage,
    /// What may have changed since the parent, sorted. `None` if no bitmap can be trusted to say it:
    /// then everything must be read and compared.
    pub changed: Option<Vec<Range<u64>>>,
}

/// The disks of a machine at one instant. Dropping them is the same as to finish without a
/// snapshot.
pub struct LiveDisks {
    /// The disks.
    pub disks: Vec<LiveDisk>,
    /// Drives that are not read.
    pub left_out: Vec<LeftOut>,
    /// The files beside them.
    pub beside: Vec<Beside>,
    /// How consistent they are.
    pub reached: Reached,
    /// How long the machine was paused.
    pub pause: Duration,
    /// The state of its devices, if its memory is stored, too.
    pub device_state: Option<Vec<u8>>,
    instant: Arc<Instant>,
    watch: Option<Watch>,
    undoing: Option<Box<dyn GiveBack>>,
}

/// What is needed to undo.
struct Undoing {
    qmp: Arc<Qmp>,
    state: StateFolder,
    intent: Intent,
    freezer: Option<Freezer>,
    drives: Vec<Drive>,
    set: String,
    snapshot: String,
}

impl Machine {
    /// Connects to the monitor of a machine.
    ///
    /// # Errors
    ///
    /// There is none, or it cannot do what is needed.
    pub fn connect(monitor: &Path) -> Result<Self, MachineError> {
        let qmp = Qmp::connect(monitor, GREETING_LIMIT)?;
        let has_fuse = Abilities::ask(&qmp)?.has_fuse;
        let drives = Drives::find(&qmp)?;
        Ok(Self { qmp: Arc::new(qmp), monitor: monitor.to_owned(), drives, has_fuse })
    }

    /// Its disks, as they were when it was connected to.
    pub fn drives(&self) -> &[Drive] {
        &self.drives.disks
    }

    /// The monitor.
    pub fn qmp(&self) -> &Qmp {
        &self.qmp
    }
}

impl RunningMachine for Machine {
    fn disks(&self) -> Vec<ShownDisk> {
        let shown = |drive: &Drive| ShownDisk {
            name: drive.name.clone(),
            bytes: Some(drive.bytes),
            format: drive.format.clone(),
            file: drive.file.clone(),
            notes_writes: true,
            keeps_bitmaps: drive.keeps_bitmaps,
        };
        self.drives.disks.iter().map(shown).collect()
    }

    fn left_out(&self) -> &[LeftOut] {
        &self.drives.left_out
    }

    fn description(&self) -> Result<Description, MachineError> {
        self.describe()
    }

    fn memory(&self) -> Result<Vec<SharedMemory>, MachineError> {
        memory::find(&self.qmp)
    }

    fn freeze_disks(&self, night: &Night<'_>) -> Result<LiveDisks, MachineError> {
        self.bring_to_an_instant(night, None)
    }

    fn freeze_with_memory(
        &self,
        night: &Night<'_>,
        settle: Settle<'_>,
    ) -> Result<LiveDisks, MachineError> {
        self.bring_to_an_instant(night, Some(settle))
    }
}

impl GiveBack for Undoing {
    fn give_back(&self, is_committed: bool) -> Result<Vec<Exchanged>, MachineError> {
        let undone = self.undo();
        if undone.is_ok() && is_committed {
            let nodes = nodes(&self.qmp)?;
            let (set, snapshot) = (&self.set, Some(self.snapshot.as_str()));
            bitmaps::remove_others(&self.qmp, &self.drives, &nodes, set, snapshot)?;
        }
        undone
    }
}

impl LiveDisks {
    /// Why the instant is lost, if it is. Then nothing that was read may be committed.
    pub fn broken(&self) -> Option<Broken> {
        self.instant.broken()
    }

    /// True if the instant is lost.
    pub fn is_broken(&self) -> bool {
        self.broken().is_some()
    }

    /// Bytes that the store has now.
    pub fn store_bytes(&self) -> u64 {
        self.watch.as_ref().map_or(0, Watch::store_bytes)
    }

    /// Gives the machine back as it was. With a snapshot that was committed, the bitmaps of earlier
    /// ones are removed; otherwise all stay. Returns the disks that another program has given another
    /// image meanwhile; they keep it.
    ///
    /// # Errors
    ///
    /// Something of ours is still in the machine, or the guest may be frozen. [`undo`] goes on.
    pub fn finish(mut self, is_committed: bool) -> Result<Vec<Exchanged>, MachineError> {
        self.end(is_committed)
    }

    fn end(&mut self, is_committed: bool) -> Result<Vec<Exchanged>, MachineError> {
        let Some(undoing) = self.undoing.take() else { return Ok(Vec::new()) };
        // Clients go first: the server must not be stopped while they are connected.
        drop(self.watch.take());
        self.disks.iter().for_each(|disk| disk.image.close());
        undoing.give_back(is_committed)
    }
}

impl Drop for LiveDisks {
    fn drop(&mut self) {
        // What is left is in the intent, for the next backup.
        let _ = self.end(false);
    }
}
