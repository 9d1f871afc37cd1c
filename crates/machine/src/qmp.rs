//! The client of QMP, the protocol of QEMU's monitor.
//!
//! One command is in flight at a time. Each has a limit of time; an answer that comes after it is
//! recognized by its number and skipped, so the connection goes on. What QEMU can do is asked of its
//! schema (see `abilities.rs`), not concluded from its version.

mod frames;

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

pub(crate) use frames::{Deadline, FrameError, Frames};

use crate::peer::{Peer, peer_of};

/// How long a command may take that nothing else is said of.
pub const COMMAND_LIMIT: Duration = Duration::from_secs(20);
/// Events that are kept until they are asked for; older ones are forgotten.
const EVENTS_MAX: usize = 1024;
/// Messages that are skipped while one answer is awaited.
const SKIPPED_MAX: usize = 100_000;

/// Why QEMU did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// There is no monitor.
    #[error("cannot connect to QEMU's monitor {}: {error}", .socket.display())]
    Connect {
        /// Its socket.
        socket: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It does not greet. A monitor greets one client at a time.
    #[error(
        "QEMU's monitor {} does not answer ({error}); if another program uses it, give the \
         machine a second monitor with `-qmp unix:SOCKET,server=on,wait=off`",
        .socket.display()
    )]
    Silent {
        /// Its socket.
        socket: PathBuf,
        /// What happened instead.
        error: String,
    },
    /// What greets is not QEMU.
    #[error("{} is not a QMP monitor of QEMU", .socket.display())]
    NotQmp {
        /// The socket.
        socket: PathBuf,
    },
    /// QEMU refused.
    #[error("QEMU refused {command}: {description}")]
    Refused {
        /// The command.
        command: String,
        /// The class of the error, such as `GenericError` or `DeviceNotFound`.
        class: String,
        /// QEMU's words.
        description: String,
    },
    /// No answer came.
    #[error("QEMU did not answer {command}: {error}")]
    Unanswered {
        /// The command.
        command: String,
        /// Why.
        #[source]
        error: Unanswered,
    },
    /// The answer is not what such a command is answered with.
    #[error("QEMU's answer to {command} lacks {missing}")]
    Answer {
        /// The command.
        command: String,
        /// What should be in it.
        missing: &'static str,
    },
}

/// Why no answer came.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// QEMU ended, or closed its monitor.
    #[error("it ended the connection")]
    Closed,
    /// It may still carry out the command.
    #[error("no answer came within {0:?}")]
    TimedOut(Duration),
    /// What came is no answer.
    #[error("{0}")]
    Broken(String),
}

impl From<FrameError> for Unanswered {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Closed => Self::Closed,
            FrameError::TimedOut(limit) => Self::TimedOut(limit),
            other => Self::Broken(other.to_string()),
        }
    }
}

impl QmpError {
    /// True if QEMU is gone, as far as this connection shows.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Connect { error, .. } => {
                matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
            }
            Self::Unanswered { error: Unanswered::Closed, .. } => true,
            _ => false,
        }
    }

    /// True if QEMU did not answer in time, and may carry out the command yet.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Unanswered { error: Unanswered::TimedOut(_), .. })
    }

    /// True if QEMU answered, and refused.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

/// Something that happened in QEMU.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its name, such as `STOP`.
    pub name: String,
    /// What it says.
    pub data: Value,
}

/// A connection to a monitor. Several threads may use it.
#[derive(Debug)]
pub struct Qmp {
    version: (u64, u64, u64),
    package: String,
    // A plain mutex: held while one command is carried out.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    frames: Frames,
    number: u64,
    events: VecDeque<Event>,
    /// The connection is of no use any more.
    is_broken: bool,
}

impl Qmp {
    /// Connects to a monitor.
    ///
    /// # Errors
    ///
    /// There is none, another program uses it, or it is no monitor.
    pub fn connect(socket: &Path, limit: Duration) -> Result<Self, QmpError> {
        let stream = UnixStream::connect(socket)
            .map_err(|error| QmpError::Connect { socket: socket.to_owned(), error })?;
        let mut frames = Frames::new(stream);
        let deadline = Deadline::within(limit);
        // Before it comes what QEMU still had for the client before this one, and that may begin in
        // the middle of an answer.
        let greeting = match frames.seek("QMP", deadline).and_then(|()| frames.next(deadline)) {
            Ok(greeting) => greeting,
            Err(FrameError::Json(_) | FrameError::TooLong) => {
                return Err(QmpError::NotQmp { socket: socket.to_owned() });
            }
            Err(_) if frames.has_some() => {
                return Err(QmpError::NotQmp { socket: socket.to_owned() });
            }
            Err(error) => {
                let error = error.to_string();
                return Err(QmpError::Silent { socket: socket.to_owned(), error });
            }
        };
        let version = &greeting["QMP"]["version"];
        let number = |name: &str| version["qemu"][name].as_u64();
        let (Some(major), Some(minor), Some(micro)) =
            (number("major"), number("minor"), number("micro"))
        else {
            return Err(QmpError::NotQmp { socket: socket.to_owned() });
        };
        let package = version["package"].as_str().unwrap_or_default().to_owned();
        let state = State { frames, number: 0, events: VecDeque::new(), is_broken: false };
        let qmp = Self { version: (major, minor, micro), package, state: Mutex::new(state) };
        qmp.execute_within("qmp_capabilities", Value::Null, limit)?;
        Ok(qmp)
    }

    /// QEMU's version.
    pub fn version(&self) -> (u64, u64, u64) {
        self.version
    }

    /// What its distribution calls it; may be empty.
    pub fn package(&self) -> &str {
        &self.package
    }

    /// The process at the other end.
    pub(crate) fn peer(&self) -> Option<Peer> {
        peer_of(self.state().frames.stream()).ok()
    }

    /// Carries out a command and returns its answer. `arguments` is an object, or null.
    ///
    /// # Errors
    ///
    /// QEMU refused, or did not answer in time.
    pub fn execute(&self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        self.execute_within(command, arguments, COMMAND_LIMIT)
    }

    /// The same, with a limit of its own.
    ///
    /// # Errors
    ///
    /// QEMU refused, or did not answer in time.
    pub fn execute_within(
        &self,
        command: &str,
        arguments: Value,
        limit: Duration,
    ) -> Result<Value, QmpError> {
        let mut state = self.state();
        let answer = state.carry_out(command, arguments, Deadline::within(limit));
        let answer =
            answer.map_err(|error| QmpError::Unanswered { command: command.to_owned(), error })?;
        let Value::Object(mut answer) = answer else { return Ok(Value::Null) };
        match answer.remove("error") {
            None => Ok(answer.remove("return").unwrap_or_default()),
            Some(error) => Err(QmpError::Refused {
                command: command.to_owned(),
                class: error["class"].as_str().unwrap_or_default().to_owned(),
                description: error["desc"].as_str().unwrap_or("it gives no reason").to_owned(),
            }),
        }
    }

    /// Takes the events that came while commands were carried out.
    pub fn take_events(&self) -> Vec<Event> {
        self.state().events.drain(..).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn carry_out(
        &mut self,
        command: &str,
        arguments: Value,
        deadline: Deadline,
    ) -> Result<Value, Unanswered> {
        if self.is_broken {
            return Err(Unanswered::Closed);
        }
        self.number += 1;
        let mut message = json!({"execute": command, "id": self.number});
        if !arguments.is_null() {
            message["arguments"] = arguments;
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(b'\n');
        if let Err(error) = self.frames.send(&bytes, deadline) {
            // A part of it may have been sent.
            self.is_broken = true;
            return Err(error.into());
        }
        for _ in 0..SKIPPED_MAX {
            let answer = match self.frames.next(deadline) {
                Ok(answer) => answer,
                Err(FrameError::TimedOut(limit)) => return Err(Unanswered::TimedOut(limit)),
                Err(error) => {
                    self.is_broken = true;
                    return Err(error.into());
                }
            };
            if let Some(name) = answer["event"].as_str() {
                let event = Event { name: name.to_owned(), data: answer["data"].clone() };
                if self.events.len() >= EVENTS_MAX {
                    self.events.pop_front();
                }
                self.events.push_back(event);
            } else if answer["id"].as_u64() == Some(self.number) {
                return Ok(answer);
            } else if answer["id"].is_null() {
                // QEMU could not even read the command.
                self.is_broken = true;
                let words = answer["error"]["desc"].as_str().unwrap_or("an answer to nothing");
                return Err(Unanswered::Broken(words.to_owned()));
            }
        }
        self.is_broken = true;
        Err(Unanswered::Broken("other messages come without end".to_owned()))
    }
}

#[cfg(test)]
mod tests;
