//! Our client, with the servers of QEMU and of nbdkit.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use strongroom_base::Stopwatch;
use strongroom_nbd::{Cause, Client, ClientOptions, STATUS_HOLE, STATUS_ZERO, Stream};
use strongroom_testkit::Random;

use crate::world::{Theirs, lacks, run, sparse_image};

const BYTES: u64 = 16 << 20;

/// Reads in parts from a seed, by several threads, and compares.
fn assert_reads(client: &Client, content: &[u8]) {
    assert_eq!(client.size(), content.len() as u64);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..60 {
                    let offset = random.below(content.len() as u64) as usize;
                    let most = (content.len() - offset).min(700 << 10);
                    let bytes = 1 + random.below(most as u64) as usize;
                    let mut read = vec![0xaa; bytes.min(content.len() - offset)];
                    client.read_at(offset as u64, &mut read).unwrap();
                    assert!(read == content[offset..][..read.len()], "{offset} {bytes}");
                }
            });
        }
    });
    let mut read = vec![0; content.len()];
    client.read_at(0, &mut read).unwrap();
    assert!(read == content);
}

/// What the server calls zeros must be zeros, without gaps.
fn assert_status(client: &Client, content: &[u8]) -> usize {
    let mut position = 0;
    let mut holes = 0;
    for run in client.block_status("base:allocation", 0..client.size()).unwrap() {
        let run = run.unwrap();
        assert_eq!(run.range.start, position);
        position = run.range.end;
        if run.flags & STATUS_ZERO != 0 {
            let part = &content[run.range.start as usize..run.range.end as usize];
            assert!(part.iter().all(|&byte| byte == 0));
            holes += 1;
        }
    }
    assert_eq!(position, client.size());
    holes
}

#[test]
fn qemu_nbd_of_a_raw_image() {
    if lacks(&["qemu-nbd"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.raw");
    let content = sparse_image(&path, 11, BYTES);
    let theirs = Theirs::qemu_nbd(&["-f", "raw", "-r"], &path);
    let client = theirs.client("", &["base:allocation"]);
    assert!(client.is_read_only() && client.allows_several_connections());
    assert_reads(&client, &content);
    assert!(assert_status(&client, &content) > 5);
    assert!(client.write_at(0, &[1; 512]).is_err());
    // Two clients at once, and one that comes after others have left.
    let second = theirs.client("", &[]);
    drop(client);
    assert_reads(&second, &content);
    assert!(!second.has_context("base:allocation"));
    let error = Client::open(theirs.stream(), "other", &ClientOptions::default()).err().unwrap();
    assert!(matches!(error.cause(), Cause::NotOpened { .. }), "{error}");
}

/// The dirty bitmap of a qcow2: QEMU writes after it was made, and the client must see just that.
#[test]
fn the_bitmap_of_a_qcow2_is_read() {
    if lacks(&["qemu-nbd", "qemu-img", "qemu-io"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.qcow2");
    let image = path.to_str().unwrap();
    run("qemu-img", &["create", "-q", "-f", "qcow2", image, "1G"]);
    let write = |offset: u64, bytes: u64| {
        run("qemu-io", &["-f", "qcow2", "-c", &format!("write -P 5 {offset} {bytes}"), image]);
    };
    write(0, 5 << 20);
    run("qemu-img", &["bitmap", "--add", "-g", "65536", image, "sr-S0"]);
    let mut random = Random::new(4);
    let clusters = (1 << 30) / 65536;
    let mut is_dirty = vec![false; clusters as usize];
    for _ in 0..25 {
        let offset = random.below((1 << 30) - (1 << 20));
        let bytes = 1 + random.below(1 << 20);
        write(offset, bytes);
        is_dirty[(offset / 65536) as usize..=((offset + bytes - 1) / 65536) as usize].fill(true);
    }
    let theirs = Theirs::qemu_nbd(&["-f", "qcow2", "-r", "-B", "sr-S0"], &path);
    let contexts = ["base:allocation", "qemu:dirty-bitmap:sr-S0", "qemu:dirty-bitmap:other"];
    let client = theirs.client("", &contexts);
    assert!(client.has_context(contexts[0]) && client.has_context(contexts[1]));
    assert!(!client.has_context(contexts[2]));
    let mut said = vec![false; clusters as usize];
    for run in client.block_status(contexts[1], 0..client.size()).unwrap() {
        let run = run.unwrap();
        assert_eq!((run.range.start % 65536, run.range.end % 65536), (0, 0));
        let clusters = (run.range.start / 65536) as usize..(run.range.end / 65536) as usize;
        said[clusters].fill(run.flags == 1);
    }
    assert!(said == is_dirty);
    assert!(said.iter().filter(|&&is_dirty| is_dirty).count() > 100);
    // The other context in the same connection, and a range that begins within a cluster.
    let runs: Vec<_> = client.block_status(contexts[0], 12_345..98_765).unwrap().collect();
    let runs: Vec<_> = runs.into_iter().map(|run| run.unwrap()).collect();
    assert_eq!((runs[0].range.start, runs[runs.len() - 1].range.end), (12_345, 98_765));
    assert_eq!(runs[0].flags & (STATUS_HOLE | STATUS_ZERO), 0);
}

#[test]
fn a_trim_frees_what_it_covers() {
    if lacks(&["qemu-nbd"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.raw");
    File::create(&path).unwrap().set_len(BYTES).unwrap();
    let theirs = Theirs::qemu_nbd(&["-f", "raw", "--discard=unmap"], &path);
    let client = theirs.client("", &["base:allocation"]);
    client.write_at(0, &vec![7; BYTES as usize]).unwrap();
    client.flush().unwrap();
    client.trim(1 << 20..9 << 20).unwrap();
    client.flush().unwrap();
    let status = client.block_status("base:allocation", 0..BYTES).unwrap();
    let runs: Vec<_> = status.map(|run| run.unwrap()).collect();
    let holes: Vec<_> = runs.iter().filter(|run| run.flags & STATUS_ZERO != 0).collect();
    assert_eq!(holes.len(), 1, "{runs:?}");
    assert_eq!(holes[0].range, 1 << 20..9 << 20);
    client.write_zeroes(0..1 << 20).unwrap();
    let mut read = vec![1; 2 << 20];
    client.read_at(8 << 20, &mut read).unwrap();
    assert!(read[..1 << 20].iter().all(|&byte| byte == 0));
    assert!(read[1 << 20..].iter().all(|&byte| byte == 7));
}

#[test]
fn nbdkit_in_all_its_ways() {
    if lacks(&["nbdkit"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.raw");
    let content = sparse_image(&path, 12, BYTES);
    let file = path.to_str().unwrap();
    let ways: [&[&str]; 6] = [
        &["file", file],
        // Simple replies.
        &["--no-sr", "file", file],
        &["--filter=noparallel", "file", file, "serialize=all-requests"],
        // Blocks of 4 KiB, small requests, and an error for all others.
        &[
            "--filter=blocksize-policy",
            "file",
            file,
            "blocksize-minimum=4096",
            "blocksize-preferred=65536",
            "blocksize-maximum=131072",
            "blocksize-error-policy=error",
        ],
        // It answers with one extent at a time, and slowly.
        &["--filter=delay", "file", file, "rdelay=2ms", "delay-extents=1ms"],
        &["--filter=noextents", "file", file],
    ];
    for way in ways {
        let theirs = Theirs::nbdkit(way);
        let client = theirs.client("", &["base:allocation"]);
        assert_reads(&client, &content);
        let is_structured = !way.contains(&"--no-sr");
        assert_eq!(client.has_context("base:allocation"), is_structured, "{way:?}");
        if is_structured {
            let holes = assert_status(&client, &content);
            assert_eq!(holes > 5, !way.contains(&"--filter=noextents"), "{way:?}");
        }
    }
}

#[test]
fn blocks_of_the_server_are_kept_to() {
    if lacks(&["nbdkit"]) {
        return;
    }
    let sizes = ["blocksize-minimum=4096", "blocksize-preferred=4096", "blocksize-maximum=4096"];
    let mut arguments = vec!["--filter=blocksize-policy", "memory", "256K"];
    arguments.extend(sizes);
    arguments.push("blocksize-error-policy=error");
    let theirs = Theirs::nbdkit(&arguments);
    let client = theirs.client("", &["base:allocation"]);
    client.write_at(4096, &[9; 3 * 4096]).unwrap();
    let mut read = [0; 5000];
    client.read_at(4000, &mut read).unwrap();
    assert!(read[..96].iter().all(|&byte| byte == 0) && read[96..].iter().all(|&byte| byte == 9));
    let error = client.write_at(1, &[1]).unwrap_err();
    assert!(matches!(error.cause(), Cause::Unaligned { block_bytes: 4096 }), "{error}");
    // Only the block that is in the range completely.
    client.trim(4097..3 * 4096 + 1).unwrap();
    client.read_at(4096, &mut read).unwrap();
    assert!(read[..4096].iter().all(|&byte| byte == 9) && read[4096] == 0);
    client.cache(1..2).unwrap();
}

#[test]
fn a_slow_server_has_many_requests() {
    if lacks(&["nbdkit"]) {
        return;
    }
    let theirs =
        Theirs::nbdkit(&["--threads=64", "--filter=delay", "memory", "64M", "rdelay=100ms"]);
    let client = theirs.client("", &[]);
    let taken = Stopwatch::start();
    let reads: Vec<_> =
        (0..48).map(|number| client.begin_read(number << 16, 1 << 16).unwrap()).collect();
    for read in reads {
        assert!(read.wait().unwrap().iter().all(|&byte| byte == 0));
    }
    // One after another they would take 4.8 s.
    assert!(taken.elapsed() < Duration::from_millis(2400), "{:?}", taken.elapsed());
}

#[test]
fn errors_of_a_server_spoil_nothing_else() {
    if lacks(&["nbdkit"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.raw");
    let content = sparse_image(&path, 13, BYTES);
    let theirs =
        Theirs::nbdkit(&["--filter=error", "file", path.to_str().unwrap(), "error-pread-rate=30%"]);
    let client = theirs.client("", &[]);
    let mut failed = 0;
    for number in 0..200 {
        let offset = number << 16;
        match client.begin_read(offset, 64 << 10).unwrap().wait() {
            Ok(read) => assert!(read == content[offset as usize..][..64 << 10]),
            Err(error) => {
                assert!(matches!(error.cause(), Cause::Refused { .. }), "{error}");
                failed += 1;
            }
        }
    }
    assert!((20..120).contains(&failed), "{failed}");
}

#[test]
fn servers_of_older_ways_are_refused_cleanly() {
    if lacks(&["nbdkit"]) {
        return;
    }
    for way in [&["--mask-handshake=0"][..], &["--oldstyle"]] {
        let theirs = Theirs::start(|socket| {
            let mut command = std::process::Command::new("nbdkit");
            command.args(["-f", "-U"]).arg(socket).args(way).args(["memory", "1M"]);
            command
        });
        let error = Client::open(theirs.stream(), "", &ClientOptions::default()).err().unwrap();
        assert!(error.to_string().contains("fixed newstyle"), "{error}");
    }
}

#[test]
fn a_killed_server_is_an_error() {
    if lacks(&["nbdkit"]) {
        return;
    }
    let theirs = Theirs::nbdkit(&["--filter=delay", "memory", "1M", "rdelay=60"]);
    let client = theirs.client("", &[]);
    let read = client.begin_read(0, 4096).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || read.wait().unwrap_err());
        std::thread::sleep(Duration::from_millis(50));
        drop(theirs);
        let error = waiting.join().unwrap();
        assert!(matches!(error.cause(), Cause::Closed), "{error}");
    });
    let error = client.begin_read(0, 1).err().unwrap();
    assert!(matches!(error.cause(), Cause::Closed), "{error}");
    let missing = Stream::connect_unix(Path::new("/nonexistent/socket"));
    assert_eq!(missing.unwrap_err().kind(), std::io::ErrorKind::NotFound);
}
