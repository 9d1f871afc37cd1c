//! What is behind the serial ports and network cards of a machine that is resumed.

use super::Resuming;
use crate::boot::BootNetwork;
use crate::boot::disks::escaped;
use crate::description::{Argument, Properties};

/// Standard output, for what the first serial port says.
const OUTPUT: &str = "strongroom-serial";
/// Networks by an interface of the kernel.
const OF_THE_KERNEL: [&str; 4] = ["tap", "bridge", "vhost-user", "vhost-vdpa"];
/// Properties of a network card that the guest sees.
const CARD: [&str; 5] = ["model", "macaddr", "mac", "addr", "vectors"];

/// The chardev of the first serial port, if it has one by name.
pub fn console(typed: &[Argument<'_>]) -> Option<String> {
    typed.iter().find_map(|argument| match argument.name {
        "serial" => argument.value.strip_prefix("chardev:").map(str::to_owned),
        "device" => {
            let device = Properties::of(argument.value, "driver");
            let is_port = matches!(device.get("driver")?, "isa-serial" | "pci-serial");
            is_port.then(|| device.owned("chardev"))?
        }
        _ => None,
    })
}

impl Resuming<'_> {
    /// A chardev: standard output for the first serial port, otherwise nothing.
    pub(super) fn chardev(&mut self, chardev: &Properties) -> Option<()> {
        let id = chardev.owned("id")?;
        let is_console = self.console.as_ref() == Some(&id) && !self.has_console;
        self.has_console |= is_console;
        let backend = if is_console { "stdio,signal=off" } else { "null" };
        self.add("-chardev", format!("{backend},id={}", escaped(&id)));
        Some(())
    }

    pub(super) fn serial(&mut self, value: &str) {
        if value == "none" || value.starts_with("chardev:") {
            return self.add("-serial", value);
        }
        if self.has_console || self.console.is_some() {
            return self.add("-serial", "null");
        }
        self.has_console = true;
        self.add("-chardev", format!("stdio,signal=off,id={OUTPUT}"));
        self.add("-serial", format!("chardev:{OUTPUT}"));
    }

    /// What is put behind a network card: a network that leads nowhere. A driver that was offered what a
    /// network interface of the host can do (checksums, large packets) goes on with it, and QEMU's own
    /// network cannot do it: so it gets an interface that is never switched on.
    fn other_side(&mut self, network: &Properties) -> String {
        let kind = network.get("type").unwrap_or_default();
        if OF_THE_KERNEL.contains(&kind) {
            let queues = network.get("queues").filter(|queues| queues.parse::<u8>().is_ok());
            let queues = queues.map(|queues| format!(",queues={queues}")).unwrap_or_default();
            return format!("tap,script=no,downscript=no,vhost=off{queues}");
        }
        let mut gateway = "user,restrict=on".to_owned();
        if let BootNetwork::Isolated { forwards, .. } = &self.options.network
            && !self.is_forwarded
        {
            for (here, there) in forwards {
                gateway.push_str(&format!(",hostfwd=tcp:127.0.0.1:{here}-:{there}"));
            }
            self.is_forwarded = true;
        }
        gateway
    }

    /// A card's other side, or the card with it.
    pub(super) fn network(&mut self, name: &str, network: &Properties) {
        let kind = network.get("type").unwrap_or_default();
        if kind == "none" {
            return self.add(&format!("-{name}"), "none");
        }
        let of_card = network
            .0
            .iter()
            .filter(|(key, value)| CARD.contains(&key.as_str()) && !value.contains('/'));
        let card: String =
            of_card.map(|(key, value)| format!(",{key}={}", escaped(value))).collect();
        let id = network.get("id").map(|id| format!(",id={}", escaped(id))).unwrap_or_default();
        match name {
            "net" if kind == "nic" => self.add("-net", format!("nic{card}")),
            "nic" => {
                let gateway = self.other_side(network);
                self.add("-nic", gateway + &id + &card);
            }
            _ => {
                let gateway = self.other_side(network);
                self.add(&format!("-{name}"), gateway + &id);
            }
        }
    }
}
