//! TLS in both directions at once, for threads that block.
//!
//! One thread receives while others send. The state of TLS is shared; it is locked only while bytes
//! are encrypted or decrypted, never while the socket waits. Senders take turns, so that records
//! leave in the order in which they were made. What the receiving side has to answer (a new key,
//! an alert) leaves with the next record that is sent: the receiver never waits for a sender, or
//! two programs whose buffers are full would wait for each other.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::Connection;

/// Bytes that are taken from the socket at a time: a record and its frame.
const RECEIVED_BYTES: usize = 18 << 10;

/// A TLS connection whose handshake is done.
struct Duplex {
    socket: TcpStream,
    // Plain mutexes. `tls` is held while bytes are encrypted, `sending` while they leave.
    tls: Mutex<Connection>,
    sending: Mutex<()>,
}

/// The side that receives.
pub struct TlsReceiver {
    duplex: Arc<Duplex>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

/// The side that sends. What is written leaves at once.
pub struct TlsSender(Arc<Duplex>);

/// Does the handshake and divides the connection. The socket's own time-outs hold for each wait.
pub fn divide(
    mut tls: Connection,
    socket: TcpStream,
) -> io::Result<(TlsReceiver, TlsSender, Option<Vec<u8>>)> {
    while tls.is_handshaking() {
        let mut stream = &socket;
        tls.complete_io(&mut stream)?;
    }
    let protocol = tls.alpn_protocol().map(<[u8]>::to_vec);
    let duplex = Arc::new(Duplex { socket, tls: Mutex::new(tls), sending: Mutex::default() });
    let buffer = vec![0; RECEIVED_BYTES].into_boxed_slice();
    let receiver = TlsReceiver { duplex: duplex.clone(), buffer, start: 0, end: 0 };
    Ok((receiver, TlsSender(duplex), protocol))
}

impl Duplex {
    /// Sends what TLS has ready. The caller has the turn.
    fn flush(&self) -> io::Result<()> {
        loop {
            let mut records = Vec::new();
            {
                let mut tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
                while tls.wants_write() {
                    tls.write_tls(&mut records)?;
                }
            }
            if records.is_empty() {
                return Ok(());
            }
            (&self.socket).write_all(&records)?;
        }
    }
}

impl Read for TlsReceiver {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            {
                let mut tls = self.duplex.tls.lock().unwrap_or_else(PoisonError::into_inner);
                while self.start < self.end {
                    let mut rest = &self.buffer[self.start..self.end];
                    let before = rest.len();
                    // It takes nothing while decrypted bytes wait to be read.
                    let taken = match tls.read_tls(&mut rest) {
                        Ok(_) => before - rest.len(),
                        Err(_) => 0,
                    };
                    self.start += taken;
                    tls.process_new_packets()
                        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                    if taken == 0 {
                        break;
                    }
                }
                match tls.reader().read(into) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // An end without a farewell is one all the same: frames show what is cut.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                    other => return other,
                }
            }
            if self.start < self.end {
                // Decrypted bytes filled TLS's own buffer, and were all read just now.
                continue;
            }
            let count = match (&self.duplex.socket).read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if count == 0 {
                return Ok(0);
            }
            (self.start, self.end) = (0, count);
        }
    }
}

impl Write for TlsSender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _turn = self.0.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sent = 0;
        while sent < bytes.len() {
            {
                let mut tls = self.0.tls.lock().unwrap_or_else(PoisonError::into_inner);
                sent += tls.writer().write(&bytes[sent..])?;
            }
            self.0.flush()?;
        }
        Ok(sent)
    }

    fn flush(&mut self) -> io::Result<()> {
        let _turn = self.0.sending.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.flush()
    }
}

impl TlsSender {
    /// Ends both directions at once: a thread that waits for the connection gets an error.
    pub fn close(&self) {
        let _ = self.0.socket.shutdown(Shutdown::Both);
    }

    /// A second handle, to close it by.
    pub fn handle(&self) -> Self {
        Self(self.0.clone())
    }
}
