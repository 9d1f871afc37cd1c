//! The disks of a machine of libvirt at one instant, by libvirt's own backup in pull mode.
//!
//! libvirt owns the monitor of its machines, so nothing is said to QEMU past it. Its backup is QEMU's
//! job `blockdev-backup` with `sync=none`: before the guest overwrites something for the first time,
//! the old bytes go to the store. If the store is full, the *guest's* write fails, other than with the
//! filter of this crate. So the thread that looks at the store ends the job before that.
//!
//! What changed since a snapshot is said by a checkpoint of libvirt that is named after it. Raw images
//! have none, and are read as a whole.

mod connection;
mod domain;
mod requests;
mod thawing;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strongroom_base::Stopwatch;

use super::beside::Beside;
use super::image::{Instant, LiveImage};
use super::reader::{Nbd, Reach, Reader};
use super::recent::Recent;
use super::started::IOTHREAD_SAFE;
use super::store::{self, Store};
use super::undo::{Undone, patiently};
use super::watch::{Watch, Watched};
use super::{
    Consistency, GiveBack, LiveDisk, LiveDisks, Night, Reached, RunningMachine, ShownDisk,
};
use crate::agent::AgentError;
use crate::bitmaps::PREFIX;
use crate::description::Description;
use crate::drives::check_names;
use crate::error::MachineError;
use crate::intent::StateFolder;
use crate::left_out::LeftOut;
use crate::process::{command_line, fill_tpm_state, owner, process_of, runs_what_is_installed};
use crate::remains::Exchanged;
use crate::runs;
use crate::virsh::{Virsh, VirshError};
use connection::{ANSWER_LIMIT, CHANGE_LIMIT, Connection, LATE_LIMIT, LATE_TICK};
use domain::{Domain, DomainDisk, checkpoint_description};
use requests::{
    CHANGED, KEEPS_CHECKPOINTS, Since, backup_xml, checkpoint_name, checkpoint_xml, identity_of,
};
use thawing::{Thawing, agent_error, thaw};

/// How long it may take to begin a backup: the guest is frozen meanwhile.
const BEGIN_LIMIT: Duration = Duration::from_secs(20);
/// What it says of a checkpoint that it does not trust.
const NO_CHECKPOINT: [&str; 2] = ["heckpoint", "itmap"];
/// The file with the machine's XML beside its description.
const XML_FILE: &str = "domain.xml";

/// A machine of libvirt.
pub struct LibvirtMachine {
    connection: Connection,
    domain: Domain,
    /// Bytes of each disk.
    sizes: Vec<Option<u64>>,
    /// Which libvirt has it.
    uri: String,
    left_out: Vec<LeftOut>,
}

/// What a run is about to do; in the state folder, as an [`Intent`](crate::intent::Intent) is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LibvirtIntent {
    /// The snapshot to come.
    snapshot: String,
    /// The guest may be frozen by us.
    is_freezing: bool,
    /// The files for what the guest overwrites.
    stores: Vec<PathBuf>,
}

impl LibvirtMachine {
    /// Finds a machine by its name, its UUID or its number.
    ///
    /// # Errors
    ///
    /// There is no `virsh`, or no such machine.
    pub fn find(uri: Option<&str>, name: &str) -> Result<Self, MachineError> {
        let virsh = Virsh { uri: uri.map(str::to_owned) };
        let mut connection = Connection { virsh, name: name.to_owned() };
        let domain = connection.domain()?;
        // A name may be the number of another machine.
        if !domain.uuid.is_empty() {
            connection.name.clone_from(&domain.uuid);
        }
        let uri = connection.virsh.run(&["uri"], ANSWER_LIMIT)?.trim().to_owned();
        if uri.split_once("://").is_some_and(|(_, rest)| !rest.starts_with('/')) {
            return Err(MachineError::Elsewhere { uri });
        }
        let size = |disk: &DomainDisk| {
            let said = connection.ask(&["domblkinfo", "--device", &disk.target], ANSWER_LIMIT);
            let line = said.ok()?;
            let line = line.lines().find(|line| line.starts_with("Capacity:"))?;
            first_number(line)
        };
        let sizes = domain.disks.iter().map(size).collect();
        let left_out = domain.left_out.iter();
        let left_out = left_out.map(|(name, why)| LeftOut { name: name.clone(), why: *why });
        Ok(Self { left_out: left_out.collect(), sizes, connection, domain, uri })
    }

    /// What it is, however it was named.
    pub fn key(&self) -> String {
        format!("{} {}", self.uri, self.domain.uuid)
    }

    /// Fails if the machine is off.
    fn check_runs(&self) -> Result<(), MachineError> {
        let state = self.connection.ask(&["domstate"], ANSWER_LIMIT)?;
        match state.trim() {
            "running" | "idle" | "paused" | "pmsuspended" => Ok(()),
            "shut off" | "crashed" => Err(MachineError::ShutOff {
                name: self.domain.name.clone(),
                images: self.domain.disks.iter().filter_map(|disk| disk.source.clone()).collect(),
            }),
            state => Err(MachineError::State { state: state.to_owned() }),
        }
    }

    /// Fails if QEMU would end when the backup does. libvirt offers disks over NBD alone, and before
    /// version 9 QEMU ends when a client leaves a disk with an iothread (seen with 7.2, each time).
    fn check_iothreads(&self, disks: &[DomainDisk]) -> Result<(), MachineError> {
        let Some(disk) = disks.iter().find(|disk| disk.has_iothread) else { return Ok(()) };
        let said = self.connection.virsh.run(&["version"], ANSWER_LIMIT)?;
        // A QEMU that was replaced by a newer one still runs as it was.
        let process = process_of(&self.domain.name, &self.domain.uuid);
        let is_current = process.is_some_and(runs_what_is_installed);
        if is_current && major_version(&said).is_some_and(|major| major >= IOTHREAD_SAFE) {
            return Ok(());
        }
        Err(MachineError::Iothread { disk: disk.target.clone() })
    }

    /// The disks without those that are to be left out.
    fn chosen(&self, night: &Night<'_>) -> Result<Vec<DomainDisk>, MachineError> {
        let mut disks = self.connection.domain()?.disks;
        let left_out = self.left_out.iter().map(|drive| &drive.name);
        check_names(night.without, disks.iter().map(|disk| &disk.target), left_out)?;
        disks.retain(|disk| !night.without.contains(&disk.target));
        if disks.is_empty() { Err(MachineError::NoDisks) } else { Ok(disks) }
    }
}

/// The first number of the version of QEMU that libvirt runs.
fn major_version(said: &str) -> Option<u64> {
    let line =
        said.lines().find_map(|line| line.trim().strip_prefix("Running hypervisor: QEMU "))?;
    line.split('.').next()?.trim().parse().ok()
}

impl RunningMachine for LibvirtMachine {
    fn disks(&self) -> Vec<ShownDisk> {
        let shown = |(disk, bytes): (&DomainDisk, &Option<u64>)| ShownDisk {
            name: disk.target.clone(),
            bytes: *bytes,
            format: disk.format.clone(),
            file: disk.source.clone(),
            notes_writes: disk.format == KEEPS_CHECKPOINTS,
            keeps_bitmaps: disk.format == KEEPS_CHECKPOINTS,
        };
        self.domain.disks.iter().zip(&self.sizes).map(shown).collect()
    }

    fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    fn description(&self) -> Result<Description, MachineError> {
        let line = process_of(&self.domain.name, &self.domain.uuid).and_then(command_line);
        let (program, arguments) = line.unwrap_or_default();
        let mut description = Description::from_arguments(&arguments);
        description.emulator.program = match (program.is_empty(), &self.domain.emulator) {
            (true, Some(path)) => path.rsplit('/').next().unwrap_or_default().to_owned(),
            _ => program,
        };
        self.domain.correct(&mut description, &self.sizes);
        fill_tpm_state(&mut description);
        Ok(description)
    }

    fn documents(&self) -> Result<Vec<(String, Vec<u8>)>, MachineError> {
        // As it will be after its next start, if that is known: without what libvirt has filled in.
        let inactive = self.connection.ask(&["dumpxml", "--inactive"], ANSWER_LIMIT)?;
        Ok(vec![(XML_FILE.to_owned(), inactive.into_bytes())])
    }

    fn freeze_disks(&self, night: &Night<'_>) -> Result<LiveDisks, MachineError> {
        let state = StateFolder::lock(night.state_folder)?;
        let is_owed = match undo_by(&self.connection, &state) {
            Ok(_) => false,
            // All else is undone. An agent that answers no more does not stop all backups, and is asked
            // again by each.
            Err(MachineError::NotThawed(_)) => true,
            Err(error) => return Err(error),
        };
        self.check_runs()?;
        let disks = self.chosen(night)?;
        self.check_iothreads(&disks)?;
        let parent = night.parent.map(|parent| checkpoint_name(night.set, parent.snapshot));
        self.connection.remove_checkpoints(night.set, parent.as_deref())?;
        let since = self.parent_of(&disks, night)?;
        let store = Store::open(night.store_folder, night.store_limits)?;
        let owner = process_of(&self.domain.name, &self.domain.uuid).and_then(owner);
        let socket = state.prepare_socket(owner)?;
        let intent = LibvirtIntent {
            snapshot: night.snapshot.to_owned(),
            is_freezing: is_owed || night.consistency != Consistency::None,
            stores: disks.iter().map(|disk| store.path(night.snapshot, &disk.target)).collect(),
        };
        state.write(&intent)?;
        let undoing = LibvirtUndoing {
            connection: self.connection.clone(),
            state,
            socket,
            stores: intent.stores.clone(),
            set: night.set.to_owned(),
            checkpoint: checkpoint_name(night.set, night.snapshot),
            is_owed,
            is_freezing: AtomicBool::new(true),
            thawing: Mutex::new(None),
        };
        match self.begin(&undoing, intent, (&disks, since), night, store) {
            Ok(mut live) => {
                live.undoing = Some(Box::new(undoing));
                Ok(live)
            }
            Err(error) => match undoing.give_back(false) {
                Ok(_) => Err(error),
                Err(second) => Err(MachineError::NotUndone(format!("{second} (after: {error})"))),
            },
        }
    }
}

impl LibvirtMachine {
    fn begin(
        &self,
        undoing: &LibvirtUndoing,
        mut intent: LibvirtIntent,
        (disks, since): (&[DomainDisk], Option<Since>),
        night: &Night<'_>,
        mut store: Store,
    ) -> Result<LiveDisks, MachineError> {
        let Frozen { reached, since: frozen, is_possible } = self.freeze(night, undoing.is_owed);
        undoing.is_freezing.store(is_possible, Ordering::Relaxed);
        let is_possible = is_possible || undoing.is_owed;
        let is_required = night.consistency == Consistency::Required;
        let reached = match reached {
            Err(error) if is_required => {
                intent.is_freezing = is_possible;
                undoing.state.write(&intent)?;
                return Err(error.into());
            }
            Err(error) => Reached::Paused { why: Some(error) },
            Ok(reached) => reached,
        };
        let beside = Beside::read_all(night.beside);
        let begun = self.begin_job(undoing, disks, since.as_ref());
        let pause = frozen.as_ref().map_or(Duration::ZERO, Stopwatch::elapsed);
        if is_possible {
            // It goes on until the guest does.
            *lock(&undoing.thawing) = Some(Thawing::start(self.connection.clone()));
        }
        intent.is_freezing = is_possible;
        undoing.state.write(&intent)?;
        let is_trusted = begun?;
        let since = since.filter(|_| is_trusted);
        intent.stores.iter().try_for_each(|path| store.adopt(path))?;
        let instant = Arc::new(Instant::new(night.cancel.clone(), night.share));
        let (connection, socket) = (self.connection.clone(), undoing.socket.clone());
        // If the store were full, the guest's writes would fail: nothing that takes long is done before.
        let watch = Watch::start(Watched {
            store,
            instant: instant.clone(),
            // If that fails, the end of the backup tries it again.
            give_up: Box::new(move || drop(connection.end(&socket))),
        })?;
        let mut live = Vec::new();
        for disk in disks {
            let before = night.parent.and_then(|parent| parent.disk_bytes.get(&disk.target));
            let is_noted = since.as_ref().is_some_and(|since| since.has(disk));
            let bitmap = is_noted.then_some(CHANGED);
            let bitmaps: Vec<&str> = bitmap.into_iter().collect();
            let read = || {
                let how = (night.connections, Reach::Any);
                let read = Nbd::connect(&undoing.socket, &disk.target, &bitmaps, how)?;
                let changed = bitmap.map(|bitmap| read.dirty(bitmap)).transpose()?.flatten();
                Ok((read.data(&[])?, changed, read))
            };
            let (data, mut changed, read) = read().map_err(|error| match watch.trouble() {
                Some(broken) => broken.into(),
                None => MachineError::Nbd { disk: disk.target.clone(), error },
            })?;
            if let (Some(changed), Some(before)) = (&mut changed, before) {
                runs::add_tail(changed, *before, read.size());
            }
            let image = LiveImage::new(Arc::new(read), data, Recent::default(), instant.clone());
            watch.add(&image);
            live.push(LiveDisk { name: disk.target.clone(), image, changed });
        }
        let (left_out, undoing, watch) = (self.left_out.clone(), None, Some(watch));
        let device_state = None;
        let disks = live;
        Ok(LiveDisks {
            disks,
            left_out,
            beside,
            reached,
            pause,
            device_state,
            instant,
            watch,
            undoing,
        })
    }

    /// What is noted since the parent: for the disks that the parent's checkpoint is of. libvirt itself
    /// looks only for a bitmap of that name, which a copy of another image has as well.
    fn parent_of(
        &self,
        disks: &[DomainDisk],
        night: &Night<'_>,
    ) -> Result<Option<Since>, MachineError> {
        let Some(parent) = night.parent else { return Ok(None) };
        let name = checkpoint_name(night.set, parent.snapshot);
        if !self.connection.checkpoints(PREFIX)?.contains(&name) {
            return Ok(None);
        }
        let dump = ["checkpoint-dumpxml", "--checkpointname", &name];
        let xml = self.connection.ask(&dump, ANSWER_LIMIT)?;
        let known = checkpoint_description(&xml).unwrap_or_default();
        let is_same = |disk: &&DomainDisk| {
            disk.format == KEEPS_CHECKPOINTS
                && parent.disk_bytes.contains_key(&disk.target)
                && known.lines().any(|line| line.trim() == identity_of(disk))
        };
        let targets: Vec<String> =
            disks.iter().filter(is_same).map(|disk| disk.target.clone()).collect();
        Ok((!targets.is_empty()).then_some(Since { checkpoint: name, targets }))
    }

    /// Freezes the guest if it is to be. With `is_owed`, an earlier run may have left it frozen.
    fn freeze(&self, night: &Night<'_>, is_owed: bool) -> Frozen {
        if night.consistency == Consistency::None {
            let reached = Ok(Reached::Paused { why: None });
            return Frozen { reached, since: None, is_possible: false };
        }
        let limit = night.freeze_limit;
        let freeze = || self.connection.ask(&["domfsfreeze"], limit);
        let asked = match freeze() {
            // An earlier run has, so it is thawed first.
            Err(error) if is_owed && error.says(&ALREADY_FROZEN) => {
                if thaw(&self.connection).is_ok() { freeze() } else { Err(error) }
            }
            asked => asked,
        };
        let (error, is_impossible) = match asked {
            Ok(said) => match frozen_in(&said) {
                Some(reached) => {
                    let since = Some(Stopwatch::start());
                    return Frozen { reached: Ok(reached), since, is_possible: true };
                }
                None => (AgentError::NothingFrozen, false),
            },
            // Who froze the guest has it go on.
            Err(error) if error.says(&ALREADY_FROZEN) => (AgentError::AlreadyFrozen, true),
            Err(error) => {
                let is_impossible = error.says(&thawing::NO_AGENT)
                    || error.says(&thawing::CANNOT_FREEZE)
                    || error.says(&NOT_ASKED);
                (agent_error("domfsfreeze", error, limit), is_impossible)
            }
        };
        // An agent that was slow, or left while it was asked, may have frozen the guest, or may yet.
        Frozen { reached: Err(error), since: None, is_possible: !is_impossible }
    }

    /// Begins the job, with all disks at one instant. Returns whether libvirt trusts the parent's
    /// checkpoint; otherwise everything is to be read.
    fn begin_job(
        &self,
        undoing: &LibvirtUndoing,
        disks: &[DomainDisk],
        since: Option<&Since>,
    ) -> Result<bool, MachineError> {
        let all = &self.domain.disks;
        let made = checkpoint_xml(&undoing.checkpoint, all, disks);
        let made =
            made.map(|made| undoing.state.write_text("checkpoint.xml", &made)).transpose()?;
        let begin = |since: Option<&Since>| -> Result<(), MachineError> {
            let backup = backup_xml(&undoing.socket, &undoing.stores, (all, disks), since);
            let backup = undoing.state.write_text("backup.xml", &backup)?;
            let backup = backup.to_string_lossy();
            let made = made.as_ref().map(|made| made.to_string_lossy());
            let mut command = vec!["backup-begin", "--backupxml", &*backup];
            command.extend(made.iter().flat_map(|made| ["--checkpointxml", &**made]));
            let begun = self.connection.ask(&command, BEGIN_LIMIT);
            if matches!(begun, Err(VirshError::Slow { .. } | VirshError::Ended { .. })) {
                // It may begin after all: then it is there to be ended.
                let waited = Stopwatch::start();
                while waited.elapsed() < LATE_LIMIT
                    && !self.connection.is_at_work(&undoing.socket)?
                {
                    std::thread::sleep(LATE_TICK);
                }
            }
            Ok(begun.map(drop)?)
        };
        let begun = match begin(since) {
            // The checkpoint's bitmap is lost or inconsistent: that is why there is a second way.
            Err(MachineError::Virsh(error)) if since.is_some() && error.says(&NO_CHECKPOINT) => {
                begin(None).map(|()| false)
            }
            begun => begun.map(|()| true),
        };
        for name in ["backup.xml", "checkpoint.xml"] {
            undoing.state.remove_text(name)?;
        }
        begun
    }
}

/// What became of freezing.
struct Frozen {
    /// Or why it was not done, although it was to be.
    reached: Result<Reached, AgentError>,
    /// When it was done, if it was.
    since: Option<Stopwatch>,
    /// The guest may be frozen, or become so.
    is_possible: bool,
}

/// What an answer to `domfsfreeze` says, if anything was frozen.
fn frozen_in(said: &str) -> Option<Reached> {
    first_number(said).filter(|count| *count > 0).map(Reached::Frozen)
}

/// "Froze 2 filesystem(s)"
fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().find_map(|word| word.parse().ok())
}

/// What an agent says that is asked to freeze a frozen guest: it knows fewer commands then.
const ALREADY_FROZEN: [&str; 2] = ["has been disabled", "already frozen"];

/// What libvirt says if it has asked no agent, as none is connected.
const NOT_ASKED: [&str; 1] = ["agent is not connected"];

/// What is needed to undo.
struct LibvirtUndoing {
    connection: Connection,
    state: StateFolder,
    socket: PathBuf,
    stores: Vec<PathBuf>,
    set: String,
    checkpoint: String,
    /// The guest may be frozen by an earlier run.
    is_owed: bool,
    /// The guest may be frozen by this run, or become so.
    is_freezing: AtomicBool,
    // A plain mutex: taken at the beginning and at the end.
    thawing: Mutex<Option<Thawing>>,
}

impl GiveBack for LibvirtUndoing {
    /// libvirt has no disk change its image during its backup.
    fn give_back(&self, is_committed: bool) -> Result<Vec<Exchanged>, MachineError> {
        let thawing = lock(&self.thawing).take();
        if thawing.is_some_and(Thawing::finish)
            && let Some(intent) = self.state.intent::<LibvirtIntent>()?
        {
            self.state.write(&LibvirtIntent { is_freezing: false, ..intent })?;
        }
        // The guest is frozen, or may become so: an attempt waits behind the freeze, and may end before it.
        let is_late = |error: &MachineError| {
            matches!(error, MachineError::NotThawed(_)) && self.is_freezing.load(Ordering::Relaxed)
        };
        patiently(&mut || undo_by(&self.connection, &self.state), &is_late)?;
        let kept = is_committed.then_some(self.checkpoint.as_str());
        match is_committed {
            true => self.connection.remove_checkpoints(&self.set, kept)?,
            false => {
                let name = &self.checkpoint;
                let delete = ["checkpoint-delete", "--checkpointname", name];
                // It was not made, or the machine is off: the next backup removes it.
                drop(self.connection.ask(&delete, CHANGE_LIMIT));
            }
        }
        Ok(Vec::new())
    }
}

/// Undoes everything that a dead run has left in a machine of libvirt. May be repeated. Checkpoints
/// stay: the next backup knows which of them it wants.
///
/// # Errors
///
/// A run is alive, or something cannot be undone.
pub fn undo_libvirt(
    uri: Option<&str>,
    name: &str,
    state_folder: &Path,
) -> Result<Undone, MachineError> {
    let virsh = Virsh { uri: uri.map(str::to_owned) };
    let connection = Connection { virsh, name: name.to_owned() };
    undo_by(&connection, &StateFolder::lock(state_folder)?)
}

fn undo_by(connection: &Connection, state: &StateFolder) -> Result<Undone, MachineError> {
    let intent: Option<LibvirtIntent> = state.intent()?;
    let snapshot = intent.as_ref().map(|intent| intent.snapshot.clone());
    let mut undone = Undone { snapshot, ..Undone::default() };
    // What keeps the guest from working goes first.
    let is_freezing = intent.as_ref().is_some_and(|intent| intent.is_freezing);
    let thawed = if is_freezing { thaw(connection) } else { Ok(false) };
    let socket = state.socket()?;
    if connection.end(&socket)? {
        undone.removed.push("the backup job of libvirt".to_owned());
    }
    intent.iter().flat_map(|intent| &intent.stores).try_for_each(|path| store::remove(path))?;
    store::remove(&socket)?;
    undone.is_thawed = thawed?;
    state.remove()?;
    Ok(undone)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_words() {
        assert_eq!(first_number("Froze 2 filesystem(s)"), Some(2));
        assert_eq!(first_number("Capacity:       67108864"), Some(67108864));
        assert_eq!(first_number("none"), None);
        assert!(matches!(frozen_in("Froze 2 filesystem(s)"), Some(Reached::Frozen(2))));
        assert!(frozen_in("Froze 0 filesystem(s)").is_none() && frozen_in("").is_none());
    }

    #[test]
    fn the_version_of_qemu_is_not_that_of_libvirt() {
        let said = "Compiled against library: libvirt 9.0.0\nUsing library: libvirt 9.0.0\n\
            Using API: QEMU 9.0.0\nRunning hypervisor: QEMU 7.2.22\n";
        assert_eq!(major_version(said), Some(7));
        assert_eq!(major_version("Using API: QEMU 9.0.0\n"), None);
    }
}
