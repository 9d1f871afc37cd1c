//! Those who do not speak the protocol, or speak it to do harm.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use strongroom_backend::ObjectName;
use strongroom_remote::wire::{FAILED, Frame, Request, greeting};
use strongroom_serve::{Checks, Door, Entrance, Limits, Role, Room, Visitor, attend};

use crate::world::World;

struct Open(Arc<Room>);

impl Door for Open {
    fn enter(&self, _: &str, _: &str) -> Result<Entrance, strongroom_backend::BackendError> {
        let visitor = Visitor { name: "a".to_owned(), role: Role::Admin, quota: None };
        Ok(Entrance { room: self.0.clone(), visitor })
    }
}

/// What the server answers to these bytes, over pipes.
fn answers(bytes: &[u8]) -> (Vec<Frame>, std::io::Result<()>) {
    let folder = tempfile::tempdir().unwrap();
    let door = Open(Arc::new(Room::new("a", folder.path(), Checks::Nothing, None)));
    let mut sent = Vec::new();
    let ended = attend(&mut &bytes[..], &mut sent, &door, &Limits::default(), |_| ());
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
