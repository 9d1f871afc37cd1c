//! Has a guest go on that libvirt's agent has frozen, or may have frozen.
//!
//! An agent may be slow or hang, and libvirt asks it one thing at a time. So a thread goes on until the
//! guest says that it is thawed, and the backup goes on beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::connection::{Connection, NO_MACHINE};
use super::first_number;
use crate::agent::AgentError;
use crate::error::MachineError;
use crate::virsh::VirshError;

/// How long one attempt may take.
const LIMIT: Duration = Duration::from_secs(30);
/// How long it is until the next.
const PAUSE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(50);
/// What libvirt says of a machine without the channel of an agent: nothing ever freezes it.
pub const NO_AGENT: [&str; 1] = ["agent is not configured"];
/// What it says if the agent knows no command for it, and so has frozen nothing either.
pub const CANNOT_FREEZE: [&str; 2] = ["has not been found", "not currently supported"];

/// The thread.
pub struct Thawing {
    thread: Option<JoinHandle<bool>>,
    is_ending: Arc<AtomicBool>,
}

impl Thawing {
    /// Begins at once.
    pub fn start(connection: Connection) -> Self {
        let is_ending = Arc::new(AtomicBool::new(false));
        let ending = is_ending.clone();
        let work = move || {
            loop {
                if thaw(&connection).is_ok() {
                    return true;
                }
                let ticks = PAUSE.as_millis() / TICK.as_millis();
                for _ in 0..ticks {
                    if ending.load(Ordering::Relaxed) {
                        return false;
                    }
                    std::thread::sleep(TICK);
                }
            }
        };
        let thread = std::thread::Builder::new().name("thaw".to_owned()).spawn(work).ok();
        Self { thread, is_ending }
    }

    /// Ends it, after the attempt that is under way. Returns whether the guest goes on.
    pub fn finish(mut self) -> bool {
        self.is_ending.store(true, Ordering::Relaxed);
        self.thread.take().is_some_and(|thread| thread.join().unwrap_or(false))
    }
}

/// Asks once. Returns whether file systems were frozen.
///
/// # Errors
///
/// [`MachineError::NotThawed`] if that cannot be said.
pub fn thaw(connection: &Connection) -> Result<bool, MachineError> {
    match connection.ask(&["domfsthaw"], LIMIT) {
        Ok(said) => Ok(first_number(&said).is_some_and(|count| count > 0)),
        Err(error)
            if error.says(&NO_AGENT) || error.says(&CANNOT_FREEZE) || error.says(&NO_MACHINE) =>
        {
            Ok(false)
        }
        Err(error) => {
            let error = match error {
                VirshError::Slow { .. } => AgentError::Unanswered {
                    command: "domfsthaw",
                    why: format!("nothing within {LIMIT:?}"),
                },
                other => agent_error("domfsthaw", other, LIMIT),
            };
            Err(MachineError::NotThawed(error))
        }
    }
}

/// What an error of libvirt says of the agent.
pub fn agent_error(command: &'static str, error: VirshError, limit: Duration) -> AgentError {
    match error {
        VirshError::Slow { .. } => AgentError::TimedOut(limit),
        VirshError::Refused { said, .. } => AgentError::Refused { command, description: said },
        other => AgentError::Unanswered { command, why: other.to_string() },
    }
}
