//! The steps by which the disks of a machine are brought to one instant.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use strongroom_base::Stopwatch;

use super::beside::Beside;
use super::device_state;
use super::export::{Offered, export, start_server};
use super::image::Instant;
use super::released::CLUSTER_BYTES;
use super::started;
use super::started::has_safe_server;
use super::store::{self, Store};
use super::watch::{Watch, Watched};
use super::{Consistency, LiveDisk, LiveDisks, Machine, Night, Reached, Settle, Undoing};
use crate::agent::{Freezer, Thaw};
use crate::bitmaps::{self, bitmap_name};
use crate::drives::{Drive, Drives, nodes};
use crate::error::{Broken, MachineError, file_error};
use crate::graph::Graph;
use crate::intent::{IntendedDisk, Intent, StateFolder};
use crate::migration::MigrationSettings;
use crate::objects::property;
use crate::qmp::Qmp;
use crate::remains::{self, Names};

/// How long a machine may take until it is paused: its requests to the disks end first.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// How long the thaw is waited for before the disks are read.
const FIRST_THAW_LIMIT: Duration = Duration::from_secs(5);
/// After this time the filter gives up, and the guest's write goes on. QEMU before 9.1 counts wrongly
/// from 5 on.
const STALL_SECONDS: u64 = 3;

impl Machine {
    /// As [`RunningMachine::freeze_disks`](super::RunningMachine::freeze_disks).
    pub(super) fn bring_to_an_instant(
        &self,
        night: &Night<'_>,
        settle: Option<Settle<'_>>,
    ) -> Result<LiveDisks, MachineError> {
        // Then this is why, and not what was noticed first.
        self.freeze(night, settle)
            .map_err(|error| if self.is_gone() { Broken::Gone.into() } else { error })
    }

    /// True if QEMU has ended since it was connected to.
    fn is_gone(&self) -> bool {
        matches!(self.activity(), Err(MachineError::Qmp(error)) if error.is_gone())
    }

    fn freeze(
        &self,
        night: &Night<'_>,
        settle: Option<Settle<'_>>,
    ) -> Result<LiveDisks, MachineError> {
        let state = StateFolder::lock(night.state_folder)?;
        let unthawed = self.undo_remains(&state)?;
        let found = self.chosen(night)?;
        let activity = self.activity()?;
        let is_running = activity == Activity::Running;
        if settle.is_some() && !is_running {
            return Err(MachineError::NotRunning);
        }
        if night.consistency == Consistency::Required && night.agent.is_none() {
            return Err(MachineError::NoAgent);
        }
        if let Activity::Held(state) = &activity
            && night.consistency == Consistency::Required
        {
            return Err(MachineError::Held { state: state.clone() });
        }
        let nodes = nodes(&self.qmp)?;
        let parent = night.parent.map(|parent| parent.snapshot);
        bitmaps::remove_others(&self.qmp, &found.disks, &nodes, night.set, parent)?;
        let store = Store::open(night.store_folder, night.store_limits)?;
        let migration = settle.is_some().then(|| MigrationSettings::of(&self.qmp)).transpose()?;
        let intended = |drive: &Drive| IntendedDisk {
            name: drive.name.clone(),
            device: drive.device.clone(),
            node: drive.node.clone(),
            store: store.path(night.snapshot, &drive.name),
        };
        let asks_agent = is_running && night.consistency != Consistency::None;
        let agent = night.agent.filter(|_| asks_agent);
        // A later process may be in another folder.
        let everywhere = |socket: &Path| -> Result<PathBuf, MachineError> {
            std::path::absolute(socket).map_err(file_error(socket))
        };
        let intent = Intent {
            monitor: everywhere(&self.monitor)?,
            snapshot: night.snapshot.to_owned(),
            agent: agent.map(everywhere).transpose()?,
            unthawed,
            is_pausing: is_running,
            migration,
            disks: found.disks.iter().map(intended).collect(),
        };
        let mut undoing = Undoing {
            qmp: self.qmp.clone(),
            state,
            intent,
            freezer: None,
            drives: found.disks,
            set: night.set.to_owned(),
            snapshot: night.snapshot.to_owned(),
        };
        undoing.state.write(&undoing.intent)?;
        match begin(&mut undoing, activity, store, night, settle) {
            Ok(begun) => Ok(LiveDisks {
                disks: begun.disks,
                left_out: found.left_out,
                beside: begun.beside,
                reached: begun.reached,
                pause: begun.pause,
                device_state: begun.device_state,
                instant: begun.instant,
                watch: Some(begun.watch),
                undoing: Some(Box::new(undoing)),
            }),
            Err(error) => {
                // The second error says more: it leads to the first one, too.
                match undoing.undo() {
                    Ok(_) => Err(error),
                    Err(MachineError::NotUndone(second)) => {
                        Err(MachineError::NotUndone(format!("{second} (after: {error})")))
                    }
                    Err(second) => Err(second),
                }
            }
        }
    }

    /// The disks of the machine now, without those that are to be left out.
    fn chosen(&self, night: &Night<'_>) -> Result<Drives, MachineError> {
        let mut found = Drives::find(&self.qmp)?;
        found.check_names(night.without)?;
        found.disks.retain(|drive| !night.without.contains(&drive.name));
        if found.disks.is_empty() {
            return Err(MachineError::NoDisks);
        }
        refuse_busy(&self.qmp, &found.disks)?;
        let is_safe = has_safe_server(&self.qmp);
        for drive in &found.disks {
            if drive.iothread.is_some() && !is_safe && !self.has_fuse {
                return Err(MachineError::Iothread { disk: drive.name.clone() });
            }
            if property(&self.qmp, &drive.device, "drive")?.is_none() {
                let asked = json!({"path": drive.device, "property": "drive"});
                let answer = self.qmp.execute("qom-get", asked);
                return Err(match answer {
                    Err(error) => MachineError::Device { disk: drive.name.clone(), error },
                    Ok(_) => MachineError::NoDisks,
                });
            }
        }
        Ok(found)
    }

    fn activity(&self) -> Result<Activity, MachineError> {
        let status = self.qmp.execute("query-status", Value::Null)?;
        match status["status"].as_str().unwrap_or_default() {
            "running" => Ok(Activity::Running),
            "prelaunch" | "shutdown" => Ok(Activity::AtRest),
            state @ ("paused" | "suspended" | "internal-error" | "io-error" | "guest-panicked"
            | "watchdog" | "debug") => Ok(Activity::Held(state.to_owned())),
            other => Err(MachineError::State { state: other.to_owned() }),
        }
    }
}

/// What the machine does.
#[derive(PartialEq, Eq)]
enum Activity {
    Running,
    /// It was not started, or has shut down: its guest has nothing left to write.
    AtRest,
    /// It does not go on now, in this state. What its guest has not written yet is on no disk.
    Held(String),
}

/// What was begun.
struct Begun {
    disks: Vec<LiveDisk>,
    beside: Vec<Beside>,
    reached: Reached,
    pause: Duration,
    device_state: Option<Vec<u8>>,
    instant: Arc<Instant>,
    watch: Watch,
}

fn begin(
    undoing: &mut Undoing,
    activity: Activity,
    mut store: Store,
    night: &Night<'_>,
    settle: Option<Settle<'_>>,
) -> Result<Begun, MachineError> {
    let qmp = undoing.qmp.clone();
    let owner = qmp.peer().map(|peer| (peer.uid, peer.gid));
    for (number, (drive, disk)) in undoing.drives.iter().zip(&undoing.intent.disks).enumerate() {
        store.create(&disk.store, drive.bytes, owner)?;
        add_store(&qmp, &Names::of(number), disk)?;
        // QEMU and the store have it open.
        store::remove(&disk.store)?;
        bitmaps::begin_recent(&qmp, drive, CLUSTER_BYTES)?;
    }
    start_server(undoing, owner)?;
    started::wait(undoing, night)?;
    if let Some(migration) = &undoing.intent.migration {
        migration.change(&qmp)?;
    }
    if undoing.intent.is_pausing {
        std::thread::sleep(night.watched);
    }
    let reached = match activity {
        Activity::Running => freeze(undoing, night)?,
        Activity::AtRest => Reached::AtRest,
        Activity::Held(_) => Reached::Paused { why: None },
    };
    let taking = Taking { qmp: &qmp, undoing, night, owner };
    let (taken, pause) = match undoing.intent.is_pausing {
        true => taking.take_paused(settle)?,
        false => (taking.take(settle)?, Duration::ZERO),
    };
    if let Some(migration) = &undoing.intent.migration {
        migration.restore(&qmp)?;
    }
    undoing.intent.migration = None;
    // While the guest is frozen, what it is going to write first is read.
    let lost = |error| store.trouble().map_or(error, MachineError::from);
    let offered = export(undoing, night, owner).map_err(lost)?;
    // If the agent hangs now, its thread goes on, and so does the backup.
    let freezer = undoing.freezer.as_ref();
    if freezer.is_some_and(|freezer| matches!(freezer.thaw(FIRST_THAW_LIMIT), Thaw::Thawed)) {
        undoing.intent.agent = None;
    }
    undoing.intent.is_pausing = false;
    undoing.state.write(&undoing.intent)?;
    let instant = Arc::new(Instant::new(night.cancel.clone(), night.share));
    let (intent, folder) = (undoing.intent.clone(), store.folder().to_owned());
    // The filters go at once, so that the store grows no more. If that fails, the end of the backup
    // tries it again.
    let give_up = move || {
        let answers = store::check_answers(&folder);
        let _ = answers.and_then(|()| remains::remove(&qmp, Some(&intent)).map(drop));
    };
    let watch =
        Watch::start(Watched { store, instant: instant.clone(), give_up: Box::new(give_up) })?;
    let describe = |disk: Offered| {
        let disk = disk.describe(&instant);
        let disk = disk.map_err(|error| watch.trouble().map_or(error, MachineError::from))?;
        watch.add(&disk.image);
        Ok(disk)
    };
    let disks = offered.into_iter().map(describe).collect::<Result<Vec<_>, MachineError>>()?;
    let Taken { beside, device_state } = taken;
    Ok(Begun { disks, beside, reached, pause, device_state, instant, watch })
}

fn add_store(qmp: &Qmp, names: &Names, disk: &IntendedDisk) -> Result<(), MachineError> {
    let Some(path) = disk.store.to_str() else {
        let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not UTF-8");
        return Err(MachineError::File { path: disk.store.clone(), error });
    };
    // Both levels must pass on what is discarded.
    let file = json!({"driver": "file", "filename": path, "discard": "unmap"});
    let node = json!({"driver": "raw", "node-name": names.store, "discard": "unmap", "file": file});
    qmp.execute("blockdev-add", node)?;
    Ok(())
}

/// Freezes the guest of a machine that runs, if it is to be.
fn freeze(undoing: &mut Undoing, night: &Night<'_>) -> Result<Reached, MachineError> {
    let Some(agent) = undoing.intent.agent.clone() else {
        return Ok(Reached::Paused { why: None });
    };
    // What an earlier run has frozen is ours.
    let mut unthawed = undoing.intent.unthawed.iter();
    let freezer = match unthawed.any(|socket| is_same(socket, &agent)) {
        true => Freezer::begin_again(&agent, night.freeze_limit),
        false => Freezer::begin(&agent, night.freeze_limit),
    };
    // The thread itself ends in this time; a little more, so that its reason is the one.
    let frozen = freezer.wait(night.freeze_limit + Duration::from_secs(1));
    undoing.freezer = Some(freezer);
    match frozen {
        Ok(count) => Ok(Reached::Frozen(count)),
        Err(error) if night.consistency == Consistency::Required => Err(error.into()),
        Err(error) => Ok(Reached::Paused { why: Some(error) }),
    }
}

/// Whether two paths lead to one socket.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    one == other || real(one).is_some_and(|one| Some(one) == real(other))
}

/// Takes the instant.
struct Taking<'t> {
    qmp: &'t Qmp,
    undoing: &'t Undoing,
    night: &'t Night<'t>,
    owner: Option<(u32, u32)>,
}

/// What is of the instant besides the disks.
struct Taken {
    beside: Vec<Beside>,
    device_state: Option<Vec<u8>>,
}

impl Taking<'_> {
    /// Pauses the machine, takes the instant, and has it run again. Returns how long it was paused,
    /// too.
    fn take_paused(&self, settle: Option<Settle<'_>>) -> Result<(Taken, Duration), MachineError> {
        let paused = Stopwatch::start();
        // If anything fails from here on, what undoes it has the machine run.
        self.qmp.execute_within("stop", Value::Null, STOP_LIMIT)?;
        let taken = self.take(settle)?;
        self.qmp.execute("cont", Value::Null)?;
        Ok((taken, paused.elapsed()))
    }

    /// Takes the state of the devices, begins the bitmaps, puts the filters in, and reads the files
    /// beside the disks.
    fn take(&self, settle: Option<Settle<'_>>) -> Result<Taken, MachineError> {
        let Self { qmp, undoing, night, .. } = self;
        let device_state = settle.map(|settle| self.take_memory(settle)).transpose()?;
        let name = |drive: &Drive| bitmap_name(night.set, night.snapshot, &drive.name);
        let actions = |drive| [bitmaps::begin(drive, &name(drive)), bitmaps::end_recent(drive)];
        let actions: Vec<Value> = undoing.drives.iter().flat_map(actions).collect();
        // The machine was found, watched and frozen since it was asked first.
        refuse_busy(qmp, &undoing.drives)?;
        qmp.execute("transaction", json!({"actions": actions}))?;
        for (number, drive) in undoing.drives.iter().enumerate() {
            let names = Names::of(number);
            insert_filter(qmp, drive, &names).map_err(|error| match error {
                MachineError::Qmp(error) if error.is_refused() => {
                    MachineError::Device { disk: drive.name.clone(), error }
                }
                other => other,
            })?;
        }
        Ok(Taken { beside: Beside::read_all(night.beside), device_state })
    }

    /// The state of the devices; then nothing writes to the memory any more.
    fn take_memory(&self, settle: Settle<'_>) -> Result<Vec<u8>, MachineError> {
        let Self { qmp, undoing, owner, .. } = self;
        let of_drive =
            |(number, drive): (usize, &Drive)| [drive.node.clone(), Names::of(number).store];
        let nodes: Vec<String> = undoing.drives.iter().enumerate().flat_map(of_drive).collect();
        let state = device_state::take(qmp, &undoing.state, *owner, &nodes)?;
        settle().map_err(MachineError::Memory)?;
        Ok(state)
    }
}

/// Fails if a job of another program works on one of these disks.
fn refuse_busy(qmp: &Qmp, drives: &[Drive]) -> Result<(), MachineError> {
    let graph = Graph::ask(qmp)?;
    let busy = |drive: &Drive| {
        let job = graph.job_on(&drive.node)?.to_owned();
        Some(MachineError::Busy { disk: drive.name.clone(), job })
    };
    drives.iter().find_map(busy).map_or(Ok(()), Err)
}

fn insert_filter(qmp: &Qmp, drive: &Drive, names: &Names) -> Result<(), MachineError> {
    // Without `discard`, what the guest discards is ignored silently; the disk's own node decides.
    let filter = json!({
        "driver": "copy-before-write",
        "node-name": names.filter,
        "discard": "unmap",
        "file": drive.node,
        "target": names.store,
        "on-cbw-error": "break-snapshot",
        "cbw-timeout": STALL_SECONDS,
    });
    qmp.execute("blockdev-add", filter)?;
    let device = json!({"path": drive.device, "property": "drive", "value": names.filter});
    qmp.execute("qom-set", device)?;
    // The same holds for what is released.
    let image = json!({
        "driver": "snapshot-access",
        "node-name": names.image,
        "file": names.filter,
        "discard": "unmap",
    });
    qmp.execute("blockdev-add", image)?;
    Ok(())
}
