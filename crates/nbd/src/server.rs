//! The server: who connects, for how long, and how all of it ends.

mod carry_out;
mod connection;
mod haggle;
mod listener;
mod pool;

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::allowance::Allowance;
use crate::export::Exports;
use crate::stream::{Deadline, Stream};
use connection::attend;
pub use listener::Listener;
use pool::Pool;

/// How long threads that were asked to end are waited for, once their clients are gone.
const AFTERMATH: Duration = Duration::from_secs(5);

/// The limits of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerOptions {
    /// Threads that answer requests, for all connections together.
    pub workers: usize,
    /// Connections at a time. Another one is closed at once.
    pub connections_max: usize,
    /// Requests of one connection that are in flight; then it is not read.
    pub requests_max: usize,
    /// Bytes of requests and answers in memory, for all connections together.
    pub bytes_max: usize,
    /// Of these, the most for one connection.
    pub connection_bytes_max: usize,
    /// How long a client may take until it has chosen an export.
    pub haggle_limit: Duration,
    /// How long a client may take to send the rest of a request, or to take an answer.
    pub stall_limit: Duration,
    /// How long [`Server::stop`] answers what was asked for before.
    pub farewell_limit: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            workers: 16,
            connections_max: 128,
            requests_max: 64,
            bytes_max: 128 << 20,
            connection_bytes_max: 48 << 20,
            haggle_limit: Duration::from_secs(30),
            stall_limit: Duration::from_secs(60),
            farewell_limit: Duration::from_secs(10),
        }
    }
}

/// A server that runs until [`Server::stop`], or until it is dropped.
pub struct Server {
    house: Arc<House>,
    /// Closing it wakes the thread that waits for connections.
    wake: Option<UnixStream>,
    door: Option<JoinHandle<()>>,
}

/// What all connections share.
struct House {
    exports: Arc<dyn Exports>,
    options: ServerOptions,
    pool: Arc<Pool>,
    memory: Arc<Allowance>,
    // A plain mutex: held to add, to remove, and to close.
    guests: Mutex<HashMap<u64, Stream>>,
    left: Condvar,
    number_next: AtomicU64,
    is_stopping: AtomicBool,
}

impl Server {
    /// Begins to answer those who connect to `listener`.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread or a socket.
    pub fn start(
        listener: Listener,
        exports: Arc<dyn Exports>,
        options: ServerOptions,
    ) -> io::Result<Self> {
        let house = Arc::new(House {
            exports,
            options,
            pool: Pool::start(options.workers)?,
            memory: Arc::new(Allowance::new(usize::MAX, options.bytes_max)),
            guests: Mutex::default(),
            left: Condvar::new(),
            number_next: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
        });
        let (wake, woken) = UnixStream::pair()?;
        let door = {
            let house = house.clone();
            let admit = move |stream| house.admit(stream);
            std::thread::Builder::new()
                .name("nbd door".to_owned())
                .spawn(move || listener.wait_for_guests(&woken, &admit))?
        };
        Ok(Self { house, wake: Some(wake), door: Some(door) })
    }

    /// Answers a client that is connected already, such as one at the other end of a socket pair.
    pub fn admit(&self, stream: Stream) {
        self.house.admit(stream);
    }

    /// How many clients are connected.
    pub fn connections(&self) -> usize {
        self.house.guests().len()
    }

    /// Lets no one in, answers what was asked for, and ends. Returns false if a disk still held a
    /// thread when all limits had passed; that thread ends when the disk answers.
    pub fn stop(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        self.house.is_stopping.store(true, Ordering::Relaxed);
        drop(self.wake.take());
        let Some(door) = self.door.take() else { return true };
        let _ = door.join();
        let house = &self.house;
        for stream in house.guests().values() {
            stream.shutdown(Shutdown::Read);
        }
        if !house.wait_until_all_left(house.options.farewell_limit) {
            for stream in house.guests().values() {
                stream.shutdown(Shutdown::Both);
            }
        }
        let all_left = house.wait_until_all_left(AFTERMATH);
        house.pool.end(AFTERMATH) && all_left
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl House {
    /// Serves a client on a thread of its own, if there is room.
    fn admit(self: &Arc<Self>, stream: Stream) {
        let Ok(handle) = stream.try_clone() else { return };
        let number = self.number_next.fetch_add(1, Ordering::Relaxed);
        {
            let mut guests = self.guests();
            let is_stopping = self.is_stopping.load(Ordering::Relaxed);
            if is_stopping || guests.len() >= self.options.connections_max {
                return;
            }
            guests.insert(number, handle);
        }
        let guest = Guest { house: self.clone(), number };
        // If there is no thread for it, dropping the guest removes it again.
        let _ = std::thread::Builder::new().name("nbd client".to_owned()).spawn(move || {
            let house = &guest.house;
            // How a client left is of no use to the server.
            let _ =
                attend(stream, number, &house.exports, &house.options, &house.pool, &house.memory);
        });
    }

    /// Returns true if all clients have left within this time.
    fn wait_until_all_left(&self, limit: Duration) -> bool {
        let deadline = Deadline::within(limit);
        let mut guests = self.guests();
        while !guests.is_empty() && !deadline.has_passed() {
            let waited = self.left.wait_timeout(guests, deadline.left());
            guests = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        guests.is_empty()
    }

    fn guests(&self) -> MutexGuard<'_, HashMap<u64, Stream>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client that is being served. It is removed from the list however its thread ends.
struct Guest {
    house: Arc<House>,
    number: u64,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.house.guests().remove(&self.number);
        self.house.left.notify_all();
    }
}
