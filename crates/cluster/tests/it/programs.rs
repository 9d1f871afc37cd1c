//! Programs that keep buckets: a few keys with numbers, which they send each other. The sum of all
//! numbers never changes by that, so a cut that is not of one instant has another sum.

use std::collections::BTreeMap;

use strongroom_bucket::KeyRange;
use strongroom_cluster::{BucketNumber, Content, Description, Epoch, NodeInput};

use crate::world::World;

/// Keys of a file: 0 to this.
pub const KEYS: u8 = 16;

/// A program with one bucket.
#[derive(Debug, Clone)]
pub struct Program {
    pub host: usize,
    pub low: u8,
    pub high: u8,
    pub version: u64,
    pub data: BTreeMap<u8, i64>,
    /// A split that is half done: keys from here on are in that bucket as well.
    pub moving: Option<(u8, u32)>,
    /// The bucket that has the same keys still. Until it gives them up, they do not change.
    pub copied_from: Option<u32>,
    /// Since when it is stopped, for which epoch.
    pub stop: Option<(u64, Epoch)>,
    /// Rises when it goes on: what was begun before is void.
    pub token: u64,
    /// It came back with what it had at an earlier instant, or with nothing: no cut may have it.
    pub stale: Option<Stale>,
}

/// What is wrong with a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    /// It has an old copy.
    Old,
    /// It has loaded nothing.
    Empty,
}

pub fn range_of(low: u8, high: u8) -> KeyRange {
    let low = if low == 0 { Vec::new() } else { vec![low] };
    KeyRange { low, high: (high < KEYS).then(|| vec![high]) }
}

impl Program {
    pub fn describe(&self) -> Description {
        let range = (self.low < self.high).then(|| range_of(self.low, self.high));
        let is_empty = self.stale == Some(Stale::Empty);
        let content = if is_empty { Content::Empty } else { Content::Filled };
        Description { range, split_version: self.version, bytes: self.data.len() as u64, content }
    }

    /// Before anybody has looked at it.
    pub fn introduce(&self) -> Description {
        Description { content: Content::Unknown, ..self.describe() }
    }

    /// The end of the keys that may change.
    fn free_end(&self) -> u8 {
        let end = self.moving.map_or(self.high, |(middle, _)| middle);
        if self.copied_from.is_some() { self.low } else { end }
    }

    pub fn sum(&self) -> i64 {
        self.data.values().sum()
    }

    pub fn go_on(&mut self) {
        self.stop = None;
        self.token += 1;
    }
}

impl World {
    /// The file before the first event.
    pub fn found(&mut self) {
        let buckets = self.dice.between(1, 4) as u8;
        let width = KEYS / buckets;
        for index in 0..buckets {
            let high = if index + 1 == buckets { KEYS } else { (index + 1) * width };
            let host = self.dice.below(self.hosts.len());
            let data = (index * width..high).map(|key| (key, 100)).collect();
            self.add_program(host, index * width, high, 0, data, None);
        }
        // A bucket that holds no keys yet.
        if self.dice.permille(300) {
            let host = self.dice.below(self.hosts.len());
            self.add_program(host, 0, 0, 0, BTreeMap::new(), None);
        }
    }

    /// Adds a program; its agent hears of it, if there is one.
    pub fn add_program(
        &mut self,
        host: usize,
        low: u8,
        high: u8,
        version: u64,
        data: BTreeMap<u8, i64>,
        copied_from: Option<u32>,
    ) -> u32 {
        let bucket = self.next_bucket;
        self.next_bucket += 1;
        let token = u64::from(bucket) << 32;
        let program = Program {
            host,
            low,
            high,
            version,
            data,
            moving: None,
            copied_from,
            stop: None,
            token,
            stale: None,
        };
        let description = program.introduce();
        if copied_from.is_none() {
            self.change_total(program.sum());
        }
        self.programs.insert(bucket, program);
        self.report(host, NodeInput::Attached { bucket: BucketNumber(bucket), description });
        bucket
    }

    /// A program is gone, and its memory with it. The other side of a split has all of it then.
    pub fn remove_program(&mut self, bucket: u32) {
        let Some(program) = self.programs.remove(&bucket) else { return };
        let counts = program.copied_from.is_none() && program.stale.is_none();
        let mut change = if counts { -program.sum() } else { 0 };
        for other in self.programs.values_mut() {
            if other.copied_from == Some(bucket) {
                other.copied_from = None;
                change += other.sum();
            }
            if other.moving.is_some_and(|(_, to)| to == bucket) {
                other.moving = None;
            }
        }
        self.change_total(change);
        self.end_old_alone();
    }

    /// Old copies end whose keys no other program claims any more: such a copy looks like what has always
    /// been there.
    fn end_old_alone(&mut self) {
        let (stale, genuine): (Vec<_>, Vec<_>) =
            self.programs.iter().partition(|(_, program)| program.stale.is_some());
        let is_alone = |copy: &Program| {
            !genuine.iter().any(|(_, other)| copy.low < other.high && other.low < copy.high)
        };
        let old = stale.into_iter().filter(|(_, copy)| copy.stale == Some(Stale::Old));
        let alone = old.filter(|(_, copy)| is_alone(copy));
        let alone: Vec<(u32, usize)> = alone.map(|(bucket, copy)| (*bucket, copy.host)).collect();
        for (bucket, host) in alone {
            self.programs.remove(&bucket);
            self.report(host, NodeInput::Detached { bucket: BucketNumber(bucket) });
        }
    }

    pub fn change_total(&mut self, by: i64) {
        let (_, total) = *self.totals.last().unwrap();
        self.totals.push((self.stamp, total + by));
    }

    fn running(&self) -> Vec<u32> {
        let is_running = |program: &Program| program.stop.is_none() && program.stale.is_none();
        let running = self.programs.iter().filter(|(_, program)| is_running(program));
        running.map(|(bucket, _)| *bucket).collect()
    }

    /// Programs do something between two events.
    pub fn programs_run(&mut self) {
        if self.dice.permille(60) {
            self.end_stale();
        }
        let running = self.running();
        for bucket in &running {
            let is_done = self.is_calm || self.dice.permille(300);
            if self.programs[bucket].moving.is_some() && is_done {
                self.give_up_half(*bucket);
            }
        }
        if running.is_empty() {
            return;
        }
        if self.dice.permille(self.weather.splits) && self.programs.len() < 10 {
            let bucket = running[self.dice.below(running.len())];
            self.split(bucket);
        }
        // Some times are quiet, so that an eviction finds what was stored.
        if (self.now_ms / 700).is_multiple_of(2) {
            self.transfer(&running);
        }
    }

    fn transfer(&mut self, running: &[u32]) {
        let from = running[self.dice.below(running.len())];
        let to = running[self.dice.below(running.len())];
        let is_free = |bucket: u32| {
            let program = &self.programs[&bucket];
            program.low < program.free_end()
        };
        if !is_free(from) || !is_free(to) {
            return;
        }
        let amount = self.dice.between(1, 9) as i64;
        for (bucket, amount) in [(from, -amount), (to, amount)] {
            let program = &self.programs[&bucket];
            let (low, end) = (program.low, program.free_end());
            let key = low + self.dice.below(usize::from(end - low)) as u8;
            let program = self.programs.get_mut(&bucket).unwrap();
            *program.data.get_mut(&key).unwrap() += amount;
        }
    }

    /// The upper half of a bucket goes to a new one: first it is copied. Until the old bucket gives
    /// it up, both claim it, and it does not change.
    fn split(&mut self, bucket: u32) {
        let host = self.dice.below(self.hosts.len());
        let program = &self.programs[&bucket];
        if program.high < program.low + 2
            || program.moving.is_some()
            || program.copied_from.is_some()
        {
            return;
        }
        let middle = program.low + (program.high - program.low) / 2;
        let data = program.data.range(middle..).map(|(key, value)| (*key, *value)).collect();
        let high = program.high;
        self.versions = self.versions.max(program.version) + 1;
        let version = self.versions;
        let new = self.add_program(host, middle, high, version, data, Some(bucket));
        self.programs.get_mut(&bucket).unwrap().moving = Some((middle, new));
    }

    /// The second half of a split, which takes until neither program is stopped.
    fn give_up_half(&mut self, bucket: u32) {
        let (middle, new) = self.programs[&bucket].moving.unwrap();
        let target = self.programs.get_mut(&new).unwrap();
        if target.stop.is_some() {
            return;
        }
        target.copied_from = None;
        let version = target.version;
        let program = self.programs.get_mut(&bucket).unwrap();
        program.moving = None;
        program.high = middle;
        program.version = version;
        program.data.split_off(&middle);
        let (host, description) = (program.host, program.describe());
        let bucket = BucketNumber(bucket);
        self.report(host, NodeInput::Described { bucket, description });
    }

    /// A bucket is there a second time: with what it had before, or with nothing. Its keys are those of
    /// the first.
    pub fn double(&mut self) {
        let is_settled = |program: &Program| {
            let is_split = program.moving.is_some() || program.copied_from.is_some();
            program.low < program.high && !is_split && program.stale.is_none()
        };
        let settled = self.programs.iter().filter(|(_, program)| is_settled(program));
        let settled: Vec<u32> = settled.map(|(bucket, _)| *bucket).collect();
        // What a hook has brought back comes from nowhere else, as the hook sees to that.
        if settled.is_empty() || self.seats.iter().any(|seat| seat.has_recovered) {
            return;
        }
        let mut copy = self.programs[&settled[self.dice.below(settled.len())]].clone();
        let is_empty = self.dice.permille(500);
        for value in copy.data.values_mut() {
            *value = if is_empty { 0 } else { *value + 1_000 };
        }
        copy.stale = Some(if is_empty { Stale::Empty } else { Stale::Old });
        copy.host = self.dice.below(self.hosts.len());
        copy.version -= self.dice.between(0, copy.version.min(1));
        let bucket = self.next_bucket;
        self.next_bucket += 1;
        (copy.stop, copy.token) = (None, u64::from(bucket) << 32);
        let (host, description) = (copy.host, copy.introduce());
        self.programs.insert(bucket, copy);
        self.doubles += 1;
        self.report(host, NodeInput::Attached { bucket: BucketNumber(bucket), description });
    }

    /// Programs that should not be there end.
    pub fn end_stale(&mut self) {
        let stale = self.programs.iter().filter(|(_, program)| program.stale.is_some());
        let stale: Vec<(u32, usize)> = stale.map(|(it, program)| (*it, program.host)).collect();
        for (bucket, host) in stale {
            self.remove_program(bucket);
            self.report(host, NodeInput::Detached { bucket: BucketNumber(bucket) });
        }
    }

    pub fn kill_program(&mut self) {
        let buckets: Vec<u32> = self.programs.keys().copied().collect();
        if buckets.is_empty() {
            return;
        }
        let bucket = buckets[self.dice.below(buckets.len())];
        let host = self.programs[&bucket].host;
        self.remove_program(bucket);
        self.report(host, NodeInput::Detached { bucket: BucketNumber(bucket) });
    }

    /// A program that is stopped goes on without being asked, and its agent notices: by a message,
    /// or because it lost the program, which attaches again.
    pub fn break_a_stop(&mut self) {
        let stopped = self.programs.iter().find(|(_, program)| program.stop.is_some());
        let Some((&bucket, _)) = stopped else { return };
        let program = self.programs.get_mut(&bucket).unwrap();
        let (_, epoch) = program.stop.unwrap();
        program.go_on();
        let (host, description) = (program.host, program.describe());
        let bucket = BucketNumber(bucket);
        if self.dice.permille(500) {
            let reason = "its program went on by itself".to_owned();
            return self.report(host, NodeInput::Failed { bucket, epoch, reason });
        }
        self.report(host, NodeInput::Detached { bucket });
        self.report(host, NodeInput::Attached { bucket, description });
    }

    /// What the hook of the cluster does: keys that no program has come back from the last cut.
    pub fn recover(&mut self, range: &KeyRange) {
        self.end_stale();
        let has = |key: u8| {
            self.programs.values().any(|program| (program.low..program.high).contains(&key))
        };
        let bytes = |key: u8| if key == 0 { Vec::new() } else { vec![key] };
        let missing: Vec<u8> =
            (0..KEYS).filter(|key| range.contains(&bytes(*key)) && !has(*key)).collect();
        let last: BTreeMap<u8, i64> = self.last_cut();
        for keys in missing.chunk_by(|one, next| one + 1 == *next) {
            let data = keys.iter().map(|key| (*key, last.get(key).copied().unwrap_or(100)));
            let data = data.collect();
            let host = self.dice.below(self.hosts.len());
            self.versions += 1;
            self.recoveries += 1;
            let version = self.versions;
            self.add_program(host, keys[0], keys[keys.len() - 1] + 1, version, data, None);
        }
    }
}
