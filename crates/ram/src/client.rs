//! The client of a cluster: the sockets, the clock and the repository of its state machine.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use strongroom_base::entropy::random_array;
use strongroom_base::{Cancel, Monitor, OsEntropy, SnapshotId, Stopwatch};
use strongroom_bucket::KeyRange;
use strongroom_cluster::{
    Acknowledgement, Client, ClientEffect, ClientInput, ClientOptions, Command, Epoch, FileName,
    NodeId, Outcome, RunId, StoredPart, Task, open_acknowledgement, seal_command,
};

use crate::datagrams::ClientSocket;
use crate::files::{ControllerFile, replace};

/// How long nodes are asked what they have, unless all keys are known earlier.
const ASK_MS: u32 = 1_000;
/// How often it looks whether it is to end, at least.
const TICK: Duration = Duration::from_millis(100);
/// More than a datagram of the cluster may have.
const DATAGRAM_BYTES: usize = 2048;

/// How a run is limited.
#[derive(Debug, Clone, Copy)]
pub struct RunLimits {
    /// How long programs may be stopped.
    pub stopped: Duration,
    /// How long nodes may take to store, to evict or to load.
    pub stored: Duration,
    /// How many times what is missing is waited for.
    pub periods: u32,
}

/// What a store takes for a whole file.
#[derive(Debug, Clone, Default)]
pub struct Leniency {
    /// Nodes that are lost, and need not say what they have.
    pub without: Vec<NodeId>,
    /// Buckets of zeros are stored as well.
    pub takes_empty: bool,
}

/// Why a run did not begin, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No datagram can be sent.
    #[error("cannot send datagrams: {0}")]
    Socket(io::Error),
    /// The epoch that was kept cannot be read.
    #[error("cannot read the epoch in {}: {why}", .path.display())]
    Epoch {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// What a run asks of its caller.
pub trait RunCaller {
    /// Commits the cut of an epoch.
    ///
    /// # Errors
    ///
    /// It is not committed, or it is unknown whether it is.
    fn commit(&mut self, epoch: Epoch, parts: &[StoredPart]) -> Result<SnapshotId, String>;

    /// No bucket has these keys: brings them back, if it can. Returns whether that is done, so that they
    /// will not come back from where they were.
    fn recover(&mut self, range: &KeyRange) -> bool;
}

/// One run: its task, and whom it is about.
pub struct Run<'r> {
    /// The cluster.
    pub files: &'r ControllerFile,
    /// The file.
    pub file: &'r FileName,
    /// What for.
    pub task: Task,
    /// Its limits.
    pub limits: RunLimits,
    /// What a store takes for a whole file.
    pub leniency: Leniency,
}

/// Runs it to its end. If it is cancelled, programs that are stopped are let go first.
///
/// # Errors
///
/// No datagram can be sent, or what was kept cannot be read.
pub fn run(
    run: Run<'_>,
    caller: &mut dyn RunCaller,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Outcome, RunError> {
    let Run { files, file, task, limits, leniency } = run;
    let epoch_path = files.path.with_file_name(format!("{file}.epoch"));
    let (watch, wire) = (Stopwatch::start(), Wire::open(files)?);
    let now_ms = || u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX);
    let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    let options = ClientOptions {
        run: RunId(u64::from_le_bytes(random_array(&OsEntropy))),
        seed: u64::from_le_bytes(random_array(&OsEntropy)),
        known_epoch: read_epoch(&epoch_path)?,
        ask_ms: ASK_MS,
        deadline_ms: ms(limits.stopped),
        store_ms: ms(limits.stored),
        nodes: files.nodes.iter().map(|node| node.id).collect(),
        without: leniency.without,
        takes_empty: leniency.takes_empty,
        periods: limits.periods,
    };
    let mut client = Client::new(file.clone(), task, options, now_ms());
    let mut effects = client.tick(now_ms());
    loop {
        let mut results = Vec::new();
        for effect in effects {
            match effect {
                ClientEffect::Send(command) => wire.send(&command, monitor),
                ClientEffect::KeepEpoch(epoch) => results.push(keep_epoch(&epoch_path, epoch)),
                ClientEffect::Commit { epoch, parts } => {
                    results.push(match caller.commit(epoch, &parts) {
                        Ok(snapshot) => ClientInput::Committed(snapshot),
                        Err(reason) => ClientInput::NotCommitted { reason },
                    });
                }
                ClientEffect::Recover(range) => {
                    results.extend(caller.recover(&range).then_some(ClientInput::Recovered));
                }
                ClientEffect::Finish(outcome) => return Ok(outcome),
            }
        }
        if !results.is_empty() {
            effects = results.into_iter().flat_map(|input| client.input(now_ms(), input)).collect();
            continue;
        }
        if cancel.is_cancelled() {
            effects = client.cancel(now_ms());
            if !effects.is_empty() {
                continue;
            }
        }
        let due = client
            .wake_at_ms()
            .map_or(TICK, |at| Duration::from_millis(at.saturating_sub(now_ms())).min(TICK));
        effects = match wire.receive(due, monitor) {
            Some(answer) => client.receive(now_ms(), &answer),
            None => client.tick(now_ms()),
        };
    }
}

fn read_epoch(path: &Path) -> Result<Epoch, RunError> {
    let failed = |why: String| RunError::Epoch { path: path.to_owned(), why };
    match fs::read_to_string(path) {
        Ok(text) => {
            text.trim().parse().map(Epoch).map_err(|_| failed("it is no number".to_owned()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Epoch::default()),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn keep_epoch(path: &Path, epoch: Epoch) -> ClientInput {
    match replace(path, format!("{epoch}\n").as_bytes()) {
        Ok(()) => ClientInput::EpochKept(epoch),
        Err(error) => ClientInput::EpochNotKept { reason: error.to_string() },
    }
}

/// The datagrams of a client.
struct Wire<'w> {
    files: &'w ControllerFile,
    socket: ClientSocket,
    /// The group, or each node.
    targets: Vec<SocketAddr>,
}

impl<'w> Wire<'w> {
    fn open(files: &'w ControllerFile) -> Result<Self, RunError> {
        let targets: Vec<SocketAddr> = match files.multicast {
            Some(group) => vec![group],
            None => files.nodes.iter().map(|node| node.address).collect(),
        };
        let socket = ClientSocket::open(&targets).map_err(RunError::Socket)?;
        Ok(Self { files, socket, targets })
    }

    /// What is lost is repeated.
    fn send(&self, command: &Command, monitor: &dyn Monitor) {
        let files = self.files;
        let datagram = seal_command(command, &files.controller, &files.group, &OsEntropy);
        for target in &self.targets {
            if let Err(error) = self.socket.send(&datagram, *target) {
                monitor.detail(&format!("a command to {target} is not sent: {error}"));
            }
        }
    }

    /// The next acknowledgement that opens.
    fn receive(&self, wait: Duration, monitor: &dyn Monitor) -> Option<Acknowledgement> {
        let key_of = |id: NodeId| {
            let node = self.files.nodes.iter().find(|node| node.id == id);
            node.map(|node| node.key.clone())
        };
        // A timeout of zero would wait for ever.
        let wait = wait.max(Duration::from_millis(1));
        let socket = self.socket.socket();
        socket.set_read_timeout(Some(wait)).ok()?;
        let mut bytes = [0; DATAGRAM_BYTES];
        let (length, from) = socket.recv_from(&mut bytes).ok()?;
        match open_acknowledgement(&bytes[..length], key_of) {
            Ok(answer) => Some(answer),
            Err(error) => {
                monitor.detail(&format!("a datagram from {from} is ignored: {error}"));
                None
            }
        }
    }
}
