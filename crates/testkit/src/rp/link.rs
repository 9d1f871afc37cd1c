//! A connection: messages behind their length, over TCP, with an end to each wait.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::error::RpError;
use super::wire::{Answer, MESSAGE_BYTES_MAX, Request};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(1);
/// How long another server may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(3);
/// How long a server may take to answer a client: it may have to split its bucket first.
pub const CLIENT_PATIENCE: Duration = Duration::from_secs(15);

/// A connection to a server.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    stream: TcpStream,
}

impl Link {
    /// Connects to a server, of which each answer may take this long.
    pub fn connect(address: SocketAddr, patience: Duration) -> Result<Self, RpError> {
        let connect = || {
            let stream = TcpStream::connect_timeout(&address, CONNECT)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            Ok(stream)
        };
        let stream = connect().map_err(|source| RpError::Unreachable { address, source })?;
        Ok(Self { address, stream })
    }

    /// Sends a request and waits for its answer. After an error the link is of no more use.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, RpError> {
        let address = self.address;
        let exchange = || {
            send(&mut self.stream, &request.encode())?;
            receive(&mut self.stream)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        };
        let answer = { exchange }().map_err(|source| RpError::Unreachable { address, source })?;
        Answer::decode(&answer).map_err(|error| RpError::Protocol { address, what: error.0 })
    }
}

/// Sends a message.
pub fn send(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let mut framed = Vec::with_capacity(4 + message.len());
    framed.extend_from_slice(&(message.len() as u32).to_le_bytes());
    framed.extend_from_slice(message);
    stream.write_all(&framed)
}

/// Waits for a message; none if the connection was ended between two.
pub fn receive(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    if stream.read(&mut length[..1])? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut length[1..])?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MESSAGE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is too long"));
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message)?;
    Ok(Some(message))
}
