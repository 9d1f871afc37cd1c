//! `mount`: every snapshot of a repository as a read-only file system (FUSE).
//!
//! ```text
//! ids/0123abcd/                            every snapshot, by the start of its name
//! hosts/HOST/PATHS/2026-07-30T23-59-01/    by host, then by the paths that were backed up:
//!                                          home_me for /home/me
//! hosts/HOST/PATHS/latest                  a link to the newest of them
//! snapshot/2026/07/30/235901/              by day (Foundation §2.1)
//! ```
//!
//! Below each of these the whole snapshot is shown from `/` on, as it was backed up: all kinds of
//! files, exact modes, owners, times, extended attributes and access control lists, hard links,
//! holes. Nothing is fetched before it is read. Memory is bounded: of what the kernel remembers, a
//! directory costs a small record, and if there are too many the kernel is asked to forget.

mod attributes;
mod contents;
mod directories;
mod filesystem;
mod forgetting;
mod lanes;
mod layout;
mod listing;
pub(crate) mod naming;
mod nodes;
mod shape;
mod tops;
mod view;

use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::{Config, MountOption, Session, SessionACL};
use jiff::tz::TimeZone;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use strongroom_arena::CacheLimits;
use strongroom_base::Monitor;
use strongroom_repository::{Narrowing, Repository, RepositoryError};

use attributes::Owner;
use filesystem::SnapshotFiles;
use lanes::Lanes;
use nodes::Nodes;
use tops::Tops;
use view::View;

/// How snapshots are mounted.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Other users may look as well. The kernel then lets each user do what modes and access
    /// control lists allow, as on the machine of the files; otherwise only the user who mounts has
    /// access, and may read everything: that user has the key.
    pub allow_other: bool,
    /// Which snapshots are shown.
    pub narrowing: Narrowing,
    /// Snapshots are named by the time of this zone.
    pub time_zone: TimeZone,
    /// New snapshots are looked for at most this often, and only when the mount is used.
    pub refresh: Duration,
    /// Threads that answer the kernel.
    pub threads: NonZeroUsize,
    /// How much of arenas is kept in memory.
    pub cache: CacheLimits,
    /// How many bytes of directories are kept in memory, and half as many again of where they are.
    pub directory_bytes: usize,
    /// Directories, and files with several names, that may be remembered. If the kernel knows
    /// more, it is asked to forget those that nothing uses.
    pub nodes_max: usize,
}

impl MountOptions {
    /// For the user alone; the repository is checked every 3 s, with twice as many threads as cores
    /// (at least 4, at most 16: most wait for the repository) and 48 MiB of blocks.
    pub fn new(time_zone: TimeZone) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let threads = NonZeroUsize::new((cores * 2).clamp(4, 16));
        Self {
            allow_other: false,
            narrowing: Narrowing::default(),
            time_zone,
            refresh: Duration::from_secs(3),
            threads: threads.expect("four and more are not zero"),
            cache: CacheLimits { block_bytes: 48 << 20, ..CacheLimits::default() },
            directory_bytes: 24 << 20,
            nodes_max: 400_000,
        }
    }
}

/// Why snapshots cannot be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The repository cannot be read.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The system refuses.
    #[error("cannot mount on {mountpoint:?}: {source}")]
    Mount {
        /// Where.
        mountpoint: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A process has a file of the mount open, or its working directory in it.
    #[error("{mountpoint:?} is in use")]
    Busy {
        /// Where.
        mountpoint: PathBuf,
    },
    /// The system refuses to unmount.
    #[error("cannot unmount {mountpoint:?}: {why}")]
    Unmount {
        /// Where.
        mountpoint: PathBuf,
        /// Why.
        why: String,
    },
    /// The mount ended, but not because it was unmounted.
    #[error("the mount on {mountpoint:?} failed: {source}")]
    Session {
        /// Where.
        mountpoint: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Mounts all snapshots of a repository on a directory. They are visible when this returns, until
/// the handle is dropped or the mount is unmounted.
pub fn mount(
    repository: Arc<Repository>,
    mountpoint: &Path,
    options: &MountOptions,
    monitor: Arc<dyn Monitor>,
) -> Result<MountHandle, MountError> {
    let refused = |source| MountError::Mount { mountpoint: mountpoint.to_owned(), source };
    // The path is needed again to unmount, even if the working directory changes.
    let mountpoint = mountpoint.canonicalize().map_err(refused)?;
    let refused = |source| MountError::Mount { mountpoint: mountpoint.clone(), source };
    let lanes = Lanes::new(repository.clone(), options.cache, options.directory_bytes)?;
    let tops = Tops::open(repository, options, monitor.clone())?;
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let owner = Owner { uid: uid.as_raw(), gid: gid.as_raw() };
    let nodes = Arc::new(Nodes::default());
    let (forgetting, asking) = forgetting::watch(nodes.clone(), options.nodes_max);
    let view =
        View::new(tops, nodes.clone(), forgetting, lanes, options.directory_bytes, owner, monitor);
    let files = SnapshotFiles::new(view, options.allow_other);
    let session = Session::new(files, &mountpoint, &session_config(options)).map_err(refused)?;
    asking.start(session.notifier()).map_err(refused)?;
    let ended = Arc::new(AtomicBool::new(false));
    let unmounter = Unmounter { mountpoint: mountpoint.clone(), ended: ended.clone() };
    let run = move || {
        let result = session.run();
        ended.store(true, Ordering::Release);
        match result {
            // A request was being read at the moment at which the last user of the mount left.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::CONNABORTED) => Ok(()),
            other => other,
        }
    };
    let thread = std::thread::Builder::new().name("mount".to_owned()).spawn(run);
    let thread = thread.map_err(refused)?;
    Ok(MountHandle { unmounter, nodes, thread: Some(thread) })
}

fn session_config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("strongroom".to_owned()),
        MountOption::Subtype("strongroom".to_owned()),
        MountOption::RO,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
    ];
    if options.allow_other {
        config.mount_options.push(MountOption::DefaultPermissions);
        config.acl = SessionACL::All;
    }
    config.n_threads = Some(options.threads.get());
    config
}

/// A mount. Dropping it unmounts. If it is in use it disappears from the directory tree, and open
/// files stay open as long as the process lives.
pub struct MountHandle {
    unmounter: Unmounter,
    nodes: Arc<Nodes>,
    /// `None` once it was waited for.
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl MountHandle {
    /// Waits until it is unmounted.
    pub fn wait(mut self) -> Result<(), MountError> {
        self.join()
    }

    /// Unmounts it, unless it is in use.
    pub fn unmount(&mut self) -> Result<(), MountError> {
        self.unmounter.unmount()?;
        self.join()
    }

    /// How many directories, and files with several names, are remembered.
    pub fn nodes_remembered(&self) -> usize {
        self.nodes.count()
    }

    /// Unmounts it for others: for a signal's handler, while [`MountHandle::wait`] waits.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    fn join(&mut self) -> Result<(), MountError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let panicked = |_| Err(io::Error::other("a thread of it panicked"));
        let mountpoint = self.unmounter.mountpoint.clone();
        thread.join().unwrap_or_else(panicked).map_err(|source| {
            // What is still mounted there no longer answers any request.
            let _ = self.unmounter.detach();
            MountError::Session { mountpoint, source }
        })
    }
}

impl Drop for MountHandle {
    fn drop(&mut self) {
        if self.thread.is_none() {
            return;
        }
        match self.unmounter.unmount() {
            Ok(()) => drop(self.join()),
            Err(_) => drop(self.unmounter.detach()),
        }
    }
}

/// Unmounts a mount; may be cloned and sent anywhere.
#[derive(Debug, Clone)]
pub struct Unmounter {
    mountpoint: PathBuf,
    /// Set once the session ended: a later mount at this place is not ours.
    ended: Arc<AtomicBool>,
}

impl Unmounter {
    /// Unmounts it, unless it is in use.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.unmount_with(UnmountFlags::empty())
    }

    /// Takes it out of the directory tree at once; open files stay open until they are closed.
    pub fn detach(&self) -> Result<(), MountError> {
        self.unmount_with(UnmountFlags::DETACH)
    }

    fn unmount_with(&self, flags: UnmountFlags) -> Result<(), MountError> {
        if self.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        let mountpoint = self.mountpoint.clone();
        match rustix::mount::unmount(&self.mountpoint, flags) {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => Err(MountError::Busy { mountpoint }),
            Err(Errno::PERM) => self.unmount_by_helper(flags),
            // It is no longer mounted; the session will soon notice that.
            Err(Errno::INVAL) => Ok(()),
            Err(error) => Err(MountError::Unmount { mountpoint, why: error.to_string() }),
        }
    }

    /// With the program that may do what only root may.
    fn unmount_by_helper(&self, flags: UnmountFlags) -> Result<(), MountError> {
        let mountpoint = self.mountpoint.clone();
        let mut command = Command::new("fusermount3");
        command.arg("-u").env("LC_ALL", "C");
        if flags.contains(UnmountFlags::DETACH) {
            command.arg("-z");
        }
        let failed = |why: String| MountError::Unmount { mountpoint: mountpoint.clone(), why };
        let output = command.arg("--").arg(&self.mountpoint).output();
        let output = output.map_err(|error| failed(format!("fusermount3: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if why.contains("busy") { Err(MountError::Busy { mountpoint }) } else { Err(failed(why)) }
    }
}
