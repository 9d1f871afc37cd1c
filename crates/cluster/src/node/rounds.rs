//! Rounds on a node: which command begins one, which ones belong to it, and when it is over.

use std::net::SocketAddr;

use super::buckets::{Bucket, Step};
use super::replies::{About, Among};
use super::{Node, NodeEffect, Then};
use crate::message::{BucketNumber, Command, Cut, Epoch, Part, RunId, State, Verb};
use crate::record::Kept;

/// What a round is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Store {
        /// Also buckets that are empty.
        takes_empty: bool,
    },
    Evict(Cut),
    Load(Cut),
}

/// The round that a node takes part in.
#[derive(Debug, Clone)]
pub(super) struct Round {
    pub epoch: Epoch,
    pub run: RunId,
    pub kind: Kind,
    pub deadline_at_ms: u64,
    /// How long a program may take that was asked to free a bucket, before its client hears of it.
    pub wait_ms: u64,
    /// Who hears of news.
    pub controller: SocketAddr,
    /// Buckets that the first command lists.
    parts: Vec<Part>,
    /// No bucket joins any more: CUT or ABORT came, or the deadline passed.
    pub is_closed: bool,
}

impl Round {
    fn has(&self, command: &Command) -> bool {
        self.epoch == command.epoch && self.run == command.run
    }

    /// Whether it stores.
    pub fn is_storing(&self) -> bool {
        matches!(self.kind, Kind::Store { .. })
    }
}

impl Node {
    /// Answers for each bucket that is not listed, or for the node if it has none.
    pub(super) fn report(&mut self, from: SocketAddr, command: &Command) {
        let shown = self.buckets.iter().filter(|(_, bucket)| bucket.is_shown());
        let shown: Vec<BucketNumber> = shown.map(|(number, _)| *number).collect();
        self.answer(from, command, &shown, Among::All);
    }

    /// Answers for these buckets, unless the client has heard of all.
    fn answer(
        &mut self,
        from: SocketAddr,
        command: &Command,
        buckets: &[BucketNumber],
        among: Among,
    ) {
        if command.answered.contains(&self.options.node.tag()) {
            return;
        }
        for number in buckets {
            self.reply(from, command.run, About::Bucket(*number, among));
        }
        if buckets.is_empty() {
            let (epoch, reason) = (command.epoch, String::new());
            self.reply(from, command.run, About::Node { epoch, state: State::Idle, reason });
        }
    }

    fn refuse(&mut self, from: SocketAddr, command: &Command) {
        let reason = format!(
            "epoch {} is over or of another run: {} is the highest here",
            command.epoch, self.highest
        );
        let about = About::Node { epoch: command.epoch, state: State::Refused, reason };
        self.reply(from, command.run, about);
    }

    /// PREPARE, EVICT and LOAD begin a round if their epoch is higher than all before. Repeated,
    /// they are answered.
    pub(super) fn start(&mut self, from: SocketAddr, command: &Command, kind: Kind) {
        let parts = match &command.verb {
            Verb::Evict { parts, .. } | Verb::Load { parts, .. } => parts.clone(),
            _ => Vec::new(),
        };
        let is_present =
            self.round.as_ref().is_some_and(|round| round.has(command) && round.kind == kind);
        if is_present {
            return self.repeat(from, command, &parts);
        }
        let is_coming = self.writes.iter().any(|write| {
            matches!(&write.then, Then::Begin(round) if round.has(command) && round.kind == kind)
        });
        if is_coming {
            return;
        }
        if command.epoch <= self.record.epoch {
            return self.refuse(from, command);
        }
        let wait_ms = u64::from(command.deadline_ms.min(self.options.deadline_ms_max));
        self.record.epoch = command.epoch;
        self.persist(Then::Begin(Round {
            epoch: command.epoch,
            run: command.run,
            kind,
            deadline_at_ms: self.now_ms + wait_ms,
            wait_ms,
            controller: from,
            parts,
            is_closed: false,
        }));
    }

    /// A command of the present round came again, maybe with parts that were not listed before.
    fn repeat(&mut self, from: SocketAddr, command: &Command, parts: &[Part]) {
        self.join(parts);
        let members = self.members();
        match self.round.as_ref().map(|round| round.kind) {
            Some(Kind::Store { .. }) | None => {
                let all = [members, self.held_up()].concat();
                self.answer(from, command, &all, Among::Round);
            }
            Some(Kind::Evict(_) | Kind::Load(_)) => {
                let is_listed = |number: &BucketNumber| {
                    let own = self.options.node;
                    parts.iter().any(|part| part.node == own && part.bucket == *number)
                };
                let listed: Vec<_> = members.into_iter().filter(is_listed).collect();
                if !listed.is_empty() {
                    self.answer(from, command, &listed, Among::Round);
                }
            }
        }
    }

    /// The buckets that take part in the present round.
    pub(super) fn members(&self) -> Vec<BucketNumber> {
        let Some(round) = &self.round else { return Vec::new() };
        let members = self.buckets.iter().filter(|(_, bucket)| bucket.epoch == round.epoch);
        members.map(|(number, _)| *number).collect()
    }

    /// Buckets that a store waits for: what an earlier round has begun with them must end first, and then
    /// they may hold keys.
    pub(super) fn held_up(&self) -> Vec<BucketNumber> {
        let Some(round) = self.round.as_ref().filter(|round| round.is_storing()) else {
            return Vec::new();
        };
        let is_held_up = |bucket: &Bucket| bucket.epoch != round.epoch && bucket.step.is_busy();
        let held_up = self.buckets.iter().filter(|(_, bucket)| is_held_up(bucket));
        held_up.map(|(number, _)| *number).collect()
    }

    /// A bucket with which an earlier round has come to its end joins a store that waits for it.
    pub(super) fn join_late(&mut self, number: BucketNumber) {
        let is_open = |round: &&Round| round.is_storing() && !round.is_closed;
        let Some(round) = self.round.as_ref().filter(is_open) else { return };
        let (to, run, epoch) = (round.controller, round.run, round.epoch);
        let Some(bucket) = self.buckets.get_mut(&number) else { return };
        if bucket.is_attached {
            return self.quiesce(number);
        }
        // It holds nothing, and that is said.
        bucket.enter(epoch);
        self.reply(to, run, About::Bucket(number, Among::Round));
    }

    /// The epoch of a round is on the disk: the round before it is over, and this one begins.
    pub(super) fn begin(&mut self, round: Round) {
        for number in self.members() {
            let bucket = &self.buckets[&number];
            if bucket.step.is_timed() || bucket.step == Step::Storing {
                self.fail(number, format!("epoch {} ended it", round.epoch));
            }
        }
        let (kind, parts) = (round.kind, round.parts.clone());
        let (from, run, epoch) = (round.controller, round.run, round.epoch);
        self.round = Some(round);
        self.forget_gone();
        self.expire();
        if !matches!(kind, Kind::Store { .. }) {
            return self.join(&parts);
        }
        let attached = self.buckets.iter().filter(|(_, bucket)| bucket.is_attached);
        let attached: Vec<BucketNumber> = attached.map(|(number, _)| *number).collect();
        for number in &attached {
            self.quiesce(*number);
        }
        let held_up = self.held_up();
        for number in &held_up {
            self.reply(from, run, About::Bucket(*number, Among::Round));
        }
        if attached.is_empty() && held_up.is_empty() {
            let about = About::Node { epoch, state: State::Idle, reason: String::new() };
            self.reply(from, run, about);
        }
    }

    /// A bucket joins the present round, once in its life.
    pub(super) fn quiesce(&mut self, number: BucketNumber) {
        let Some(round) = &self.round else { return };
        let epoch = round.epoch;
        let Some(bucket) = self.buckets.get_mut(&number) else { return };
        if bucket.epoch == epoch || bucket.step.is_busy() || round.is_closed {
            return;
        }
        bucket.enter(epoch);
        self.step(number, Step::Quiescing);
        self.effects.push(NodeEffect::Quiesce { bucket: number, epoch });
    }

    /// Listed buckets of this node join a round that evicts or loads.
    fn join(&mut self, parts: &[Part]) {
        let own = self.options.node;
        for part in parts.iter().filter(|part| part.node == own) {
            let Some(round) = self.round.as_ref().filter(|round| !round.is_closed) else { return };
            let (epoch, kind) = (round.epoch, round.kind);
            let bucket = self.buckets.entry(part.bucket);
            let bucket = bucket.or_insert_with(|| Bucket::new(Epoch::default()));
            if bucket.epoch == epoch || bucket.step.is_busy() {
                continue;
            }
            match kind {
                Kind::Evict(cut) => self.join_eviction(part, cut),
                Kind::Load(cut) => self.join_loading(part, cut),
                Kind::Store { .. } => {}
            }
        }
    }

    /// Only what this node stored for this very cut is compared, and only that can be freed.
    fn join_eviction(&mut self, part: &Part, cut: Cut) {
        let kept = self.record.kept.get(&part.bucket).copied();
        let mine = Kept::Stored { epoch: cut.epoch, snapshot: part.snapshot };
        let is_attached = self.buckets[&part.bucket].is_attached;
        if kept == Some(mine) && is_attached {
            return self.quiesce(part.bucket);
        }
        self.enter_round(part.bucket);
        let step = if kept == Some(Kept::Evicted(cut)) && !is_attached {
            Step::Rests(State::Evicted)
        } else if is_attached {
            Step::Failed(format!("it is not stored here for the cut of epoch {}", cut.epoch))
        } else {
            Step::Failed("no program here has it".to_owned())
        };
        self.step(part.bucket, step);
    }

    /// Only what is not in memory is loaded.
    fn join_loading(&mut self, part: &Part, cut: Cut) {
        let kept = self.record.kept.get(&part.bucket).copied();
        let bucket = &self.buckets[&part.bucket];
        let is_full = bucket.is_full();
        self.enter_round(part.bucket);
        if is_full {
            let step = match kept {
                Some(Kept::Loaded(from)) if from == cut => Step::Rests(State::Loaded),
                _ => Step::Failed("it is in memory already: evict it first".to_owned()),
            };
            return self.step(part.bucket, step);
        }
        let Some(round) = &self.round else { return };
        let epoch = round.epoch;
        self.step(part.bucket, Step::Loading(cut));
        let (bucket, snapshot) = (part.bucket, part.snapshot);
        self.effects.push(NodeEffect::Load { bucket, epoch, snapshot, cut });
    }

    fn enter_round(&mut self, number: BucketNumber) {
        let Some(round) = &self.round else { return };
        if let Some(bucket) = self.buckets.get_mut(&number) {
            bucket.enter(round.epoch);
        }
    }

    /// CUT: those that are ready are captured. The deadline was looked at before.
    pub(super) fn cut(&mut self, from: SocketAddr, command: &Command) {
        let round = self.round.as_mut().filter(|round| round.has(command) && round.is_storing());
        let Some(round) = round else {
            return self.refuse(from, command);
        };
        round.is_closed = true;
        let members = self.members();
        for number in &members {
            let bucket = &self.buckets[number];
            let (epoch, has_keys) = (bucket.epoch, bucket.stopped.range.is_some());
            match bucket.step {
                Step::Rests(State::Ready) if has_keys => {
                    self.step(*number, Step::Capturing);
                    self.effects.push(NodeEffect::Capture { bucket: *number, epoch });
                }
                Step::Rests(State::Ready) => {
                    self.release(*number);
                    self.step(*number, Step::Rests(State::Idle));
                }
                Step::Quiescing => self.fail(*number, "it was not ready when the cut came"),
                _ => {}
            }
        }
        self.answer(from, command, &members, Among::Round);
    }

    /// ABORT: programs go on, and copies are dropped. What is stored stays: its cut may be committed
    /// without this client's knowledge. It is not answered.
    pub(super) fn abort(&mut self, command: &Command) {
        for write in &mut self.writes {
            if matches!(&write.then, Then::Begin(round) if round.has(command)) {
                write.then = Then::Nothing;
            }
        }
        let Some(round) = self.round.as_mut().filter(|round| round.has(command)) else { return };
        round.is_closed = true;
        for number in self.members() {
            let step = &self.buckets[&number].step;
            if step.is_timed() || *step == Step::Storing {
                self.fail(number, "the client gave the epoch up");
            }
        }
    }

    /// A client does not wait for a program that became late since `before_ms` with freeing its memory.
    pub(super) fn report_late(&mut self, before_ms: u64) {
        let Some(round) = &self.round else { return };
        let (to, run, became) = (round.controller, round.run, before_ms + 1..=self.now_ms);
        if became.is_empty() {
            return;
        }
        for number in self.members() {
            let step = &self.buckets[&number].step;
            if matches!(step, Step::Freeing { by_ms, .. } if became.contains(by_ms)) {
                self.reply(to, run, About::Bucket(number, Among::Round));
            }
        }
    }

    /// At the deadline programs go on; what is copied is stored without haste.
    pub(super) fn expire(&mut self) {
        let now_ms = self.now_ms;
        let Some(round) = self.round.as_mut().filter(|round| now_ms >= round.deadline_at_ms) else {
            return;
        };
        round.is_closed = true;
        for number in self.members() {
            let reason = match self.buckets[&number].step {
                Step::Quiescing => "its program did not hold still before the deadline",
                Step::Comparing(_) => "the deadline passed before it was compared",
                _ => "the deadline passed before it was captured",
            };
            if self.buckets[&number].step.is_timed() {
                self.fail(number, reason);
            }
        }
    }
}
