//! What comes over the connection: each message goes to the call that waits for it, or to the thread of
//! callbacks. At its end, no call and no program is left waiting.

use crate::connected::Connected;
use crate::link::Link;
use crate::message::ToProgram;
use crate::state::{Answer, Held, Task, What};

impl Link {
    /// Takes a message of the agent.
    pub fn take(&self, connection: u64, message: ToProgram) {
        let mut state = self.state();
        let what = match message {
            ToProgram::Quiesce { epoch } => Some(What::Quiesce(epoch)),
            ToProgram::Load { epoch, keys } => Some(What::Load(epoch, keys)),
            ToProgram::Resume { epoch, is_reading } => {
                state.resumed = Some((connection, epoch));
                Some(What::Resume { epoch, is_reading })
            }
            ToProgram::Evict { epoch } => Some(What::Evict(epoch)),
            ToProgram::EpochCaptured { epoch } => {
                state.free(Held::Epoch(epoch));
                None
            }
            ToProgram::Captured { request } => {
                state.free(Held::Request(request));
                state.stores.captured(request);
                state.resolve(request, Answer::Done);
                None
            }
            ToProgram::Done { request } => {
                if let Some(area) = state.registering.remove(&request) {
                    state.not_taken.remove(&area);
                }
                state.stores.done(request);
                state.resolve(request, Answer::Done);
                None
            }
            ToProgram::Failed { request, reason } => {
                state.fail(request, reason);
                None
            }
            ToProgram::Found { request, version, areas } => {
                state.resolve(request, Answer::Found(version, areas));
                None
            }
            // A greeting in the middle means nothing.
            ToProgram::Welcome { .. } | ToProgram::Refused { .. } => None,
        };
        if let Some(what) = what {
            state.tasks.push_back(Task { connection, what });
        }
        drop(state);
        self.notify();
    }

    /// The connection ended: every call that waits returns, and a program that holds still goes on.
    pub fn lose(&self, connected: &Connected) {
        connected.end();
        let mut state = self.state();
        state.connection = None;
        state.held = match state.held {
            Some(Held::Call) => Some(Held::Call),
            Some(Held::Request(_) | Held::Epoch(_)) | None => None,
        };
        for answer in state.answers.values_mut() {
            answer.get_or_insert(Answer::Gone);
        }
        state.stores.lose();
        state.registering.clear();
        state.tasks.push_back(Task { connection: connected.number, what: What::Lost });
        drop(state);
        self.notify();
    }
}
