//! What shows that a machine lives: words on its serial port, its guest agent, a port that answers.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;
use strongroom_base::Stopwatch;

use super::{BootError, Running};
use crate::agent::Agent;

/// How long one try may take.
const TRY_LIMIT: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sign {
    /// It says this on its serial port.
    Words(String),
    /// Its guest agent answers.
    Agent,
    /// It accepts connections to this port. The port must be forwarded to it.
    Port(u16),
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(words) => write!(f, "\"{words}\" on the serial port"),
            Self::Agent => write!(f, "an answer of the guest agent"),
            Self::Port(port) => write!(f, "a connection to port {port}"),
        }
    }
}

impl Running {
    /// Whether it shows a sign now, or has said the words before. It takes two seconds at most.
    ///
    /// # Errors
    ///
    /// The monitor does not answer.
    pub fn shows(&mut self, sign: &Sign) -> Result<bool, BootError> {
        match sign {
            Sign::Words(words) => Ok(self.console.has_said(words)),
            Sign::Agent => Ok(self.agent_answers()),
            Sign::Port(port) => self.port_answers(*port),
        }
    }

    fn agent_answers(&self) -> bool {
        let Some(socket) = &self.agent else { return false };
        Agent::connect(socket).is_ok_and(|mut agent| agent.synchronize(TRY_LIMIT).is_ok())
    }

    /// The port of this machine that leads to one of the guest.
    ///
    /// # Errors
    ///
    /// The monitor does not answer.
    pub fn forwarded(&self, port: u16) -> Result<Option<u16>, BootError> {
        let list = self.list()?;
        Ok(connections(&list).find(|it| it.is_forward && it.there == port).map(|it| it.here))
    }

    /// QEMU accepts every connection by itself, and only then asks the guest. What the guest did is
    /// in QEMU's list of connections.
    fn port_answers(&self, port: u16) -> Result<bool, BootError> {
        let Some(here) = self.forwarded(port)? else { return Ok(false) };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, here));
        let Ok(_connection) = TcpStream::connect_timeout(&address, TRY_LIMIT) else {
            return Ok(false);
        };
        let begun = Stopwatch::start();
        while begun.elapsed() < TRY_LIMIT {
            let list = self.list()?;
            let mut those = connections(&list).filter(|it| (it.here, it.there) == (here, port));
            if those.any(|it| it.is_established) {
                return Ok(true);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(false)
    }

    fn list(&self) -> Result<String, BootError> {
        let arguments = json!({"command-line": "info usernet"});
        let answer = self.qmp.execute("human-monitor-command", arguments)?;
        Ok(answer.as_str().unwrap_or_default().to_owned())
    }
}

/// A line of QEMU's list of connections.
#[derive(Debug, PartialEq, Eq)]
struct Connection {
    here: u16,
    there: u16,
    is_forward: bool,
    is_established: bool,
}

fn connections(list: &str) -> impl Iterator<Item = Connection> {
    list.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [state, _, _, here, _, there, ..] = fields[..] else { return None };
        Some(Connection {
            here: here.parse().ok()?,
            there: there.parse().ok()?,
            is_forward: state == "TCP[HOST_FORWARD]",
            is_established: matches!(state, "TCP[ESTABLISHED]" | "TCP[CLOSE_WAIT]"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_qemu_is_understood() {
        let list = "Hub -1 (net0):\r\n\
            \x20 Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\r\n\
            \x20 TCP[ESTABLISHED]   21       127.0.0.1 40123       10.0.2.15    22     0     0\r\n\
            \x20 TCP[SYN_SENT]      22       127.0.0.1 40124       10.0.2.15    80     0     0\r\n\
            \x20 TCP[HOST_FORWARD]  17       127.0.0.1 40123       10.0.2.15    22     0     0\r\n\
            \x20 UDP[236 sec]       16       10.0.2.15    68        10.0.2.2    67     0     0\r\n";
        let found: Vec<_> = connections(list).collect();
        let connection = |here, there, is_forward, is_established| Connection {
            here,
            there,
            is_forward,
            is_established,
        };
        assert_eq!(found[0], connection(40123, 22, false, true));
        assert_eq!(found[1], connection(40124, 80, false, false));
        assert_eq!(found[2], connection(40123, 22, true, false));
        assert_eq!(found.len(), 3);
        assert_eq!(connections("nonsense\n\n1 2 3 4 5 99999999 7").count(), 0);
    }
}
