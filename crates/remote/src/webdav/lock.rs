//! The lock under which new objects get their names: one client at a time has it (RFC 4918, 6).
//!
//! It is an exclusive lock on the file `.lock` at the top of the place, which the first `LOCK` makes
//! and which stays empty. A lock ends by itself after twenty seconds, because its client may die, and it is
//! used in the first quarter of its time only: a move that the server carries out late is still under
//! it. Servers do not check it for us: most ignore a condition (header `If`) about another file.
//!
//! Some servers grant a lock that another client has, which [`Locks::are_kept`] finds out.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use strongroom_backend::Refusal;
use strongroom_base::entropy::random_array;
use strongroom_base::{Cancel, Entropy, Stopwatch};
use ureq::http::StatusCode;

use super::TEMPORARY;
use super::client::Client;
use crate::failure::Failure;
use crate::settings::Settings;

/// The file that is locked.
pub(super) const LOCKED: &str = ".lock";
/// What a server that keeps no locks cannot do.
pub(super) const EXCLUDE: &str = "keep two clients from creating the same object";
/// For how long a lock is asked for.
const HOLD: Duration = Duration::from_secs(20);
/// A server that does not end a lock within this time would keep all out after a client died.
const HOLD_MAX: Duration = Duration::from_secs(300);
/// The pause before a lock that another client has is asked for again; each further one is longer.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How long to wait while other clients have the lock.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often it is asked for again at once after there was no answer.
const LOST_MAX: u32 = 3;
/// How often a lock is given back, to a server that is busy or gives no answer.
const UNLOCKS: usize = 2;
/// How long this client waits for its own last lock to be given back.
const RETURN: Duration = Duration::from_secs(2);
/// How long the end of the program waits for a lock to be given back: until that was sent, at least.
const FAREWELL: Duration = Duration::from_millis(5);
/// Clients that ask for one lock at a time when locks are tried.
const RACERS: usize = 4;
const LOCK: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\
    <lockinfo xmlns=\"DAV:\"><lockscope><exclusive/></lockscope>\
    <locktype><write/></locktype></lockinfo>";

/// The lock of a place.
pub(super) struct Locks {
    client: Arc<Client>,
    /// The place's URL, with a slash at its end.
    place: String,
    entropy: Arc<dyn Entropy>,
    cancel: Cancel,
    /// Requests on their way that give locks back.
    returning: Arc<Returning>,
    /// Whether the server keeps locks, once it was tried. The mutex is held while it is.
    kept: Mutex<Option<bool>>,
}

// A plain mutex: held for a look or an insertion, never during a request.
type Returning = Mutex<Vec<JoinHandle<()>>>;

/// A lock that this client has. It is given back when this is dropped.
pub(super) struct Lock {
    /// None if it is left to end by itself.
    token: Option<Token>,
    returning: Arc<Returning>,
    /// Since it was asked for.
    age: Stopwatch,
    /// How long it holds; none is without an end.
    holds: Option<Duration>,
}

/// What gives a lock back.
struct Token {
    client: Arc<Client>,
    url: String,
    token: String,
}

impl Locks {
    /// Of the place with this URL.
    pub(super) fn new(client: Arc<Client>, place: String, settings: &Settings) -> Self {
        let (entropy, cancel) = (settings.entropy.clone(), settings.cancel.clone());
        Self { client, place, entropy, cancel, returning: Arc::default(), kept: Mutex::default() }
    }

    /// Waits until no other client has the lock, and takes it. While another has it, `look` may see
    /// that it is not needed any more, and fail.
    pub(super) fn take(&self, look: impl Fn() -> Result<(), Failure>) -> Result<Lock, Failure> {
        // Otherwise this client would often wait for itself.
        wait_for(self.returning(), RETURN);
        let url = format!("{}{LOCKED}", self.place);
        let waited = Stopwatch::start();
        let mut lost = 0;
        for attempt in 1_u32.. {
            match self.ask(&url) {
                Ok(Some(lock)) => return Ok(lock),
                Ok(None) => look()?,
                // What was sent need not be sent again for it.
                Err(Failure::Lost(_)) if lost < LOST_MAX => lost += 1,
                Err(failure) => return Err(failure),
            }
            if waited.elapsed() > PATIENCE {
                break;
            }
            if self.cancel.is_cancelled() {
                return Err(Failure::lost("stopped while another client had the lock"));
            }
            // By chance, so that many do not come back at one moment.
            let [chance] = random_array(&*self.entropy);
            std::thread::sleep((PAUSE * attempt).min(PAUSE_MAX) * u32::from(chance) / 255);
        }
        let answer =
            "another client has the lock, or died with it; then it ends within some minutes";
        Err(Failure::Refused { refusal: Refusal::Other, answer: answer.to_owned() })
    }

    /// Whether the server gives a lock to one of several clients, keeps it, and ends it soon. It is
    /// tried once, with a lock of its own.
    pub(super) fn are_kept(&self) -> Result<bool, Failure> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match *kept {
            Some(kept) => Ok(kept),
            None => Ok(*kept.insert(self.try_out()?)),
        }
    }

    fn try_out(&self) -> Result<bool, Failure> {
        let chance: [u8; 16] = random_array(&*self.entropy);
        let url = format!("{}{TEMPORARY}{:032x}", self.place, u128::from_le_bytes(chance));
        let asked: Vec<_> = std::thread::scope(|scope| {
            let ask = || self.ask(&url);
            let threads: Vec<_> = (0..RACERS).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
        });
        let asked: Result<Vec<Option<Lock>>, Failure> = asked.into_iter().collect();
        let outcome = asked.and_then(|asked| {
            let mut granted: Vec<Lock> = asked.into_iter().flatten().collect();
            let is_kept = match granted.as_slice() {
                [lock] if lock.holds.is_some_and(|holds| holds <= HOLD_MAX) => {
                    self.ask(&url).map(|again| again.is_none())
                }
                _ => Ok(false),
            };
            granted.iter_mut().filter_map(|lock| lock.token.take()).for_each(Token::give_back);
            is_kept
        });
        // Some are given back only now. Best effort: it is an empty file.
        wait_for(self.returning(), RETURN);
        let _ = self.client.call("DELETE", &url, &[], &[], 0);
        outcome
    }

    /// The lock, unless another client has it.
    fn ask(&self, url: &str) -> Result<Option<Lock>, Failure> {
        let age = Stopwatch::start();
        let headers = [
            ("depth", "0".to_owned()),
            ("timeout", format!("Second-{}", HOLD.as_secs())),
            ("content-type", "application/xml; charset=utf-8".to_owned()),
        ];
        let answer = self.client.call("LOCK", url, &headers, LOCK, 0)?;
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => {}
            StatusCode::LOCKED => return Ok(None),
            StatusCode::NOT_IMPLEMENTED => return Err(Failure::Unsupported(EXCLUDE)),
            status if is_busy(status) => return Err(answer.failure()),
            _ => return Err(Failure::Unsupported(EXCLUDE)),
        }
        let token = answer.header("lock-token").map(|token| token.trim_matches(['<', '>', ' ']));
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            return Err(Failure::Unsupported(EXCLUDE));
        };
        let (client, url) = (self.client.clone(), url.to_owned());
        Ok(Some(Lock {
            token: Some(Token { client, url, token: token.to_owned() }),
            returning: self.returning.clone(),
            age,
            holds: granted(&String::from_utf8_lossy(&answer.body)),
        }))
    }

    /// The requests on their way that give locks back: the caller has them now.
    fn returning(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.returning.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        wait_for(self.returning(), FAREWELL);
    }
}

/// Waits for threads, but not for long.
fn wait_for(threads: Vec<JoinHandle<()>>, most: Duration) {
    let waited = Stopwatch::start();
    while threads.iter().any(|thread| !thread.is_finished()) && waited.elapsed() < most {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Lock {
    /// Whether it holds for long enough to be used.
    pub(super) fn is_fresh(&self) -> bool {
        self.age.elapsed() < self.holds.unwrap_or(HOLD).min(HOLD) / 4
    }

    /// Lets it end by itself.
    pub(super) fn leave(mut self) {
        self.token = None;
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let Some(token) = self.token.take() else { return };
        // Nothing waits for the answer: without this request the lock ends by itself.
        let thread = std::thread::Builder::new().name("unlock".to_owned());
        let thread = thread.spawn(move || token.give_back());
        self.returning.lock().unwrap_or_else(PoisonError::into_inner).extend(thread);
    }
}

impl Token {
    fn give_back(self) {
        let headers = [("lock-token", format!("<{}>", self.token))];
        for _ in 0..UNLOCKS {
            let answer = self.client.call("UNLOCK", &self.url, &headers, &[], 0);
            if answer.is_ok_and(|answer| !is_busy(answer.status)) {
                return;
            }
        }
    }
}

/// Whether a server may answer better another time.
fn is_busy(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

/// How long a lock was granted for, as the answer says it (`<timeout>Second-20</timeout>`); none is
/// without an end.
fn granted(answer: &str) -> Option<Duration> {
    let Some((_, rest)) = answer.split_once("Second-") else {
        return if answer.contains("Infinite") { None } else { Some(HOLD) };
    };
    let digits = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_lock_is_what_the_server_grants() {
        let answer = "<D:prop><D:timeout>Second-3</D:timeout></D:prop>";
        assert_eq!(granted(answer), Some(Duration::from_secs(3)));
        assert_eq!(granted("<D:timeout>Infinite</D:timeout>"), None);
        assert_eq!(granted("<D:prop/>"), Some(HOLD));
        assert_eq!(granted("Second-"), None);
        assert_eq!(granted("Second-99999999999999999999999"), None);
    }
}
