//! What was done and refused, as a chain: a line that is changed or removed shows.
//!
//! A line is `TIME WHO ROOM VERB WHAT BYTES HASH`. The hash is of the one before and of the line, so
//! who keeps the newest hash elsewhere can check all of it ([`check_log`]).
//!
//! A house's log belongs to one server as long as it serves. Of a room that is reached by `ssh` each
//! client has a server of its own, and one whose client is gone may go on for hours. These share a log:
//! each of them locks it for one line, which follows from the last line that is there then.

use std::fs::{File, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use strongroom_base::{Clock, Stopwatch, Timestamp};

/// Hex digits of a hash.
const HASH_DIGITS: usize = 64;
/// No line is longer.
const LINE_BYTES_MAX: u64 = 4 << 10;

/// A server that shares a log waits for the others this long: each has it for one line.
const TURN: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);

/// A log that grows.
pub struct AuditLog {
    clock: Arc<dyn Clock>,
    /// Whether other servers write it too.
    is_shared: bool,
    // A plain mutex: held while a line is written.
    end: Mutex<End>,
}

struct End {
    file: File,
    hash: String,
}

/// What can be wrong with a log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another server writes it.
    #[error("another server is at work with {}", .0.display())]
    Taken(PathBuf),
    /// It cannot be read or written.
    #[error("cannot use {}: {source}", .path.display())]
    Io {
        /// The log.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// A line does not follow from the one before.
    #[error("line {line} of {} does not follow from the one before: the log was changed", .path.display())]
    Broken {
        /// The log.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
    },
}

impl AuditLog {
    /// Opens the log of one server, or begins it. A last line that a crash cut short is removed.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, LogError> {
        let failed = |source| LogError::Io { path: path.to_owned(), source };
        let mut file = open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LogError::Taken(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let hash = last_hash(&mut file).map_err(failed)?;
        Ok(Self { clock, is_shared: false, end: Mutex::new(End { file, hash }) })
    }

    /// Opens a log that several servers write, or begins it.
    pub fn open_shared(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, LogError> {
        let failed = |source| LogError::Io { path: path.to_owned(), source };
        let mut end = End { file: open(path).map_err(failed)?, hash: first_hash() };
        match end.lock() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(LogError::Taken(path.to_owned()));
            }
            Err(error) => return Err(failed(error)),
        }
        end.file.unlock().map_err(failed)?;
        Ok(Self { clock, is_shared: true, end: Mutex::new(end) })
    }

    /// Appends a line. A full disk must not end the service: the line is lost then, and the chain
    /// goes on without it.
    pub(crate) fn write(&self, who: &str, room: &str, verb: &str, what: &str, bytes: u64) {
        let time = seconds(self.clock.now());
        let text = format!("{time} {} {} {verb} {} {bytes}", word(who), word(room), word(what));
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_shared {
            end.append(&text);
        } else if end.lock().is_ok() {
            end.append(&text);
            // The next line locks it again.
            let _ = end.file.unlock();
        }
    }

    /// The hash of the last line.
    pub fn head(&self) -> String {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).hash.clone()
    }
}

impl End {
    /// Takes the file from the other servers that write it, with what they have written.
    fn lock(&mut self) -> io::Result<()> {
        let waited = Stopwatch::start();
        loop {
            match self.file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if waited.elapsed() < TURN => {
                    std::thread::sleep(LOOK);
                }
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        let hash = last_hash(&mut self.file);
        if hash.is_err() {
            let _ = self.file.unlock();
        }
        self.hash = hash?;
        Ok(())
    }

    fn append(&mut self, text: &str) {
        let hash = chained(&self.hash, text);
        let line = format!("{text} {hash}\n");
        let start = self.file.stream_position();
        match self.file.write_all(line.as_bytes()) {
            Ok(()) => self.hash = hash,
            Err(_) => {
                // Half a line would break the chain.
                if let Ok(start) = start {
                    let _ = self.file.set_len(start);
                    let _ = self.file.seek(SeekFrom::Start(start));
                }
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}

/// Checks all of a log. Returns how many lines it has and the hash of the last.
pub fn check_log(path: &Path) -> Result<(u64, String), LogError> {
    let failed = |source| LogError::Io { path: path.to_owned(), source };
    let mut lines = BufReader::new(File::open(path).map_err(failed)?);
    let (mut count, mut hash) = (0, first_hash());
    loop {
        let mut line = String::new();
        let read = lines.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
        if read.map_err(failed)? == 0 {
            return Ok((count, hash));
        }
        count += 1;
        let broken = || LogError::Broken { path: path.to_owned(), line: count };
        let (text, found) = line.trim_end_matches('\n').rsplit_once(' ').ok_or_else(broken)?;
        let expected = chained(&hash, text);
        if !line.ends_with('\n') || expected != found {
            return Err(broken());
        }
        hash = expected;
    }
}

/// The hash at the end of a file, whose last line is removed if it is not whole.
fn last_hash(file: &mut File) -> io::Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    let start = length.saturating_sub(2 * LINE_BYTES_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let end = start + whole as u64;
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    let line = &tail[..whole.saturating_sub(1)];
    match line.len().checked_sub(HASH_DIGITS) {
        Some(at) => Ok(String::from_utf8_lossy(&line[at..]).into_owned()),
        None => Ok(first_hash()),
    }
}

fn first_hash() -> String {
    "0".repeat(HASH_DIGITS)
}

fn chained(before: &str, text: &str) -> String {
    blake3::hash(format!("{before} {text}").as_bytes()).to_hex().to_string()
}

/// A text as one word: names come from clients and from people.
fn word(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    text.chars()
        .take(300)
        .map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c })
        .collect()
}

/// Seconds since the epoch: exact, and sorted as text for the next 250 years.
fn seconds(time: Timestamp) -> i64 {
    time.0.div_euclid(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use strongroom_base::FixedClock;

    use super::*;

    #[test]
    fn every_change_of_a_log_shows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let open = || AuditLog::open(&path, Arc::new(FixedClock(Timestamp(5))));
        let log = open().unwrap();
        assert!(matches!(open(), Err(LogError::Taken(_))));
        for number in 0..20 {
            log.write("lap top\n", "", "create", "arenas/a.0", number);
        }
        drop(log);
        // A crash cuts a line.
        std::fs::write(&path, [&std::fs::read(&path).unwrap()[..], b"0 half"].concat()).unwrap();
        let log = open().unwrap();
        log.write("me", "room", "refused", "keys/1", 0);
        assert_eq!(check_log(&path).unwrap(), (21, log.head()));
        drop(log);
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&path, bad).unwrap();
            assert!(check_log(&path).is_err(), "byte {at}");
        }
        let text = String::from_utf8(good).unwrap();
        let without: Vec<&str> =
            text.lines().enumerate().filter(|(n, _)| *n != 7).map(|(_, l)| l).collect();
        std::fs::write(&path, without.join("\n") + "\n").unwrap();
        assert!(matches!(check_log(&path), Err(LogError::Broken { line: 8, .. })));
    }

    /// As of the clients of one room over `ssh`, and of one that is gone and whose server is not.
    #[test]
    fn several_servers_share_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let open = || AuditLog::open_shared(&path, Arc::new(FixedClock(Timestamp(5)))).unwrap();
        let servers: Vec<_> = (0..4).map(|_| open()).collect();
        std::thread::scope(|scope| {
            for server in &servers {
                scope.spawn(|| {
                    (0..25).for_each(|number| {
                        server.write("ssh", "-", "create", "arenas/a.0", number)
                    });
                });
            }
        });
        assert_eq!(check_log(&path).unwrap().0, 100);
        // One of them died in the middle of a line.
        std::fs::write(&path, [&std::fs::read(&path).unwrap()[..], b"0 half"].concat()).unwrap();
        servers[0].write("ssh", "-", "enter", "admin", 0);
        assert_eq!(check_log(&path).unwrap(), (101, servers[0].head()));
        // The log of a house is not shared.
        let alone = AuditLog::open(&path, Arc::new(FixedClock(Timestamp(5)))).unwrap();
        let other = AuditLog::open_shared(&path, Arc::new(FixedClock(Timestamp(5))));
        assert!(matches!(other, Err(LogError::Taken(_))));
        drop(alone);
    }
}
