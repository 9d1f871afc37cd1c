//! Programs and agents that do not keep to the protocol: the other side ends the connection.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketType, connect, sendmsg, socket,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use strongroom_bucket::served::{Connection, Listener, Received};
use strongroom_bucket::{Bucket, BucketError, FromProgram, PROTOCOL};

use crate::world::{Shared, eventually};

fn connected(path: &Path, listener: &Listener) -> (OwnedFd, Connection) {
    let client = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    connect(&client, &SocketAddrUnix::new(path).unwrap()).unwrap();
    (client, listener.accept(None).unwrap().unwrap())
}

fn send(client: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(beside.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    sendmsg(client, &[IoSlice::new(bytes)], &mut beside, SendFlags::empty()).unwrap();
}

fn region() -> Vec<u8> {
    let area = "data".to_owned();
    FromProgram::Region { request: 1, area, bytes: 1, base: None, is_private: false }.pack()
}

#[test]
fn what_is_no_message_ends_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ram.sock");
    let listener = Listener::bind(&path, 0o600).unwrap();
    let file = std::fs::File::open(folder.path()).unwrap();
    let eight = [file.as_fd(); 8];
    let hello = FromProgram::Hello { protocol: PROTOCOL, file: "f".into(), bucket: 0 }.pack();
    let long = vec![0; 70_000];
    let cases: [(&[u8], &[BorrowedFd<'_>]); 7] = [
        (b"\x00", &[]),
        (b"\xa1\x00\x18\x63", &[]),
        (&long, &[]),
        (&region(), &[]),
        (&hello, &eight[..1]),
        (&region(), &eight[..2]),
        (&region(), &eight),
    ];
    for (bytes, descriptors) in cases {
        let (client, connection) = connected(&path, &listener);
        send(&client, bytes, descriptors);
        let received = connection.receive(Some(Duration::from_secs(5)));
        assert!(received.is_err(), "{received:?}");
    }
    // The descriptors that were sent are closed again.
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(open < 100, "{open} descriptors are open");
}

/// This program, which runs one of its tests in a process of its own.
#[expect(clippy::disallowed_methods, reason = "the test runs itself")]
fn tests() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Runs a test that is left out otherwise.
fn run_apart(command: &mut Command, test: &str) {
    let output = command.args(["--ignored", "--exact", test]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
}

#[test]
fn a_program_is_not_ended_if_there_is_no_descriptor_left() {
    run_apart(&mut Command::new(tests()), "hostile::without_descriptors");
}

#[test]
#[ignore = "run by a_program_is_not_ended_if_there_is_no_descriptor_left: the limit is of a process"]
fn without_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ram.sock");
    let listener = Listener::bind(&path, 0o600).unwrap();
    let (client, connection) = connected(&path, &listener);
    let memory = Shared::new(b"content");
    let hello = FromProgram::Hello { protocol: PROTOCOL, file: "f".into(), bucket: 0 }.pack();
    send(&client, &region(), &[memory.0.as_fd()]);
    send(&client, &region(), &[memory.0.as_fd()]);
    send(&client, &hello, &[memory.0.as_fd()]);
    let limit = getrlimit(Resource::Nofile);
    // One is enough to wait for a message.
    let none_left = Rlimit { current: Some(1), ..limit };
    setrlimit(Resource::Nofile, none_left).unwrap();
    let without = connection.receive(None);
    setrlimit(Resource::Nofile, limit).unwrap();
    let with = connection.receive(None);
    setrlimit(Resource::Nofile, none_left).unwrap();
    let wrong = connection.receive(None);
    setrlimit(Resource::Nofile, limit).unwrap();
    let is_region = |message: &FromProgram| matches!(message, FromProgram::Region { .. });
    assert!(matches!(&without, Ok(Received::Message(it, None)) if is_region(it)), "{without:?}");
    assert!(matches!(&with, Ok(Received::Message(it, Some(_))) if is_region(it)), "{with:?}");
    assert!(wrong.is_err(), "{wrong:?}");
}

#[test]
fn a_program_of_another_pid_namespace_has_no_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ram.sock");
    let connecting = thread::spawn(move || {
        let client = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let address = SocketAddrUnix::new(&path).unwrap();
        assert!(eventually(|| connect(&client, &address).is_ok()));
        client
    });
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--fork"]).arg(tests());
    run_apart(command.current_dir(folder.path()), "hostile::of_another_namespace");
    drop(connecting.join().unwrap());
}

#[test]
#[ignore = "run by a_program_of_another_pid_namespace_has_no_number, in a namespace"]
fn of_another_namespace() {
    let listener = Listener::bind(Path::new("ram.sock"), 0o600).unwrap();
    let connection = listener.accept(Some(Duration::from_secs(10))).unwrap().unwrap();
    assert_eq!(connection.peer().pid, None);
}

#[test]
fn a_connection_says_who_is_there_and_when_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ram.sock");
    let listener = Listener::bind(&path, 0o600).unwrap();
    assert!(listener.accept(Some(Duration::ZERO)).unwrap().is_none());
    let (client, connection) = connected(&path, &listener);
    assert_eq!(connection.peer().pid, Some(std::process::id() as i32));
    let nothing = connection.receive(Some(Duration::ZERO)).unwrap();
    assert!(matches!(nothing, Received::Nothing));
    let memory = Shared::new(b"content");
    send(&client, &region(), &[memory.0.as_fd()]);
    let received = connection.receive(None).unwrap();
    let Received::Message(FromProgram::Region { .. }, Some(file)) = received else {
        panic!("{received:?}");
    };
    drop((client, memory));
    assert!(matches!(connection.receive(None).unwrap(), Received::End));
    // The memory of a program that is gone can still be read.
    assert_eq!(Shared(file).read(7), b"content");
    drop(listener);
    assert!(!path.exists());
}

/// An agent that answers the first message with some bytes, and then sends others.
fn bad_agent(listener: Listener, greeting: &'static [u8], then: &'static [u8]) {
    let connection = listener.accept(None).unwrap().unwrap();
    connection.receive(None).unwrap();
    let send = |bytes: &[u8]| {
        let mut beside = SendAncillaryBuffer::default();
        sendmsg(&connection, &[IoSlice::new(bytes)], &mut beside, SendFlags::empty()).unwrap();
    };
    send(greeting);
    if !then.is_empty() {
        connection.receive(None).unwrap();
        send(then);
        // Until the program ends it.
        while !matches!(connection.receive(None), Ok(Received::End) | Err(_)) {}
    }
}

#[test]
fn an_agent_that_sends_no_messages_is_left() {
    let welcome = b"\xa2\x00\x18\x40\x03\x01";
    let newer = b"\xa2\x00\x18\x40\x03\x02";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ram.sock");
    let open_with = |greeting: &'static [u8], then: &'static [u8]| {
        let listener = Listener::bind(&path, 0o600).unwrap();
        let agent = thread::spawn(move || bad_agent(listener, greeting, then));
        let opened = Bucket::open(Some(&path), "f", 0);
        let tested = opened.map(|bucket| bucket.test("n").map(drop));
        agent.join().unwrap();
        tested
    };
    assert!(matches!(open_with(b"\xff", b""), Err(BucketError::Refused { .. })));
    let refused = open_with(newer, b"").unwrap_err().to_string();
    assert!(refused.contains("speaks version 2 and this library version 1"), "{refused}");
    for then in [b"\xff".as_slice(), b"\xa1\x00\x01"] {
        assert!(matches!(open_with(welcome, then), Ok(Err(BucketError::AgentGone))));
    }
}
