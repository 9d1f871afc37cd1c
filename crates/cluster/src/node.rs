//! What the agent of a node does for one file: a machine without I/O, over all buckets of the file
//! that are on the node. [`Node`] takes commands, results of effects and the time, and gives back
//! [`NodeEffect`]s, which the agent carries out *in their order*.
//!
//! ```text
//!            PREPARE        quiesced     CUT          captured                stored
//!  Idle ──▶ Preparing ───────▶ Ready ───────▶ (capture) ───▶ Captured ──────────▶ Stored
//!               │                │                │          program goes on    on disk first
//!               └──── deadline, ABORT, or the program dies ──▶ Failed, program goes on
//!
//!            EVICT          quiesced                equal           freed
//!  Stored ──▶ Evicting ───────▶ (compare) ────────────▶ (free) ───────▶ Evicted
//!                                   └─ differs ─▶ Changed, program goes on
//! ```
//!
//! # Invariants
//!
//! - No effect of a round is given before its epoch is on the disk ([`NodeEffect::Persist`]).
//! - An epoch has one round on a node, ever: its commands are refused once a higher epoch is on the
//!   disk, and after a restart.
//! - A bucket is ready at most once in an epoch. If its stop was broken, it stays failed.
//! - So a bucket that was captured was stopped without a break from before CUT was sent.
//! - A bucket that is empty takes no part in a round that stores, unless the round wants all.
//! - Each answer says how many of its kind there are: who has fewer has not heard all of this node.
//!   A bucket that an earlier round is still freeing or loading is one of them: a store waits for it.
//! - Memory is freed only after it was compared with the bucket's own snapshot of the cut, while
//!   the program was stopped without a break.
//!
//! # After a restart
//!
//! The node answers from its [`Record`] and from the programs that attach again. The highest epoch,
//! and which snapshot a bucket was stored as, freed for or loaded from, come from the record. Ranges,
//! versions and sizes come from [`NodeInput::Attached`]. The round that was under way is lost: its
//! commands are refused, and the agent must let all programs go on before it makes a new [`Node`].

mod buckets;
mod effects;
mod inputs;
mod replies;
mod rounds;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use crate::chance::Chance;
use crate::message::{BucketNumber, Command, Epoch, FileName, NodeId, RunId, State, Verb};
use crate::record::{Kept, Record};
use buckets::{Bucket, Step};
pub use effects::{NodeEffect, NodeInput};
use replies::{About, Among, Replies};
use rounds::{Kind, Round};

/// What a node is made with.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Its name.
    pub node: NodeId,
    /// Random: it spreads answers over time.
    pub seed: u64,
    /// An answer waits up to this long, so that not all nodes answer at once.
    pub answer_spread_ms: u32,
    /// Programs are stopped no longer than this, even if a command allows it.
    pub deadline_ms_max: u32,
}

/// The buckets of one file on one node.
#[derive(Debug)]
pub struct Node {
    file: FileName,
    options: NodeOptions,
    chance: Chance,
    now_ms: u64,
    /// What the disk has once all writes have ended.
    record: Record,
    /// The highest epoch that the disk has for certain.
    highest: Epoch,
    /// Records on their way to the disk, oldest first.
    writes: VecDeque<Write>,
    writes_begun: u64,
    buckets: BTreeMap<BucketNumber, Bucket>,
    round: Option<Round>,
    replies: Replies,
    effects: Vec<NodeEffect>,
}

/// A record on its way to the disk.
#[derive(Debug)]
struct Write {
    number: u64,
    epoch: Epoch,
    then: Then,
}

/// What waits for a write.
#[derive(Debug)]
enum Then {
    /// A round.
    Begin(Round),
    /// A bucket that has reached a state in an epoch.
    Reach(BucketNumber, Epoch, State),
    /// What waited is over.
    Nothing,
}

impl Node {
    /// The node after a start of its agent. `record` is what the disk has; no program is stopped.
    pub fn new(file: FileName, options: NodeOptions, record: Record) -> Self {
        let buckets = record.kept.iter().map(|(number, kept)| (*number, Bucket::kept(*kept)));
        Self {
            buckets: buckets.collect(),
            file,
            chance: Chance::new(options.seed),
            options,
            now_ms: 0,
            highest: record.epoch,
            record,
            writes: VecDeque::new(),
            writes_begun: 0,
            round: None,
            replies: Replies::default(),
            effects: Vec::new(),
        }
    }

    /// Takes a command, whose signature was verified. Commands for other files are ignored.
    pub fn receive(&mut self, now_ms: u64, from: SocketAddr, command: &Command) -> Vec<NodeEffect> {
        self.go_to(now_ms);
        if command.file == self.file {
            match &command.verb {
                Verb::Status => self.report(from, command),
                Verb::Prepare => self.start(from, command, Kind::Store { takes_empty: false }),
                Verb::PrepareAll => self.start(from, command, Kind::Store { takes_empty: true }),
                Verb::Evict { cut, .. } => self.start(from, command, Kind::Evict(*cut)),
                Verb::Load { cut, .. } => self.start(from, command, Kind::Load(*cut)),
                Verb::Cut => self.cut(from, command),
                Verb::Abort => self.abort(command),
            }
        }
        std::mem::take(&mut self.effects)
    }

    /// Takes a result, or what a program did. Results of effects that are over are ignored.
    pub fn input(&mut self, now_ms: u64, input: NodeInput) -> Vec<NodeEffect> {
        self.go_to(now_ms);
        self.take(input);
        std::mem::take(&mut self.effects)
    }

    /// Takes the time: sends answers that are due, and lets programs go on at a deadline.
    pub fn tick(&mut self, now_ms: u64) -> Vec<NodeEffect> {
        self.go_to(now_ms);
        std::mem::take(&mut self.effects)
    }

    /// When [`Node::tick`] has something to do.
    pub fn wake_at_ms(&self) -> Option<u64> {
        let is_timed = |bucket: &Bucket| bucket.step.is_timed();
        let round = self.round.as_ref();
        let deadline = round.filter(|_| self.buckets.values().any(is_timed));
        let deadline = deadline.map(|round| round.deadline_at_ms);
        let late = self.buckets.values().filter_map(|bucket| match bucket.step {
            Step::Freeing { by_ms, .. } => Some(by_ms).filter(|by_ms| *by_ms > self.now_ms),
            _ => None,
        });
        deadline.into_iter().chain(late).chain(self.replies.earliest_ms()).min()
    }

    /// The highest epoch that is on the disk.
    pub fn highest(&self) -> Epoch {
        self.highest
    }

    /// Whether the present round is this one, and evicts.
    pub fn is_evicting(&self, epoch: Epoch) -> bool {
        let round = self.round.as_ref();
        round.is_some_and(|round| round.epoch == epoch && matches!(round.kind, Kind::Evict(_)))
    }

    /// Whether a new node knows as much as this one.
    pub fn is_unused(&self) -> bool {
        self.record == Record::default()
            && self.round.is_none()
            && self.writes.is_empty()
            && self.replies.earliest_ms().is_none()
            && !self.buckets.values().any(|bucket| bucket.is_attached)
    }

    /// Each bucket that is here or was freed, its state, and the epoch of that.
    pub fn states(&self) -> impl Iterator<Item = (BucketNumber, State, Epoch)> + '_ {
        let shown = self.buckets.iter().filter(|(_, bucket)| bucket.is_shown());
        shown.map(|(number, bucket)| (*number, bucket.step.state(), bucket.epoch))
    }

    fn go_to(&mut self, now_ms: u64) {
        let before_ms = self.now_ms;
        self.now_ms = self.now_ms.max(now_ms);
        self.expire();
        self.report_late(before_ms);
        for reply in self.replies.take_due(self.now_ms) {
            let acknowledgement = match reply.about {
                About::Bucket(number, among) => self.acknowledgement(reply.run, number, among),
                About::Node { epoch, state, reason } => {
                    Some(self.own_acknowledgement(reply.run, epoch, state, reason))
                }
            };
            let acknowledge =
                |acknowledgement| NodeEffect::Acknowledge { to: reply.to, acknowledgement };
            self.effects.extend(acknowledgement.map(acknowledge));
        }
    }

    /// Begins to write the record; `then` happens when it is on the disk.
    fn persist(&mut self, then: Then) {
        self.writes_begun += 1;
        let (number, record) = (self.writes_begun, self.record.clone());
        self.writes.push_back(Write { number, epoch: record.epoch, then });
        self.effects.push(NodeEffect::Persist { number, record });
    }

    /// Records what a bucket has come to, and reaches the state once that is on the disk.
    fn keep(&mut self, number: BucketNumber, epoch: Epoch, kept: Kept, state: State) {
        self.record.kept.insert(number, kept);
        self.persist(Then::Reach(number, epoch, state));
    }

    /// A bucket takes a step. A client that waits for it hears of it.
    fn step(&mut self, number: BucketNumber, step: Step) {
        let Some(bucket) = self.buckets.get_mut(&number) else { return };
        let is_over = bucket.step.is_busy() && !step.is_busy();
        bucket.step = step;
        let Some(round) = &self.round else { return };
        if bucket.epoch == round.epoch {
            if bucket.step.is_news() {
                let (to, run) = (round.controller, round.run);
                self.reply(to, run, About::Bucket(number, Among::Round));
            }
        } else if is_over {
            self.join_late(number);
        }
    }

    fn reply(&mut self, to: SocketAddr, run: RunId, about: About) {
        let due_ms = self.now_ms + self.chance.up_to(self.options.answer_spread_ms);
        self.replies.schedule(due_ms, to, run, about);
    }
}

#[cfg(test)]
mod tests;
