//! Hosts with an agent that carries out what the protocol asks for, and with faults of their own.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use strongroom_base::SnapshotId;
use strongroom_cluster::{
    BucketNumber, Description, Epoch, FileName, Node, NodeEffect, NodeId, NodeInput, NodeOptions,
    Record,
};

use crate::dice::Dice;
use crate::judge::Image;
use crate::world::{Event, World};

pub const FILE: &str = "ledger";

/// A machine.
pub struct Host {
    pub id: NodeId,
    pub options: NodeOptions,
    pub node: Option<Node>,
    /// Rises when the agent dies: its work is void.
    pub life: u64,
    pub disk: Record,
    written_at_ms: u64,
    /// When it is woken next; in the past if it is not.
    tick_at_ms: u64,
    /// The highest epoch in which it asked for something.
    pub acted: Epoch,
    pub captures: BTreeMap<(u32, Epoch), Image>,
}

impl Host {
    pub fn new(index: usize, dice: &mut Dice) -> Self {
        let id = NodeId([u8::try_from(index).unwrap() + 1; 16]);
        Self {
            id,
            options: NodeOptions {
                node: id,
                seed: dice.number(),
                answer_spread_ms: u32::try_from(dice.between(0, 20)).unwrap(),
                deadline_ms_max: u32::try_from(dice.between(150, 900)).unwrap(),
            },
            node: None,
            life: 0,
            disk: Record::default(),
            written_at_ms: 0,
            tick_at_ms: 0,
            acted: Epoch::default(),
            captures: BTreeMap::new(),
        }
    }
}

impl Host {
    /// Whether a tick is the one that it waits for.
    pub fn is_woken(&self, life: u64, now_ms: u64) -> bool {
        self.life == life && self.tick_at_ms == now_ms
    }
}

impl World {
    /// Lets a node do something, and begins what it asks for.
    pub fn node(&mut self, host: usize, act: impl FnOnce(&mut Node) -> Vec<NodeEffect>) {
        let Some(node) = &mut self.hosts[host].node else { return };
        let effects = act(node);
        for effect in effects {
            self.ask_host(host, effect);
        }
        let life = self.hosts[host].life;
        let wake_at_ms = self.hosts[host].node.as_ref().and_then(Node::wake_at_ms);
        if let Some(wake_at_ms) = wake_at_ms {
            let at_ms = wake_at_ms.max(self.now_ms + 1);
            let pending = &mut self.hosts[host].tick_at_ms;
            if *pending <= self.now_ms || at_ms < *pending {
                *pending = at_ms;
                self.push(at_ms - self.now_ms, Event::NodeTick { host, life });
            }
        }
    }

    pub fn report(&mut self, host: usize, input: NodeInput) {
        let now_ms = self.now_ms;
        self.node(host, |node| node.input(now_ms, input));
    }

    fn ask_host(&mut self, host: usize, effect: NodeEffect) {
        self.judge_order(host, &effect);
        let life = self.hosts[host].life;
        let slow = |dice: &mut Dice, most: u64| dice.between(0, most);
        let (bucket, wait_ms) = match &effect {
            NodeEffect::Acknowledge { to, acknowledgement } => {
                return self.send_answer(host, *to, acknowledgement);
            }
            NodeEffect::Resume { bucket } => {
                if let Some(program) = self.programs.get_mut(&bucket.0) {
                    program.go_on();
                }
                return;
            }
            NodeEffect::Drop { bucket, epoch } => {
                self.hosts[host].captures.remove(&(bucket.0, *epoch));
                return;
            }
            NodeEffect::Persist { .. } => {
                let at_ms = self.now_ms + slow(&mut self.dice, 15);
                let at_ms = at_ms.max(self.hosts[host].written_at_ms);
                self.hosts[host].written_at_ms = at_ms;
                (None, at_ms - self.now_ms)
            }
            NodeEffect::Quiesce { bucket, .. } => (Some(*bucket), slow(&mut self.dice, 40)),
            NodeEffect::Capture { bucket, .. } | NodeEffect::Compare { bucket, .. } => {
                (Some(*bucket), slow(&mut self.dice, 60))
            }
            NodeEffect::Store { bucket, .. } => (Some(*bucket), slow(&mut self.dice, 200)),
            NodeEffect::Free { bucket, .. } => (Some(*bucket), slow(&mut self.dice, 3)),
            NodeEffect::Load { bucket, .. } => (Some(*bucket), slow(&mut self.dice, 60)),
        };
        let program = bucket.and_then(|bucket| self.programs.get(&bucket.0));
        let token = program.map_or(0, |program| program.token);
        self.push(wait_ms, Event::NodeWork { host, life, token, effect });
    }

    /// What an effect does when its time has come.
    pub fn work_of_node(&mut self, host: usize, token: u64, effect: NodeEffect) {
        let fails = self.dice.permille(self.weather.effect_fails);
        let result = match effect {
            NodeEffect::Persist { number, .. } if fails => {
                Some(NodeInput::NotPersisted { number, reason: "the disk is full".to_owned() })
            }
            NodeEffect::Persist { number, record } => {
                self.hosts[host].disk = record;
                Some(NodeInput::Persisted { number })
            }
            NodeEffect::Quiesce { bucket, epoch } => {
                self.on_program(token, bucket, epoch, fails, |world| world.stop(bucket, epoch))
            }
            NodeEffect::Capture { bucket, epoch } => {
                self.on_program(token, bucket, epoch, fails, |world| {
                    world.copy(host, bucket, epoch)
                })
            }
            NodeEffect::Compare { bucket, epoch, snapshot } => {
                self.on_program(token, bucket, epoch, fails, |world| {
                    let image = &world.images[&snapshot];
                    let is_equal = image.equals(&world.programs[&bucket.0]);
                    NodeInput::Compared { bucket, epoch, is_equal }
                })
            }
            NodeEffect::Free { bucket, epoch } if self.went_on(bucket, token) => {
                let reason = "its program went on before it was freed".to_owned();
                Some(NodeInput::Failed { bucket, epoch, reason })
            }
            NodeEffect::Free { bucket, epoch } => {
                self.on_program(token, bucket, epoch, fails, |world| {
                    world.judge_eviction(bucket.0);
                    world.evictions += 1;
                    world.remove_program(bucket.0);
                    NodeInput::Freed { bucket, epoch }
                })
            }
            NodeEffect::Store { bucket, epoch } => self.store(host, bucket, epoch, fails),
            NodeEffect::Load { bucket, epoch, snapshot, .. } => {
                Some(self.load(host, bucket, epoch, snapshot, fails))
            }
            NodeEffect::Resume { .. }
            | NodeEffect::Drop { .. }
            | NodeEffect::Acknowledge { .. } => None,
        };
        if let Some(result) = result {
            self.report(host, result);
        }
    }

    /// Work on a program that is there, and did not go on since the work began.
    fn on_program(
        &mut self,
        token: u64,
        bucket: BucketNumber,
        epoch: Epoch,
        fails: bool,
        work: impl FnOnce(&mut Self) -> NodeInput,
    ) -> Option<NodeInput> {
        let failed = |reason: &str| NodeInput::Failed { bucket, epoch, reason: reason.to_owned() };
        let Some(program) = self.programs.get(&bucket.0) else {
            return Some(failed("its program is gone"));
        };
        if program.token != token {
            return None;
        }
        Some(if fails { failed("the effect failed") } else { work(self) })
    }

    fn went_on(&self, bucket: BucketNumber, token: u64) -> bool {
        self.programs.get(&bucket.0).is_some_and(|program| program.token != token)
    }

    fn stop(&mut self, bucket: BucketNumber, epoch: Epoch) -> NodeInput {
        let stamp = self.stamp;
        let program = self.programs.get_mut(&bucket.0).unwrap();
        let (since, _) = program.stop.unwrap_or((stamp, epoch));
        program.stop = Some((since, epoch));
        NodeInput::Quiesced { bucket, epoch, description: program.describe() }
    }

    fn copy(&mut self, host: usize, bucket: BucketNumber, epoch: Epoch) -> NodeInput {
        let program = &self.programs[&bucket.0];
        let description: Description = program.describe();
        let image = Image::of(program, self.stamp);
        self.hosts[host].captures.insert((bucket.0, epoch), image);
        NodeInput::Captured { bucket, epoch, description }
    }

    fn store(
        &mut self,
        host: usize,
        bucket: BucketNumber,
        epoch: Epoch,
        fails: bool,
    ) -> Option<NodeInput> {
        let image = self.hosts[host].captures.remove(&(bucket.0, epoch))?;
        if fails {
            let reason = "the repository is full".to_owned();
            return Some(NodeInput::Failed { bucket, epoch, reason });
        }
        let mut id = [0; 16];
        id[..8].copy_from_slice(&(self.images.len() as u64 + 1).to_le_bytes());
        self.images.insert(SnapshotId(id), image);
        Some(NodeInput::Stored { bucket, epoch, snapshot: SnapshotId(id) })
    }

    fn load(
        &mut self,
        host: usize,
        bucket: BucketNumber,
        epoch: Epoch,
        snapshot: SnapshotId,
        fails: bool,
    ) -> NodeInput {
        let image = self.images[&snapshot].clone();
        let is_taken = self.programs.iter().any(|(number, program)| {
            *number == bucket.0 || program.low < image.high && image.low < program.high
        });
        if is_taken || fails {
            let reason = "another program has its keys, or reading failed".to_owned();
            return NodeInput::Failed { bucket, epoch, reason };
        }
        self.judge_load(bucket.0, snapshot);
        self.loads += 1;
        let program = image.to_program(host, self.stamp);
        let description = program.describe();
        self.change_total(program.sum());
        self.programs.insert(bucket.0, program);
        NodeInput::Loaded { bucket, epoch, description }
    }

    fn any_host(&mut self) -> usize {
        self.dice.below(self.hosts.len())
    }

    /// An agent dies. Programs notice, and go on. Of its writes, the disk has some first ones.
    pub fn kill_agent(&mut self) {
        let host = self.any_host();
        if self.hosts[host].node.take().is_none() {
            return;
        }
        for effect in self.unwritten(host, self.hosts[host].life) {
            let NodeEffect::Persist { record, .. } = effect else { break };
            if self.dice.permille(500) {
                break;
            }
            self.hosts[host].disk = record;
        }
        self.hosts[host].life += 1;
        self.hosts[host].captures.clear();
        self.hosts[host].written_at_ms = 0;
        self.hosts[host].tick_at_ms = 0;
        for program in self.programs.values_mut().filter(|program| program.host == host) {
            program.go_on();
        }
        self.restart_later(host);
    }

    /// A machine dies: its agent, and the memory of its programs.
    pub fn kill_machine(&mut self) {
        let host = self.any_host();
        if self.hosts[host].node.is_none() {
            return;
        }
        let programs = self.programs.iter().filter(|(_, program)| program.host == host);
        let buckets: Vec<u32> = programs.map(|(bucket, _)| *bucket).collect();
        for bucket in buckets {
            self.remove_program(bucket);
        }
        self.hosts[host].node = None;
        self.hosts[host].life += 1;
        self.hosts[host].captures.clear();
        self.hosts[host].written_at_ms = 0;
        self.hosts[host].tick_at_ms = 0;
        self.restart_later(host);
    }

    /// Half of the time at once, so that the round it died in still goes on.
    fn restart_later(&mut self, host: usize) {
        let most_ms = if self.dice.permille(500) { 30 } else { 1_500 };
        let wait_ms = self.dice.between(1, most_ms);
        self.push(wait_ms, Event::Restart { host });
    }

    /// An agent starts with what its disk has, and its programs attach again.
    pub fn restart(&mut self, host: usize) {
        if self.hosts[host].node.is_some() {
            return;
        }
        let record = Record::unpack(&self.hosts[host].disk.pack()).unwrap();
        let mut options = self.hosts[host].options.clone();
        options.seed = self.dice.number();
        let node = Node::new(FileName::new(FILE).unwrap(), options, record);
        self.judge_restart(host, &node);
        self.hosts[host].node = Some(node);
        let programs = self.programs.iter().filter(|(_, program)| program.host == host);
        let attached: Vec<_> =
            programs.map(|(bucket, program)| (*bucket, program.introduce())).collect();
        for (bucket, description) in attached {
            self.report(host, NodeInput::Attached { bucket: BucketNumber(bucket), description });
        }
    }

    pub fn address(seat: usize) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], 9_000 + u16::try_from(seat).unwrap()))
    }
}
