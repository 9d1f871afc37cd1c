//! How often the places are learned for chunks that are nowhere.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use strongroom_arena::CacheLimits;
use strongroom_backend::{
    BackendError, MemoryBackend, ObjectInfo, ObjectName, Promises, Room, Stores,
};
use strongroom_base::{ArenaId, FixedClock, SeededEntropy, Timestamp};
use strongroom_catalog::ChunkRef;

use super::*;
use crate::keys::KdfCost;
use crate::read::chunk_reader::ChunkReader;
use crate::repository::{InitOptions, Repository, Surroundings};

const PASSPHRASE: &[u8] =
    b"strongroom-key-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a4f56ba95";

/// A place that lists its arenas slowly, and counts how often.
#[derive(Default)]
struct Slow {
    objects: MemoryBackend,
    listings: AtomicUsize,
}

impl Backend for Slow {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        self.objects.read(name, offset, length)
    }

    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        self.objects.size(name)
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.objects.create(name, bytes)
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.objects.replace(name, bytes)
    }

    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        self.objects.remove(name)
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
        if folder == "arenas" {
            self.listings.fetch_add(1, Ordering::Relaxed);
            thread::sleep(LIFETIME + Duration::from_millis(100));
        }
        self.objects.list(folder)
    }

    fn sweep(&self) -> Result<usize, BackendError> {
        self.objects.sweep()
    }

    fn promises(&self) -> Promises {
        self.objects.promises()
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        self.objects.holds_at_most(folder)
    }

    fn describe(&self) -> String {
        self.objects.describe()
    }

    fn folders(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

fn repository(backend: Arc<dyn Backend>) -> Repository {
    let surroundings = Surroundings {
        backend,
        clock: Arc::new(FixedClock(Timestamp(0))),
        entropy: Arc::new(SeededEntropy::new(1)),
        cache: None,
    };
    let options = InitOptions { cost: Some(KdfCost::CHEAPEST), ..InitOptions::default() };
    Repository::init(surroundings, PASSPHRASE, &options).unwrap()
}

fn chunk(number: u8) -> ChunkRef {
    let location = Location { arena: ArenaId([number; 16]), slot: 0 };
    ChunkRef { fingerprint: Fingerprint([number; 32]), location, stream_bytes: 1 }
}

#[test]
fn a_slow_listing_is_not_made_for_each_lost_chunk() {
    let place = Arc::new(Slow::default());
    let repository = repository(place.clone());
    let reader = ChunkReader::of_domain(&repository, "", CacheLimits::default()).unwrap();
    let before = place.listings.load(Ordering::Relaxed);
    let watch = Stopwatch::start();
    let mut asked = 0;
    for number in 1..=5 {
        let found = reader.from_places(&chunk(number), |_| {
            asked += 1;
            Ok(None::<()>)
        });
        assert_eq!(found.unwrap(), None);
    }
    assert!(asked >= 5, "{asked}");
    let listings = place.listings.load(Ordering::Relaxed) - before;
    assert!((1..=2).contains(&listings), "{listings} listings in {:?}", watch.elapsed());
}

#[test]
fn patience_grows_with_what_was_in_vain_and_with_what_a_look_takes() {
    let mut freshness = Freshness::new();
    assert_eq!(freshness.must_be(), LIFETIME);
    freshness.was_looked_for(false);
    freshness.was_looked_for(false);
    assert_eq!(freshness.must_be(), 4 * LIFETIME);
    (0..70).for_each(|_| freshness.was_looked_for(false));
    assert_eq!(freshness.must_be(), LIFETIME_MAX);
    freshness.was_looked_for(true);
    assert_eq!(freshness.must_be(), LIFETIME);
    freshness.was_refreshed(Duration::from_secs(300));
    assert!(!freshness.are_old());
    assert_eq!(freshness.must_be(), Duration::from_secs(1200));
}
