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
use crate::keys::{KdfCost, KeySlot, NewSlot, write_slot};
use crate::own::OwnRecord;
use crate::read::chunk_reader::ChunkReader;
use crate::repository::{InitOptions, Repository, Surroundings};
use crate::session::Session;
use crate::write::chunk_writer::ChunkWriter;
use crate::write::packer::options::PackOptions;

const PASSPHRASE: &[u8] =
    b"strongroom-key-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a4f56ba95";
const LAPTOP: &[u8] =
    b"strongroom-key-a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a572949ae1";

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

/// The machine with a put-only key of the domain "laptop" stores as many chunks, each in an arena or two
/// of its own, for which the owner has not vouched.
fn store_by_laptop(owner: &Repository, sizes: &[usize]) -> Vec<Fingerprint> {
    let secret = owner.secret.put_only("laptop").unwrap();
    let cost = Some(KdfCost::CHEAPEST);
    let new = NewSlot { label: String::new(), created: Timestamp(0), cost };
    let entropy = &*owner.surroundings.entropy;
    let slot = KeySlot::seal(new, &secret, LAPTOP, owner.config.id, entropy).unwrap();
    write_slot(owner.backend(), &slot).unwrap();
    let laptop = Repository::open(owner.surroundings.clone(), LAPTOP).unwrap();
    let mut stored = Vec::new();
    for (arena, chunks) in sizes.iter().enumerate() {
        let own = OwnRecord::default();
        let reader = ChunkReader::for_parents(&laptop, &own, CacheLimits::default());
        let session = Session::begin(&laptop, "laptop").unwrap();
        let pack = PackOptions { block_bytes: 8 << 10, workers: 1, ..PackOptions::default() };
        let (monitor, cancel) = (&Silent, &Cancel::new());
        let mut writer =
            ChunkWriter::open(&laptop, &reader, &session, pack, false, monitor, cancel).unwrap();
        for number in 0..*chunks {
            let bytes = format!("chunk {number} of arena {arena}").into_bytes();
            let fingerprint = laptop.keys.write.naming.data.fingerprint(&bytes);
            writer.put_data(&bytes, fingerprint, 0, None).unwrap();
            stored.push(fingerprint);
        }
        writer.finish(monitor).unwrap();
    }
    stored
}

/// A lost chunk that may be in arenas of other domains does not take the names of all their chunks into
/// memory.
#[test]
fn further_places_are_found_in_bounded_memory() {
    let owner = repository(Arc::new(MemoryBackend::new()));
    let stored = store_by_laptop(&owner, &[300, 40, 200, 1]);
    let reader = ChunkReader::of_domain(&owner, "", CacheLimits::default()).unwrap();
    let (backend, store) = (owner.backend(), reader.store());
    let mut index = ChunkIndex::in_memory();
    index.refresh(backend, store, &Silent, &Cancel::new()).unwrap();
    assert!(stored.iter().all(|chunk| index.lookup(chunk).is_none()), "none is vouched for");
    for tags_max in [0, 1, 250, 300, 541, FurtherPlaces::TAGS_MAX] {
        let further = FurtherPlaces::read(&index, backend, store, tags_max).unwrap();
        // A vector grows by doubling, and there are four arenas.
        let bytes_max = 4 * stored.len().min(tags_max).next_power_of_two() + 16 + 4 * (24 + 16);
        let heap_bytes = further.heap_bytes();
        assert!(heap_bytes <= bytes_max, "{tags_max} tags: {heap_bytes} of {bytes_max} bytes");
        for chunk in &stored {
            let place = further.find(chunk, &[], &index, store).unwrap().unwrap();
            assert_eq!(reader.in_summary(place).unwrap(), *chunk, "{tags_max} tags");
            assert_eq!(further.find(chunk, &[place], &index, store).unwrap(), None);
        }
        assert_eq!(further.find(&Fingerprint([7; 32]), &[], &index, store).unwrap(), None);
    }
    // And so by a reader.
    for fingerprint in stored.into_iter().step_by(50) {
        let taken = reader.from_places(&ChunkRef { fingerprint, ..chunk(1) }, |place| {
            let is_there = reader.in_summary(place).is_ok_and(|of| of == fingerprint);
            Ok(is_there.then_some(()))
        });
        assert_eq!(taken.unwrap(), Some(()));
    }
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
