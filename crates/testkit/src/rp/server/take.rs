//! A split, at the server that takes a range: a spare.
//!
//! The commit decides: before it, the range is undone as soon as its connection ends, is silent for
//! too long, or the server that gives asks how it ended; after it, this server has the range.

use strongroom_bucket::KeyRange;

use super::super::bucket::Records;
use super::super::wire::{Answer, SplitId};
use super::state::{Pause, Phase, Shared, State};

/// Begins to take a range, if the bucket is empty.
pub fn begin(shared: &Shared, connection: u64, split: SplitId, range: KeyRange) -> Answer {
    let mut state = shared.state();
    if state.pause != Pause::Running {
        return Answer::Busy(format!("bucket {} is quiesced", shared.number));
    }
    let is_spare = state.phase == Phase::Idle
        && state.bucket.range().is_none()
        && state.fault.is_none()
        && !state.is_evicted;
    if !is_spare {
        return Answer::Failed(format!("bucket {} is no spare", shared.number));
    }
    match state.bucket.begin(range, split.version) {
        Ok(()) => {
            state.phase = Phase::Taking { split, connection };
            Answer::Done(0)
        }
        Err(error) => Answer::Failed(error.to_string()),
    }
}

/// Takes some records. If one has no room or is not of the range, nothing is taken.
pub fn records(shared: &Shared, connection: u64, records: &Records) -> Answer {
    let mut state = shared.state();
    if !is_taking(&state, connection) {
        return Answer::NotTaken;
    }
    let taken = records.iter().try_for_each(|(key, value)| {
        if !state.bucket.range().is_some_and(|range| range.contains(key)) {
            return Err("a record is not of the range that was offered".to_owned());
        }
        state.bucket.put(key, value).map_err(|error| error.to_string())
    });
    match taken {
        Ok(()) => Answer::Done(records.len() as u32),
        Err(reason) => {
            forget(&mut state);
            drop(state);
            shared.changed.notify_all();
            Answer::Failed(reason)
        }
    }
}

/// From here on, the range is this server's.
pub fn commit(shared: &Shared, connection: u64, split: SplitId) -> Answer {
    let mut state = shared.state();
    if state.phase != (Phase::Taking { split, connection }) {
        return Answer::NotTaken;
    }
    state.phase = Phase::Idle;
    state.took = Some(split);
    state.news.range = true;
    drop(state);
    shared.changed.notify_all();
    Answer::Taken
}

/// Whether a range was taken. If its commit has not come yet, it comes too late.
pub fn ask(shared: &Shared, asked: SplitId) -> Answer {
    let mut state = shared.state();
    if state.took == Some(asked) {
        return Answer::Taken;
    }
    if matches!(state.phase, Phase::Taking { split, .. } if split == asked) {
        forget(&mut state);
        drop(state);
        shared.changed.notify_all();
    }
    Answer::NotTaken
}

/// Whether a range is being taken over a connection.
pub fn is_taking(state: &State, connection: u64) -> bool {
    matches!(state.phase, Phase::Taking { connection: taking, .. } if taking == connection)
}

/// Forgets a range if it is still being taken over a connection.
pub fn undo(shared: &Shared, connection: u64) {
    let mut state = shared.state();
    if is_taking(&state, connection) {
        forget(&mut state);
        drop(state);
        shared.changed.notify_all();
    }
}

/// The pages of an empty bucket are zeros: with what is left over it would be none.
fn forget(state: &mut State) {
    state.fault = state.bucket.clear().err().map(|error| format!("cannot free memory: {error}"));
    state.phase = Phase::Idle;
}
