//! What takes long: storing, comparing and loading, each on a thread of its own.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread;

use strongroom_base::SnapshotId;
use strongroom_bucket::served::Connection;
use strongroom_bucket::{AreaSize, KeyRange, ToProgram};
use strongroom_catalog::Guarantee;
use strongroom_cluster::{Content, Epoch};
use strongroom_engine::{Stillness, StillnessGuard};
use strongroom_repository::ErrorKind;

use super::Event;
use super::gate::Gate;
use super::torn::Torn;
use crate::about::{About, AboutFile, VersionText};
use crate::counts::Counted;
use crate::keeper::{Areas, BucketName, KeepError, Keeper, Storing, are_zeros, version_label};
use crate::loading::{Loading, Wanted};

/// The name of the version as which a program's own eviction stores its bucket.
const EVICTED: &str = "evicted";

/// How a job is getting on.
pub enum JobEvent {
    /// It has read all once, and needs the program to hold still.
    Scanned,
    /// What the bucket held at the instant is captured.
    Captured,
    /// It is stored.
    Stored(Result<SnapshotId, String>),
    /// Its areas were looked at.
    Found(Content),
    /// It was compared: whether it is still what was stored.
    Compared(Result<bool, String>),
    /// It was filled.
    Loaded(Result<Box<Filled>, String>),
    /// What a program asked of the repository.
    Looked(ToProgram),
    /// It ended in a way that no code of ours foresees.
    Broke,
}

/// What a load has made of a bucket.
pub struct Filled {
    /// What was stored.
    pub about: About,
    /// What is left of loads that did not end. It is written down.
    pub torn: Torn,
}

/// What a program asks of the repository.
pub enum Look {
    /// Whether a version that it did not store on this connection is committed.
    Wait {
        /// The number of its request.
        request: u32,
        /// The version.
        version: VersionText,
    },
    /// Which version of a name is the newest.
    Test {
        /// The number of its request.
        request: u32,
        /// The name.
        name: String,
        /// The version is not above this.
        at_most: Option<u64>,
    },
}

/// A job: what it works on, and how it reports.
pub struct Job {
    /// What asks the repository.
    pub keeper: Arc<Keeper>,
    /// The bucket.
    pub bucket: BucketName,
    /// Its areas.
    pub areas: Arc<Areas>,
    /// Its number.
    pub number: u64,
    /// Lets it go on, or ends it.
    pub gate: Arc<Gate>,
    /// That of its program.
    pub connection: Arc<Connection>,
    /// Where it reports.
    pub(super) events: SyncSender<Event>,
    /// It is one of its user's, or a part of one.
    pub counted: Arc<Counted>,
}

impl Job {
    /// Stores the bucket of a program that holds still from the beginning.
    pub fn store_version(self, about: About, parent: Option<SnapshotId>) -> io::Result<()> {
        self.spawn(move |job| JobEvent::Stored(job.store_called(&about, parent)))
    }

    /// Stores the bucket of a program that wants to be rid of it. Its version is above all that were
    /// stored like this, even if the clock was set back, and above `now`.
    pub fn store_evicted(
        self,
        about: About,
        now: u64,
        parent: Option<SnapshotId>,
    ) -> io::Result<()> {
        self.spawn(move |job| {
            let store = || {
                let newest = job.keeper.newest(&job.bucket, EVICTED, None);
                let newest = newest.map_err(|error| reason(&error))?;
                let next = newest.map_or(0, |(version, _)| version.saturating_add(1));
                let version = VersionText { name: EVICTED.to_owned(), version: next.max(now) };
                job.store_called(&About { version: Some(version), ..about }, parent)
            };
            JobEvent::Stored(store())
        })
    }

    /// Stores the bucket in a round: reads it once while its program goes on, then again when the gate
    /// opens. If the program holds still already, it is read once.
    pub fn store_round(
        self,
        epoch: Epoch,
        parent: Option<SnapshotId>,
        is_still: bool,
    ) -> io::Result<()> {
        self.spawn(move |job| {
            let file = AboutFile::default();
            let stillness = Asked { job, about: &file };
            let labels = vec![format!("epoch {epoch}")];
            JobEvent::Stored(job.store(&file, &stillness, is_still, parent, labels))
        })
    }

    /// Finds out whether the areas of a program that holds still have anything but zeros.
    pub fn look_for_content(self) -> io::Result<()> {
        self.spawn(move |job| {
            // What cannot be read is not known to be empty. Its store fails for the same reason.
            let zeros = are_zeros(&job.areas, &job.gate.cancel).unwrap_or(false);
            JobEvent::Found(if zeros { Content::Empty } else { Content::Filled })
        })
    }

    /// Compares the bucket, which holds still, with what was stored of it. `about` is what it is now.
    pub fn compare(self, stored: SnapshotId, about: About) -> io::Result<()> {
        self.spawn(move |job| {
            let compare = || {
                let before = job.keeper.about(&job.bucket, stored)?;
                let is_same = (&before.range, before.split_version, &before.areas)
                    == (&about.range, about.split_version, &about.areas);
                let (areas, cancel) = (&job.areas, &job.gate.cancel);
                Ok(is_same && !job.keeper.differs(&job.bucket, areas, stored, cancel)?)
            };
            JobEvent::Compared(compare().map_err(|error| reason(&error)))
        })
    }

    /// Fills all areas that a snapshot has; it must have the keys that the program claims. If it claims
    /// any, the areas are zeros or torn.
    pub fn load(
        self,
        claimed: Option<KeyRange>,
        torn: Torn,
        snapshot: SnapshotId,
    ) -> io::Result<()> {
        self.spawn(move |job| {
            let wanted = Wanted { areas: &[], range: claimed.as_ref(), snapshot };
            JobEvent::Loaded(job.fill(wanted, torn))
        })
    }

    /// Fills areas from a version, if there is one.
    pub fn load_version(
        self,
        version: VersionText,
        wanted: Vec<String>,
        torn: Torn,
    ) -> io::Result<()> {
        self.spawn(move |job| {
            let VersionText { name, version } = version;
            let load = || {
                let found = job.keeper.newest(&job.bucket, &name, Some(version));
                let found = found.map_err(|error| reason(&error))?;
                let Some((_, snapshot)) = found.filter(|(found, _)| *found == version) else {
                    return Err(format!("there is no version {version} of {name}"));
                };
                job.fill(Wanted { areas: &wanted, range: None, snapshot }, torn)
            };
            JobEvent::Loaded(load())
        })
    }

    /// Answers a program after a look into the repository.
    pub fn look(self, look: Look) -> io::Result<()> {
        self.spawn(move |job| JobEvent::Looked(answer_to(&job.keeper, &job.bucket, look)))
    }

    fn store_called(
        &self,
        about: &About,
        parent: Option<SnapshotId>,
    ) -> Result<SnapshotId, String> {
        let file = AboutFile::default();
        file.write(about);
        let labels = about.version.iter().map(|it| version_label(&it.name, it.version)).collect();
        self.store(&file, &Called { job: self }, true, parent, labels)
    }

    fn store(
        &self,
        about: &AboutFile,
        stillness: &dyn Stillness,
        is_still: bool,
        parent: Option<SnapshotId>,
        labels: Vec<String>,
    ) -> Result<SnapshotId, String> {
        let (bucket, areas, cancel) = (&self.bucket, &self.areas, &self.gate.cancel);
        let storing = Storing { bucket, areas, about, stillness, is_still, parent, labels, cancel };
        let stored = self.keeper.store(&storing);
        stored.map(|outcome| outcome.backup.snapshot.id).map_err(|error| reason(&error))
    }

    /// Fills areas. These alone are whole then, if the program held still until the end.
    fn fill(&self, wanted: Wanted<'_>, mut torn: Torn) -> Result<Box<Filled>, String> {
        let loading = self.keeper.plan_load(&self.bucket, &self.areas, wanted, &self.gate.cancel);
        let loading = loading.map_err(|error| reason(&error))?;
        match wanted.range {
            Some(_) => self.fill_claimed(&loading, &mut torn)?,
            None => loading.fill().map_err(|error| reason(&error))?,
        }
        if self.is_void() {
            return Err(WENT_ON_LOADING.to_owned());
        }
        torn.remove(&self.areas, |name| loading.has(name)).map_err(not_noted)?;
        Ok(Box::new(Filled { about: loading.about(), torn }))
    }

    /// Fills areas of a program that has keys there already: they are torn. If that fails, they are made
    /// zeros again, as long as the program holds still and they were zeros before: of memory that a load
    /// has torn before, a program may have made something else.
    fn fill_claimed(&self, loading: &Loading<'_>, torn: &mut Torn) -> Result<(), String> {
        let before = std::mem::replace(torn, torn.with(loading.areas()));
        torn.write().map_err(not_noted)?;
        // A program that connects from here on finds out what is being filled.
        if self.is_void() {
            before.write().map_err(not_noted)?;
            return Err(WENT_ON_LOADING.to_owned());
        }
        let filled = loading.fill().map_err(|error| reason(&error));
        let were_zeros = !before.has(&self.areas);
        if filled.is_err()
            && were_zeros
            && !self.is_void()
            && loading.zero().is_ok()
            && !self.is_void()
        {
            before.write().map_err(not_noted)?;
        }
        filled
    }

    /// Whether its program may have gone on: it was let go, or is gone.
    fn is_void(&self) -> bool {
        self.gate.cancel.is_cancelled() || self.connection.is_over()
    }

    fn report(&self, event: JobEvent) {
        // The agent may have ended.
        let _ = self.events.send(Event::Job(self.bucket.clone(), self.number, event));
    }

    fn spawn(self, work: impl FnOnce(&Self) -> JobEvent + Send + 'static) -> io::Result<()> {
        let name = format!("{}/{}", self.bucket.file, self.bucket.number);
        let run = move || {
            // A job that ends without a report would leave its program stopped.
            let event = catch_unwind(AssertUnwindSafe(|| work(&self)));
            let Self { bucket, number, events, counted, .. } = self;
            // Once it is known to have ended, its user may begin another.
            drop(counted);
            // The agent may have ended.
            let _ = events.send(Event::Job(bucket, number, event.unwrap_or(JobEvent::Broke)));
        };
        thread::Builder::new().name(name).spawn(run).map(drop)
    }
}

/// What programs and clients hear. They do not know which key the agent has.
fn reason(error: &KeepError) -> String {
    match error {
        KeepError::Engine(error) if error.kind() == ErrorKind::PutOnly => ONLY_STORES.to_owned(),
        error => error.to_string(),
    }
}

fn not_noted(error: io::Error) -> String {
    format!("it cannot be written down beside the records of rounds that it is loaded: {error}")
}

const ONLY_STORES: &str = "the key of its agent can only store: to free or load it, start the agent \
    with a key that can read, of `strongroom key add` without --put-only";

fn answer_to(keeper: &Keeper, bucket: &BucketName, look: Look) -> ToProgram {
    match look {
        Look::Wait { request, version: VersionText { name, version } } => {
            let found = keeper.newest(bucket, &name, Some(version));
            let reason = match found {
                Ok(Some((found, _))) if found == version => return ToProgram::Done { request },
                Ok(_) => "it was never stored".to_owned(),
                Err(error) => reason(&error),
            };
            ToProgram::Failed { request, reason }
        }
        Look::Test { request, name, at_most } => {
            let found = keeper.newest(bucket, &name, at_most).and_then(|found| {
                let Some((version, snapshot)) = found else { return Ok((None, Vec::new())) };
                let areas = keeper.about(bucket, snapshot)?.areas.into_iter();
                let areas = areas.map(|area| AreaSize { area: area.name, bytes: area.bytes });
                Ok((Some(version), areas.collect()))
            });
            match found {
                Ok((version, areas)) => ToProgram::Found { request, version, areas },
                Err(error) => ToProgram::Failed { request, reason: reason(&error) },
            }
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
    about: &'j AboutFile,
}

struct Still<'j> {
    job: &'j Job,
}

const WENT_ON: &str = "its program went on, or ended, before all was read";

const WENT_ON_LOADING: &str = "its program went on, or ended, before all was loaded";

const BY_OWNER: Guarantee = Guarantee::new(Guarantee::EXACT, Guarantee::OWNER);

impl Stillness for Called<'_> {
    fn begin(&self) -> Result<Box<dyn StillnessGuard + '_>, String> {
        // If a session was lost after that, all is read again, and is not what it was.
        if self.job.gate.is_open() && !self.job.connection.is_over() {
            Ok(Box::new(Still { job: self.job }))
        } else {
            Err(WENT_ON.to_owned())
        }
    }

    fn guarantee(&self) -> Guarantee {
        BY_OWNER
    }
}

impl Stillness for Asked<'_> {
    fn begin(&self) -> Result<Box<dyn StillnessGuard + '_>, String> {
        if self.job.gate.is_waiting() {
            self.job.report(JobEvent::Scanned);
        }
        let about = self.job.gate.pass().ok_or("the round was given up")?;
        self.about.write(&about);
        Ok(Box::new(Still { job: self.job }))
    }

    fn guarantee(&self) -> Guarantee {
        BY_OWNER
    }
}

impl StillnessGuard for Still<'_> {
    fn end(self: Box<Self>) -> Result<(), String> {
        // The agent may have to do something else before it hears that the program has ended.
        if self.job.connection.is_over() || !self.job.gate.capture() {
            return Err(WENT_ON.to_owned());
        }
        self.job.report(JobEvent::Captured);
        Ok(())
    }
}
