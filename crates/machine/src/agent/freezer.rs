//! The thread that freezes a guest, and that does not end before the guest is thawed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strongroom_base::Stopwatch;

use super::{Agent, AgentError, Status};

/// How long the agent may take for anything but to freeze.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How often an agent that hangs is asked again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long it is asked.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// A guest that is being frozen, is frozen, or is being thawed. Dropping it thaws, too, as long as the
/// process runs.
pub struct Freezer {
    shared: Arc<Shared>,
}

/// How a thaw ended.
#[derive(Debug, Clone)]
pub enum Thaw {
    /// The guest's file systems can be written.
    Thawed,
    /// The agent has not answered yet. The guest may be frozen, and the thread goes on.
    Unknown,
    /// The thread has ended without an answer. The guest may be frozen.
    GivenUp(AgentError),
}

#[derive(Default)]
struct Shared {
    // A plain mutex: held to look and to change.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How freezing ended: with how many file systems.
    frozen: Option<Result<u64, AgentError>>,
    /// The guest is to be thawed.
    is_thaw_wanted: bool,
    /// The guest is thawed for certain, or was not touched.
    is_thawed: bool,
    /// The thread asks no more.
    has_given_up: bool,
    /// What the agent said to thawing last.
    trouble: Option<AgentError>,
}

impl Freezer {
    /// Begins to freeze by the agent at `socket`, which may take until `limit`. Another program may have
    /// frozen the guest already; then it is left alone.
    pub fn begin(socket: &Path, limit: Duration) -> Self {
        Self::start(socket, limit, false)
    }

    /// The same for a guest that an earlier run may have left frozen: it is thawed first.
    pub fn begin_again(socket: &Path, limit: Duration) -> Self {
        Self::start(socket, limit, true)
    }

    fn start(socket: &Path, limit: Duration, is_ours: bool) -> Self {
        let shared = Arc::new(Shared::default());
        let thread = Thread { shared: shared.clone(), socket: socket.to_owned(), limit, is_ours };
        let spawned = std::thread::Builder::new().name("guest agent".to_owned());
        if let Err(error) = spawned.spawn(move || thread.run()) {
            let mut state = shared.state();
            let (socket, error) = (socket.to_owned(), Arc::new(error));
            state.frozen = Some(Err(AgentError::Connect { socket, error }));
            state.is_thawed = true;
        }
        Self { shared }
    }

    /// Waits until the guest is frozen, and returns how many of its file systems are.
    ///
    /// # Errors
    ///
    /// It is not, or not in time. It is thawed again in any case.
    pub fn wait(&self, limit: Duration) -> Result<u64, AgentError> {
        let state = self.shared.wait(limit, &|state| state.frozen.is_some());
        state.frozen.clone().unwrap_or(Err(AgentError::TimedOut(limit)))
    }

    /// Thaws the guest, and waits for that. The thread goes on if it is not thawed in time.
    pub fn thaw(&self, limit: Duration) -> Thaw {
        self.shared.want_thaw();
        let state = self.shared.wait(limit, &|state| state.is_thawed || state.has_given_up);
        if state.is_thawed {
            return Thaw::Thawed;
        }
        if !state.has_given_up {
            return Thaw::Unknown;
        }
        Thaw::GivenUp(state.trouble.clone().unwrap_or(AgentError::TimedOut(limit)))
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.shared.want_thaw();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn want_thaw(&self) {
        self.change(|state| state.is_thaw_wanted = true);
    }

    /// Waits until something is so, or until the limit.
    fn wait(&self, limit: Duration, is_so: &dyn Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waited = Stopwatch::start();
        let mut state = self.state();
        loop {
            let left = limit.saturating_sub(waited.elapsed());
            if is_so(&state) || left.is_zero() {
                return state;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

struct Thread {
    shared: Arc<Shared>,
    socket: PathBuf,
    limit: Duration,
    /// What is frozen already was frozen by an earlier run.
    is_ours: bool,
}

impl Thread {
    fn run(self) {
        let mut agent = match self.greet() {
            Ok(agent) => agent,
            Err(error) => {
                // Nothing was asked that changes the guest.
                self.shared.change(|state| {
                    state.frozen = Some(Err(error));
                    state.is_thawed = true;
                });
                return;
            }
        };
        let waited = Stopwatch::start();
        let frozen = agent.freeze(self.limit).map_err(|error| match error {
            AgentError::Unanswered { .. } if waited.elapsed() >= self.limit => {
                AgentError::TimedOut(self.limit)
            }
            other => other,
        });
        let is_frozen = frozen.is_ok();
        self.shared.change(|state| state.frozen = Some(frozen));
        if is_frozen {
            drop(self.shared.wait(PATIENCE, &|state| state.is_thaw_wanted));
        }
        self.thaw(agent);
    }

    /// Connects, and makes sure that the agent answers and that nothing is frozen.
    fn greet(&self) -> Result<Agent, AgentError> {
        let mut agent = Agent::connect(&self.socket)?;
        agent.synchronize(ANSWER_LIMIT.min(self.limit))?;
        match agent.status(ANSWER_LIMIT)? {
            Status::Thawed => Ok(agent),
            Status::Frozen if self.is_ours => agent.thaw(ANSWER_LIMIT).map(|()| agent),
            Status::Frozen => Err(AgentError::AlreadyFrozen),
        }
    }

    /// Asks until the guest says that it is thawed.
    fn thaw(&self, agent: Agent) {
        let waited = Stopwatch::start();
        let mut agent = Some(agent);
        while waited.elapsed() < PATIENCE {
            match self.thaw_once(&mut agent) {
                Ok(()) => {
                    self.shared.change(|state| state.is_thawed = true);
                    return;
                }
                Err(error) => self.shared.change(|state| state.trouble = Some(error)),
            }
            std::thread::sleep(AGAIN);
        }
        self.shared.change(|state| state.has_given_up = true);
    }

    fn thaw_once(&self, agent: &mut Option<Agent>) -> Result<(), AgentError> {
        let mut known = match agent.take() {
            Some(agent) => agent,
            None => Agent::connect(&self.socket)?,
        };
        // What was answered too late is skipped. After an error the next attempt connects again.
        known.synchronize(ANSWER_LIMIT)?;
        if known.status(ANSWER_LIMIT)? == Status::Frozen {
            known.thaw(ANSWER_LIMIT)?;
        }
        Ok(())
    }
}
