//! A backend of any service: repeats what may be repeated, and reads back what is ambiguous.
//!
//! A request without an answer may have been carried out, and may still be carried out later. So a
//! repeated *create* can find its own object: a caller that finds a name taken compares what is there
//! with what it wanted to store, and equal bytes are success. So they are if a later attempt is
//! refused, and only the refusal of a first attempt says that nothing was stored. Before a long
//! object is sent again, its size is asked for: the answer alone may have been lost.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use strongroom_backend::{
    Backend, BackendError, ObjectInfo, ObjectName, Operation, Promises, Refusal, Room, Stores,
};
use strongroom_base::entropy::random_array;
use strongroom_base::{Cancel, Entropy, Stopwatch, Timestamp};

use crate::failure::Failure;
use crate::lanes::Lanes;
use crate::service::Service;
use crate::settings::Settings;

/// The first pause before a request is repeated; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A place that never answered is given up after this time: its name is probably wrong.
const PATIENCE_WITH_STRANGERS: Duration = Duration::from_secs(5);
/// Objects of at least this many bytes are looked for before they are sent again.
const LONG_BYTES: usize = 256 << 10;
/// A wait is interrupted this often to see whether the user asked for an end.
const NAP: Duration = Duration::from_millis(100);

/// What is under a name, compared with what was to be stored there.
enum Found {
    /// The same bytes.
    Equal,
    /// Others, or nothing that can be read.
    Other,
    /// As many bytes, which this client is not given.
    OfEqualLength(Failure),
    /// Bytes of which this client does not even learn how many, or nothing: some places say no more of what
    /// does not exist.
    Unseen(Failure),
}

/// Whether a place has an object and does not give it to this client.
fn is_withheld(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused { refusal: Refusal::Right | Refusal::Archived, .. })
}

/// A backend of a service.
pub(crate) struct Remote<S> {
    service: S,
    lanes: Lanes,
    patience: Duration,
    cancel: Cancel,
    entropy: Arc<dyn Entropy>,
    is_drawn: fn(&ObjectName) -> bool,
    /// Whether any request was ever answered.
    has_answered: AtomicBool,
}

impl<S: Service> Remote<S> {
    /// Takes the limits from the settings.
    pub(crate) fn new(service: S, settings: &Settings) -> Self {
        let in_flight = settings.connections.unwrap_or(service.promises().in_flight);
        Self {
            service,
            lanes: Lanes::new(in_flight),
            patience: settings.patience,
            cancel: settings.cancel.clone(),
            entropy: settings.entropy.clone(),
            is_drawn: settings.is_drawn,
            has_answered: AtomicBool::new(false),
        }
    }

    /// Whether the place itself is there.
    pub(crate) fn is_there(&self) -> Result<bool, BackendError> {
        self.repeat(|_| self.service.is_there())
            .map_err(|failure| failure.into_error(Operation::Open, None, &self.describe()))
    }

    /// Makes the place itself.
    pub(crate) fn make(&self) -> Result<(), BackendError> {
        self.repeat(|_| self.service.make())
            .map_err(|failure| failure.into_error(Operation::Open, None, &self.describe()))
    }

    /// Makes attempts until one is answered or the patience is at an end. The attempt is given the
    /// number of those before it that may have been carried out.
    fn repeat<T>(&self, attempt: impl Fn(usize) -> Result<T, Failure>) -> Result<T, Failure> {
        let started = Stopwatch::start();
        let mut lost = 0;
        for number in 0_u32.. {
            let outcome = {
                let _lane = self.lanes.take();
                attempt(lost)
            };
            let asked = match &outcome {
                Err(Failure::Busy { after, .. }) => {
                    self.lanes.is_too_many();
                    *after
                }
                Err(Failure::Lost(_)) => {
                    lost += 1;
                    None
                }
                _ => {
                    self.lanes.answered();
                    self.has_answered.store(true, Ordering::Relaxed);
                    return match outcome {
                        // What an earlier attempt has sent may still be carried out.
                        Err(Failure::Full { .. }) if number > 0 => {
                            Err(Failure::Full { may_exist: true })
                        }
                        other => other,
                    };
                }
            };
            let is_known = self.has_answered.load(Ordering::Relaxed);
            let patience =
                if is_known { self.patience } else { self.patience.min(PATIENCE_WITH_STRANGERS) };
            let pause = asked.unwrap_or_else(|| self.pause(number)).min(PAUSE_MAX * 4);
            if self.cancel.is_cancelled() || started.elapsed() + pause > patience {
                return outcome;
            }
            self.sleep(pause);
        }
        unreachable!("patience ends before the numbers do")
    }

    /// Between half and all of the time that doubles with each attempt, by chance: many clients
    /// that lost one server do not come back at one moment.
    fn pause(&self, number: u32) -> Duration {
        let whole = PAUSE_MIN.saturating_mul(1 << number.min(16)).min(PAUSE_MAX);
        let [chance] = random_array(&*self.entropy);
        whole / 2 + whole / 2 * u32::from(chance) / 255
    }

    fn sleep(&self, pause: Duration) {
        let started = Stopwatch::start();
        while started.elapsed() < pause && !self.cancel.is_cancelled() {
            std::thread::sleep(NAP.min(pause));
        }
    }

    fn of(&self, operation: Operation, name: &ObjectName, failure: Failure) -> BackendError {
        failure.into_error(operation, Some(name), &self.service.describe())
    }

    /// Compares an object with these bytes. One that cannot be read has others, as far as the caller
    /// can know.
    fn look(&self, name: &ObjectName, bytes: &[u8]) -> Result<Found, Failure> {
        match self.service.size(name) {
            Ok(size) if size != bytes.len() as u64 => return Ok(Found::Other),
            // Of an empty object, some servers cannot send a part.
            Ok(0) => return Ok(Found::Equal),
            Ok(_) => {}
            Err(failure) if is_withheld(&failure) => return Ok(Found::Unseen(failure)),
            Err(failure) if failure.is_of_the_object() => return Ok(Found::Other),
            Err(failure) => return Err(failure),
        }
        match self.service.read(name, 0, bytes.len() + 1) {
            Ok(found) if found == bytes => Ok(Found::Equal),
            Ok(_) => Ok(Found::Other),
            Err(failure) if is_withheld(&failure) => Ok(Found::OfEqualLength(failure)),
            Err(failure) if failure.is_of_the_object() => Ok(Found::Other),
            Err(failure) => Err(failure),
        }
    }

    /// One attempt at a create, after some that may have been carried out.
    fn try_create(&self, name: &ObjectName, bytes: &[u8], lost: usize) -> Result<(), Failure> {
        if lost > 0 && bytes.len() >= LONG_BYTES {
            match self.service.size(name) {
                Ok(_) => match self.look(name, bytes)? {
                    // A place that compares by itself, as our server does, says more.
                    Found::OfEqualLength(_) if !(self.is_drawn)(name) => {}
                    found => return self.conclude(name, found),
                },
                Err(Failure::NotFound) => {}
                // Another create says whether it is there.
                Err(failure) if is_withheld(&failure) && (self.is_drawn)(name) => {}
                Err(failure) => return Err(failure),
            }
        }
        match self.service.create(name, bytes) {
            Err(Failure::Taken) => match self.look(name, bytes)? {
                // It is there, and no other writer draws the same name.
                Found::Unseen(_) if lost > 0 && (self.is_drawn)(name) => Ok(()),
                found => self.conclude(name, found),
            },
            // Of the room or the rights that are lacking now, an earlier attempt may have had enough.
            Err(Failure::Full { .. } | Failure::Refused { .. })
                if lost > 0 && self.compare(name, bytes).is_ok() =>
            {
                Ok(())
            }
            other => other,
        }
    }

    fn compare(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure> {
        let found = self.look(name, bytes)?;
        self.conclude(name, found)
    }

    /// Whether what was found under a name is what was to be stored there.
    fn conclude(&self, name: &ObjectName, found: Found) -> Result<(), Failure> {
        match found {
            Found::Equal => Ok(()),
            Found::Other => Err(Failure::Taken),
            // No other writer draws the same name.
            Found::OfEqualLength(_) if (self.is_drawn)(name) => Ok(()),
            Found::OfEqualLength(Failure::Refused { refusal: Refusal::Archived, .. }) => {
                Err(Failure::Taken)
            }
            Found::OfEqualLength(failure) | Found::Unseen(failure) => Err(failure),
        }
    }

    /// One attempt at a removal, after some of which one may have been carried out.
    fn try_remove(&self, name: &ObjectName, may_be_done: &Cell<bool>) -> Result<(), Failure> {
        // Otherwise two callers that remove one object would both have removed it.
        if !may_be_done.get() && !self.service.says_what_it_removed() {
            self.service.size(name)?;
        }
        let removed = self.service.check_removable(name).and_then(|()| {
            let removed = self.service.remove(name);
            // Of the questions before it, a lost answer changes nothing.
            may_be_done.set(may_be_done.get() || matches!(removed, Err(Failure::Lost(_))));
            removed
        });
        match removed {
            // An earlier attempt has removed it.
            Err(Failure::NotFound) if may_be_done.get() => Ok(()),
            other => other,
        }
    }
}

impl<S: Service> Backend for Remote<S> {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        self.repeat(|_| self.service.read(name, offset, length))
            .map_err(|failure| self.of(Operation::Read, name, failure))
    }

    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        self.repeat(|_| self.service.size(name))
            .map_err(|failure| self.of(Operation::Read, name, failure))
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.repeat(|lost| self.try_create(name, bytes, lost))
            .map_err(|failure| self.of(Operation::Write, name, failure))
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.repeat(|_| self.service.replace(name, bytes))
            .map_err(|failure| self.of(Operation::Write, name, failure))
    }

    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        let may_be_done = Cell::new(false);
        self.repeat(|_| self.try_remove(name, &may_be_done))
            .map_err(|failure| self.of(Operation::Remove, name, failure))
    }

    fn discard(&self, name: &ObjectName) -> Result<(), BackendError> {
        let remove = || self.service.check_removable(name).and_then(|()| self.service.remove(name));
        match self.repeat(|_| remove()) {
            Ok(()) | Err(Failure::NotFound) => Ok(()),
            Err(failure) => Err(self.of(Operation::Remove, name, failure)),
        }
    }

    fn room(&self) -> Option<&dyn Room> {
        None
    }

    fn stores(&self) -> Option<&dyn Stores> {
        None
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, BackendError> {
        let mut objects = self.repeat(|_| self.service.list(folder)).map_err(|failure| {
            let place = format!("{}/{folder}", self.describe());
            failure.into_error(Operation::List, None, &place)
        })?;
        objects.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(objects)
    }

    fn sweep(&self) -> Result<usize, BackendError> {
        self.repeat(|_| self.service.sweep())
            .map_err(|failure| failure.into_error(Operation::Remove, None, &self.describe()))
    }

    fn promises(&self) -> Promises {
        let promises = self.service.promises();
        Promises { in_flight: self.lanes.most(), ..promises }
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        self.repeat(|_| self.service.holds_at_most(folder))
            .map_err(|failure| failure.into_error(Operation::List, None, &self.describe()))
    }

    fn copy(&self, from: &ObjectName, to: &ObjectName) -> Result<(), BackendError> {
        self.repeat(|_| self.service.copy(from, to))
            .map_err(|failure| self.of(Operation::Write, from, failure))
    }

    fn retain(&self, name: &ObjectName, until: Timestamp) -> Result<(), BackendError> {
        self.repeat(|_| self.service.retain(name, until))
            .map_err(|failure| self.of(Operation::Write, name, failure))
    }

    fn prove(&self, name: &ObjectName, challenge: &[u8]) -> Result<Vec<u8>, BackendError> {
        self.repeat(|_| self.service.prove(name, challenge))
            .map_err(|failure| self.of(Operation::Read, name, failure))
    }

    fn complaint(&self) -> Option<String> {
        self.service.complaint()
    }

    fn describe(&self) -> String {
        self.service.describe()
    }

    fn folders(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}
