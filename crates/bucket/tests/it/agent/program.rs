//! One program of the agent for tests: what it registered, and what is asked of it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::area::Area;
use super::{Areas, BucketName, Shared, TICK, lock};
use strongroom_bucket::served::{Connection, Received};
use strongroom_bucket::{AreaSize, FromProgram, KeyRange, PROTOCOL, ToProgram};

/// The name under which evicted buckets are stored.
const EVICTED: &str = "evicted";

/// A program, its connection and its bucket.
#[derive(Debug)]
pub struct Program {
    name: BucketName,
    connection: Connection,
    state: Mutex<State>,
    changed: Condvar,
}

/// That a program holds still.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// In which epoch.
    pub epoch: u64,
    /// Its memory is copied, so it may go on before it is read.
    pub is_copy: bool,
}

#[derive(Debug, Default)]
struct State {
    areas: BTreeMap<String, Area>,
    range: Option<(KeyRange, u64)>,
    has_callbacks: bool,
    epoch: u64,
    /// What was answered in an epoch.
    answers: BTreeMap<u64, (bool, Result<(), String>)>,
    /// How stores ended.
    stores: BTreeMap<(String, u64), Option<Result<(), String>>>,
    is_gone: bool,
}

impl Program {
    /// Takes a program in, or refuses it.
    pub fn greet(connection: Connection, refusal: Option<String>) -> Option<Self> {
        let Ok(Received::Message(hello, None)) = connection.receive(None) else { return None };
        let FromProgram::Hello { protocol: PROTOCOL, file, bucket } = hello else { return None };
        if let Some(reason) = refusal {
            // The program may be gone.
            drop(connection.send(&ToProgram::Refused { reason }));
            return None;
        }
        connection.send(&ToProgram::Welcome { protocol: PROTOCOL }).ok()?;
        let (state, changed) = (Mutex::default(), Condvar::new());
        Some(Self { name: (file, bucket), connection, state, changed })
    }

    pub fn name(&self) -> &BucketName {
        &self.name
    }

    pub fn has_callbacks(&self) -> bool {
        lock(&self.state).has_callbacks
    }

    pub fn range(&self) -> Option<(KeyRange, u64)> {
        lock(&self.state).range.clone()
    }

    /// Takes messages until the program or the agent ends.
    pub fn attend(self: &Arc<Self>, shared: &Arc<Shared>) {
        while !shared.is_ending.load(Ordering::SeqCst) {
            match self.connection.receive(Some(TICK)) {
                Ok(Received::Message(message, file)) => self.take(shared, message, file),
                Ok(Received::Nothing) => {}
                Ok(Received::End) | Err(_) => break,
            }
        }
        self.connection.end();
        lock(&self.state).is_gone = true;
        self.changed.notify_all();
    }

    fn take(self: &Arc<Self>, shared: &Arc<Shared>, message: FromProgram, file: Option<OwnedFd>) {
        let mut state = lock(&self.state);
        match message {
            FromProgram::Region { request, area, bytes, .. } => {
                let Some(file) = file else { return };
                let manners = lock(&shared.manners).clone();
                let answer = if manners.refused_area.as_ref() == Some(&area) {
                    let reason = "it has too many areas".to_owned();
                    ToProgram::Failed { request, reason }
                } else {
                    state.areas.insert(area, Area { file, bytes });
                    ToProgram::Done { request }
                };
                self.send_after(manners.region_time, answer);
            }
            FromProgram::Forget { request, area } => {
                state.areas.remove(&area);
                self.send(&ToProgram::Done { request });
            }
            FromProgram::Callbacks { has_callbacks } => state.has_callbacks = has_callbacks,
            FromProgram::Range { range, split_version } => {
                state.range = Some((range, split_version));
            }
            FromProgram::Quiesced { epoch, is_copy, outcome } => {
                state.answers.insert(epoch, (is_copy, outcome));
            }
            FromProgram::Loaded { epoch, outcome } => {
                state.answers.insert(epoch, (false, outcome));
            }
            FromProgram::Evicted { epoch, outcome } => {
                if outcome.is_ok() {
                    state.areas.clear();
                }
                state.answers.insert(epoch, (false, outcome));
            }
            FromProgram::Store { ref name, version, .. } => {
                state.stores.insert((name.clone(), version), None);
                self.apart(shared, message);
            }
            FromProgram::Wait { .. } | FromProgram::Load { .. } | FromProgram::Evict { .. } => {
                self.apart(shared, message);
            }
            FromProgram::Test { request, name, at_most } => {
                let newest = shared.archive.newest(&self.name, &name, at_most.unwrap_or(u64::MAX));
                let (version, areas) = newest.unzip();
                let areas = areas.into_iter().flatten();
                let areas = areas.map(|(area, bytes)| AreaSize { area, bytes: bytes.len() as u64 });
                self.send(&ToProgram::Found { request, version, areas: areas.collect() });
            }
            FromProgram::Hello { .. } => self.connection.end(),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Carries out what takes long, while messages are read.
    fn apart(self: &Arc<Self>, shared: &Arc<Shared>, message: FromProgram) {
        let (program, shared) = (self.clone(), shared.clone());
        thread::spawn(move || program.carry_out(&shared, message));
    }

    fn carry_out(&self, shared: &Shared, message: FromProgram) {
        let (request, outcome) = match message {
            FromProgram::Store { request, name, version, areas, .. } => {
                thread::sleep(lock(&shared.manners).capture_time);
                let captured = self.capture(&areas);
                match &captured {
                    Ok(_) => self.send(&ToProgram::Captured { request }),
                    Err(reason) => {
                        self.send(&ToProgram::Failed { request, reason: reason.clone() });
                    }
                }
                let stored = captured.and_then(|all| shared.commit(self, &name, version, all));
                lock(&self.state).stores.insert((name, version), Some(stored));
                self.changed.notify_all();
                return;
            }
            FromProgram::Wait { request, name, version } => {
                (request, self.await_store(shared, name, version))
            }
            FromProgram::Load { request, name, version, areas } => {
                let stored = shared.archive.version(&self.name, &name, version);
                let stored = stored.ok_or_else(|| "there is no such version".to_owned());
                (request, stored.and_then(|stored| self.fill(&stored, &areas)))
            }
            FromProgram::Evict { request, .. } => (request, self.evict(shared)),
            _ => return,
        };
        self.send(&match outcome {
            Ok(()) => ToProgram::Done { request },
            Err(reason) => ToProgram::Failed { request, reason },
        });
    }

    /// Waits until a store is committed.
    fn await_store(&self, shared: &Shared, name: String, version: u64) -> Result<(), String> {
        let key = (name, version);
        let mut state = lock(&self.state);
        loop {
            match state.stores.get(&key) {
                Some(Some(outcome)) => return outcome.clone(),
                Some(None) if state.is_gone => return Err("the program ended".to_owned()),
                Some(None) => {
                    let waited = self.changed.wait_timeout(state, TICK);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                // It was stored before the program was started again.
                None => {
                    let stored = shared.archive.version(&self.name, &key.0, version);
                    return stored.map(drop).ok_or_else(|| "it was never stored".to_owned());
                }
            }
        }
    }

    fn evict(&self, shared: &Shared) -> Result<(), String> {
        let areas = self.capture(&[])?;
        let newest = shared.archive.newest(&self.name, EVICTED, u64::MAX);
        let version = newest.map_or(1, |(version, _)| version + 1);
        shared.commit(self, EVICTED, version, areas.clone())?;
        if self.capture(&[])? != areas {
            return Err("its memory changed since it was stored".to_owned());
        }
        let epoch = self.next_epoch();
        self.ask(epoch, &ToProgram::Evict { epoch }).map(drop)
    }

    /// What areas hold.
    pub fn capture(&self, chosen: &[String]) -> Result<Areas, String> {
        let state = lock(&self.state);
        let is_chosen = |area: &String| chosen.is_empty() || chosen.contains(area);
        let chosen = state.areas.iter().filter(|(name, _)| is_chosen(name));
        chosen.map(|(name, area)| Ok((name.clone(), area.read(name)?))).collect()
    }

    /// Writes into areas.
    pub fn fill(&self, stored: &Areas, chosen: &[String]) -> Result<(), String> {
        let state = lock(&self.state);
        let is_chosen = |area: &String| chosen.is_empty() || chosen.contains(area);
        for (name, bytes) in stored.iter().filter(|(name, _)| is_chosen(name)) {
            let area = state.areas.get(name);
            let area = area.ok_or_else(|| format!("area {name} is not registered"))?;
            area.write(name, bytes)?;
        }
        Ok(())
    }

    /// Asks the program to hold still.
    pub fn quiesce(&self) -> Result<Asked, String> {
        if !self.has_callbacks() {
            return Err("no callback".to_owned());
        }
        let epoch = self.next_epoch();
        let is_copy = self.ask(epoch, &ToProgram::Quiesce { epoch })?;
        Ok(Asked { epoch, is_copy })
    }

    /// Lets it go on.
    pub fn resume(&self, asked: Asked) -> Result<(), String> {
        let message = ToProgram::Resume { epoch: asked.epoch, is_reading: false };
        self.connection.send(&message).map_err(|error| error.to_string())
    }

    /// What its areas hold at one instant.
    pub fn capture_still(&self) -> Result<Areas, String> {
        let asked = self.quiesce()?;
        if !asked.is_copy {
            let areas = self.capture(&[]);
            self.resume(asked)?;
            return areas;
        }
        self.send(&ToProgram::Resume { epoch: asked.epoch, is_reading: true });
        let areas = self.capture(&[]);
        self.send(&ToProgram::EpochCaptured { epoch: asked.epoch });
        areas
    }

    /// Fills its areas.
    pub fn load_still(&self, stored: &Areas) -> Result<(), String> {
        let asked = self.quiesce()?;
        let filled = self.fill(stored, &[]);
        let loaded = filled.and_then(|()| {
            self.ask(asked.epoch, &ToProgram::Load { epoch: asked.epoch, keys: None }).map(drop)
        });
        self.resume(asked)?;
        loaded
    }

    /// Has its memory freed if it is what was stored.
    pub fn evict_still(&self, stored: &Areas) -> Result<(), String> {
        let asked = self.quiesce()?;
        let evicted = match self.capture(&[])? == *stored {
            true => self.ask(asked.epoch, &ToProgram::Evict { epoch: asked.epoch }).map(drop),
            false => Err("its memory changed since it was stored".to_owned()),
        };
        if evicted.is_err() {
            self.resume(asked)?;
        }
        evicted
    }

    fn next_epoch(&self) -> u64 {
        let mut state = lock(&self.state);
        state.epoch += 1;
        state.epoch
    }

    /// Asks and waits for the answer of the epoch.
    fn ask(&self, epoch: u64, question: &ToProgram) -> Result<bool, String> {
        lock(&self.state).answers.remove(&epoch);
        self.connection.send(question).map_err(|error| error.to_string())?;
        let mut state = lock(&self.state);
        loop {
            if let Some((is_copy, outcome)) = state.answers.remove(&epoch) {
                return outcome.map(|()| is_copy);
            }
            if state.is_gone {
                return Err("the program ended".to_owned());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sends after a time, while messages are read. Without a time it is sent at once.
    fn send_after(self: &Arc<Self>, time: Duration, message: ToProgram) {
        if time.is_zero() {
            return self.send(&message);
        }
        let program = self.clone();
        thread::spawn(move || {
            thread::sleep(time);
            program.send(&message);
        });
    }

    fn send(&self, message: &ToProgram) {
        // A program that is gone is noticed by the thread that reads.
        drop(self.connection.send(message));
    }
}
