//! Packets over a Unix socket that keeps their bounds (SEQPACKET), with file descriptors beside them.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::time::Timespec;

/// Bytes of a message at most.
pub const MESSAGE_BYTES_MAX: usize = 65_536;

/// What came.
#[derive(Debug)]
pub enum Packet {
    /// A message, and the descriptor beside it.
    Message(Vec<u8>, Option<OwnedFd>),
    /// A message with a descriptor, for which this process has no room.
    WithoutDescriptor(Vec<u8>),
    /// More than one descriptor, or more bytes than a message has.
    Oversized,
    /// The other side is gone.
    End,
}

/// Waits until there is something to receive. Returns false when the time is over; without a time it
/// waits for ever.
pub fn wait_readable(socket: BorrowedFd<'_>, time: Option<Duration>) -> Result<bool, Errno> {
    wait(socket, PollFlags::IN, time)
}

/// Whether the other side has closed its end.
pub fn is_over(socket: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // What cannot be asked is found out when it is read.
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::HUP)
}

/// Sends a message, waiting as long as the other side takes to read what was sent before.
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
    patience: Option<Duration>,
) -> Result<(), Errno> {
    loop {
        match try_send(socket, bytes, descriptor) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if !wait(socket, PollFlags::OUT, patience)? {
                    return Err(Errno::TIMEDOUT);
                }
            }
            outcome => return outcome,
        }
    }
}

/// Receives what is there.
///
/// # Errors
///
/// `AGAIN` if nothing is there.
pub fn receive(socket: BorrowedFd<'_>) -> Result<Packet, Errno> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(socket, &mut parts, &mut beside, flags) {
            Err(Errno::INTR) => {}
            // The other side died with messages of ours unread.
            Err(Errno::CONNRESET | Errno::PIPE) => return Ok(Packet::End),
            outcome => break outcome?,
        }
    };
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    // Of more descriptors than there is space for, the first are here. None is if this process may open
    // no more.
    let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
    let is_too_many = descriptors.len() > 1 || is_cut && !descriptors.is_empty();
    if received.flags.contains(ReturnFlags::TRUNC) || is_too_many {
        return Ok(Packet::Oversized);
    }
    if received.bytes == 0 {
        return Ok(Packet::End);
    }
    bytes.truncate(received.bytes);
    if is_cut {
        return Ok(Packet::WithoutDescriptor(bytes));
    }
    Ok(Packet::Message(bytes, descriptors.pop()))
}

fn try_send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.as_slice();
    if !descriptors.is_empty() {
        let fits = beside.push(SendAncillaryMessage::ScmRights(descriptors));
        debug_assert!(fits, "the space is for one descriptor");
    }
    // A packet is sent whole or not at all.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, flags).map(drop)
}

fn wait(socket: BorrowedFd<'_>, what: PollFlags, time: Option<Duration>) -> Result<bool, Errno> {
    let time = time
        .map(|time| Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 }));
    loop {
        let mut polled = [PollFd::from_borrowed_fd(socket.as_fd(), what)];
        match poll(&mut polled, time.as_ref()) {
            Ok(count) => return Ok(count > 0),
            // Interrupted waits begin again: a program that is interrupted all the time waits longer.
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}
