//! Limits of the bytes a second that are sent and received.

use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use strongroom_base::clock::Stopwatch;

/// Bytes a second in both directions; none is without a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rate {
    /// Of what is sent.
    pub upload: Option<u64>,
    /// Of what is received.
    pub download: Option<u64>,
}

/// Bytes are paid for in pieces of this size, so that a request does not wait for all of its bytes
/// and then send them in one burst.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// What may be sent at once after a pause.
const BURST: Duration = Duration::from_millis(250);

/// The line to a place: everything that is sent and received goes through it.
#[derive(Debug)]
pub(crate) struct Line {
    upload: Option<Bucket>,
    download: Option<Bucket>,
}

/// A limit in one direction.
#[derive(Debug)]
struct Bucket {
    bytes_per_second: u64,
    started: Stopwatch,
    // A plain mutex: held for an addition, never while waiting.
    /// When everything that was let through so far will have gone at the allowed rate.
    paid_until: Mutex<Duration>,
}

impl Line {
    pub(crate) fn new(rate: Rate) -> Self {
        let bucket = |rate: Option<u64>| {
            rate.map(|rate| Bucket {
                bytes_per_second: rate.max(1),
                started: Stopwatch::start(),
                paid_until: Mutex::default(),
            })
        };
        Self { upload: bucket(rate.upload), download: bucket(rate.download) }
    }

    /// Waits until this many bytes may be sent.
    pub(crate) fn send(&self, bytes: usize) {
        if let Some(bucket) = &self.upload {
            bucket.pay(bytes);
        }
    }

    /// Waits as long as receiving this many bytes should have taken.
    pub(crate) fn receive(&self, bytes: usize) {
        if let Some(bucket) = &self.download {
            bucket.pay(bytes);
        }
    }
}

impl Bucket {
    fn pay(&self, bytes: usize) {
        let wait = self.owe(bytes, self.started.elapsed());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
    }

    /// How long to wait at `now` for these bytes.
    fn owe(&self, bytes: usize, now: Duration) -> Duration {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let mut paid_until = self.paid_until.lock().unwrap_or_else(PoisonError::into_inner);
        let from = (*paid_until).max(now.saturating_sub(BURST));
        *paid_until = from + takes;
        paid_until.saturating_sub(now)
    }
}

/// Gives bytes to a connection, at the line's rate.
pub(crate) struct Sending<'a> {
    pub(crate) rest: &'a [u8],
    pub(crate) line: &'a Line,
}

impl Read for Sending<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = into.len().min(PIECE_BYTES).min(self.rest.len());
        self.line.send(count);
        into[..count].copy_from_slice(&self.rest[..count]);
        self.rest = &self.rest[count..];
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_spread_over_time() {
        let line = Line::new(Rate { upload: Some(1000), download: None });
        let bucket = line.upload.as_ref().unwrap();
        let at = Duration::from_secs(100);
        // A quarter of a second's bytes may go at once.
        assert_eq!(bucket.owe(250, at), Duration::ZERO);
        assert_eq!(bucket.owe(500, at), Duration::from_millis(500));
        assert_eq!(bucket.owe(500, at), Duration::from_millis(1000));
        // A pause is not saved up beyond that.
        assert_eq!(bucket.owe(1250, at * 2), Duration::from_millis(1000));
        line.receive(usize::MAX);
    }
}
