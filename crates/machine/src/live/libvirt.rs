//! The disks of a machine of libvirt at one instant, by libvirt's own backup in pull mode.
//!
//! libvirt owns the monitor of its machines, so nothing is said to QEMU past it. Its backup is QEMU's
//! job `blockdev-backup` with `sync=none`: before the guest overwrites something for the first time,
//! the old bytes go to the store. If the store is full, the *guest's* write fails, other than with the
//! filter of this crate. So the thread that looks at the store ends the job before that.
//!
//! What changed since a snapshot is said by a checkpoint of libvirt that is named after it. Raw images
//! have none, and are read as a whole.

mod domain;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strongroom_base::Stopwatch;

use super::beside::Beside;
use super::image::{Instant, LiveImage};
use super::reader::Reader;
use super::store::{self, Store};
use super::undo::Undone;
use super::watch::{Watch, Watched};
use super::{
    Consistency, GiveBack, LiveDisk, LiveDisks, Night, Reached, RunningMachine, ShownDisk,
};
use crate::agent::AgentError;
use crate::bitmaps::PREFIX;
use crate::description::Description;
use crate::drives::LeftOut;
use crate::error::MachineError;
use crate::intent::StateFolder;
use crate::process::{command_line, owner, process_of};
use crate::runs;
use crate::virsh::{Virsh, VirshError};
use domain::{Domain, DomainDisk, escaped};

/// How long libvirt may take for a question.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How long it may take to begin a backup, to end it, and to remove a checkpoint.
const CHANGE_LIMIT: Duration = Duration::from_secs(120);
/// How long the guest may take to go on.
const THAW_LIMIT: Duration = Duration::from_secs(30);
/// The formats of images that keep checkpoints.
const KEEPS_CHECKPOINTS: &str = "qcow2";
/// What a bitmap is called in an export.
const CHANGED: &str = "changed";
/// The file with the machine's XML beside its description.
const XML_FILE: &str = "domain.xml";

/// A machine of libvirt.
pub struct LibvirtMachine {
    connection: Connection,
    domain: Domain,
    /// Bytes of each disk.
    sizes: Vec<Option<u64>>,
    left_out: Vec<LeftOut>,
}

/// What is said to libvirt of one machine.
#[derive(Debug, Clone)]
struct Connection {
    virsh: Virsh,
    name: String,
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

impl Connection {
    /// Runs a command about the machine: its name comes behind the command's.
    fn ask(&self, command: &[&str], limit: Duration) -> Result<String, VirshError> {
        let (first, rest) = command.split_first().expect("a command has a name");
        let arguments: Vec<&str> =
            [*first, "--domain", &self.name].into_iter().chain(rest.iter().copied()).collect();
        self.virsh.run(&arguments, limit)
    }

    fn domain(&self) -> Result<Domain, MachineError> {
        Domain::parse(&self.ask(&["dumpxml"], ANSWER_LIMIT)?)
    }

    /// The checkpoints of ours.
    fn checkpoints(&self, start: &str) -> Result<Vec<String>, MachineError> {
        let listed = self.ask(&["checkpoint-list", "--name"], ANSWER_LIMIT)?;
        let names = listed.lines().map(str::trim).filter(|name| name.starts_with(start));
        Ok(names.map(str::to_owned).collect())
    }

    /// Removes the checkpoints of a set, except one. What cannot be removed stays: it costs the guest
    /// a little for each write, and is tried again the next night.
    fn remove_checkpoints(&self, set: &str, kept: Option<&str>) -> Result<(), MachineError> {
        let start = format!("{PREFIX}{set}-");
        for name in self.checkpoints(&start)? {
            if Some(name.as_str()) != kept {
                match self.ask(&["checkpoint-delete", "--checkpointname", &name], CHANGE_LIMIT) {
                    Ok(_) | Err(VirshError::Refused { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Whether a backup runs whose disks are offered at this socket.
    fn is_at_work(&self, socket: &Path) -> Result<bool, VirshError> {
        match self.ask(&["backup-dumpxml"], ANSWER_LIMIT) {
            Ok(xml) => Ok(xml.contains(&escaped(&socket.to_string_lossy()))),
            // There is none, or the machine is off.
            Err(VirshError::Refused { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Ends the backup at a socket, if it runs. Returns whether it did.
    fn end(&self, socket: &Path) -> Result<bool, MachineError> {
        if !self.is_at_work(socket)? {
            return Ok(false);
        }
        match self.ask(&["domjobabort"], CHANGE_LIMIT) {
            Ok(_) => Ok(true),
            Err(error) if self.is_at_work(socket)? => {
                Err(MachineError::NotUndone(error.to_string()))
            }
            Err(_) => Ok(true),
        }
    }

    /// Has the guest go on. Returns whether file systems were frozen.
    fn thaw(&self) -> Result<bool, MachineError> {
        match self.ask(&["domfsthaw"], THAW_LIMIT) {
            Ok(said) => Ok(first_number(&said).is_some_and(|count| count > 0)),
            Err(error) => Err(MachineError::NotThawed(agent_error("domfsthaw", error, THAW_LIMIT))),
        }
    }
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
        connection.name.clone_from(&domain.name);
        let size = |disk: &DomainDisk| {
            let said = connection.ask(&["domblkinfo", "--device", &disk.target], ANSWER_LIMIT);
            let line = said.ok()?;
            let line = line.lines().find(|line| line.starts_with("Capacity:"))?;
            first_number(line)
        };
        let sizes = domain.disks.iter().map(size).collect();
        let left_out = domain.left_out.iter();
        let left_out = left_out.map(|(name, why)| LeftOut { name: name.clone(), why: *why });
        Ok(Self { left_out: left_out.collect(), sizes, connection, domain })
    }

    /// What libvirt calls it.
    pub fn name(&self) -> &str {
        &self.domain.name
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

    /// The disks without those that are to be left out.
    fn chosen(&self, night: &Night<'_>) -> Result<Vec<DomainDisk>, MachineError> {
        let mut disks = self.connection.domain()?.disks;
        for name in night.without {
            if !disks.iter().any(|disk| disk.target == *name) {
                let known = disks.into_iter().map(|disk| disk.target).collect();
                return Err(MachineError::NoSuchDisk { name: name.clone(), known });
            }
        }
        disks.retain(|disk| !night.without.contains(&disk.target));
        if disks.is_empty() { Err(MachineError::NoDisks) } else { Ok(disks) }
    }
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
        let line = process_of(&self.domain.uuid).and_then(command_line);
        let (program, arguments) = line.unwrap_or_default();
        let mut description = Description::from_arguments(&arguments);
        description.emulator.program = match (program.is_empty(), &self.domain.emulator) {
            (true, Some(path)) => path.rsplit('/').next().unwrap_or_default().to_owned(),
            _ => program,
        };
        self.domain.correct(&mut description, &self.sizes);
        Ok(description)
    }

    fn documents(&self) -> Result<Vec<(String, Vec<u8>)>, MachineError> {
        // As it will be after its next start, if that is known: without what libvirt has filled in.
        let inactive = self.connection.ask(&["dumpxml", "--inactive"], ANSWER_LIMIT)?;
        Ok(vec![(XML_FILE.to_owned(), inactive.into_bytes())])
    }

    fn freeze_disks(&self, night: &Night<'_>) -> Result<LiveDisks, MachineError> {
        let state = StateFolder::lock(night.state_folder)?;
        undo_by(&self.connection, &state)?;
        self.check_runs()?;
        let disks = self.chosen(night)?;
        let parent = night.parent.map(|parent| checkpoint_name(night.set, parent.snapshot));
        self.connection.remove_checkpoints(night.set, parent.as_deref())?;
        let store = Store::open(night.store_folder, night.store_limits)?;
        let owner = process_of(&self.domain.uuid).and_then(owner);
        let socket = state.prepare_socket(owner)?;
        let intent = LibvirtIntent {
            snapshot: night.snapshot.to_owned(),
            is_freezing: night.consistency != Consistency::None,
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
        };
        match self.begin(&undoing, intent, &disks, night, store) {
            Ok(mut live) => {
                live.undoing = Some(Box::new(undoing));
                Ok(live)
            }
            Err(error) => match undoing.give_back(false) {
                Ok(()) => Err(error),
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
        disks: &[DomainDisk],
        night: &Night<'_>,
        mut store: Store,
    ) -> Result<LiveDisks, MachineError> {
        let known = self.connection.checkpoints(PREFIX)?;
        let parent = night.parent.map(|parent| checkpoint_name(night.set, parent.snapshot));
        let parent = parent.filter(|parent| known.contains(parent));
        let (reached, frozen) = self.freeze(night)?;
        let beside = Beside::read_all(night.beside);
        let since = self.begin_job(undoing, disks, parent.as_deref());
        let pause = frozen.map_or(Duration::ZERO, |frozen| frozen.elapsed());
        if intent.is_freezing && frozen.is_some() {
            // If the guest does not go on now, the end of the backup tries it again.
            intent.is_freezing = self.connection.thaw().is_err();
            undoing.state.write(&intent)?;
        }
        let since = since?;
        intent.stores.iter().try_for_each(|path| store.adopt(path))?;
        let instant = Arc::new(Instant::new(night.cancel.clone()));
        let mut live = Vec::new();
        for disk in disks {
            let is_noted = since.is_some() && disk.format == KEEPS_CHECKPOINTS;
            let before = night.parent.and_then(|parent| parent.disk_bytes.get(&disk.target));
            let bitmap = (is_noted && before.is_some()).then_some(CHANGED);
            let offered = Reader::connect(&undoing.socket, &disk.target, bitmap, night.connections);
            let mut offered =
                offered.map_err(|error| MachineError::Nbd { disk: disk.target.clone(), error })?;
            let (mut changed, bytes) = (offered.changed.take(), offered.bytes);
            if let (Some(changed), Some(before)) = (&mut changed, before) {
                runs::add_tail(changed, *before, bytes);
            }
            let image = LiveImage::new(offered, instant.clone());
            live.push(LiveDisk { name: disk.target.clone(), image, changed });
        }
        let (connection, socket) = (self.connection.clone(), undoing.socket.clone());
        let watch = Watch::start(Watched {
            store,
            instant: instant.clone(),
            images: live.iter().map(|disk| disk.image.clone()).collect(),
            // If that fails, the end of the backup tries it again.
            give_up: Box::new(move || drop(connection.end(&socket))),
        })?;
        let (left_out, undoing, watch) = (self.left_out.clone(), None, Some(watch));
        Ok(LiveDisks { disks: live, left_out, beside, reached, pause, instant, watch, undoing })
    }

    /// Freezes the guest if it is to be; returns when that was done, if it was.
    fn freeze(&self, night: &Night<'_>) -> Result<(Reached, Option<Stopwatch>), MachineError> {
        if night.consistency == Consistency::None {
            return Ok((Reached::Paused { why: None }, None));
        }
        let limit = night.freeze_limit;
        let error = match self.connection.ask(&["domfsfreeze"], limit) {
            Ok(said) => {
                let count = first_number(&said).unwrap_or_default();
                return Ok((Reached::Frozen(count), Some(Stopwatch::start())));
            }
            Err(error) => agent_error("domfsfreeze", error, limit),
        };
        if night.consistency == Consistency::Required {
            return Err(error.into());
        }
        // An agent that was slow may freeze the guest yet.
        let is_late = matches!(error, AgentError::TimedOut(_));
        Ok((Reached::Paused { why: Some(error) }, is_late.then(Stopwatch::start)))
    }

    /// Begins the job, with all disks at one instant. Returns the checkpoint since which changes are
    /// known; if libvirt does not trust that one, everything is to be read.
    fn begin_job<'c>(
        &self,
        undoing: &LibvirtUndoing,
        disks: &[DomainDisk],
        parent: Option<&'c str>,
    ) -> Result<Option<&'c str>, MachineError> {
        let folder = undoing.socket.parent().expect("a socket is in a folder");
        let (backup, checkpoint) = (folder.join("backup.xml"), folder.join("checkpoint.xml"));
        let write = |path: &Path, xml: &str| {
            std::fs::write(path, xml).map_err(crate::error::file_error(path))
        };
        let made = checkpoint_xml(&undoing.checkpoint, &self.domain.disks, disks);
        let begin = |since: Option<&str>| -> Result<(), MachineError> {
            write(&backup, &backup_xml(undoing, &self.domain.disks, disks, since))?;
            let (backup, checkpoint) = (backup.to_string_lossy(), checkpoint.to_string_lossy());
            let mut command = vec!["backup-begin", "--backupxml", &*backup];
            if let Some(made) = &made {
                write(Path::new(&*checkpoint), made)?;
                command.extend(["--checkpointxml", &*checkpoint]);
            }
            Ok(self.connection.ask(&command, CHANGE_LIMIT).map(drop)?)
        };
        let begun = match (begin(parent), parent) {
            // The checkpoint's bitmap is lost or inconsistent: that is why there is a second way.
            (Err(MachineError::Virsh(VirshError::Refused { .. })), Some(_)) => {
                begin(None).map(|()| None)
            }
            (begun, parent) => begun.map(|()| parent),
        };
        for path in [&backup, &checkpoint] {
            store::remove(path)?;
        }
        begun
    }
}

/// The backup: the chosen disks, offered at the socket, and where what is overwritten goes.
fn backup_xml(
    undoing: &LibvirtUndoing,
    all: &[DomainDisk],
    chosen: &[DomainDisk],
    since: Option<&str>,
) -> String {
    let mut disks = String::new();
    for disk in all {
        let name = escaped(&disk.target);
        let Some(number) = chosen.iter().position(|other| other.target == disk.target) else {
            disks.push_str(&format!("<disk name='{name}' backup='no'/>"));
            continue;
        };
        let mode = match since.filter(|_| disk.format == KEEPS_CHECKPOINTS) {
            Some(since) => format!(
                "backupmode='incremental' incremental='{}' exportbitmap='{CHANGED}'",
                escaped(since)
            ),
            None => "backupmode='full'".to_owned(),
        };
        let file = escaped(&undoing.stores[number].to_string_lossy());
        disks.push_str(&format!(
            "<disk name='{name}' backup='yes' type='file' exportname='{name}' {mode}>\
             <scratch file='{file}'/></disk>"
        ));
    }
    let socket = escaped(&undoing.socket.to_string_lossy());
    format!(
        "<domainbackup mode='pull'><server transport='unix' socket='{socket}'/>\
         <disks>{disks}</disks></domainbackup>"
    )
}

/// The checkpoint that begins at the same instant; none if no disk can keep one.
fn checkpoint_xml(name: &str, all: &[DomainDisk], chosen: &[DomainDisk]) -> Option<String> {
    let keeps = |disk: &DomainDisk| {
        disk.format == KEEPS_CHECKPOINTS && chosen.iter().any(|other| other.target == disk.target)
    };
    all.iter().any(keeps).then(|| {
        let disk = |disk: &DomainDisk| {
            let kind = if keeps(disk) { "bitmap" } else { "no" };
            format!("<disk name='{}' checkpoint='{kind}'/>", escaped(&disk.target))
        };
        let disks: String = all.iter().map(disk).collect();
        let name = escaped(name);
        format!("<domaincheckpoint><name>{name}</name><disks>{disks}</disks></domaincheckpoint>")
    })
}

/// The checkpoint that notes what is written after a snapshot.
fn checkpoint_name(set: &str, snapshot: &str) -> String {
    format!("{PREFIX}{set}-{snapshot}")
}

/// "Froze 2 filesystem(s)"
fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().find_map(|word| word.parse().ok())
}

fn agent_error(command: &'static str, error: VirshError, limit: Duration) -> AgentError {
    match error {
        VirshError::Slow { .. } => AgentError::TimedOut(limit),
        VirshError::Refused { said, .. } => AgentError::Refused { command, description: said },
        VirshError::Start(error) => AgentError::Unanswered { command, why: error.to_string() },
    }
}

/// What is needed to undo.
struct LibvirtUndoing {
    connection: Connection,
    state: StateFolder,
    socket: PathBuf,
    stores: Vec<PathBuf>,
    set: String,
    checkpoint: String,
}

impl GiveBack for LibvirtUndoing {
    fn give_back(&self, is_committed: bool) -> Result<(), MachineError> {
        undo_by(&self.connection, &self.state)?;
        let kept = is_committed.then_some(self.checkpoint.as_str());
        match is_committed {
            true => self.connection.remove_checkpoints(&self.set, kept),
            false => {
                let name = &self.checkpoint;
                let delete = ["checkpoint-delete", "--checkpointname", name];
                // It was not made, or the machine is off: the next backup removes it.
                drop(self.connection.ask(&delete, CHANGE_LIMIT));
                Ok(())
            }
        }
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
    let socket = state.socket()?;
    if connection.end(&socket)? {
        undone.removed.push("the backup job of libvirt".to_owned());
    }
    if let Some(intent) = &intent {
        if intent.is_freezing {
            undone.is_thawed = match connection.thaw() {
                Ok(is_thawed) => is_thawed,
                // There is no agent, or no machine any more: then nothing is frozen.
                Err(MachineError::NotThawed(AgentError::Refused { .. })) => false,
                Err(error) => return Err(error),
            };
        }
        intent.stores.iter().try_for_each(|path| store::remove(path))?;
    }
    store::remove(&socket)?;
    state.remove()?;
    Ok(undone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(target: &str, format: &str) -> DomainDisk {
        DomainDisk {
            target: target.to_owned(),
            bus: crate::description::DiskBus::Virtio,
            alias: None,
            serial: None,
            format: format.to_owned(),
            source: None,
        }
    }

    #[test]
    fn only_disks_that_keep_checkpoints_have_one() {
        let all = [disk("vda", "qcow2"), disk("vdb", "raw"), disk("vd&c", "qcow2")];
        let made = checkpoint_xml("strongroom-set-S1", &all, &all[..2]).unwrap();
        assert_eq!(
            made,
            "<domaincheckpoint><name>strongroom-set-S1</name><disks>\
             <disk name='vda' checkpoint='bitmap'/><disk name='vdb' checkpoint='no'/>\
             <disk name='vd&amp;c' checkpoint='no'/></disks></domaincheckpoint>"
        );
        assert_eq!(checkpoint_xml("a", &all, &all[1..2]), None);
    }

    #[test]
    fn numbers_are_found_in_words() {
        assert_eq!(first_number("Froze 2 filesystem(s)"), Some(2));
        assert_eq!(first_number("Capacity:       67108864"), Some(67108864));
        assert_eq!(first_number("none"), None);
    }
}
