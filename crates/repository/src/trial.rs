//! Whether the place takes one creator of a name, as it promised: tried when a repository is made, and
//! once by each machine that stores there. A place may have changed since, or lie to some.

use std::fs::{self, File};
use std::path::Path;

use strongroom_backend::{Backend, BackendError, Operation, Refusal, Trial, try_exclusive};
use strongroom_base::Entropy;

use crate::config::{STORE_AGREED, STORE_EXCLUSIVE};
use crate::error::RepositoryError;

/// The file in the cache of a repository that says that this machine has tried.
const FILE: &str = "tried";

/// How names can be taken at a place: it is tried, unless the place is sure.
pub fn mode_of(backend: &dyn Backend, entropy: &dyn Entropy) -> Result<u8, RepositoryError> {
    let promises = backend.promises();
    let found = match promises.is_exclusive {
        _ if promises.is_consistent == Some(false) => Trial::NotConsistent,
        Some(true) => Trial::Exclusive,
        _ => try_exclusive(backend, entropy)?,
    };
    match found {
        Trial::Exclusive => Ok(STORE_EXCLUSIVE),
        Trial::NotExclusive => Ok(STORE_AGREED),
        Trial::NotConsistent => Err(RepositoryError::Backend(BackendError::Refused {
            operation: Operation::Open,
            what: backend.describe(),
            refusal: Refusal::Listings,
            answer: "its listings do not show at once what was stored".to_owned(),
        })),
    }
}

/// Tries a place on whose exclusive create a repository relies, unless the place is sure or this
/// machine has done so. `folder` has the repository's caches.
///
/// # Errors
///
/// [`RepositoryError::NotExclusive`] if the place lets several creators of one name in, and that of
/// listings that lag. A place that does not allow the trial is not tried.
pub fn try_again(
    backend: &dyn Backend,
    entropy: &dyn Entropy,
    folder: &Path,
) -> Result<(), RepositoryError> {
    if backend.promises().is_exclusive.is_some() || folder.join(FILE).exists() {
        return Ok(());
    }
    match mode_of(backend, entropy) {
        Ok(STORE_EXCLUSIVE) => note(folder),
        Ok(_) => return Err(RepositoryError::NotExclusive { place: backend.describe() }),
        Err(
            error @ RepositoryError::Backend(BackendError::Refused {
                refusal: Refusal::Listings,
                ..
            }),
        ) => return Err(error),
        Err(_) => {}
    }
    Ok(())
}

/// Takes note of a trial that this machine has made.
pub fn note(folder: &Path) {
    // If it cannot be written, the next backup tries again.
    let _ = fs::create_dir_all(folder).and_then(|()| File::create(folder.join(FILE)));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use strongroom_backend::{MemoryBackend, ObjectInfo, ObjectName, Promises, Room, Stores};
    use strongroom_base::{FixedClock, SeededEntropy, Timestamp};

    use super::*;
    use crate::keys::KdfCost;
    use crate::repository::{InitOptions, Repository, Surroundings};
    use crate::session::Session;

    const PASSPHRASE: &[u8] =
        b"strongroom-key-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a4f56ba95";

    /// A place that only claims to be exclusive.
    #[derive(Default)]
    struct Claimant {
        inner: MemoryBackend,
        lies: AtomicBool,
        trials: AtomicUsize,
    }

    impl Backend for Claimant {
        fn read(&self, name: &ObjectName, at: u64, length: usize) -> Result<Vec<u8>, BackendError> {
            self.inner.read(name, at, length)
        }
        fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
            self.inner.size(name)
        }
        fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
            self.trials.fetch_add(usize::from(name.folder() == "trial"), Ordering::Relaxed);
            match self.lies.load(Ordering::Relaxed) {
                true => self.inner.replace(name, bytes),
                false => self.inner.create(name, bytes),
            }
        }
        fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
            self.inner.replace(name, bytes)
        }
        fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
            self.inner.remove(name)
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
            self.inner.list(folder)
        }
        fn sweep(&self) -> Result<usize, BackendError> {
            self.inner.sweep()
        }
        fn promises(&self) -> Promises {
            Promises { is_exclusive: None, in_flight: 4, ..self.inner.promises() }
        }
        fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
            self.inner.holds_at_most(folder)
        }
        fn describe(&self) -> String {
            "the claimant".to_owned()
        }
        fn folders(&self) -> Vec<std::path::PathBuf> {
            Vec::new()
        }
    }

    #[test]
    fn each_machine_tries_the_place_once_and_a_lie_is_reported() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = Arc::new(Claimant::default());
        let surroundings = |cache: Option<&Path>| Surroundings {
            backend: place.clone(),
            clock: Arc::new(FixedClock(Timestamp(0))),
            entropy: Arc::new(SeededEntropy::new(1)),
            cache: cache.map(ToOwned::to_owned),
        };
        let options = InitOptions { cost: Some(KdfCost::CHEAPEST), ..InitOptions::default() };
        let made =
            Repository::init(surroundings(Some(first.path())), PASSPHRASE, &options).unwrap();
        assert_eq!(made.config.store, STORE_EXCLUSIVE);
        let of_init = place.trials.load(Ordering::Relaxed);
        assert!(of_init > 0);
        drop(Session::begin(&made, "first").unwrap());
        assert_eq!(place.trials.load(Ordering::Relaxed), of_init, "init has tried it");
        let open = |cache| Repository::open(surroundings(cache), PASSPHRASE).unwrap();
        for _ in 0..2 {
            drop(Session::begin(&open(Some(second.path())), "second").unwrap());
            assert_eq!(place.trials.load(Ordering::Relaxed), 2 * of_init);
        }
        assert!(place.list("trial").unwrap().is_empty());
        place.lies.store(true, Ordering::Relaxed);
        let third = tempfile::tempdir().unwrap();
        let refused = Session::begin(&open(Some(third.path())), "third").map(drop);
        assert!(matches!(refused, Err(RepositoryError::NotExclusive { .. })), "{refused:?}");
        assert!(place.list("sessions").unwrap().is_empty());
        // Who cannot remember does not try each time.
        let before = place.trials.load(Ordering::Relaxed);
        drop(Session::begin(&open(None), "fourth").unwrap());
        assert_eq!(place.trials.load(Ordering::Relaxed), before);
    }
}
