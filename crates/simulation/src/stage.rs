//! The stage: actors on threads, of which one runs at a time. Each call to the store is a place at
//! which another may go on, and the seed says which: so a seed is a schedule, and replays exactly.
//!
//! A packer writes on a thread of its own while its caller waits (`arenas_behind_max` is 0), so each
//! actor has at most one call under way, whichever of its threads makes it. Two at a time are a fault
//! of the simulation, and reported as a loss: their order would be no part of the seed.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use strongroom_backend::{
    Backend, BackendError, ObjectInfo, ObjectName, Operation as Doing, Promises, Room, Stores,
};
use strongroom_testkit::Random;

use crate::ledger::Ledger;
use crate::store::{Effect, Operation, Store};
use crate::weather::Weather;

/// In the message of each error that the store makes up.
pub const NO_ANSWER: &str = "the store gave no answer";

/// A schedule has at most this many calls; one that has more does not end.
const CALLS_MAX: u64 = 60_000;

/// What all actors share.
pub struct Stage {
    shared: Mutex<Shared>,
    /// One for each actor, and one for the judge.
    wakes: Vec<Condvar>,
}

/// What is changed by the actor that runs, and by no other.
pub struct Shared {
    /// Draws everything.
    pub random: Random,
    /// The objects.
    pub store: Store,
    /// What was promised to whom.
    pub ledger: Ledger,
    /// How bad it is.
    pub weather: Weather,
    /// An object that cannot be read until this number of calls.
    pub bad_spot: Option<(ObjectName, u64)>,
    /// Counts calls.
    pub calls: u64,
    /// Operations that were done late.
    pub landed: u64,
    /// Programs that were killed.
    pub crashes: u64,
    /// What happened, for people.
    pub trace: Option<Vec<String>>,
    /// A hash of what happened.
    pub hash: u64,
    running: usize,
    actors: Vec<Actor>,
}

#[derive(Debug, Clone, Default)]
struct Actor {
    name: String,
    is_done: bool,
    /// Its program was killed: it makes no more calls.
    is_killed: bool,
    asleep_until: u64,
    /// Whether one of its threads makes a call.
    is_calling: bool,
    /// For this many calls it gets no answer.
    cut_off: u64,
}

/// An actor's way to the store.
pub struct Handle {
    /// The stage.
    pub stage: Arc<Stage>,
    /// Which actor.
    pub actor: usize,
}

impl Stage {
    /// A stage for these actors, and for a judge, whose number is the next, and who has the stage
    /// once all are done.
    pub fn new(names: Vec<String>, shared: Shared) -> Self {
        let wakes = (0..=names.len()).map(|_| Condvar::new()).collect();
        let mut shared = shared;
        shared.actors = names.into_iter().map(|name| Actor { name, ..Actor::default() }).collect();
        let judge = Actor { name: "judge".to_owned(), is_done: true, ..Actor::default() };
        shared.actors.push(judge);
        shared.running = shared.draw_next();
        Self { shared: Mutex::new(shared), wakes }
    }

    /// What all share. Only for the actor that runs, or when all are done.
    pub fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until an actor is the one that runs.
    pub fn enter(&self, actor: usize) {
        drop(self.wait(self.shared(), actor));
    }

    /// An actor has nothing more to do.
    pub fn leave(&self, actor: usize) {
        let mut shared = self.shared();
        shared.actors[actor].is_done = true;
        shared.running = shared.draw_next();
        self.wakes[shared.running].notify_all();
    }

    /// Waits until all are done.
    pub fn join(&self) {
        let shared = self.shared();
        let judge = shared.judge();
        drop(self.wait(shared, judge));
    }

    /// A new program in the place of one that was killed. Returns whether it was.
    pub fn revive(&self, actor: usize) -> bool {
        let mut shared = self.shared();
        let was_killed = std::mem::take(&mut shared.actors[actor].is_killed);
        if was_killed {
            shared.note(actor, "is started again", "", "");
        }
        was_killed
    }

    fn wait<'s>(&self, mut shared: MutexGuard<'s, Shared>, actor: usize) -> MutexGuard<'s, Shared> {
        while shared.running != actor {
            shared = self.wakes[actor].wait(shared).unwrap_or_else(PoisonError::into_inner);
        }
        shared
    }

    /// Lets others run; returns once it is this actor's turn again.
    fn pass<'s>(&self, mut shared: MutexGuard<'s, Shared>, actor: usize) -> MutexGuard<'s, Shared> {
        let weather = shared.weather;
        if weather.lands(&mut shared.random)
            && let Some((operation, effect)) = shared.land_one()
        {
            let (verb, name) = (operation.verb(), operation.name().clone());
            shared.note(actor, &format!("late {verb}"), name.as_str(), &format!("{effect:?}"));
        }
        if let Some(calls) = weather.sleeps(&mut shared.random) {
            shared.actors[actor].asleep_until = shared.calls + calls;
        }
        if !weather.stays(&mut shared.random) || shared.actors[actor].asleep_until > shared.calls {
            shared.running = shared.draw_next();
            if shared.running != actor {
                // Were two of its threads waiting, either could be the one that may go on.
                self.wakes[shared.running].notify_all();
                shared = self.wait(shared, actor);
            }
        }
        shared
    }

    /// A call begins: after it, the actor has its turn.
    fn call(
        &self,
        actor: usize,
        verb: &str,
        name: &str,
    ) -> Result<MutexGuard<'_, Shared>, BackendError> {
        let mut shared = self.shared();
        if shared.actors[actor].is_killed {
            return Err(no_answer(name));
        }
        assert!(shared.calls < CALLS_MAX, "the schedule does not end");
        shared.calls += 1;
        if std::mem::replace(&mut shared.actors[actor].is_calling, true) {
            shared.ledger.lose(format!("{verb} {name}: an actor has another call under way"));
        }
        shared = self.pass(shared, actor);
        shared.actors[actor].is_calling = false;
        let weather = shared.weather;
        shared.draw_bad_spot();
        if weather.kills(&mut shared.random) {
            shared.actors[actor].is_killed = true;
            shared.crashes += 1;
            shared.note(actor, verb, name, "killed");
        }
        Ok(shared)
    }

    fn look<T>(
        &self,
        actor: usize,
        verb: &str,
        name: &str,
        look: impl FnOnce(&Store) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let mut shared = self.call(actor, verb, name)?;
        let weather = shared.weather;
        if shared.is_cut_off(actor) || weather.fails(&mut shared.random) {
            shared.note(actor, verb, name, "no answer");
            let object = ObjectName::parse(name).filter(|name| !name.folder().is_empty());
            return Err(match object.filter(|_| shared.random.once_in(2)) {
                Some(name) => BackendError::Unreadable { name, source: timed_out() },
                None => no_answer(name),
            });
        }
        if verb == "read"
            && let Some((bad, until)) = &shared.bad_spot
            && bad.as_str() == name
            && *until > shared.calls
        {
            let name = bad.clone();
            shared.note(actor, verb, name.as_str(), "cannot be read");
            return Err(BackendError::Unreadable { name, source: timed_out() });
        }
        let found = look(&shared.store);
        shared.note(actor, verb, name, if found.is_ok() { "found" } else { "missing" });
        found
    }

    fn change(&self, actor: usize, operation: Operation) -> Result<(), BackendError> {
        let (verb, name) = (operation.verb(), operation.name().clone());
        let mut shared = self.call(actor, verb, name.as_str())?;
        let (weather, is_cut_off) = (shared.weather, shared.is_cut_off(actor));
        let fate = weather.fate(&mut shared.random, is_cut_off);
        let effect = shared.store.send(operation, fate);
        if effect.is_none()
            && let Some(calls) = weather.cuts_off(&mut shared.random)
        {
            shared.actors[actor].cut_off = calls;
        }
        let outcome = effect.map_or("no answer".to_owned(), |effect| format!("{effect:?}"));
        shared.note(actor, verb, name.as_str(), &format!("{fate:?}: {outcome}"));
        match effect {
            None => Err(no_answer(name.as_str())),
            Some(Effect::Done) => Ok(()),
            Some(Effect::Taken) => Err(BackendError::AlreadyExists { name }),
            Some(Effect::Missing) => Err(BackendError::NotFound { name }),
        }
    }

    /// What was created before the listing began is shown; what is created or removed meanwhile may
    /// be.
    fn list(&self, actor: usize, folder: &str) -> Result<Vec<ObjectInfo>, BackendError> {
        let before = self.look(actor, "list", folder, |store| Ok(store.folder(folder)))?;
        let mut shared = self.pass(self.shared(), actor);
        let after = shared.store.folder(folder);
        let mut shown = before.clone();
        for (name, bytes) in before.iter().chain(&after) {
            let is_sure = before.contains_key(name) && after.contains_key(name);
            if !is_sure {
                match shared.random.once_in(2) {
                    true => shown.insert(name.clone(), *bytes),
                    false => shown.remove(name),
                };
            }
        }
        let list = shown.into_iter().map(|(name, bytes)| ObjectInfo { name, bytes });
        Ok(list.collect())
    }
}

impl Shared {
    /// Before the first call.
    pub fn new(random: Random, store: Store, ledger: Ledger, weather: Weather) -> Self {
        Self {
            random,
            store,
            ledger,
            weather,
            bad_spot: None,
            calls: 0,
            landed: 0,
            crashes: 0,
            trace: None,
            hash: 0xcbf2_9ce4_8422_2325,
            running: 0,
            actors: Vec::new(),
        }
    }

    /// Does one of the pending operations.
    pub fn land_one(&mut self) -> Option<(Operation, Effect)> {
        let landed = self.store.land_one(&mut self.random);
        self.landed += u64::from(landed.is_some());
        landed
    }

    /// Whether an actor's program was killed.
    pub fn is_killed(&self, actor: usize) -> bool {
        self.actors[actor].is_killed
    }

    /// Perhaps a snapshot or an arena cannot be read for some time.
    fn draw_bad_spot(&mut self) {
        let Some(calls) = self.weather.goes_bad(&mut self.random) else { return };
        let folder = *self.random.pick(&["snapshots", "arenas"]);
        let names: Vec<ObjectName> = self.store.folder(folder).into_keys().collect();
        if !names.is_empty() {
            self.bad_spot = Some((self.random.pick(&names).clone(), self.calls + calls));
        }
    }

    /// Whether this call of an actor gets no answer in any case.
    fn is_cut_off(&mut self, actor: usize) -> bool {
        let actor = &mut self.actors[actor];
        let is_cut_off = actor.is_killed || actor.cut_off > 0;
        actor.cut_off = actor.cut_off.saturating_sub(1);
        is_cut_off
    }

    /// Takes note of what happened.
    pub fn note(&mut self, actor: usize, verb: &str, name: &str, outcome: &str) {
        // FNV-1a: short texts, and only equality counts.
        let texts = [verb, name, outcome].into_iter().flat_map(str::bytes);
        for byte in [actor as u8].into_iter().chain(texts) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        if let Some(trace) = &mut self.trace {
            let who = &self.actors[actor].name;
            let line = format!("{:5}  {who:12} {verb} {name}  {outcome}", self.calls);
            trace.push(line.trim_end().to_owned());
        }
    }

    fn judge(&self) -> usize {
        self.actors.len() - 1
    }

    /// Who is next: one that is awake; if all sleep, the one that would wake first. The judge if all
    /// are done.
    fn draw_next(&mut self) -> usize {
        let calls = self.calls;
        let to_do = || self.actors.iter().enumerate().filter(|(_, actor)| !actor.is_done);
        let awake: Vec<usize> = to_do()
            .filter(|(_, actor)| actor.asleep_until <= calls)
            .map(|(number, _)| number)
            .collect();
        if !awake.is_empty() {
            return awake[self.random.below(awake.len() as u64) as usize];
        }
        let first = to_do().min_by_key(|(_, actor)| actor.asleep_until);
        let first = first.map_or(self.judge(), |(number, _)| number);
        self.actors[first].asleep_until = 0;
        first
    }
}

fn no_answer(name: &str) -> BackendError {
    BackendError::Io { operation: Doing::Open, what: name.to_owned(), source: timed_out() }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, NO_ANSWER)
}

impl Backend for Handle {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        self.stage.look(self.actor, "read", name.as_str(), |store| {
            let found = store.objects.get(name);
            let bytes = found.ok_or_else(|| BackendError::NotFound { name: name.clone() })?;
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            let end = start.saturating_add(length).min(bytes.len());
            Ok(bytes[start..end].to_vec())
        })
    }

    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        self.stage.look(self.actor, "size", name.as_str(), |store| {
            let found = store.objects.get(name).map(|bytes| bytes.len() as u64);
            found.ok_or_else(|| BackendError::NotFound { name: name.clone() })
        })
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.stage.change(self.actor, Operation::Create(name.clone(), bytes.into()))
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.stage.change(self.actor, Operation::Replace(name.clone(), bytes.into()))
    }

    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        self.stage.change(self.actor, Operation::Remove(name.clone()))
    }

    fn room(&self) -> Option<&dyn Room> {
        None
    }

    fn stores(&self) -> Option<&dyn Stores> {
        None
    }

    fn complaint(&self) -> Option<String> {
        None
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, BackendError> {
        self.stage.list(self.actor, folder)
    }

    fn sweep(&self) -> Result<usize, BackendError> {
        Ok(0)
    }

    fn promises(&self) -> Promises {
        Promises::LOCAL
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        self.stage.look(self.actor, "holds_at_most", folder, |store| {
            Ok(store.objects.keys().all(|name| name.folder() == folder))
        })
    }

    fn describe(&self) -> String {
        "a simulated store".to_owned()
    }

    fn folders(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}
