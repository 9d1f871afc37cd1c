//! Those who do not speak the protocol, or speak it to do harm.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use strongroom_arena::ArenaName;
use strongroom_backend::{LocalBackend, ObjectName};
use strongroom_base::{ArenaId, OsEntropy, Stopwatch, SystemClock};
use strongroom_remote::Settings;
use strongroom_remote::wire::{DONE, FAILED, Frame, Request, greeting};
use strongroom_repository::{InitOptions, Repository, Surroundings};
use strongroom_serve::{Checks, Door, Entrance, Limits, Role, Room, Visitor, attend};

use crate::world::{World, session_object};

struct Open(Arc<Room>, Role);

impl Door for Open {
    fn enter(&self, _: &str, _: &str) -> Result<Entrance, strongroom_backend::BackendError> {
        let visitor = Visitor { name: "a".to_owned(), role: self.1, quota: None };
        Ok(Entrance { room: self.0.clone(), visitor })
    }
}

/// What the server answers to these bytes, over pipes.
fn answers(bytes: &[u8]) -> (Vec<Frame>, std::io::Result<()>) {
    let folder = tempfile::tempdir().unwrap();
    answers_of(
        &Open(Arc::new(Room::new("a", folder.path(), Checks::Nothing, None)), Role::Admin),
        bytes,
    )
}

fn answers_of(door: &Open, bytes: &[u8]) -> (Vec<Frame>, std::io::Result<()>) {
    let mut sent = Vec::new();
    let ended = attend(&mut &bytes[..], &mut sent, door, &Limits::default(), |_| ());
    let mut rest = &sent[10..];
    let mut frames = Vec::new();
    while let Ok(Some(frame)) = Frame::receive(&mut rest) {
        frames.push(frame);
    }
    (frames, ended)
}

fn entered() -> Vec<u8> {
    let mut bytes = greeting().to_vec();
    push(&mut bytes, 1, &Request::Enter { token: String::new(), room: String::new() });
    bytes
}

fn push(bytes: &mut Vec<u8>, number: u32, request: &Request) {
    let (kind, body) = request.pack();
    Frame::pack(number, kind, &body, bytes);
}

#[test]
fn hostile_frames_end_the_connection_and_nothing_else() {
    let name = ObjectName::new("arenas", "a");
    let mut more = entered();
    push(&mut more, 2, &Request::Create { name: name.clone(), bytes: 3 });
    push(&mut more, 2, &Request::Part(vec![1; 4]));
    assert!(answers(&more).1.is_err(), "more than was announced");

    let mut many = entered();
    for number in 2..100 {
        push(&mut many, number, &Request::Create { name: name.clone(), bytes: 1 << 20 });
    }
    assert!(answers(&many).1.is_err(), "too many objects at a time");

    let mut twice = entered();
    push(&mut twice, 2, &Request::Enter { token: String::new(), room: String::new() });
    assert!(answers(&twice).1.is_err(), "it entered twice");

    let mut early = greeting().to_vec();
    push(&mut early, 1, &Request::IsThere);
    assert!(answers(&early).1.is_err(), "it was not let in");

    let mut long = entered();
    long.extend_from_slice(&[0xff; 100]);
    assert!(answers(&long).1.is_err(), "a frame of 4 GiB");

    let mut huge = entered();
    push(&mut huge, 2, &Request::Create { name: name.clone(), bytes: 10 << 30 });
    let (frames, ended) = answers(&huge);
    assert!(ended.is_ok() && frames.last().unwrap().kind == FAILED, "an object of 10 GB");

    // A part of nothing, and an answer: the first is ignored, the second ends it.
    let mut odd = entered();
    push(&mut odd, 9, &Request::Part(vec![1; 4]));
    push(&mut odd, 10, &Request::Size { name });
    let (frames, ended) = answers(&odd);
    assert!(ended.is_ok() && frames.last().unwrap().kind == FAILED);
}

/// Each client over a pipe has a server process of its own, which knows nothing of the others.
#[test]
fn a_session_of_another_process_stays_though_its_bytes_are_stored_again() {
    let folder = tempfile::tempdir().unwrap();
    let process = || {
        let room = Room::new("-", folder.path(), Checks::Envelopes, None);
        Open(Arc::new(room), Role::PutOnly)
    };
    LocalBackend::create(folder.path()).unwrap();
    let (name, object) = (ObjectName::new("sessions", "05".repeat(16)), session_object([5; 16]));
    let create = |bytes: &mut Vec<u8>| {
        push(bytes, 2, &Request::Create { name: name.clone(), bytes: object.len() as u64 });
        push(bytes, 2, &Request::Part(object.clone()));
    };
    let kind = |(frames, _): (Vec<Frame>, _), number: u32| {
        frames.iter().find(|frame| frame.request == number).map(|frame| frame.kind)
    };
    let mut begun = entered();
    create(&mut begun);
    assert_eq!(kind(answers_of(&process(), &begun), 2), Some(DONE));
    let door = process();
    assert_eq!(kind(answers_of(&door, &begun), 2), Some(DONE));
    let mut removed = entered();
    push(&mut removed, 3, &Request::Remove { name: name.clone() });
    assert_eq!(kind(answers_of(&door, &removed), 3), Some(FAILED));
    assert!(folder.path().join(name.as_str()).exists());
}

#[test]
fn any_bytes_at_all_are_harmless() {
    let mut seed = 3_u64;
    for round in 0..300 {
        let mut bytes = if round % 2 == 0 { entered() } else { Vec::new() };
        for _ in 0..seed % 200 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            bytes.push((seed >> 40) as u8 % 40);
        }
        seed = seed.wrapping_mul(5).wrapping_add(7);
        bytes.splice(0..0, (round % 2 == 1).then(greeting).into_iter().flatten());
        let _ = answers(&bytes);
    }
}

#[test]
fn strangers_take_nothing_from_those_who_are_let_in() {
    let world = World::open(Checks::Nothing);
    let token = world.token("room", Role::Admin, None);
    let backend = world.place(&token).create(&world.settings(&token)).unwrap();
    let mut silent = Vec::new();
    for number in 0..200 {
        let mut socket = TcpStream::connect(world.address()).unwrap();
        match number % 4 {
            // Says nothing; speaks HTTP; begins TLS and stops; sends rubbish.
            0 => {}
            1 => drop(socket.write_all(b"GET / HTTP/1.1\r\n\r\n")),
            2 => drop(socket.write_all(&[0x16, 3, 1, 2, 0])),
            _ => drop(socket.write_all(&[0xaa; 5000])),
        }
        silent.push(socket);
    }
    let name = ObjectName::new("arenas", "a");
    backend.create(&name, &[3; 1 << 20]).unwrap();
    assert_eq!(backend.size(&name).unwrap(), 1 << 20);
    let again = world.place(&token).open(&world.settings(&token)).unwrap().unwrap();
    assert_eq!(again.list("arenas").unwrap().len(), 1);
    for socket in &mut silent {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // Each is sent away in the end.
        let _ = socket.read_to_end(&mut Vec::new()).map(|count| assert!(count < 1000));
    }
}

/// Who says a byte now and then is no less a stranger than who says nothing.
#[test]
fn a_stranger_who_says_little_for_long_is_sent_away() {
    let world = World::open(Checks::Nothing);
    let mut socket = TcpStream::connect(world.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let began = Stopwatch::start();
    // The beginning of a long record of TLS.
    let mut rest = [&[0x16, 3, 1, 0x3f, 0, 1, 0, 0x3e, 0xfc][..], &[0; 100]].concat().into_iter();
    let is_open = |error: &std::io::Error| {
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
    };
    loop {
        let sent = socket.write_all(&[rest.next().expect("it was sent away before")]);
        let heard = socket.read(&mut [0; 100]);
        if sent.is_err() || !heard.as_ref().is_err_and(is_open) {
            break;
        }
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// As many strangers as have room, all of one address: they make room for each other, and for a client.
#[test]
fn strangers_who_wait_keep_nobody_out() {
    let world = World::open(Checks::Nothing);
    let token = world.token("room", Role::Admin, None);
    let waiting: Vec<_> = (0..400).map(|_| TcpStream::connect(world.address()).unwrap()).collect();
    let backend = world.place(&token).create(&world.settings(&token)).unwrap();
    assert_eq!(backend.list("arenas").unwrap().len(), 0);
    drop(waiting);
}

/// One token has a share of the connections.
#[test]
fn a_token_does_not_take_all_connections() {
    let world = World::open(Checks::Nothing);
    let (one, other) =
        (world.token("room", Role::Admin, None), world.token("other", Role::Admin, None));
    let first = world.place(&one).create(&world.settings(&one)).unwrap();
    let settings = Settings { patience: Duration::from_millis(300), ..world.settings(&one) };
    let opened = |_| world.place(&one).open(&settings).ok().flatten();
    let many: Vec<_> = (0..300).filter_map(opened).collect();
    assert!((200..256).contains(&many.len()), "{}", many.len());
    let backend = world.place(&other).create(&world.settings(&other)).unwrap();
    assert_eq!(backend.list("arenas").unwrap().len(), 0);
    drop((first, many));
}

/// An object is checked in memory, so none is longer than the repository's arenas can be.
#[test]
fn an_object_that_no_arena_can_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let room = |checks| Room::new("a", folder.path(), checks, None);
    let surroundings = Surroundings {
        backend: Arc::new(LocalBackend::create(folder.path()).unwrap()),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(OsEntropy),
        cache: None,
    };
    Repository::init(surroundings, &[b'x'; 40], &InitOptions::default()).unwrap();
    let door = Open(Arc::new(room(Checks::Envelopes)), Role::Admin);
    let refused = |bytes| {
        let mut asked = entered();
        let name = ArenaName::first(ArenaId([7; 16])).object();
        push(&mut asked, 2, &Request::Create { name, bytes });
        let mut sent = Vec::new();
        attend(&mut &asked[..], &mut sent, &door, &Limits::default(), |_| ()).unwrap();
        let (mut rest, mut failed) = (&sent[10..], false);
        while let Ok(Some(frame)) = Frame::receive(&mut rest) {
            failed = frame.request == 2 && frame.kind == FAILED;
        }
        failed
    };
    assert!(!refused(20 << 20));
    assert!(refused(1 << 30));
}
