//! Agents that end, refuse, or were never there; and programs that end.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::agent::{Archive, FakeAgent, Manners};
use strongroom_bucket::{AREAS_MAX, Bucket, BucketError, Owner};

use crate::world::{FILE, Record, Recorder, Shared, World, eventually, register_private};

#[test]
fn without_an_agent_the_error_says_what_to_start() {
    let folder = tempfile::tempdir().unwrap();
    let error = Bucket::open(Some(&folder.path().join("ram.sock")), FILE, 0).unwrap_err();
    assert!(matches!(error, BucketError::NoAgent { .. }), "{error}");
    assert!(error.to_string().contains("strongroom ram agent"), "{error}");
}

#[test]
fn an_agent_may_refuse_a_bucket() {
    let world = World::new();
    let refusal = Some("another program has it".to_owned());
    world.agent().behave(Manners { refusal, ..Manners::default() });
    let error = Bucket::open(Some(&world.socket()), FILE, 5).unwrap_err();
    assert!(error.to_string().ends_with("refuses bucket 5 of orders: another program has it"));
}

#[test]
fn calls_that_wait_return_when_the_agent_ends() {
    let mut world = World::new();
    let slow = Manners { commit_time: Duration::from_secs(1), ..Manners::default() };
    world.agent().behave(slow);
    let mut heap = vec![2; 70_000];
    let bucket = world.open(0);
    register_private(&bucket, "heap", &mut heap);
    bucket.store("n", 1).unwrap();
    let agent = world.agent.take();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| bucket.wait("n", 1));
        thread::sleep(Duration::from_millis(100));
        drop(agent);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, BucketError::AgentGone | BucketError::NoAgent { .. }), "{error}");
    });
}

#[test]
fn the_next_call_connects_and_registers_again() {
    let mut world = World::new();
    let mut heap = vec![2; 70_000];
    let shared = Shared::new(&[4; 100]);
    let bucket = world.open(0);
    register_private(&bucket, "heap", &mut heap);
    shared.register(&bucket, "data", 100);
    bucket.store("n", 1).unwrap();
    bucket.wait("n", 1).unwrap();
    world.restart();
    heap[0] = 3;
    assert!(eventually(|| bucket.store("n", 2).is_ok()));
    bucket.wait("n", 2).unwrap();
    let areas = world.archive.areas(FILE, 0, "n", 2).unwrap();
    assert_eq!((areas["heap"].clone(), areas["data"].clone()), (heap.clone(), vec![4; 100]));
    bucket.load("n", 1).unwrap();
    assert_eq!(heap[0], 2);
}

#[test]
fn as_many_areas_as_a_bucket_may_have_are_registered_again() {
    let mut world = World::new();
    let mut heap = vec![2; AREAS_MAX * 10];
    let bucket = world.open(0);
    for (number, part) in heap.chunks_mut(10).enumerate() {
        part.fill(number as u8);
        register_private(&bucket, &number.to_string(), part);
    }
    let one_more = Shared::new(&[0]);
    let error = bucket.region("more", one_more.0.as_fd(), None, 1).unwrap_err();
    assert!(matches!(error, BucketError::TooManyAreas), "{error}");
    world.restart();
    assert!(eventually(|| bucket.store("n", 1).is_ok()));
    bucket.wait("n", 1).unwrap();
    let areas = world.archive.areas(FILE, 0, "n", 1).unwrap();
    assert_eq!((areas.len(), &areas["300"]), (AREAS_MAX, &vec![44; 10]));
    heap.fill(0);
    bucket.load("n", 1).unwrap();
    assert_eq!(heap[3001], 44);
}

#[test]
fn a_program_that_calls_nothing_is_found_by_the_next_agent() {
    let mut world = World::new();
    let record = Arc::new(Record::default());
    let mut heap = vec![2; 70_000];
    let bucket = world.open(0);
    register_private(&bucket, "heap", &mut heap);
    bucket.on_quiesce(Box::new(Recorder(record.clone()))).unwrap();
    assert!(world.agent().await_owner(FILE, 0));
    world.restart();
    assert!(world.agent().await_owner(FILE, 0));
    world.agent().store(FILE, 0, "n", 1).unwrap();
    assert_eq!(world.archive.areas(FILE, 0, "n", 1).unwrap()["heap"], heap);
}

#[test]
fn a_program_goes_on_when_the_agent_ends() {
    let mut world = World::new();
    let record = Arc::new(Record::default());
    let mut heap = vec![2; 70_000];
    let bucket = world.open(0);
    register_private(&bucket, "heap", &mut heap);
    bucket.on_quiesce(Box::new(Recorder(record.clone()))).unwrap();
    assert!(world.agent().await_owner(FILE, 0));
    world.agent().quiesce(FILE, 0).unwrap();
    assert_eq!(Record::count(&record.resumed), 0);
    world.agent = None;
    assert!(eventually(|| Record::count(&record.resumed) == 1));
    // And it can store with the next one: nothing is held for the old one.
    world.restart();
    assert!(eventually(|| bucket.store("n", 1).is_ok()));
    bucket.wait("n", 1).unwrap();
}

#[test]
fn a_program_goes_on_when_the_agent_ends_while_it_asks() {
    struct Slow(Arc<Record>, Sender<()>, Receiver<()>);
    impl Owner for Slow {
        fn quiesce(&mut self) -> Result<(), String> {
            self.1.send(()).unwrap();
            self.2.recv().unwrap();
            Ok(())
        }
        fn resume(&mut self) {
            self.0.resumed.fetch_add(1, Ordering::SeqCst);
        }
        fn evict(&mut self) -> Result<(), String> {
            Ok(())
        }
    }
    let mut world = World::new();
    let record = Arc::new(Record::default());
    let mut heap = vec![2; 70_000];
    let bucket = world.open(0);
    register_private(&bucket, "heap", &mut heap);
    let ((asked, is_asked), (holds_still, still)) = (channel(), channel());
    bucket.on_quiesce(Box::new(Slow(record.clone(), asked, still))).unwrap();
    assert!(world.agent().await_owner(FILE, 0));
    let agent = world.agent.take().unwrap();
    thread::scope(|scope| {
        let storing = scope.spawn(|| agent.store(FILE, 0, "n", 1));
        is_asked.recv().unwrap();
        agent.end();
        assert!(storing.join().unwrap().is_err());
        holds_still.send(()).unwrap();
    });
    drop(agent);
    assert!(eventually(|| Record::count(&record.resumed) == 1));
    world.restart();
    assert!(eventually(|| bucket.store("n", 1).is_ok()));
    bucket.wait("n", 1).unwrap();
}

#[test]
fn a_store_that_the_agent_never_captured_is_reported() {
    let mut world = World::new();
    let slow = Manners { capture_time: Duration::from_secs(1), ..Manners::default() };
    world.agent().behave(slow);
    let mut heap = vec![2; 70_000];
    let bucket = world.open(0);
    register_private(&bucket, "heap", &mut heap);
    bucket.store("n", 1).unwrap();
    world.agent = None;
    assert!(eventually(|| {
        let error = bucket.wait("n", 1).unwrap_err();
        error.to_string().contains("before it had captured it")
    }));
}

#[test]
fn kept_1_12_an_older_version_of_the_same_number_is_not_what_was_stored() {
    let mut world = World::new();
    let shared = Shared::new(&[1; 100]);
    let mut heap = vec![1; 70_000];
    let bucket = world.open(0);
    shared.register(&bucket, "data", 100);
    register_private(&bucket, "heap", &mut heap);
    bucket.store("n", 7).unwrap();
    bucket.wait("n", 7).unwrap();
    let of_heap = ["heap".to_owned()];
    bucket.store_areas("copy", 7, &of_heap).unwrap();
    bucket.wait("copy", 7).unwrap();
    // It is stored again as other content, and the agent dies before that is committed.
    let slow = Manners { commit_time: Duration::from_secs(1), ..Manners::default() };
    world.agent().behave(slow);
    shared.write(&[2; 100]);
    heap[0] = 2;
    bucket.store_areas("copy", 7, &of_heap).unwrap();
    bucket.store("n", 7).unwrap();
    world.restart();
    assert!(eventually(|| bucket.test("n").is_ok_and(|found| found == Some(7))));
    assert_eq!(world.archive.areas(FILE, 0, "n", 7).unwrap()["data"], [1; 100]);
    for name in ["n", "copy", "n"] {
        let error = bucket.wait(name, 7).unwrap_err().to_string();
        assert!(error.contains("before it was known to be committed"), "{error}");
    }
    bucket.store("n", 7).unwrap();
    bucket.wait("n", 7).unwrap();
    assert_eq!(world.archive.areas(FILE, 0, "n", 7).unwrap()["data"], [2; 100]);
    // What was waited for counts with the next agent, too.
    world.restart();
    assert!(eventually(|| bucket.wait("n", 7).is_ok()));
    assert!(bucket.wait("copy", 7).is_err());
}

#[test]
fn shared_memory_outlives_a_program_that_held_still() {
    let world = World::new();
    let record = Arc::new(Record::default());
    let shared = Shared::new(&[4; 100]);
    let bucket = world.open(0);
    shared.register(&bucket, "data", 100);
    bucket.on_quiesce(Box::new(Recorder(record.clone()))).unwrap();
    assert!(world.agent().await_owner(FILE, 0));
    world.agent().quiesce(FILE, 0).unwrap();
    drop(bucket);
    // A closed bucket does not leave its program stopped.
    assert_eq!(Record::count(&record.resumed), 1);
    assert!(world.agent().store(FILE, 0, "n", 1).is_err());
}

/// The question of the agent before is answered only when the callback before it returns.
#[test]
fn kept_1_12_an_eviction_of_a_lost_connection_frees_nothing_for_the_next() {
    struct Slow(Arc<Record>, Sender<()>, Receiver<()>);
    impl Owner for Slow {
        fn quiesce(&mut self) -> Result<(), String> {
            self.1.send(()).unwrap();
            self.2.recv().map_err(|error| error.to_string())
        }
        fn resume(&mut self) {}
        fn evict(&mut self) -> Result<(), String> {
            self.0.evicted.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }
    let mut world = World::new();
    let record = Arc::new(Record::default());
    let shared = Shared::new(&[4; 100]);
    let bucket = world.open(0);
    shared.register(&bucket, "data", 100);
    let ((asked, is_asked), (holds_still, still)) = (channel(), channel());
    bucket.on_quiesce(Box::new(Slow(record.clone(), asked, still))).unwrap();
    assert!(world.agent().await_owner(FILE, 0));
    let agent = world.agent.take().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| agent.quiesce(FILE, 0));
        is_asked.recv().unwrap();
        let evicting = scope.spawn(|| bucket.evict());
        assert!(eventually(|| world.archive.versions(FILE, 0, "evicted") == [1]));
        thread::sleep(Duration::from_millis(100));
        agent.end();
        assert!(evicting.join().unwrap().is_err());
    });
    drop(agent);
    world.archive.clear();
    let fault = Some("no room".to_owned());
    let commit_time = Duration::from_secs(1);
    world.restart_with(Manners { commit_fault: fault, commit_time, ..Manners::default() });
    thread::scope(|scope| {
        let evicting = scope.spawn(|| bucket.evict());
        thread::sleep(Duration::from_millis(500));
        holds_still.send(()).unwrap();
        assert!(evicting.join().unwrap().is_err());
    });
    assert_eq!(Record::count(&record.evicted), 0, "it is stored nowhere");
    bucket.store("n", 1).unwrap();
}

#[test]
fn a_bucket_that_is_closed_begins_no_callback() {
    struct Refuses(Arc<Record>, Sender<()>, Receiver<()>);
    impl Owner for Refuses {
        fn quiesce(&mut self) -> Result<(), String> {
            self.0.quiesced.fetch_add(1, Ordering::SeqCst);
            self.1.send(()).unwrap();
            self.2.recv().map_err(|error| error.to_string())?;
            Err("not now".to_owned())
        }
        fn resume(&mut self) {}
        fn evict(&mut self) -> Result<(), String> {
            Ok(())
        }
    }
    let world = World::new();
    let record = Arc::new(Record::default());
    let shared = Shared::new(&[4; 100]);
    let bucket = world.open(0);
    shared.register(&bucket, "data", 100);
    let ((asked, is_asked), (goes_on, may_go_on)) = (channel(), channel());
    bucket.on_quiesce(Box::new(Refuses(record.clone(), asked, may_go_on))).unwrap();
    assert!(world.agent().await_owner(FILE, 0));
    thread::scope(|scope| {
        scope.spawn(|| world.agent().store(FILE, 0, "n", 1));
        is_asked.recv().unwrap();
        scope.spawn(|| world.agent().store(FILE, 0, "n", 2));
        thread::sleep(Duration::from_millis(200));
        let closing = scope.spawn(move || drop(bucket));
        thread::sleep(Duration::from_millis(200));
        // A second call would return at once.
        goes_on.send(()).unwrap();
        goes_on.send(()).unwrap();
        closing.join().unwrap();
    });
    assert_eq!(Record::count(&record.quiesced), 1);
}

#[test]
fn only_one_agent_listens_on_a_socket() {
    let world = World::new();
    let second = FakeAgent::start(&world.socket(), Arc::new(Archive::default()));
    assert!(second.unwrap_err().to_string().contains("another agent listens"));
    std::fs::write(world.folder().join("file"), b"").unwrap();
    let third = FakeAgent::start(&world.folder().join("file"), Arc::new(Archive::default()));
    assert!(third.unwrap_err().to_string().contains("is no socket"));
}
