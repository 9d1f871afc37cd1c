//! What a server is at a moment, and who may use its bucket then.

use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strongroom_base::Stopwatch;

use super::super::bucket::Bucket;
use super::super::wire::{Answer, Condition, Image, SplitId, Status};
use super::ServerOptions;

/// How long a request waits for a bucket that is quiesced or being split.
const WAIT: Duration = Duration::from_secs(1);
/// Peers that a server remembers at most.
const PEERS_MAX: usize = 64;

/// What the threads of a server share.
pub struct Shared {
    pub address: SocketAddr,
    pub number: u32,
    pub pages: u32,
    /// Notified after each change of the phase, the pause or the news.
    pub changed: Condvar,
    // A plain mutex: held for one operation on the bucket, and never while another server is asked.
    state: Mutex<State>,
    /// By number, so that they can be closed.
    pub connections: Mutex<HashMap<u64, TcpStream>>,
    is_stopped: AtomicBool,
}

/// What changes.
pub struct State {
    pub bucket: Bucket,
    pub phase: Phase,
    pub pause: Pause,
    pub is_evicted: bool,
    /// Why the bucket that was loaded cannot be served.
    pub fault: Option<String>,
    /// The last range that was taken.
    pub took: Option<SplitId>,
    /// To whom the bucket gave parts of its range, as far as this server knows.
    pub given: Vec<Image>,
    /// Where spares may be.
    pub peers: Vec<SocketAddr>,
    pub is_registered: bool,
    /// What the agent does not know yet.
    pub news: News,
}

/// Splits.
#[derive(Debug, PartialEq, Eq)]
pub enum Phase {
    /// There is none.
    Idle,
    /// The keys from here on are being given away: they are not changed.
    Giving { from: Vec<u8> },
    /// The keys from here on may be with another server.
    InDoubt { from: Vec<u8> },
    /// A range is being taken from a server, over a connection.
    Taking { split: SplitId, connection: u64 },
}

/// Whether the server was asked to hold still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    Running,
    /// No split begins; it is quiesced as soon as the one that is under way has ended.
    Asked,
    Quiesced,
}

/// What changed since the agent was last informed.
#[derive(Debug, Clone, Copy, Default)]
pub struct News {
    pub area: bool,
    pub range: bool,
    /// The agent is being informed.
    pub is_under_way: bool,
}

impl Shared {
    pub fn new(address: SocketAddr, options: ServerOptions, bucket: Bucket) -> Self {
        let state = State {
            bucket,
            phase: Phase::Idle,
            pause: Pause::Running,
            is_evicted: false,
            fault: None,
            took: None,
            given: Vec::new(),
            peers: options.peers,
            is_registered: false,
            news: News::default(),
        };
        Self {
            address,
            number: options.bucket,
            pages: options.pages,
            changed: Condvar::new(),
            state: Mutex::new(state),
            connections: Mutex::default(),
            is_stopped: AtomicBool::new(false),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something changes, but not longer than this.
    pub fn wait<'s>(&self, state: MutexGuard<'s, State>, limit: Duration) -> MutexGuard<'s, State> {
        let waited = self.changed.wait_timeout(state, limit);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// The state in which the record with a key may be used, after a short wait if necessary.
    pub fn admit(&self, key: &[u8]) -> Result<MutexGuard<'_, State>, Answer> {
        let waited = Stopwatch::start();
        let mut state = self.state();
        loop {
            match self.check(&state, key) {
                Ok(()) => return Ok(state),
                Err(Answer::Busy(_)) if waited.elapsed() < WAIT && !self.is_stopped() => {
                    state = self.wait(state, WAIT.saturating_sub(waited.elapsed()));
                }
                Err(answer) => return Err(answer),
            }
        }
    }

    /// Why the record with a key may not be used.
    fn check(&self, state: &State, key: &[u8]) -> Result<(), Answer> {
        let busy = |reason: &str| Err(Answer::Busy(format!("bucket {} {reason}", self.number)));
        if state.pause == Pause::Quiesced {
            return busy("is quiesced");
        }
        if state.is_evicted {
            return Err(Answer::Evicted);
        }
        if let Some(fault) = &state.fault {
            return Err(Answer::Failed(fault.clone()));
        }
        if matches!(state.phase, Phase::Taking { .. }) {
            return busy("takes a part of another");
        }
        let Some(range) = state.bucket.range() else { return Err(Answer::Empty) };
        if !range.contains(key) {
            return Err(Answer::Moved(self.images(state)));
        }
        match state.phase.given_from() {
            Some(from) if key >= from => busy("gives this key to another"),
            _ => Ok(()),
        }
    }

    /// What this server knows of ranges, its own first.
    fn images(&self, state: &State) -> Vec<Image> {
        let own = state.bucket.range().map(|range| Image {
            range: range.clone(),
            split_version: state.bucket.split_version(),
            address: self.address,
        });
        own.into_iter().chain(state.given.iter().cloned()).collect()
    }

    pub fn status(&self) -> Status {
        let state = self.state();
        let condition = match (&state.phase, state.pause) {
            _ if state.is_evicted => Condition::Evicted,
            (_, Pause::Quiesced) => Condition::Quiesced,
            _ if state.fault.is_some() => Condition::Damaged,
            (Phase::InDoubt { .. }, _) => Condition::InDoubt,
            (Phase::Idle, _) if state.bucket.range().is_none() => Condition::Spare,
            (Phase::Idle, _) => Condition::Serving,
            _ => Condition::Splitting,
        };
        // A range that is still being taken is another server's.
        let is_own = !matches!(state.phase, Phase::Taking { .. });
        Status {
            bucket: self.number,
            condition,
            range: state.bucket.range().filter(|_| is_own).cloned(),
            split_version: state.bucket.split_version(),
            records: state.bucket.records(),
            given: state.given.clone(),
        }
    }

    /// Remembers where a spare may be.
    pub fn meet(&self, peer: SocketAddr) {
        let mut state = self.state();
        if state.peers.len() < PEERS_MAX && !state.peers.contains(&peer) {
            state.peers.push(peer);
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        for connection in connections.values() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(connections);
        self.changed.notify_all();
    }
}

impl State {
    /// Whether there is something that the agent must know before the memory holds still.
    pub fn has_news(&self) -> bool {
        self.is_registered && (self.news.area || self.news.range || self.news.is_under_way)
    }

    /// Looks at the memory again, into which an agent may have loaded a bucket.
    pub fn look_again(&mut self) {
        if self.fault.is_none() && !self.bucket.was_replaced() {
            return;
        }
        let before = (self.bucket.range().cloned(), self.bucket.split_version());
        self.fault = self.bucket.refresh().err().map(|error| error.to_string());
        let is_same =
            before.0.as_ref() == self.bucket.range() && before.1 == self.bucket.split_version();
        if !is_same {
            // What was given away since may be elsewhere, or nowhere.
            self.given.clear();
            self.news.range = true;
        }
        self.is_evicted &= self.bucket.range().is_none();
    }
}

impl Phase {
    /// The first key that is, or may be, given away.
    pub fn given_from(&self) -> Option<&[u8]> {
        match self {
            Self::Giving { from } | Self::InDoubt { from } => Some(from),
            Self::Idle | Self::Taking { .. } => None,
        }
    }
}
