//! Our client with our server.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use strongroom_base::Stopwatch;
use strongroom_nbd::{
    Cause, Client, ClientOptions, Errno, Export, Overlay, STATUS_HOLE, STATUS_ZERO, ServerOptions,
    Stream,
};
use strongroom_testkit::{Random, noise};

use crate::world::{Memory, Named, Ours, sparse_image};

/// Random requests of several threads, each in its own part of the disk, against plain memory.
#[test]
fn random_requests_do_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let part_bytes = (3 << 20) + 777;
    let content = noise(5, 4 * part_bytes);
    let base = Arc::new(Memory::new(content.clone()));
    let overlay = Overlay::open(&folder.path().join("overlay"), base, [0; 32]).unwrap();
    let ours = Ours::start(Named::one("disk", overlay), ServerOptions::default());
    let client = ours.client("disk");
    std::thread::scope(|scope| {
        for (number, expected) in content.chunks(part_bytes).enumerate() {
            let (client, mut expected) = (&client, expected.to_vec());
            let begin = (number * part_bytes) as u64;
            scope.spawn(move || {
                let mut random = Random::new(number as u64);
                for _ in 0..300 {
                    let at = random.below(expected.len() as u64);
                    let bytes = random.below((expected.len() as u64 - at).min(300 << 10)) + 1;
                    let local = at as usize..(at + bytes).min(expected.len() as u64) as usize;
                    let range = begin + local.start as u64..begin + local.end as u64;
                    step(client, &mut random, range, &mut expected[local]);
                }
                let mut read = vec![0; expected.len()];
                client.read_at(begin, &mut read).unwrap();
                assert!(read == expected);
            });
        }
    });
    drop(client);
    ours.wait_until_empty();
}

/// One request, done to the disk and to what is expected of it.
fn step(client: &Client, random: &mut Random, range: Range<u64>, expected: &mut [u8]) {
    match random.below(6) {
        0 | 1 => {
            let bytes = random.content(expected.len());
            client.write_at(range.start, &bytes).unwrap();
            expected.copy_from_slice(&bytes);
        }
        2 => {
            client.write_zeroes(range).unwrap();
            expected.fill(0);
        }
        3 => {
            client.flush().unwrap();
            client.cache(range).unwrap();
        }
        4 => {
            let mut position = range.start;
            for run in client.block_status("base:allocation", range.clone()).unwrap() {
                let run = run.unwrap();
                assert_eq!(run.range.start, position);
                position = run.range.end;
                let (begin, end) = (run.range.start - range.start, run.range.end - range.start);
                let part = &expected[begin as usize..end as usize];
                let is_zero = run.flags & STATUS_ZERO != 0;
                assert!(!is_zero || part.iter().all(|&byte| byte == 0), "a hole with data");
            }
            assert_eq!(position, range.end);
        }
        _ => {
            let read = client.begin_read(range.start, expected.len() as u32).unwrap();
            assert!(read.wait().unwrap() == expected);
        }
    }
}

/// Appends as many of these bytes as a range has.
fn fill(range: Range<u64>, byte: u8, bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len() + (range.end - range.start) as usize, byte);
}

/// A disk that answers for its first half only when it is let.
#[derive(Clone)]
struct Slow(Arc<(Mutex<bool>, Condvar)>);

impl Export for Slow {
    fn size(&self) -> u64 {
        2 << 20
    }

    fn append(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
        fill(range.clone(), 1, bytes);
        let mut is_released = self.0.0.lock().unwrap();
        while range.start < self.size() / 2 && !*is_released {
            is_released = self.0.1.wait(is_released).unwrap();
        }
        Ok(())
    }
}

impl Slow {
    fn new() -> Self {
        Self(Arc::new((Mutex::new(false), Condvar::new())))
    }

    fn release(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

#[test]
fn a_slow_read_holds_up_no_other() {
    let slow = Slow::new();
    let ours = Ours::start(Named::one("slow", slow.clone()), ServerOptions::default());
    let client = ours.client("slow");
    // Enough to occupy every thread that this connection can have is fewer than all threads.
    let held: Vec<_> = (0..8).map(|_| client.begin_read(0, 4096).unwrap()).collect();
    for number in 0..100 {
        let offset = (1 << 20) + number * 4096;
        assert_eq!(client.begin_read(offset, 4096).unwrap().wait().unwrap()[0], 1);
    }
    let second = ours.client("slow");
    let more: Vec<_> = (0..40).map(|_| client.begin_read(0, 4096).unwrap()).collect();
    second.read_at(1 << 20, &mut [0; 4096]).unwrap();
    slow.release();
    for read in held.into_iter().chain(more) {
        assert_eq!(read.wait().unwrap(), vec![1; 4096]);
    }
}

#[test]
fn a_stop_answers_what_was_asked_for() {
    let slow = Slow::new();
    let ours = Ours::start(Named::one("slow", slow.clone()), ServerOptions::default());
    let client = ours.client("slow");
    let read = client.begin_read(0, 4096).unwrap();
    // The request must have arrived: another one behind it was answered.
    client.read_at(1 << 20, &mut [0; 16]).unwrap();
    let (server, socket) = (ours.server, ours.folder.path().join("socket"));
    let stopping = std::thread::spawn(move || server.stop());
    std::thread::sleep(Duration::from_millis(50));
    assert!(!stopping.is_finished());
    slow.release();
    assert_eq!(read.wait().unwrap(), vec![1; 4096]);
    assert!(stopping.join().unwrap());
    assert!(!socket.exists());
    let error = client.read_at(0, &mut [0; 16]).unwrap_err();
    assert!(matches!(error.cause(), Cause::Closed), "{error}");
}

#[test]
fn a_disk_that_hangs_cannot_keep_the_server() {
    let slow = Slow::new();
    let farewell_limit = Duration::from_millis(100);
    let options = ServerOptions { farewell_limit, ..Default::default() };
    let ours = Ours::start(Named::one("slow", slow.clone()), options);
    let client = ours.client("slow");
    let read = client.begin_read(0, 4096).unwrap();
    client.read_at(1 << 20, &mut [0; 16]).unwrap();
    assert!(!ours.server.stop());
    assert!(matches!(read.wait().unwrap_err().cause(), Cause::Closed));
    slow.release();
}

/// A disk that fails, panics, or reads nothing, depending on the offset.
struct Bad;

impl Export for Bad {
    fn size(&self) -> u64 {
        1 << 20
    }

    fn append(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
        match range.start {
            0 => Err(io::Error::other("chunk 5 is damaged")),
            4096 => panic!("a test of panics in a disk"),
            8192 => {
                fill(range, 2, bytes);
                Ok(())
            }
            // No byte of it.
            _ => Ok(()),
        }
    }
}

#[test]
fn errors_name_the_export_and_the_request() {
    let ours = Ours::start(Named::one("vm1/disk0", Bad), ServerOptions::default());
    let client = ours.client("vm1/disk0");
    let error = client.read_at(0, &mut [0; 512]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "NBD export \"vm1/disk0\": read of 512 bytes at 0 failed: the server answers: input or \
         output error (\"chunk 5 is damaged\")"
    );
    let error = client.read_at(4096, &mut [0; 512]).unwrap_err();
    assert!(matches!(error.cause(), Cause::Refused { errno: Errno::EIO, .. }), "{error}");
    let error = client.write_at(0, &[1]).unwrap_err();
    assert!(matches!(error.cause(), Cause::Refused { errno: Errno::EPERM, .. }), "{error}");
    let error = client.trim(0..4096).unwrap_err();
    assert!(matches!(error.cause(), Cause::NotOffered("trim")), "{error}");
    let error = client.read_at((1 << 20) - 1, &mut [0; 2]).unwrap_err();
    assert!(matches!(error.cause(), Cause::Outside { size: 1_048_576 }), "{error}");
    let error = client.read_at(u64::MAX, &mut [0; 2]).unwrap_err();
    assert!(matches!(error.cause(), Cause::Outside { .. }), "{error}");
    let Err(error) = client.block_status("qemu:dirty-bitmap:x", 0..4096) else { panic!() };
    assert!(matches!(error.cause(), Cause::NotOffered(_)), "{error}");
    let error = client.read_at(16384, &mut [0; 512]).unwrap_err();
    assert!(error.to_string().contains("another length"), "{error}");
    // The connection goes on after all of this.
    let mut read = [0; 16];
    client.read_at(8192, &mut read).unwrap();
    assert_eq!(read, [2; 16]);
    let stream = Stream::Unix(ours.pair());
    let error = Client::open(stream, "vm2", &ClientOptions::default()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "cannot open the NBD export \"vm2\": the server refuses (\"there is no export of this name\")"
    );
}

#[test]
fn many_reads_are_in_flight_at_once() {
    /// A disk that is far away.
    struct Far;
    impl Export for Far {
        fn size(&self) -> u64 {
            64 << 20
        }
        fn append(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
            std::thread::sleep(Duration::from_millis(50));
            fill(range, 3, bytes);
            Ok(())
        }
    }
    let ours = Ours::start(Named::one("", Far), ServerOptions::default());
    let client = ours.client("");
    let taken = Stopwatch::start();
    let reads: Vec<_> =
        (0..48).map(|number| client.begin_read(number << 16, 1 << 16).unwrap()).collect();
    for read in reads {
        assert_eq!(read.wait().unwrap().len(), 1 << 16);
    }
    // One after another they would take 2.4 s; twelve threads take 0.2 s.
    assert!(taken.elapsed() < Duration::from_millis(1500), "{:?}", taken.elapsed());
}

#[test]
fn holes_and_data_are_those_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let content = sparse_image(&path, 9, 40 << 20);
    let export = strongroom_nbd::FileExport::open(&path).unwrap();
    let mut expected = Vec::new();
    let mut position = 0;
    while position < export.size() {
        for extent in export.extents(position..export.size()).unwrap() {
            expected.push((position..position + extent.bytes, extent.is_hole));
            position += extent.bytes;
        }
    }
    let ours = Ours::start(Named::one("", export), ServerOptions::default());
    let client = ours.client("");
    let said: Vec<_> = client
        .block_status("base:allocation", 0..client.size())
        .unwrap()
        .map(|run| run.map(|run| (run.range, run.flags == STATUS_HOLE | STATUS_ZERO)).unwrap())
        .collect();
    assert!(said.len() > 20);
    assert_eq!(said, expected);
    // Longer than one request, with holes in it.
    let mut read = vec![0xff; content.len()];
    client.read_at(0, &mut read).unwrap();
    assert!(read == content);
}
