//! A machine is started from a snapshot: what `boot` and `drill --boot` share.
//!
//! Its disks are served over a Unix socket by this process, each under an overlay, so the repository
//! keeps what it has. QEMU runs as a child.

mod resume;
mod stored;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::tz::TimeZone;
use strongroom_access::{Nights, NightsOptions, kept_overlays};
use strongroom_base::SnapshotId;
use strongroom_catalog::Snapshot;
use strongroom_machine::Description;
use strongroom_machine::boot::{
    BootError, BootNetwork, BootOptions, BootPlan, FirmwareFolder, Qemu, QemuError, Running,
    SharedNetwork, plan, plan_resume,
};
use strongroom_nbd::{Listener, Server, ServerOptions};
use strongroom_repository::Repository;

use crate::archived_emulator::unpack;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::scratch::ScratchFolder;
use crate::terminal::{printable, printable_text};
use resume::LoadedMemory;
use stored::{choose, describe, guessed};

/// The emulator of a machine of which nothing is known.
const PROGRAM: &str = "qemu-system-x86_64";
/// Where profiles of starts are, in the cache of a repository.
const PROFILES: &str = "boots";
/// Where the state of the devices is, beside the description of the machine.
pub const DEVICE_STATE: &str = "device-state";

/// How a machine is started, for both commands.
#[derive(Debug, Clone, clap::Args)]
pub struct MachineArgs {
    /// Give it this much memory instead of what it had
    #[arg(long, value_name = "SIZE", value_parser = strongroom_base::units::parse_bytes)]
    memory: Option<u64>,
    /// Give it this many processors instead of those that it had
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=255))]
    cpus: Option<u32>,
    /// Give it no network card
    #[arg(long)]
    no_network: bool,
    /// Emulate the processor, even if /dev/kvm can be used
    #[arg(long)]
    no_kvm: bool,
    /// Run this emulator instead of the one that the machine had
    #[arg(long, value_name = "PROGRAM")]
    qemu: Option<PathBuf>,
    /// Run the emulator that a snapshot has, as `machine emulator` stores it
    #[arg(long, value_name = "SNAPSHOT:PROGRAM", conflicts_with = "qemu")]
    emulator: Option<OsString>,
}

impl MachineArgs {
    /// Takes from what was typed for all machines of a set what can be said for all.
    pub fn complete(&mut self, all: &Self) {
        self.no_kvm = self.no_kvm || all.no_kvm;
        if self.qemu.is_none() && self.emulator.is_none() {
            self.qemu.clone_from(&all.qemu);
            self.emulator.clone_from(&all.emulator);
        }
    }

    /// Whether it has no network card.
    pub fn has_no_network(&self) -> bool {
        self.no_network
    }

    /// Whether any of them was given.
    pub fn is_given(&self) -> bool {
        self.memory.is_some()
            || self.cpus.is_some()
            || self.no_network
            || self.no_kvm
            || self.qemu.is_some()
            || self.emulator.is_some()
    }
}

/// What a start is for.
pub struct Purpose<'p> {
    /// How the screen is shown: a value of QEMU's `-display`.
    pub display: &'p str,
    /// Where what the machine writes is kept; otherwise it is thrown away.
    pub keep: Option<&'p Path>,
    /// Ports of the machine that can be reached from here.
    pub ports: &'p [u16],
    /// It goes on where it was, by its memory.
    pub resumes: bool,
    /// A guest agent is to be spoken to.
    pub has_agent: bool,
    /// Other machines are on its network.
    pub shared: Option<SharedNetwork>,
}

/// A machine that is ready to be started, and what has to live as long as it.
pub struct Prepared {
    /// Its name in the snapshot.
    pub machine: String,
    /// What QEMU is to be run with.
    pub plan: BootPlan,
    /// The same with an emulated processor, if `plan` uses KVM.
    emulated: Option<BootPlan>,
    /// From where it goes on, if it does not start.
    memory: Option<LoadedMemory>,
    nights: Arc<Nights>,
    server: Server,
    _folders: Vec<ScratchFolder>,
}

impl Prepared {
    /// Starts it; `words` are looked for on its serial port, whose lines `on_line` hears.
    pub fn start(
        &mut self,
        context: &Context,
        words: &[String],
        on_line: impl FnMut(&str) + Clone + Send + 'static,
    ) -> Result<Running, CliError> {
        let started = Running::start(&self.plan, words, Box::new(on_line.clone()));
        if let Some(memory) = &self.memory {
            return memory.resume(started.map_err(cannot_start)?);
        }
        if matches!(started, Err(BootError::Ended { .. })) && self.give_up_kvm(context) {
            return Running::start(&self.plan, words, Box::new(on_line)).map_err(cannot_start);
        }
        started.map_err(cannot_start)
    }

    /// Starts it once more, with an emulated processor, if KVM gave up on it. Returns whether it did.
    pub fn emulate_if_kvm_failed(
        &mut self,
        context: &Context,
        running: &mut Running,
        words: &[String],
        on_line: impl FnMut(&str) + Clone + Send + 'static,
    ) -> Result<bool, CliError> {
        if self.emulated.is_none() || !running.has_kvm_failed() || !self.give_up_kvm(context) {
            return Ok(false);
        }
        running.stop();
        *running = self.start(context, words, on_line)?;
        Ok(true)
    }

    /// Plans to emulate the processor. Returns whether that is another plan.
    fn give_up_kvm(&mut self, context: &Context) -> bool {
        let Some(emulated) = self.emulated.take() else { return false };
        self.plan = emulated;
        context.terminal.note(
            "KVM cannot run this machine here: its processor is emulated, which is slow; --no-kvm \
             does so at once",
        );
        true
    }

    /// Stops to serve its disks, once it has ended, and brings what it wrote to the medium.
    pub fn close(self) -> std::io::Result<()> {
        self.nights.keep_profiles();
        self.server.stop();
        self.nights.flush()
    }
}

/// Gets a machine of a snapshot ready: serves its disks and plans how QEMU is run.
pub fn prepare(
    context: &Context,
    repository: Arc<Repository>,
    (snapshot, path): (&Snapshot, &[u8]),
    args: &MachineArgs,
    purpose: &Purpose<'_>,
) -> Result<Prepared, CliError> {
    // Paths of sockets must be short.
    let run = ScratchFolder::make_in_temporary(context)?;
    // A killed start may have left the memory of a guest there.
    ScratchFolder::sweep(context, Path::new(resume::SHARED_MEMORY));
    let (overlays, scratch) = match purpose.keep {
        Some(folder) => {
            make_folder(folder)?;
            (folder.to_owned(), None)
        }
        None => {
            let scratch = ScratchFolder::make(context)?;
            (scratch.path().to_owned(), Some(scratch))
        }
    };
    let nights = offer(context, repository.clone(), snapshot, &overlays)?;
    let (machine, disks) = choose(&nights, snapshot.id, path)?;
    purpose.keep.map_or(Ok(()), |folder| check_kept(folder, &machine, snapshot.id))?;
    let mut firmware = FirmwareFolder::create(run.path().join("firmware"))?;
    let description = describe(&repository, snapshot, &machine, &mut firmware)?;
    let description = match description {
        Some(description) => description,
        None => {
            context.terminal.note(format!(
                "no description of {} is stored: it gets virtio disks, 1 GiB of memory, and what \
                 its partition table suggests",
                printable_text(&machine)
            ));
            guessed(&nights, &disks)?
        }
    };
    let unpacked = args.emulator.as_ref().map(|named| unpack(context, &repository, named));
    let (unpacked, program) = match unpacked.transpose()? {
        Some((folder, program)) => (Some(folder), program),
        None => (None, args.qemu.clone().unwrap_or_else(|| program_of(&description))),
    };
    let emulator = Qemu::ask(&program).map_err(no_emulator)?;
    let socket = run.path().join("nbd");
    let options = BootOptions {
        folder: run.path().to_owned(),
        firmware,
        socket: socket.clone(),
        memory_bytes: args.memory,
        cpus: args.cpus,
        display: purpose.display.to_owned(),
        network: match args.no_network {
            true => BootNetwork::None,
            false => BootNetwork::Isolated {
                forwards: purpose.ports.iter().map(|port| (0, *port)).collect(),
                shared: purpose.shared.clone(),
            },
        },
        uses_kvm: !args.no_kvm && has_kvm(),
        has_agent: purpose.has_agent,
    };
    let (plan, emulated, memory) = match purpose.resumes {
        true => {
            let mut memory = LoadedMemory::folder_for(context, &description)?;
            let plan = plan_resume(&description, &disks, &emulator, &options, memory.folder());
            let plan = plan.map_err(resume::cannot_resume)?;
            memory.load(context, &repository, (snapshot, &machine), &description)?;
            (plan, None, Some(memory))
        }
        false => {
            let emulated = options.uses_kvm.then(|| {
                let options = BootOptions { uses_kvm: false, ..options.clone() };
                plan(&description, &disks, &emulator, &options)
            });
            (plan(&description, &disks, &emulator, &options), emulated, None)
        }
    };
    let server = Server::start(Listener::unix(&socket)?, nights.clone(), ServerOptions::default())?;
    for note in &plan.notes {
        context.terminal.note(printable_text(note));
    }
    let folders = std::iter::once(run).chain(scratch).chain(unpacked).collect();
    Ok(Prepared { machine, plan, emulated, memory, nights, server, _folders: folders })
}

/// Checks that what is kept of a machine in a folder is not all of other snapshots: `latest` may be another
/// one than it was, and a machine that begins again looks as if what it wrote were lost.
fn check_kept(folder: &Path, machine: &str, snapshot: SnapshotId) -> Result<(), CliError> {
    let found = kept_overlays(folder, machine)?;
    let Some(other) = found.first().filter(|_| !found.contains(&snapshot)) else { return Ok(()) };
    let message = format!(
        "{} has what {} of the snapshot {} wrote, and this one is of {}",
        printable(folder),
        printable_text(machine),
        other.short(),
        snapshot.short()
    );
    let hint = "name that snapshot to go on with it, or give another folder for this one";
    Err(CliError::new(Exit::Failed, message, hint))
}

/// Offers the disks of one snapshot, each under an overlay.
fn offer(
    context: &Context,
    repository: Arc<Repository>,
    snapshot: &Snapshot,
    overlays: &Path,
) -> Result<Arc<Nights>, CliError> {
    let mut options = NightsOptions::new(TimeZone::system());
    options.only = Some(vec![snapshot.id]);
    options.overlays = Some(overlays.to_owned());
    options.profiles = repository.cache_folder().map(|cache| cache.join(PROFILES));
    if let Some(folder) = &options.profiles {
        // Without them it only starts more slowly.
        let _ = make_folder(folder);
    }
    let monitor = Arc::new(context.terminal.monitor_of_problems());
    Ok(Arc::new(Nights::open(repository, options, monitor)?))
}

/// The emulator of the machine's architecture. Its name may come from another machine, so only its
/// form is believed.
fn program_of(description: &Description) -> PathBuf {
    let is_word =
        |text: &&str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let architecture = description.emulator.architecture.as_deref().filter(is_word);
    architecture.map_or_else(|| PROGRAM.into(), |name| format!("qemu-system-{name}").into())
}

fn has_kvm() -> bool {
    std::fs::File::options().read(true).write(true).open("/dev/kvm").is_ok()
}

fn make_folder(folder: &Path) -> Result<(), CliError> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
        let message = format!("cannot make the folder {}: {error}", printable(folder));
        CliError::new(Exit::Failed, message, "choose another folder, or make room there")
    })
}

fn no_emulator(error: QemuError) -> CliError {
    let hint =
        "install QEMU (in Debian, the package qemu-system-x86), or name it with --qemu PROGRAM";
    CliError::new(Exit::Failed, error.to_string(), hint)
}

fn cannot_start(error: BootError) -> CliError {
    let hint = match &error {
        BootError::Ended { .. } => {
            "--memory, --cpus and --no-kvm change what it is started with; -v shows its arguments"
        }
        _ => "`strongroom nbd` offers its disks to a QEMU that you start yourself",
    };
    CliError::new(Exit::Failed, error.to_string(), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_what_the_machine_of_another_snapshot_wrote_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [mine, other] = [1, 2].map(|byte| SnapshotId([byte; 16]));
        let write = |machine: &str, snapshot: SnapshotId| {
            let name = format!("{machine}%2Fsda@{snapshot}");
            std::fs::write(folder.path().join(name), "").unwrap();
        };
        let check = || check_kept(folder.path(), "vm1", mine).map_err(|error| error.to_string());
        write("vm10", other);
        check().unwrap();
        write("vm1", other);
        let refused = check().unwrap_err();
        assert!(refused.contains(&other.short()), "{refused}");
        write("vm1", mine);
        check().unwrap();
    }
}
