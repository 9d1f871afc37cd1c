//! The server, by clients of our own and by strangers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

mod rights;
mod strangers;
mod table;
mod world;

use std::time::Duration;

use strongroom_backend::{BackendError, ObjectName, Refusal, read_all};
use strongroom_serve::{Checks, Role, check_log};
use strongroom_testkit::conformance;
use strongroom_testkit::relay::{LineOptions, Relay};
use strongroom_testkit::servers::sshd;

use world::{World, place, refusal_of, settings};

#[test]
fn a_room_conforms() {
    let world = World::open(Checks::Nothing);
    let token = world.token("room", Role::Admin, None);
    let backend = world.place(&token).create(&world.settings(&token)).unwrap();
    assert!(backend.holds_at_most("keys").unwrap());
    conformance::check(&*backend);
    assert!(!backend.holds_at_most("keys").unwrap());
    let large = vec![7; 40 << 20];
    let name = ObjectName::new("arenas", "large");
    backend.create(&name, &large).unwrap();
    assert_eq!(read_all(&*backend, &name).unwrap(), large);
    let promises = backend.promises();
    assert!(promises.proves && promises.is_exclusive == Some(true), "{promises:?}");
}

#[test]
fn a_room_at_the_far_end_of_ssh_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let command = format!("{} {}", table::unchecked().display(), folder.path().display());
    let server = sshd(Some(&command));
    let text = server.url("ssh", server.server.address, "");
    let backend = place(&text).create(&settings(server.variables())).unwrap();
    conformance::check(&*backend);
}

#[test]
fn many_objects_are_listed_and_many_requests_are_in_flight() {
    let world = World::open(Checks::Nothing);
    let token = world.token("room", Role::Admin, None);
    let backend = world.place(&token).create(&world.settings(&token)).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..16 {
            let backend = &backend;
            scope.spawn(move || {
                for number in 0..200 {
                    let name = ObjectName::new("snapshots", format!("{writer:04}-{number:060}"));
                    backend.create(&name, &[writer; 300]).unwrap();
                    assert_eq!(backend.read(&name, 100, 100).unwrap(), [writer; 100]);
                }
            });
        }
    });
    let listed = backend.list("snapshots").unwrap();
    assert_eq!(listed.len(), 3200);
    assert!(listed.iter().all(|info| info.bytes == 300));
}

#[test]
fn a_connection_that_is_cut_is_made_again() {
    let world = World::open(Checks::Nothing);
    let token = world.token("room", Role::Admin, None);
    let relay = Relay::start(world.address(), LineOptions::default());
    let settings = world.settings(&token);
    let backend = world.place_at(relay.address, &token).create(&settings).unwrap();
    let bytes = vec![1; 5 << 20];
    for number in 0..6 {
        let name = ObjectName::new("arenas", format!("a{number}"));
        std::thread::scope(|scope| {
            let creating = scope.spawn(|| backend.create(&name, &bytes));
            std::thread::sleep(Duration::from_millis(10 * number));
            relay.cut();
            creating.join().unwrap().unwrap();
        });
        assert_eq!(read_all(&*backend, &name).unwrap(), bytes);
    }
}

/// A client that may not read blocks cannot compare; the server can.
#[test]
fn a_client_that_may_only_put_repeats_a_create_whose_answer_was_lost() {
    let world = World::open(Checks::Nothing);
    let (owner, client) =
        (world.token("room", Role::Admin, None), world.token("room", Role::PutOnly, None));
    let near = world.place(&owner).create(&world.settings(&owner)).unwrap();
    let options = LineOptions { delay: Duration::from_millis(300), ..LineOptions::default() };
    let relay = Relay::start(world.address(), options);
    let far = world.place_at(relay.address, &client).open(&world.settings(&client)).unwrap();
    let (far, bytes) = (far.unwrap(), vec![1; 1 << 20]);
    let name = ObjectName::new("arenas", "a1");
    std::thread::scope(|scope| {
        let creating = scope.spawn(|| far.create(&name, &bytes));
        while near.size(&name).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // It is stored, and its answer is on the way.
        relay.cut();
        creating.join().unwrap().unwrap();
    });
    assert!(relay.connections() > 1);
    let other = far.create(&name, &bytes[1..]);
    assert!(matches!(other, Err(BackendError::AlreadyExists { .. })), "{other:?}");
}

#[test]
fn a_directory_in_the_place_of_an_object_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let command = format!("{} {}", table::unchecked().display(), folder.path().display());
    let server = sshd(Some(&command));
    let text = server.url("ssh", server.server.address, "");
    let backend = place(&text).create(&settings(server.variables())).unwrap();
    std::fs::create_dir_all(folder.path().join("arenas/folder")).unwrap();
    let name = ObjectName::new("arenas", "folder");
    for (what, outcome) in [
        ("size", backend.size(&name).map(drop)),
        ("read", backend.read(&name, 0, 1).map(drop)),
        ("remove", backend.remove(&name)),
        ("replace", backend.replace(&name, b"x")),
    ] {
        assert!(outcome.as_ref().is_err_and(BackendError::is_directory), "{what}: {outcome:?}");
    }
    // A file of another kind is no object either.
    std::os::unix::net::UnixListener::bind(folder.path().join("arenas/socket")).unwrap();
    let socket = backend.read(&ObjectName::new("arenas", "socket"), 0, 1);
    assert!(socket.as_ref().is_err_and(BackendError::is_no_file), "{socket:?}");
}

#[test]
fn a_server_that_never_greets_is_given_up() {
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let text = format!("https://{}/room", silent.local_addr().unwrap());
    let variables = vec![("STRONGROOM_TOKEN".to_owned(), "a.b".to_owned())];
    let (ended, waiting) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(place(&text).open(&settings(variables)).map(drop)));
    let opened = waiting.recv_timeout(Duration::from_secs(40)).expect("it ends");
    assert!(matches!(opened, Err(BackendError::Io { .. })), "{opened:?}");
}

#[test]
fn what_is_damaged_or_no_object_is_refused() {
    let world = World::open(Checks::Envelopes);
    let token = world.token("room", Role::Admin, None);
    let backend = world.place(&token).create(&world.settings(&token)).unwrap();
    let good = world::session_object([5; 16]);
    let name = ObjectName::new("sessions", "05".repeat(16));
    for at in [0, 40, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 4;
        assert_eq!(refusal_of(backend.create(&name, &bad)), Refusal::Content, "byte {at}");
    }
    assert_eq!(refusal_of(backend.create(&name, &good[..good.len() - 1])), Refusal::Content);
    let other = ObjectName::new("sessions", "06".repeat(16));
    assert_eq!(refusal_of(backend.create(&other, &good)), Refusal::Content);
    let stranger = ObjectName::new("things", "a");
    assert_eq!(refusal_of(backend.create(&stranger, &good)), Refusal::Content);
    backend.create(&name, &good).unwrap();
    assert_eq!(backend.list("sessions").unwrap().len(), 1);
    assert!(backend.list("things").unwrap().is_empty());
}

#[test]
fn a_quota_is_kept() {
    let world = World::open(Checks::Envelopes);
    let token = world.token("room", Role::Append, Some(3000));
    let backend = world.place(&token).open(&world.settings(&token)).unwrap().unwrap();
    let mut stored = 0;
    let refused = loop {
        let object = world::session_object([stored; 16]);
        let name = ObjectName::new("sessions", format!("{stored:02x}").repeat(16));
        match backend.create(&name, &object) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refusal_of::<()>(Err(refused)), Refusal::Quota);
    assert!(stored > 0);
    let listed = backend.list("sessions").unwrap();
    assert_eq!(listed.len(), usize::from(stored));
    assert!(listed.iter().map(|info| info.bytes).sum::<u64>() <= 3000);
    // What is there already takes no more room.
    let first = (ObjectName::new("sessions", "00".repeat(16)), world::session_object([0; 16]));
    backend.remove(&listed[1].name).unwrap();
    for _ in 0..20 {
        backend.create(&first.0, &first.1).unwrap();
    }
    // What is removed makes room.
    backend.remove(&listed[0].name).unwrap();
    let object = world::session_object([200; 16]);
    backend.create(&ObjectName::new("sessions", "c8".repeat(16)), &object).unwrap();
}

/// The owner prunes on the server itself, by another program.
#[test]
fn a_quota_is_counted_again_before_it_refuses() {
    let world = World::open(Checks::Nothing);
    let token = world.token("room", Role::Append, Some(3000));
    let backend = world.place(&token).open(&world.settings(&token)).unwrap().unwrap();
    let object = |number: u8| ObjectName::new("snapshots", format!("{number:02x}").repeat(16));
    backend.create(&object(1), &[1; 2900]).unwrap();
    let room = world.house.path().join("rooms/room");
    std::fs::remove_file(room.join(object(1).as_str())).unwrap();
    backend.create(&object(2), &[2; 2900]).unwrap();
    // Once in a minute.
    std::fs::remove_file(room.join(object(2).as_str())).unwrap();
    assert_eq!(refusal_of(backend.create(&object(3), &[3; 2900])), Refusal::Quota);
}

/// Who may prune can begin to make room, although there is none for a backup.
#[test]
fn kept_o16_a_used_up_quota_lets_room_be_made() {
    let world = World::open(Checks::Nothing);
    let object = |number: u8| ObjectName::new("snapshots", format!("{number:02x}").repeat(16));
    let wish = |number: u8| {
        ObjectName::new("forgotten", format!("{}.1", format!("{number:02x}").repeat(16)))
    };
    for (role, goes) in [(Role::Keep, true), (Role::Append, false)] {
        let token = world.token(role.as_str(), role, Some(3000));
        let backend = world.place(&token).open(&world.settings(&token)).unwrap().unwrap();
        backend.create(&object(1), &[1; 2900]).unwrap();
        assert_eq!(refusal_of(backend.create(&object(2), &[2; 200])), Refusal::Quota);
        let wished = backend.create(&wish(1), &[3; 200]);
        if !goes {
            assert!(wished.is_err());
            continue;
        }
        wished.unwrap();
        backend.create(&ObjectName::new("collections", "1.plan"), &[4; 50_000]).unwrap();
        // Not without end.
        let vast = backend.create(&ObjectName::new("collections", "1.verdict"), &vec![5; 1 << 20]);
        assert_eq!(refusal_of(vast), Refusal::Quota);
    }
}

#[test]
fn a_token_that_is_wrong_or_removed_opens_nothing() {
    let world = World::open(Checks::Envelopes);
    let token = world.token("room", Role::Append, None);
    let place = world.place(&token);
    let backend = place.open(&world.settings(&token)).unwrap().unwrap();
    backend.list("").unwrap();
    let refusal = |text: &str| {
        let opened = place.open(&world.settings_with(text));
        refusal_of(opened.map(drop))
    };
    let (id, secret) = token.text.split_once('.').unwrap();
    for text in [
        format!("{id}.{}", secret.replace(&secret[..1], "g")),
        format!("{id}."),
        format!("000000000000.{secret}"),
        format!("../{id}.{secret}"),
        "x".repeat(3000),
    ] {
        assert_eq!(refusal(&text), Refusal::Credentials, "{text}");
    }
    assert_eq!(refusal(""), Refusal::NoCredentials);
    let other = world.token("other", Role::Admin, None);
    assert_eq!(refusal(&other.text), Refusal::Right, "a token for another room");
    world.house.remove_token(id).unwrap();
    assert_eq!(refusal(&token.text), Refusal::Credentials);
    // Who is inside already is sent away.
    let ended = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        matches!(backend.list(""), Err(BackendError::Refused { .. }))
    });
    assert!(ended, "the connection went on without its token");
}

#[test]
fn every_act_is_in_the_log() {
    let world = World::open(Checks::Envelopes);
    let token = world.token("room", Role::PutOnly, None);
    let backend = world.place(&token).open(&world.settings(&token)).unwrap().unwrap();
    let name = ObjectName::new("sessions", "05".repeat(16));
    backend.create(&name, &world::session_object([5; 16])).unwrap();
    backend.remove(&name).unwrap();
    assert_eq!(refusal_of(backend.remove(&ObjectName::top("config"))), Refusal::Right);
    drop(backend);
    let path = world.house.log_path();
    let (lines, _) = check_log(&path).unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    assert!(lines >= 5, "{text}");
    for act in ["enter put-only", "create sessions/05", "remove sessions/05", "refused config"] {
        assert!(text.contains(act), "{act} is not in\n{text}");
    }
    assert!(!text.contains(token.text.split_once('.').unwrap().1), "the secret is in the log");
}

#[test]
fn the_numbers_are_shown() {
    let world = World::open(Checks::Nothing);
    let token = world.token("room", Role::Admin, None);
    let backend = world.place(&token).create(&world.settings(&token)).unwrap();
    backend.create(&ObjectName::new("snapshots", "05".repeat(16)), &[1; 100]).unwrap();
    let text = world.metrics();
    for line in ["strongroom_room_snapshots{room=\"room\"} 1", "strongroom_connections_total 1"] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
