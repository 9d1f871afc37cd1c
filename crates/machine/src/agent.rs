//! The guest agent: has the guest write out what its programs think is on disk, and hold still.
//!
//! An agent may be slow, hang, or answer what was asked an hour ago. So a thread of its own talks to
//! it ([`Freezer`]), nothing waits for that thread longer than it wants to, and the thread goes on
//! until the guest says that it is thawed.

mod freezer;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::qmp::{Deadline, FrameError, Frames};
pub use freezer::{Freezer, PATIENCE, Thaw};

/// What the agent puts in front of its answer to `guest-sync-delimited`. JSON cannot contain it.
const SENTINEL: u8 = 0xff;
/// The most that is skipped until the sentinel comes.
const SKIPPED_BYTES_MAX: usize = 1 << 20;
/// Answers to what was asked before that are skipped.
const STALE_MAX: usize = 100;

/// Why the guest agent did not do what it was asked for.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AgentError {
    /// There is no agent's socket.
    #[error("cannot connect to the guest agent's socket {}: {error}", .socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        error: std::sync::Arc<io::Error>,
    },
    /// It does not answer.
    #[error("the guest agent does not answer {command}: {why}; is it running in the guest?")]
    Unanswered {
        /// The command.
        command: &'static str,
        /// What happened instead.
        why: String,
    },
    /// It refused.
    #[error("the guest agent refused {command}: {description}")]
    Refused {
        /// The command.
        command: &'static str,
        /// Its words.
        description: String,
    },
    /// Another program has frozen the guest.
    #[error("the guest's file systems are frozen already, by another program")]
    AlreadyFrozen,
    /// It says that there was nothing to freeze, so nothing was written out.
    #[error("the guest agent froze none of the guest's file systems")]
    NothingFrozen,
    /// It did not freeze in time. It is thawed as soon as it answers again.
    #[error("the guest agent did not freeze the file systems within {0:?}")]
    TimedOut(Duration),
}

/// The guest's file systems, as the agent says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// They can be written.
    Thawed,
    /// They cannot.
    Frozen,
}

/// A connection to an agent.
pub struct Agent {
    frames: Frames,
    /// Of the last synchronization.
    number: u64,
}

impl Agent {
    /// Connects to the socket of an agent. It need not answer yet.
    ///
    /// # Errors
    ///
    /// There is no such socket.
    pub fn connect(socket: &Path) -> Result<Self, AgentError> {
        let stream = UnixStream::connect(socket).map_err(|error| AgentError::Connect {
            socket: socket.to_owned(),
            error: std::sync::Arc::new(error),
        })?;
        // Answers to those who connected before have other numbers.
        let number = u64::from(std::process::id()) << 16;
        Ok(Self { frames: Frames::new(stream), number })
    }

    /// Waits until the agent answers what is asked now, and not before.
    pub fn synchronize(&mut self, limit: Duration) -> Result<(), AgentError> {
        const COMMAND: &str = "guest-sync-delimited";
        self.number += 1;
        let number = self.number;
        let deadline = Deadline::within(limit);
        // The sentinel in front resets the agent's parser.
        let mut bytes = vec![SENTINEL];
        let message = json!({"execute": COMMAND, "arguments": {"id": number}});
        bytes.extend_from_slice(message.to_string().as_bytes());
        bytes.push(b'\n');
        self.frames.send(&bytes, deadline).map_err(|error| unanswered(COMMAND, &error))?;
        for _ in 0..STALE_MAX {
            let skipped = self.frames.skip_past(SENTINEL, SKIPPED_BYTES_MAX, deadline);
            skipped.map_err(|error| unanswered(COMMAND, &error))?;
            match self.frames.next(deadline) {
                Ok(answer) if answer["return"].as_u64() == Some(number) => return Ok(()),
                Ok(_) | Err(FrameError::Json(_)) => {}
                Err(error) => return Err(unanswered(COMMAND, &error)),
            }
        }
        let why = "it answers other things without end".to_owned();
        Err(AgentError::Unanswered { command: COMMAND, why })
    }

    /// Whether the guest's file systems are frozen.
    pub fn status(&mut self, limit: Duration) -> Result<Status, AgentError> {
        const COMMAND: &str = "guest-fsfreeze-status";
        match self.command(COMMAND, limit)?.as_str() {
            Some("frozen") => Ok(Status::Frozen),
            Some("thawed") => Ok(Status::Thawed),
            _ => Err(AgentError::Unanswered { command: COMMAND, why: RUBBISH.to_owned() }),
        }
    }

    /// Freezes the guest's file systems, and returns how many: at least one.
    pub fn freeze(&mut self, limit: Duration) -> Result<u64, AgentError> {
        const COMMAND: &str = "guest-fsfreeze-freeze";
        match self.command(COMMAND, limit)?.as_u64() {
            Some(0) => Err(AgentError::NothingFrozen),
            Some(count) => Ok(count),
            None => Err(AgentError::Unanswered { command: COMMAND, why: RUBBISH.to_owned() }),
        }
    }

    /// Thaws the guest's file systems.
    pub fn thaw(&mut self, limit: Duration) -> Result<(), AgentError> {
        self.command("guest-fsfreeze-thaw", limit).map(drop)
    }

    fn command(&mut self, command: &'static str, limit: Duration) -> Result<Value, AgentError> {
        let deadline = Deadline::within(limit);
        let message = format!("{}\n", json!({"execute": command}));
        let sent = self.frames.send(message.as_bytes(), deadline);
        let answer = sent.and_then(|()| self.frames.next(deadline));
        let mut answer = answer.map_err(|error| unanswered(command, &error))?;
        if let Some(error) = answer.get("error") {
            let description = error["desc"].as_str().unwrap_or("it gives no reason").to_owned();
            return Err(AgentError::Refused { command, description });
        }
        match answer.get_mut("return") {
            Some(value) => Ok(value.take()),
            None => Err(AgentError::Unanswered { command, why: RUBBISH.to_owned() }),
        }
    }
}

const RUBBISH: &str = "its answer is not one to this command";

fn unanswered(command: &'static str, error: &FrameError) -> AgentError {
    AgentError::Unanswered { command, why: error.to_string() }
}

/// Thaws a guest that a dead run may have left frozen. Returns true if it was frozen.
///
/// # Errors
///
/// The agent does not answer in time, or refuses.
pub fn thaw_if_frozen(socket: &Path, limit: Duration) -> Result<bool, AgentError> {
    let mut agent = Agent::connect(socket)?;
    agent.synchronize(limit)?;
    if agent.status(limit)? == Status::Thawed {
        return Ok(false);
    }
    agent.thaw(limit)?;
    Ok(true)
}

#[cfg(test)]
mod tests;
