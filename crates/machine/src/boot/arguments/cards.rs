//! The network cards of a machine, and what each is connected to.

use std::net::Ipv4Addr;

use super::Planning;
use crate::boot::disks::escaped;
use crate::boot::{BootNetwork, SharedNetwork, Wire};

/// The end of the address that QEMU's gateway gives to the first machine that asks.
const FIRST_GUEST: u8 = 15;
/// Network cards that a machine may have, all on the PCI bus. Their programs for booting from the
/// network are left out.
const CARDS: [&str; 12] = [
    "virtio-net-pci",
    "virtio-net-pci-transitional",
    "virtio-net-pci-non-transitional",
    "virtio-net",
    "e1000",
    "e1000-82545em",
    "e1000e",
    "rtl8139",
    "vmxnet3",
    "ne2k_pci",
    "pcnet",
    "igb",
];

impl Planning<'_> {
    /// The network cards; returns the wire to other machines, and the addresses of the cards.
    pub(super) fn network(&mut self) -> (Option<Wire>, Vec<String>) {
        let BootNetwork::Isolated { forwards, shared } = &self.options.network else {
            return (None, Vec::new());
        };
        let described = &self.description.networks;
        let cards: Vec<(&str, Option<&str>)> = match described.is_empty() {
            true => vec![("virtio-net-pci", None)],
            false => described.iter().map(|card| (&*card.device, card.mac.as_deref())).collect(),
        };
        let mut addresses = Vec::new();
        for (number, (device, described_mac)) in cards.into_iter().enumerate() {
            // The first card has the address that ports are forwarded to, and is on the wire.
            match shared {
                Some(shared) if number == 0 => self.shared_network(shared, forwards),
                _ => {
                    let forwards = if number == 0 { &forwards[..] } else { &[] };
                    let gateway = format!("user,id=net{number},restrict=on");
                    self.add("-netdev", gateway + &forwarded(forwards));
                }
            }
            let mut card = device;
            if !CARDS.contains(&device) || !self.emulator.has_device(device) {
                card = "virtio-net-pci";
                self.notes.push(format!("a network card was a {device}, and is a {card} now"));
            }
            let mut value = format!("{card},netdev=net{number}");
            if let Some(mac) = self.card_address(shared.as_ref(), number, described_mac) {
                value.push_str(&format!(",mac={}", escaped(&mac)));
                addresses.push(mac);
            }
            value.push_str(",romfile=");
            self.add("-device", value);
        }
        (shared.as_ref().map(|shared| shared.wire.clone()), addresses)
    }

    /// The card and a gateway of its own, each at its end of the wire.
    fn shared_network(&mut self, shared: &SharedNetwork, forwards: &[(u16, u16)]) {
        let mut gateway = "user,id=gateway,restrict=on,ipv6=off".to_owned();
        match shared.address {
            None => {
                let last = FIRST_GUEST.saturating_add(shared.place);
                gateway.push_str(&format!(",dhcpstart=10.0.2.{last}"));
            }
            Some(address) => {
                let [a, b, c, _] = address.octets();
                let is_free = |address: &Ipv4Addr| !shared.neighbours.contains(address);
                let all = (2..=254).rev().map(|last| Ipv4Addr::new(a, b, c, last));
                let mut free = all.filter(is_free);
                if let (Some(host), Some(dns)) = (free.next(), free.next()) {
                    let net = format!(",net={a}.{b}.{c}.0/24,host={host},dns={dns}");
                    gateway.push_str(&format!("{net},dhcpstart={address}"));
                }
            }
        }
        self.add("-netdev", gateway + &forwarded(forwards));
        let (card, gateway) = shared.wire.numbers();
        self.add("-netdev", format!("socket,id=wire,fd={gateway}"));
        self.add("-netdev", "hubport,id=port0,hubid=0,netdev=gateway");
        self.add("-netdev", "hubport,id=port1,hubid=0,netdev=wire");
        self.add("-netdev", format!("socket,id=net0,fd={card}"));
    }

    /// The address of a card: the one that it had, unless another machine of the set has it.
    fn card_address(
        &mut self,
        shared: Option<&SharedNetwork>,
        number: usize,
        described: Option<&str>,
    ) -> Option<String> {
        let Some(shared) = shared else { return described.map(str::to_owned) };
        match described {
            Some(mac) if !shared.taken.iter().any(|taken| taken.eq_ignore_ascii_case(mac)) => {
                return Some(mac.to_owned());
            }
            Some(mac) => self.notes.push(format!(
                "its network card was {mac}, which another machine of the set has, and is another \
                 now"
            )),
            None => {}
        }
        Some(format!("52:54:00:5e:{:02x}:{:02x}", shared.place, number & 0xff))
    }
}

/// Ports of the gateway that lead to those of the machine.
fn forwarded(forwards: &[(u16, u16)]) -> String {
    let all = forwards.iter();
    all.map(|(here, there)| format!(",hostfwd=tcp:127.0.0.1:{here}-:{there}")).collect()
}
