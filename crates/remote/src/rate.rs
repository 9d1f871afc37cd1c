//! Limits of the bytes a second that are sent and received.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp as Time;
use jiff::tz::TimeZone;
use strongroom_base::Clock;
use strongroom_base::clock::Stopwatch;
use strongroom_base::units::parse_bytes;

/// Limits in both directions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rate {
    /// Of what is sent.
    pub upload: Limit,
    /// Of what is received.
    pub download: Limit,
}

/// A limit in one direction, by the time of day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limit {
    /// At certain times; the first that fits counts.
    hours: Vec<Hours>,
    /// At all others: bytes a second; none is without a limit.
    otherwise: Option<u64>,
}

/// A limit from one time of day until another, perhaps of the next day.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hours {
    /// Minutes of the day.
    from: u16,
    until: u16,
    bytes_per_second: Option<u64>,
}

impl Limit {
    /// The limit that a text means: `2MiB`, or `8:00-18:00=500KiB,2MiB`, where a part without times
    /// is for the rest of the day. `none` is no limit.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut limit = Self::default();
        let mut has_rest = false;
        for part in text.split(',') {
            match part.split_once('=') {
                Some((times, rate)) => {
                    let wrong = || format!("\"{times}\" is no time of day such as 8:00-18:00");
                    let (from, until) = times.split_once('-').ok_or_else(wrong)?;
                    limit.hours.push(Hours {
                        from: minute_of_day(from).ok_or_else(wrong)?,
                        until: minute_of_day(until).ok_or_else(wrong)?,
                        bytes_per_second: bytes_per_second(rate)?,
                    });
                }
                None if has_rest => return Err("two rates for the rest of the day".to_owned()),
                None => (limit.otherwise, has_rest) = (bytes_per_second(part)?, true),
            }
        }
        Ok(limit)
    }

    /// Bytes a second at a minute of the day.
    fn at(&self, minute: u16) -> Option<u64> {
        let is_within = |hours: &&Hours| match hours.from <= hours.until {
            true => (hours.from..hours.until).contains(&minute),
            false => minute >= hours.from || minute < hours.until,
        };
        self.hours.iter().find(is_within).map_or(self.otherwise, |hours| hours.bytes_per_second)
    }
}

fn bytes_per_second(text: &str) -> Result<Option<u64>, String> {
    match parse_bytes(text.trim()) {
        _ if text.trim() == "none" => Ok(None),
        Ok(0) => Err("nothing could be sent at this rate".to_owned()),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => Err(error.to_string()),
    }
}

/// `8`, `8:30`, `24:00`.
fn minute_of_day(text: &str) -> Option<u16> {
    let (hour, minute) = text.trim().split_once(':').unwrap_or((text.trim(), "0"));
    let (hour, minute) = (hour.parse::<u16>().ok()?, minute.parse::<u16>().ok()?);
    let is_valid = hour < 24 && minute < 60 || hour == 24 && minute == 0;
    is_valid.then(|| hour * 60 + minute)
}

/// Bytes are paid for in pieces of this size, so that a request does not wait for all of its bytes
/// and then send them in one burst.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// What may be sent at once after a pause.
const BURST: Duration = Duration::from_millis(250);

/// The line to a place: everything that is sent and received goes through it.
#[derive(Default)]
pub(crate) struct Line {
    upload: Option<Bucket>,
    download: Option<Bucket>,
}

/// A limit in one direction, and what was let through.
struct Bucket {
    limit: Limit,
    clock: Arc<dyn Clock>,
    started: Stopwatch,
    // A plain mutex: held for an addition, never while waiting.
    /// When everything that was let through so far will have gone at the allowed rate.
    paid_until: Mutex<Duration>,
}

impl Line {
    pub(crate) fn new(rate: &Rate, clock: &Arc<dyn Clock>) -> Self {
        let bucket = |limit: &Limit| {
            (*limit != Limit::default()).then(|| Bucket {
                limit: limit.clone(),
                clock: clock.clone(),
                started: Stopwatch::start(),
                paid_until: Mutex::default(),
            })
        };
        Self { upload: bucket(&rate.upload), download: bucket(&rate.download) }
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
        let Some(rate) = self.limit.at(self.minute()) else { return };
        let wait = self.owe(bytes, rate, self.started.elapsed());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
    }

    /// The minute of the day here.
    fn minute(&self) -> u16 {
        let now = Time::from_nanosecond(i128::from(self.clock.now().0)).unwrap_or_default();
        let time = now.to_zoned(TimeZone::system()).time();
        u16::from(time.hour().unsigned_abs()) * 60 + u16::from(time.minute().unsigned_abs())
    }

    /// How long to wait at `now` for these bytes, at this many a second.
    fn owe(&self, bytes: usize, rate: u64, now: Duration) -> Duration {
        let takes = Duration::from_secs_f64(bytes as f64 / rate as f64);
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
    use strongroom_base::SystemClock;

    use super::*;

    #[test]
    fn bytes_are_spread_over_time() {
        let rate = Rate { upload: Limit::parse("1000").unwrap(), ..Rate::default() };
        let line = Line::new(&rate, &(Arc::new(SystemClock) as Arc<dyn Clock>));
        let bucket = line.upload.as_ref().unwrap();
        let at = Duration::from_secs(100);
        // A quarter of a second's bytes may go at once.
        assert_eq!(bucket.owe(250, 1000, at), Duration::ZERO);
        assert_eq!(bucket.owe(500, 1000, at), Duration::from_millis(500));
        assert_eq!(bucket.owe(500, 1000, at), Duration::from_millis(1000));
        // A pause is not saved up beyond that.
        assert_eq!(bucket.owe(1250, 1000, at * 2), Duration::from_millis(1000));
        line.receive(usize::MAX);
    }

    #[test]
    fn a_limit_depends_on_the_time_of_day() {
        let limit = Limit::parse("8:00-18:30=1000, 22-6=none,5KiB").unwrap();
        for (hour, minute, rate) in [
            (7, 59, Some(5120)),
            (8, 0, Some(1000)),
            (18, 29, Some(1000)),
            (18, 30, Some(5120)),
            (22, 0, None),
            (5, 59, None),
            (6, 0, Some(5120)),
        ] {
            assert_eq!(limit.at(hour * 60 + minute), rate, "{hour}:{minute}");
        }
        assert_eq!(Limit::parse("0-24=7").unwrap().at(1439), Some(7));
        assert_eq!(Limit::parse("none").unwrap(), Limit::default());
        for wrong in
            ["", "0", "8-9=0", "8:60-9=1", "25-26=1", "8=1", "1,2", "1MiB,", "-=1", "a-b=1"]
        {
            assert!(Limit::parse(wrong).is_err(), "{wrong}");
        }
    }
}
