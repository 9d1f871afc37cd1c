//! The private network of several machines that are started together.
//!
//! Each machine has a [`Wire`] to it, a socket that QEMU gets from us; nothing else can reach it, and
//! it leads nowhere. What comes from one wire goes to all others, as in a hub. Each machine keeps the
//! gateway that QEMU gives it, which answers DHCP and forwards ports: so frames from and to a gateway
//! stay with their machine.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair,
};

/// The longest frame of QEMU's cards, with all that they leave to the host.
const FRAME_BYTES_MAX: usize = 68 << 10;
/// How the addresses of QEMU's gateways begin, those for IPv4 and those for IPv6.
const GATEWAYS: [[u8; 2]; 2] = [[0x52, 0x55], [0x52, 0x56]];

/// QEMU's end of a wire.
#[derive(Debug, Clone)]
pub struct Wire(Arc<OwnedFd>);

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A network that joins machines. Dropping it cuts its wires.
#[derive(Debug, Default)]
pub struct PrivateNetwork {
    /// Our end of each wire.
    ends: Arc<Mutex<Vec<Arc<OwnedFd>>>>,
    listeners: Vec<JoinHandle<()>>,
}

impl PrivateNetwork {
    /// A wire for one more machine.
    ///
    /// # Errors
    ///
    /// There can be no more sockets or threads.
    pub fn wire(&mut self) -> io::Result<Wire> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        let ours = Arc::new(ours);
        lock(&self.ends).push(ours.clone());
        let ends = self.ends.clone();
        let listen = move || listen(&ends, &ours);
        self.listeners.push(std::thread::Builder::new().spawn(listen)?);
        Ok(Wire(Arc::new(theirs)))
    }
}

impl Drop for PrivateNetwork {
    fn drop(&mut self) {
        for end in &*lock(&self.ends) {
            // What waits at it is woken.
            let _ = shutdown(end, Shutdown::Both);
        }
        for thread in self.listeners.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Hands on what comes from a wire, until it is cut.
fn listen(ends: &Mutex<Vec<Arc<OwnedFd>>>, own: &Arc<OwnedFd>) {
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    loop {
        let frame = match recv(own, &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => break,
            Ok((length, _)) => &buffer[..length],
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => break,
        };
        if !is_for_others(frame) {
            continue;
        }
        for end in lock(ends).iter().filter(|end| !Arc::ptr_eq(end, own)) {
            // A machine that does not listen loses frames, as on a real wire.
            let _ = send(end, frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}

/// Whether a frame is for other machines, and not between a machine and its own gateway.
fn is_for_others(frame: &[u8]) -> bool {
    let Some((addresses, rest)) = frame.split_first_chunk::<12>() else { return false };
    let (to, from) = addresses.split_at(6);
    let is_gateway = |address: &[u8]| GATEWAYS.iter().any(|start| address.starts_with(start));
    !is_gateway(to) && !is_gateway(from) && !asks_for_address(rest)
}

/// Whether this is a request of DHCP, after the two addresses of a frame: its own gateway answers it.
fn asks_for_address(rest: &[u8]) -> bool {
    const IPV4: [u8; 2] = [0x08, 0x00];
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
    const ALL: [u8; 6] = [0xff; 6];
    const GATEWAY: [u8; 6] = [0x52, 0x55, 10, 0, 2, 2];

    fn frame(to: [u8; 6], from: [u8; 6], rest: &[u8]) -> Vec<u8> {
        [&to[..], &from[..], rest].concat()
    }

    fn send_all(wire: &Wire, frame: &[u8]) {
        assert_eq!(send(wire, frame, SendFlags::empty()), Ok(frame.len()));
    }

    /// What comes next; nothing if nothing comes soon.
    fn next(wire: &Wire) -> Option<Vec<u8>> {
        let soon = Timespec::try_from(Duration::from_millis(200)).unwrap();
        let mut waiting = [PollFd::new(wire, PollFlags::IN)];
        if poll(&mut waiting, Some(&soon)).unwrap() == 0 {
            return None;
        }
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        let (length, _) = recv(wire, &mut buffer[..], RecvFlags::empty()).unwrap();
        buffer.truncate(length);
        Some(buffer)
    }

    #[test]
    fn a_frame_reaches_all_others() {
        let mut network = PrivateNetwork::default();
        let wires = [(); 3].map(|()| network.wire().unwrap());
        let hello = frame(ALL, A, b"\x08\x06hello");
        send_all(&wires[0], &hello);
        assert_eq!(next(&wires[1]), Some(hello.clone()));
        assert_eq!(next(&wires[2]), Some(hello));
        assert_eq!(next(&wires[0]), None);
        let longest = frame(A, B, &[7; 60 << 10]);
        send_all(&wires[1], &longest);
        assert_eq!(next(&wires[0]), Some(longest));
    }

    #[test]
    fn a_gateway_stays_with_its_machine() {
        let mut network = PrivateNetwork::default();
        let wires = [(); 2].map(|()| network.wire().unwrap());
        send_all(&wires[0], &frame(GATEWAY, A, b"\x08\x00"));
        send_all(&wires[0], &frame(A, GATEWAY, b"\x08\x00"));
        let mut request = vec![0x08, 0, 0x45];
        request.resize(2 + 20, 0);
        request[2 + 9] = 17;
        request.extend_from_slice(&[0, 68, 0, 67]);
        send_all(&wires[0], &frame(ALL, A, &request));
        // Too short to be a frame.
        send_all(&wires[0], b"short");
        assert_eq!(next(&wires[1]), None);
        request[2 + 20 + 3] = 53;
        send_all(&wires[0], &frame(ALL, A, &request));
        assert_eq!(next(&wires[1]), Some(frame(ALL, A, &request)));
    }

    #[test]
    fn a_machine_that_does_not_listen_stops_no_other() {
        let mut network = PrivateNetwork::default();
        let wires = [(); 3].map(|()| network.wire().unwrap());
        // More than a socket keeps; the third machine reads none of it.
        for number in 0..2000_u32 {
            let sent = frame(ALL, A, &number.to_le_bytes());
            send_all(&wires[0], &sent);
            assert_eq!(next(&wires[1]), Some(sent));
        }
    }

    #[test]
    fn a_machine_that_is_gone_stops_no_other() {
        let mut network = PrivateNetwork::default();
        let [first, second, third] = [(); 3].map(|()| network.wire().unwrap());
        drop(third);
        let hello = frame(ALL, A, b"\x08\x06");
        send_all(&first, &hello);
        assert_eq!(next(&second), Some(hello));
    }
}
