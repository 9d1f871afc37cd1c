//! What an agent does for a program is what that program may do by itself.

use std::fs::{self, File, Permissions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use strongroom_bucket::{Bucket, BucketError, FromProgram, KeyRange, PROTOCOL, ToProgram};
use strongroom_cluster::{BucketNumber, RunId, State, Verb};
use strongroom_testkit::noise;

use crate::controller::Controller;
use crate::raw::Raw;
use crate::world::{Memory, Willing, World, whole};

const UNPRIVILEGED: u32 = 65_534;

/// Does something as another user, on a thread of its own.
fn as_user<T: Send>(user: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            work()
        });
        worker.join().unwrap()
    })
}

/// An agent to which all users may connect.
fn world_for_all() -> Option<World> {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        strongroom_testkit::skip("only root can be another user");
        return None;
    }
    let world = World::new();
    fs::set_permissions(world.folder.path(), Permissions::from_mode(0o755)).unwrap();
    Some(world)
}

fn raw_open(path: &Path, flags: OFlags) -> OwnedFd {
    open(path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

#[test]
fn kept_1_10_what_a_program_may_not_read_is_read_for_none() {
    let Some(world) = world_for_all() else { return };
    let _agent = world.agent_for_all();
    let (secret, dropbox) = (world.path("secret"), world.path("dropbox"));
    for (path, mode) in [(&secret, 0o600), (&dropbox, 0o622)] {
        fs::write(path, noise(7, 10_000)).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    as_user(UNPRIVILEGED, || {
        assert!(File::open(&secret).is_err(), "the test would show nothing");
        let raw = Raw::greet(&world, 1);
        for (path, flags) in [(&secret, OFlags::PATH), (&dropbox, OFlags::WRONLY)] {
            let file = raw_open(path, flags);
            let refused = raw.register("data", file.as_fd(), 10_000).unwrap_err();
            assert_eq!(
                refused,
                "the area data is not taken: it cannot be read: its descriptor is not open for reading"
            );
        }
        // Its own memory is stored and loaded.
        let memory = Memory::new(&noise(8, 10_000));
        assert_eq!(raw.register("data", memory.0.as_fd(), 10_000), Ok(()));
        raw.store(1, 1, false);
        raw.hear_until("captured", |it| *it == ToProgram::Captured { request: 1 });
        raw.wait(2, 1);
        raw.hear_until("stored", |it| *it == ToProgram::Done { request: 2 });
    });
}

/// How many of these programs were refused what they have asked for, as one user may not have more.
fn refused(raws: &[Raw]) -> usize {
    let forget = FromProgram::Forget { request: 901, area: "none".to_owned() };
    raws.iter().for_each(|raw| raw.say(&forget));
    let is_refusal = |it: &ToProgram| matches!(it, ToProgram::Failed { reason, .. } if reason.contains("one user"));
    let heard = raws.iter().flat_map(|raw| {
        std::iter::from_fn(|| raw.hear().filter(|it| *it != ToProgram::Done { request: 901 }))
    });
    heard.filter(is_refusal).count()
}

/// Looks into the repository and loads, none of which ends. A program has one of each at a time.
#[test]
fn kept_1_12_one_user_takes_a_share_of_the_jobs() {
    let Some(world) = world_for_all() else { return };
    let _agent = world.agent_for_all();
    let bucket = whole(&world, 1, &Memory::new(&noise(8, 10_000)));
    bucket.store("v", 1).unwrap();
    bucket.wait("v", 1).unwrap();
    let stuck = Arc::new(Mutex::new(()));
    let (released, reading) = (stuck.lock().unwrap(), stuck.clone());
    world.place.on_read(Some(Arc::new(move || {
        drop(reading.lock());
        true
    })));
    let test = FromProgram::Test { request: 1, name: "v".to_owned(), at_most: None };
    let (name, areas) = ("v".to_owned(), Vec::new());
    let load = FromProgram::Load { request: 2, name, version: 1, areas };
    let all_say = |raws: &[Raw], message| {
        raws.iter().for_each(|raw| raw.say(message));
        refused(raws)
    };
    let first = as_user(UNPRIVILEGED, || {
        let raws: Vec<Raw> = (0..200).map(|number| Raw::greet(&world, number)).collect();
        // While others do not need them, half of all jobs.
        assert_eq!(all_say(&raws, &test), 0);
        assert_eq!(all_say(&raws, &load), 400 - 256);
        raws
    });
    let second = as_user(UNPRIVILEGED - 1, || {
        let raws: Vec<Raw> = (0..140).map(|number| Raw::greet(&world, number)).collect();
        assert_eq!(all_say(&raws, &test), 140 - 128);
        raws
    });
    let third = as_user(UNPRIVILEGED - 2, || {
        let raws: Vec<Raw> = (0..100).map(|number| Raw::greet(&world, number)).collect();
        assert_eq!(all_say(&raws, &test), 0);
        raws
    });
    world.place.on_read(None);
    drop(released);
    drop((first, second, third));
    bucket.store("v", 2).unwrap();
    bucket.wait("v", 2).unwrap();
}

/// All of its buckets are read at the same time, and wait for each other. Its programs did not ask for
/// that, and may ask for as much as before.
#[test]
fn kept_1_12_a_round_of_many_buckets_of_one_user_is_stored() {
    let Some(world) = world_for_all() else { return };
    let mut controller = Controller::new(&world, "cluster");
    controller.file = format!("file@{UNPRIVILEGED}");
    let _agent = world.node_for_all(&controller.node_file());
    let memory = Memory::new(&noise(1, 10_000));
    as_user(UNPRIVILEGED, || {
        let buckets: Vec<_> = (0..200).map(|number| whole(&world, number, &memory)).collect();
        // The agent has heard of the callbacks.
        buckets.iter().for_each(|bucket| assert_eq!(bucket.test("v").unwrap(), None));
        for number in 0..200 {
            let ready = [State::Ready, State::Failed];
            let answer = controller.until(number, (1, 1), &Verb::Prepare, &ready);
            assert_eq!(answer.state, State::Ready, "{answer:?}");
        }
        assert_eq!(buckets[0].test("v").unwrap(), None);
        for number in 0..200 {
            controller.until(number, (1, 1), &Verb::Cut, &[State::Stored]);
        }
    });
}

/// The agent may write to files to which the program may not.
#[test]
fn kept_1_10_what_a_program_may_not_write_to_is_written_for_none() {
    let Some(world) = world_for_all() else { return };
    let _agent = world.agent_for_all();
    let public = world.path("public");
    fs::write(&public, noise(1, 10_000)).unwrap();
    fs::set_permissions(&public, Permissions::from_mode(0o644)).unwrap();
    let memory = Memory::new(&noise(2, 10_000));
    as_user(UNPRIVILEGED, || {
        let bucket = world.open(1);
        memory.register(&bucket, "data");
        bucket.store("v", 1).unwrap();
        bucket.wait("v", 1).unwrap();
        let file = File::open(&public).unwrap();
        bucket.region("data", file.as_fd(), None, 10_000).unwrap();
        let error = bucket.load("v", 1).unwrap_err().to_string();
        assert!(error.contains("its descriptor is not open for writing"), "{error}");
    });
    assert!(fs::read(&public).unwrap() == noise(1, 10_000));
}

/// What is written of several areas is written of all or of none, if one cannot be written to.
#[test]
fn kept_1_10_a_load_that_cannot_write_to_one_area_writes_to_none() {
    let world = World::new();
    let _agent = world.agent();
    let bucket = world.open(1);
    let (one, two) = (Memory::new(&noise(1, 10_000)), Memory::new(&noise(2, 10_000)));
    one.register(&bucket, "one");
    two.register(&bucket, "two");
    bucket.store("v", 1).unwrap();
    bucket.wait("v", 1).unwrap();
    one.write(&noise(3, 10_000));
    let path = format!("/proc/self/fd/{}", two.0.as_raw_fd());
    let readable = File::open(path).unwrap();
    bucket.region("two", readable.as_fd(), None, 10_000).unwrap();
    assert!(bucket.load("v", 1).is_err());
    assert!(one.read() == noise(3, 10_000));
}

#[test]
fn kept_1_10_a_user_sees_and_replaces_the_versions_of_its_own_programs_alone() {
    let Some(world) = world_for_all() else { return };
    let _agent = world.agent_for_all();
    let memory = Memory::new(&noise(1, 10_000));
    let of_root = whole(&world, 3, &memory);
    of_root.store("nightly", 2).unwrap();
    of_root.wait("nightly", 2).unwrap();
    for user in [UNPRIVILEGED, UNPRIVILEGED - 1] {
        as_user(user, || {
            // The name is free: it is another bucket.
            let bucket = world.open(3);
            let own = Memory::zeros(10_000);
            own.register(&bucket, "data");
            assert_eq!(bucket.test("nightly").unwrap(), None, "of user {user}");
            assert!(bucket.load("nightly", 2).is_err());
            assert!(matches!(bucket.wait("nightly", 2), Err(BucketError::Failed { .. })));
            own.write(&noise(u64::from(user), 10_000));
            bucket.store("nightly", 2).unwrap();
            bucket.wait("nightly", 2).unwrap();
            bucket.store("nightly", 3).unwrap();
            bucket.wait("nightly", 3).unwrap();
            own.write(&[0; 10_000]);
            bucket.load("nightly", 2).unwrap();
            assert!(own.read() == noise(user.into(), 10_000));
            bucket.evict().unwrap();
        });
    }
    assert_eq!(of_root.test("nightly").unwrap(), Some(2));
    memory.write(&[0; 10_000]);
    of_root.load("nightly", 2).unwrap();
    assert!(memory.read() == noise(1, 10_000), "no program has replaced it");
    // Root has all.
    let file = format!("file@{UNPRIVILEGED}");
    let bucket = Bucket::open(Some(&world.socket()), &file, 3).unwrap();
    memory.register(&bucket, "data");
    assert_eq!(bucket.test("nightly").unwrap(), Some(3));
}

/// A range that another user claims is one of another file, so it is in no cut.
#[test]
fn kept_1_10_a_user_claims_no_keys_of_the_file_of_another() {
    let Some(world) = world_for_all() else { return };
    let controller = Controller::new(&world, "cluster");
    let _agent = world.node_for_all(&controller.node_file());
    let memory = Memory::new(&noise(1, 10_000));
    let _bucket = whole(&world, 1, &memory);
    as_user(UNPRIVILEGED, || {
        let own = Memory::zeros(10_000);
        let buckets = [1, 2].map(|number| {
            let bucket = world.open(number);
            own.register(&bucket, "data");
            bucket.range(&KeyRange::whole(), 9).unwrap();
            bucket.on_quiesce(Box::new(Willing)).unwrap();
            // Until the agent has heard it.
            bucket.forget("none").unwrap_err();
            bucket.test("v").unwrap();
            bucket
        });
        let answer = controller.until(1, (1, 1), &Verb::Prepare, &[State::Ready]);
        assert_eq!(answer.description.split_version, 0, "it is that of root");
        controller.until(1, (1, 1), &Verb::Cut, &[State::Stored]);
        controller.send(2, 0, Verb::Status);
        let answers: Vec<_> = std::iter::from_fn(|| controller.hear()).collect();
        let of_run = answers.iter().filter(|answer| answer.run == RunId(2));
        assert_eq!(
            of_run.filter_map(|answer| answer.bucket).collect::<Vec<_>>(),
            [BucketNumber(1)]
        );
        drop(buckets);
    });
}

#[test]
fn kept_1_10_one_user_keeps_no_other_out() {
    let Some(world) = world_for_all() else { return };
    let _agent = world.agent_for_all();
    let taken = as_user(UNPRIVILEGED, || {
        let mut raws = Vec::new();
        for bucket in 0..1_100 {
            let Ok(raw) = Raw::connect(&world.socket()) else { break };
            let hello = FromProgram::Hello { protocol: PROTOCOL, file: "many".into(), bucket };
            if raw.try_say(&hello, None).is_err() {
                break;
            }
            raws.push(raw);
        }
        // The last ones were turned away.
        let said = raws.last().unwrap().hear();
        assert!(!matches!(said, Some(ToProgram::Welcome { .. })), "{said:?}");
        raws
    });
    assert!(taken.len() > 10);
    let bucket = world.open(1);
    Memory::new(&noise(1, 10_000)).register(&bucket, "data");
    as_user(UNPRIVILEGED - 1, || drop(world.open(1)));
}

/// A private area may not become shorter while it is read, or be written to by others.
#[test]
fn kept_1_10_a_private_area_is_of_fixed_length() {
    let world = World::new();
    let _agent = world.agent();
    let raw = Raw::greet(&world, 1);
    let file = memfd_create("shadow", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 16_384).unwrap();
    let area = "data".to_owned();
    let (request, bytes, base) = (900, 16_384, None);
    let message = FromProgram::Region { request, area, bytes, base, is_private: true };
    raw.try_say(&message, Some(file.as_fd())).unwrap();
    let Some(ToProgram::Failed { reason, .. }) = raw.hear() else { panic!("it is taken") };
    assert!(reason.contains("sealed against shrinking and growing"), "{reason}");
}

/// In a folder of another user, the name of the socket may be a link by the time its mode is set. This
/// one is there before: it is refused.
#[test]
fn kept_1_10_the_mode_of_a_socket_is_that_of_no_other_file() {
    let Some(world) = world_for_all() else { return };
    let secret = world.path("secret");
    fs::write(&secret, "secret").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    {
        let _agent = world.agent_for_all();
        let mode = fs::symlink_metadata(world.socket()).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o666);
    }
    std::os::unix::fs::symlink(&secret, world.socket()).unwrap();
    assert!(world.refused_as(None).is_some());
    assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
}
