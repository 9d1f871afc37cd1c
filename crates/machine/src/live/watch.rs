//! The thread that looks at the store, and gives the instant up before the store takes too much.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use strongroom_base::Stopwatch;

use super::image::{Instant, LiveImage};
use super::store::Store;
use crate::error::{Broken, MachineError};

/// How often it looks.
const TICK: Duration = Duration::from_secs(1);

/// How long the end of the thread is waited for.
const END_LIMIT: Duration = Duration::from_secs(30);
const END_TICK: Duration = Duration::from_millis(5);

/// What the thread needs.
pub struct Watched {
    pub store: Store,
    pub instant: Arc<Instant>,
    /// Has the store grow no more.
    pub give_up: Box<dyn Fn() + Send + Sync>,
}

/// The thread. Dropping it ends it.
pub struct Watch {
    watched: Arc<Watched>,
    images: Images,
    end: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

/// What is closed when the instant is given up.
// A plain mutex: held to add one, and to close all.
type Images = Arc<Mutex<Vec<LiveImage>>>;

impl Watch {
    /// Starts as soon as the store may grow: images can be added later.
    pub fn start(watched: Watched) -> Result<Self, MachineError> {
        let watched = Arc::new(watched);
        let (images, end) = (Images::default(), Arc::new((Mutex::new(false), Condvar::new())));
        let thread = {
            let (watched, images, end) = (watched.clone(), images.clone(), end.clone());
            let spawned = std::thread::Builder::new().name("store".to_owned());
            spawned.spawn(move || watched.run(&images, &end))
        };
        let thread = thread.map_err(|error| MachineError::File { path: "store".into(), error })?;
        Ok(Self { watched, images, end, thread: Some(thread) })
    }

    /// Closes this image, too, if the instant is given up, or was already.
    pub fn add(&self, image: &LiveImage) {
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        images.push(image.clone());
        if self.watched.instant.broken().is_some() {
            image.close();
        }
    }

    /// Why the instant is lost, or is about to be.
    pub fn trouble(&self) -> Option<Broken> {
        self.watched.instant.broken().or_else(|| self.watched.store.trouble())
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
    fn run(&self, images: &Images, end: &(Mutex<bool>, Condvar)) {
        loop {
            if let Some(trouble) = self.store.trouble() {
                self.instant.set_broken(trouble);
                let images = images.lock().unwrap_or_else(PoisonError::into_inner);
                images.iter().for_each(LiveImage::close);
                drop(images);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use strongroom_base::Cancel;
    use strongroom_disk::ReadAt;

    use super::*;
    use crate::live::reader::{Failure, Reader};
    use crate::live::recent::Recent;
    use crate::live::store::StoreLimits;

    struct Zeros;

    impl Reader for Zeros {
        fn size(&self) -> u64 {
            1 << 20
        }

        fn read_at(&self, _offset: u64, _buffer: &mut [u8]) -> Result<(), Failure> {
            Ok(())
        }

        fn release(&self, _range: std::ops::Range<u64>) {}
    }

    /// The maps of large disks take long to read, and the store grows meanwhile.
    #[test]
    fn a_store_is_watched_before_there_is_an_image() {
        let folder = tempfile::tempdir().unwrap();
        let limits = StoreLimits { bytes_max: Some(0), reserve: 0 };
        let instant = Arc::new(Instant::new(Cancel::new(), None));
        let given_up = Arc::new(AtomicBool::new(false));
        let set = given_up.clone();
        let watch = Watch::start(Watched {
            store: Store::open(folder.path(), limits).unwrap(),
            instant: instant.clone(),
            give_up: Box::new(move || set.store(true, Ordering::SeqCst)),
        })
        .unwrap();
        let waited = Stopwatch::start();
        while !given_up.load(Ordering::SeqCst) {
            assert!(waited.elapsed() < Duration::from_secs(10));
            std::thread::sleep(END_TICK);
        }
        assert_eq!(watch.trouble(), Some(Broken::Limit { limit: 0 }));
        let image = LiveImage::new(Arc::new(Zeros), Vec::new(), Recent::default(), instant);
        watch.add(&image);
        assert!(image.read_at(0, &mut [0; 512]).is_err());
    }
}
