//! What the client of a cluster does in one run: a machine without I/O. [`Client`] takes
//! acknowledgements, results of effects and the time, and gives back [`ClientEffect`]s, which the
//! caller carries out in their order. It ends with [`ClientEffect::Finish`].
//!
//! ```text
//! Status ▶ own epoch on disk ▶ PREPARE… ▶ union of ready is whole ▶ CUT… ▶ all captured ▶ all stored
//!    ▲                            │                                  │
//!    └──── ABORT, wait, next ◀────┴── a bucket failed or refused ◀───┘     ▶ Commit ▶ EVICT, next epoch
//! ```
//!
//! # Invariants
//!
//! - CUT is sent only when the ranges that are ready in this epoch cover all keys exactly once, and
//!   each node of the cluster has answered for all of its buckets: so no order of answers hides a second
//!   claim. A bucket that claims keys later ends the round.
//! - An empty bucket claims nothing, unless the run takes all.
//! - A cut is committed only if each bucket of that union was stored in this epoch, with the range
//!   that it was ready with.
//! - EVICT is sent only for a cut that is committed, and lists the parts of that cut.
//! - An acknowledgement counts only if it is of this run and, once there is one, of this epoch.
//! - A range is recovered at most once in a run.

mod cancelling;
mod effects;
mod listed;
mod periods;
mod roll;
mod storing;

use std::collections::{BTreeMap, BTreeSet};

use strongroom_bucket::KeyRange;

use crate::chance::Chance;
use crate::message::{
    Acknowledgement, BucketNumber, Command, Content, Cut, Epoch, FileName, NodeId, NodeTag, State,
    Verb,
};
use crate::union::{Claim, Holder, Union};
pub use effects::{
    ClientEffect, ClientInput, ClientOptions, ClusterError, Eviction, Outcome, Problem, StoredPart,
    Task,
};
use roll::Roll;

/// The first pause between two commands, and the longest.
const BACKOFF_MS: (u32, u32) = (50, 2_000);
/// How far the epoch of a node may be ahead of all that is known. One node that claims more, by a
/// mistake or on purpose, would use up the epochs of all.
const EPOCH_LEAP_MAX: u64 = 1 << 32;

/// One run of a client.
#[derive(Debug)]
pub struct Client {
    file: FileName,
    task: Task,
    options: ClientOptions,
    chance: Chance,
    now_ms: u64,
    phase: Phase,
    epoch: Epoch,
    highest: Epoch,
    /// What was answered to `Status`, by node and bucket.
    known: BTreeMap<(NodeId, Option<BucketNumber>), Acknowledgement>,
    /// Which nodes have answered, and for all of their buckets: to `Status`, or in this epoch.
    roll: Roll,
    /// Nodes that need not answer: they are lost.
    excused: BTreeSet<NodeId>,
    /// The best answers of this epoch.
    answers: BTreeMap<Holder, Acknowledgement>,
    /// What buckets claimed in this period, in any round of it.
    heard: BTreeMap<Holder, Claim>,
    /// Why buckets or nodes did not do what was asked, last.
    problems: BTreeMap<(NodeId, Option<BucketNumber>), Problem>,
    recovered: BTreeSet<KeyRange>,
    periods_left: u32,
    /// The deadline; `u64::MAX` until the first round of the period begins.
    period_end_ms: u64,
    /// When the present round began.
    begun_at_ms: u64,
    send_at_ms: u64,
    backoff_ms: u32,
    rest_ms: u32,
    /// After the rest, nodes are asked what they have.
    asks_again: bool,
    /// How many times PREPARE was sent while claims contradicted each other.
    doubtful_sends: u32,
    committed: Option<(Cut, Vec<StoredPart>)>,
    effects: Vec<ClientEffect>,
}

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nodes say what they have, until then.
    Asking {
        until_ms: u64,
    },
    /// The epoch is on its way to the disk.
    Keeping,
    Preparing,
    Cutting,
    Storing,
    Committing,
    Evicting,
    Loading,
    /// A round was given up; the next one begins then.
    Resting {
        until_ms: u64,
    },
    /// The run is cancelled; ABORT is sent this many times more.
    Cancelling {
        sends_left: u32,
    },
    Finished,
}

impl Client {
    /// Begins a run. The first [`Client::tick`] sends the first command.
    pub fn new(file: FileName, task: Task, options: ClientOptions, now_ms: u64) -> Self {
        Self {
            file,
            task,
            chance: Chance::new(options.seed),
            now_ms,
            phase: Phase::Asking { until_ms: now_ms + u64::from(options.ask_ms) },
            epoch: Epoch::default(),
            highest: options.known_epoch,
            known: BTreeMap::new(),
            roll: Roll::default(),
            excused: options.without.iter().copied().collect(),
            answers: BTreeMap::new(),
            heard: BTreeMap::new(),
            problems: BTreeMap::new(),
            recovered: BTreeSet::new(),
            periods_left: options.periods.max(1),
            period_end_ms: u64::MAX,
            begun_at_ms: now_ms,
            send_at_ms: now_ms,
            backoff_ms: BACKOFF_MS.0,
            rest_ms: BACKOFF_MS.0,
            asks_again: false,
            doubtful_sends: 0,
            committed: None,
            effects: Vec::new(),
            options,
        }
    }

    /// Takes an acknowledgement that was opened with its node's key.
    pub fn receive(&mut self, now_ms: u64, answer: &Acknowledgement) -> Vec<ClientEffect> {
        self.go_to(now_ms);
        if answer.run == self.options.run && self.phase != Phase::Finished {
            self.take(answer);
        }
        std::mem::take(&mut self.effects)
    }

    /// Takes the result of an effect.
    pub fn input(&mut self, now_ms: u64, input: ClientInput) -> Vec<ClientEffect> {
        self.go_to(now_ms);
        match (input, self.phase) {
            (ClientInput::EpochKept(epoch), Phase::Keeping) if epoch == self.epoch => self.begin(),
            (ClientInput::EpochNotKept { reason }, Phase::Keeping) => {
                self.give_up(ClusterError::EpochNotKept { file: self.file.clone(), reason });
            }
            (ClientInput::Committed(snapshot), Phase::Committing) => self.committed(snapshot),
            (ClientInput::NotCommitted { reason }, Phase::Committing) => {
                let (file, epoch) = (self.file.clone(), self.epoch);
                self.give_up(ClusterError::NotCommitted { file, epoch, reason });
            }
            (ClientInput::Moved { bucket, node }, _) => self.moved(bucket, node),
            (ClientInput::Recovered, _) => {
                let silent = self.silent();
                self.excused.extend(silent);
            }
            _ => {}
        }
        std::mem::take(&mut self.effects)
    }

    /// Takes the time: repeats commands, and looks at deadlines.
    pub fn tick(&mut self, now_ms: u64) -> Vec<ClientEffect> {
        self.go_to(now_ms);
        std::mem::take(&mut self.effects)
    }

    /// When [`Client::tick`] has something to do; `None` while it waits for a result, or if the run
    /// is over.
    pub fn wake_at_ms(&self) -> Option<u64> {
        match self.phase {
            Phase::Keeping | Phase::Committing | Phase::Finished => None,
            Phase::Asking { until_ms } => Some(until_ms.min(self.send_at_ms)),
            Phase::Resting { until_ms } => Some(until_ms.min(self.period_end_ms)),
            Phase::Cancelling { .. } => Some(self.send_at_ms),
            _ => Some(self.period_end_ms.min(self.send_at_ms)),
        }
    }

    fn go_to(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        let is_over = self.now_ms >= self.period_end_ms;
        match self.phase {
            Phase::Asking { until_ms } if self.now_ms >= until_ms => self.asked(),
            Phase::Preparing | Phase::Cutting | Phase::Loading | Phase::Resting { .. }
                if is_over && self.is_before_eviction() =>
            {
                self.end_period();
            }
            Phase::Storing if is_over => self.not_stored(),
            Phase::Evicting | Phase::Resting { .. } if is_over => {
                self.end_eviction("it has not answered");
            }
            Phase::Resting { until_ms } if self.now_ms >= until_ms => {
                if std::mem::take(&mut self.asks_again) { self.ask() } else { self.take_epoch() }
            }
            _ => {}
        }
        self.repeat();
    }

    /// Sends the command of the phase, if it is time.
    fn repeat(&mut self) {
        if self.now_ms < self.send_at_ms {
            return;
        }
        match self.phase {
            Phase::Asking { .. } => {
                let answered = self.roll.answered(|_| true);
                self.send(Verb::Status, self.options.deadline_ms, answered);
            }
            Phase::Preparing => self.send_prepare(),
            Phase::Cutting => self.send_cut(State::Captured),
            Phase::Storing => self.send_cut(State::Stored),
            Phase::Evicting | Phase::Loading => self.send_parts(),
            Phase::Cancelling { sends_left: 0 } => return self.end_cancelled(),
            Phase::Cancelling { sends_left } => self.send_abort(sends_left),
            _ => return,
        }
        let spread = self.chance.up_to(self.backoff_ms / 2);
        self.send_at_ms = self.now_ms + u64::from(self.backoff_ms) + spread;
        self.backoff_ms = (self.backoff_ms * 2).min(BACKOFF_MS.1);
    }

    fn send(&mut self, verb: Verb, deadline_ms: u32, answered: Vec<NodeTag>) {
        let epoch = if verb == Verb::Status { Epoch::default() } else { self.epoch };
        let (file, run) = (self.file.clone(), self.options.run);
        self.effects.push(ClientEffect::Send(Command {
            file,
            run,
            epoch,
            verb,
            deadline_ms,
            answered,
        }));
    }

    /// A command of a new kind is sent at once.
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.send_at_ms = self.now_ms;
        self.backoff_ms = BACKOFF_MS.0;
        self.repeat();
    }

    fn take(&mut self, answer: &Acknowledgement) {
        if answer.highest.0 > self.highest.0.saturating_add(EPOCH_LEAP_MAX) {
            let reason = format!("it claims epoch {}, which is out of reach", answer.highest);
            return self.note(answer, reason);
        }
        self.highest = self.highest.max(answer.highest);
        if let Phase::Asking { .. } = self.phase {
            // It is back.
            self.excused.remove(&answer.node);
            self.known.insert((answer.node, answer.bucket), answer.clone());
            self.roll.note(answer, true);
            self.problems.remove(&(answer.node, None));
            // No program is stopped meanwhile, so it takes its time if a node has not answered.
            let is_waiting = self.period_end_ms != u64::MAX;
            let is_enough = is_waiting || Union::of(&self.present(|_| true)).is_whole();
            if self.task != Task::Status && is_enough && self.silent().is_empty() {
                self.asked();
            }
            return;
        }
        if answer.epoch != self.epoch {
            return;
        }
        self.excused.remove(&answer.node);
        self.heard.extend(self.claim_of(answer).map(|claim| (claim.holder, claim)));
        match self.phase {
            Phase::Preparing => self.take_ready(answer),
            Phase::Cutting | Phase::Storing => self.take_stored(answer),
            Phase::Evicting | Phase::Loading => self.take_listed(answer),
            // What was freed before ABORT came is reported.
            Phase::Cancelling { .. } if !self.is_before_eviction() => {
                self.note_listed(answer);
            }
            _ => {}
        }
    }

    /// What buckets in memory claimed when they were asked for their status.
    fn present(&self, is_wanted: impl Fn(BucketNumber) -> bool) -> Vec<Claim> {
        let known = self.known.values();
        let wanted = known.filter(|answer| answer.bucket.is_some_and(&is_wanted));
        wanted.filter_map(|answer| self.claim_of(answer)).collect()
    }

    /// Nodes had their time to say what they have.
    fn asked(&mut self) {
        if self.task == Task::Status {
            let union = Union::of(&self.present(|_| true));
            let answers = std::mem::take(&mut self.known).into_values().collect();
            return self.finish(Outcome::Status { answers, union });
        }
        if matches!(self.task, Task::Store { .. }) && !self.silent().is_empty() {
            return self.await_silent();
        }
        self.period_end_ms = u64::MAX;
        self.take_epoch();
    }

    fn claims(&self, is_wanted: impl Fn(&Acknowledgement) -> bool) -> Vec<Claim> {
        let wanted = self.answers.values().filter(|answer| is_wanted(answer));
        wanted.filter_map(|answer| self.claim_of(answer)).collect()
    }

    /// The claim of a bucket. One that is empty has nothing of what belongs to its keys, one that was
    /// evicted nothing at all.
    fn claim_of(&self, answer: &Acknowledgement) -> Option<Claim> {
        let description = &answer.description;
        let is_full = (description.content != Content::Empty || self.options.takes_empty)
            && answer.state != State::Evicted;
        let range = description.range.clone().filter(|_| is_full)?;
        let split_version = description.split_version;
        Some(Claim { holder: holder_of(answer)?, range, split_version })
    }

    fn note(&mut self, answer: &Acknowledgement, reason: String) {
        let (node, bucket, state) = (answer.node, answer.bucket, answer.state);
        self.problems.insert((node, bucket), Problem { node, bucket, state, reason });
    }

    /// Nodes of the cluster that have not answered for all of their buckets. Of what they have, nothing
    /// is known.
    fn silent(&self) -> Vec<NodeId> {
        let nodes = self.options.nodes.iter().filter(|node| !self.excused.contains(node));
        nodes.filter(|node| !self.roll.is_complete(**node)).copied().collect()
    }

    /// Ends the run without a cut. Programs that are stopped go on.
    fn give_up(&mut self, error: ClusterError) {
        if self.epoch > Epoch::default() {
            self.send(Verb::Abort, 0, Vec::new());
        }
        self.finish(Outcome::Failed(error));
    }

    fn finish(&mut self, outcome: Outcome) {
        self.phase = Phase::Finished;
        self.effects.push(ClientEffect::Finish(outcome));
    }
}

fn is_captured(answer: &Acknowledgement) -> bool {
    matches!(answer.state, State::Captured | State::Stored)
}

fn holder_of(answer: &Acknowledgement) -> Option<Holder> {
    answer.bucket.map(|bucket| Holder { bucket, node: answer.node })
}

#[cfg(test)]
mod tests;
