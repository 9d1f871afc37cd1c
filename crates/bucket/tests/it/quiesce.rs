//! What the agent asks of a program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use strongroom_bucket::{Bucket, BucketError, KeyRange, Owner};

use crate::agent::Manners;
use crate::world::{FILE, Record, Recorder, Shared, World, eventually, register_private};

#[test]
fn a_program_without_callbacks_cannot_be_asked() {
    let world = World::new();
    let shared = Shared::new(&[1; 100]);
    let bucket = world.open(0);
    shared.register(&bucket, "data", 100);
    assert!(world.agent().store(FILE, 0, "n", 1).unwrap_err().contains("no callback"));
    bucket.store("n", 1).unwrap();
}

#[test]
fn the_agent_stores_what_holds_still_and_lets_it_go_on() {
    let world = World::new();
    let record = Arc::new(Record::default());
    let shared = Shared::new(&[1; 100]);
    let mut heap = vec![2; 70_000];
    let bucket = world.open(0);
    shared.register(&bucket, "data", 100);
    register_private(&bucket, "heap", &mut heap);
    bucket.on_quiesce(Box::new(Recorder(record.clone()))).unwrap();
    assert!(world.agent().await_owner(FILE, 0));
    world.agent().store(FILE, 0, "n", 1).unwrap();
    let areas = world.archive.areas(FILE, 0, "n", 1).unwrap();
    assert_eq!((areas["data"].clone(), areas["heap"].clone()), (vec![1; 100], heap.clone()));
    assert!(eventually(|| Record::count(&record.resumed) == 1));
    assert_eq!(Record::count(&record.quiesced), 1);

    heap[69_999] = 3;
    world.agent().store(FILE, 0, "n", 2).unwrap();
    assert_eq!(world.archive.areas(FILE, 0, "n", 2).unwrap()["heap"], heap);

    // The agent fills the memory of a program that holds still.
    world.agent().load(FILE, 0, "n", 1).unwrap();
    assert_eq!((heap[69_999], Record::count(&record.loaded)), (2, 1));
    assert!(eventually(|| Record::count(&record.resumed) == 3));
}

#[test]
fn memory_of_a_program_that_holds_still_is_copied_once_it_does() {
    let world = World::new();
    let record = Arc::new(Record::default());
    let mut heap = vec![2; 70_000];
    let bucket = world.open(0);
    register_private(&bucket, "heap", &mut heap);
    bucket.on_quiesce(Box::new(Recorder(record.clone()))).unwrap();
    assert!(world.agent().await_owner(FILE, 0));
    let asked = world.agent().quiesce(FILE, 0).unwrap();
    assert!(asked.is_copy);
    assert_eq!(world.agent().areas(FILE, 0).unwrap()["heap"], heap);
    assert_eq!(Record::count(&record.resumed), 0);
    // A store of another thread waits until the program goes on.
    let is_stored = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            bucket.store("n", 1).unwrap();
            is_stored.store(true, Ordering::SeqCst);
        });
        thread::sleep(Duration::from_millis(100));
        assert!(!is_stored.load(Ordering::SeqCst));
        world.agent().resume(FILE, 0, asked).unwrap();
    });
    bucket.wait("n", 1).unwrap();
    assert_eq!(Record::count(&record.resumed), 1);
}

#[test]
fn a_program_may_refuse() {
    let world = World::new();
    let record = Arc::new(Record::default());
    let mut heap = vec![2; 70_000];
    let bucket = world.open(0);
    register_private(&bucket, "heap", &mut heap);
    bucket.on_quiesce(Box::new(Recorder(record.clone()))).unwrap();
    assert!(world.agent().await_owner(FILE, 0));
    *record.refusal.lock().unwrap() = Some("a split is under way".to_owned());
    assert_eq!(world.agent().store(FILE, 0, "n", 1).unwrap_err(), "a split is under way");
    assert_eq!(Record::count(&record.resumed), 0);
    *record.refusal.lock().unwrap() = None;
    world.agent().store(FILE, 0, "n", 1).unwrap();
    *record.refusal.lock().unwrap() = Some("still in use".to_owned());
    world.agent().evict(FILE, 0, "n", 1).unwrap_err();
    // It is as before.
    *record.refusal.lock().unwrap() = None;
    world.agent().store(FILE, 0, "n", 2).unwrap();
}

#[test]
fn only_memory_that_is_stored_is_evicted() {
    let world = World::new();
    let record = Arc::new(Record::default());
    let mut heap = vec![2; 70_000];
    let bucket = world.open(0);
    register_private(&bucket, "heap", &mut heap);
    bucket.on_quiesce(Box::new(Recorder(record.clone()))).unwrap();
    assert!(world.agent().await_owner(FILE, 0));
    world.agent().store(FILE, 0, "n", 1).unwrap();
    heap[1] = 3;
    assert!(world.agent().evict(FILE, 0, "n", 1).unwrap_err().contains("changed"));
    assert!(eventually(|| Record::count(&record.resumed) == 2));
    assert_eq!(Record::count(&record.evicted), 0);
    world.agent().store(FILE, 0, "n", 2).unwrap();
    world.agent().evict(FILE, 0, "n", 2).unwrap();
    assert_eq!(Record::count(&record.evicted), 1);
    assert_eq!(world.agent().areas(FILE, 0).unwrap().len(), 0);
}

#[test]
fn a_load_that_failed_halfway_is_not_in_the_next_version() {
    for ends in [false, true] {
        let mut world = World::new();
        let (mut data, mut more) = (vec![2; 70_000], vec![3; 100]);
        let bucket = world.open(0);
        register_private(&bucket, "data", &mut data);
        register_private(&bucket, "more", &mut more);
        bucket.store("n", 1).unwrap();
        bucket.wait("n", 1).unwrap();
        // What is registered now is zero, and has no copy; and one area is longer than it was stored.
        let (mut zeros, mut longer) = (vec![0; 70_000], vec![3; 200]);
        register_private(&bucket, "data", &mut zeros);
        register_private(&bucket, "more", &mut longer);
        let record = Arc::new(Record::default());
        bucket.on_quiesce(Box::new(Recorder(record.clone()))).unwrap();
        assert!(world.agent().await_owner(FILE, 0));
        if ends {
            world.agent().fill(FILE, 0, "n", 1).unwrap_err();
            world.restart();
        } else {
            world.agent().load(FILE, 0, "n", 1).unwrap_err();
            assert!(eventually(|| Record::count(&record.resumed) == 1));
        }
        assert!(eventually(|| bucket.store("n", 2).is_ok()));
        bucket.wait("n", 2).unwrap();
        assert!(world.archive.areas(FILE, 0, "n", 2).unwrap()["data"] == zeros);
    }
}

#[test]
fn a_panic_in_a_callback_is_a_refusal() {
    struct Panics(bool);
    impl Owner for Panics {
        fn quiesce(&mut self) -> Result<(), String> {
            self.0 = !self.0;
            assert!(!self.0, "the first time it panics");
            Ok(())
        }
        fn resume(&mut self) {}
        fn evict(&mut self) -> Result<(), String> {
            Ok(())
        }
    }
    let world = World::new();
    let mut heap = vec![2; 70_000];
    let bucket = world.open(0);
    register_private(&bucket, "heap", &mut heap);
    bucket.on_quiesce(Box::new(Panics(false))).unwrap();
    assert!(world.agent().await_owner(FILE, 0));
    assert!(world.agent().store(FILE, 0, "n", 1).unwrap_err().contains("panicked"));
    world.agent().store(FILE, 0, "n", 1).unwrap();
}

/// Its program stores on its way to a safe point, and its callbacks register a range.
struct Busy {
    bucket: Arc<Mutex<Option<Arc<Bucket>>>>,
    asked: Sender<()>,
    still: Receiver<()>,
    stored_within: Sender<bool>,
}

impl Owner for Busy {
    fn quiesce(&mut self) -> Result<(), String> {
        self.asked.send(()).unwrap();
        self.still.recv().unwrap();
        let bucket = self.bucket.lock().unwrap().clone().unwrap();
        bucket.range(&KeyRange::whole(), 9).unwrap();
        let within = bucket.store("within", 1);
        let is_refused = matches!(within, Err(BucketError::WithinCallback));
        self.stored_within.send(is_refused).unwrap();
        Ok(())
    }
    fn resume(&mut self) {}
    fn evict(&mut self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_program_may_store_while_it_is_being_asked_to_hold_still() {
    let world = World::new();
    let mut heap = vec![2; 70_000];
    let bucket = Arc::new(world.open(0));
    register_private(&bucket, "heap", &mut heap);
    let shared_bucket = Arc::new(Mutex::new(Some(bucket.clone())));
    let (asked, is_asked) = channel();
    let (holds_still, still) = channel();
    let (stored_within, refused_within) = channel();
    let owner = Busy { bucket: shared_bucket.clone(), asked, still, stored_within };
    bucket.on_quiesce(Box::new(owner)).unwrap();
    assert!(world.agent().await_owner(FILE, 0));
    thread::scope(|scope| {
        let storing = scope.spawn(|| world.agent().store(FILE, 0, "agents", 1));
        is_asked.recv().unwrap();
        bucket.store("own", 1).unwrap();
        bucket.wait("own", 1).unwrap();
        holds_still.send(()).unwrap();
        assert!(refused_within.recv().unwrap(), "a callback must not store");
        storing.join().unwrap().unwrap();
    });
    assert_eq!(world.archive.versions(FILE, 0, "own"), [1]);
    assert_eq!(world.archive.versions(FILE, 0, "agents"), [1]);
    assert_eq!(world.agent().range(FILE, 0), Some((KeyRange::whole(), 9)));
    shared_bucket.lock().unwrap().take();
}

/// Its callback registers an area.
struct Grows(Arc<Mutex<Option<Arc<Bucket>>>>, Sender<()>, Vec<u8>);

impl Owner for Grows {
    fn quiesce(&mut self) -> Result<(), String> {
        let bucket = self.0.lock().unwrap().clone().unwrap();
        self.1.send(()).unwrap();
        register_private(&bucket, "more", &mut self.2);
        Ok(())
    }
    fn resume(&mut self) {}
    fn evict(&mut self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_store_does_not_come_between_the_two_sides_of_a_callback_that_registers() {
    let world = World::new();
    let mut heap = vec![2; 70_000];
    let bucket = Arc::new(world.open(0));
    register_private(&bucket, "heap", &mut heap);
    let shared_bucket = Arc::new(Mutex::new(Some(bucket.clone())));
    let (asked, is_asked) = channel();
    let owner = Grows(shared_bucket.clone(), asked, vec![7; 50_000]);
    bucket.on_quiesce(Box::new(owner)).unwrap();
    assert!(world.agent().await_owner(FILE, 0));
    // The agent has the area long before its answer is here.
    let slow = Manners { region_time: Duration::from_millis(500), ..Manners::default() };
    world.agent().behave(slow);
    thread::scope(|scope| {
        scope.spawn(|| world.agent().store(FILE, 0, "agents", 1).unwrap());
        is_asked.recv().unwrap();
        thread::sleep(Duration::from_millis(150));
        bucket.store("own", 1).unwrap();
    });
    bucket.wait("own", 1).unwrap();
    for name in ["own", "agents"] {
        let areas = world.archive.areas(FILE, 0, name, 1).unwrap();
        assert!(areas["more"] == vec![7; 50_000], "{name}");
    }
    shared_bucket.lock().unwrap().take();
}
