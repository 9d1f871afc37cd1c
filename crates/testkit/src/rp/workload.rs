//! Records from a seed, so that each one can be compared after a store, an eviction and a load.

use strongroom_bucket::KeyRange;

use super::bucket::Records;
use super::client::Client;
use super::error::RpError;
use crate::Random;

/// Records that are put in one message, at most.
const BATCH: u64 = 256;

/// What a file holds: records from a seed, changed in rounds. A clone is what it held at a moment.
#[derive(Debug, Clone)]
pub struct Workload {
    /// All follows from it.
    pub seed: u64,
    /// How many records.
    pub records: u64,
    /// Bytes of a value at most; each has a length of its own.
    pub value_bytes_max: usize,
    /// For each round, which share of the records it changed, in percent.
    pub updates: Vec<u32>,
}

/// What a comparison found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checked {
    /// Records that are as they must be.
    pub equal: u64,
    /// Records that do not exist.
    pub missing: u64,
    /// Records with another value.
    pub wrong: u64,
    /// Records that are not of the workload, or come twice or not in order.
    pub extra: u64,
}

impl Checked {
    /// Whether nothing is missing, wrong or too much.
    pub fn is_equal(&self) -> bool {
        self.missing + self.wrong + self.extra == 0
    }
}

impl Workload {
    /// Records that no round has changed yet.
    pub fn new(seed: u64, records: u64, value_bytes_max: usize) -> Self {
        Self { seed, records, value_bytes_max, updates: Vec::new() }
    }

    /// The key of a record: no two are the same, and they are spread over all keys.
    pub fn key(&self, record: u64) -> Vec<u8> {
        // The first number of a stream is different for each begin.
        let number = Random::new(self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ record).number();
        format!("{number:016x}").into_bytes()
    }

    /// The value of a record after all rounds.
    pub fn value(&self, record: u64) -> Vec<u8> {
        let rounds = 0..self.updates.len();
        let last = rounds.rev().find(|round| self.is_updated(record, *round));
        let round = last.map_or(0, |round| round as u64 + 1);
        let mut random = Random::new(self.seed ^ record.rotate_left(32) ^ round.rotate_left(17));
        let length = 1 + random.below(self.value_bytes_max.max(1) as u64) as usize;
        random.noise(length)
    }

    /// Puts all records.
    pub fn fill(&self, client: &mut Client) -> Result<(), RpError> {
        self.put(client, &|_| true)
    }

    /// Changes about this many percent of the records, others in each round; returns how many.
    ///
    /// # Errors
    ///
    /// If it fails, some are changed and others not: the round may be put again by
    /// [`Workload::update_again`].
    pub fn update(&mut self, client: &mut Client, percent: u32) -> Result<u64, RpError> {
        self.updates.push(percent);
        self.update_again(client)
    }

    /// Puts the records of the last round again.
    pub fn update_again(&self, client: &mut Client) -> Result<u64, RpError> {
        let Some(round) = self.updates.len().checked_sub(1) else { return Ok(0) };
        self.put(client, &|record| self.is_updated(record, round))?;
        Ok((0..self.records).filter(|record| self.is_updated(*record, round)).count() as u64)
    }

    /// Compares all records of the file.
    pub fn check(&self, client: &mut Client) -> Result<Checked, RpError> {
        self.check_range(client, &KeyRange::whole())
    }

    /// Compares the records of a range.
    pub fn check_range(&self, client: &mut Client, range: &KeyRange) -> Result<Checked, RpError> {
        let keyed = (0..self.records).map(|record| (self.key(record), record));
        let mut expected: Vec<_> = keyed.filter(|(key, _)| range.contains(key)).collect();
        expected.sort();
        let mut expected = expected.into_iter().peekable();
        let mut checked = Checked::default();
        client.scan(range, &mut |key, value| {
            while expected.next_if(|(known, _)| *known < key).is_some() {
                checked.missing += 1;
            }
            match expected.next_if(|(known, _)| *known == key) {
                None => checked.extra += 1,
                Some((_, record)) if self.value(record) == value => checked.equal += 1,
                Some(_) => checked.wrong += 1,
            }
        })?;
        checked.missing += expected.count() as u64;
        Ok(checked)
    }

    fn is_updated(&self, record: u64, round: usize) -> bool {
        let mixed = self.seed ^ record.rotate_left(40) ^ ((round as u64 + 1) << 8);
        Random::new(mixed).below(100) < self.updates[round].into()
    }

    fn put(&self, client: &mut Client, is_wanted: &dyn Fn(u64) -> bool) -> Result<(), RpError> {
        let mut records = Records::new();
        for record in (0..self.records).filter(|record| is_wanted(*record)) {
            records.push((self.key(record), self.value(record)));
            if records.len() as u64 >= BATCH {
                client.put_many(std::mem::take(&mut records))?;
            }
        }
        client.put_many(records)
    }
}
