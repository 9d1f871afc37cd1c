//! The thread that looks at the store, and gives the instant up before the store takes too much.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use strongroom_base::Stopwatch;

use super::image::{Instant, LiveImage};
use super::store::Store;
use crate::error::MachineError;

/// How often it looks.
const TICK: Duration = Duration::from_secs(1);

/// How long the end of the thread is waited for.
const END_LIMIT: Duration = Duration::from_secs(30);
const END_TICK: Duration = Duration::from_millis(5);

/// What the thread needs.
pub struct Watched {
    pub store: Store,
    pub instant: Arc<Instant>,
    pub images: Vec<LiveImage>,
    /// Has the store grow no more.
    pub give_up: Box<dyn Fn() + Send + Sync>,
}

/// The thread. Dropping it ends it.
pub struct Watch {
    watched: Arc<Watched>,
    end: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub fn start(watched: Watched) -> Result<Self, MachineError> {
        let watched = Arc::new(watched);
        let end = Arc::new((Mutex::new(false), Condvar::new()));
        let thread = {
            let (watched, end) = (watched.clone(), end.clone());
            let spawned = std::thread::Builder::new().name("store".to_owned());
            spawned.spawn(move || watched.run(&end))
        };
        let thread = thread.map_err(|error| MachineError::File { path: "store".into(), error })?;
        Ok(Self { watched, end, thread: Some(thread) })
    }

    pub fn store_bytes(&self) -> u64 {
        self.watched.store.bytes().unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *self.end.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.end.1.notify_all();
        let Some(thread) = self.thread.take() else { return };
        // A store that hangs may hold it; then it ends when the store answers.
        let waited = Stopwatch::start();
        while !thread.is_finished() && waited.elapsed() < END_LIMIT {
            std::thread::sleep(END_TICK);
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

impl Watched {
    fn run(&self, end: &(Mutex<bool>, Condvar)) {
        loop {
            if let Some(trouble) = self.store.trouble() {
                self.instant.set_broken(trouble);
                self.images.iter().for_each(LiveImage::close);
                (self.give_up)();
                return;
            }
            let is_ended = end.0.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = end.1.wait_timeout_while(is_ended, TICK, |is_ended| !*is_ended);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
        }
    }
}
