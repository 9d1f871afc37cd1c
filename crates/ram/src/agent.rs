//! The agent of a node: one thread takes what happens, one event at a time, and answers. What takes
//! long is a job on a thread of its own ([`jobs`]), and reports back as an event.
//!
//! - Its thread waits for no program: each is listened to and spoken to by threads of its own, and so is
//!   what it hands over opened and closed (`opened.rs`).
//! - What programs and datagrams may take of it is bounded (`limits.rs`).

mod answers;
mod bucket;
mod calls;
mod doing;
mod effects;
mod gate;
mod jobs;
mod limits;
mod listening;
mod programs;
mod rounds;
mod speaker;
mod torn;
mod users;
mod versions;
mod waits;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use strongroom_base::{Monitor, Problem, Severity, Stopwatch};
use strongroom_bucket::FromProgram;
use strongroom_bucket::served::{Connection, Listener, ServedError};
use strongroom_cluster::Command;

use crate::counts::Counts;
use crate::files::NodeFile;
use crate::keeper::{BucketName, Keeper};
use crate::opened::{Closers, Opened};
use bucket::Bucket;
use jobs::JobEvent;
use limits::{EVENTS_MAX, Lines, OpenLimits};
use listening::{accept_programs, listen, listen_to_datagrams};
use rounds::Rounds;

/// How often the agent looks whether it is to end, at least.
const TICK: Duration = Duration::from_millis(200);

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
    Program(u64, FromProgram, Option<Taken>),
    Gone(u64, Option<String>),
    Command(Box<Command>, SocketAddr),
    Job(BucketName, u64, JobEvent),
}

/// What a program has handed over as an area, or why that is none.
struct Taken(Result<Opened, String>);

/// A program that is connected.
struct Program {
    connection: Arc<Connection>,
    /// What it says that it holds, once it has said so.
    bucket: Option<BucketName>,
    /// Its connection was ended, and why is logged.
    is_ended: bool,
}

/// The agent.
pub struct Agent {
    keeper: Arc<Keeper>,
    events: SyncSender<Event>,
    limits: OpenLimits,
    /// The user as whom it runs.
    user: u32,
    programs: BTreeMap<u64, Program>,
    buckets: BTreeMap<BucketName, Bucket>,
    /// Programs that want a bucket whose program has ended, but is still heard.
    successors: Vec<(u64, BucketName)>,
    rounds: Option<Rounds>,
    /// Numbers programs, jobs and questions to programs.
    numbers: u64,
    /// What programs have asked for, as long as its jobs have not ended.
    jobs: Counts,
    /// The same, of rounds.
    round_jobs: Counts,
    /// Areas that are open: those of buckets, and those of stores that wait or are carried out.
    open_areas: Counts,
    /// Close them.
    closers: Closers,
    watch: Stopwatch,
    /// What is logged of programs, which cause as many lines as they like.
    lines: Lines,
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
    let (events, happened) = sync_channel(EVENTS_MAX);
    let rounds = match options.node {
        None => None,
        Some((node, folder)) => Some(Rounds::open(node, folder)?),
    };
    let listener = Listener::bind(&options.socket, options.socket_mode)?;
    let listening = match &rounds {
        None => None,
        Some(rounds) => {
            let (node, socket) = (rounds.node().clone(), rounds.socket());
            Some(listen_to_datagrams(node, socket, keeper.clone(), events.clone())?)
        }
    };
    let accepting = accept_programs(listener, keeper.clone(), events.clone())?;
    let agent = Agent {
        keeper,
        events,
        limits: OpenLimits::raise(),
        user: users::own_user(),
        programs: BTreeMap::new(),
        buckets: BTreeMap::new(),
        successors: Vec::new(),
        rounds,
        numbers: 0,
        jobs: Counts::default(),
        round_jobs: Counts::default(),
        open_areas: Counts::default(),
        closers: Closers::default(),
        watch: Stopwatch::start(),
        lines: Lines::default(),
    };
    ready();
    agent.attend(happened);
    // These end with the agent, and free the socket and the address.
    for thread in [Some(accepting), listening].into_iter().flatten() {
        let _ = thread.join();
    }
    Ok(())
}

impl Agent {
    fn attend(mut self, happened: Receiver<Event>) {
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
            bucket.end();
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Connected(connection) => self.connected(connection),
            Event::Program(program, message, taken) => self.hear(program, message, taken),
            Event::Gone(program, error) => {
                // Why the agent ended a connection is logged already.
                let is_ended = self.programs.get(&program).is_some_and(|known| known.is_ended);
                if let (Some(error), false) = (error, is_ended) {
                    self.say_of_programs(Severity::Warning, &error);
                }
                self.lose(program);
            }
            Event::Command(command, from) => self.receive(&command, from),
            Event::Job(bucket, job, event) => self.job(&bucket, job, event),
        }
    }

    /// A thread reads what the program says.
    fn connected(&mut self, connection: Arc<Connection>) {
        let connections_max = self.limits.connections;
        let user = connection.peer().uid;
        let of_user = |program: &&Program| program.connection.peer().uid == user;
        let refusal = if self.programs.len() >= connections_max {
            Some(format!("it has {connections_max} programs, and takes no more"))
        } else if self.programs.values().filter(of_user).count()
            >= self.share_of(user, connections_max)
        {
            Some(format!("user {user} has as many programs here as one user may have"))
        } else {
            None
        };
        if let Some(reason) = refusal {
            self.say_of_programs(Severity::Warning, &format!("a program is not heard: {reason}"));
            return programs::turn_away(&connection, reason);
        }
        let number = self.number();
        let (events, reading) = (self.events.clone(), connection.clone());
        let closers = self.closers.clone();
        let read = move || {
            let error = listen(&reading, number, &events, &closers);
            // The agent may have ended before.
            let _ = events.send(Event::Gone(number, error));
        };
        match thread::Builder::new().name("program".to_owned()).spawn(read) {
            Ok(_) => {
                self.programs.insert(number, Program { connection, bucket: None, is_ended: false });
            }
            Err(error) => {
                let message = format!("a program is not heard: {error}");
                self.say_of_programs(Severity::Warning, &message);
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.watch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Logs what programs cause. Of a flood, the first are logged, and how many there were.
    fn say_of_programs(&mut self, severity: Severity, message: &str) {
        let Some(beside) = self.lines.admit() else { return };
        let monitor: &dyn Monitor = &*self.keeper.monitor;
        monitor.problem(Problem { severity, path: None, message: &format!("{message}{beside}") });
    }
}
