//! Doors for programs that exist: a range of a file, the file system of Python's fsspec, and
//! Valkey or Redis by what they dump.
//!
//! The tests of `dist/python` need a Python with fsspec; `./test` makes one and names it in
//! `STRONGROOM_TEST_PYTHON`.
#![expect(clippy::disallowed_methods, reason = "a test that reads the environment")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use strongroom_testkit::Random;

use crate::space::Disk;
use crate::world::{Run, World, has_program, is_root, program, skipped};

#[test]
fn cat_writes_a_range() {
    let world = World::with_repository();
    let whole = Random::new(1).noise(300_000);
    world.feed("backup --stdin file", &whole).exits(0);
    let cat = |options: &str| world.say(&format!("cat latest:/file{options}"));
    for (options, begin, end) in [
        ("", 0, 300_000),
        (" --offset 0 --length 10", 0, 10),
        (" --offset 100KiB", 102_400, 300_000),
        (" --offset 123456 --length 65536", 123_456, 188_992),
        (" --offset 299999 --length 1MiB", 299_999, 300_000),
        (" --length 0", 0, 0),
        (" --offset 300000", 300_000, 300_000),
    ] {
        assert!(cat(options).exits(0).bytes == whole[begin..end], "{options}");
    }
    let run = cat(" --offset 300001").exits(1);
    assert_eq!(run.bytes, b"");
    run.warns("/file has 300,000 bytes").warns("hint: give an --offset of at most 300000");
    cat(" --offset -1").exits(2);
    let run = cat(" --offset 5 --length 7 --json").exits(0);
    assert_eq!(run.bytes, whole[5..12]);
    let last = run.err.lines().next_back().unwrap();
    let summary: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!((&summary["event"], &summary["bytes"]), (&"summary".into(), &7.into()));
}

#[test]
fn fsspec_keeps_checkpoints() {
    let Ok(python) = std::env::var("STRONGROOM_TEST_PYTHON") else {
        strongroom_testkit::skip("STRONGROOM_TEST_PYTHON is not set; ./test sets it");
        return;
    };
    let world = World::empty();
    let small = world.path("small");
    let disk = is_root().then(|| Disk::mount(&small, "16M")).flatten();
    if skipped("a full disk", disk.is_none().then_some("it cannot be mounted here")) {
        return;
    }
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/python/tests");
    let output = Command::new(&python)
        .args(["-W", "error::ResourceWarning", "-m", "unittest", "discover", "--start-directory"])
        .arg(tests)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("STRONGROOM_TEST_PROGRAM", program())
        .env("STRONGROOM_TEST_SMALL_FOLDER", &small)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{python}: {said}");
    assert!(said.contains("\nOK\n") && !said.contains("skipped"), "{said}");
}

/// A Redis that keeps its keys in memory alone.
struct Redis {
    process: Child,
    socket: PathBuf,
}

impl Redis {
    /// Starts it in a folder, with the keys of `dump.rdb` if it is there.
    fn start(folder: PathBuf) -> Self {
        let socket = folder.join("socket");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--rdbcompression", "no"])
            .args(["--repl-diskless-sync-delay", "0", "--dir"])
            .arg(&folder)
            .arg("--unixsocket")
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let started = Self { process, socket };
        let begun = Instant::now();
        // While it loads its keys it answers with an error.
        while UnixStream::connect(&started.socket).is_err() || started.ask("PING") != "+PONG" {
            assert!(begun.elapsed() < Duration::from_secs(60), "redis-server does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        started
    }

    /// The first line of the answer to a command.
    fn ask(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Sets keys, and waits until the last is set.
    fn set(&self, keys: impl Iterator<Item = (u32, Vec<u8>)>) {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        let mut words = b"CLIENT REPLY OFF\r\n".to_vec();
        for (key, value) in keys {
            let name = format!("key{key}");
            let head =
                format!("*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n${}\r\n", name.len(), value.len());
            words.extend([head.as_bytes(), &value, b"\r\n"].concat());
        }
        words.extend(b"CLIENT REPLY ON\r\n");
        stream.write_all(&words).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert_eq!(line, "+OK\r\n");
    }

    /// The values of the keys from 0 on.
    fn values(&self, count: u32) -> Vec<Vec<u8>> {
        let stream = UnixStream::connect(&self.socket).unwrap();
        let (mut writer, mut reader) = (stream.try_clone().unwrap(), BufReader::new(stream));
        let gets: String = (0..count).map(|key| format!("GET key{key}\r\n")).collect();
        let asking = std::thread::spawn(move || writer.write_all(gets.as_bytes()).unwrap());
        let values = (0..count).map(|key| {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let bytes = line.trim_end().strip_prefix('$').and_then(|length| length.parse().ok());
            let mut value = vec![0; bytes.unwrap_or_else(|| panic!("key{key}: {line}"))];
            reader.read_exact(&mut value).unwrap();
            reader.read_line(&mut line).unwrap();
            value
        });
        let values = values.collect();
        asking.join().unwrap();
        values
    }

    /// The command that dumps it.
    fn dump(&self) -> String {
        format!("redis-cli -s {} --rdb -", self.socket.display())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The recipe of the book.
#[test]
fn redis_comes_back_with_its_keys() {
    const KEYS: u32 = 100_000;
    let installed = has_program("redis-server") && has_program("redis-cli");
    if skipped("redis", (!installed).then_some("redis-server is not installed")) {
        return;
    }
    let world = World::with_repository();
    let folder = |name: &str| {
        fs::create_dir(world.path(name)).unwrap();
        world.path(name)
    };
    let value = |key: u32, round: u64| Random::new(u64::from(key) << 8 | round).content(100);
    let round_of = |key: u32| u64::from(key.is_multiple_of(100));
    let first = Redis::start(folder("first"));
    first.set((0..KEYS).map(|key| (key, value(key, 0))));
    let dump = first.dump();
    let backup = ["backup", "--json", "--stdin", "cache.rdb", "--stdin-from-command", &dump];
    let stored = || world.run(backup).exits(0).summary();
    let whole = stored();
    first.set((0..KEYS).step_by(100).map(|key| (key, value(key, 1))));
    let changed = stored();
    // One key of a hundred: measured are 86 KiB of 11 MiB.
    let (bytes, added) = (&changed["bytes"], &changed["bytes_stored"]);
    assert!(added.as_u64().unwrap() < bytes.as_u64().unwrap() / 40, "{changed}");
    assert!(added.as_u64().unwrap() < whole["bytes_stored"].as_u64().unwrap() / 10, "{changed}");
    for (snapshot, name, last) in [("latest", "second", 1), ("latest~1", "third", 0)] {
        let run = world.run(["cat", &format!("{snapshot}:/cache.rdb")]).exits(0);
        fs::write(folder(name).join("dump.rdb"), run.bytes).unwrap();
        let again = Redis::start(world.path(name));
        assert_eq!(again.ask("DBSIZE"), format!(":{KEYS}"));
        for (key, got) in (0..KEYS).zip(again.values(KEYS)) {
            assert!(got == value(key, round_of(key).min(last)), "{snapshot}: key{key}");
        }
    }
}

#[test]
fn a_dump_that_ends_early_is_no_snapshot() {
    let installed = has_program("redis-server") && has_program("redis-cli");
    if skipped("redis", (!installed).then_some("redis-server is not installed")) {
        return;
    }
    let world = World::with_repository();
    let mut redis = Redis::start(world.folder.path().to_owned());
    redis.set((0..20_000).map(|key| (key, Random::new(key.into()).content(100))));
    // Microseconds before each key: the dump takes four seconds.
    assert_eq!(redis.ask("CONFIG SET rdb-key-save-delay 200"), "+OK");
    let dump = redis.dump();
    let mut command =
        world.command(["backup", "--stdin", "cache.rdb", "--stdin-from-command", &dump]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(child.try_wait().unwrap().is_none(), "the dump ended too early");
    redis.process.kill().unwrap();
    World::finish(child).exits(1).warns("redis-cli").warns("failed");
    assert_eq!(world.run(["snapshots", "--json"]).exits(0).events("snapshot").len(), 0);
}

/// sshd keeps the server of a connection that broke, and other clients come at any time.
#[test]
fn several_servers_behind_ssh_share_a_log() {
    let world = World::empty();
    let (room, log, ssh) = (world.path("room"), world.path("log"), world.path("ssh"));
    let words =
        format!("serve --stdio --role admin --path {} --log {}", room.display(), log.display());
    let mut left = world.command(words.split(' '));
    let mut left = left.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut greeting = [0; 10];
    left.stdout.as_mut().unwrap().read_exact(&mut greeting).unwrap();
    let script = format!("#!/bin/sh\nexec {} {words}\n", program().display());
    fs::write(&ssh, script).unwrap();
    fs::set_permissions(&ssh, PermissionsExt::from_mode(0o755)).unwrap();
    for (command, code) in [("init", 0), ("snapshots", 0), ("init", 1)] {
        let mut client = world.command(["--repo", "ssh://host/room", command]);
        Run::of(client.env("STRONGROOM_SSH", &ssh).output().unwrap()).exits(code);
    }
    left.kill().unwrap();
    left.wait().unwrap();
    let (lines, _) = strongroom_serve::check_log(&log).unwrap();
    let text = fs::read_to_string(&log).unwrap();
    assert!(lines >= 3 && text.contains("create config"), "{text}");
}
