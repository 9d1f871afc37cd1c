//! Clients that the server must get rid of, and what good clients notice of them: nothing.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use strongroom_base::Stopwatch;
use strongroom_nbd::{ServerOptions, Stream};
use strongroom_testkit::noise;

use crate::world::{Memory, Named, Ours};

const BYTES: usize = 8 << 20;

fn impatient() -> Ours {
    let options = ServerOptions {
        workers: 4,
        connections_max: 8,
        bytes_max: 32 << 20,
        connection_bytes_max: 4 << 20,
        haggle_limit: Duration::from_millis(300),
        stall_limit: Duration::from_millis(300),
        ..Default::default()
    };
    Ours::start(Named::one("disk", Memory::new(noise(1, BYTES))), options)
}

/// The handshake by the oldest way, and then these bytes.
fn begin(stream: &mut UnixStream, bytes: &[u8]) {
    stream.write_all(&[0, 0, 0, 3]).unwrap();
    stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk").unwrap();
    stream.write_all(bytes).unwrap();
    let mut greeting = [0; 18 + 10];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
}

fn request(command: u8, cookie: u8, offset: u32, length: u32) -> Vec<u8> {
    let mut request = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, command];
    request.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, cookie, 0, 0, 0, 0]);
    let mut number =
        |value: u32| request.extend((0..4).rev().map(|place| (value >> (8 * place)) as u8));
    number(offset);
    number(length);
    request
}

/// Waits until the server ends a connection.
fn assert_ended(stream: &mut UnixStream) {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut sink = [0; 65536];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("the server keeps the connection: {error}"),
        }
    }
}

#[test]
fn a_client_of_the_oldest_way_is_served() {
    let ours = impatient();
    let mut stream = ours.pair();
    begin(&mut stream, &request(0, 7, 4096, 16));
    let mut reply = [0; 32];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..16], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    assert_eq!(reply[16..], noise(1, BYTES)[4096..][..16]);
    // Behind the end: a simple error, EINVAL.
    stream.write_all(&request(0, 8, BYTES as u32 - 1, 2)).unwrap();
    stream.read_exact(&mut reply[..16]).unwrap();
    assert_eq!((reply[7], reply[15]), (22, 8));
    // Block status without structured replies: EINVAL. An unknown request: EINVAL.
    for command in [7, 99] {
        stream.write_all(&request(command, 9, 0, 512)).unwrap();
        stream.read_exact(&mut reply[..16]).unwrap();
        assert_eq!((reply[7], reply[15]), (22, 9));
    }
    stream.write_all(&request(2, 0, 0, 0)).unwrap();
    assert_ended(&mut stream);
}

#[test]
fn silent_and_half_clients_are_sent_away() {
    let ours = impatient();
    let taken = Stopwatch::start();
    let mut silent = ours.pair();
    let mut half_option = ours.pair();
    half_option.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x03\0\0").unwrap();
    let mut half_request = ours.pair();
    begin(&mut half_request, &request(0, 1, 0, 512)[..20]);
    let mut half_write = ours.pair();
    begin(&mut half_write, &[&request(1, 1, 0, 1 << 20)[..], &[1; 1000]].concat());
    let idle = ours.client("disk");
    for stream in [&mut silent, &mut half_option, &mut half_request, &mut half_write] {
        assert_ended(stream);
    }
    assert!(taken.elapsed() < Duration::from_secs(5), "{:?}", taken.elapsed());
    // One that asks nothing stays.
    idle.read_at(0, &mut [0; 10]).unwrap();
    drop(idle);
    ours.wait_until_empty();
}

#[test]
fn clients_that_take_nothing_hold_up_no_other() {
    let ours = impatient();
    let mut greedy: Vec<UnixStream> = (0..4).map(|_| ours.pair()).collect();
    for stream in &mut greedy {
        begin(stream, &[]);
        for cookie in 0..60 {
            stream.write_all(&request(0, cookie, 0, 1 << 20)).unwrap();
        }
    }
    let content = noise(1, BYTES);
    let client = ours.client("disk");
    for number in 0..50 {
        let mut read = vec![0; 1 << 16];
        client.read_at(number << 16, &mut read).unwrap();
        assert!(read == content[(number << 16) as usize..][..1 << 16]);
    }
    ours.wait_until(1);
    for stream in &mut greedy {
        assert_ended(stream);
    }
    drop(client);
    ours.wait_until_empty();
}

#[test]
fn connections_are_limited() {
    let ours = impatient();
    let clients: Vec<_> = (0..8).map(|_| ours.client("disk")).collect();
    let mut ninth = UnixStream::connect(ours.socket()).unwrap();
    assert_ended(&mut ninth);
    drop(clients);
    ours.wait_until_empty();
    assert!(Stream::connect_unix(&ours.socket()).is_ok());
    ours.client("disk").read_at(0, &mut [0; 10]).unwrap();
}
