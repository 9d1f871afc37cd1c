//! The private network of several machines that are started together.
//!
//! Each machine has a [`Wire`] to it: two sockets that QEMU gets from us, one of its card and one of
//! its gateway. Nothing else can reach them, and they lead nowhere. What comes from a card goes to all
//! other cards, as in a hub. The gateway is QEMU's own: it answers DHCP and forwards ports. It hears
//! and reaches its own card alone, and hears nothing that is meant for other machines: it would
//! refuse their connections.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair,
};

/// The longest frame of QEMU's cards, with all that they leave to the host.
const FRAME_BYTES_MAX: usize = 68 << 10;
/// How the addresses of QEMU's gateways begin, those for IPv4 and those for IPv6.
const GATEWAYS: [[u8; 2]; 2] = [[0x52, 0x55], [0x52, 0x56]];
const BROADCAST: [u8; 6] = [0xff; 6];
const ARP: [u8; 2] = [0x08, 0x06];
const IPV4: [u8; 2] = [0x08, 0x00];

/// QEMU's ends of a wire.
#[derive(Debug, Clone)]
pub struct Wire(Arc<Ends>);

/// Two ends of a machine's wire: QEMU's, or ours.
#[derive(Debug)]
struct Ends {
    card: OwnedFd,
    gateway: OwnedFd,
}

impl Wire {
    /// The descriptors that QEMU inherits: of its card, and of its gateway.
    pub fn numbers(&self) -> (RawFd, RawFd) {
        (self.0.card.as_raw_fd(), self.0.gateway.as_raw_fd())
    }

    #[cfg(test)]
    pub(super) fn card(&self) -> &OwnedFd {
        &self.0.card
    }

    /// Lets the program that this process becomes have them. It makes two system calls, and no more.
    pub(super) fn let_inherit(&self) -> io::Result<()> {
        fcntl_setfd(&self.0.card, FdFlags::empty())?;
        Ok(fcntl_setfd(&self.0.gateway, FdFlags::empty())?)
    }
}

/// A network that joins machines. Dropping it cuts its wires.
#[derive(Debug, Default)]
pub struct PrivateNetwork {
    /// Our ends of each wire.
    machines: Arc<Mutex<Vec<Arc<Ends>>>>,
    listeners: Vec<JoinHandle<()>>,
}

impl PrivateNetwork {
    /// A wire for one more machine.
    ///
    /// # Errors
    ///
    /// There can be no more sockets or threads.
    pub fn wire(&mut self) -> io::Result<Wire> {
        let pair =
            || socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let ((card, its_card), (gateway, its_gateway)) = (pair()?, pair()?);
        let ours = Arc::new(Ends { card, gateway });
        lock(&self.machines).push(ours.clone());
        let (own, machines) = (ours.clone(), self.machines.clone());
        let from_card = move || {
            each_frame(&own.card, |frame| {
                if is_for_gateway(frame) {
                    hand_on(&own.gateway, frame);
                }
                if is_for_others(frame) {
                    let machines = lock(&machines);
                    let others = machines.iter().filter(|other| !Arc::ptr_eq(other, &own));
                    others.for_each(|other| hand_on(&other.card, frame));
                }
            });
        };
        let from_gateway = move || each_frame(&ours.gateway, |frame| hand_on(&ours.card, frame));
        self.listeners.push(std::thread::Builder::new().spawn(from_card)?);
        self.listeners.push(std::thread::Builder::new().spawn(from_gateway)?);
        Ok(Wire(Arc::new(Ends { card: its_card, gateway: its_gateway })))
    }
}

impl Drop for PrivateNetwork {
    fn drop(&mut self) {
        for machine in &*lock(&self.machines) {
            // What waits at them is woken.
            let _ = shutdown(&machine.card, Shutdown::Both);
            let _ = shutdown(&machine.gateway, Shutdown::Both);
        }
        for thread in self.listeners.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Takes what comes from an end, until it is cut.
fn each_frame(end: &OwnedFd, mut take: impl FnMut(&[u8])) {
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    loop {
        match recv(end, &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => break,
            Ok((length, _)) => take(&buffer[..length]),
            Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
}

/// Who does not listen loses frames, as on a real wire.
fn hand_on(end: &OwnedFd, frame: &[u8]) {
    let _ = send(end, frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// The two addresses of a frame, to and from, and what follows.
fn parts(frame: &[u8]) -> Option<(&[u8; 6], &[u8; 6], &[u8])> {
    let (to, rest) = frame.split_first_chunk()?;
    let (from, rest) = rest.split_first_chunk()?;
    Some((to, from, rest))
}

fn is_gateway(address: &[u8; 6]) -> bool {
    GATEWAYS.iter().any(|start| address.starts_with(start))
}

/// Whether the machine's own gateway may hear a frame of its card.
fn is_for_gateway(frame: &[u8]) -> bool {
    parts(frame).is_some_and(|(to, _, rest)| {
        is_gateway(to) || *to == BROADCAST && (rest.starts_with(&ARP) || asks_for_address(rest))
    })
}

/// Whether other machines may hear a frame of a card.
fn is_for_others(frame: &[u8]) -> bool {
    parts(frame).is_some_and(|(to, from, rest)| {
        !is_gateway(to) && !is_gateway(from) && !asks_for_address(rest)
    })
}

/// Whether this is a request of DHCP, after the two addresses of a frame: its own gateway answers it.
fn asks_for_address(rest: &[u8]) -> bool {
    const UDP: u8 = 17;
    const SERVER_PORT: [u8; 2] = [0, 67];
    let Some(packet) = rest.strip_prefix(&IPV4) else { return false };
    let Some(header_bytes) = packet.first().map(|first| usize::from(first & 0xf) * 4) else {
        return false;
    };
    packet.get(9) == Some(&UDP)
        && packet.get(header_bytes + 2..header_bytes + 4) == Some(&SERVER_PORT[..])
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    const A: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];
    const B: [u8; 6] = [0x52, 0x54, 0, 0, 0, 2];
    const GATEWAY: [u8; 6] = [0x52, 0x55, 10, 0, 2, 2];

    fn frame(to: [u8; 6], from: [u8; 6], rest: &[u8]) -> Vec<u8> {
        [&to[..], &from[..], rest].concat()
    }

    fn send_all(end: &OwnedFd, frame: &[u8]) {
        assert_eq!(send(end, frame, SendFlags::empty()), Ok(frame.len()));
    }

    /// What comes next; nothing if nothing comes soon.
    fn next(end: &OwnedFd) -> Option<Vec<u8>> {
        let soon = Timespec::try_from(Duration::from_millis(200)).unwrap();
        let mut waiting = [PollFd::new(end, PollFlags::IN)];
        if poll(&mut waiting, Some(&soon)).unwrap() == 0 {
            return None;
        }
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        let (length, _) = recv(end, &mut buffer[..], RecvFlags::empty()).unwrap();
        buffer.truncate(length);
        Some(buffer)
    }

    #[test]
    fn a_frame_reaches_all_others() {
        let mut network = PrivateNetwork::default();
        let wires = [(); 3].map(|()| network.wire().unwrap());
        let [first, second, third] = wires.each_ref().map(|wire| &wire.0.card);
        let hello = frame(BROADCAST, A, b"\x08\x06hello");
        send_all(first, &hello);
        assert_eq!(next(second), Some(hello.clone()));
        assert_eq!(next(third), Some(hello.clone()));
        assert_eq!(next(&wires[0].0.gateway), Some(hello), "it may ask for the gateway");
        assert_eq!(next(first), None);
        assert_eq!(next(&wires[1].0.gateway), None);
        let longest = frame(A, B, &[7; 60 << 10]);
        send_all(second, &longest);
        assert_eq!(next(first), Some(longest));
        assert_eq!(next(&wires[1].0.gateway), None, "it would refuse the connection");
    }

    #[test]
    fn a_gateway_stays_with_its_machine() {
        let mut network = PrivateNetwork::default();
        let [own, other] = [(); 2].map(|()| network.wire().unwrap());
        let to_gateway = frame(GATEWAY, A, b"\x08\x00");
        send_all(&own.0.card, &to_gateway);
        assert_eq!(next(&own.0.gateway), Some(to_gateway));
        let from_gateway = frame(A, GATEWAY, b"\x08\x00");
        send_all(&own.0.gateway, &from_gateway);
        assert_eq!(next(&own.0.card), Some(from_gateway));
        let mut request = vec![0x08, 0, 0x45];
        request.resize(2 + 20, 0);
        request[2 + 9] = 17;
        request.extend_from_slice(&[0, 68, 0, 67]);
        send_all(&own.0.card, &frame(BROADCAST, A, &request));
        assert!(next(&own.0.gateway).is_some());
        // Too short to be a frame.
        send_all(&own.0.card, b"short");
        assert_eq!((next(&other.0.card), next(&other.0.gateway)), (None, None));
        request[2 + 20 + 3] = 53;
        let other_port = frame(BROADCAST, A, &request);
        send_all(&own.0.card, &other_port);
        assert_eq!(next(&other.0.card), Some(other_port));
        assert_eq!(next(&own.0.gateway), None);
    }

    #[test]
    fn a_machine_that_does_not_listen_stops_no_other() {
        let mut network = PrivateNetwork::default();
        let wires = [(); 3].map(|()| network.wire().unwrap());
        // More than a socket keeps; the third machine reads none of it.
        for number in 0..2000_u32 {
            let sent = frame(B, A, &number.to_le_bytes());
            send_all(&wires[0].0.card, &sent);
            assert_eq!(next(&wires[1].0.card), Some(sent));
        }
    }

    #[test]
    fn a_machine_that_is_gone_stops_no_other() {
        let mut network = PrivateNetwork::default();
        let [first, second, third] = [(); 3].map(|()| network.wire().unwrap());
        drop(third);
        let hello = frame(B, A, b"\x08\x06");
        send_all(&first.0.card, &hello);
        assert_eq!(next(&second.0.card), Some(hello));
    }
}
