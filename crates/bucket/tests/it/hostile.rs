//! Programs and agents that do not keep to the protocol: the other side ends the connection.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketType, connect, sendmsg, socket,
};
use strongroom_bucket::served::{Connection, Listener, Received};
use strongroom_bucket::{Bucket, BucketError, FromProgram, PROTOCOL};

use crate::world::Shared;

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

#[test]
fn a_connection_says_who_is_there_and_when_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ram.sock");
    let listener = Listener::bind(&path, 0o600).unwrap();
    assert!(listener.accept(Some(Duration::ZERO)).unwrap().is_none());
    let (client, connection) = connected(&path, &listener);
    assert_eq!(connection.peer().pid, std::process::id() as i32);
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
