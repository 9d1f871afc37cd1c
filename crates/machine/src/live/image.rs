//! A disk as it was at one instant, while the guest goes on: read over several connections to QEMU.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use strongroom_base::Cancel;
use strongroom_disk::{Image, ReadAt};
use strongroom_nbd::{Cause, Client, ClientOptions, Errno, NbdError, STATUS_ZERO, Stream};

use super::released::{CLUSTER_BYTES, Released};
use crate::error::Broken;
use crate::runs;

/// The context that says what is data.
const ALLOCATION: &str = "base:allocation";
/// The flag of what a dirty bitmap calls dirty.
const DIRTY: u32 = 1;

/// Whether the instant still exists; one for all disks.
#[derive(Debug, Default)]
pub struct Instant {
    // A plain mutex: held to look and to set.
    broken: Mutex<Option<Broken>>,
    cancel: Cancel,
}

impl Instant {
    /// `cancel` is set when the instant is lost.
    pub fn new(cancel: Cancel) -> Self {
        Self { broken: Mutex::new(None), cancel }
    }

    /// Why it is lost, if it is.
    pub fn broken(&self) -> Option<Broken> {
        *self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is lost. The first reason counts.
    pub fn set_broken(&self, why: Broken) -> Broken {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *broken.get_or_insert(why);
        self.cancel.cancel();
        first
    }
}

/// A disk at the instant. Clones read the same disk.
#[derive(Clone)]
pub struct LiveImage {
    shared: Arc<Shared>,
}

/// An image that was connected to.
pub struct Opened {
    pub image: LiveImage,
    /// What the bitmap calls dirty, if the server has it.
    pub changed: Option<Vec<Range<u64>>>,
}

struct Shared {
    bytes: u64,
    instant: Arc<Instant>,
    /// Empty after [`LiveImage::close`]. Threads take one in turn.
    clients: RwLock<Vec<Arc<Client>>>,
    turn: AtomicUsize,
    /// Bytes that were read so far.
    read: AtomicU64,
    /// What is not known to be zeros.
    data: Vec<Range<u64>>,
    // A plain mutex: held while a range is added.
    released: Mutex<Released>,
}

impl LiveImage {
    /// Connects to an export, and asks what is data and, with the name of a bitmap, what is dirty in
    /// it.
    pub fn open(
        socket: &Path,
        export: &str,
        bitmap: Option<&str>,
        connections: usize,
        instant: Arc<Instant>,
    ) -> Result<Opened, NbdError> {
        let dirty = bitmap.map(|name| format!("qemu:dirty-bitmap:{name}"));
        let contexts = [ALLOCATION.to_owned()].into_iter().chain(dirty.clone()).collect();
        let first = connect(socket, export, contexts)?;
        let everything = 0..first.size();
        let changed = match &dirty {
            Some(context) if first.has_context(context) => {
                let status = first.block_status(context, everything.clone())?;
                Some(runs::gather(status, |flags| flags & DIRTY != 0, runs::RANGES_MAX)?)
            }
            _ => None,
        };
        let data = if first.has_context(ALLOCATION) {
            let status = first.block_status(ALLOCATION, everything)?;
            runs::gather(status, |flags| flags & STATUS_ZERO == 0, runs::RANGES_MAX)?
        } else {
            vec![everything]
        };
        let bytes = first.size();
        let mut clients = vec![Arc::new(first)];
        let several = if clients[0].allows_several_connections() { connections } else { 1 };
        while clients.len() < several {
            clients.push(Arc::new(connect(socket, export, Vec::new())?));
        }
        let shared = Shared {
            bytes,
            instant,
            clients: RwLock::new(clients),
            turn: AtomicUsize::new(0),
            read: AtomicU64::new(0),
            data,
            released: Mutex::new(Released::new(bytes)),
        };
        Ok(Opened { image: Self { shared: Arc::new(shared) }, changed })
    }

    /// Bytes that were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.shared.read.load(Ordering::Relaxed)
    }

    /// Ends the connections. Nothing can be read after that.
    pub fn close(&self) {
        let clients = &self.shared.clients;
        clients.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn client(&self) -> io::Result<Arc<Client>> {
        let shared = &self.shared;
        if let Some(broken) = shared.instant.broken() {
            return Err(io::Error::other(broken));
        }
        let clients = shared.clients.read().unwrap_or_else(PoisonError::into_inner);
        let turn = shared.turn.fetch_add(1, Ordering::Relaxed) % clients.len().max(1);
        clients.get(turn).cloned().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotConnected, "the disks of the machine were given back")
        })
    }

    /// What an error means for the instant.
    fn judge(&self, client: &Client, error: NbdError) -> io::Error {
        let why = match error.cause() {
            Cause::Refused { errno: Errno::EINVAL, .. } if !self.exists(client) => Broken::Store,
            Cause::Closed | Cause::TimedOut | Cause::Io(_) | Cause::Protocol(_) => Broken::Gone,
            _ => return io::Error::other(error),
        };
        io::Error::other(self.shared.instant.set_broken(why))
    }

    /// True if the first bytes can be read, which are never released. QEMU refuses to read what was
    /// released, and everything when the instant is lost, with the same error.
    fn exists(&self, client: &Client) -> bool {
        let mut first = vec![0; CLUSTER_BYTES.min(self.shared.bytes).min(512) as usize];
        client.read_at(0, &mut first).is_ok()
    }
}

fn connect(socket: &Path, export: &str, contexts: Vec<String>) -> Result<Client, NbdError> {
    let stream = Stream::connect_unix(socket)
        .map_err(|error| NbdError::Open { export: export.to_owned(), cause: error.into() })?;
    Client::open(stream, export, &ClientOptions { contexts, ..ClientOptions::default() })
}

impl ReadAt for LiveImage {
    fn size(&self) -> u64 {
        self.shared.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.shared.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let client = self.client()?;
        self.shared.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        client.read_at(offset, buffer).map_err(|error| self.judge(&client, error))
    }
}

impl Image for LiveImage {
    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        Ok(runs::next(&self.shared.data, offset))
    }

    fn broken(&self) -> Option<String> {
        self.shared.instant.broken().map(|why| why.to_string())
    }

    fn release(&self, range: Range<u64>) {
        let whole = {
            let mut released = self.shared.released.lock().unwrap_or_else(PoisonError::into_inner);
            released.add(range)
        };
        if let (Some(whole), Ok(client)) = (whole, self.client()) {
            // If it fails, the store keeps more than it must; a lost instant shows when it is read.
            let _ = client.trim(whole);
        }
    }
}
