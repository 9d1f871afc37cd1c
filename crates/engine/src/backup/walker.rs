//! The walk on a thread of its own: while the entries of one directory are compared with the
//! parent's, another thread lists the next directory and reads the metadata of its entries.
//!
//! Events come in batches, so that the two seldom wait for each other, and in their order. At most
//! [`BATCHES_MAX`] batches and two more are ahead: the one being filled and the one being used.
//! That bounds the directories that are held open, too.
//!
//! The walk begins before the repository has answered: far away, that takes as long as the walk of
//! a small tree. What was found until then is the first batch.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use rustix::process::{Resource, getrlimit};
use strongroom_base::Stopwatch;
use strongroom_repository::{Crew, Stage, StageTimes};
use strongroom_source::{TreeSource, WalkEvent};

/// Events of a batch at most.
const BATCH_EVENTS: usize = 256;
/// Directories that a batch may hold open, besides the one it begins in: each of its events that
/// enters or leaves one may lead to another.
const BATCH_DIRECTORIES: usize = 32;
/// On a file system that is slow to answer, a batch is sent after this time.
const BATCH_TIME: Duration = Duration::from_millis(5);
/// The clock is read once in this many events.
const CLOCK_EVENTS: usize = 8;
/// Batches that wait.
const BATCHES_MAX: usize = 2;
/// Events of the first batch at most: some 25 MiB, which are given back before much is stored.
const EARLY_EVENTS: usize = 128 << 10;
/// Of the descriptors that the process may have, the first batch holds at most one in this many.
const EARLY_DESCRIPTORS: u64 = 2;

/// A walk whose events are not wanted yet.
pub struct EarlyWalker {
    begin: Sender<Arc<StageTimes>>,
    batches: Receiver<Vec<WalkEvent>>,
    /// Last: both queues close first.
    crew: Crew,
}

/// The events of a walk.
pub struct Walker {
    batches: Receiver<Vec<WalkEvent>>,
    at_hand: std::vec::IntoIter<WalkEvent>,
    times: Arc<StageTimes>,
    /// Last: the queue closes first. Empty once the walk has ended.
    crew: Crew,
}

impl EarlyWalker {
    /// Begins to walk.
    pub fn start(mut source: TreeSource) -> Self {
        let (send, batches) = bounded(BATCHES_MAX);
        let (begin, begun) = bounded(1);
        let mut crew = Crew::default();
        crew.start(move || {
            let Some((mut batch, times)) = first_batch(&mut source, &begun) else { return };
            // An error means that the walker was dropped.
            while !batch.is_empty() && send.send(batch).is_ok() {
                batch = times.time(Stage::Walk, || next_batch(&mut source));
            }
        });
        Self { begin, batches, crew }
    }

    /// Wants the events. From here on the time that the walk takes is noted.
    pub fn begin(self, times: &Arc<StageTimes>) -> Walker {
        // If the thread panicked, the first event reports that.
        let _ = self.begin.send(times.clone());
        let (at_hand, times) = (Vec::new().into_iter(), times.clone());
        Walker { batches: self.batches, at_hand, times, crew: self.crew }
    }
}

impl Iterator for Walker {
    type Item = WalkEvent;

    fn next(&mut self) -> Option<WalkEvent> {
        if let Some(event) = self.at_hand.next() {
            return Some(event);
        }
        match self.times.receive(&self.batches) {
            Ok(batch) => self.at_hand = batch.into_iter(),
            // A walk that panicked must not pass for one that ended.
            Err(_) => std::mem::take(&mut self.crew).join(),
        }
        self.at_hand.next()
    }
}

/// The events up to the moment in which they are wanted, and at most as many as memory and
/// descriptors allow. None if they are not wanted any more.
fn first_batch(
    source: &mut TreeSource,
    begun: &Receiver<Arc<StageTimes>>,
) -> Option<(Vec<WalkEvent>, Arc<StageTimes>)> {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let directories_max = usize::try_from(descriptors / EARLY_DESCRIPTORS).unwrap_or(usize::MAX);
    let (mut batch, mut directories) = (Vec::with_capacity(BATCH_EVENTS), 0);
    while batch.len() < EARLY_EVENTS && directories < directories_max {
        match begun.try_recv() {
            Err(TryRecvError::Empty) => {}
            // One event at least: an empty batch is the end.
            Ok(times) => {
                batch.extend(source.next());
                return Some((batch, times));
            }
            Err(TryRecvError::Disconnected) => return None,
        }
        let Some(event) = source.next() else { break };
        directories += usize::from(turns(&event));
        batch.push(event);
    }
    Some((batch, begun.recv().ok()?))
}

/// Whether it may hold another directory open than the event before it.
fn turns(event: &WalkEvent) -> bool {
    matches!(event, WalkEvent::EnterDirectory { .. } | WalkEvent::LeaveDirectory)
}

/// The next events; none at the end.
fn next_batch(source: &mut TreeSource) -> Vec<WalkEvent> {
    let (begun, mut directories) = (Stopwatch::start(), 0);
    let mut batch = Vec::with_capacity(BATCH_EVENTS);
    for event in source {
        directories += usize::from(turns(&event));
        batch.push(event);
        let late = batch.len().is_multiple_of(CLOCK_EVENTS) && begun.elapsed() > BATCH_TIME;
        if batch.len() == BATCH_EVENTS || directories == BATCH_DIRECTORIES || late {
            break;
        }
    }
    batch
}

#[cfg(test)]
mod tests {
    use strongroom_source::SourceOptions;

    use super::*;

    fn texts(events: impl Iterator<Item = WalkEvent>) -> Vec<String> {
        let text = |event| match event {
            WalkEvent::EnterDirectory { entry, .. } => format!("{}/", entry.path().display()),
            WalkEvent::Leaf { entry, .. } => entry.path().display().to_string(),
            WalkEvent::LeaveDirectory => "^".to_owned(),
            other => panic!("{other:?}"),
        };
        events.map(text).collect()
    }

    #[test]
    fn events_come_in_their_order_and_may_be_left() {
        let folder = tempfile::tempdir().unwrap();
        for directory in 0..50 {
            let directory = folder.path().join(format!("d{directory}"));
            std::fs::create_dir(&directory).unwrap();
            for file in 0..directory.as_os_str().len() * 4 {
                std::fs::write(directory.join(format!("f{file}")), "").unwrap();
            }
        }
        let open = || TreeSource::open(&[folder.path().into()], &SourceOptions::default()).unwrap();
        let times = Arc::new(StageTimes::default());
        let begin = || EarlyWalker::start(open()).begin(&times);
        assert_eq!(texts(begin()), texts(open()));
        assert!(times.of(Stage::Walk) > Duration::ZERO);
        for events in [0, 1, 300] {
            assert_eq!(begin().take(events).count(), events);
        }
        // Wanted when it is at its end, or never.
        let early = EarlyWalker::start(open());
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(texts(early.begin(&times)), texts(open()));
        drop(EarlyWalker::start(open()));
    }

    #[test]
    fn what_is_found_early_has_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let of_process = getrlimit(Resource::Nofile).current.unwrap_or(4096);
        let directories = usize::try_from(of_process.min(4096) / EARLY_DESCRIPTORS).unwrap();
        for directory in 0..directories {
            std::fs::create_dir(folder.path().join(format!("{directory}"))).unwrap();
        }
        let open = || TreeSource::open(&[folder.path().into()], &SourceOptions::default()).unwrap();
        let (begin, begun) = bounded(1);
        let times = Arc::new(StageTimes::default());
        let (mut source, of_thread) = (open(), times.clone());
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            begin.send(of_thread).unwrap();
        });
        let (batch, _) = first_batch(&mut source, &begun).unwrap();
        late.join().unwrap();
        assert!(batch.len() < EARLY_EVENTS);
        if of_process <= 4096 {
            assert!(batch.len() < texts(open()).len(), "{} directories", directories);
        }
    }
}
