//! The sockets through which commands and answers travel. A node listens at one address, of IPv4 or of
//! IPv6; a client reaches nodes of both through one socket.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use rustix::net::sockopt::{set_ipv6_multicast_hops, set_ipv6_v6only};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// Hops that a datagram to a group may take.
const MULTICAST_HOPS: u32 = 16;

/// The socket of a client.
pub struct ClientSocket {
    socket: UdpSocket,
    is_ipv6: bool,
}

impl ClientSocket {
    /// One that reaches all of these addresses.
    pub fn open(targets: &[SocketAddr]) -> io::Result<Self> {
        if targets.iter().all(SocketAddr::is_ipv4) {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.set_multicast_ttl_v4(MULTICAST_HOPS)?;
            return Ok(Self { socket, is_ipv6: false });
        }
        let (family, flags) = (AddressFamily::INET6, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
        // It reaches IPv4, too, even if the system's default is another.
        set_ipv6_v6only(&socket, false)?;
        set_ipv6_multicast_hops(&socket, MULTICAST_HOPS)?;
        bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0))?;
        Ok(Self { socket: socket.into(), is_ipv6: true })
    }

    /// Sends a datagram.
    pub fn send(&self, datagram: &[u8], target: SocketAddr) -> io::Result<()> {
        let target = match target {
            SocketAddr::V4(target) if self.is_ipv6 => {
                (target.ip().to_ipv6_mapped(), target.port()).into()
            }
            target => target,
        };
        self.socket.send_to(datagram, target).map(drop)
    }

    /// The socket, to receive from.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }
}

/// The socket of a node at an address, as a member of a group.
pub fn bind_in_group(address: SocketAddr, group: SocketAddr) -> io::Result<UdpSocket> {
    // A socket that is bound to one address hears nothing of a group.
    match (address, group.ip()) {
        (SocketAddr::V4(own), IpAddr::V4(group)) => {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, own.port()))?;
            socket.join_multicast_v4(&group, own.ip())?;
            Ok(socket)
        }
        (SocketAddr::V6(own), IpAddr::V6(group)) => {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, own.port()))?;
            socket.join_multicast_v6(&group, interface_of(own))?;
            Ok(socket)
        }
        _ => {
            let reason = format!("it is of another family than the node's address {address}");
            Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
        }
    }
}

/// The number of the interface with an address of IPv6; zero lets the system choose one.
fn interface_of(address: SocketAddrV6) -> u32 {
    if address.scope_id() != 0 {
        return address.scope_id();
    }
    let interfaces = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    interface_in(&interfaces, *address.ip()).unwrap_or(0)
}

/// A line has an address, and the number of its interface, both in hexadecimal digits.
fn interface_in(interfaces: &str, own: Ipv6Addr) -> Option<u32> {
    interfaces.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        let interface = u32::from_str_radix(words.next()?, 16).ok()?;
        (Ipv6Addr::from_bits(address) == own).then_some(interface)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_socket_reaches_both_families() {
        let nodes = ["127.0.0.1:0", "[::1]:0"].map(|address| UdpSocket::bind(address).unwrap());
        let addresses = nodes.each_ref().map(|node| node.local_addr().unwrap());
        for targets in [&addresses[..1], &addresses[1..], &addresses[..]] {
            let client = ClientSocket::open(targets).unwrap();
            for target in targets {
                client.send(b"status", *target).unwrap();
                let node = &nodes[usize::from(target.is_ipv6())];
                let mut bytes = [0; 16];
                let (length, from) = node.recv_from(&mut bytes).unwrap();
                assert_eq!(&bytes[..length], b"status");
                node.send_to(b"idle", from).unwrap();
                let (length, _) = client.socket().recv_from(&mut bytes).unwrap();
                assert_eq!(&bytes[..length], b"idle");
            }
        }
    }

    #[test]
    fn the_interface_of_an_address_is_found() {
        let interfaces = "fd000000000000000000000000000002 04 40 00 82     eth0\n\
                          00000000000000000000000000000001 01 80 10 80       lo\n";
        assert_eq!(interface_in(interfaces, "fd00::2".parse().unwrap()), Some(4));
        assert_eq!(interface_in(interfaces, Ipv6Addr::LOCALHOST), Some(1));
        assert_eq!(interface_in(interfaces, "fd00::3".parse().unwrap()), None);
    }
}
