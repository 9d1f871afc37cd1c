//! Servers that lie: each lie must be an error that names it, at once.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use strongroom_base::Stopwatch;
use strongroom_nbd::{Cause, Client, ClientOptions, Stream};

const SIZE: u64 = 1 << 20;

fn options() -> ClientOptions {
    ClientOptions {
        contexts: vec!["base:allocation".to_owned()],
        silence_limit: Duration::from_millis(300),
        request_limit: Duration::from_secs(2),
        ..Default::default()
    }
}

/// Numbers of the protocol, one behind the other: each with its size in bytes.
fn pack(fields: &[(u64, usize)]) -> Vec<u8> {
    let bytes = fields.iter().flat_map(|&(value, bytes)| {
        (0..bytes).rev().map(move |place| (value >> (8 * place)) as u8)
    });
    bytes.collect()
}

fn option_reply(option: u64, answer: u64, data: &[u8]) -> Vec<u8> {
    let mut reply =
        pack(&[(0x0003_e889_0455_65a9, 8), (option, 4), (answer, 4), (data.len() as u64, 4)]);
    reply.extend_from_slice(data);
    reply
}

fn chunk(flags: u64, kind: u64, cookie: u64, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u64;
    let mut chunk = pack(&[(0x668e_33ef, 4), (flags, 2), (kind, 2), (cookie, 8), (length, 4)]);
    chunk.extend_from_slice(payload);
    chunk
}

fn greeting() -> Vec<u8> {
    pack(&[(0x4e42_444d_4147_4943, 8), (0x4948_4156_454f_5054, 8), (3, 2)])
}

fn read_exactly(stream: &mut UnixStream, bytes: usize) -> Option<Vec<u8>> {
    let mut read = vec![0; bytes];
    stream.read_exact(&mut read).ok()?;
    Some(read)
}

/// Reads an option and returns its number.
fn read_option(stream: &mut UnixStream) -> Option<u64> {
    let head = read_exactly(stream, 16)?;
    read_exactly(stream, u32::from_le_bytes([head[15], head[14], head[13], head[12]]) as usize)?;
    Some(head[11].into())
}

/// A handshake without lies.
fn shake_hands(stream: &mut UnixStream) -> Option<()> {
    stream.write_all(&greeting()).ok()?;
    read_exactly(stream, 4)?;
    loop {
        let reply = match read_option(stream)? {
            option @ 10 => {
                let mut context = pack(&[(1, 4)]);
                context.extend_from_slice(b"base:allocation");
                [option_reply(option, 4, &context), option_reply(option, 1, &[])].concat()
            }
            option @ 7 => {
                let facts = pack(&[(0, 2), (SIZE, 8), (0b101_0010_1101, 2)]);
                [option_reply(option, 3, &facts), option_reply(option, 1, &[])].concat()
            }
            option => option_reply(option, 1, &[]),
        };
        let is_last = reply[11] == 7;
        stream.write_all(&reply).ok()?;
        if is_last {
            return Some(());
        }
    }
}

/// A client of a server that answers each request with what `lie` makes of its cookie, and then is
/// silent.
fn with_liar(lie: impl Fn(u64) -> Vec<u8> + Send, check: impl FnOnce(&Client)) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            shake_hands(&mut theirs).unwrap();
            while let Some(head) = read_exactly(&mut theirs, 28) {
                let cookie =
                    head[8..16].iter().fold(0, |cookie, &byte| cookie << 8 | u64::from(byte));
                if theirs.write_all(&lie(cookie)).is_err() {
                    break;
                }
            }
        });
        let client = Client::open(Stream::Unix(ours), "disk", &options()).unwrap();
        check(&client);
        drop(client);
    });
}

/// A read of 4096 bytes at 8192 must fail with these words.
fn assert_lie(words: &str, lie: impl Fn(u64) -> Vec<u8> + Send) {
    with_liar(lie, |client| {
        let error = client.read_at(8192, &mut [0; 4096]).unwrap_err();
        assert!(error.to_string().contains(words), "{words}: {error}");
        assert!(error.to_string().contains("\"disk\": read of 4096 bytes at 8192"), "{error}");
        assert!(client.read_at(0, &mut [0; 1]).is_err(), "the connection is of no use");
    });
}

#[test]
fn lies_about_data() {
    let data = |offset: u64, bytes: usize| [pack(&[(offset, 8)]), vec![1; bytes]].concat();
    assert_lie("outside of what was asked for", |c| chunk(1, 1, c, &data(8191, 4096)));
    assert_lie("outside of what was asked for", |c| chunk(1, 1, c, &data(8193, 4096)));
    assert_lie("outside of what was asked for", |c| chunk(1, 1, c, &data(u64::MAX, 1)));
    assert_lie("outside of what was asked for", |c| {
        chunk(1, 2, c, &pack(&[(8192, 8), (u64::from(u32::MAX), 4)]))
    });
    assert_lie("outside of what was asked for", |c| chunk(1, 2, c, &pack(&[(8192, 8), (0, 4)])));
    assert_lie("a chunk of a hole has the wrong length", |c| chunk(1, 2, c, &[0; 13]));
    assert_lie("a chunk of data is empty", |c| chunk(1, 1, c, &data(8192, 0)));
    assert_lie("a chunk of data is empty", |c| chunk(1, 1, c, &[]));
    assert_lie("a reply is not complete", |c| chunk(1, 1, c, &data(8192, 4095)));
    assert_lie("a reply is not complete", |c| chunk(1, 0, c, &[]));
    assert_lie("two chunks of a reply overlap", |c| {
        [chunk(0, 1, c, &data(8192, 10)), chunk(1, 1, c, &data(8201, 10))].concat()
    });
    assert_lie("a chunk has an unknown type", |c| chunk(0, 0, c, &[]));
    assert_lie("a chunk has an unknown type", |c| chunk(1, 77, c, &[]));
    assert_lie("does not belong to its request", |c| {
        chunk(1, 5, c, &pack(&[(1, 4), (4096, 4), (0, 4)]))
    });
    assert_lie("a reply should have been structured", |c| {
        pack(&[(0x6744_6698, 4), (0, 4), (c, 8)])
    });
    assert_lie("a reply belongs to no request", |c| chunk(1, 1, c + 1, &data(8192, 4096)));
    assert_lie("a reply has the wrong magic number", |_| vec![0; 20]);
    assert_lie("a reply has too many chunks", |c| {
        // A byte each, every second one.
        (0..2048).flat_map(|n| chunk(0, 1, c, &data(8192 + 2 * n, 1))).collect()
    });
    // The length says 4 GiB, and they never come.
    assert_lie("outside of what was asked for", |c| {
        pack(&[(0x668e_33ef, 4), (0, 2), (1, 2), (c, 8), (0xffff_ffff, 4), (8192, 8)])
    });
}

#[test]
fn lies_about_errors() {
    let error = |number: u64, words: &[u8]| {
        [pack(&[(number, 4), (words.len() as u64, 2)]), words.to_vec()].concat()
    };
    assert_lie("an error has an invalid length", |c| chunk(1, 0x8001, c, &[0; 5]));
    assert_lie("an error has an invalid length", |c| chunk(1, 0x8001, c, &[0; 9000]));
    assert_lie("a message ends too early", |c| {
        chunk(1, 0x8001, c, &pack(&[(5, 4), (4000, 2), (0, 4)]))
    });
    assert_lie("an error is outside of what was asked for", |c| {
        chunk(1, 0x8002, c, &[error(5, b""), pack(&[(1, 8)])].concat())
    });
    assert_lie("a reply has too many chunks", |c| {
        (0..200).flat_map(|_| chunk(0, 0x8001, c, &error(5, b"again"))).collect()
    });
    // These are no lies: the connection goes on.
    for reply in [
        |c, words: Vec<u8>| chunk(1, 0x8001, c, &words),
        |c, words: Vec<u8>| chunk(1, 0x80ff, c, &words),
        |c, words: Vec<u8>| [chunk(0, 0x8001, c, &words), chunk(1, 0, c, &[])].concat(),
    ] {
        with_liar(
            |c| reply(c, error(5, b"the disk is broken")),
            |client| {
                for _ in 0..3 {
                    let error = client.read_at(0, &mut [0; 512]).unwrap_err();
                    assert!(matches!(error.cause(), Cause::Refused { .. }), "{error}");
                    assert!(error.to_string().contains("the disk is broken"), "{error}");
                }
            },
        );
    }
}

#[test]
fn lies_about_blocks() {
    let status = |words: &str, lie: &(dyn Fn(u64) -> Vec<u8> + Sync)| {
        with_liar(lie, |client| {
            let mut runs = client.block_status("base:allocation", 0..SIZE).unwrap();
            let error = runs.find_map(Result::err).unwrap();
            assert!(error.to_string().contains(words), "{words}: {error}");
            assert!(runs.next().is_none());
        });
    };
    let said = |id: u64, bytes: u64| pack(&[(id, 4), (bytes, 4), (3, 4)]);
    status("an extent is empty", &|c| chunk(1, 5, c, &said(1, 0)));
    status("a context that is not awaited", &|c| chunk(1, 5, c, &said(2, 4096)));
    status("a context that is not awaited", &|c| {
        [chunk(0, 5, c, &said(1, 4096)), chunk(1, 5, c, &said(1, 4096))].concat()
    });
    status("a reply is not complete", &|c| chunk(1, 0, c, &[]));
    status("an answer about blocks has an invalid length", &|c| chunk(1, 5, c, &[0; 4]));
    status("an answer about blocks has an invalid length", &|c| chunk(1, 5, c, &[0; 13]));
    status("an answer about blocks has an invalid length", &|c| {
        pack(&[(0x668e_33ef, 4), (1, 2), (5, 2), (c, 8), (0xffff_fff4, 4)])
    });
    // One byte at a time would take a million answers.
    status("answers about blocks come to no end", &|c| chunk(1, 5, c, &said(1, 1)));
    // Behind the range, even far behind the disk, is no lie.
    let beyond = pack(&[(1, 4), (SIZE - 1, 4), (3, 4), (0xffff_ffff, 4), (0, 4)]);
    with_liar(
        |c| chunk(1, 5, c, &beyond),
        |client| {
            let runs = client.block_status("base:allocation", 0..SIZE).unwrap();
            let runs: Vec<_> = runs.map(|run| run.unwrap().range).collect();
            assert_eq!(runs, [0..SIZE - 1, SIZE - 1..SIZE]);
        },
    );
}

#[test]
fn silence_and_drips_end() {
    let taken = Stopwatch::start();
    assert_lie("did not answer in time", |_| Vec::new());
    // A part of a chunk.
    assert_lie("did not answer in time", |c| {
        let payload = [pack(&[(8192, 8)]), vec![1; 4096]].concat();
        chunk(1, 1, c, &payload)[..1000].to_vec()
    });
    assert!(taken.elapsed() < Duration::from_secs(5), "{:?}", taken.elapsed());
    // A byte now and then is no silence, but the request is overdue at some time.
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            shake_hands(&mut theirs)?;
            let request = read_exactly(&mut theirs, 28)?;
            let reply = chunk(1, 1, request[15].into(), &[0; 2000]);
            for byte in reply {
                theirs.write_all(&[byte]).ok()?;
                std::thread::sleep(Duration::from_millis(20));
            }
            Some(())
        });
        let taken = Stopwatch::start();
        let client = Client::open(Stream::Unix(ours), "disk", &options()).unwrap();
        let error = client.read_at(0, &mut [0; 1992]).unwrap_err();
        assert!(matches!(error.cause(), Cause::TimedOut), "{error}");
        assert!(taken.elapsed() < Duration::from_secs(10), "{:?}", taken.elapsed());
    });
}

#[test]
fn a_server_that_takes_nothing_is_given_up() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let (ended, wait) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            shake_hands(&mut theirs)?;
            let _ = wait.recv();
            Some(())
        });
        let client = Client::open(Stream::Unix(ours), "disk", &options()).unwrap();
        let error = client.write_at(0, &vec![0; SIZE as usize]).unwrap_err();
        assert!(matches!(error.cause(), Cause::TimedOut | Cause::Closed), "{error}");
        drop(ended);
    });
}

#[test]
fn lies_of_the_handshake() {
    let facts = |fields: &[(u64, usize)]| {
        [option_reply(8, 1, &[]), option_reply(7, 3, &pack(fields)), option_reply(7, 1, &[])]
            .concat()
    };
    let plain = [(0, 2), (SIZE, 8), (1, 2)];
    let blocks = |block, payload| {
        let sizes = pack(&[(3, 2), (block, 4), (4096, 4), (payload, 4)]);
        [option_reply(8, 1, &[]), option_reply(7, 3, &sizes)].concat()
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("it is not an NBD server", vec![0x41; 18]),
        ("did not answer in time", Vec::new()),
        ("did not answer in time", greeting()),
        ("does not belong to its option", [greeting(), vec![0; 20]].concat()),
        ("does not belong to its option", [greeting(), option_reply(7, 1, &[])].concat()),
        ("does not belong to its option", [greeting(), option_reply(8, 3, &[])].concat()),
        ("is larger than any disk", [greeting(), facts(&[(0, 2), (1 << 63, 8), (1, 2)])].concat()),
        ("the export has no flags", [greeting(), facts(&[(0, 2), (5, 8), (0, 2)])].concat()),
        ("goes on too long", [greeting(), facts(&[(0, 2), (5, 8), (1, 2), (0, 1)])].concat()),
        ("a message ends too early", [greeting(), facts(&[(0, 2), (5, 8)])].concat()),
        // An end without any information.
        (
            "does not belong to its option",
            [greeting(), option_reply(8, 1, &[]), option_reply(7, 1, &[])].concat(),
        ),
        ("the sizes of blocks are invalid", [greeting(), blocks(0, 65536)].concat()),
        ("the sizes of blocks are invalid", [greeting(), blocks(3, 65536)].concat()),
        ("the sizes of blocks are invalid", [greeting(), blocks(1 << 17, 1 << 25)].concat()),
        ("the sizes of blocks are invalid", [greeting(), blocks(4096, 512)].concat()),
        (
            "an answer to an option is too long",
            [greeting(), pack(&[(0x0003_e889_0455_65a9, 8), (8, 4), (1, 4), (1 << 31, 4)])]
                .concat(),
        ),
        (
            "there is no end of information",
            [
                [greeting(), option_reply(8, 1, &[])].concat(),
                option_reply(7, 3, &pack(&plain)).repeat(2000),
            ]
            .concat(),
        ),
    ];
    for (words, lie) in cases {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _ = theirs.write_all(&lie);
                // Until the client leaves.
                let _ = theirs.read_to_end(&mut Vec::new());
            });
            let options = ClientOptions { contexts: Vec::new(), ..options() };
            let error = Client::open(Stream::Unix(ours), "disk", &options).err();
            let error = error.unwrap_or_else(|| panic!("{words}: it was believed"));
            assert!(error.to_string().contains(words), "{words}: {error}");
        });
    }
}
