//! What takes long: storing, comparing and loading, each on a thread of its own.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use strongroom_base::SnapshotId;
use strongroom_catalog::Guarantee;
use strongroom_cluster::Epoch;
use strongroom_engine::{Stillness, StillnessGuard};

use super::Event;
use crate::about::{About, AboutFile};
use crate::keeper::{Areas, BucketName, KeepError, Keeper, Storing};

/// How a job is getting on.
pub enum JobEvent {
    /// It has read all once, and needs the program to hold still.
    Scanned,
    /// What the bucket held at the instant is captured.
    Captured,
    /// It is stored.
    Stored(Result<SnapshotId, String>),
    /// It was compared: whether it is still what was stored.
    Compared(Result<bool, String>),
    /// It was filled.
    Loaded(Result<Box<About>, String>),
}

/// Holds a job up until the program holds still everywhere.
#[derive(Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
enum GateState {
    #[default]
    Waiting,
    Open(Option<Box<About>>),
    Closed,
}

impl Gate {
    /// Lets the job go on, and gives it what is written beside the areas.
    pub fn open(&self, about: About) {
        self.become_(GateState::Open(Some(Box::new(about))));
    }

    /// Ends the job, unless it has gone on.
    pub fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, GateState::Waiting) {
            *state = GateState::Closed;
        }
        drop(state);
        self.changed.notify_all();
    }

    fn become_(&self, new: GateState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = new;
        self.changed.notify_all();
    }

    /// Whether the job has gone on.
    pub fn is_open(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*state, GateState::Open(_))
    }

    /// Waits until it is open; `None` if it was closed.
    fn pass(&self) -> Option<About> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &mut *state {
                GateState::Waiting => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                GateState::Open(about) => return about.take().map(|about| *about),
                GateState::Closed => return None,
            }
        }
    }
}

/// A job: what it works on, and how it reports.
pub struct Job {
    /// What asks the repository.
    pub keeper: Arc<Keeper>,
    /// The bucket.
    pub bucket: BucketName,
    /// Its areas.
    pub areas: Areas,
    /// Its number.
    pub number: u64,
    /// Where it reports.
    pub(super) events: Sender<Event>,
}

impl Job {
    /// Stores the bucket of a program that holds still from the beginning.
    pub fn store_version(self, about: About, parent: Option<SnapshotId>, labels: Vec<String>) {
        self.spawn(move |job| {
            let file = AboutFile::default();
            file.write(&about);
            let stillness = Called { job };
            JobEvent::Stored(job.store(&file, &stillness, true, parent, labels))
        });
    }

    /// Stores the bucket in a round: reads it once while its program goes on, then again when the gate
    /// opens.
    pub fn store_round(self, gate: Arc<Gate>, epoch: Epoch, parent: Option<SnapshotId>) {
        self.spawn(move |job| {
            let file = AboutFile::default();
            let stillness = Asked { job, gate: &gate, about: &file };
            let labels = vec![format!("epoch {epoch}")];
            JobEvent::Stored(job.store(&file, &stillness, false, parent, labels))
        });
    }

    /// Compares the bucket, which holds still, with what was stored of it. `about` is what it is now.
    pub fn compare(self, stored: SnapshotId, about: About) {
        self.spawn(move |job| {
            let compare = || {
                let before = job.keeper.about(&job.bucket, stored)?;
                let is_same = (&before.range, before.split_version, &before.areas)
                    == (&about.range, about.split_version, &about.areas);
                Ok(is_same && !job.keeper.differs(&job.bucket, &job.areas, stored)?)
            };
            JobEvent::Compared(compare().map_err(|error: KeepError| error.to_string()))
        });
    }

    /// Fills areas from a snapshot: those named, or all.
    pub fn load(self, wanted: Vec<String>, snapshot: SnapshotId) {
        self.spawn(move |job| {
            let loaded = job.keeper.load(&job.bucket, &job.areas, &wanted, snapshot);
            JobEvent::Loaded(loaded.map(Box::new).map_err(|error| error.to_string()))
        });
    }

    /// Fills areas from a version, if there is one.
    pub fn load_version(self, name: String, version: u64, wanted: Vec<String>) {
        self.spawn(move |job| {
            let load = || {
                let found = job.keeper.newest(&job.bucket, &name, Some(version));
                let found = found.map_err(|error| error.to_string())?;
                let Some((_, snapshot)) = found.filter(|(found, _)| *found == version) else {
                    return Err(format!("there is no version {version} of {name}"));
                };
                let loaded = job.keeper.load(&job.bucket, &job.areas, &wanted, snapshot);
                loaded.map(Box::new).map_err(|error| error.to_string())
            };
            JobEvent::Loaded(load())
        });
    }

    fn store(
        &self,
        about: &AboutFile,
        stillness: &dyn Stillness,
        is_still: bool,
        parent: Option<SnapshotId>,
        labels: Vec<String>,
    ) -> Result<SnapshotId, String> {
        let (bucket, areas) = (&self.bucket, &self.areas);
        let storing = Storing { bucket, areas, about, stillness, is_still, parent, labels };
        let stored = self.keeper.store(&storing);
        stored.map(|outcome| outcome.backup.snapshot.id).map_err(|error| error.to_string())
    }

    fn report(&self, event: JobEvent) {
        // The agent may have ended.
        let _ = self.events.send(Event::Job(self.bucket.clone(), self.number, event));
    }

    fn spawn(self, work: impl FnOnce(&Self) -> JobEvent + Send + 'static) {
        let (bucket, number, events) = (self.bucket.clone(), self.number, self.events.clone());
        let name = format!("{}/{}", bucket.file, bucket.number);
        let started = thread::Builder::new().name(name).spawn(move || {
            let event = work(&self);
            self.report(event);
        });
        if let Err(error) = started {
            let event = JobEvent::Stored(Err(format!("no thread could be started: {error}")));
            let _ = events.send(Event::Job(bucket, number, event));
        }
    }
}

/// The program called, so it holds still.
struct Called<'j> {
    job: &'j Job,
}

/// The program is asked to hold still when all is read once, and by the others of its round.
struct Asked<'j> {
    job: &'j Job,
    gate: &'j Gate,
    about: &'j AboutFile,
}

struct Still<'j> {
    job: &'j Job,
}

const BY_OWNER: Guarantee = Guarantee::new(Guarantee::EXACT, Guarantee::OWNER);

impl Stillness for Called<'_> {
    fn begin(&self) -> Result<Box<dyn StillnessGuard + '_>, String> {
        Ok(Box::new(Still { job: self.job }))
    }

    fn guarantee(&self) -> Guarantee {
        BY_OWNER
    }
}

impl Stillness for Asked<'_> {
    fn begin(&self) -> Result<Box<dyn StillnessGuard + '_>, String> {
        self.job.report(JobEvent::Scanned);
        let about = self.gate.pass().ok_or("the round was given up")?;
        self.about.write(&about);
        Ok(Box::new(Still { job: self.job }))
    }

    fn guarantee(&self) -> Guarantee {
        BY_OWNER
    }
}

impl StillnessGuard for Still<'_> {
    fn end(self: Box<Self>) -> Result<(), String> {
        self.job.report(JobEvent::Captured);
        Ok(())
    }
}
