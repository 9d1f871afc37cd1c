//! A connection: a Unix socket, or TCP. Every wait on it ends.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use strongroom_base::Stopwatch;

/// What is read ahead of a message's head. Data of at least this size goes past the buffer.
const BUFFER_BYTES: usize = 16 << 10;

/// A connection to another program.
#[derive(Debug)]
pub enum Stream {
    /// A Unix socket.
    Unix(UnixStream),
    /// TCP. Nothing encrypts it: it should not leave the machine.
    Tcp(TcpStream),
}

impl Stream {
    /// Connects to a Unix socket.
    pub fn connect_unix(path: &Path) -> io::Result<Self> {
        UnixStream::connect(path).map(Self::Unix)
    }

    /// The same connection again.
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
        }
    }

    /// Has reads and writes return after this time, so that a caller can look at its clock.
    pub(crate) fn set_tick(&self, tick: Duration) -> io::Result<()> {
        let tick = Some(tick.max(Duration::from_millis(1)));
        match self {
            Self::Unix(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(tick)?;
                stream.set_write_timeout(tick)
            }
            Self::Tcp(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(tick)?;
                stream.set_write_timeout(tick)
            }
        }
    }

    /// Ends the connection for all who have it. A connection that has ended already is fine.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(how),
            Self::Tcp(stream) => stream.shutdown(how),
        };
    }

    /// Sends all of `bytes`, in at most `limit`. After an error the connection is of no use: a part
    /// may have been sent.
    pub(crate) fn send(&self, bytes: &[u8], limit: Duration) -> io::Result<()> {
        let since = Stopwatch::start();
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.write_some(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = &rest[count..],
                Err(error) if is_tick(&error) => {}
                Err(error) => return Err(error),
            }
            if !rest.is_empty() && since.elapsed() > limit {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => (&*stream).write(bytes),
            Self::Tcp(stream) => (&*stream).write(bytes),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
        }
    }
}

/// The receiving half of a connection.
pub(crate) struct Receiver {
    stream: BufReader<Stream>,
}

/// How a wait for bytes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    /// All bytes are there.
    Whole,
    /// The other side ended the connection before the first of them.
    Ended,
}

impl Receiver {
    pub fn new(stream: Stream) -> Self {
        Self { stream: BufReader::with_capacity(BUFFER_BYTES, stream) }
    }

    /// Fills `into`. Whenever it has to wait longer, it asks `may_wait` and says how many bytes have
    /// come so far.
    pub fn fill(
        &mut self,
        into: &mut [u8],
        may_wait: &mut dyn FnMut(usize) -> bool,
    ) -> io::Result<Filled> {
        let mut done = 0;
        while done < into.len() {
            match self.stream.read(&mut into[done..]) {
                Ok(0) if done == 0 => return Ok(Filled::Ended),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(error) if is_tick(&error) => {}
                Err(error) => return Err(error),
            }
            if done < into.len() && !may_wait(done) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(Filled::Whole)
    }

    /// Fills `into` before a deadline. An end of the connection is an error.
    pub fn fill_until(&mut self, into: &mut [u8], deadline: Deadline) -> io::Result<()> {
        match self.fill(into, &mut |_| !deadline.has_passed())? {
            Filled::Whole => Ok(()),
            Filled::Ended => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Takes `bytes` bytes and forgets them.
    pub fn skip_until(&mut self, bytes: u64, deadline: Deadline) -> io::Result<()> {
        let mut part = [0; 4096];
        let mut rest = bytes;
        while rest > 0 {
            let count = rest.min(part.len() as u64);
            self.fill_until(&mut part[..count as usize], deadline)?;
            rest -= count;
        }
        Ok(())
    }
}

/// A time by which something must have happened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    since: Stopwatch,
    limit: Duration,
}

impl Deadline {
    /// From now on.
    pub fn within(limit: Duration) -> Self {
        Self { since: Stopwatch::start(), limit }
    }

    /// As much time again, from now on.
    pub fn renewed(&self) -> Self {
        Self::within(self.limit)
    }

    pub fn has_passed(&self) -> bool {
        self.since.elapsed() > self.limit
    }

    /// What is left of the time.
    pub fn left(&self) -> Duration {
        self.limit.saturating_sub(self.since.elapsed())
    }
}

/// The tick of a socket, or a signal: not an error.
fn is_tick(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = Stream::Unix(ours);
        ours.set_tick(Duration::from_millis(5)).unwrap();
        let mut receiver = Receiver::new(ours.try_clone().unwrap());
        theirs.write_all(b"ab").unwrap();
        let mut into = [0; 4];
        let error = receiver.fill_until(&mut into, Deadline::within(Duration::from_millis(20)));
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let sent = ours.send(&vec![0; 8 << 20], Duration::from_millis(20));
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut receiver = Receiver::new(Stream::Unix(ours));
        drop(theirs);
        assert_eq!(receiver.fill(&mut into, &mut |_| true).unwrap(), Filled::Ended);
    }
}
