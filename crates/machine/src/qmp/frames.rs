//! JSON values on a Unix socket, one after the other, as QEMU's monitor and the guest agent send them.
//!
//! A value ends at the bracket that closes it, so it may be on one line or on several. The other side
//! is not trusted: how long a value is and how long it takes to come are bounded.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;
use strongroom_base::Stopwatch;

/// No answer is longer. The schema of QEMU 7.2 has 207 kB.
pub const VALUE_BYTES_MAX: usize = 4 << 20;
/// What is read at once.
const PART_BYTES: usize = 16 << 10;

/// Why no value came.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// It did not come in time.
    #[error("no answer came within {0:?}")]
    TimedOut(Duration),
    /// The other side ended the connection.
    #[error("the other side ended the connection")]
    Closed,
    /// It is longer than any answer.
    #[error("an answer is longer than {VALUE_BYTES_MAX} bytes")]
    TooLong,
    /// What came is not JSON.
    #[error("an answer is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The socket failed.
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// A time by which something must have happened.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    since: Stopwatch,
    limit: Duration,
}

impl Deadline {
    /// From now on.
    pub fn within(limit: Duration) -> Self {
        Self { since: Stopwatch::start(), limit }
    }

    /// What is left of the time.
    ///
    /// # Errors
    ///
    /// It has passed.
    pub fn left(&self) -> Result<Duration, FrameError> {
        let left = self.limit.saturating_sub(self.since.elapsed());
        if left.is_zero() { Err(FrameError::TimedOut(self.limit)) } else { Ok(left) }
    }
}

/// A connection that carries JSON values.
#[derive(Debug)]
pub struct Frames {
    stream: UnixStream,
    /// What was received and not taken yet.
    buffer: Vec<u8>,
    /// How much of it was scanned.
    scanned: usize,
    /// Open brackets at that place.
    depth: usize,
    is_string: bool,
    is_escaped: bool,
}

impl Frames {
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            scanned: 0,
            depth: 0,
            is_string: false,
            is_escaped: false,
        }
    }

    /// The socket.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), FrameError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            self.stream.set_write_timeout(Some(deadline.left()?))?;
            match self.stream.write(rest) {
                Ok(0) => return Err(FrameError::Closed),
                Ok(count) => rest = &rest[count..],
                Err(error) if is_tick(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The next value. What is between values is skipped.
    ///
    /// # Errors
    ///
    /// After [`FrameError::TooLong`] the connection is of no use.
    pub fn next(&mut self, deadline: Deadline) -> Result<Value, FrameError> {
        loop {
            if let Some(end) = self.scan() {
                let parsed = serde_json::from_slice(&self.buffer[..end]);
                self.take(end);
                return Ok(parsed?);
            }
            self.receive(deadline)?;
        }
    }

    /// Whether anything but white space was received that was not taken.
    pub fn has_some(&self) -> bool {
        !self.buffer.trim_ascii().is_empty()
    }

    /// Forgets everything before the object that begins with this name.
    ///
    /// # Errors
    ///
    /// After any error the connection is of no use.
    pub fn seek(&mut self, name: &str, deadline: Deadline) -> Result<(), FrameError> {
        let name = format!("\"{name}\"").into_bytes();
        loop {
            let mut places =
                (0..self.buffer.len()).filter(|&at| self.buffer[at..].starts_with(&name));
            let starts = |at: usize| {
                let before = self.buffer[..at].trim_ascii_end();
                before.ends_with(b"{").then(|| before.len() - 1)
            };
            if let Some(start) = places.find_map(starts) {
                self.take(start);
                return Ok(());
            }
            self.receive(deadline)?;
        }
    }

    /// Forgets everything up to this byte and the byte itself, at most `limit` bytes.
    pub fn skip_past(
        &mut self,
        byte: u8,
        limit: usize,
        deadline: Deadline,
    ) -> Result<(), FrameError> {
        let mut skipped = 0;
        loop {
            if let Some(place) = self.buffer.iter().position(|&found| found == byte) {
                self.take(place + 1);
                return Ok(());
            }
            skipped += self.buffer.len();
            if skipped > limit {
                return Err(FrameError::TooLong);
            }
            self.take(self.buffer.len());
            self.receive(deadline)?;
        }
    }

    /// Takes bytes out of the buffer; a value begins behind them.
    fn take(&mut self, count: usize) {
        self.buffer.drain(..count);
        (self.scanned, self.depth) = (0, 0);
        (self.is_string, self.is_escaped) = (false, false);
    }

    fn receive(&mut self, deadline: Deadline) -> Result<(), FrameError> {
        if self.buffer.len() >= VALUE_BYTES_MAX {
            return Err(FrameError::TooLong);
        }
        let mut part = [0; PART_BYTES];
        loop {
            self.stream.set_read_timeout(Some(deadline.left()?))?;
            match self.stream.read(&mut part) {
                Ok(0) => return Err(FrameError::Closed),
                Ok(count) => {
                    self.buffer.extend_from_slice(&part[..count]);
                    return Ok(());
                }
                Err(error) if is_tick(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Goes on to look for the end of the first value.
    fn scan(&mut self) -> Option<usize> {
        if self.depth == 0 {
            let starts = |&byte: &u8| matches!(byte, b'{' | b'[');
            let start = self.buffer.iter().position(starts).unwrap_or(self.buffer.len());
            self.take(start);
        }
        while let Some(&byte) = self.buffer.get(self.scanned) {
            self.scanned += 1;
            if self.is_escaped {
                self.is_escaped = false;
                continue;
            }
            match byte {
                b'\\' if self.is_string => self.is_escaped = true,
                b'"' => self.is_string = !self.is_string,
                b'{' | b'[' if !self.is_string => self.depth += 1,
                b'}' | b']' if !self.is_string => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(self.scanned);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

/// A wait that ended, or a signal: not an error.
fn is_tick(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn soon() -> Deadline {
        Deadline::within(Duration::from_secs(5))
    }

    fn frames_of(bytes: &[u8]) -> Frames {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let bytes = bytes.to_vec();
        std::thread::spawn(move || theirs.write_all(&bytes));
        Frames::new(ours)
    }

    #[test]
    fn values_follow_each_other() {
        let mut frames =
            frames_of(b"\r\n{\"a\": \"}\\\"]\"}\n{\n  \"b\": [\n1]\n}\xff\xffnoise\xff[] {\"c\"]");
        assert_eq!(frames.next(soon()).unwrap(), serde_json::json!({"a": "}\"]"}));
        assert_eq!(frames.next(soon()).unwrap(), serde_json::json!({"b": [1]}));
        frames.skip_past(0xff, 100, soon()).unwrap();
        assert_eq!(frames.next(soon()).unwrap(), serde_json::json!([]));
        assert!(matches!(frames.next(soon()), Err(FrameError::Json(_))));
        assert!(matches!(frames.next(soon()), Err(FrameError::Closed)));
    }

    #[test]
    fn waits_and_lengths_end() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut frames = Frames::new(ours);
        let short = Deadline::within(Duration::from_millis(20));
        assert!(matches!(frames.next(short), Err(FrameError::TimedOut(_))));
        let large = vec![b' '; 8 << 20];
        let short = Deadline::within(Duration::from_millis(20));
        assert!(matches!(frames.send(&large, short), Err(FrameError::TimedOut(_))));
        drop(theirs);
        let endless = [&b"{\"a\":\""[..], &vec![b'x'; VALUE_BYTES_MAX + PART_BYTES]].concat();
        assert!(matches!(frames_of(&endless).next(soon()), Err(FrameError::TooLong)));
        assert!(matches!(
            frames_of(&large).skip_past(0, 1 << 20, soon()),
            Err(FrameError::TooLong)
        ));
        let deep = [vec![b'['; 1000], vec![b']'; 1000]].concat();
        assert!(matches!(frames_of(&deep).next(soon()), Err(FrameError::Json(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut frames = frames_of(&bytes);
            for _ in 0..=bytes.len() {
                if matches!(frames.next(soon()), Err(FrameError::Closed)) {
                    return Ok(());
                }
            }
            prop_assert!(false, "values come without end");
        }
    }
}
