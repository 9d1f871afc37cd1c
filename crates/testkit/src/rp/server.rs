//! A server: one bucket, and the threads that answer for it.
//!
//! - The bucket is changed with the lock of the state held, so a change is whole for all others.
//! - No lock is held while another server is asked: the phase of the state keeps others out.
//! - A quiesced server takes part in no split. A quiesce that comes while a split is under way waits
//!   until it is finished or undone, and no split begins meanwhile.

mod connection;
mod give;
mod state;
mod take;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use strongroom_base::Stopwatch;
use strongroom_bucket::KeyRange;

use self::state::{News, Pause, Phase, Shared};
use super::bucket::Bucket;
use super::error::RpError;
use super::link::{Link, PATIENCE};
use super::wire::{Condition, Request, Status};

/// How long a quiesce waits for a split that is under way.
const QUIESCE: Duration = Duration::from_secs(10);
/// How long it takes until an agent that refused is asked again.
const AGENT_PAUSE: Duration = Duration::from_millis(500);

/// What a server begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// All keys: the first server of a file.
    First,
    /// Nothing: it takes a part of a bucket that is full, or is loaded.
    Spare,
}

/// How a server is.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The number of its bucket.
    pub bucket: u32,
    /// What it begins with.
    pub role: Role,
    /// The other servers, of which some may be spares.
    pub peers: Vec<SocketAddr>,
    /// Pages of its bucket, of 16 KiB.
    pub pages: u32,
}

/// What a server has an agent know. Tests have agents of their own.
pub trait Registered: Send + Sync {
    /// The bucket is in this memory from now on.
    ///
    /// # Errors
    ///
    /// It is not registered: it is tried again.
    fn region(&self, area: BorrowedFd<'_>, bytes: u64) -> Result<(), String>;

    /// The bucket has this range from now on.
    ///
    /// # Errors
    ///
    /// It is not registered: it is tried again.
    fn range(&self, range: &KeyRange, split_version: u64) -> Result<(), String>;
}

/// A server that runs until it is stopped. Clones are the same server.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

impl Server {
    /// Serves at a listener.
    ///
    /// # Errors
    ///
    /// There is no memory for the bucket, or a thread cannot be started.
    pub fn start(listener: TcpListener, options: ServerOptions) -> Result<Self, RpError> {
        let mut bucket = Bucket::create(options.pages).map_err(RpError::Memory)?;
        if options.role == Role::First {
            bucket.begin(KeyRange::whole(), 0)?;
        }
        let unknown = SocketAddr::from(([0; 4], 0));
        let address =
            listener.local_addr().map_err(|source| RpError::Listen { address: unknown, source })?;
        let listen = |source: io::Error| RpError::Listen { address, source };
        let server = Self { shared: Arc::new(Shared::new(address, options, bucket)) };
        connection::accept(server.shared.clone(), listener).map_err(listen)?;
        if server.status().condition == Condition::Spare {
            let introduced = server.clone();
            let named = std::thread::Builder::new().name("rp introduction".to_owned());
            named.spawn(move || introduced.introduce()).map_err(listen)?;
        }
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// What it does and has.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Has the agent of this node know the bucket's memory and range, now and after each change.
    ///
    /// # Errors
    ///
    /// The agent refuses.
    pub fn register(&self, agent: Arc<dyn Registered>) -> Result<(), RpError> {
        let mut state = self.shared.state();
        (state.news.area, state.news.range) = (true, true);
        drop(state);
        self.announce(&*agent).map_err(RpError::Agent)?;
        self.shared.state().is_registered = true;
        let server = self.clone();
        let spawned = std::thread::Builder::new()
            .name("rp announcer".to_owned())
            .spawn(move || server.keep_announcing(&*agent));
        spawned.map_err(|source| RpError::Listen { address: self.address(), source })?;
        Ok(())
    }

    /// Finishes what is under way, splits included, and then changes and answers nothing until
    /// [`Server::resume`].
    ///
    /// # Errors
    ///
    /// A split does not end, or it is not known how it ended. The server goes on.
    pub fn quiesce(&self) -> Result<(), String> {
        let waited = Stopwatch::start();
        let mut state = self.shared.state();
        if state.pause != Pause::Quiesced {
            state.pause = Pause::Asked;
        }
        loop {
            let refusal = match &state.phase {
                Phase::Idle if !state.has_news() => {
                    state.pause = Pause::Quiesced;
                    return Ok(());
                }
                Phase::InDoubt { .. } => "it is not known how a split ended: try again",
                _ if waited.elapsed() >= QUIESCE => "a split does not end: try again",
                _ => {
                    state = self.shared.wait(state, QUIESCE.saturating_sub(waited.elapsed()));
                    continue;
                }
            };
            state.pause = Pause::Running;
            drop(state);
            self.shared.changed.notify_all();
            return Err(format!("bucket {}: {refusal}", self.shared.number));
        }
    }

    /// Looks at the memory, into which a bucket was loaded, and has the agent know its range.
    ///
    /// # Errors
    ///
    /// It is no bucket, or a damaged one; or the agent does not take its range.
    pub fn loaded(&self) -> Result<(), String> {
        let waited = Stopwatch::start();
        let mut state = self.shared.state();
        state.look_again();
        self.shared.changed.notify_all();
        while state.has_news() && waited.elapsed() < QUIESCE {
            state = self.shared.wait(state, QUIESCE.saturating_sub(waited.elapsed()));
        }
        match &state.fault {
            Some(fault) => Err(fault.clone()),
            None if state.has_news() => Err("the agent does not take the range".to_owned()),
            None => Ok(()),
        }
    }

    /// Goes on, with what is in the memory now: a bucket may have been loaded into it.
    pub fn resume(&self) {
        let mut state = self.shared.state();
        state.look_again();
        state.pause = Pause::Running;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Frees the bucket's memory. From now on, the server answers that the bucket was evicted, until
    /// one is loaded.
    ///
    /// # Errors
    ///
    /// A split is under way, or there is no memory for an empty bucket.
    pub fn evict(&self) -> Result<(), String> {
        let mut state = self.shared.state();
        if !matches!(state.phase, Phase::Idle) {
            return Err(format!("bucket {}: a split is under way", self.shared.number));
        }
        let empty = Bucket::create(self.shared.pages);
        state.bucket = empty.map_err(|error| format!("no memory for an empty bucket: {error}"))?;
        state.is_evicted = true;
        state.pause = Pause::Running;
        state.news.area = true;
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Has the server remember where a spare may be.
    pub fn meet(&self, peer: SocketAddr) {
        self.shared.meet(peer);
    }

    /// Ends the server: its connections are closed, and its bucket is lost when the last clone is
    /// dropped.
    pub fn stop(&self) {
        self.shared.stop();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.shared.address);
    }

    /// Lets the peers know that here is a spare. Those that do not answer ask for spares themselves.
    fn introduce(&self) {
        let peers = self.shared.state().peers.clone();
        for peer in peers {
            let link = Link::connect(peer, PATIENCE);
            let introduction = Request::Introduce(self.shared.address);
            let _ = link.and_then(|mut link| link.ask(&introduction));
        }
    }

    /// Informs the agent of what changed.
    fn announce(&self, agent: &dyn Registered) -> Result<(), String> {
        let mut state = self.shared.state();
        let news =
            std::mem::replace(&mut state.news, News { is_under_way: true, ..News::default() });
        let range = state.bucket.range().filter(|_| news.range).cloned();
        let (split_version, bytes) = (state.bucket.split_version(), state.bucket.bytes());
        let fd = state.bucket.as_fd().try_clone_to_owned();
        // The agent may be slow, and may ask for a quiesce first.
        drop(state);
        let inform = || {
            if news.area {
                agent.region(fd.map_err(|error| error.to_string())?.as_fd(), bytes)?;
            }
            range.map_or(Ok(()), |range| agent.range(&range, split_version))
        };
        let informed = inform();
        let mut state = self.shared.state();
        state.news.is_under_way = false;
        if informed.is_err() {
            state.news.area |= news.area;
            state.news.range |= news.range;
        }
        drop(state);
        self.shared.changed.notify_all();
        informed
    }

    fn keep_announcing(&self, agent: &dyn Registered) {
        let mut state = self.shared.state();
        while !self.shared.is_stopped() {
            if !state.has_news() {
                state = self.shared.wait(state, AGENT_PAUSE);
                continue;
            }
            let is_evicted = state.is_evicted;
            drop(state);
            if is_evicted {
                // An agent forgets all areas when it hears that they are freed. A new one that it
                // heard of before that would be forgotten as well.
                std::thread::sleep(AGENT_PAUSE);
            }
            if self.announce(agent).is_err() {
                std::thread::sleep(AGENT_PAUSE);
            }
            state = self.shared.state();
        }
    }
}
