//! Damaged conversations, from seeds: neither side may panic, hang, or hurt another connection.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use strongroom_base::Stopwatch;
use strongroom_nbd::{Client, ClientOptions, ServerOptions, Stream};
use strongroom_testkit::{Random, noise};

use crate::world::{Memory, Named, Ours};

const BYTES: usize = 1 << 20;

fn ours() -> Ours {
    let options = ServerOptions {
        haggle_limit: Duration::from_millis(150),
        stall_limit: Duration::from_millis(150),
        ..Default::default()
    };
    Ours::start(Named::one("disk", Memory::new(noise(1, BYTES))), options)
}

/// Passes on what comes, and now and then flips, drops, repeats or adds bytes.
fn pass_on(mut from: UnixStream, mut to: UnixStream, mut random: Random, mut spared: u64) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let mut part = buffer[..count].to_vec();
        if spared < count as u64 {
            let at = random.below(part.len() as u64) as usize;
            match random.below(6) {
                0 => part[at] ^= 1 << random.below(8),
                1 => part.truncate(at),
                2 => part.extend_from_within(at..),
                3 => {
                    let bytes = random.below(100) as usize;
                    part.splice(at..at, random.noise(bytes));
                }
                4 => {
                    let end = (at + 8).min(part.len());
                    part[at..end].fill(0xff);
                }
                _ => break,
            }
            spared = random.below(30_000);
        } else {
            spared -= count as u64;
        }
        if to.write_all(&part).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// A connection to the server whose bytes are damaged, in one direction or in both.
fn damaged_line(ours: &Ours, seed: u64) -> UnixStream {
    let server = ours.pair();
    let (client, relay) = UnixStream::pair().unwrap();
    let mut random = Random::new(seed);
    let spared = [random.below(600), random.below(600)];
    let which = random.below(3);
    let never = u64::MAX;
    let towards = if which == 1 { never } else { spared[0] };
    let back = if which == 0 { never } else { spared[1] };
    let (server_again, relay_again) = (server.try_clone().unwrap(), relay.try_clone().unwrap());
    let (first, second) = (Random::new(random.number()), Random::new(random.number()));
    std::thread::spawn(move || pass_on(relay, server, first, towards));
    std::thread::spawn(move || pass_on(server_again, relay_again, second, back));
    client
}

#[test]
fn damaged_conversations_end() {
    let ours = ours();
    let (mut opened, mut failed) = (0, 0);
    for seed in 0..150 {
        let stream = Stream::Unix(damaged_line(&ours, seed));
        let options = ClientOptions {
            contexts: vec!["base:allocation".to_owned()],
            silence_limit: Duration::from_millis(150),
            request_limit: Duration::from_millis(600),
            ..Default::default()
        };
        let taken = Stopwatch::start();
        if let Ok(client) = Client::open(stream, "disk", &options) {
            opened += 1;
            failed += u32::from(use_until_it_fails(&client, seed));
        }
        assert!(taken.elapsed() < Duration::from_secs(20), "seed {seed}: {:?}", taken.elapsed());
    }
    assert!(opened > 40 && failed > 20, "{opened} {failed}");
    let mut read = vec![0; BYTES];
    ours.client("disk").read_at(0, &mut read).unwrap();
    ours.wait_until_empty();
}

/// Returns true if something failed.
fn use_until_it_fails(client: &Client, seed: u64) -> bool {
    let mut random = Random::new(seed);
    for _ in 0..12 {
        let offset = random.below(client.size().max(1)).min(BYTES as u64 - 1);
        let bytes = 1 + random.below(60_000).min(BYTES as u64 - offset - 1);
        let done = match random.below(4) {
            0 => client.write_zeroes(offset..offset + bytes),
            1 => match client.block_status("base:allocation", offset..offset + bytes) {
                Ok(mut runs) => runs.find_map(Result::err).map_or(Ok(()), Err),
                Err(error) => Err(error),
            },
            _ => client.read_at(offset, &mut vec![0; bytes as usize]),
        };
        if done.is_err() {
            return true;
        }
    }
    false
}

/// Bytes from seeds: noise, options with noise in them, requests with noise in them.
#[test]
fn nonsense_is_survived() {
    let ours = ours();
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let mut stream = ours.pair();
        let mut bytes = Vec::new();
        if random.below(8) > 0 {
            bytes.extend_from_slice(&[0, 0, 0, 3]);
        }
        for _ in 0..random.below(6) {
            let mut data = match random.below(3) {
                0 => b"\0\0\0\x04disk\0\x01\0\x03".to_vec(),
                1 => b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation".to_vec(),
                _ => Vec::new(),
            };
            for _ in 0..random.below(3) {
                let at = random.below(data.len() as u64 + 1) as usize;
                data.insert(at, random.number() as u8);
            }
            let length = if random.once_in(6) { random.number() as u32 } else { data.len() as u32 };
            bytes.extend_from_slice(b"IHAVEOPT\0\0\0");
            bytes.push(random.below(13) as u8);
            bytes.extend((0..4).rev().map(|place| (length >> (8 * place)) as u8));
            bytes.extend(data);
        }
        if random.below(3) > 0 {
            bytes.extend_from_slice(b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk");
            for _ in 0..random.below(20) {
                let mut request = vec![0x25, 0x60, 0x95, 0x13];
                request.extend(random.noise(4).iter().map(|byte| byte & 0x1f));
                request.extend(random.noise(8));
                request.extend([0, 0, 0, 0]);
                request.extend(random.noise(8).iter().map(|byte| byte & 0x3f));
                request[5] &= 0x1f;
                request[6] = 0;
                bytes.extend(request);
            }
        }
        let noise = random.below(64) as usize;
        bytes.extend(random.noise(noise));
        let _ = stream.write_all(&bytes);
        if random.once_in(2) {
            let _ = stream.shutdown(Shutdown::Write);
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            // All it says comes to an end.
            let read = stream.read_to_end(&mut Vec::new());
            let is_late = read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
            assert!(!is_late, "seed {seed}");
        }
    }
    ours.client("disk").read_at(0, &mut [0; 4096]).unwrap();
    ours.wait_until_empty();
    assert!(ours.server.stop());
}
