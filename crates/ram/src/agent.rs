//! The agent of a node: one thread takes what happens, one event at a time, and answers. What takes
//! long is a job on a thread of its own ([`jobs`]), and reports back as an event.

mod bucket;
mod jobs;
mod programs;
mod rounds;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use strongroom_base::{Monitor, Problem, Severity, Stopwatch};
use strongroom_bucket::FromProgram;
use strongroom_bucket::served::{Connection, Listener, Received, ServedError};

use crate::files::NodeFile;
use crate::keeper::{BucketName, Keeper};
use bucket::Bucket;
use jobs::JobEvent;
use rounds::Rounds;

/// How often the agent looks whether it is to end, at least.
const TICK: Duration = Duration::from_millis(200);
/// More than a datagram of the cluster may have: longer ones are seen as such.
const DATAGRAM_BYTES: usize = 2048;

/// What an agent is made with.
pub struct AgentOptions {
    /// Where programs connect.
    pub socket: PathBuf,
    /// The mode of the socket's file: who may connect.
    pub socket_mode: u32,
    /// The cluster that it is a node of, and the folder in which it remembers rounds.
    pub node: Option<(NodeFile, PathBuf)>,
}

/// Why an agent does not run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its socket.
    #[error(transparent)]
    Socket(#[from] ServedError),
    /// Its address.
    #[error("cannot listen on {address}: {error}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// What it remembers.
    #[error("cannot read what it remembers of rounds in {}: {why}", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The system gave no thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// What happens.
enum Event {
    Connected(Arc<Connection>),
    Program(u64, FromProgram, Option<OwnedFd>),
    Gone(u64, Option<ServedError>),
    Datagram(Vec<u8>, SocketAddr),
    Job(BucketName, u64, JobEvent),
}

/// A program that is connected.
struct Program {
    connection: Arc<Connection>,
    /// What it says that it holds, once it has said so.
    bucket: Option<BucketName>,
}

/// The agent.
pub struct Agent {
    keeper: Arc<Keeper>,
    events: Sender<Event>,
    programs: BTreeMap<u64, Program>,
    buckets: BTreeMap<BucketName, Bucket>,
    /// Programs that want a bucket whose program has ended, but is still heard.
    successors: Vec<(u64, BucketName)>,
    rounds: Option<Rounds>,
    /// Numbers programs, jobs and questions to programs.
    numbers: u64,
    watch: Stopwatch,
}

/// Runs an agent until the keeper's cancel is set. `ready` is called once programs can connect.
///
/// # Errors
///
/// It cannot listen, or not read what it remembers.
pub fn run(
    keeper: Arc<Keeper>,
    options: AgentOptions,
    ready: &mut dyn FnMut(),
) -> Result<(), AgentError> {
    let (events, happened) = channel();
    let rounds = match options.node {
        None => None,
        Some((node, folder)) => {
            let rounds = Rounds::open(node, folder)?;
            listen_to_datagrams(rounds.socket(), events.clone())?;
            Some(rounds)
        }
    };
    let listener = Listener::bind(&options.socket, options.socket_mode)?;
    let agent = Agent {
        keeper: keeper.clone(),
        events: events.clone(),
        programs: BTreeMap::new(),
        buckets: BTreeMap::new(),
        successors: Vec::new(),
        rounds,
        numbers: 0,
        watch: Stopwatch::start(),
    };
    let stop = keeper.cancel.clone();
    let accepting = thread::Builder::new().name("accept".to_owned()).spawn(move || {
        while !stop.is_cancelled() {
            // What fails for one program is not the end for the others.
            if let Ok(Some(connection)) = listener.accept(Some(TICK))
                && events.send(Event::Connected(Arc::new(connection))).is_err()
            {
                break;
            }
        }
    });
    let accepting = accepting.map_err(AgentError::Thread)?;
    ready();
    agent.attend(&happened);
    // It removes the socket.
    let _ = accepting.join();
    Ok(())
}

/// The socket of a node, as a member of its group.
pub fn bind_datagrams(node: &NodeFile) -> Result<UdpSocket, AgentError> {
    let failed = |address| move |error| AgentError::Address { address, error };
    let socket = match node.multicast {
        None => UdpSocket::bind(node.address).map_err(failed(node.address))?,
        Some(group) => {
            // A socket that is bound to one address hears nothing of a group.
            let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), node.address.port());
            let socket = UdpSocket::bind(any).map_err(failed(any))?;
            if let (IpAddr::V4(group_ip), IpAddr::V4(own)) = (group.ip(), node.address.ip()) {
                socket.join_multicast_v4(&group_ip, &own).map_err(failed(group))?;
            }
            socket
        }
    };
    socket.set_read_timeout(Some(TICK)).map_err(failed(node.address))?;
    Ok(socket)
}

fn listen_to_datagrams(socket: &UdpSocket, events: Sender<Event>) -> Result<(), AgentError> {
    let socket = socket.try_clone().map_err(AgentError::Thread)?;
    let listen = move || {
        let mut bytes = vec![0; DATAGRAM_BYTES];
        loop {
            match socket.recv_from(&mut bytes) {
                Ok((length, from)) => {
                    let datagram = bytes[..length].to_vec();
                    if events.send(Event::Datagram(datagram, from)).is_err() {
                        break;
                    }
                }
                Err(error) if is_passing(&error) => {}
                // A client that is gone is reported on the next receive. It is nothing to us.
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    };
    let started = thread::Builder::new().name("datagrams".to_owned()).spawn(listen);
    started.map(drop).map_err(AgentError::Thread)
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

impl Agent {
    fn attend(mut self, happened: &Receiver<Event>) {
        while !self.keeper.cancel.is_cancelled() {
            let wait = self.rounds.as_ref().map_or(TICK, |rounds| rounds.wait(self.now_ms(), TICK));
            match happened.recv_timeout(wait) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tick_rounds();
        }
        // Programs are never left stopped: the library lets them go on when the connection ends.
        for program in self.programs.values() {
            program.connection.end();
        }
        for bucket in self.buckets.values() {
            bucket.give_up();
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Connected(connection) => self.connected(connection),
            Event::Program(program, message, descriptor) => {
                self.hear(program, message, descriptor);
            }
            Event::Gone(program, error) => {
                if let Some(error) = error {
                    self.say(Severity::Warning, &error.to_string());
                }
                self.lose(program);
            }
            Event::Datagram(bytes, from) => self.receive(&bytes, from),
            Event::Job(bucket, job, event) => self.job(&bucket, job, event),
        }
    }

    /// A thread reads what the program says.
    fn connected(&mut self, connection: Arc<Connection>) {
        let number = self.number();
        let (events, reading) = (self.events.clone(), connection.clone());
        let read = move || {
            let error = loop {
                match reading.receive(None) {
                    Ok(Received::Message(message, descriptor)) => {
                        if events.send(Event::Program(number, message, descriptor)).is_err() {
                            break None;
                        }
                    }
                    Ok(Received::Nothing) => {}
                    Ok(Received::End) => break None,
                    Err(error) => break Some(error),
                }
            };
            // The agent may have ended before.
            let _ = events.send(Event::Gone(number, error));
        };
        match thread::Builder::new().name("program".to_owned()).spawn(read) {
            Ok(_) => {
                self.programs.insert(number, Program { connection, bucket: None });
            }
            Err(error) => self.say(Severity::Warning, &format!("a program is not heard: {error}")),
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.watch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn say(&self, severity: Severity, message: &str) {
        self.monitor().problem(Problem { severity, path: None, message });
    }

    fn monitor(&self) -> &dyn Monitor {
        &*self.keeper.monitor
    }
}
