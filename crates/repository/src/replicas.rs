//! A repository that is read together with its replicas: what is lost here is read there.
//!
//! An object that is missing here, that the medium refuses or that the place withholds, is read from the first replica that
//! has it. One that is damaged is noticed by those who check it ([`Backend::replicas`]): arenas when
//! they open, small objects when they are read. Only for verbs that read: everything is written to
//! the repository itself, and a backup that relied on a replica would leave a repository that is not
//! whole.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strongroom_arena::{ARENAS_FOLDER, ArenaName};
use strongroom_backend::{Backend, BackendError, ObjectInfo, ObjectName, Promises, Room, Stores};
use strongroom_base::{ArenaId, Stopwatch, Timestamp};

/// For so long a listing of the replicas is not repeated: a mount lists snapshots every three
/// seconds, and replicas change when they are copied to.
const LISTING_LIFETIME: Duration = Duration::from_secs(60);

/// A repository, and other places that have its objects.
pub struct WithReplicas {
    main: Arc<dyn Backend>,
    replicas: Vec<Arc<dyn Backend>>,
    helped: AtomicU64,
    // Plain mutexes: held for a map operation, never while a place is asked.
    /// The arenas that exist here in any generation, once one was missing.
    own_arenas: Mutex<Option<Arc<HashSet<ArenaId>>>>,
    listed: Mutex<HashMap<String, (Stopwatch, Vec<ObjectInfo>)>>,
}

impl WithReplicas {
    /// Reads from `main`, and what is lost there from `replicas`, in this order.
    pub fn new(main: Arc<dyn Backend>, replicas: Vec<Arc<dyn Backend>>) -> Self {
        Self {
            main,
            replicas,
            helped: AtomicU64::new(0),
            own_arenas: Mutex::default(),
            listed: Mutex::default(),
        }
    }

    /// How often a replica was asked for something that is missing here.
    pub fn helped(&self) -> u64 {
        self.helped.load(Ordering::Relaxed)
    }

    /// What `call` gives here, and otherwise in a replica. The error is that of this place.
    fn here_or_there<T>(
        &self,
        name: &ObjectName,
        call: impl Fn(&dyn Backend) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let error = match call(&*self.main) {
            Err(error) if error.is_not_found() || error.is_damage() || error.is_withheld() => error,
            other => return other,
        };
        if error.is_not_found() && self.has_other_generation(name)? {
            return Err(error);
        }
        for replica in &self.replicas {
            if let Ok(found) = call(&**replica) {
                self.helped.fetch_add(1, Ordering::Relaxed);
                return Ok(found);
            }
        }
        Err(error)
    }

    /// Whether an arena exists here under another name: it was rewritten, and replicas may have all
    /// that it once was. The reader will find it by a listing.
    fn has_other_generation(&self, name: &ObjectName) -> Result<bool, BackendError> {
        let Some(arena) = ArenaName::of(name) else { return Ok(false) };
        let known = lock(&self.own_arenas).clone();
        let known = match known {
            Some(known) => known,
            None => {
                let names = self.main.list(ARENAS_FOLDER)?.into_iter();
                let ids = names.filter_map(|info| ArenaName::of(&info.name)).map(|name| name.id);
                let known = Arc::new(ids.collect::<HashSet<_>>());
                *lock(&self.own_arenas) = Some(known.clone());
                known
            }
        };
        Ok(known.contains(&arena.id))
    }

    /// What any replica has in a folder; nothing of those that do not answer.
    fn list_replicas(&self, folder: &str) -> Vec<ObjectInfo> {
        if let Some((since, listed)) = lock(&self.listed).get(folder)
            && since.elapsed() < LISTING_LIFETIME
        {
            return listed.clone();
        }
        let lists = self.replicas.iter().filter_map(|replica| replica.list(folder).ok());
        let listed: Vec<ObjectInfo> = lists.flatten().collect();
        lock(&self.listed).insert(folder.to_owned(), (Stopwatch::start(), listed.clone()));
        listed
    }
}

impl Backend for WithReplicas {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        self.here_or_there(name, |place| place.read(name, offset, length))
    }

    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        self.here_or_there(name, |place| place.size(name))
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.main.create(name, bytes)
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.main.replace(name, bytes)
    }

    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        self.main.remove(name)
    }

    fn discard(&self, name: &ObjectName) -> Result<(), BackendError> {
        self.main.discard(name)
    }

    fn room(&self) -> Option<&dyn Room> {
        self.main.room()
    }

    fn stores(&self) -> Option<&dyn Stores> {
        self.main.stores()
    }

    fn complaint(&self) -> Option<String> {
        self.main.complaint()
    }

    /// What is here and in the replicas. An arena that is here in any generation is not listed in
    /// those that only replicas have: it is asked for those once what is here is not enough.
    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, BackendError> {
        let own = self.main.list(folder)?;
        let ids: HashSet<ArenaId> =
            own.iter().filter_map(|info| ArenaName::of(&info.name)).map(|name| name.id).collect();
        let mut all: BTreeMap<ObjectName, u64> = BTreeMap::new();
        for info in self.list_replicas(folder) {
            if !ArenaName::of(&info.name).is_some_and(|arena| ids.contains(&arena.id)) {
                all.insert(info.name, info.bytes);
            }
        }
        all.extend(own.into_iter().map(|info| (info.name, info.bytes)));
        Ok(all.into_iter().map(|(name, bytes)| ObjectInfo { name, bytes }).collect())
    }

    fn sweep(&self) -> Result<usize, BackendError> {
        self.main.sweep()
    }

    fn promises(&self) -> Promises {
        self.main.promises()
    }

    fn copy(&self, from: &ObjectName, to: &ObjectName) -> Result<(), BackendError> {
        self.main.copy(from, to)
    }

    fn retain(&self, name: &ObjectName, until: Timestamp) -> Result<(), BackendError> {
        self.main.retain(name, until)
    }

    fn prove(&self, name: &ObjectName, challenge: &[u8]) -> Result<Vec<u8>, BackendError> {
        self.main.prove(name, challenge)
    }

    fn replicas(&self) -> &[Arc<dyn Backend>] {
        &self.replicas
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        self.main.holds_at_most(folder)
    }

    fn describe(&self) -> String {
        self.main.describe()
    }

    fn folders(&self) -> Vec<PathBuf> {
        let replicas = self.replicas.iter().flat_map(|replica| replica.folders());
        self.main.folders().into_iter().chain(replicas).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
