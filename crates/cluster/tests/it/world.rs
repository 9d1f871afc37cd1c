//! All that a schedule consists of, and the loop that lets one thing happen after another.

use std::collections::BTreeMap;
use std::rc::Rc;

use strongroom_base::SnapshotId;
use strongroom_cluster::{Acknowledgement, ClientEffect, Command, NodeEffect};

use crate::agents::Host;
use crate::clients::Seat;
use crate::dice::Dice;
use crate::judge::{Cut, Image};
use crate::network::Keys;
use crate::programs::Program;

/// How bad a schedule is: times of a thousand, and milliseconds.
#[derive(Debug, Clone)]
pub struct Weather {
    pub loss: u32,
    pub doubling: u32,
    pub late: u32,
    pub replays: u32,
    pub effect_fails: u32,
    pub deaths: u32,
    pub splits: u32,
    pub doubles: u32,
    pub delay_ms: u64,
}

impl Weather {
    pub fn new(dice: &mut Dice) -> Self {
        let mut some = |permille: u64| match dice.between(0, 2) {
            0 => 0,
            _ => u32::try_from(dice.between(0, permille)).unwrap(),
        };
        Self {
            loss: some(250),
            doubling: some(200),
            late: some(100),
            replays: some(300),
            effect_fails: some(60),
            deaths: some(500),
            splits: some(150),
            doubles: some(200),
            delay_ms: u64::from(some(40)) + 1,
        }
    }

    pub fn calm() -> Self {
        Self {
            loss: 0,
            doubling: 0,
            late: 0,
            replays: 0,
            effect_fails: 0,
            deaths: 0,
            splits: 10,
            doubles: 0,
            delay_ms: 2,
        }
    }
}

/// A datagram on its way: as it is, or as bytes in schedules that seal.
#[derive(Debug, Clone)]
pub enum Datagram {
    Command { seat: usize, command: Rc<Command> },
    Answer(Rc<Acknowledgement>),
    Sealed { seat: usize, bytes: Rc<Vec<u8>> },
}

#[derive(Debug, Clone)]
pub enum Event {
    ToNode { host: usize, datagram: Datagram },
    ToClient { seat: usize, datagram: Datagram },
    NodeWork { host: usize, life: u64, token: u64, effect: NodeEffect },
    NodeTick { host: usize, life: u64 },
    ClientWork { seat: usize, life: u64, effect: ClientEffect },
    ClientTick { seat: usize, life: u64 },
    Restart { host: usize },
    Launch { seat: usize },
    Programs,
    Chaos,
}

pub struct World {
    pub dice: Dice,
    pub now_ms: u64,
    /// Rises with every event: what is earlier has a lower one.
    pub stamp: u64,
    events: BTreeMap<(u64, u64), Box<Event>>,
    events_pushed: u64,
    pub weather: Weather,
    pub is_calm: bool,
    pub hosts: Vec<Host>,
    pub seats: Vec<Seat>,
    pub programs: BTreeMap<u32, Program>,
    pub next_bucket: u32,
    pub versions: u64,
    pub images: BTreeMap<SnapshotId, Image>,
    pub cuts: Vec<Cut>,
    /// The sum of all that programs hold, from a stamp on.
    pub totals: Vec<(u64, i64)>,
    /// What was sent, for replays.
    pub sent: Vec<Event>,
    pub keys: Option<Rc<Keys>>,
    /// Buckets that were freed, loaded, and recovered by the hook.
    pub evictions: u64,
    pub loads: u64,
    pub recoveries: u64,
    /// Clients that were cancelled before they had done anything that stays.
    pub cancellations: u64,
    /// Programs that claimed what others had.
    pub doubles: u64,
    pub fault: Option<String>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let weather = Weather::new(&mut dice);
        let hosts = dice.between(1, 5) as usize;
        let keys = seed.is_multiple_of(200).then(|| Rc::new(Keys::new(seed, hosts)));
        let mut world = Self {
            now_ms: 0,
            stamp: 0,
            events: BTreeMap::new(),
            events_pushed: 0,
            weather,
            is_calm: false,
            hosts: (0..hosts).map(|index| Host::new(index, &mut dice)).collect(),
            seats: (0..2).map(|_| Seat::default()).collect(),
            programs: BTreeMap::new(),
            next_bucket: 1,
            versions: 0,
            images: BTreeMap::new(),
            cuts: Vec::new(),
            totals: vec![(0, 0)],
            sent: Vec::new(),
            keys,
            evictions: 0,
            loads: 0,
            recoveries: 0,
            cancellations: 0,
            doubles: 0,
            fault: None,
            dice,
        };
        world.found();
        for host in 0..hosts {
            world.restart(host);
        }
        let second = world.dice.between(100, 6_000);
        world.push(0, Event::Launch { seat: 0 });
        world.push(second, Event::Launch { seat: 1 });
        world.push(5, Event::Programs);
        world.push(100, Event::Chaos);
        world
    }

    pub fn push(&mut self, wait_ms: u64, event: Event) {
        self.events_pushed += 1;
        self.events.insert((self.now_ms + wait_ms, self.events_pushed), Box::new(event));
    }

    /// Writes of a host that did not end, oldest first.
    pub fn unwritten(&self, host: usize, life: u64) -> Vec<NodeEffect> {
        let writes = self.events.values().filter_map(|event| match &**event {
            Event::NodeWork { host: of, life: in_life, effect, .. }
                if *of == host && *in_life == life =>
            {
                matches!(effect, NodeEffect::Persist { .. }).then(|| effect.clone())
            }
            _ => None,
        });
        writes.collect()
    }

    /// Lets things happen until a time, or until something went wrong.
    pub fn run_until(&mut self, end_ms: u64) {
        while self.fault.is_none() {
            let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= end_ms)
            else {
                self.now_ms = end_ms;
                return;
            };
            self.now_ms = entry.key().0;
            let event = *entry.remove();
            self.stamp += 1;
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ToNode { host, datagram } => self.reach_node(host, &datagram),
            Event::ToClient { seat, datagram } => self.reach_client(seat, &datagram),
            Event::NodeWork { host, life, token, effect } => {
                if self.hosts[host].life == life {
                    self.work_of_node(host, token, effect);
                }
            }
            Event::NodeTick { host, life } => {
                if self.hosts[host].is_woken(life, self.now_ms) {
                    let now_ms = self.now_ms;
                    self.node(host, |node| node.tick(now_ms));
                }
            }
            Event::ClientWork { seat, life, effect } => self.work_of_client(seat, life, effect),
            Event::ClientTick { seat, life } => {
                if self.seats[seat].is_woken(life, self.now_ms) {
                    let now_ms = self.now_ms;
                    self.client(seat, |client| client.tick(now_ms));
                }
            }
            Event::Restart { host } => self.restart(host),
            Event::Launch { seat } => self.launch(seat),
            Event::Programs => {
                self.programs_run();
                let wait_ms = if self.is_calm { 50 } else { self.dice.between(3, 30) };
                self.push(wait_ms, Event::Programs);
            }
            Event::Chaos => {
                self.strike();
                let wait_ms = self.dice.between(20, 200);
                self.push(wait_ms, Event::Chaos);
            }
        }
    }

    /// Something that the weather brings.
    fn strike(&mut self) {
        if self.dice.permille(self.weather.replays) {
            self.replay();
        }
        if self.dice.permille(self.weather.doubles) {
            self.double();
        }
        if !self.dice.permille(self.weather.deaths) {
            return;
        }
        match self.dice.between(0, 9) {
            0..=2 => self.kill_agent(),
            3 => self.kill_machine(),
            4 => self.kill_program(),
            5..=6 => self.break_a_stop(),
            7..=8 => self.kill_client(),
            _ => {
                let seat = self.dice.below(self.seats.len());
                self.cancel_client(seat);
            }
        }
    }

    pub fn blame(&mut self, fault: String) {
        self.fault.get_or_insert(format!("at {} ms: {fault}", self.now_ms));
    }
}
