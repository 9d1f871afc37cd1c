//! The handle of a bucket: what a program calls.

use std::ffi::OsString;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::fs::{FileType, fstat};

use crate::callbacks::{Callbacks, Owner, SharedOwner};
use crate::error::{AreaFault, BucketError};
use crate::link::Link;
use crate::message::{AreaSize, FromProgram};
use crate::name;
use crate::quiet;
use crate::range::KeyRange;
use crate::region::{Memory, Region};
use crate::shadow::Shadow;
use crate::state::Held;

/// Names the socket of the agent.
const SOCKET_VARIABLE: &str = "STRONGROOM_RAM_SOCKET";
/// Otherwise the agent listens here.
const SOCKET_DEFAULT: &str = "/run/strongroom/ram.sock";

/// A bucket of a file, which this program keeps in memory.
///
/// The calls may come from any thread. A child made by `fork` must not use the handle: it has none of
/// its threads, and the connection is the parent's.
pub struct Bucket {
    pub(crate) link: Arc<Link>,
    pub(crate) owner: SharedOwner,
    threads: Vec<JoinHandle<()>>,
}

/// A stored version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Which one.
    pub version: u64,
    /// Its areas.
    pub areas: Vec<AreaSize>,
}

impl Bucket {
    /// Connects with the agent of this node. Without a socket, the environment names it in
    /// `STRONGROOM_RAM_SOCKET`; otherwise it is `/run/strongroom/ram.sock`.
    ///
    /// Register areas and the range next, and callbacks last: from then on the agent may ask the
    /// program to hold still.
    ///
    /// # Errors
    ///
    /// If no agent listens, or it does not take the bucket.
    pub fn open(socket: Option<&Path>, file: &str, number: u32) -> Result<Self, BucketError> {
        check_name(file, name::check_file)?;
        let socket = socket.map_or_else(socket_of_environment, Path::to_owned);
        let link = Arc::new(Link::new(socket, file.to_owned(), number));
        link.connect()?;
        let owner = SharedOwner::default();
        let mut bucket = Self { link: link.clone(), owner: owner.clone(), threads: Vec::new() };
        let reader = link.clone();
        bucket.start("strongroom-agent", move || reader.attend())?;
        bucket.start("strongroom-calls", move || Callbacks::new(link, owner).attend())?;
        Ok(bucket)
    }

    /// Registers shared memory as an area: a memory file, POSIX shared memory, a file on hugetlbfs or
    /// elsewhere. The agent reads its first `bytes` bytes by the descriptor, of which the library keeps
    /// a duplicate. `base` is recorded as the address at which it is to be mapped, if that matters.
    ///
    /// An area of the same name is replaced. Outside of callbacks the call waits until what is being
    /// captured is captured, so no callback may wait for it.
    ///
    /// # Errors
    ///
    /// If the name or the length is not allowed, or the agent does not take the area.
    pub fn region(
        &self,
        area: &str,
        descriptor: BorrowedFd<'_>,
        base: Option<usize>,
        bytes: u64,
    ) -> Result<(), BucketError> {
        check_name(area, name::check_area)?;
        if bytes == 0 || i64::try_from(bytes).is_err() {
            return Err(BucketError::area(area, AreaFault::Length));
        }
        check_length(descriptor, bytes).map_err(|fault| BucketError::area(area, fault))?;
        let file = descriptor.try_clone_to_owned();
        let file = file.map_err(|error| BucketError::area(area, AreaFault::Descriptor(error)))?;
        let memory = Memory::Shared { file, bytes };
        self.register(area, Region { base: base.map(|base| base as u64), memory })
    }

    /// Registers private memory as an area. The library keeps a shadow of it, so it takes as much
    /// memory again as the area has pages that are not zero.
    ///
    /// An area of the same name is replaced. The call waits as [`Bucket::region`] does.
    ///
    /// # Errors
    ///
    /// If the name or the length is not allowed, or the agent does not take the area.
    ///
    /// # Safety
    ///
    /// `bytes` bytes from `memory` on must be valid for reads and writes until the area is replaced or
    /// forgotten, evicted, or the bucket is dropped. No thread may change them during
    /// [`Bucket::store`] and [`Bucket::evict`] and between [`Owner::quiesce`] and [`Owner::resume`], and
    /// none may use them during [`Bucket::load`] and [`Owner::loaded`].
    pub unsafe fn private_region(
        &self,
        area: &str,
        memory: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), BucketError> {
        check_name(area, name::check_area)?;
        if bytes == 0 || isize::try_from(bytes).is_err() {
            return Err(BucketError::area(area, AreaFault::Length));
        }
        // SAFETY: the caller promises what a shadow asks for: the library copies in these calls alone.
        let shadow = unsafe { Shadow::new(memory, bytes) };
        let shadow =
            shadow.map_err(|error| BucketError::area(area, AreaFault::Shadow(error.into())))?;
        let base = Some(memory.as_ptr().addr() as u64);
        self.register(area, Region { base, memory: Memory::Private(shadow) })
    }

    /// Says that an area is no more.
    ///
    /// # Errors
    ///
    /// If it is not registered.
    pub fn forget(&self, area: &str) -> Result<(), BucketError> {
        self.between_captures(|| {
            let forgotten = self.link.regions().0.remove(area);
            forgotten.ok_or_else(|| BucketError::area(area, AreaFault::Unknown))?;
            self.link.state().not_taken.remove(area);
            let area = area.to_owned();
            let what = format!("area {area} is not forgotten");
            self.ask(what, None, |request| FromProgram::Forget { request, area }).map(drop)
        })
    }

    /// Says which keys the bucket holds now. `split_version` rises with each split or merge: of two
    /// buckets whose ranges overlap, the one with the higher number is right.
    ///
    /// # Errors
    ///
    /// If the range can hold no key, or the agent is gone.
    pub fn range(&self, range: &KeyRange, split_version: u64) -> Result<(), BucketError> {
        if !range.is_valid() {
            return Err(BucketError::Range);
        }
        self.link.state().range = Some((range.clone(), split_version));
        let connection = self.link.connect()?;
        self.link.post(connection, &FromProgram::Range { range: range.clone(), split_version })
    }

    /// Registers what the program does when the agent asks. Before this call the agent can store
    /// nothing by itself; [`Bucket::store`] works without.
    ///
    /// # Errors
    ///
    /// If the agent is gone, or the call comes from a callback. Then nothing is registered, and an owner
    /// that was registered before stays.
    pub fn on_quiesce(&self, owner: Box<dyn Owner>) -> Result<(), BucketError> {
        self.check_thread()?;
        let connection = self.link.connect()?;
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = Some(owner);
        self.link.state().has_owner = true;
        let message = FromProgram::Callbacks { has_callbacks: true };
        // From here on each agent that is connected with hears of them. This one may have ended, and
        // the next one may have come just before.
        if self.link.post(connection, &message).is_err()
            && let Ok(next) = self.link.connect()
        {
            self.link.answer(next, &message);
        }
        Ok(())
    }

    fn start(
        &mut self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), BucketError> {
        let thread = quiet::start(name, run);
        self.threads.push(thread.map_err(BucketError::Thread)?);
        Ok(())
    }

    /// Registers an area, and keeps it once the agent has it.
    fn register(&self, area: &str, region: Region) -> Result<(), BucketError> {
        self.between_captures(|| {
            let regions = self.link.regions();
            if regions.0.len() >= name::AREAS_MAX && !regions.0.contains_key(area) {
                return Err(BucketError::TooManyAreas);
            }
            drop(regions);
            let what = format!("area {area} is not registered");
            self.ask(what, Some(region.file()), |request| region.message(request, area))?;
            self.link.regions().0.insert(area.to_owned(), region);
            self.link.state().not_taken.remove(area);
            Ok(())
        })
    }

    /// Changes which areas there are. The agent and the library do so one after the other, so nothing
    /// is captured meanwhile: the agent would store a shadow into which nothing was copied. A callback
    /// does not wait for what the agent does, since the agent may wait for it.
    fn between_captures<T>(
        &self,
        change: impl FnOnce() -> Result<T, BucketError>,
    ) -> Result<T, BucketError> {
        if self.check_thread().is_err() {
            let is_held = self.link.hold_unless_agent();
            let outcome = change();
            if is_held {
                self.link.release(Held::Call);
            }
            return outcome;
        }
        self.link.hold(Held::Call);
        let outcome = change();
        self.link.release(Held::Call);
        outcome
    }
}

/// Waits for a callback that is under way.
impl Drop for Bucket {
    fn drop(&mut self) {
        self.link.close();
        for thread in self.threads.drain(..) {
            if thread.thread().id() != thread::current().id() {
                // A thread that panicked is at its end as well.
                drop(thread.join());
            }
        }
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket")
            .field("socket", &self.link.socket)
            .field("file", &self.link.file)
            .field("number", &self.link.number)
            .finish_non_exhaustive()
    }
}

/// Whether a file is as long as its area. Devices have no length of their own.
fn check_length(descriptor: BorrowedFd<'_>, registered: u64) -> Result<(), AreaFault> {
    let stat = fstat(descriptor).map_err(|error| AreaFault::Descriptor(error.into()))?;
    let file = u64::try_from(stat.st_size).unwrap_or(0);
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if is_file && file < registered {
        return Err(AreaFault::FileShort { registered, file });
    }
    Ok(())
}

/// Checks a name.
pub fn check_name(
    name: &str,
    check: fn(&str) -> Result<(), name::NameError>,
) -> Result<(), BucketError> {
    check(name).map_err(|fault| BucketError::Name { name: name.to_owned(), fault })
}

#[expect(clippy::disallowed_methods, reason = "programs that link the library name its socket so")]
fn socket_of_environment() -> PathBuf {
    let named = std::env::var_os(SOCKET_VARIABLE).filter(|named: &OsString| !named.is_empty());
    named.map_or_else(|| SOCKET_DEFAULT.into(), PathBuf::from)
}
