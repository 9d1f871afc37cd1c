//! Whether a place keeps the promise of exclusive create: it is tried, because some claim it and
//! let two creators in at once.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use strongroom_base::Entropy;
use strongroom_base::entropy::random_array;

use crate::{Backend, BackendError, ObjectName};

/// The folder of what is created for the trial; it is removed afterwards.
pub const TRIAL_FOLDER: &str = "trial";
/// Names that are raced for, one after the other.
const ROUNDS: usize = 3;
/// Creators that race for each, if the place takes as many requests at a time.
const CREATORS_MAX: usize = 16;

/// What a trial found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// Each race had one winner.
    Exclusive,
    /// There is no such operation, or several creators won.
    NotExclusive,
    /// A listing did not show what had been created before it began.
    NotConsistent,
}

/// Races creators for names.
pub fn try_exclusive(backend: &dyn Backend, entropy: &dyn Entropy) -> Result<Trial, BackendError> {
    let mut names = Vec::new();
    let found = race(backend, entropy, &mut names);
    for name in names {
        match backend.remove(&name) {
            // A client that may not remove leaves them: three objects of a few bytes.
            Err(BackendError::Refused { .. }) => {}
            Err(error) if !error.is_not_found() => return found.and(Err(error)),
            _ => {}
        }
    }
    found
}

fn race(
    backend: &dyn Backend,
    entropy: &dyn Entropy,
    names: &mut Vec<ObjectName>,
) -> Result<Trial, BackendError> {
    let creators = backend.promises().in_flight.clamp(2, CREATORS_MAX);
    let mut is_exclusive = true;
    for _ in 0..ROUNDS {
        let chance: [u8; 12] = random_array(entropy);
        let file: String = chance.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = ObjectName::new(TRIAL_FOLDER, file);
        names.push(name.clone());
        let (start, winners) = (Barrier::new(creators), AtomicUsize::new(0));
        let create = |creator: usize| {
            start.wait();
            let created = backend.create(&name, format!("creator {creator}").as_bytes());
            created.inspect(|()| {
                winners.fetch_add(1, Ordering::Relaxed);
            })
        };
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let create = &create;
            let threads: Vec<_> =
                (0..creators).map(|creator| scope.spawn(move || create(creator))).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
        });
        for outcome in outcomes {
            match outcome {
                Ok(()) | Err(BackendError::AlreadyExists { .. }) => {}
                Err(BackendError::Unsupported { .. }) => is_exclusive = false,
                Err(error) => return Err(error),
            }
        }
        is_exclusive &= winners.load(Ordering::Relaxed) == 1;
        if !is_exclusive {
            backend.replace(&name, b"one")?;
        }
        if !backend.list(TRIAL_FOLDER)?.iter().any(|info| info.name == name) {
            return Ok(Trial::NotConsistent);
        }
    }
    Ok(if is_exclusive { Trial::Exclusive } else { Trial::NotExclusive })
}
