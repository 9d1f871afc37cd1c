//! Clients that are started, die, and are started again, and the repository that commits their cuts.

use strongroom_base::SnapshotId;
use strongroom_cluster::{
    Client, ClientEffect, ClientInput, ClientOptions, Epoch, FileName, Outcome, Part, RunId, Task,
};

use crate::agents::FILE;
use crate::judge::Cut;
use crate::world::{Event, World};

/// A place from which clients run, one after another.
#[derive(Default)]
pub struct Seat {
    pub client: Option<Client>,
    /// Rises with each client: the work of the one before is void.
    pub life: u64,
    /// What the disk has.
    kept: Epoch,
    pub outcome: Option<Outcome>,
    /// Its user wants it to end.
    is_cancelled: bool,
    /// Its hook has brought keys back.
    pub has_recovered: bool,
    /// When it is woken next; in the past if it is not.
    tick_at_ms: u64,
}

impl Seat {
    /// Whether a tick is the one that it waits for.
    pub fn is_woken(&self, life: u64, now_ms: u64) -> bool {
        self.life == life && self.tick_at_ms == now_ms
    }
}

impl World {
    /// Starts a client with something to do.
    pub fn launch(&mut self, seat: usize) {
        if self.seats[seat].client.is_some() || self.is_calm {
            return;
        }
        let task = match self.dice.between(0, 9) {
            0 => Task::Status,
            1..=2 => self.evict_task().unwrap_or(Task::Store { evicts: true }),
            3..=4 => self.load_task().unwrap_or(Task::Store { evicts: false }),
            5..=7 => Task::Store { evicts: false },
            _ => Task::Store { evicts: true },
        };
        self.start(seat, task);
    }

    pub fn start(&mut self, seat: usize, task: Task) {
        let mut up_to = |low, high| u32::try_from(self.dice.between(low, high)).unwrap();
        let mut options = ClientOptions {
            run: RunId(0),
            seed: 0,
            known_epoch: self.seats[seat].kept,
            ask_ms: up_to(20, 120),
            deadline_ms: up_to(150, 700),
            store_ms: up_to(300, 1_500),
            nodes: self.hosts.iter().map(|host| host.id).collect(),
            without: Vec::new(),
            takes_empty: false,
            periods: up_to(1, 3),
        };
        if self.is_calm {
            (options.deadline_ms, options.store_ms, options.periods) = (1_000, 5_000, 3);
        }
        // Another machine, which has no epoch of its own.
        if self.dice.permille(100) {
            options.known_epoch = Epoch::default();
        }
        options.run = RunId(self.dice.number());
        options.seed = self.dice.number();
        let file = FileName::new(FILE).unwrap();
        let client = Client::new(file, task, options, self.now_ms);
        let place = &mut self.seats[seat];
        place.client = Some(client);
        place.life += 1;
        place.outcome = None;
        place.is_cancelled = false;
        place.has_recovered = false;
        place.tick_at_ms = 0;
        let now_ms = self.now_ms;
        self.client(seat, |client| client.tick(now_ms));
    }

    /// Lets a client do something, and begins what it asks for.
    pub fn client(&mut self, seat: usize, act: impl FnOnce(&mut Client) -> Vec<ClientEffect>) {
        let is_cancelled = self.seats[seat].is_cancelled;
        let Some(client) = &mut self.seats[seat].client else { return };
        let mut effects = act(client);
        if is_cancelled {
            effects.extend(client.cancel(self.now_ms));
        }
        let wake_at_ms = client.wake_at_ms();
        let life = self.seats[seat].life;
        for effect in effects {
            let wait_ms = match effect {
                ClientEffect::Send(command) => {
                    self.send_command(seat, command);
                    continue;
                }
                ClientEffect::Finish(outcome) => {
                    self.finish(seat, outcome);
                    continue;
                }
                ClientEffect::KeepEpoch(_) => self.dice.between(0, 10),
                ClientEffect::Commit { .. } => self.dice.between(0, 100),
                ClientEffect::Recover(_) => self.dice.between(0, 60),
            };
            self.push(wait_ms, Event::ClientWork { seat, life, effect });
        }
        if let Some(wake_at_ms) = wake_at_ms.filter(|_| self.seats[seat].client.is_some()) {
            let at_ms = wake_at_ms.max(self.now_ms + 1);
            let pending = &mut self.seats[seat].tick_at_ms;
            if *pending <= self.now_ms || at_ms < *pending {
                *pending = at_ms;
                self.push(at_ms - self.now_ms, Event::ClientTick { seat, life });
            }
        }
    }

    fn finish(&mut self, seat: usize, outcome: Outcome) {
        if let Outcome::Stored { cut, parts, .. } = &outcome {
            let is_known = self.cuts.iter().any(|committed| {
                (committed.epoch, committed.id) == (cut.epoch, cut.snapshot)
                    && committed.parts == *parts
            });
            if !is_known {
                self.blame(format!("a client reports cut {}, which is not committed", cut.epoch));
            }
        }
        if outcome == Outcome::Cancelled {
            self.cancellations += 1;
            if !self.seats[seat].is_cancelled {
                self.blame("a client gives up that was not cancelled".to_owned());
            }
        }
        self.seats[seat].client = None;
        self.seats[seat].outcome = Some(outcome);
        let wait_ms = self.dice.between(10, 1_000);
        self.push(wait_ms, Event::Launch { seat });
    }

    /// What an effect of a client does. A commit may be on its way when its client dies.
    pub fn work_of_client(&mut self, seat: usize, life: u64, effect: ClientEffect) {
        let is_alive = self.seats[seat].life == life && self.seats[seat].client.is_some();
        let fails = self.dice.permille(self.weather.effect_fails);
        let input = match effect {
            ClientEffect::KeepEpoch(epoch) if is_alive => {
                self.seats[seat].kept = self.seats[seat].kept.max(epoch);
                ClientInput::EpochKept(epoch)
            }
            ClientEffect::Recover(range) if is_alive => {
                self.recover(&range);
                self.seats[seat].has_recovered = true;
                ClientInput::Recovered
            }
            ClientEffect::Commit { epoch, parts } if is_alive || self.dice.permille(500) => {
                let reason = "the repository is away".to_owned();
                if fails && self.dice.permille(500) {
                    ClientInput::NotCommitted { reason }
                } else {
                    let id = self.commit(epoch, parts);
                    // The answer may be lost.
                    if fails {
                        ClientInput::NotCommitted { reason }
                    } else {
                        ClientInput::Committed(id)
                    }
                }
            }
            _ => return,
        };
        if is_alive {
            let now_ms = self.now_ms;
            self.client(seat, |client| client.input(now_ms, input));
        }
    }

    fn commit(&mut self, epoch: Epoch, parts: Vec<strongroom_cluster::StoredPart>) -> SnapshotId {
        self.judge_cut(epoch, &parts);
        let mut id = [0xff; 16];
        id[..8].copy_from_slice(&(self.cuts.len() as u64).to_le_bytes());
        self.cuts.push(Cut { epoch, id: SnapshotId(id), parts });
        SnapshotId(id)
    }

    pub fn kill_client(&mut self) {
        let seat = self.dice.below(self.seats.len());
        if self.seats[seat].client.take().is_some() {
            self.seats[seat].life += 1;
            let wait_ms = self.dice.between(0, 1_000);
            self.push(wait_ms, Event::Launch { seat });
        }
    }

    pub fn cancel_client(&mut self, seat: usize) {
        self.seats[seat].is_cancelled = true;
        self.client(seat, |_| Vec::new());
    }

    /// A committed cut, the last or one before, with its parts.
    fn some_cut(&mut self) -> Option<(strongroom_cluster::Cut, Vec<Part>)> {
        let last = self.cuts.len().checked_sub(1)?;
        let cut = &self.cuts[last.saturating_sub(self.dice.below(3))];
        let parts = cut.parts.iter().map(|part| part.part).collect();
        Some((strongroom_cluster::Cut { epoch: cut.epoch, snapshot: cut.id }, parts))
    }

    fn evict_task(&mut self) -> Option<Task> {
        let (cut, parts) = self.some_cut()?;
        Some(Task::Evict { cut, parts })
    }

    /// Loads a cut, on the nodes that stored it or on others.
    pub fn load_task(&mut self) -> Option<Task> {
        let (cut, mut parts) = self.some_cut()?;
        if self.dice.permille(300) {
            for part in &mut parts {
                let host = self.dice.below(self.hosts.len());
                part.node = self.hosts[host].id;
            }
        }
        Some(Task::Load { cut, parts })
    }

    /// Loads the last cut where it was stored.
    pub fn last_load_task(&self) -> Task {
        let cut = self.cuts.last().unwrap();
        let parts = cut.parts.iter().map(|part| part.part).collect();
        Task::Load { cut: strongroom_cluster::Cut { epoch: cut.epoch, snapshot: cut.id }, parts }
    }
}
