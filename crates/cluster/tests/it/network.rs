//! A network that loses, doubles, delays, replays, and lets strangers send.

use std::net::SocketAddr;
use std::rc::Rc;

use strongroom_base::SeededEntropy;
use strongroom_base::seal::AuthorityKey;
use strongroom_cluster::{
    Acknowledgement, Command, GroupKey, NodeKey, open_acknowledgement, open_command,
    seal_acknowledgement, seal_command,
};

use crate::world::{Datagram, Event, World};

/// Replays go back at most so far.
const SENT_MAX: usize = 24;

/// The keys of a schedule that seals.
pub struct Keys {
    controller: AuthorityKey,
    group: GroupKey,
    nodes: Vec<NodeKey>,
    entropy: SeededEntropy,
}

impl Keys {
    pub fn new(seed: u64, hosts: usize) -> Self {
        let nodes = (0..hosts).map(|host| NodeKey([u8::try_from(host).unwrap() + 100; 32]));
        Self {
            controller: AuthorityKey::new([7; 32]),
            group: GroupKey([8; 32]),
            nodes: nodes.collect(),
            entropy: SeededEntropy::new(seed),
        }
    }
}

impl World {
    pub fn send_command(&mut self, seat: usize, command: Command) {
        let datagram = match self.keys.clone() {
            None => {
                let packed = command;
                Datagram::Command { seat, command: Rc::new(packed) }
            }
            Some(keys) => {
                let controller = self.maybe_forged(&keys.controller);
                let bytes = seal_command(&command, &controller, &keys.group, &keys.entropy);
                self.sealed(seat, bytes)
            }
        };
        for host in 0..self.hosts.len() {
            self.travel(Event::ToNode { host, datagram: datagram.clone() });
        }
    }

    /// A node that wants to command others has the key of the group, and not the controller's.
    fn maybe_forged(&mut self, controller: &AuthorityKey) -> AuthorityKey {
        if !self.is_calm && self.dice.permille(20) {
            return AuthorityKey::new([99; 32]);
        }
        controller.clone()
    }

    fn sealed(&mut self, seat: usize, mut bytes: Vec<u8>) -> Datagram {
        if !self.is_calm && self.dice.permille(20) {
            let at = self.dice.below(bytes.len());
            bytes[at] ^= 1 << self.dice.below(8);
        }
        Datagram::Sealed { seat, bytes: Rc::new(bytes) }
    }

    pub fn send_answer(&mut self, host: usize, to: SocketAddr, answer: &Acknowledgement) {
        let seat = usize::from(to.port() - 9_000);
        let datagram = match self.keys.clone() {
            None => Datagram::Answer(Rc::new(answer.clone())),
            Some(keys) => {
                let forges = !self.is_calm && self.dice.permille(20);
                let stranger = NodeKey([99; 32]);
                let key = if forges { &stranger } else { &keys.nodes[host] };
                let bytes = seal_acknowledgement(answer, key, &keys.entropy);
                self.sealed(seat, bytes)
            }
        };
        self.travel(Event::ToClient { seat, datagram });
    }

    fn travel(&mut self, event: Event) {
        if self.sent.len() < SENT_MAX {
            self.sent.push(event.clone());
        } else if self.dice.permille(300) {
            let at = self.dice.below(SENT_MAX);
            self.sent[at] = event.clone();
        }
        if self.dice.permille(self.weather.loss) {
            return;
        }
        let copies = if self.dice.permille(self.weather.doubling) { 2 } else { 1 };
        for _ in 0..copies {
            let is_late = self.dice.permille(self.weather.late);
            let most_ms = if is_late { 2_000 } else { self.weather.delay_ms };
            let wait_ms = self.dice.between(0, most_ms);
            self.push(wait_ms, event.clone());
        }
    }

    /// A stranger who records datagrams sends some again, maybe to another node.
    pub fn replay(&mut self) {
        for _ in 0..3 {
            if self.sent.is_empty() {
                return;
            }
            let mut event = self.sent[self.dice.below(self.sent.len())].clone();
            if let Event::ToNode { host, .. } = &mut event {
                *host = self.dice.below(self.hosts.len());
            }
            self.push(0, event);
        }
    }

    pub fn reach_node(&mut self, host: usize, datagram: &Datagram) {
        let opened = match datagram {
            Datagram::Command { seat, command } => Some((*seat, (**command).clone())),
            Datagram::Sealed { seat, bytes } => {
                let keys = self.keys.clone().unwrap();
                let opened = open_command(bytes, &keys.controller.public(), &keys.group);
                opened.ok().map(|command| (*seat, command))
            }
            Datagram::Answer(_) => None,
        };
        let Some((seat, command)) = opened else { return };
        let now_ms = self.now_ms;
        self.node(host, |node| node.receive(now_ms, Self::address(seat), &command));
    }

    pub fn reach_client(&mut self, seat: usize, datagram: &Datagram) {
        let answer = match datagram {
            Datagram::Answer(answer) => (**answer).clone(),
            Datagram::Sealed { bytes, .. } => {
                let keys = self.keys.clone().unwrap();
                let key_of = |id| {
                    let host = self.hosts.iter().position(|host| host.id == id)?;
                    Some(keys.nodes[host].clone())
                };
                let Ok(answer) = open_acknowledgement(bytes, key_of) else { return };
                answer
            }
            Datagram::Command { .. } => return,
        };
        let now_ms = self.now_ms;
        self.client(seat, |client| client.receive(now_ms, &answer));
    }
}
