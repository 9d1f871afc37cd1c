//! What a job and the agent know of each other: whether the program holds still, whether all is read,
//! and whether the job is void.
//!
//! A program never goes on before its gate is captured or closed, and a job whose gate was closed stores
//! nothing. So what is stored was read while its program held still, or from shadows that did not
//! change.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use strongroom_base::Cancel;

use crate::about::About;

/// Holds a job up until the program holds still everywhere, and says when it has read all.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    /// Ends the job early, once it is void.
    pub cancel: Cancel,
}

#[derive(Default)]
enum State {
    /// The program may change what is read.
    #[default]
    Waiting,
    /// It does not, from here on.
    Open(Option<Box<About>>),
    /// All is read.
    Captured,
    /// The job is void.
    Closed,
}

impl Gate {
    /// That of a program that holds still from the beginning.
    pub fn opened() -> Self {
        Self { state: Mutex::new(State::Open(None)), ..Self::default() }
    }

    /// Lets the job go on, and gives it what is written beside the areas.
    pub fn open(&self, about: About) {
        let mut state = self.state();
        if matches!(*state, State::Waiting) {
            *state = State::Open(Some(Box::new(about)));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the job, unless it has read all.
    pub fn close(&self) {
        let mut state = self.state();
        if !matches!(*state, State::Captured) {
            *state = State::Closed;
            self.cancel.cancel();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the job, even if it has read all: nothing of it is wanted.
    pub fn end(&self) {
        self.close();
        self.cancel.cancel();
    }

    /// Whether the job waits for its program.
    pub fn is_waiting(&self) -> bool {
        matches!(*self.state(), State::Waiting)
    }

    /// Whether the job reads what does not change.
    pub fn is_open(&self) -> bool {
        matches!(*self.state(), State::Open(_))
    }

    /// Waits until it is open; `None` if it was closed, or passed before.
    pub fn pass(&self) -> Option<About> {
        let mut state = self.state();
        loop {
            match &mut *state {
                State::Waiting => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                State::Open(about) => return about.take().map(|about| *about),
                State::Captured | State::Closed => return None,
            }
        }
    }

    /// All is read. Returns whether the program held still up to here.
    pub fn capture(&self) -> bool {
        let mut state = self.state();
        let was_open = matches!(*state, State::Open(_));
        if was_open {
            *state = State::Captured;
        }
        was_open
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
