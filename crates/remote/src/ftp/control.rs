//! One connection of FTP (RFC 959), with the data connections that belong to it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use strongroom_backend::Refusal;
use strongroom_base::Stopwatch;

use crate::failure::Failure;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(15);
/// How long nothing may move.
const PROGRESS: Duration = Duration::from_secs(60);
/// A port for data that was asked for longer ago is not used: servers wait at it for a while only.
const PORT_AGE_MAX: Duration = Duration::from_secs(10);
/// The longest line of a reply, and the most lines.
const LINE_BYTES_MAX: usize = 8 << 10;
const LINES_MAX: usize = 1000;

/// Where a server is, and how it is spoken to.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) port: u16,
    /// TLS, if it is asked for.
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// TLS from the first byte on, instead of after a command.
    pub(super) is_implicit: bool,
    /// Whether this client was ever let in: its name and password are right then.
    pub(super) was_let_in: Arc<AtomicBool>,
}

/// A stream, perhaps over TLS.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// What a server replied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) code: u16,
    /// All lines.
    pub(super) text: String,
}

/// A control connection.
pub(super) struct Control {
    stream: Stream,
    server: Server,
    peer: IpAddr,
    /// Received bytes that were not looked at.
    received: Vec<u8>,
    /// The server lists folders in a form for programs (`MLSD`).
    pub(super) has_facts: bool,
    /// The server does not know `EPSV`.
    is_old: bool,
    /// The server has agreed to the present upload.
    is_agreed: bool,
    /// When the port for the next transfer was asked for. Until the reply is read, that comes first.
    asked_for_port: Option<Stopwatch>,
    /// The port for the next transfer, and when it was asked for.
    port: Option<(u16, Stopwatch)>,
    /// A transfer has begun whose last reply was not received: what is asked now would get it.
    pub(super) is_busy: bool,
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into),
            Self::Tls(stream) => match stream.read(into) {
                // An end without a farewell: the reply on the other connection says how it went.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                other => other,
            },
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl Stream {
    /// Ends what is sent, so that the other side knows that it has all.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if let Self::Tls(stream) = &mut self {
            stream.conn.send_close_notify();
        }
        self.flush()?;
        let socket = match &self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        };
        socket.shutdown(std::net::Shutdown::Write)
    }
}

impl Reply {
    /// What a code says that is not the wanted one.
    pub(super) fn failure(self) -> Failure {
        let Self { code, text } = self;
        let refused = |refusal, answer| Failure::Refused { refusal, answer };
        match code {
            421 | 450 | 451 => Failure::Busy { after: None, answer: text },
            425 | 426 => Failure::lost(text),
            430 | 530 | 332 => refused(Refusal::Credentials, text),
            452 | 552 => Failure::FULL,
            500 | 501 | 502 | 503 | 504 | 534 => refused(Refusal::Version, text),
            // A missing file, or a missing right: the caller looks which.
            550 | 553 => refused(Refusal::Right, text),
            _ => refused(Refusal::Other, text),
        }
    }

    /// How a login failed. A server that has no room for one more connection refuses it with the code
    /// of a wrong password.
    fn login_failure(self, was_let_in: bool) -> Failure {
        let text = self.text.to_ascii_lowercase();
        let has_no_room = ["maximum", "too many", "already connected", "connection limit"];
        match self.code {
            530 if was_let_in || has_no_room.iter().any(|words| text.contains(words)) => {
                Failure::Busy { after: None, answer: self.text }
            }
            _ => self.failure(),
        }
    }

    /// The reply, if its code is one of these.
    pub(super) fn is(self, codes: &[u16]) -> Result<Self, Failure> {
        if codes.contains(&self.code) { Ok(self) } else { Err(self.failure()) }
    }

    /// The reply to a step of a login, if its code is one of these.
    fn in_login(self, codes: &[u16], was_let_in: bool) -> Result<Self, Failure> {
        if codes.contains(&self.code) { Ok(self) } else { Err(self.login_failure(was_let_in)) }
    }
}

impl Control {
    /// Connects and logs in.
    pub(super) fn open(server: &Server, user: &str, password: &str) -> Result<Self, Failure> {
        let socket = connect((server.host.as_str(), server.port))?;
        let peer = socket.peer_addr().map_err(Failure::Lost)?.ip();
        let stream =
            if server.is_implicit { secure(socket, server)? } else { Stream::Plain(socket) };
        let mut control = Self {
            stream,
            server: server.clone(),
            peer,
            received: Vec::new(),
            has_facts: false,
            is_old: false,
            is_agreed: false,
            asked_for_port: None,
            port: None,
            is_busy: false,
        };
        let was_let_in = server.was_let_in.load(Ordering::Relaxed);
        control.reply()?.in_login(&[220], was_let_in)?;
        if server.tls.is_some() && !server.is_implicit {
            control.ask("AUTH TLS")?.is(&[234]).map_err(|failure| match failure {
                Failure::Refused { answer, .. } => Failure::Refused {
                    refusal: Refusal::Version,
                    answer: format!("the server does not speak TLS ({answer})"),
                },
                other => other,
            })?;
            // What came before TLS could be anyone's.
            control.received.clear();
            let Stream::Plain(socket) = control.stream else { unreachable!("it was made above") };
            control.stream = secure(socket, server)?;
        }
        let reply = control.ask(&format!("USER {user}"))?;
        if reply.in_login(&[230, 331], was_let_in)?.code == 331 {
            let reply = control.ask(&format!("PASS {password}"))?;
            reply.in_login(&[230, 202], was_let_in)?;
        }
        server.was_let_in.store(true, Ordering::Relaxed);
        let is_secure = server.tls.is_some();
        let commands: &[&str] =
            if is_secure { &["PBSZ 0", "PROT P", "TYPE I"] } else { &["TYPE I"] };
        control.send(commands)?;
        control.send(&["FEAT"])?;
        control.ask_for_port()?;
        for _ in commands {
            control.receive_reply()?.is(&[200])?;
        }
        let features = control.receive_reply()?.text;
        let mut features = features.lines().map(str::trim);
        control.has_facts = features.any(|line| line == "MLSD" || line.starts_with("MLST"));
        Ok(control)
    }

    /// Sends a command and waits for its reply.
    pub(super) fn ask(&mut self, command: &str) -> Result<Reply, Failure> {
        self.send(&[command])?;
        self.reply()
    }

    /// Sends commands, each of which will be answered. The server does one after the other.
    pub(super) fn send(&mut self, commands: &[&str]) -> Result<(), Failure> {
        debug_assert!(!commands.iter().any(|line| line.contains(['\r', '\n'])), "one line each");
        let lines = commands.iter().flat_map(|command| [*command, "\r\n"]).collect::<String>();
        let lines = zeroize::Zeroizing::new(lines);
        self.stream.write_all(lines.as_bytes()).map_err(Failure::Lost)?;
        self.stream.flush().map_err(Failure::Lost)
    }

    /// Asks for the port of the next transfer, without waiting: far away, the reply is there when
    /// that begins.
    fn ask_for_port(&mut self) -> Result<(), Failure> {
        if self.is_old || self.asked_for_port.is_some() {
            return Ok(());
        }
        self.send(&["EPSV"])?;
        self.asked_for_port = Some(Stopwatch::start());
        Ok(())
    }

    /// Reads the reply to that.
    fn take_port(&mut self) -> Result<(), Failure> {
        let Some(asked) = self.asked_for_port.take() else { return Ok(()) };
        let reply = self.receive_reply()?;
        self.port = match reply.code {
            229 => {
                let port = port_of_epsv(&reply.text)
                    .ok_or_else(|| Failure::lost(format!("no port in {:?}", reply.text)))?;
                Some((port, asked))
            }
            _ => {
                self.is_old = true;
                None
            }
        };
        Ok(())
    }

    /// The last reply of a transfer.
    pub(super) fn end_of_transfer(&mut self) -> Result<Reply, Failure> {
        let reply = self.reply()?;
        self.ask_for_port()?;
        Ok(reply)
    }

    /// The next reply.
    pub(super) fn reply(&mut self) -> Result<Reply, Failure> {
        self.take_port()?;
        self.receive_reply()
    }

    fn receive_reply(&mut self) -> Result<Reply, Failure> {
        let first = self.line()?;
        let code = first.get(..3).and_then(|code| code.parse().ok());
        let code: u16 =
            code.ok_or_else(|| Failure::lost(format!("{first:?} is no reply of FTP")))?;
        let mut text = first.get(3..).unwrap_or_default().trim_start_matches(['-', ' ']).to_owned();
        if first.as_bytes().get(3) == Some(&b'-') {
            let last = format!("{code} ");
            for count in 0.. {
                let line = self.line()?;
                if count > LINES_MAX {
                    return Err(Failure::lost("a reply without an end"));
                }
                // The last line may say what the others do not: that a listing is not whole.
                let end = line.strip_prefix(&last);
                text = format!("{text}\n{}", end.unwrap_or(&line).trim());
                if end.is_some() {
                    break;
                }
            }
        }
        self.is_busy &= code < 200;
        Ok(Reply { code, text })
    }

    fn line(&mut self) -> Result<String, Failure> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.received.len() > LINE_BYTES_MAX {
                return Err(Failure::lost("a line without an end"));
            }
            let mut buffer = [0; 1024];
            let count = self.stream.read(&mut buffer).map_err(Failure::Lost)?;
            if count == 0 {
                return Err(Failure::lost("the connection ended"));
            }
            self.received.extend_from_slice(&buffer[..count]);
        }
    }

    /// Begins a command that receives data: its stream, once the server has agreed.
    pub(super) fn download(
        &mut self,
        before: Option<&str>,
        command: &str,
        kept_bytes_max: Option<usize>,
    ) -> Result<Stream, Failure> {
        let port = self.passive()?;
        // The server goes on with the command when the connection is there.
        match before {
            Some(before) => self.send(&[before, command])?,
            None => self.send(&[command])?,
        }
        self.is_busy = true;
        let socket = self.connect_to(port)?;
        if let Some(bytes) = kept_bytes_max {
            // If it cannot be set, more is received than is wanted.
            let _ = set_socket_recv_buffer_size(&socket, bytes);
        }
        let agreed = match before {
            Some(_) => self.receive_reply()?.is(&[350]).map(drop),
            None => Ok(()),
        };
        let begun = self.receive_reply()?;
        self.is_busy = begun.code < 200;
        agreed.and(begun.is(&[125, 150]))?;
        self.secured(socket)
    }

    /// Begins a command that sends data: its stream. Without TLS, the server may still refuse:
    /// [`Control::agree`] waits for that, and so does [`Control::end_of_upload`].
    pub(super) fn upload(&mut self, command: &str) -> Result<Stream, Failure> {
        let port = self.passive()?;
        self.send(&[command])?;
        (self.is_busy, self.is_agreed) = (true, false);
        let socket = self.connect_to(port)?;
        if self.server.tls.is_some() {
            // Nothing answers a greeting of TLS if it does not.
            self.agree()?;
        }
        self.secured(socket)
    }

    /// Waits until the server agrees to an upload: before much is sent that it may not take.
    pub(super) fn agree(&mut self) -> Result<(), Failure> {
        if !self.is_agreed {
            self.receive_reply()?.is(&[125, 150])?;
            self.is_agreed = true;
        }
        Ok(())
    }

    /// What the server says of an upload whose data were sent.
    pub(super) fn end_of_upload(&mut self) -> Result<(), Failure> {
        self.agree()?;
        self.end_of_transfer()?.is(&[226, 250]).map(drop)
    }

    /// Connects for data. A server that refuses the command may not wait for that.
    fn connect_to(&mut self, port: u16) -> Result<TcpStream, Failure> {
        connect(SocketAddr::new(self.peer, port)).or_else(|failure| self.refusal_or(failure))
    }

    /// What the server says of the command, if that explains why there is no stream of data.
    fn refusal_or<T>(&mut self, failure: Failure) -> Result<T, Failure> {
        loop {
            match self.receive_reply() {
                // It agrees to where the command is to begin; what it says of that follows.
                Ok(Reply { code: 350, .. }) => {}
                Ok(reply) if reply.code >= 400 => return Err(reply.failure()),
                _ => return Err(failure),
            }
        }
    }

    fn secured(&self, socket: TcpStream) -> Result<Stream, Failure> {
        match self.server.tls {
            Some(_) => secure(socket, &self.server),
            None => Ok(Stream::Plain(socket)),
        }
    }

    /// The port at which the server waits for us. The address that `PASV` names is not used: it may
    /// be one behind a router, or lead to a third machine.
    fn passive(&mut self) -> Result<u16, Failure> {
        self.take_port()?;
        match self.port.take() {
            Some((port, asked)) if asked.elapsed() < PORT_AGE_MAX => return Ok(port),
            _ => self.ask_for_port()?,
        }
        self.take_port()?;
        if let Some((port, _)) = self.port.take() {
            return Ok(port);
        }
        let reply = self.ask("PASV")?.is(&[227])?;
        port_of_pasv(&reply.text)
            .ok_or_else(|| Failure::lost(format!("no port in {:?}", reply.text)))
    }
}

fn connect(address: impl ToSocketAddrs) -> Result<TcpStream, Failure> {
    let mut last = io::Error::other("the name has no address");
    for address in address.to_socket_addrs().map_err(Failure::Lost)? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(socket) => {
                socket.set_nodelay(true).map_err(Failure::Lost)?;
                socket.set_read_timeout(Some(PROGRESS)).map_err(Failure::Lost)?;
                socket.set_write_timeout(Some(PROGRESS)).map_err(Failure::Lost)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(Failure::Lost(last))
}

/// Begins TLS. The session of the control connection is used again for data: many servers insist.
fn secure(mut socket: TcpStream, server: &Server) -> Result<Stream, Failure> {
    let (config, name) = server.tls.as_ref().expect("TLS was asked for");
    let mut client = ClientConnection::new(config.clone(), name.clone()).map_err(Failure::lost)?;
    while client.is_handshaking() {
        client.complete_io(&mut socket).map_err(crate::authority::of_handshake)?;
    }
    Ok(Stream::Tls(Box::new(StreamOwned::new(client, socket))))
}

/// The port in `229 Entering Extended Passive Mode (|||6446|)`.
fn port_of_epsv(text: &str) -> Option<u16> {
    let (_, inside) = text.rsplit_once('(')?;
    let mut parts = inside.split('|');
    parts.nth(3)?.parse().ok()
}

/// The port in `227 Entering Passive Mode (127,0,0,1,25,46)`.
fn port_of_pasv(text: &str) -> Option<u16> {
    let (_, inside) = text.rsplit_once('(')?;
    let (inside, _) = inside.split_once(')')?;
    let numbers: Vec<u16> =
        inside.split(',').map(|number| number.trim().parse().ok()).collect::<Option<_>>()?;
    match numbers.as_slice() {
        [_, _, _, _, high @ 0..=255, low @ 0..=255] => Some(high * 256 + low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_found() {
        assert_eq!(port_of_epsv("Entering Extended Passive Mode (|||6446|)"), Some(6446));
        assert_eq!(port_of_pasv("Entering Passive Mode (10,0,0,1,25,46)."), Some(6446));
        for text in ["", "(", "(|||x|)", "(|||99999|)", "(1,2,3,4,5,600)", "(1,2,3)"] {
            assert_eq!((port_of_epsv(text), port_of_pasv(text)), (None, None), "{text}");
        }
    }
}
