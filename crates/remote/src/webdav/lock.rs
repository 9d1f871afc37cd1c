//! The lock under which new objects get their names: one client at a time has it (RFC 4918, 6).
//!
//! It is an exclusive lock on the place's top collection, without what is in its folders, so a server
//! refuses to others at most what concerns the top itself. A lock ends by itself after some seconds,
//! because its client may die. So it is asked for shortly, used in the first half of its time, and
//! shown with the move: the server then knows whether it still holds.
//!
//! Some servers grant every lock and keep none, which [`Locks::is_given_twice`] finds out.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use strongroom_backend::Refusal;
use strongroom_base::entropy::random_array;
use strongroom_base::{Entropy, Stopwatch};
use ureq::http::StatusCode;

use super::client::Client;
use crate::failure::Failure;

/// What a server that keeps no locks cannot do.
pub(super) const EXCLUDE: &str = "keep two clients from creating the same object";
/// How long a lock is asked for at first.
const HOLD: Duration = Duration::from_secs(4);
/// How often that is doubled, after locks that came too late to be used.
const DOUBLINGS_MAX: u32 = 6;
/// The pause before a lock that another client has is asked for again; each further one is longer.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How long others may have it, one after the other.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is asked for again at once after there was no answer.
const LOST_MAX: u32 = 3;
/// How long the end of the program waits for a lock to be given back: until that was sent, at least.
const FAREWELL: Duration = Duration::from_millis(5);
const LOCK: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\
    <lockinfo xmlns=\"DAV:\"><lockscope><exclusive/></lockscope>\
    <locktype><write/></locktype></lockinfo>";

/// The locks on one collection.
pub(super) struct Locks {
    client: Arc<Client>,
    url: String,
    entropy: Arc<dyn Entropy>,
    // A plain mutex: held for a look or an insertion, never during a request.
    /// Requests on their way that give locks back.
    ending: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

/// A lock that this client has. It is given back when this is dropped.
pub(super) struct Lock {
    client: Arc<Client>,
    url: String,
    ending: Arc<Mutex<Vec<JoinHandle<()>>>>,
    token: String,
    /// Since it was asked for.
    age: Stopwatch,
    /// How long it holds.
    holds: Duration,
}

impl Locks {
    /// On the collection of this URL.
    pub(super) fn new(client: Arc<Client>, url: String, entropy: Arc<dyn Entropy>) -> Self {
        Self { client, url, entropy, ending: Arc::default() }
    }

    /// Waits until no other client has the lock, and takes it. While another has it, `look` may see
    /// that it is not needed any more, and fail.
    pub(super) fn take(&self, look: impl Fn() -> Result<(), Failure>) -> Result<Lock, Failure> {
        self.wait(HOLD, look)
    }

    /// Takes it again and for longer, after it took too long to come.
    pub(super) fn take_longer(&self, late: Lock) -> Result<Lock, Failure> {
        drop(late);
        for doublings in 1..=DOUBLINGS_MAX {
            let lock = self.wait(HOLD * (1 << doublings), || Ok(()))?;
            if lock.is_fresh() {
                return Ok(lock);
            }
        }
        Err(Failure::lost("the server's locks end before they can be used"))
    }

    /// Whether the server grants a lock that this client already has.
    pub(super) fn is_given_twice(&self) -> Result<bool, Failure> {
        Ok(self.ask(HOLD)?.is_some())
    }

    fn wait(
        &self,
        holds: Duration,
        look: impl Fn() -> Result<(), Failure>,
    ) -> Result<Lock, Failure> {
        // Otherwise this client would often wait for itself.
        let ending = std::mem::take(&mut *locked(&self.ending));
        for thread in ending {
            let _ = thread.join();
        }
        let waited = Stopwatch::start();
        let mut lost = 0;
        for attempt in 1_u32.. {
            match self.ask(holds) {
                Ok(Some(lock)) => return Ok(lock),
                Ok(None) => look()?,
                // If it was granted, it ends soon; what was sent need not be sent again for it.
                Err(Failure::Lost(_) | Failure::Busy { .. }) if lost < LOST_MAX => lost += 1,
                Err(failure) => return Err(failure),
            }
            if waited.elapsed() > PATIENCE {
                break;
            }
            // By chance, so that many do not come back at one moment.
            let [chance] = random_array(&*self.entropy);
            std::thread::sleep((PAUSE * attempt).min(PAUSE_MAX) * u32::from(chance) / 255);
        }
        let answer = "another client has locked this collection".to_owned();
        Err(Failure::Refused { refusal: Refusal::Locked, answer })
    }

    /// The lock, unless another client has it.
    fn ask(&self, holds: Duration) -> Result<Option<Lock>, Failure> {
        let age = Stopwatch::start();
        let headers = [
            ("depth", "0".to_owned()),
            ("timeout", format!("Second-{}", holds.as_secs())),
            ("content-type", "application/xml; charset=utf-8".to_owned()),
        ];
        let answer = self.client.call("LOCK", &self.url, &headers, LOCK, 0)?;
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => {}
            StatusCode::LOCKED => return Ok(None),
            StatusCode::BAD_REQUEST
            | StatusCode::FORBIDDEN
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::NOT_IMPLEMENTED => return Err(Failure::Unsupported(EXCLUDE)),
            _ => return Err(answer.failure()),
        }
        let token = answer.header("lock-token").map(|token| token.trim_matches(['<', '>', ' ']));
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            return Err(Failure::Unsupported(EXCLUDE));
        };
        let granted = granted(&String::from_utf8_lossy(&answer.body)).unwrap_or(holds);
        Ok(Some(Lock {
            client: self.client.clone(),
            url: self.url.clone(),
            ending: self.ending.clone(),
            token: token.to_owned(),
            age,
            holds: holds.min(granted),
        }))
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        let waited = Stopwatch::start();
        let is_on_its_way = || locked(&self.ending).iter().any(|thread| !thread.is_finished());
        while is_on_its_way() && waited.elapsed() < FAREWELL {
            std::thread::sleep(FAREWELL / 5);
        }
    }
}

impl Lock {
    /// Whether it holds for long enough to be used.
    pub(super) fn is_fresh(&self) -> bool {
        self.age.elapsed() < self.holds / 2
    }

    /// The header `if` of a request that is carried out only while the lock holds.
    pub(super) fn condition(&self) -> String {
        format!("<{}> (<{}>)", self.url, self.token)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let (client, url) = (self.client.clone(), self.url.clone());
        let headers = [("lock-token", format!("<{}>", self.token))];
        // Nothing waits for the answer: without this request the lock ends by itself.
        let give_back = move || {
            let give = || client.call("UNLOCK", &url, &headers, &[], 0);
            let _ = give().or_else(|_| give());
        };
        let thread = std::thread::Builder::new().name("unlock".to_owned()).spawn(give_back);
        locked(&self.ending).extend(thread);
    }
}

/// How long a lock was granted for, as the answer says it: `<timeout>Second-4</timeout>`.
fn granted(answer: &str) -> Option<Duration> {
    let (_, rest) = answer.split_once("Second-")?;
    let digits = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok().map(Duration::from_secs)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_lock_is_what_the_server_grants() {
        let answer = "<D:prop><D:timeout>Second-3</D:timeout></D:prop>";
        assert_eq!(granted(answer), Some(Duration::from_secs(3)));
        assert_eq!(granted("<D:timeout>Infinite</D:timeout>"), None);
        assert_eq!(granted("Second-"), None);
        assert_eq!(granted("Second-99999999999999999999999"), None);
    }
}
