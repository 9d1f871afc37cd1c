//! How a connection to our own program is made: by the user's `ssh`, or over TLS.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use strongroom_backend::Refusal;

use crate::address::{Address, Scheme};
use crate::authority;
use crate::calls::{Acquaintance, End, Link};
use crate::duplex::{TlsSender, divide};
use crate::failure::Failure;
use crate::settings::Settings;
use crate::shell::{Shell, What};
use crate::wire::ALPN;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(15);
/// How long nothing may leave while bytes are on their way.
const PROGRESS: Duration = Duration::from_secs(60);
const PORT: u16 = 443;

/// How a connection is made.
pub(crate) enum Transport {
    /// By `ssh`, which runs this command there.
    Ssh { address: Address, settings: Box<Settings>, command: String, heard: Acquaintance },
    /// Over TLS.
    Tls { address: Address, tls: Arc<ClientConfig>, name: ServerName<'static> },
}

impl Transport {
    /// For an address.
    pub(crate) fn new(address: &Address, settings: &Settings) -> Result<Self, Failure> {
        if address.scheme == Scheme::Ssh {
            let program = settings.variables.text("STRONGROOM_REMOTE_PROGRAM");
            let path = if address.path.is_empty() { "." } else { address.path.as_str() };
            let command = format!(
                "{} serve --stdio --role admin --path {}",
                program.unwrap_or("strongroom"),
                quoted(path),
            );
            let settings = Box::new(settings.clone());
            let heard = Acquaintance::default();
            return Ok(Self::Ssh { address: address.clone(), settings, command, heard });
        }
        let host = address.host.trim_start_matches('[').trim_end_matches(']');
        let name = authority::server_name(host)?;
        let mut tls = authority::client(settings, &[&rustls::version::TLS13])?;
        tls.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self::Tls { address: address.clone(), tls: Arc::new(tls), name })
    }

    /// Makes a connection.
    pub(crate) fn connect(&self) -> Result<Link, Failure> {
        match self {
            Self::Ssh { address, settings, command, heard } => {
                let shell = Shell::spawn(address, settings, What::Command(command))?;
                Ok(Link::of(shell, heard))
            }
            Self::Tls { address, tls, name } => {
                let socket = connect(address)?;
                let client =
                    ClientConnection::new(tls.clone(), name.clone()).map_err(Failure::lost)?;
                // Later, callers wait for answers, and not the thread that receives them.
                let waits = socket.try_clone().map_err(Failure::Lost)?;
                waits.set_read_timeout(Some(CONNECT)).map_err(Failure::Lost)?;
                let (receiver, sender, protocol) =
                    divide(client.into(), socket).map_err(authority::of_handshake)?;
                waits.set_read_timeout(None).map_err(Failure::Lost)?;
                if protocol.as_deref() != Some(ALPN) {
                    return Err(Failure::Refused {
                        refusal: Refusal::Version,
                        answer: "the server is not `strongroom serve`, or of another version"
                            .to_owned(),
                    });
                }
                let end = Arc::new(OfSocket(sender.handle()));
                Ok(Link { receiving: Box::new(receiver), sending: Box::new(sender), end })
            }
        }
    }
}

fn connect(address: &Address) -> Result<TcpStream, Failure> {
    let host = address.host.trim_start_matches('[').trim_end_matches(']');
    let addresses =
        (host, address.port.unwrap_or(PORT)).to_socket_addrs().map_err(Failure::Lost)?;
    let mut last = io::Error::other("the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(socket) => {
                socket.set_nodelay(true).map_err(Failure::Lost)?;
                socket.set_write_timeout(Some(PROGRESS)).map_err(Failure::Lost)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(Failure::Lost(last))
}

/// A path as one word of a shell.
fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', r"'\''"))
}

struct OfSocket(TlsSender);

impl End for OfSocket {
    fn end(&self) {
        self.0.close();
    }

    fn reason(&self) -> Option<Failure> {
        None
    }
}
