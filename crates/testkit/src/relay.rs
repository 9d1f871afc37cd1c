//! A line between a client and a server: with a delay, a rate, a count of bytes, and cuts.
//!
//! Every connection to the relay is continued to the server. What arrives is sent on after the
//! delay, at the rate that all connections share, in each direction by itself. A relay is for
//! measurements and for connections that end in the middle.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_linger, set_socket_send_buffer_size};
use strongroom_base::Stopwatch;

/// What the line is like.
#[derive(Debug, Clone, Copy, Default)]
pub struct LineOptions {
    /// How long a byte takes in one direction.
    pub delay: Duration,
    /// Bytes a second in each direction; none is without a limit.
    pub bytes_per_second: Option<u64>,
}

impl LineOptions {
    /// Pieces of a connection on their way in one direction: twice what the line carries between a
    /// byte and its answer, as TCP has them.
    fn pieces_max(&self) -> usize {
        let Some(rate) = self.bytes_per_second else { return PIECES_MAX };
        let bytes = 4.0 * self.delay.as_secs_f64() * rate as f64;
        (bytes as usize / PIECE_BYTES).clamp(PIECES_MIN, PIECES_MAX)
    }
}

/// A relay that runs until this value is dropped.
#[derive(Debug)]
pub struct Relay {
    /// Where clients connect.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    /// Where else they connect.
    also: Vec<SocketAddr>,
}

#[derive(Debug)]
struct Shared {
    options: LineOptions,
    started: Stopwatch,
    is_ended: AtomicBool,
    /// Bytes and free time of each direction: to the server, and from it.
    ways: [Way; 2],
    connections: AtomicU64,
    // A plain mutex: held while the list changes or every connection is cut.
    open: Mutex<Vec<TcpStream>>,
    /// New connections are closed at once.
    is_down: AtomicBool,
}

#[derive(Debug, Default)]
struct Way {
    bytes: AtomicU64,
    /// When the line will have carried everything that was given to it.
    free_at: Mutex<Duration>,
}

/// Bytes are carried in pieces of at most this many.
const PIECE_BYTES: usize = 16 << 10;
/// At most this many pieces of a connection are on their way in one direction if the rate has no
/// limit: 4 MiB.
const PIECES_MAX: usize = 256;
/// As many are on their way at least.
const PIECES_MIN: usize = 16;
/// What the system may keep of what has arrived: a line has no memory.
const ARRIVED_BYTES_MAX: usize = 128 << 10;

impl Relay {
    /// Starts a relay to a server.
    ///
    /// # Panics
    ///
    /// If the loopback has no free port.
    pub fn start(server: SocketAddr, options: LineOptions) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            options,
            started: Stopwatch::start(),
            is_ended: AtomicBool::new(false),
            ways: Default::default(),
            connections: AtomicU64::new(0),
            open: Mutex::default(),
            is_down: AtomicBool::new(false),
        });
        shared.accept(listener, server);
        Self { address, shared, also: Vec::new() }
    }

    /// Carries connections to a second address of the server on the same line, from the same port
    /// of the relay: FTP sends its data so.
    ///
    /// # Panics
    ///
    /// If that port of the relay's address is taken.
    pub fn carry_also(&mut self, server: SocketAddr) {
        let listener = TcpListener::bind((self.address.ip(), server.port())).expect("a free port");
        self.also.push(listener.local_addr().expect("a bound socket has an address"));
        self.shared.accept(listener, server);
    }

    /// Bytes sent to the server so far.
    pub fn sent(&self) -> u64 {
        self.shared.ways[0].bytes.load(Ordering::Relaxed)
    }

    /// Bytes received from the server so far.
    pub fn received(&self) -> u64 {
        self.shared.ways[1].bytes.load(Ordering::Relaxed)
    }

    /// Connections made so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Cuts every connection that is open now.
    pub fn cut(&self) {
        let mut open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        for connection in open.drain(..) {
            reset(&connection);
        }
    }

    /// Cuts every connection and accepts no new one until [`Relay::up`].
    pub fn down(&self) {
        self.shared.is_down.store(true, Ordering::Relaxed);
        self.cut();
    }

    /// Accepts connections again.
    pub fn up(&self) {
        self.shared.is_down.store(false, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Ordering::Relaxed);
        self.cut();
        // Wakes the threads that accept.
        for address in self.also.iter().chain([&self.address]) {
            let _ = TcpStream::connect(address);
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: TcpListener, server: SocketAddr) {
        let accepting = self.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.is_ended.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(client) = client
                    && !accepting.is_down.load(Ordering::Relaxed)
                {
                    accepting.connections.fetch_add(1, Ordering::Relaxed);
                    // A server that is gone closes the connection.
                    let _ = accepting.continue_to(server, client);
                }
            }
        });
    }

    fn continue_to(self: &Arc<Self>, server: SocketAddr, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(server)?;
        for connection in [&client, &server] {
            connection.set_nodelay(true)?;
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.push(connection.try_clone()?);
        }
        self.carry(0, client.try_clone()?, server.try_clone()?);
        self.carry(1, server, client);
        Ok(())
    }

    /// Carries what arrives at `from` on to `to`: one thread receives, one sends in time.
    fn carry(self: &Arc<Self>, way: usize, mut from: TcpStream, to: TcpStream) {
        let (sender, receiver) = sync_channel::<(Duration, Vec<u8>)>(self.options.pieces_max());
        // If it cannot be set, more is kept.
        let _ = set_socket_send_buffer_size(&to, ARRIVED_BYTES_MAX);
        let receiving = self.clone();
        std::thread::spawn(move || {
            let mut piece = vec![0; PIECE_BYTES];
            loop {
                match from.read(&mut piece) {
                    Ok(0) | Err(_) => return,
                    Ok(count) => {
                        let due = receiving.due(way, count);
                        if sender.send((due, piece[..count].to_vec())).is_err() {
                            // Nothing takes it any more, and the sender must learn that.
                            let _ = from.shutdown(Shutdown::Both);
                            return;
                        }
                    }
                }
            }
        });
        let sending = self.clone();
        std::thread::spawn(move || sending.send(&receiver, to));
    }

    fn send(&self, receiver: &Receiver<(Duration, Vec<u8>)>, mut to: TcpStream) {
        while let Ok((due, piece)) = receiver.recv() {
            let wait = due.saturating_sub(self.started.elapsed());
            if !wait.is_zero() {
                std::thread::sleep(wait);
            }
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }

    /// When these bytes arrive at the other end.
    fn due(&self, way: usize, bytes: usize) -> Duration {
        let way = &self.ways[way];
        way.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let now = self.started.elapsed();
        let mut arrives = now;
        if let Some(rate) = self.options.bytes_per_second {
            let mut free_at = way.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            let takes = Duration::from_secs_f64(bytes as f64 / rate as f64);
            *free_at = (*free_at).max(now) + takes;
            arrives = *free_at;
        }
        arrives + self.options.delay
    }
}

/// Ends a connection in both directions; the other side learns it with the last descriptor at the
/// latest.
///
/// A shutdown alone would leave a sender whose window is shut without a word for minutes: Linux
/// opens no window after it, and a connection that is closed with everything read answers no probe.
fn reset(connection: &TcpStream) {
    // Both fail for what the other side has closed.
    let _ = set_socket_linger(connection, Some(Duration::ZERO));
    let _ = connection.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_waits_learns_of_a_reset() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        while sender.write(&[7; 1 << 20]).is_ok() {}
        reset(&receiver);
        while receiver.read(&mut [0; PIECE_BYTES]).is_ok_and(|count| count > 0) {}
        drop(receiver);
        sender.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        let error = std::iter::repeat_with(|| sender.write(&[7; 1 << 20])).find_map(Result::err);
        let kind = error.unwrap().kind();
        assert!(
            matches!(kind, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset),
            "{kind}"
        );
    }
}
