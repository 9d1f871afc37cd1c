//! Work on many objects with several requests in flight, and a bound for the bytes of all of them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::bounded;
use strongroom_backend::{Backend, ObjectInfo};
use strongroom_base::regimes::{Regime, reached_if};
use strongroom_base::{Cancel, SizeLimits};
use strongroom_repository::RepositoryError;

/// The most requests at a time: more gain little, and each holds an object in memory.
const REQUESTS_MAX: usize = 16;

/// How much is in flight at a time.
#[derive(Debug, Clone, Copy)]
pub struct Flight {
    /// Requests.
    pub requests: usize,
    /// Bytes of objects in memory. One object may have more; then it is alone.
    pub bytes_max: u64,
}

impl Flight {
    /// As much as is worth it if objects go from one place to another.
    pub fn between(one: &dyn Backend, other: &dyn Backend, limits: &SizeLimits) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from).min(2);
        let wanted = one.promises().in_flight.max(other.promises().in_flight);
        let requests = wanted.max(processors).min(REQUESTS_MAX);
        Self { requests, bytes_max: limits.flight_bytes_max }
    }
}

/// Calls `work` for each object on as many threads, and `take` with each result on this one, in any
/// order. After the first error no other object is begun, and that error is returned.
pub fn each_in_flight<T: Send>(
    objects: &[ObjectInfo],
    flight: Flight,
    cancel: &Cancel,
    work: &(dyn Fn(&ObjectInfo) -> Result<T, RepositoryError> + Sync),
    take: &mut dyn FnMut(&ObjectInfo, T),
) -> Result<(), RepositoryError> {
    let Flight { requests, bytes_max } = flight;
    let (next, is_over, budget) =
        (AtomicUsize::new(0), AtomicBool::new(false), Budget::new(bytes_max));
    let mut failed = None;
    std::thread::scope(|scope| {
        let (send, receive) = bounded(requests);
        for _ in 0..requests.min(objects.len()) {
            let (send, next, is_over, budget) = (send.clone(), &next, &is_over, &budget);
            scope.spawn(move || {
                while !cancel.is_cancelled() && !is_over.load(Ordering::Relaxed) {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(info) = objects.get(place) else { return };
                    let held = budget.take(info.bytes);
                    let done = work(info);
                    drop(held);
                    if send.send((place, done)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for (place, done) in receive {
            match done {
                Ok(done) => take(&objects[place], done),
                Err(error) => {
                    is_over.store(true, Ordering::Relaxed);
                    failed = failed.take().or(Some(error));
                }
            }
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(cancel.check()?),
    }
}

/// Bytes that may be in memory.
struct Budget {
    max: u64,
    // A plain mutex: held while a number is changed.
    taken: Mutex<u64>,
    freed: Condvar,
}

/// Bytes that are in memory until this is dropped.
struct Held<'b> {
    budget: &'b Budget,
    bytes: u64,
}

impl Budget {
    fn new(max: u64) -> Self {
        Self { max, taken: Mutex::new(0), freed: Condvar::new() }
    }

    fn take(&self, bytes: u64) -> Held<'_> {
        let bytes = bytes.min(self.max);
        let mut taken = self.taken();
        reached_if(*taken + bytes > self.max, Regime::FlightFull);
        while *taken + bytes > self.max {
            taken = self.freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += bytes;
        Held { budget: self, bytes }
    }

    fn taken(&self) -> MutexGuard<'_, u64> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.budget.taken() -= self.bytes;
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use strongroom_backend::{BackendError, ObjectName};

    use super::*;

    const BYTES_MAX: u64 = SizeLimits::DEFAULT.flight_bytes_max;

    fn flight(requests: usize) -> Flight {
        Flight { requests, bytes_max: BYTES_MAX }
    }

    fn objects(count: u64, bytes: u64) -> Vec<ObjectInfo> {
        let name = |number| ObjectName::new("arenas", number);
        (0..count).map(|number| ObjectInfo { name: name(number), bytes }).collect()
    }

    #[test]
    fn each_object_is_worked_on_once_and_bytes_are_bounded() {
        let objects = objects(100, BYTES_MAX / 3);
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut seen = Vec::new();
        let work = |info: &ObjectInfo| {
            let bytes = now.fetch_add(info.bytes, Ordering::SeqCst) + info.bytes;
            most.fetch_max(bytes, Ordering::SeqCst);
            std::thread::yield_now();
            now.fetch_sub(info.bytes, Ordering::SeqCst);
            Ok(info.name.clone())
        };
        each_in_flight(&objects, flight(8), &Cancel::new(), &work, &mut |info, name| {
            assert_eq!(info.name, name);
            seen.push(name);
        })
        .unwrap();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 100);
        assert!(most.into_inner() <= BYTES_MAX);
    }

    #[test]
    fn an_error_ends_it_and_an_object_beyond_the_bound_is_alone() {
        let objects = objects(20, 2 * BYTES_MAX);
        let mut taken = 0;
        let work = |info: &ObjectInfo| match info.name.file() {
            "7" => Err(BackendError::NotFound { name: info.name.clone() }.into()),
            _ => Ok(()),
        };
        let done =
            each_in_flight(&objects, flight(4), &Cancel::new(), &work, &mut |_, ()| taken += 1);
        assert!(done.is_err());
        assert!((7..=19).contains(&taken), "{taken}");
        let stopped = Cancel::new();
        stopped.cancel();
        let done = each_in_flight(&objects, flight(4), &stopped, &work, &mut |_, ()| {});
        assert!(matches!(done, Err(RepositoryError::Cancelled(_))));
    }
}
