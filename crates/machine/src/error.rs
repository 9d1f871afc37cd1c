//! Why the disks of a machine cannot be read while it runs.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use strongroom_nbd::NbdError;

use crate::agent::AgentError;
use crate::qmp::QmpError;
use crate::virsh::VirshError;

/// Why the disks of a machine cannot be read while it runs.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// QEMU's monitor.
    #[error(transparent)]
    Qmp(#[from] QmpError),
    /// libvirt.
    #[error(transparent)]
    Virsh(#[from] VirshError),
    /// What libvirt says of the machine is no description of one.
    #[error("libvirt describes the machine in a way that is not understood: {0}")]
    DomainXml(String),
    /// Its disks cannot be read from here.
    #[error("the libvirt at {uri} is on another host: run the backup there")]
    Elsewhere {
        /// Where it is.
        uri: String,
    },
    /// The machine does not run.
    #[error("the machine {name:?} does not run: back up its images by `strongroom image backup`: {}",
        images.join(", "))]
    ShutOff {
        /// The machine.
        name: String,
        /// Where its images are.
        images: Vec<String>,
    },
    /// The guest agent, if a frozen guest is required.
    #[error("the guest could not be frozen: {0}")]
    Agent(#[from] AgentError),
    /// A frozen guest is required, and there is no agent to ask.
    #[error(
        "a frozen guest is required, but no socket of a guest agent is given; name it, or do not \
         require a frozen guest"
    )]
    NoAgent,
    /// A frozen guest is required, and the machine is held in another state.
    #[error(
        "a frozen guest is required, but the machine is in the state {state:?}, in which its agent \
         cannot answer; let it go on, or do not require a frozen guest"
    )]
    Held {
        /// QEMU's word for the state.
        state: String,
    },
    /// QEMU is too old, or was built without something.
    #[error("this QEMU lacks {missing}; QEMU 7.2 or newer has it")]
    Unable {
        /// What it lacks.
        missing: &'static str,
    },
    /// The machine is in a state in which its disks must be left alone.
    #[error("the machine is in the state {state:?}; try again when it is running or paused")]
    State {
        /// QEMU's word for the state.
        state: String,
    },
    /// A part of the memory is in no file.
    #[error(
        "the machine's memory {id:?} is in no file that QEMU shares; start the machine with \
         `-object memory-backend-file,id=ram0,size={}M,mem-path=/dev/shm/NAME,share=on \
         -machine memory-backend=ram0`",
        bytes >> 20
    )]
    MemoryNotShared {
        /// Its id.
        id: String,
        /// How long it is.
        bytes: u64,
    },
    /// The file that QEMU shares is not there any more.
    #[error(
        "the file of the machine's memory {id:?} is not found: it was removed or replaced since QEMU \
         opened it, or QEMU's process cannot be seen from here"
    )]
    MemoryNotFound {
        /// Its id.
        id: String,
    },
    /// The file has something else besides.
    #[error(
        "the file of the machine's memory {id:?} is not its {bytes} bytes alone: it has another length, \
         or the memory begins later (offset=)"
    )]
    MemoryNotAlone {
        /// Its id.
        id: String,
        /// How long the memory is.
        bytes: u64,
    },
    /// libvirt has its monitor.
    #[error(
        "the memory of a machine of libvirt cannot be stored: libvirt has its monitor for itself"
    )]
    NoMemory,
    /// After its state is taken, it would be in another state than it was.
    #[error(
        "the machine is paused: its memory is stored while it runs; let it go on, or store it without \
         its memory"
    )]
    NotRunning,
    /// A device keeps the machine from being migrated, or resumed.
    #[error("the state of the machine's devices cannot be stored: {reason}")]
    StateBlocked {
        /// QEMU's words.
        reason: String,
    },
    /// QEMU began to give the state of the devices, and failed.
    #[error("QEMU did not give the state of its devices: {reason}")]
    DeviceState {
        /// QEMU's words.
        reason: String,
    },
    /// The caller could not read the memory.
    #[error("the machine's memory could not be stored: {0}")]
    Memory(String),
    /// There is nothing to read.
    #[error("the machine has no disk that can be read while it runs")]
    NoDisks,
    /// A disk that was to be left out does not exist.
    #[error("the machine has no disk {name:?}; it has {}", known.join(", "))]
    NoSuchDisk {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A disk in an iothread, with a QEMU that would crash.
    #[error(
        "the disk {disk:?} is served by an iothread: QEMU before version 9 crashes when such a disk is \
         read over NBD, and it cannot be offered by FUSE here; remove the iothread, use a newer QEMU, \
         or leave out the disk"
    )]
    Iothread {
        /// Which disk.
        disk: String,
    },
    /// A disk that is not in its iothread yet.
    #[error(
        "the disk {disk:?} has an iothread, and the guest has not started its driver: QEMU before \
         version 9 would end if it started it during the backup; back the machine up again when it \
         has booted, or leave out the disk"
    )]
    NotStarted {
        /// Which disk.
        disk: String,
    },
    /// A mirror, a commit or another job of QEMU's works on a disk. It does not see what the guest writes
    /// to a filter that is put in past it, and it may exchange the disk's image.
    #[error(
        "the job {job:?} of another program works on the disk {disk:?}; back the machine up again when \
         the job has ended, or leave out the disk"
    )]
    Busy {
        /// Which disk.
        disk: String,
        /// What QEMU calls the job.
        job: String,
    },
    /// A device that QEMU does not give another disk while it runs.
    #[error("the disk {disk:?} cannot be read while the machine runs ({error}); leave it out")]
    Device {
        /// Which disk.
        disk: String,
        /// QEMU's words.
        error: QmpError,
    },
    /// A file or folder of ours.
    #[error("{}: {error}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The folder for what the guest overwrites has too little room.
    #[error(
        "{} has {available} bytes left, less than the reserve of {reserve} bytes; name another \
         folder for what the guest overwrites",
        .folder.display()
    )]
    Room {
        /// The folder.
        folder: PathBuf,
        /// Bytes that are free.
        available: u64,
        /// Bytes that must stay free.
        reserve: u64,
    },
    /// A path is too long for a socket.
    #[error("{} is too long for a socket's path; name a state folder with a shorter path", .0.display())]
    SocketPath(PathBuf),
    /// Other users could change what is written down about the machine.
    #[error(
        "{} cannot keep what is to be undone in a machine: {why}; remove it, or name another folder",
        .folder.display()
    )]
    StateFolder {
        /// The folder, or one above it.
        folder: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Another process of ours is at work.
    #[error("another backup of this machine is running (it has locked {})", .0.display())]
    Running(PathBuf),
    /// Something of ours is in the machine, and this state folder does not know of it.
    #[error(
        "{found:?} is in the machine, but was not put there from this state folder: if no other \
         backup of the machine is running, remove it with `strongroom machine undo`"
    )]
    LeftBehind {
        /// What was found.
        found: String,
    },
    /// What an earlier run left in the machine could not be removed.
    #[error("what is in the machine could not be removed: {0}; try `strongroom machine undo`")]
    NotUndone(String),
    /// The store hangs, and QEMU would hang with it.
    #[error(
        "the file system of {} does not answer, and QEMU would wait for it, and the guest with QEMU; \
         the guest goes on as it is: when the folder answers again, use `strongroom machine undo`",
        .folder.display()
    )]
    StoreHangs {
        /// The folder of the store.
        folder: PathBuf,
    },
    /// The guest may be frozen still.
    #[error(
        "the guest agent does not say that the guest's file systems are thawed: {0}; thaw them with \
         `strongroom machine undo` when the agent answers again"
    )]
    NotThawed(AgentError),
    /// The server of the disks.
    #[error("the disk {disk:?} cannot be read: {error}")]
    Nbd {
        /// Which disk.
        disk: String,
        /// Why.
        error: NbdError,
    },
    /// Something took longer than it may.
    #[error("QEMU did not {what} within {limit:?}")]
    Slow {
        /// What it did not do.
        what: &'static str,
        /// How long it could.
        limit: Duration,
    },
    /// The instant that was being read is lost.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// Why the instant that was being read is lost. The machine itself goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The guest overwrote more than may be kept of it.
    #[error(
        "the guest overwrote more than the store may hold ({limit} bytes); allow more, or run the \
         backup when the guest writes less"
    )]
    Limit {
        /// How much could be kept.
        limit: u64,
    },
    /// The store's file system has less free room than the reserve.
    #[error(
        "the file system of the store has less than {reserve} bytes left; use another folder for \
         it (--store), or run the backup when the guest writes less"
    )]
    Reserve {
        /// Bytes that had to stay free.
        reserve: u64,
    },
    /// QEMU gave the instant up, because it could not keep what the guest overwrote.
    #[error(
        "QEMU could not keep what the guest overwrote: the store is full, fails, or took more than \
         3 seconds for a write; use a larger or faster folder for it (--store)"
    )]
    Store,
    /// QEMU ended.
    #[error("QEMU ended, or closed the connection to its disks")]
    Gone,
}

pub(crate) fn file_error(path: &std::path::Path) -> impl FnOnce(io::Error) -> MachineError {
    let path = path.to_owned();
    move |error| MachineError::File { path, error }
}
